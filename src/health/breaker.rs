//! The circuit breaker of one destination (Apinizer's): refuses it when too much failed, sleeps, then lets trials
//! decide. A pure machine.
//!
//! | before | event | after |
//! |---|---|---|
//! | Closed | of the window's outcomes the threshold failed: a share of them from `minimum_requests` on, or a number | Open for `sleep` |
//! | any | the active check fails (`unhealthy_after` in a row) | Open for `sleep` |
//! | any | the active check passes (`healthy_after` in a row) | Closed, without a trial |
//! | Open | `sleep` is over, and no failed active check stands | HalfOpen |
//! | HalfOpen | so many trials succeed as the active check's `healthy_after` says (1 without one) | Closed |
//! | HalfOpen | a trial fails | Open for `sleep` |
//!
//! While it is Open no outcome counts; when it closes, its window starts fresh.

use super::explanation::seconds;
use super::passive::{Measure, Rates};
use std::fmt;
use std::time::{Duration, Instant};

/// `breaker` of the configuration.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Breaking {
    pub window: Duration,
    pub threshold: Threshold,
    pub minimum_requests: u32,
    pub sleep: Duration,
    pub trial_requests: u32,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Threshold {
    /// Of the outcomes in the window, 0–1.
    Share(f64),
    /// Failures in the window.
    Number(u32),
}

impl fmt::Display for Breaking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let threshold = match self.threshold {
            Threshold::Share(share) => format!("threshold {share}, minimum_requests {}", self.minimum_requests),
            Threshold::Number(number) => format!("threshold {number}"),
        };
        write!(f, "window {}, {threshold}", seconds(self.window))
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Circuit {
    Closed,
    Open { until: Instant },
    HalfOpen { passes: u32 },
}

#[derive(Debug)]
pub struct Breaker {
    how: Breaking,
    rates: Rates,
    circuit: Circuit,
}

impl Breaker {
    pub fn new(how: Breaking) -> Self {
        Breaker { how, rates: Rates::new(how.window), circuit: Circuit::Closed }
    }

    /// One that goes on from there; its window begins anew.
    pub fn resumed(how: Breaking, circuit: Circuit) -> Self {
        Breaker { circuit, ..Breaker::new(how) }
    }

    pub fn how(&self) -> &Breaking {
        &self.how
    }

    /// Goes on with other settings; the window's history stays where its length does.
    pub fn adopt(&mut self, how: Breaking) {
        if how.window != self.how.window {
            self.rates = Rates::new(how.window);
        }
        self.how = how;
    }

    pub fn circuit(&self) -> Circuit {
        self.circuit
    }

    /// In Closed: takes an outcome in; whether the threshold is reached.
    pub fn record(&mut self, failed: bool, now: Instant) -> bool {
        self.rates.record(failed, now);
        self.measures().iter().all(Measure::is_met)
    }

    /// The numbers that [`Breaker::record`] compares.
    pub fn measures(&self) -> Vec<Measure> {
        let Rates { total, failed, .. } = &self.rates;
        match self.how.threshold {
            Threshold::Share(share) => vec![
                Measure::new("outcomes in the window", f64::from(*total), self.how.minimum_requests.into()),
                Measure::new("failures among them", f64::from(*failed), 1.0),
                Measure::new("share of failures", self.rates.share(), share),
            ],
            Threshold::Number(number) => {
                vec![Measure::new("failures in the window", f64::from(*failed), number.into())]
            }
        }
    }

    pub fn open(&mut self, now: Instant) {
        self.circuit = Circuit::Open { until: now + self.how.sleep };
    }

    pub fn half_open(&mut self) {
        self.circuit = Circuit::HalfOpen { passes: 0 };
    }

    /// In HalfOpen: trials passed, this one included.
    pub fn passed(&mut self) -> u32 {
        let Circuit::HalfOpen { passes } = &mut self.circuit else { return 0 };
        *passes = passes.saturating_add(1);
        *passes
    }

    pub fn close(&mut self) {
        self.circuit = Circuit::Closed;
        self.rates.clear();
    }

    pub fn due(&self) -> Option<Instant> {
        match self.circuit {
            Circuit::Open { until } => Some(until),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn breaker(threshold: Threshold) -> Breaker {
        Breaker::new(Breaking {
            window: Duration::from_secs(10),
            threshold,
            minimum_requests: 4,
            sleep: Duration::from_secs(5),
            trial_requests: 1,
        })
    }

    #[test]
    fn given_a_percentage_when_reached_from_the_minimum_on_then_it_trips() {
        let (mut breaker, now) = (breaker(Threshold::Share(0.5)), Instant::now());
        let tripped: Vec<bool> = [true, true, false, false].map(|failed| breaker.record(failed, now)).into();
        assert_eq!(tripped, [false, false, false, true]);
    }

    #[test]
    fn given_a_number_when_reached_within_the_window_then_it_trips_whatever_the_minimum() {
        let (mut breaker, now) = (breaker(Threshold::Number(3)), Instant::now());
        assert!(!breaker.record(true, now));
        assert!(!breaker.record(true, now));
        assert!(!breaker.record(true, now + Duration::from_secs(12)), "the first two are forgotten");
        assert!(!breaker.record(true, now + Duration::from_secs(12)));
        assert!(breaker.record(true, now + Duration::from_secs(13)));
    }

    #[test]
    fn given_a_closed_circuit_again_when_one_fails_then_the_old_failures_do_not_count() {
        let (mut breaker, now) = (breaker(Threshold::Number(2)), Instant::now());
        breaker.record(true, now);
        assert!(breaker.record(true, now));
        breaker.open(now);
        assert_eq!(breaker.due(), Some(now + Duration::from_secs(5)));
        breaker.half_open();
        assert_eq!((breaker.passed(), breaker.passed()), (1, 2));
        breaker.close();
        assert!(!breaker.record(true, now));
    }
}
