//! What time alone does.

use super::{Around, Change, Standing, millis};
use crate::health::{Next, Phase, Rule, Step};
use crate::model::{Reason, WHOLE};
use std::time::Instant;

impl Standing {
    pub(super) fn due(&mut self, around: &Around<'_>, now: Instant, changes: &mut Vec<Change>) {
        self.orders_due(around, now, changes);
        if let Phase::Ejected { since, .. } = self.reactivation.phase()
            && self.reactivation.is_due(now)
        {
            let full = self.settings.passive.as_ref().is_some_and(|passive| passive.is_full());
            let lasted_ms = millis(now.saturating_duration_since(since));
            let rule = Rule::TimeOver { set: self.epoch.stamp(since), lasted_ms, full };
            if full {
                self.known = false;
                changes.push(self.readmit(rule, around, now));
            } else {
                changes.push(self.half_open(rule, around, now));
            }
        }
        if self.breaker_due().is_some_and(|due| due <= now) && !around.live.marks.has(Reason::Active) {
            changes.push(self.try_circuit(around, now));
        }
        if self.untried_due().is_some_and(|due| due <= now) {
            around.live.set_takes_any_trial(true);
        }
        self.ramp_on(around, now);
    }

    /// When any request will do for a trial: where none that could be sent again came, the destination would be out for ever.
    pub(super) fn untried_due(&self) -> Option<Instant> {
        self.half_open_since.map(|since| since + self.period())
    }

    pub(super) fn await_trial(&mut self, around: &Around<'_>, now: Instant) {
        self.half_open_since = Some(now);
        around.live.set_takes_any_trial(false);
    }

    fn breaker_due(&self) -> Option<Instant> {
        self.breaker.as_ref().and_then(|breaker| breaker.due())
    }

    fn try_circuit(&mut self, around: &Around<'_>, now: Instant) -> Change {
        let (mut at_a_time, mut slept) = (1, 0);
        if let Some(breaker) = &mut self.breaker {
            (at_a_time, slept) = (breaker.how().trial_requests, millis(breaker.how().sleep));
            breaker.half_open();
        }
        around.live.next_epoch();
        around.live.breaker_trials.open(at_a_time);
        around.live.marks.set_half_open(Reason::Breaker);
        self.await_trial(around, now);
        let set = now.checked_sub(std::time::Duration::from_millis(slept)).unwrap_or(now);
        let rule = Rule::TimeOver { set: self.epoch.stamp(set), lasted_ms: slept, full: false };
        self.note(Reason::Breaker, Step::HalfOpen, (rule, Next::Trials { at_a_time }), around, now)
    }

    pub(super) fn ramp_on(&mut self, around: &Around<'_>, now: Instant) {
        let Some(ramp) = &mut self.ramp else { return };
        let (gone, whole) = (now.saturating_duration_since(ramp.since), self.settings.slow_start);
        let tenths = (gone.as_nanos() * u128::from(WHOLE) / whole.as_nanos().max(1)).min(u128::from(WHOLE)) as u8;
        if tenths >= WHOLE {
            return self.end_ramp(around.live);
        }
        ramp.tenths = tenths;
        around.live.set_ramp(tenths.max(1));
    }
}
