//! What is shown of a standing besides its steps: since when it is as it is, and what set each mark that stands, which the history
//! forgets after enough other steps.

use super::{Explanation, Standing, State, Step};
use crate::model::{Live, Reason, Stamp};
use std::sync::Arc;
use std::time::Instant;

pub(super) struct Shown {
    pub(super) state: State,
    /// `None`: it never was anything else.
    pub(super) since: Option<Instant>,
    pub(super) marked: [Option<Marked>; Reason::ALL.len()],
}

/// Why a mark stands.
#[derive(Debug, Clone)]
pub struct Marked {
    /// Why it was set at first.
    pub first: Arc<Explanation>,
    /// How often it was set from then on; 1 or more.
    pub times: u32,
    /// Why it was set, the last time.
    pub set: Arc<Explanation>,
    /// Why trials decide, where they do.
    pub half_open: Option<Arc<Explanation>>,
}

impl Marked {
    /// What was told of it last: what comes next stands there.
    pub fn last(&self) -> &Explanation {
        self.half_open.as_ref().unwrap_or(&self.set)
    }
}

impl Shown {
    pub fn new(live: &Live) -> Self {
        let state = if live.marks.is_empty() { State::Unknown } else { State::Unhealthy };
        Shown { state, since: None, marked: Default::default() }
    }

    pub fn told(&mut self, step: &Arc<Explanation>) {
        let marked = &mut self.marked[step.decision.reason.index()];
        match step.decision.step {
            Step::MarkedOut | Step::Ejected | Step::EjectedAgain | Step::CircuitOpened => {
                let (first, times) = marked.take().map_or((step.clone(), 0), |before| (before.first, before.times));
                let times = times.saturating_add(1);
                *marked = Some(Marked { first, times, set: step.clone(), half_open: None });
            }
            Step::HalfOpen => {
                if let Some(marked) = marked {
                    marked.half_open = Some(step.clone());
                }
            }
            Step::Readmitted | Step::CircuitClosed => *marked = None,
            Step::EjectionSkipped | Step::Reweighted => {}
        }
    }
}

impl Standing {
    /// Since when it is in this state; `None` = since it is there.
    pub fn since(&self) -> Option<Stamp> {
        self.shown.since.map(|since| self.epoch.stamp(since))
    }

    /// Why a judge's mark stands; `None` where none does, and of [`Reason::Unprobed`].
    pub fn marked(&self, reason: Reason) -> Option<&Marked> {
        self.shown.marked[reason.index()].as_ref()
    }

    /// Keeps the time when the state becomes another.
    pub(super) fn look(&mut self, live: &Live, now: Instant) {
        let state = self.state(live);
        if state != self.shown.state {
            self.shown.state = state;
            self.shown.since = Some(now);
        }
    }
}
