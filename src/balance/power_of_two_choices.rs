//! PowerOfTwoChoices, the default: two different destinations drawn in proportion to weight, and the one with the
//! lower in_flight/weight gets the request, the first on equal load. Two looks whatever the size of the cluster, and no
//! herd on the least loaded (Mitzenmacher, "The Power of Two Choices in Randomized Load Balancing", 2001).

use super::random::untried_from;
use super::{Balancer, Draw, Entry, Picker, Shares, less_loaded};
use crate::model::Member;
use std::sync::Arc;

pub const ENTRY: Entry = Entry { name: "PowerOfTwoChoices", build: |_, _| Box::new(PowerOfTwoChoices) };

struct PowerOfTwoChoices;

impl Balancer for PowerOfTwoChoices {
    fn prepare(&self, set: &[Arc<Member>]) -> Box<dyn Picker> {
        Box::new(TwoChoices::over(set))
    }
}

/// Also what PreferSameZone does inside a zone.
pub(super) struct TwoChoices(Shares);

impl TwoChoices {
    pub fn over(set: &[Arc<Member>]) -> Self {
        TwoChoices(Shares::of(set))
    }

    /// The two drawn, the first first; the same twice when there is only one.
    pub fn sample(&self, set: &[Arc<Member>], draw: &mut Draw<'_>) -> Option<(usize, usize)> {
        let first = self.0.draw(draw.dice);
        let second = self.0.draw_except(first, draw.dice).unwrap_or(first);
        if draw.tried.is_empty() {
            return Some((first, second));
        }
        let first = untried_from(first, set, draw)?;
        let second = untried_from(second, set, draw)?;
        Some((first, second))
    }
}

impl Picker for TwoChoices {
    fn pick(&self, set: &[Arc<Member>], draw: &mut Draw<'_>) -> Option<usize> {
        let (first, second) = self.sample(set, draw)?;
        Some(if less_loaded(&set[second], &set[first]) { second } else { first })
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{equal, load, members, picks};
    use super::*;

    #[test]
    fn given_a_busy_and_an_idle_destination_when_picked_then_always_the_idle_one() {
        let set = equal(&["d1", "d2"]);
        let _busy = load(&set[0], 1000);
        let seen = picks(&PowerOfTwoChoices, &set, &[], 3, 100);
        assert!(seen.iter().all(|id| id.as_deref() == Some("d2")));
    }

    #[test]
    fn given_three_destinations_when_picked_then_never_the_single_busiest() {
        let set = equal(&["d1", "d2", "d3"]);
        let _busy = load(&set[2], 1);
        let seen = picks(&PowerOfTwoChoices, &set, &[], 3, 1000);
        assert!(seen.iter().all(|id| id.as_deref() != Some("d3")));
    }

    #[test]
    fn given_equal_load_when_picked_then_the_first_drawn_so_shares_follow_weights() {
        let set = members(&[("a", 3, ""), ("b", 1, "")]);
        let seen = picks(&PowerOfTwoChoices, &set, &[], 3, 10_000);
        let a = seen.iter().flatten().filter(|id| *id == "a").count() as f64;
        assert!((a - 7_500.0).abs() < 250.0, "{a}");
    }

    #[test]
    fn given_tried_destinations_when_picked_then_only_the_rest_and_none_when_all_were() {
        let set = equal(&["a", "b", "c"]);
        let seen = picks(&PowerOfTwoChoices, &set, &[0, 2], 3, 100);
        assert!(seen.iter().all(|id| id.as_deref() == Some("b")));
        assert_eq!(picks(&PowerOfTwoChoices, &set, &[0, 1, 2], 3, 1), [None]);
    }
}
