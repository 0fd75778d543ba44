//! The standing of one destination: the only place where findings become marks. The table of states is at
//! [`Standing`].
//!
//! Pure: it knows no clock and no other destination, but for the places that [`Cap`] has left. The caller serialises the
//! events of one destination.

mod due;
mod operator;
mod outcome;
mod probe;
mod saved;
mod settings;
mod shown;
#[cfg(test)]
mod tests;

pub use operator::{Held, Order, Override};
pub use saved::Saved;
pub use settings::{Passive, Settings, Thresholds};
pub use shown::Marked;

use super::evidence::Ring;
use super::passive::{PassivePolicy, Tracker};
use super::streak::Streak;
use super::{Breaker, Cap, Circuit, Decision, Evidence, Explanation, Next, Phase, Reactivation, Rule, Step};
use crate::model::{Epoch, Live, Outcome, Reason, Ticket, Transition, WHOLE};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What can happen to a destination's health.
#[derive(Debug)]
pub enum Event<'a> {
    Outcome(Attempted<'a>),
    /// `cause` is what people read: `503`, `connection refused`, `timed out after 2s`.
    Probe {
        passed: bool,
        cause: String,
        begun: Instant,
    },
    Operator {
        order: Order,
        /// How long it holds; `None` = until another. An ejection without it lasts for the reactivation's period.
        lasts: Option<Duration>,
        /// Who gave it.
        by: String,
    },
    /// Time passed: what was due may have come.
    Due,
}

/// What came of an attempt.
#[derive(Debug)]
pub struct Attempted<'a> {
    pub outcome: Outcome,
    pub ticket: Ticket,
    pub begun: Instant,
    pub route: &'a Arc<str>,
    /// From 1.
    pub attempt: u8,
    /// To the response head, or to the failure.
    pub latency: Duration,
}

/// Who else is concerned: the destination's own state that requests read, and the tier's places for ejections.
pub struct Around<'a> {
    pub live: &'a Live,
    pub cap: &'a Cap,
}

/// A step, and why it was made.
#[derive(Debug, Clone)]
pub struct Change {
    pub step: Step,
    pub reason: Reason,
    /// Whether it took the destination out or brought it back.
    pub transition: Option<Transition>,
    /// `None` where the same was told within the last period: only to be counted.
    pub explanation: Option<Arc<Explanation>>,
}

/// What people are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    Healthy,
    Unhealthy,
    /// Nothing was found out.
    Unknown,
    /// Out, but for requests on trial.
    HalfOpen,
    /// Back, with less than its share.
    Ramping,
    Draining,
    Maintenance,
    Disabled,
}

impl State {
    pub fn as_str(self) -> &'static str {
        match self {
            State::Healthy => "healthy",
            State::Unhealthy => "unhealthy",
            State::Unknown => "unknown",
            State::HalfOpen => "half_open",
            State::Ramping => "ramping",
            State::Draining => "draining",
            State::Maintenance => "maintenance",
            State::Disabled => "disabled",
        }
    }
}

/// Steps kept for people who ask later.
const HISTORY: usize = 16;

/// What all findings about one destination amount to.
///
/// | judge | event | its mark | step |
/// |---|---|---|---|
/// | active | probes failed, `unhealthy_after` in a row | set | marked out |
/// | active | probes passed, `healthy_after` in a row | lifted | readmitted |
/// | unprobed | start under `probe_first` | set | |
/// | unprobed | the first probe fails | stands, and active's is set | marked out |
/// | unprobed | probes passed, `healthy_after` in a row | lifted | readmitted |
/// | passive | a detector fires, and the tier has a place for it | set | ejected |
/// | passive | a detector fires without a place | | ejection skipped |
/// | passive | the period is over, or a probe begun after the ejection passes | stands | half-open (`mode: full`: lifted, readmitted) |
/// | passive | a trial fails | stands | ejected again |
/// | passive | a trial or a request in a panic succeeds, or `healthy_after` further probes pass | lifted | readmitted |
/// | passive | `mode: full`: a success after which no detector is over its limit, and each saw enough to say so | lifted | readmitted |
/// | passive, breaker | half-open for a reactivation period | stands | any request may be the trial from then on |
/// | breaker | the threshold is reached, the active check fails, or a trial fails | set | circuit opened |
/// | breaker | its sleep is over, and active's mark does not stand | stands | half-open |
/// | breaker | `healthy_after` trials succeed, or the active check passes | lifted | circuit closed |
/// | operator | drain, maint, eject | set | marked out |
/// | operator | ready, uneject, or the order's time is over | lifted | readmitted |
///
/// All else leaves the marks as they are. Outcomes of attempts that began before the last ejection, or the end of one, are
/// kept as evidence and judge nothing, but for `mode: full`. After each return the destination ramps for `slow_start`.
/// Below the first threshold a destination is unknown, and may be drawn.
pub struct Standing {
    settings: Arc<Settings>,
    epoch: Epoch,
    probes: Streak,
    /// Whether a success, or a judge's word, made it known.
    known: bool,
    detectors: Vec<Detector>,
    reactivation: Reactivation,
    /// It has one of the tier's places for ejections.
    holds_place: bool,
    /// When a skipped ejection was last told.
    skipped: Option<Instant>,
    breaker: Option<Breaker>,
    orders: operator::Orders,
    /// Since when trials decide.
    half_open_since: Option<Instant>,
    ramp: Option<Ramp>,
    evidence: Ring,
    history: VecDeque<Arc<Explanation>>,
    shown: shown::Shown,
    retired: bool,
}

/// A window may be as much longer than it says.
const COARSE: Duration = Duration::from_secs(1);

struct Detector {
    policy: Arc<dyn PassivePolicy>,
    tracker: Box<dyn Tracker>,
    /// Of an ejection that stands, it has not seen what came before then: a reload or another process began its history anew.
    blind_before: Option<Instant>,
}

/// Its way back to its whole weight.
struct Ramp {
    since: Instant,
    /// As published.
    tenths: u8,
}

impl Detector {
    fn new(policy: &Arc<dyn PassivePolicy>) -> Self {
        Detector { policy: policy.clone(), tracker: policy.track(), blind_before: None }
    }

    fn is(&self, policy: &Arc<dyn PassivePolicy>) -> bool {
        self.policy.name() == policy.name() && self.policy.parameters() == policy.parameters()
    }

    /// Whether what it missed would weigh no more: its window has passed since, or, where time does not count, a request that began
    /// since was served well.
    fn knows(&self, served: Instant, now: Instant) -> bool {
        let window = self.policy.window();
        self.blind_before.is_none_or(|then| match window.is_zero() {
            true => served >= then,
            false => now >= then + window + COARSE,
        })
    }
}

impl Standing {
    /// Of a destination that was not there before: under `probe_first` it is marked.
    pub fn new(settings: Arc<Settings>, epoch: Epoch, live: &Live) -> Self {
        if settings.probe_first {
            live.marks.set(Reason::Unprobed, true);
        }
        let detectors = settings.passive.iter().flat_map(|passive| &passive.detectors).map(Detector::new).collect();
        Standing {
            breaker: settings.breaker.as_ref().map(|(_, how)| Breaker::new(*how)),
            settings,
            epoch,
            probes: Streak::default(),
            known: false,
            detectors,
            reactivation: Reactivation::default(),
            holds_place: false,
            skipped: None,
            orders: operator::Orders::default(),
            half_open_since: None,
            ramp: None,
            evidence: Ring::default(),
            history: VecDeque::new(),
            shown: shown::Shown::new(live),
            retired: false,
        }
    }

    /// Takes one event in, sets or lifts the marks of the judges concerned, and tells each step that followed. Outcomes that change
    /// nothing allocate nothing.
    pub fn apply(&mut self, event: Event<'_>, around: &Around<'_>, now: Instant) -> Vec<Change> {
        let mut changes = Vec::new();
        if self.retired {
            return changes;
        }
        match event {
            Event::Outcome(attempted) => self.concluded(&attempted, around, now, &mut changes),
            // One that a reload overtook: nobody would lift a mark that it set.
            Event::Probe { .. } if self.settings.active.is_none() => {}
            Event::Probe { passed, cause, begun } => self.probed(passed, cause, begun, around, now, &mut changes),
            Event::Operator { order, lasts, by } => self.ordered(order, lasts, by, around, now, &mut changes),
            Event::Due => self.due(around, now, &mut changes),
        }
        self.look(around.live, now);
        changes
    }

    /// A destination that joins a running cluster starts its ramp.
    pub fn start_ramp(&mut self, live: &Live, now: Instant) {
        if !self.settings.slow_start.is_zero() {
            self.ramp = Some(Ramp { since: now, tenths: 1 });
            live.set_ramp(1);
            self.look(live, now);
        }
    }

    /// The destination left: gives its place back; whatever comes later changes nothing.
    pub fn retire(&mut self, cap: &Cap) {
        self.retired = true;
        self.give_back(cap);
    }

    /// When something is due next.
    pub fn next_due(&self, live: &Live) -> Option<Instant> {
        // Open as long as active's mark stands; a probe ends it then.
        let breaker = self.breaker.as_ref().and_then(Breaker::due).filter(|_| !live.marks.has(Reason::Active));
        let untried = self.untried_due().filter(|_| !live.takes_any_trial());
        let all = [self.reactivation.due(), breaker, self.orders.due(), self.ramp_due(), untried];
        all.into_iter().flatten().min()
    }

    pub fn state(&self, live: &Live) -> State {
        let marks = &live.marks;
        match self.orders.state() {
            Some(Override::Drain | Override::Leave) => return State::Draining,
            Some(Override::Maint) => return State::Maintenance,
            _ => {}
        }
        if marks.is_on_trial() {
            return State::HalfOpen;
        }
        match () {
            () if !marks.is_empty() => State::Unhealthy,
            () if self.ramp.is_some() => State::Ramping,
            () if self.known => State::Healthy,
            () => State::Unknown,
        }
    }

    /// What the last probe saw, for views.
    pub fn last_cause(&self) -> Option<&str> {
        self.probes.last_cause()
    }

    pub fn phase(&self) -> Phase {
        self.reactivation.phase()
    }

    /// `None` without a breaker.
    pub fn circuit(&self) -> Option<Circuit> {
        self.breaker.as_ref().map(Breaker::circuit)
    }

    /// What the operator ordered it to be, while that holds.
    pub fn order(&self) -> Option<Override> {
        self.orders.state()
    }

    /// The operator's orders that hold: at most one of its state and one of its weight.
    pub fn orders(&self) -> impl Iterator<Item = &Held> {
        self.orders.held()
    }

    /// By what the next ejection's period is multiplied.
    pub fn penalty(&self) -> f64 {
        self.reactivation.penalty()
    }

    /// The last steps, oldest first.
    pub fn history(&self) -> impl Iterator<Item = &Arc<Explanation>> {
        self.history.iter()
    }

    /// What was last seen, oldest first.
    pub fn evidence(&self) -> Vec<Evidence> {
        self.evidence.told(&self.epoch)
    }

    pub fn epoch(&self) -> Epoch {
        self.epoch
    }
}

/// What every judge needs.
impl Standing {
    /// Sets or lifts a judge's mark and tells it.
    fn mark(
        &mut self,
        reason: Reason,
        step: Step,
        (rule, next): (Rule, Next),
        around: &Around<'_>,
        now: Instant,
    ) -> Change {
        let before: Vec<Reason> = around.live.marks.reasons().collect();
        let out = matches!(step, Step::MarkedOut | Step::Ejected | Step::EjectedAgain | Step::CircuitOpened);
        let transition = around.live.marks.set(reason, out);
        if !self.is_half_open() {
            self.half_open_since = None;
            around.live.set_takes_any_trial(false);
        }
        let mut next = next;
        if transition.as_ref().is_some_and(|transition| transition.to_healthy) {
            around.live.latency.forget();
            self.start_ramp(around.live, now);
            if self.ramp.is_some() {
                next = Next::Ramp { over_ms: millis(self.settings.slow_start) };
            }
        } else if transition.is_some() {
            self.end_ramp(around.live);
        }
        let is_healthy = around.live.marks.is_empty();
        self.tell(
            Decision { step, reason, was_healthy: before.is_empty(), is_healthy },
            transition,
            before,
            (rule, next),
            now,
        )
    }

    /// Whether one of its machines is.
    fn is_half_open(&self) -> bool {
        let breaker = matches!(self.circuit(), Some(Circuit::HalfOpen { .. }));
        breaker || matches!(self.reactivation.phase(), Phase::HalfOpen { .. })
    }

    /// A step that leaves the marks as they are.
    fn note(&mut self, reason: Reason, step: Step, why: (Rule, Next), around: &Around<'_>, now: Instant) -> Change {
        let before: Vec<Reason> = around.live.marks.reasons().collect();
        let healthy = before.is_empty();
        self.tell(Decision { step, reason, was_healthy: healthy, is_healthy: healthy }, None, before, why, now)
    }

    fn tell(
        &mut self,
        decision: Decision,
        transition: Option<Transition>,
        marks_before: Vec<Reason>,
        (rule, next): (Rule, Next),
        now: Instant,
    ) -> Change {
        let evidence = self.evidence.told(&self.epoch);
        let at = self.epoch.stamp(now);
        let explanation = Arc::new(Explanation { at, decision, marks_before, rule, next, evidence });
        if self.history.len() == HISTORY {
            self.history.pop_front();
        }
        self.history.push_back(explanation.clone());
        self.shown.told(&explanation);
        Change { step: decision.step, reason: decision.reason, transition, explanation: Some(explanation) }
    }

    fn give_back(&mut self, cap: &Cap) {
        if std::mem::take(&mut self.holds_place) {
            cap.give_back();
        }
    }

    fn thresholds(&self) -> Thresholds {
        self.settings.active.unwrap_or(Thresholds { healthy_after: 1, unhealthy_after: 1 })
    }

    fn ramp_due(&self) -> Option<Instant> {
        let step = self.settings.slow_start / u32::from(WHOLE);
        self.ramp.as_ref().map(|ramp| ramp.since + step * u32::from(ramp.tenths + 1))
    }

    fn end_ramp(&mut self, live: &Live) {
        self.ramp = None;
        live.set_ramp(WHOLE);
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
