//! LeastRequests: the lowest in_flight/weight of all; equals take smooth weighted turns, so that an idle cluster is
//! spread too. Looks at every destination: cost grows with their number (PowerOfTwoChoices does not).

use super::round_robin::{Period, Turns};
use super::{Balancer, Draw, Entry, Picker, less_loaded};
use crate::model::Member;
use std::sync::Arc;

pub const ENTRY: Entry = Entry { name: "LeastRequests", build: |_, _| Box::new(LeastRequests(Turns::default())) };

struct LeastRequests(Turns);

impl Balancer for LeastRequests {
    fn prepare(&self, set: &[Arc<Member>]) -> Box<dyn Picker> {
        Box::new(Prepared(self.0.over(set)))
    }
}

struct Prepared(Period);

impl Picker for Prepared {
    fn pick(&self, set: &[Arc<Member>], draw: &mut Draw<'_>) -> Option<usize> {
        let turn = self.0.next();
        let mut best: Option<usize> = None;
        for i in (turn..set.len()).chain(0..turn) {
            if draw.tried.contains(set[i].index) {
                continue;
            }
            if best.is_none_or(|b| less_loaded(&set[i], &set[b])) {
                best = Some(i);
            }
        }
        best
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{equal, load, members, picks};
    use super::*;

    fn least_requests() -> LeastRequests {
        LeastRequests(Turns::default())
    }

    #[test]
    fn given_one_busy_destination_when_picked_then_the_others_get_all() {
        let set = equal(&["a", "b", "c"]);
        let _busy = load(&set[0], 1);
        let seen = picks(&least_requests(), &set, &[], 1, 100);
        assert!(seen.iter().all(|id| id.as_deref() != Some("a")));
    }

    #[test]
    fn given_an_idle_cluster_when_picked_then_turns_are_taken_by_weight() {
        let set = members(&[("a", 5, ""), ("b", 1, ""), ("c", 1, "")]);
        let seen: String = picks(&least_requests(), &set, &[], 1, 7).into_iter().flatten().collect();
        assert_eq!(seen, "aabacaa");
    }

    #[test]
    fn given_weights_when_loads_are_in_their_proportion_then_they_count_as_equal() {
        let set = members(&[("a", 2, ""), ("b", 1, "")]);
        let _four = load(&set[0], 4);
        let _two = load(&set[1], 2);
        let _one_more = load(&set[0], 1);
        let seen = picks(&least_requests(), &set, &[], 1, 3);
        assert!(seen.iter().all(|id| id.as_deref() == Some("b")), "{seen:?}");
    }
}
