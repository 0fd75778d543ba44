//! Which members of a cluster may be drawn. Decided when health changes, never per request.

use crate::config::Section;
use crate::model::Member;
use std::sync::Arc;

/// Names: [`BUILTIN`].
pub trait AvailablePolicy: Send + Sync {
    /// `members` are all of a cluster; the answer keeps their order.
    fn choose(&self, members: &[Arc<Member>]) -> Available;
}

#[derive(Debug, Default)]
pub struct Available {
    pub members: Vec<Arc<Member>>,
    /// Nothing was unmarked, so marks are overridden.
    pub panic: bool,
}

#[derive(Clone, Copy)]
pub struct Entry {
    pub name: &'static str,
    pub build: fn(&mut Section<'_>) -> Box<dyn AvailablePolicy>,
}

pub const BUILTIN: &[Entry] = &[
    Entry { name: "HealthyOrPanic", build: |_| Box::new(HealthyOrPanic) },
    Entry { name: "HealthyAndUnknown", build: |_| Box::new(HealthyAndUnknown) },
];

/// The unmarked; when there is none, everything that takes requests: a wrong verdict about all must not end service.
struct HealthyOrPanic;

impl AvailablePolicy for HealthyOrPanic {
    fn choose(&self, members: &[Arc<Member>]) -> Available {
        let unmarked = HealthyAndUnknown.choose(members);
        if !unmarked.members.is_empty() {
            return unmarked;
        }
        let members = filtered(members, Member::takes_new_requests);
        Available { panic: !members.is_empty(), members }
    }
}

/// The unmarked only; when there is none, requests are answered 503.
struct HealthyAndUnknown;

impl AvailablePolicy for HealthyAndUnknown {
    fn choose(&self, members: &[Arc<Member>]) -> Available {
        let members = filtered(members, |m| m.takes_new_requests() && m.is_unmarked());
        Available { members, panic: false }
    }
}

fn filtered(members: &[Arc<Member>], keep: impl Fn(&Member) -> bool) -> Vec<Arc<Member>> {
    members.iter().filter(|m| keep(m)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Reason;
    use crate::model::testing::members;

    fn ids(available: &Available) -> Vec<&str> {
        available.members.iter().map(|m| m.destination.id.as_str()).collect()
    }

    #[test]
    fn given_one_marked_member_when_chosen_then_the_rest_in_order() {
        let all = members(&[("a", 1, ""), ("b", 1, ""), ("c", 1, "")]);
        all[1].live.marks.set(Reason::Active, true);
        for policy in [&HealthyOrPanic as &dyn AvailablePolicy, &HealthyAndUnknown] {
            let available = policy.choose(&all);
            assert_eq!((ids(&available), available.panic), (vec!["a", "c"], false));
        }
    }

    #[test]
    fn given_all_are_marked_when_chosen_then_panic_takes_all_and_the_other_policy_none() {
        let all = members(&[("a", 1, ""), ("b", 1, "")]);
        for member in &all {
            member.live.marks.set(Reason::Active, true);
        }
        let panicking = HealthyOrPanic.choose(&all);
        assert_eq!((ids(&panicking), panicking.panic), (vec!["a", "b"], true));
        let strict = HealthyAndUnknown.choose(&all);
        assert_eq!((ids(&strict), strict.panic), (vec![], false));
    }

    #[test]
    fn given_weight_zero_when_chosen_then_it_takes_nothing_even_in_panic() {
        let all = members(&[("a", 0, "")]);
        let available = HealthyOrPanic.choose(&all);
        assert_eq!((ids(&available), available.panic), (vec![], false));
    }
}
