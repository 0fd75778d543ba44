use super::{Around, Change, Detector, Standing, Step, Streak};
use crate::config::Count;
use crate::health::passive::PassivePolicy;
use crate::health::{Breaker, Breaking, Circuit, Next, Phase, Reactivating, Rule};
use crate::model::Reason;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How many findings in a row it takes; 1 or more each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Thresholds {
    pub healthy_after: u32,
    pub unhealthy_after: u32,
}

/// What a cluster's configuration says of health: the judges there are, and how they judge.
#[derive(Default)]
pub struct Settings {
    /// `None`: no active check.
    pub active: Option<Thresholds>,
    /// `initial: probe_first`
    pub probe_first: bool,
    pub passive: Option<Passive>,
    pub breaker: Option<(Count, Breaking)>,
    /// Zero: whoever returns has its whole weight at once.
    pub slow_start: Duration,
}

/// `passive` of the configuration, but for `max_ejected`, which is the tier's.
pub struct Passive {
    pub count: Count,
    pub detectors: Vec<Arc<dyn PassivePolicy>>,
    /// `None`: `reactivation: off`
    pub reactivation: Option<Reactivating>,
}

impl Passive {
    pub fn is_full(&self) -> bool {
        self.reactivation.is_some_and(|how| how.full)
    }

    pub fn longest_window(&self) -> Duration {
        self.detectors.iter().map(|detector| detector.window()).max().unwrap_or_default()
    }
}

impl Standing {
    /// Goes on under other settings, as a reload brings them: a detector's history stays while its parameters do, the breaker's
    /// window while its length does; an ejection keeps the time it was given, and one for good gets the new period. A judge that is no longer there lifts its mark.
    pub fn adopt(&mut self, settings: Arc<Settings>, around: &Around<'_>, now: Instant) -> Vec<Change> {
        let mut changes = Vec::new();
        self.adopt_passive(&settings, around, now, &mut changes);
        self.adopt_breaker(&settings, around, now, &mut changes);
        let gone = |reason| match reason {
            Reason::Active => settings.active.is_none(),
            Reason::Unprobed => !settings.probe_first,
            _ => false,
        };
        for reason in [Reason::Active, Reason::Unprobed] {
            if gone(reason) && around.live.marks.has(reason) {
                changes.push(self.mark(reason, Step::Readmitted, (Rule::Reload, Next::Nothing), around, now));
            }
        }
        if settings.active.is_none() {
            self.probes = Streak::default();
        }
        if settings.slow_start.is_zero() {
            self.end_ramp(around.live);
        }
        self.settings = settings;
        self.look(around.live, now);
        changes
    }

    fn adopt_passive(&mut self, new: &Settings, around: &Around<'_>, now: Instant, changes: &mut Vec<Change>) {
        let policies = new.passive.iter().flat_map(|passive| &passive.detectors);
        let mut old = std::mem::take(&mut self.detectors);
        let ejected = matches!(self.reactivation.phase(), Phase::Ejected { .. });
        // Only there detectors see what comes of requests to one that is out.
        let sees = self.settings.passive.as_ref().is_some_and(Passive::is_full);
        let kept = |policy| {
            let same = old.iter().position(|detector| detector.is(policy)).map(|position| old.swap_remove(position));
            let begins = ejected && !(sees && same.is_some());
            let mut detector = same.unwrap_or_else(|| Detector::new(policy));
            if begins {
                detector.blind_before = Some(now);
            }
            detector
        };
        self.detectors = policies.map(kept).collect();
        let half_open = matches!(self.reactivation.phase(), Phase::HalfOpen { .. });
        let stays = new.passive.as_ref().is_some_and(|passive| !(half_open && passive.is_full()));
        if !stays && self.reactivation.phase() != Phase::Serving {
            changes.push(self.readmit(Rule::Reload, around, now));
        }
        if let Some(how) = new.passive.as_ref().and_then(|passive| passive.reactivation) {
            self.reactivation.end_in(how.period, now);
        }
    }

    /// The destination takes no requests any more: an ejection, which none could end, does, and leaves its place to others.
    pub fn disable(&mut self, around: &Around<'_>, now: Instant) -> Vec<Change> {
        if self.retired || self.reactivation.phase() == Phase::Serving {
            return Vec::new();
        }
        let change = self.readmit(Rule::Disabled, around, now);
        self.look(around.live, now);
        vec![change]
    }

    fn adopt_breaker(&mut self, new: &Settings, around: &Around<'_>, now: Instant, changes: &mut Vec<Change>) {
        match (&mut self.breaker, &new.breaker) {
            (Some(breaker), Some((_, how))) => breaker.adopt(*how),
            (None, Some((_, how))) => self.breaker = Some(Breaker::new(*how)),
            (Some(breaker), None) => {
                if breaker.circuit() != Circuit::Closed {
                    changes.push(self.close(Rule::Reload, around, now));
                }
                self.breaker = None;
            }
            (None, None) => {}
        }
    }
}
