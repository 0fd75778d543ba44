//! One log line a second where a failing destination would make one a request. Lock-free; time is an argument.

use std::fmt::{self, Display};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

const INTERVAL: Duration = Duration::from_secs(1);

/// Lets one through, then none for [`INTERVAL`].
pub(super) struct Throttle {
    born: Instant,
    /// Milliseconds after `born` from which the next may pass.
    next: AtomicU64,
    suppressed: AtomicU64,
}

impl Throttle {
    /// `born` is any instant not after the first `now`.
    pub(super) fn new(born: Instant) -> Self {
        Throttle { born, next: AtomicU64::new(0), suppressed: AtomicU64::new(0) }
    }

    /// `Some(n)` to go ahead, where `n` were held back since the last; `None` to hold back.
    pub(super) fn admit(&self, now: Instant) -> Option<u64> {
        let now = millis(now.saturating_duration_since(self.born));
        let next = self.next.load(Relaxed);
        let due = now >= next;
        let after = now.saturating_add(millis(INTERVAL));
        if due && self.next.compare_exchange(next, after, Relaxed, Relaxed).is_ok() {
            return Some(self.suppressed.swap(0, Relaxed));
        }
        self.suppressed.fetch_add(1, Relaxed);
        None
    }
}

/// The end of a limited line: how many like it were held back since the last.
pub(super) struct HeldBack(pub(super) u64);

impl Display for HeldBack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => Ok(()),
            n => write!(f, "; {n} more since the last such line"),
        }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_a_burst_when_a_second_has_passed_then_one_line_tells_how_many_were_held_back() {
        let (born, throttle) = started();
        let at = |ms| throttle.admit(born + Duration::from_millis(ms));
        let seen: Vec<_> = [0, 1, 500, 999, 1000, 1001, 1999, 2000, 2001].map(at).into();
        assert_eq!(seen, [Some(0), None, None, None, Some(3), None, None, Some(2), None]);
    }

    #[test]
    fn given_lines_a_second_apart_when_asked_then_all_pass_and_none_was_held_back() {
        let (born, throttle) = started();
        let seen: Vec<_> = (0..3).map(|second| throttle.admit(born + Duration::from_secs(second))).collect();
        assert_eq!(seen, [Some(0); 3]);
    }

    #[test]
    fn given_an_instant_before_birth_when_asked_then_it_counts_as_birth() {
        let (born, throttle) = started();
        let before = born.checked_sub(Duration::from_nanos(1)).unwrap_or(born);
        assert_eq!(throttle.admit(before), Some(0));
        assert_eq!(throttle.admit(born), None);
    }

    #[test]
    fn given_many_threads_at_one_instant_when_asked_then_one_passes_and_no_other_is_forgotten() {
        let (born, throttle) = started();
        let passed: usize = std::thread::scope(|scope| {
            let run = || (0..1000).filter(|_| throttle.admit(born).is_some()).count();
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(run)).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
        });
        assert_eq!(passed, 1);
        assert_eq!(throttle.admit(born + INTERVAL), Some(3999));
    }

    fn started() -> (Instant, Throttle) {
        let born = Instant::now();
        (born, Throttle::new(born))
    }
}
