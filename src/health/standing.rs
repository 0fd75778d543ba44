//! The standing of one destination: the only place where findings become marks. The table of states is at
//! [`Standing`].
//!
//! Pure: it knows no clock and no other destination. The caller serialises events of one destination.

use crate::model::{Marks, Reason, Transition};
use std::collections::VecDeque;

/// How many findings in a row it takes; 1 or more each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Thresholds {
    pub healthy_after: u32,
    pub unhealthy_after: u32,
}

/// What can happen to a destination's health.
#[derive(Debug, Clone)]
pub enum Event {
    /// `cause` is what people read: `503`, `connection refused`, `timed out after 2s`.
    Probe { passed: bool, cause: String },
}

/// A transition and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    pub transition: Transition,
    /// The rule and the numbers that met it.
    pub why: String,
}

/// What people are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    Healthy,
    Unhealthy,
    /// Nothing was found out.
    Unknown,
    Disabled,
}

impl State {
    pub fn as_str(self) -> &'static str {
        match self {
            State::Healthy => "healthy",
            State::Unhealthy => "unhealthy",
            State::Unknown => "unknown",
            State::Disabled => "disabled",
        }
    }
}

/// Causes kept for the reason; more in a row are only counted.
const CAUSES_KEPT: usize = 5;

/// What all findings about one destination amount to.
///
/// | before | event | after |
/// |---|---|---|
/// | any | probe passed, `healthy_after` in a row | mark *active* lifted; state healthy |
/// | any | probe passed, fewer in a row | as it was |
/// | any | probe failed, `unhealthy_after` in a row | mark *active* set; state unhealthy |
/// | any | probe failed, fewer in a row | as it was (unknown stays unknown) |
///
/// Before the first streak of the needed length the state is unknown and there is no mark: it may be drawn.
#[derive(Debug)]
pub struct Standing {
    thresholds: Thresholds,
    probes: Streak,
    /// The verdict of the last streak that reached its threshold.
    verdict: Option<bool>,
}

/// Equal findings in a row.
#[derive(Debug, Default)]
struct Streak {
    passed: bool,
    length: u32,
    causes: VecDeque<String>,
}

impl Standing {
    pub fn new(thresholds: Thresholds) -> Self {
        Standing { thresholds, probes: Streak::default(), verdict: None }
    }

    /// Takes one event in, sets or lifts the mark of the judge concerned, and tells what changed by it.
    pub fn apply(&mut self, event: Event, marks: &Marks) -> Option<Change> {
        let Event::Probe { passed, cause } = event;
        self.probes.add(passed, cause);
        let (needed, rule) = if passed {
            (self.thresholds.healthy_after, "healthy_after")
        } else {
            (self.thresholds.unhealthy_after, "unhealthy_after")
        };
        if self.probes.length < needed {
            return None;
        }
        self.verdict = Some(passed);
        let transition = marks.set(Reason::Active, !passed)?;
        let why = format!(
            "active check {} {} in a row ({rule} {needed}): {}",
            if passed { "passed" } else { "failed" },
            times(self.probes.length),
            self.probes.causes()
        );
        Some(Change { transition, why })
    }

    pub fn state(&self, marks: &Marks) -> State {
        match self.verdict {
            _ if !marks.is_empty() => State::Unhealthy,
            None => State::Unknown,
            Some(_) => State::Healthy,
        }
    }

    /// The last finding, for views.
    pub fn last_cause(&self) -> Option<&str> {
        self.probes.causes.back().map(String::as_str)
    }
}

impl Streak {
    fn add(&mut self, passed: bool, cause: String) {
        if self.passed != passed {
            self.length = 0;
            self.causes.clear();
        }
        self.passed = passed;
        self.length = self.length.saturating_add(1);
        if self.causes.len() == CAUSES_KEPT {
            self.causes.pop_front();
        }
        self.causes.push_back(cause);
    }

    fn causes(&self) -> String {
        let kept: Vec<&str> = self.causes.iter().map(String::as_str).collect();
        let more = if self.length as usize > kept.len() { "…, " } else { "" };
        format!("{more}{}", kept.join(", "))
    }
}

fn times(n: u32) -> String {
    if n == 1 { "once".into() } else { format!("{n} times") }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Case {
        standing: Standing,
        marks: Marks,
    }

    impl Case {
        fn new(healthy_after: u32, unhealthy_after: u32) -> Self {
            let thresholds = Thresholds { healthy_after, unhealthy_after };
            Case { standing: Standing::new(thresholds), marks: Marks::default() }
        }

        fn probe(&mut self, passed: bool) -> Option<bool> {
            let cause = if passed { "200" } else { "503" }.to_string();
            self.standing.apply(Event::Probe { passed, cause }, &self.marks).map(|change| change.transition.to_healthy)
        }

        fn state(&self) -> State {
            self.standing.state(&self.marks)
        }
    }

    #[test]
    fn given_threshold_two_when_two_probes_fail_then_unknown_first_and_out_at_the_second() {
        let mut case = Case::new(1, 2);
        assert_eq!(case.probe(false), None);
        assert_eq!(case.state(), State::Unknown);
        assert_eq!(case.probe(false), Some(false));
        assert_eq!(case.state(), State::Unhealthy);
        assert_eq!(case.probe(false), None);
    }

    #[test]
    fn given_an_unhealthy_destination_when_one_probe_passes_then_it_is_back_at_once() {
        let mut case = Case::new(1, 2);
        case.probe(false);
        case.probe(false);
        assert_eq!(case.probe(true), Some(true));
        assert_eq!(case.state(), State::Healthy);
    }

    #[test]
    fn given_dual_thresholds_when_every_third_probe_fails_then_nothing_flaps() {
        let mut case = Case::new(2, 3);
        for n in 0..60 {
            assert_eq!(case.probe(n % 3 != 2), None, "probe {n}");
        }
        assert_eq!(case.state(), State::Healthy);
    }

    #[test]
    fn given_a_loss_when_told_why_then_rule_numbers_and_causes_are_named() {
        let mut standing = Standing::new(Thresholds { healthy_after: 1, unhealthy_after: 2 });
        let marks = Marks::default();
        let failed = |cause: &str| Event::Probe { passed: false, cause: cause.into() };
        standing.apply(failed("503"), &marks);
        let change = standing.apply(failed("timed out after 2s"), &marks).expect("out");
        assert_eq!(change.why, "active check failed 2 times in a row (unhealthy_after 2): 503, timed out after 2s");
    }

    #[test]
    fn given_a_long_outage_when_it_goes_on_then_memory_stays_bounded() {
        let mut case = Case::new(1, 1000);
        for _ in 0..10_000 {
            case.probe(false);
        }
        assert_eq!(case.standing.probes.causes.len(), CAUSES_KEPT);
    }
}
