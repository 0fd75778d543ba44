use super::{Live, Place, Reason, Trials};
use std::sync::Arc;

/// The guard an attempt holds on a destination: counted in when taken, counted out by `Drop`, so that a cancelled
/// or panicking request leaks nothing. A trial's places are given back likewise.
#[derive(Debug)]
pub struct Lease {
    live: Arc<Live>,
    ticket: Ticket,
    passive: Option<Place>,
    breaker: Option<Place>,
}

/// A connection that an attempt has, or is about to make; given back by `Drop`.
#[derive(Debug)]
pub struct Connected(Arc<Live>);

/// A copy of a mirrored request on its way, which is no attempt; counted out by `Drop`.
#[derive(Debug)]
pub struct Copying(Arc<Live>);

/// In what state of the destination an attempt began: who judges its outcome must know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket {
    pub epoch: u32,
    /// It holds a place of each judge that was half-open.
    pub trial: bool,
    /// The destination was marked, and drawn all the same for want of a better one.
    pub panic: bool,
}

/// Why a destination that was drawn gave no lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// `max_requests` are in flight, or `max_connections` in use.
    Full,
}

impl Connected {
    pub(super) fn new(live: Arc<Live>) -> Self {
        Connected(live)
    }
}

impl Copying {
    pub(super) fn new(live: Arc<Live>) -> Self {
        Copying(live)
    }
}

impl Drop for Copying {
    fn drop(&mut self) {
        self.0.copied();
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        self.0.disconnect();
    }
}

impl Lease {
    pub(super) fn new(live: Arc<Live>) -> Self {
        let ticket = Ticket { epoch: live.epoch(), trial: false, panic: false };
        Lease { live, ticket, passive: None, breaker: None }
    }

    pub fn ticket(&self) -> Ticket {
        self.ticket
    }

    /// Marked as it is, the destination was drawn in a panic.
    pub fn in_panic(mut self) -> Self {
        self.ticket.panic = true;
        self
    }

    /// The same lease with places of the judges that are half-open.
    pub(super) fn on_trial(mut self, places: TrialPlaces) -> Self {
        (self.passive, self.breaker) = (places.passive, places.breaker);
        self.ticket = Ticket { epoch: self.live.epoch(), trial: true, panic: false };
        self
    }
}

/// A place of each judge that is half-open.
pub(super) struct TrialPlaces {
    passive: Option<Place>,
    breaker: Option<Place>,
}

impl TrialPlaces {
    /// `None`, and no place is taken, when one has none.
    pub fn take(live: &Live) -> Option<Self> {
        let place = |reason, trials: &Trials| match live.marks.has(reason) {
            true => trials.take().map(Some),
            false => Some(None),
        };
        let passive = place(Reason::Passive, &live.passive_trials)?;
        let Some(breaker) = place(Reason::Breaker, &live.breaker_trials) else {
            TrialPlaces { passive, breaker: None }.give_back(live);
            return None;
        };
        Some(TrialPlaces { passive, breaker })
    }

    pub fn give_back(self, live: &Live) {
        self.passive.into_iter().for_each(|place| live.passive_trials.give_back(place));
        self.breaker.into_iter().for_each(|place| live.breaker_trials.give_back(place));
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(place) = self.passive {
            self.live.passive_trials.give_back(place);
        }
        if let Some(place) = self.breaker {
            self.live.breaker_trials.give_back(place);
        }
        self.live.release();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Crowd;
    use proptest::prelude::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    proptest! {
        /// Every way an attempt can end: finished, aborted before or after others, or by a panic in its task.
        #[test]
        fn given_attempts_that_end_in_any_way_when_all_ended_then_in_flight_is_zero(
            endings in prop::collection::vec(0u8..3, 1..100),
            max in prop::option::of(1u32..20),
        ) {
            let cluster = Arc::new(Crowd::default());
            let live = Arc::new(Live::within(&cluster));
            let mut open = Vec::new();
            for ending in endings {
                let Ok(lease) = live.lease(max) else {
                    prop_assert_eq!(Some(live.in_flight()), max);
                    open.clear();
                    continue;
                };
                match ending {
                    0 => drop(lease),
                    1 => open.push(lease),
                    _ => {
                        let _ = catch_unwind(AssertUnwindSafe(|| {
                            let _held = lease;
                            std::panic::resume_unwind(Box::new("a filter panicked"));
                        }));
                    }
                }
                prop_assert_eq!(live.in_flight() as usize, open.len());
                prop_assert_eq!(live.cluster_in_flight(), live.in_flight());
            }
            drop(open);
            prop_assert_eq!((live.in_flight(), cluster.in_flight()), (0, 0));
        }
    }
}
