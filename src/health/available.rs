//! Which members of a cluster may be drawn. Decided when health changes, never per request. A panic overrides what active
//! checks and detectors say, never the operator, an open breaker, or a destination that waits for its first probe.

use crate::config::Section;
use crate::model::{Member, WHOLE};
use std::sync::Arc;

/// Names: [`BUILTIN`].
pub trait AvailablePolicy: Send + Sync {
    /// `members` are all primaries of a cluster; the answer keeps their order. `spare`: where none of them is available,
    /// failovers are, so there is no need for the marked.
    fn choose(&self, members: &[Arc<Member>], spare: bool) -> Available;
}

#[derive(Debug, Default)]
pub struct Available {
    pub members: Vec<Candidate>,
    /// Too few were unmarked, so marks are overridden.
    pub panic: bool,
}

/// A member that may be drawn, with tenths of its weight.
#[derive(Debug, Clone)]
pub struct Candidate {
    pub member: Arc<Member>,
    pub share: u8,
}

#[derive(Clone, Copy)]
pub struct Entry {
    pub name: &'static str,
    pub build: fn(&mut Section<'_>) -> Box<dyn AvailablePolicy>,
}

pub const BUILTIN: &[Entry] = &[
    Entry { name: "HealthyOrPanic", build: |_| Box::new(HealthyOrPanic) },
    Entry { name: "HealthyAndUnknown", build: |_| Box::new(HealthyAndUnknown) },
    Entry { name: "Panic", build: Panic::build },
];

/// The unmarked; when there is none, everything that takes requests: a wrong verdict about all must not end service.
struct HealthyOrPanic;

impl AvailablePolicy for HealthyOrPanic {
    fn choose(&self, members: &[Arc<Member>], spare: bool) -> Available {
        Panic { enter_below: 0.0, spread: Spread::All }.choose(members, spare)
    }
}

/// The unmarked only; when there is none, requests are answered 503.
struct HealthyAndUnknown;

impl AvailablePolicy for HealthyAndUnknown {
    fn choose(&self, members: &[Arc<Member>], _: bool) -> Available {
        Available { members: whole(members, is_available), panic: false }
    }
}

/// The unmarked while they are a share of those that take requests, `enter_below`, at least; when they are fewer, or none,
/// the marked too: each with its whole weight, or with as much of it as it lately served well.
struct Panic {
    /// 0–1.
    enter_below: f64,
    spread: Spread,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Spread {
    All,
    LeastBad,
}

impl Panic {
    /// Keys: `enter_below` (a share, default 0%: only when none is available), `spread` (`all` or `least_bad`, default
    /// `least_bad`).
    fn build(params: &mut Section<'_>) -> Box<dyn AvailablePolicy> {
        let enter_below = params.percent("enter_below").unwrap_or(0.0);
        let words = [("all", Spread::All), ("least_bad", Spread::LeastBad)];
        let spread = params.word("spread", &words).unwrap_or(Spread::LeastBad);
        Box::new(Panic { enter_below, spread })
    }

    fn share(&self, member: &Member) -> u8 {
        match self.spread {
            Spread::LeastBad if !member.is_unmarked() => member.live.recent().clamp(1, WHOLE),
            _ => WHOLE,
        }
    }
}

impl AvailablePolicy for Panic {
    fn choose(&self, members: &[Arc<Member>], spare: bool) -> Available {
        let unmarked = whole(members, is_available);
        let enabled = members.iter().filter(|member| member.takes_new_requests()).count();
        let share = unmarked.len() as f64 / enabled.max(1) as f64;
        if spare || (!unmarked.is_empty() && share >= self.enter_below) {
            return Available { members: unmarked, panic: false };
        }
        let mut members = whole(members, |member| member.takes_new_requests() && member.live.marks.is_overridable());
        let panic = members.len() > unmarked.len();
        members.iter_mut().for_each(|candidate| candidate.share = self.share(&candidate.member));
        Available { members, panic }
    }
}

fn is_available(member: &Member) -> bool {
    member.takes_new_requests() && member.is_unmarked()
}

fn whole(members: &[Arc<Member>], keep: impl Fn(&Member) -> bool) -> Vec<Candidate> {
    let kept = members.iter().filter(|member| keep(member));
    kept.map(|member| Candidate { member: member.clone(), share: WHOLE }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Reason;
    use crate::model::testing::members;

    fn ids(available: &Available) -> Vec<&str> {
        available.members.iter().map(|m| m.member.destination.id.as_str()).collect()
    }

    #[test]
    fn given_one_marked_member_when_chosen_then_the_rest_in_order() {
        let all = members(&[("a", 1, ""), ("b", 1, ""), ("c", 1, "")]);
        all[1].live.marks.set(Reason::Active, true);
        for policy in [&HealthyOrPanic as &dyn AvailablePolicy, &HealthyAndUnknown] {
            let available = policy.choose(&all, false);
            assert_eq!((ids(&available), available.panic), (vec!["a", "c"], false));
        }
    }

    #[test]
    fn given_all_are_marked_when_chosen_then_panic_takes_all_and_the_other_policy_none() {
        let all = members(&[("a", 1, ""), ("b", 1, "")]);
        for member in &all {
            member.live.marks.set(Reason::Active, true);
        }
        let panicking = HealthyOrPanic.choose(&all, false);
        assert_eq!((ids(&panicking), panicking.panic), (vec!["a", "b"], true));
        let strict = HealthyAndUnknown.choose(&all, false);
        assert_eq!((ids(&strict), strict.panic), (vec![], false));
    }

    #[test]
    fn given_failovers_that_serve_when_primaries_are_marked_then_there_is_no_panic() {
        let all = members(&[("a", 1, ""), ("b", 1, "")]);
        all[0].live.marks.set(Reason::Active, true);
        let graded = Panic { enter_below: 1.0, spread: Spread::All };
        let available = graded.choose(&all, true);
        assert_eq!((ids(&available), available.panic), (vec!["b"], false));
        all[1].live.marks.set(Reason::Active, true);
        for policy in [&HealthyOrPanic as &dyn AvailablePolicy, &graded] {
            let available = policy.choose(&all, true);
            assert_eq!((ids(&available), available.panic), (vec![], false));
        }
    }

    #[test]
    fn given_weight_zero_when_chosen_then_it_takes_nothing_even_in_panic() {
        let all = members(&[("a", 0, "")]);
        let available = HealthyOrPanic.choose(&all, false);
        assert_eq!((ids(&available), available.panic), (vec![], false));
    }

    #[test]
    fn given_panic_when_chosen_then_operator_breaker_and_unprobed_are_not_overridden() {
        for reason in [Reason::Operator, Reason::Breaker, Reason::Unprobed] {
            let all = members(&[("a", 1, ""), ("b", 1, "")]);
            all[0].live.marks.set(reason, true);
            all[1].live.marks.set(Reason::Passive, true);
            let available = HealthyOrPanic.choose(&all, false);
            assert_eq!((ids(&available), available.panic), (vec!["b"], true), "{reason:?}");
            all[1].live.marks.set(reason, true);
            let available = HealthyOrPanic.choose(&all, false);
            assert_eq!((ids(&available), available.panic), (vec![], false), "{reason:?}");
        }
    }

    #[test]
    fn given_a_graded_panic_when_few_are_left_then_the_bad_get_what_they_lately_served() {
        let all = members(&[("a", 1, ""), ("b", 1, ""), ("c", 1, ""), ("d", 1, "")]);
        let policy = Panic { enter_below: 0.5, spread: Spread::LeastBad };
        for (member, recent) in [(1, 0), (2, 6)] {
            all[member].live.set_recent(recent);
            all[member].live.marks.set(Reason::Passive, true);
        }
        assert!(!policy.choose(&all, false).panic, "half of them is not below half");
        all[3].live.marks.set(Reason::Active, true);
        let available = policy.choose(&all, false);
        let shares: Vec<u8> = available.members.iter().map(|candidate| candidate.share).collect();
        assert_eq!((available.panic, shares), (true, vec![10, 1, 6, 1]));
    }

    /// YARP's cases 31 and 32: a judge that says nothing, or is off, has no mark.
    #[test]
    fn given_every_combination_of_active_and_passive_when_chosen_then_only_those_without_any_mark() {
        let names = [("a", 1, ""), ("b", 1, ""), ("c", 1, ""), ("d", 1, "")];
        let all = members(&names);
        for (index, member) in all.iter().enumerate() {
            member.live.marks.set(Reason::Active, index & 1 != 0);
            member.live.marks.set(Reason::Passive, index & 2 != 0);
        }
        assert_eq!(ids(&HealthyAndUnknown.choose(&all, false)), ["a"]);
        assert_eq!(ids(&HealthyOrPanic.choose(&all, false)), ["a"]);
        all[0].live.marks.set(Reason::Active, true);
        assert_eq!(ids(&HealthyAndUnknown.choose(&all, false)), [""; 0]);
        assert_eq!(ids(&HealthyOrPanic.choose(&all, false)), ["a", "b", "c", "d"]);
    }
}
