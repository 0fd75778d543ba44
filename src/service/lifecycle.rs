//! Where the process stands: starting → ready → draining. Everyone else looks here.
//!
//! A drain is announced first: `/ready` says 503 and every answer closes its connection while new ones are still
//! taken, so that whoever balances in front has time to notice. Then the listeners close, and the process goes when nothing
//! is left to do.

use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;
use tokio::sync::watch;

/// New connections are still taken for this long after the signal.
pub const ANNOUNCED: Duration = Duration::from_secs(2);
/// Connections that were taken last have this long to bring their requests, after the listeners closed.
const HOLD: Duration = Duration::from_secs(3);
/// Requests in flight have until then, from the signal.
pub const END: Duration = Duration::from_secs(8);

const STARTING: u8 = 0;
const READY: u8 = 1;
const DRAINING: u8 = 2;

#[derive(Debug, Default)]
pub struct Lifecycle {
    phase: AtomicU8,
    draining: watch::Sender<bool>,
}

impl Lifecycle {
    /// The first round of probes is over. A drain that began before stays one.
    pub fn set_ready(&self) {
        let _ = self.phase.compare_exchange(STARTING, READY, Ordering::AcqRel, Ordering::Acquire);
    }

    pub fn set_draining(&self) {
        self.phase.store(DRAINING, Ordering::Release);
        self.draining.send_replace(true);
    }

    pub fn is_draining(&self) -> bool {
        self.phase.load(Ordering::Acquire) == DRAINING
    }

    /// Turns true when the drain begins, for those who wait for it.
    pub fn draining(&self) -> watch::Receiver<bool> {
        self.draining.subscribe()
    }

    /// `None` when requests are welcome, else why not.
    pub fn not_ready(&self) -> Option<&'static str> {
        match self.phase.load(Ordering::Acquire) {
            STARTING => Some("starting: the first round of probes is not over"),
            READY => None,
            _ => Some("draining"),
        }
    }
}

/// Whether a draining process may go, so long after the signal: with no connection open once the listeners are closed, with
/// idle ones only a while later, and in the end with whatever is left.
pub fn may_end(since_signal: Duration, connections: i64, requests: i64) -> bool {
    since_signal >= END
        || (since_signal > ANNOUNCED && connections <= 0)
        || (since_signal >= ANNOUNCED + HOLD && requests <= 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_a_drain_when_probes_report_late_then_it_stays_a_drain() {
        let lifecycle = Lifecycle::default();
        assert!(lifecycle.not_ready().is_some());
        lifecycle.set_ready();
        assert_eq!(lifecycle.not_ready(), None);
        lifecycle.set_draining();
        lifecycle.set_ready();
        assert_eq!(lifecycle.not_ready(), Some("draining"));
    }

    #[test]
    fn given_a_signal_when_time_passes_then_announced_first_and_bounded_in_the_end() {
        let seconds = Duration::from_secs;
        assert!(!may_end(seconds(2), 0, 0));
        assert!(may_end(seconds(3), 0, 0));
        assert!(!may_end(seconds(4), 1, 0));
        assert!(may_end(seconds(5), 1, 0));
        assert!(!may_end(seconds(7), 1, 1));
        assert!(may_end(seconds(8), 1, 1));
    }
}
