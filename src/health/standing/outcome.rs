//! What outcomes of attempts do: the detectors' part and the breaker's.

use super::{Around, Attempted, Change, Standing, millis};
use crate::config::Count;
use crate::health::passive::{Counted, Sample, counted};
use crate::health::{Breaker, Circuit, Next, Phase, Rule, Step};
use crate::model::{Outcome, Reason};
use std::time::Instant;

/// Of destinations without a judge of outcomes: only for the evidence.
const DEFAULT: Count = Count { connect: true, timeout: true, reset: true, statuses: Vec::new() };

impl Standing {
    pub(super) fn concluded(
        &mut self,
        attempted: &Attempted<'_>,
        around: &Around<'_>,
        now: Instant,
        changes: &mut Vec<Change>,
    ) {
        let passive = self.settings.passive.as_ref().map(|passive| &passive.count);
        let breaker = self.settings.breaker.as_ref().map(|(count, _)| count);
        let by_breaker = breaker.map(|count| counted(attempted.outcome, count));
        let counted = counted(attempted.outcome, passive.or(breaker).unwrap_or(&DEFAULT));
        let Attempted { route, attempt, outcome, latency, .. } = attempted;
        self.evidence.traffic((route, *attempt), *outcome, counted, *latency, now);
        around.live.set_recent(self.evidence.tenths_good());
        self.known |= counted == Counted::Success;
        // As it was when the attempt ended, whatever the first judge makes of it.
        let fresh = attempted.ticket.epoch == around.live.epoch();
        match self.settings.passive.as_ref().map(|passive| passive.is_full()) {
            Some(true) => self.passively_in_full(counted, attempted, around, now, changes),
            Some(false) if fresh => self.passively(counted, attempted, around, now, changes),
            _ => {}
        }
        if let Some(counted) = by_breaker.filter(|_| fresh) {
            self.breaking(counted, attempted, around, now, changes);
        }
    }

    fn passively(
        &mut self,
        counted: Counted,
        attempted: &Attempted<'_>,
        around: &Around<'_>,
        now: Instant,
        changes: &mut Vec<Change>,
    ) {
        let ticket = attempted.ticket;
        match (self.reactivation.phase(), counted) {
            (Phase::Serving, _) => {
                let fired = self.fired(counted, attempted.begun, now);
                match (counted, fired) {
                    (Counted::Failure, Some(detector)) => changes.push(self.eject(detector, around, now)),
                    (Counted::Success, _) => self.reactivation.succeeded(),
                    _ => {}
                }
            }
            (Phase::HalfOpen { .. }, Counted::Failure) if ticket.trial => {
                let rule = Rule::Trial { passed: false, outcome: word(attempted.outcome), passes: 0, needed: 1 };
                changes.push(self.out(Step::EjectedAgain, rule, around, now));
            }
            (Phase::HalfOpen { .. }, Counted::Success) if ticket.trial || ticket.panic => {
                changes.push(self.readmit(passed(attempted.outcome, 1, 1), around, now));
            }
            (Phase::Ejected { .. }, Counted::Success) if ticket.panic => {
                changes.push(self.readmit(passed(attempted.outcome, 1, 1), around, now));
            }
            _ => {}
        }
    }

    /// YARP's way: every outcome is judged anew, late ones too. Only a success brings it back, by detectors that know enough.
    fn passively_in_full(
        &mut self,
        counted: Counted,
        attempted: &Attempted<'_>,
        around: &Around<'_>,
        now: Instant,
        changes: &mut Vec<Change>,
    ) {
        if counted == Counted::Neither {
            return;
        }
        let fired = self.fired(counted, attempted.begun, now);
        match (self.reactivation.phase(), fired) {
            (Phase::Serving, Some(detector)) => changes.push(self.eject(detector, around, now)),
            (Phase::Ejected { .. }, None) if counted == Counted::Success && self.all_know(attempted.begun, now) => {
                changes.push(self.readmit(Rule::Recovered, around, now));
            }
            _ => {}
        }
    }

    /// Takes note of a request that was served well, whose attempt began then.
    fn all_know(&mut self, served: Instant, now: Instant) -> bool {
        for detector in &mut self.detectors {
            if detector.knows(served, now) {
                detector.blind_before = None;
            }
        }
        self.detectors.iter().all(|detector| detector.blind_before.is_none())
    }

    /// The first detector that is over its limit now; all take the outcome in.
    fn fired(&mut self, counted: Counted, begun: Instant, now: Instant) -> Option<usize> {
        let failed = match counted {
            Counted::Failure => true,
            Counted::Success => false,
            Counted::Neither => return None,
        };
        let mut fired = None;
        for (position, detector) in self.detectors.iter_mut().enumerate() {
            if detector.tracker.record(Sample { failed, begun }, now) {
                fired = fired.or(Some(position));
            }
        }
        fired
    }

    /// Out, when the tier has a place for it.
    fn eject(&mut self, detector: usize, around: &Around<'_>, now: Instant) -> Change {
        let took = self.holds_place || around.cap.take();
        let most = around.cap.limit();
        let out = if took { around.cap.taken().min(most).saturating_sub(1) } else { around.cap.taken().max(most) };
        let fired = &self.detectors[detector];
        let rule = Rule::Detector {
            policy: fired.policy.name().to_string(),
            parameters: fired.policy.parameters(),
            measures: fired.tracker.measures(),
            out,
            most: if took { most.max(out + 1) } else { most },
        };
        if took {
            self.holds_place = true;
            return self.out(Step::Ejected, rule, around, now);
        }
        if self.skipped.is_some_and(|told| now < told + self.period()) {
            return Change {
                step: Step::EjectionSkipped,
                reason: Reason::Passive,
                transition: None,
                explanation: None,
            };
        }
        self.skipped = Some(now);
        self.note(Reason::Passive, Step::EjectionSkipped, (rule, Next::Nothing), around, now)
    }

    /// The detectors' mark is set, or stands on.
    fn out(&mut self, step: Step, rule: Rule, around: &Around<'_>, now: Instant) -> Change {
        let passive = self.settings.passive.as_ref();
        let how = passive.and_then(|passive| passive.reactivation);
        let window = passive.map(|passive| passive.longest_window()).unwrap_or_default();
        let lasts = self.reactivation.eject(how.as_ref(), window, now);
        let next = match (how, lasts) {
            (Some(how), Some(lasts)) if how.full => {
                Next::FullTraffic { in_ms: millis(lasts), period_ms: millis(how.period), window_ms: millis(window) }
            }
            (Some(how), Some(lasts)) => Next::HalfOpen {
                in_ms: millis(lasts),
                period_ms: millis(how.period),
                sooner_by_probe: how.lifted_by_probe && self.settings.active.is_some(),
            },
            _ if self.settings.active.is_some() => Next::NextProbe,
            _ => Next::Never,
        };
        if !how.is_some_and(|how| how.full) {
            self.forget();
        }
        around.live.passive_trials.close();
        around.live.next_epoch();
        self.mark(Reason::Passive, step, (rule, next), around, now)
    }

    pub(super) fn readmit(&mut self, rule: Rule, around: &Around<'_>, now: Instant) -> Change {
        self.reactivation.readmit();
        self.detectors.iter_mut().for_each(|detector| detector.blind_before = None);
        if !self.settings.passive.as_ref().is_some_and(|passive| passive.is_full()) {
            self.forget();
        }
        around.live.passive_trials.close();
        around.live.next_epoch();
        let change = self.mark(Reason::Passive, Step::Readmitted, (rule, Next::Nothing), around, now);
        // Not before the mark is lifted: another would be out beside it.
        self.give_back(around.cap);
        change
    }

    fn forget(&mut self) {
        self.detectors.iter_mut().for_each(|detector| detector.tracker.clear());
    }

    fn breaking(
        &mut self,
        counted: Counted,
        attempted: &Attempted<'_>,
        around: &Around<'_>,
        now: Instant,
        changes: &mut Vec<Change>,
    ) {
        let needed = self.thresholds().healthy_after;
        let Some(breaker) = &mut self.breaker else { return };
        match (breaker.circuit(), counted) {
            (Circuit::Closed, Counted::Success | Counted::Failure) => {
                let failed = counted == Counted::Failure;
                if breaker.record(failed, now) && failed {
                    let rule = tripped(breaker);
                    changes.push(self.open(rule, around, now));
                }
            }
            (Circuit::HalfOpen { .. }, Counted::Failure) if attempted.ticket.trial => {
                let rule = Rule::Trial { passed: false, outcome: word(attempted.outcome), passes: 0, needed };
                changes.push(self.open(rule, around, now));
            }
            (Circuit::HalfOpen { .. }, Counted::Success) if attempted.ticket.trial => {
                let passes = breaker.passed();
                if passes >= needed {
                    changes.push(self.close(passed(attempted.outcome, passes, needed), around, now));
                }
            }
            _ => {}
        }
    }

    pub(super) fn open(&mut self, rule: Rule, around: &Around<'_>, now: Instant) -> Change {
        let mut in_ms = 0;
        if let Some(breaker) = &mut self.breaker {
            breaker.open(now);
            in_ms = millis(breaker.how().sleep);
        }
        around.live.breaker_trials.close();
        around.live.next_epoch();
        self.mark(Reason::Breaker, Step::CircuitOpened, (rule, Next::Sleep { in_ms }), around, now)
    }

    pub(super) fn close(&mut self, rule: Rule, around: &Around<'_>, now: Instant) -> Change {
        if let Some(breaker) = &mut self.breaker {
            breaker.close();
        }
        around.live.breaker_trials.close();
        around.live.next_epoch();
        self.mark(Reason::Breaker, Step::CircuitClosed, (rule, Next::Nothing), around, now)
    }
}

fn tripped(breaker: &Breaker) -> Rule {
    Rule::Detector {
        policy: "breaker".to_string(),
        parameters: breaker.how().to_string(),
        measures: breaker.measures(),
        out: 0,
        most: u32::MAX,
    }
}

fn passed(outcome: Outcome, passes: u32, needed: u32) -> Rule {
    Rule::Trial { passed: true, outcome: word(outcome), passes, needed }
}

fn word(outcome: Outcome) -> String {
    match outcome {
        Outcome::Status(status) => status.to_string(),
        other => other.as_str().to_string(),
    }
}
