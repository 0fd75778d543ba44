//! LeastRecentlyUsed: the destination that has been without a new request for the longest, by the cluster's own count of
//! requests and not by a clock. It differs from RoundRobin when the set changes: who was away comes first on return, the
//! others keep their order. Neither load nor weight (above 0) counts.
//!
//! The cost is flat. Whoever is taken goes to the end of the line, so the line is sorted once for each set and then only
//! walked round. One that is passed over, since it is full or was tried, goes to the end as if it had been taken.

use super::{Balancer, Draw, Entry, Picker};
use crate::model::Member;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

pub const ENTRY: Entry = Entry { name: "LeastRecentlyUsed", build: |_, _| Box::new(LeastRecentlyUsed::default()) };

/// Holds the last turn given, over all sets that a cluster ever had.
#[derive(Default)]
struct LeastRecentlyUsed(Arc<AtomicU64>);

impl Balancer for LeastRecentlyUsed {
    fn prepare(&self, set: &[Arc<Member>]) -> Box<dyn Picker> {
        let mut line: Vec<(u64, usize)> = set.iter().map(|member| member.live.last_taken()).zip(0..).collect();
        line.sort_unstable();
        // Destinations may be older than this policy.
        self.0.fetch_max(line.last().map_or(0, |(turn, _)| *turn), Ordering::Relaxed);
        Box::new(Prepared {
            line: line.into_iter().map(|(_, position)| position).collect(),
            front: AtomicUsize::new(0),
            turns: self.0.clone(),
        })
    }
}

struct Prepared {
    /// Positions, the longest without a request first, when it was prepared.
    line: Vec<usize>,
    /// Where the line begins now, round and round.
    front: AtomicUsize,
    turns: Arc<AtomicU64>,
}

impl Picker for Prepared {
    fn pick(&self, set: &[Arc<Member>], draw: &mut Draw<'_>) -> Option<usize> {
        let in_turn = self.line.iter().map(|_| self.line[self.front.fetch_add(1, Ordering::Relaxed) % self.line.len()]);
        // Others take turns at the same time, so a whole round may miss the only one that is left.
        let any = self.line.iter().copied();
        let picked = in_turn.chain(any).find(|&i| !draw.tried.contains(set[i].index))?;
        set[picked].live.take(self.turns.fetch_add(1, Ordering::Relaxed) + 1);
        Some(picked)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{equal, members, picks};
    use super::*;
    use proptest::prelude::*;

    fn picked(policy: &LeastRecentlyUsed, set: &[Arc<Member>], tried: &[usize], count: usize) -> String {
        picks(policy, set, tried, 1, count).into_iter().flatten().collect()
    }

    #[test]
    fn given_nobody_was_used_when_picked_then_the_files_order_and_weights_do_not_count() {
        let set = members(&[("a", 5, ""), ("b", 1, ""), ("c", 1, "")]);
        assert_eq!(picked(&LeastRecentlyUsed::default(), &set, &[], 7), "abcabca");
    }

    #[test]
    fn given_one_was_away_when_it_returns_then_it_is_the_first_and_the_others_keep_their_order() {
        let (policy, set) = (LeastRecentlyUsed::default(), equal(&["a", "b", "c"]));
        assert_eq!(picked(&policy, &set, &[], 3), "abc");
        let without_c = &set[..2];
        assert_eq!(picked(&policy, without_c, &[], 3), "aba");
        assert_eq!(picked(&policy, &set, &[], 4), "cbac");
    }

    #[test]
    fn given_tried_ones_when_picked_then_the_longest_without_a_request_of_the_rest() {
        let (policy, set) = (LeastRecentlyUsed::default(), equal(&["a", "b", "c"]));
        assert_eq!(picked(&policy, &set, &[0], 4), "bcbc");
        assert_eq!(picked(&policy, &set, &[], 1), "a");
        assert_eq!(picked(&policy, &set, &[0, 1, 2], 1), "");
    }

    #[test]
    fn given_destinations_older_than_the_policy_when_picked_then_their_turns_still_count() {
        let set = equal(&["a", "b", "c"]);
        assert_eq!(picked(&LeastRecentlyUsed::default(), &set, &[], 2), "ab");
        let anew = LeastRecentlyUsed::default();
        assert_eq!(picked(&anew, &set, &[], 2), "ca");
        assert_eq!(picked(&anew, &set, &[], 3), "bca");
    }

    proptest! {
        /// The textbook form looks at all of them: the least `last taken`, the first of equals.
        #[test]
        fn given_sets_that_come_and_go_when_picked_then_always_the_textbooks_choice(
            steps in prop::collection::vec((1u8..32, 1usize..9), 1..12)
        ) {
            let (policy, all) = (LeastRecentlyUsed::default(), equal(&["a", "b", "c", "d", "e"]));
            let mut taken = [0; 5];
            let mut turn = 0;
            for (mask, count) in steps {
                let set: Vec<_> = all.iter().filter(|member| mask & (1 << member.index) != 0).cloned().collect();
                for id in picks(&policy, &set, &[], 1, count) {
                    let expected = set.iter().min_by_key(|member| taken[member.index]).expect("never empty");
                    prop_assert_eq!(id.as_ref(), Some(&expected.destination.id));
                    turn += 1;
                    taken[expected.index] = turn;
                }
            }
        }
    }
}
