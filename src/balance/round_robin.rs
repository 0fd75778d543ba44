//! RoundRobin: in turn, weighted and smooth — weights 5, 1, 1 give a a b a c a a, never a burst of five.
//! The order is nginx's smooth weighted round robin, laid out once as a table of one period. The turn belongs to the
//! cluster, so it goes on when the set is prepared anew. Load is not looked at.

use super::random::untried_from;
use super::{Balancer, Draw, Entry, Picker, Shares};
use crate::model::Member;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

pub const ENTRY: Entry = Entry { name: "RoundRobin", build: |_, _| Box::new(RoundRobin(Turns::default())) };

struct RoundRobin(Turns);

impl Balancer for RoundRobin {
    fn prepare(&self, set: &[Arc<Member>]) -> Box<dyn Picker> {
        Box::new(Prepared(self.0.over(set)))
    }
}

struct Prepared(Period);

impl Picker for Prepared {
    fn pick(&self, set: &[Arc<Member>], draw: &mut Draw<'_>) -> Option<usize> {
        untried_from(self.0.next(), set, draw)
    }
}

/// Whose turn it is, over all sets that a cluster ever had.
#[derive(Default)]
pub(super) struct Turns(Arc<AtomicUsize>);

impl Turns {
    pub fn over(&self, set: &[Arc<Member>]) -> Period {
        Period { order: smooth_order(Shares::of(set).weights()), turn: self.0.clone() }
    }
}

/// The positions of one set in the order of their turns.
pub(super) struct Period {
    order: Vec<u32>,
    turn: Arc<AtomicUsize>,
}

impl Period {
    pub fn next(&self) -> usize {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        self.order[turn % self.order.len()] as usize
    }
}

/// One period of smooth weighted round robin: at each step the position most in arrears, `step × weight − taken ×
/// total`, the first of equals. Positions of one weight take turns among themselves, so each step looks at one of
/// every *distinct* weight only.
pub fn smooth_order(weights: &[u32]) -> Vec<u32> {
    let total: i64 = weights.iter().map(|&w| i64::from(w)).sum();
    let mut classes: Vec<Class> = Vec::new();
    for (position, &weight) in weights.iter().enumerate() {
        match classes.iter_mut().find(|class| class.weight == i64::from(weight)) {
            Some(class) => class.positions.push(position as u32),
            None => classes.push(Class { weight: i64::from(weight), positions: vec![position as u32], taken: 0 }),
        }
    }
    (1..=total)
        .map(|step| {
            let best = (0..classes.len())
                .max_by_key(|&i| (classes[i].arrears(step, total), std::cmp::Reverse(classes[i].next())))
                .unwrap_or(0);
            let position = classes[best].next();
            classes[best].taken += 1;
            position
        })
        .collect()
}

struct Class {
    weight: i64,
    positions: Vec<u32>,
    /// Turns that the class has had.
    taken: usize,
}

impl Class {
    fn next(&self) -> u32 {
        self.positions[self.taken % self.positions.len()]
    }

    /// Of the member whose turn is next.
    fn arrears(&self, step: i64, total: i64) -> i64 {
        step * self.weight - (self.taken / self.positions.len()) as i64 * total
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{equal, members, picks};
    use super::*;
    use proptest::prelude::*;

    fn round_robin() -> RoundRobin {
        RoundRobin(Turns::default())
    }

    fn joined(seen: Vec<Option<String>>) -> String {
        seen.into_iter().flatten().collect()
    }

    #[test]
    fn given_weights_5_1_1_when_picked_then_the_turns_are_smooth() {
        let set = members(&[("a", 5, ""), ("b", 1, ""), ("c", 1, "")]);
        assert_eq!(joined(picks(&round_robin(), &set, &[], 1, 14)), "aabacaaaabacaa");
    }

    #[test]
    fn given_equal_weights_when_one_was_tried_then_the_next_in_turn() {
        let set = equal(&["a", "b", "c"]);
        assert_eq!(joined(picks(&round_robin(), &set, &[1], 1, 6)), "accacc");
    }

    #[test]
    fn given_a_turn_when_the_set_is_prepared_anew_then_it_goes_on() {
        let (policy, set) = (round_robin(), equal(&["a", "b", "c"]));
        assert_eq!(joined(picks(&policy, &set, &[], 1, 2)), "ab");
        assert_eq!(joined(picks(&policy, &set, &[], 1, 2)), "ca");
    }

    /// The textbook form: every position's current weight grows by its weight, the largest pays the total.
    fn textbook(weights: &[u32]) -> Vec<u32> {
        let total: i64 = weights.iter().map(|&w| i64::from(w)).sum();
        let mut current = vec![0i64; weights.len()];
        (0..total)
            .map(|_| {
                current.iter_mut().zip(weights).for_each(|(c, &w)| *c += i64::from(w));
                let best = (0..current.len()).max_by_key(|&i| (current[i], std::cmp::Reverse(i))).expect("not empty");
                current[best] -= total;
                best as u32
            })
            .collect()
    }

    proptest! {
        #[test]
        fn given_any_weights_when_laid_out_then_the_order_is_the_textbooks(
            weights in prop::collection::vec(1u32..12, 1..9)
        ) {
            prop_assert_eq!(smooth_order(&weights), textbook(&weights));
        }
    }
}
