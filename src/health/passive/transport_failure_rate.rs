//! TransportFailureRate (YARP's): the share of failures among all outcomes of the last `window`, from `minimum_requests` on. Fires
//! at the limit, not above it. Outcomes are counted in buckets of one second, so an outcome weighs for `window` and up to
//! a second more; memory is one bucket a second of the window, and recording costs the same however many outcomes there were.

use super::{Entry, Measure, PassivePolicy, Sample, Tracker};
use crate::config::Section;
use crate::health::explanation::seconds;
use std::time::{Duration, Instant};

pub const ENTRY: Entry = Entry { name: "TransportFailureRate", build };

/// Keys: `window` (1s–10m, default 60s), `minimum_requests` (1–1,000,000, default 10), `failure_rate` (0–1, default 0.3).
fn build(params: &mut Section<'_>) -> Box<dyn PassivePolicy> {
    let window = params.duration("window", Duration::from_secs(1)..=Duration::from_secs(600));
    Box::new(TransportFailureRate {
        window: window.unwrap_or(Duration::from_secs(60)),
        minimum_requests: params.integer("minimum_requests", 1..=1_000_000).unwrap_or(10) as u32,
        failure_rate: params.percent("failure_rate").unwrap_or(0.3),
    })
}

#[derive(Debug, Clone, Copy)]
pub struct TransportFailureRate {
    pub window: Duration,
    pub minimum_requests: u32,
    /// 0–1.
    pub failure_rate: f64,
}

impl PassivePolicy for TransportFailureRate {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn parameters(&self) -> String {
        let TransportFailureRate { window, minimum_requests, failure_rate } = self;
        let window = seconds(*window);
        format!("window {window}, minimum_requests {minimum_requests}, failure_rate {failure_rate}")
    }

    fn window(&self) -> Duration {
        self.window
    }

    fn track(&self) -> Box<dyn Tracker> {
        Box::new(Window { policy: *self, rates: Rates::new(self.window) })
    }
}

struct Window {
    policy: TransportFailureRate,
    rates: Rates,
}

impl Tracker for Window {
    fn record(&mut self, sample: Sample, now: Instant) -> bool {
        self.rates.record(sample.failed, now);
        self.rates.total >= self.policy.minimum_requests && self.rates.share() >= self.policy.failure_rate
    }

    fn measures(&self) -> Vec<Measure> {
        let Rates { total, failed, .. } = &self.rates;
        vec![
            Measure::new("outcomes in the window", f64::from(*total), self.policy.minimum_requests.into()),
            Measure::new("failures among them", f64::from(*failed), 0.0),
            Measure::new("share of failures", self.rates.share(), self.policy.failure_rate),
        ]
    }

    fn clear(&mut self) {
        self.rates.clear();
    }
}

/// Outcomes of a sliding window, in buckets of a second.
#[derive(Debug)]
pub struct Rates {
    buckets: Box<[Bucket]>,
    /// The first outcome's time: where seconds are counted from.
    start: Option<Instant>,
    /// The second of the newest bucket.
    second: u64,
    pub total: u32,
    pub failed: u32,
}

#[derive(Debug, Clone, Copy, Default)]
struct Bucket {
    total: u32,
    failed: u32,
}

impl Rates {
    pub fn new(window: Duration) -> Self {
        let seconds = window.as_secs() + u64::from(window.subsec_nanos() > 0);
        let buckets = vec![Bucket::default(); seconds as usize + 1].into_boxed_slice();
        Rates { buckets, start: None, second: 0, total: 0, failed: 0 }
    }

    pub fn record(&mut self, failed: bool, now: Instant) {
        let start = *self.start.get_or_insert(now);
        self.forget(now.saturating_duration_since(start).as_secs());
        let newest = &mut self.buckets[(self.second % self.buckets.len() as u64) as usize];
        let failed = u32::from(failed);
        newest.total = newest.total.saturating_add(1);
        newest.failed = newest.failed.saturating_add(failed);
        self.total = self.total.saturating_add(1);
        self.failed = self.failed.saturating_add(failed);
    }

    /// Failures in all, 0–1; 0 without any outcome.
    pub fn share(&self) -> f64 {
        if self.total == 0 { 0.0 } else { f64::from(self.failed) / f64::from(self.total) }
    }

    pub fn clear(&mut self) {
        self.buckets.fill(Bucket::default());
        (self.start, self.second, self.total, self.failed) = (None, 0, 0, 0);
    }

    /// Goes on to `second`, and empties the buckets that then stand for new ones. A clock that went back changes nothing.
    fn forget(&mut self, second: u64) {
        let passed = second.saturating_sub(self.second).min(self.buckets.len() as u64);
        for ahead in 1..=passed {
            let index = ((self.second + ahead) % self.buckets.len() as u64) as usize;
            let gone = std::mem::take(&mut self.buckets[index]);
            self.total = self.total.saturating_sub(gone.total);
            self.failed = self.failed.saturating_sub(gone.failed);
        }
        if passed == self.buckets.len() as u64 {
            // Saturated sums do not come back to zero by themselves.
            (self.total, self.failed) = (0, 0);
        }
        self.second = self.second.max(second);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn given_the_limit_when_reached_exactly_then_it_fires_and_below_the_minimum_it_never_does() {
        let policy = TransportFailureRate { window: ms(60_000), minimum_requests: 10, failure_rate: 0.3 };
        let (mut tracker, now) = (policy.track(), Instant::now());
        let mut record = |failed| tracker.record(Sample { failed, begun: now }, now);
        assert!((0..7).all(|_| !record(false)));
        assert!(!record(true) && !record(true));
        assert!(record(true), "3 of 10");
        assert!(!record(false), "3 of 11");
        let mut fresh = policy.track();
        let fired: Vec<bool> = (0..10).map(|_| fresh.record(Sample { failed: true, begun: now }, now)).collect();
        assert_eq!(fired.iter().position(|fired| *fired), Some(9));
    }

    #[test]
    fn given_a_long_pause_when_it_goes_on_then_nothing_of_before_counts() {
        let (mut rates, now) = (Rates::new(ms(5_000)), Instant::now());
        (0..100).for_each(|_| rates.record(true, now));
        rates.record(false, now + ms(3_600_000));
        assert_eq!((rates.total, rates.failed), (1, 0));
    }

    proptest! {
        /// Against the definition: what came in this second and the `window` seconds before it.
        #[test]
        fn given_any_outcomes_when_recorded_then_the_sums_are_those_of_the_window(
            steps in prop::collection::vec((0u64..4_000, any::<bool>()), 1..200),
            window in 1u64..20,
        ) {
            let start = Instant::now();
            let mut rates = Rates::new(Duration::from_secs(window));
            let mut seen = Vec::new();
            let mut at = 0;
            for (pause, failed) in steps {
                at += if seen.is_empty() { 0 } else { pause };
                seen.push((at / 1_000, failed));
                rates.record(failed, start + ms(at));
                let inside = |&&(second, _): &&(u64, bool)| second + window >= at / 1_000;
                let total = seen.iter().filter(inside).count();
                let failed = seen.iter().filter(inside).filter(|(_, failed)| *failed).count();
                prop_assert_eq!((rates.total as usize, rates.failed as usize), (total, failed));
            }
        }
    }
}
