use super::Live;
use std::sync::Arc;

/// The guard an attempt holds on a destination: counted in when taken, counted out by `Drop`, so that a cancelled
/// or panicking request leaks nothing.
#[derive(Debug)]
pub struct Lease {
    live: Arc<Live>,
}

/// Why a destination that was drawn gave no lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// `max_requests` are in flight.
    Full,
}

impl Lease {
    pub(super) fn new(live: Arc<Live>) -> Self {
        Lease { live }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.live.release();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::{AtomicU32, Ordering};

    proptest! {
        /// Every way an attempt can end: finished, aborted before or after others, or by a panic in its task.
        #[test]
        fn given_attempts_that_end_in_any_way_when_all_ended_then_in_flight_is_zero(
            endings in prop::collection::vec(0u8..3, 1..100),
            max in prop::option::of(1u32..20),
        ) {
            let cluster = Arc::new(AtomicU32::new(0));
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
            prop_assert_eq!((live.in_flight(), cluster.load(Ordering::Relaxed)), (0, 0));
        }
    }
}
