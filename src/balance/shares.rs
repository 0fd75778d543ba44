//! Drawing in proportion to weight at the same cost for three destinations and for three thousand: each position
//! owns as many slots of one table as its weight says. Equal weights need no table.

use crate::model::{Dice, Member};
use std::sync::Arc;

/// More slots than this are scaled down, so that no weights can make a table of unbounded size; a share is then
/// exact to one part in 65,536.
const MOST_SLOTS: u64 = 65_536;

pub struct Shares {
    /// Slots of each position: its weight, divided by what all weights have in common.
    weights: Vec<u32>,
    /// First slot of each position.
    starts: Vec<u32>,
    /// Slot → position; empty when all weights are equal.
    slots: Vec<u32>,
    total: u32,
}

impl Shares {
    pub fn of(set: &[Arc<Member>]) -> Self {
        Self::from_weights(set.iter().map(|m| m.effective_weight()))
    }

    fn from_weights(weights: impl Iterator<Item = u32>) -> Self {
        let weights = reduced(weights.collect());
        let equal = weights.iter().all(|&w| w == 1);
        let mut starts = Vec::with_capacity(weights.len());
        let mut slots = Vec::new();
        let mut total = 0;
        for (position, &weight) in weights.iter().enumerate() {
            starts.push(total);
            total += weight;
            if !equal {
                slots.resize(total as usize, position as u32);
            }
        }
        Shares { weights, starts, slots, total }
    }

    /// The reduced weights, by position.
    pub fn weights(&self) -> &[u32] {
        &self.weights
    }

    /// A position, in proportion to weight.
    pub fn draw(&self, dice: &mut Dice) -> usize {
        self.position(dice.u32(0..self.total))
    }

    /// A position other than `not`, in proportion to weight among the rest; `None` when there is no other.
    pub fn draw_except(&self, not: usize, dice: &mut Dice) -> Option<usize> {
        let rest = self.total - self.weights[not];
        if rest == 0 {
            return None;
        }
        let slot = dice.u32(0..rest);
        let skip = if slot >= self.starts[not] { self.weights[not] } else { 0 };
        Some(self.position(slot + skip))
    }

    fn position(&self, slot: u32) -> usize {
        if self.slots.is_empty() { slot as usize } else { self.slots[slot as usize] as usize }
    }
}

/// Divides by the greatest common divisor, then scales down to [`MOST_SLOTS`]; nothing falls below 1.
fn reduced(mut weights: Vec<u32>) -> Vec<u32> {
    let divisor = weights.iter().fold(0, |a, &b| gcd(a, b)).max(1);
    weights.iter_mut().for_each(|w| *w = (*w / divisor).max(1));
    let total: u64 = weights.iter().map(|&w| u64::from(w)).sum();
    if total > MOST_SLOTS {
        weights.iter_mut().for_each(|w| *w = ((u64::from(*w) * MOST_SLOTS / total) as u32).max(1));
    }
    weights
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(shares: &Shares, draws: u32, mut draw: impl FnMut(&Shares) -> usize) -> Vec<u32> {
        let mut counts = vec![0; shares.weights.len()];
        (0..draws).for_each(|_| counts[draw(shares)] += 1);
        counts
    }

    #[test]
    fn given_weights_when_drawn_often_then_each_gets_its_share() {
        let shares = Shares::from_weights([50, 10, 40].into_iter());
        assert_eq!(shares.weights(), [5, 1, 4]);
        let mut dice = Dice::with_seed(7);
        let seen = counts(&shares, 100_000, |s| s.draw(&mut dice));
        for (count, expected) in seen.iter().zip([50_000.0, 10_000.0, 40_000.0f64]) {
            assert!((f64::from(*count) - expected).abs() < 5.0 * expected.sqrt(), "{seen:?}");
        }
    }

    #[test]
    fn given_weights_when_one_is_excepted_then_the_rest_share_in_proportion() {
        let shares = Shares::from_weights([1000, 1, 3].into_iter());
        let mut dice = Dice::with_seed(7);
        let seen = counts(&shares, 40_000, |s| s.draw_except(0, &mut dice).expect("two others"));
        assert_eq!(seen[0], 0);
        assert!((f64::from(seen[1]) - 10_000.0).abs() < 500.0, "{seen:?}");
    }

    #[test]
    fn given_a_single_destination_when_it_is_excepted_then_there_is_none() {
        let shares = Shares::from_weights([3].into_iter());
        assert_eq!(shares.draw(&mut Dice::with_seed(1)), 0);
        assert_eq!(shares.draw_except(0, &mut Dice::with_seed(1)), None);
    }

    #[test]
    fn given_three_thousand_heavy_weights_when_reduced_then_the_table_stays_bounded() {
        let shares = Shares::from_weights((0..3_000).map(|i| 1 + i % 1_000));
        assert!(shares.total as u64 <= MOST_SLOTS + 3_000);
        assert!(shares.weights.iter().all(|&w| w >= 1));
    }
}
