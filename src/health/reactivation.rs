//! How a destination that detectors ejected comes back. A pure machine; the trials themselves are counted by
//! [`Trials`](crate::model::Trials), the ramp after the return is the composer's.
//!
//! | before | event | after |
//! |---|---|---|
//! | Serving | ejected | Ejected for period × penalty, at most `max`; the penalty grows by the multiplier |
//! | Serving | a success | Serving; the penalty halves, down to 1 |
//! | Ejected | the period is over | HalfOpen; with `mode: full` Serving |
//! | Ejected | with `lifted_by_probe`, a probe passes that began after the ejection | HalfOpen |
//! | HalfOpen | a trial succeeds, or so many probes in a row pass as the active check's `healthy_after` says | Serving |
//! | HalfOpen | a trial fails | Ejected anew |
//!
//! The penalty falls by successes only, never by time: a destination that nobody asked has proved nothing.

use std::time::{Duration, Instant};

/// `reactivation` of the configuration.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reactivating {
    pub period: Duration,
    /// All traffic at once when the period is over, as YARP does; the period is then no shorter than the longest window.
    pub full: bool,
    pub trial_requests: u32,
    pub multiplier: f64,
    pub max: Duration,
    pub lifted_by_probe: bool,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Phase {
    Serving,
    /// `until: None`: reactivation is off.
    Ejected {
        since: Instant,
        until: Option<Instant>,
    },
    HalfOpen {
        passes: u32,
    },
}

#[derive(Debug)]
pub struct Reactivation {
    phase: Phase,
    penalty: f64,
}

impl Default for Reactivation {
    fn default() -> Self {
        Reactivation { phase: Phase::Serving, penalty: 1.0 }
    }
}

impl Reactivation {
    /// One that goes on from there. `penalty` is 1 or more.
    pub fn resumed(phase: Phase, penalty: f64) -> Self {
        Reactivation { phase, penalty }
    }

    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// By what the next period is multiplied; 1 or more.
    pub fn penalty(&self) -> f64 {
        self.penalty
    }

    /// Out, for the time returned; `None` = for good. `window` is the longest of the detectors'.
    pub fn eject(&mut self, how: Option<&Reactivating>, window: Duration, now: Instant) -> Option<Duration> {
        let period = how.map(|how| match how.full {
            true => how.period.max(window),
            false => {
                let longest = how.max.max(how.period);
                let period = how.period.mul_f64(self.penalty).min(longest);
                let most = longest.as_secs_f64() / how.period.as_secs_f64().max(f64::MIN_POSITIVE);
                self.penalty = (self.penalty * how.multiplier).clamp(1.0, most.max(1.0));
                period
            }
        });
        self.phase = Phase::Ejected { since: now, until: period.map(|period| now + period) };
        period
    }

    /// An ejection for good ends so long after `now`; any other when it was to.
    pub fn end_in(&mut self, period: Duration, now: Instant) {
        if let Phase::Ejected { until: until @ None, .. } = &mut self.phase {
            *until = Some(now + period);
        }
    }

    /// The period is over by now.
    pub fn is_due(&self, now: Instant) -> bool {
        self.due().is_some_and(|due| due <= now)
    }

    pub fn due(&self) -> Option<Instant> {
        match self.phase {
            Phase::Ejected { until, .. } => until,
            _ => None,
        }
    }

    /// A probe that began then passed: whether that ends the ejection.
    pub fn is_lifted_by(&self, probe_begun: Instant) -> bool {
        matches!(self.phase, Phase::Ejected { since, .. } if probe_begun > since)
    }

    pub fn half_open(&mut self) {
        self.phase = Phase::HalfOpen { passes: 0 };
    }

    /// In HalfOpen: probes passed in a row, this one included.
    pub fn probed(&mut self, passed: bool) -> u32 {
        let Phase::HalfOpen { passes } = &mut self.phase else { return 0 };
        *passes = if passed { passes.saturating_add(1) } else { 0 };
        *passes
    }

    pub fn readmit(&mut self) {
        self.phase = Phase::Serving;
    }

    /// A request was served well.
    pub fn succeeded(&mut self) {
        if self.phase == Phase::Serving {
            self.penalty = (self.penalty / 2.0).max(1.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HOW: Reactivating = Reactivating {
        period: Duration::from_secs(10),
        full: false,
        trial_requests: 1,
        multiplier: 2.0,
        max: Duration::from_secs(300),
        lifted_by_probe: true,
    };
    const WINDOW: Duration = Duration::from_secs(60);

    fn ejections(machine: &mut Reactivation, times: usize, now: Instant) -> Vec<u64> {
        (0..times).filter_map(|_| machine.eject(Some(&HOW), WINDOW, now)).map(|period| period.as_secs()).collect()
    }

    #[test]
    fn given_ejections_without_a_success_between_when_repeated_then_the_period_doubles_to_its_maximum() {
        let mut machine = Reactivation::default();
        assert_eq!(ejections(&mut machine, 7, Instant::now()), [10, 20, 40, 80, 160, 300, 300]);
    }

    #[test]
    fn given_a_penalty_when_requests_are_served_then_each_halves_it() {
        let (mut machine, now) = (Reactivation::default(), Instant::now());
        ejections(&mut machine, 3, now);
        machine.succeeded();
        assert_eq!(machine.penalty(), 8.0, "an ejected one serves nothing");
        machine.readmit();
        machine.succeeded();
        assert_eq!(ejections(&mut machine, 1, now), [40]);
    }

    #[test]
    fn given_mode_full_when_the_window_is_longer_then_the_period_is_the_windows() {
        let full = Reactivating { full: true, ..HOW };
        assert_eq!(Reactivation::default().eject(Some(&full), WINDOW, Instant::now()), Some(WINDOW));
        assert_eq!(Reactivation::default().eject(None, WINDOW, Instant::now()), None);
    }

    #[test]
    fn given_a_probe_begun_before_the_ejection_when_it_passes_then_it_lifts_nothing() {
        let (mut machine, now) = (Reactivation::default(), Instant::now());
        machine.eject(Some(&HOW), WINDOW, now);
        assert!(!machine.is_lifted_by(now));
        assert!(machine.is_lifted_by(now + Duration::from_millis(1)));
    }

    proptest! {
        #[test]
        fn given_anything_but_successes_when_it_goes_on_then_the_penalty_never_falls(
            steps in prop::collection::vec(0u8..6, 1..200)
        ) {
            let (mut machine, mut now) = (Reactivation::default(), Instant::now());
            for step in steps {
                let before = machine.penalty();
                now += Duration::from_secs(1);
                match step {
                    0 => drop(machine.eject(Some(&HOW), WINDOW, now)),
                    1 => machine.half_open(),
                    2 => machine.readmit(),
                    3 => drop(machine.probed(true)),
                    4 => drop(machine.probed(false)),
                    _ => now += Duration::from_secs(3_600),
                }
                prop_assert!(machine.penalty() >= before);
            }
        }
    }
}
