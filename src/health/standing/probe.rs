//! What probes do: the active check's mark, the breaker it rules, and the ejection it may lift.

use super::{Around, Change, Standing};
use crate::health::{Circuit, Next, Phase, Rule, Step};
use crate::model::Reason;
use std::time::Instant;

impl Standing {
    pub(super) fn probed(
        &mut self,
        passed: bool,
        cause: String,
        begun: Instant,
        around: &Around<'_>,
        now: Instant,
        changes: &mut Vec<Change>,
    ) {
        self.evidence.probe(passed, cause.clone(), now.saturating_duration_since(begun), now);
        self.probes.add(passed, cause.clone(), now);
        let marks = &around.live.marks;
        if !passed && marks.has(Reason::Unprobed) && !marks.has(Reason::Active) {
            let why = (Rule::FirstProbe { cause }, Next::Probes { needed: self.thresholds().healthy_after });
            changes.push(self.mark(Reason::Active, Step::MarkedOut, why, around, now));
            self.known = true;
        }
        let thresholds = self.thresholds();
        let needed = if passed { thresholds.healthy_after } else { thresholds.unhealthy_after };
        let in_a_row = self.probes.length();
        if in_a_row >= needed {
            self.known = true;
            let causes = self.probes.causes();
            let rule = Rule::Probes { passed, in_a_row, needed, causes };
            match passed {
                true => self.passes(&rule, around, now, changes),
                false => self.fails(rule, around, now, changes),
            }
        }
        self.lift(passed, begun, around, now, changes);
    }

    fn passes(&mut self, rule: &Rule, around: &Around<'_>, now: Instant, changes: &mut Vec<Change>) {
        if self.breaker.as_ref().is_some_and(|breaker| breaker.circuit() != Circuit::Closed) {
            changes.push(self.close(rule.clone(), around, now));
        }
        for reason in [Reason::Unprobed, Reason::Active] {
            if around.live.marks.has(reason) {
                changes.push(self.mark(reason, Step::Readmitted, (rule.clone(), Next::Nothing), around, now));
            }
        }
    }

    fn fails(&mut self, rule: Rule, around: &Around<'_>, now: Instant, changes: &mut Vec<Change>) {
        if !around.live.marks.has(Reason::Active) {
            let next = Next::Probes { needed: self.thresholds().healthy_after };
            changes.push(self.mark(Reason::Active, Step::MarkedOut, (rule.clone(), next), around, now));
        }
        let opens = |circuit| !matches!(circuit, Circuit::Open { .. });
        if self.breaker.as_ref().is_some_and(|breaker| opens(breaker.circuit())) {
            changes.push(self.open(rule, around, now));
        }
    }

    /// Ends an ejection, or goes on where there is no traffic to do it.
    fn lift(&mut self, passed: bool, begun: Instant, around: &Around<'_>, now: Instant, changes: &mut Vec<Change>) {
        let how = self.settings.passive.as_ref().and_then(|passive| passive.reactivation);
        match self.reactivation.phase() {
            Phase::Ejected { since, .. } => {
                // Where time ends no ejection, a probe that passes does.
                let lifts = passed && how.is_none_or(|how| how.lifted_by_probe && !how.full);
                if lifts && self.reactivation.is_lifted_by(begun) {
                    let rule = Rule::LiftingProbe { ejected: self.epoch.stamp(since), begun: self.epoch.stamp(begun) };
                    changes.push(self.half_open(rule, around, now));
                }
            }
            Phase::HalfOpen { .. } => {
                let (passes, needed) = (self.reactivation.probed(passed), self.thresholds().healthy_after);
                if passes >= needed {
                    changes.push(self.readmit(Rule::TrialProbes { passes, needed }, around, now));
                }
            }
            Phase::Serving => {}
        }
    }

    /// The detectors' mark stands, and requests on trial decide.
    pub(super) fn half_open(&mut self, rule: Rule, around: &Around<'_>, now: Instant) -> Change {
        let how = self.settings.passive.as_ref().and_then(|passive| passive.reactivation);
        let at_a_time = how.map_or(1, |how| how.trial_requests);
        self.reactivation.half_open();
        around.live.next_epoch();
        around.live.passive_trials.open(at_a_time);
        around.live.marks.set_half_open(Reason::Passive);
        self.await_trial(around, now);
        self.note(Reason::Passive, Step::HalfOpen, (rule, Next::Trials { at_a_time }), around, now)
    }
}
