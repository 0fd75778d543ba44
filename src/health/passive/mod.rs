//! Passive detectors: who, of what came of requests, should be out. One policy a file, one row in [`BUILTIN`]; several may watch one
//! destination, and the first to fire ejects it. What is a failure is [`counted`]'s to say; what follows from an ejection,
//! [`super::reactivation`]'s. No clock, no memory that grows with traffic.

mod consecutive_failures;
mod counting;
mod transport_failure_rate;

pub use consecutive_failures::ConsecutiveFailures;
pub use counting::{Counted, counted};
pub use transport_failure_rate::{Rates, TransportFailureRate};

use crate::config::Section;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::time::{Duration, Instant};

/// A detector with its parameters, one for each cluster.
pub trait PassivePolicy: Send + Sync {
    /// The name it is configured by.
    fn name(&self) -> &'static str;

    /// The parameters in words: `window 60s, minimum_requests 10, failure_rate 0.3`. Equal words mean equal
    /// parameters, by which a reload keeps the history.
    fn parameters(&self) -> String;

    /// How long an outcome weighs; zero where time does not count.
    fn window(&self) -> Duration {
        Duration::ZERO
    }

    /// So many failures in a row fire it, whatever came before; `None` when no number does.
    fn bound(&self) -> Option<u32> {
        None
    }

    /// The memory of one destination.
    fn track(&self) -> Box<dyn Tracker>;
}

/// What a detector remembers of one destination: bounded, and of the same cost for every outcome.
pub trait Tracker: Send {
    /// Takes an outcome in; whether the destination should be out by what is known now.
    fn record(&mut self, sample: Sample, now: Instant) -> bool;

    /// The numbers that the last answer rests on.
    fn measures(&self) -> Vec<Measure>;

    /// Forgets everything.
    fn clear(&mut self);
}

/// An outcome as detectors see it.
#[derive(Debug, Clone, Copy)]
pub struct Sample {
    pub failed: bool,
    /// When its attempt began.
    pub begun: Instant,
}

/// A number that a rule compares: met when `value` is at least `limit`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measure {
    pub what: Cow<'static, str>,
    pub value: f64,
    pub limit: f64,
}

impl Measure {
    pub fn new(what: &'static str, value: f64, limit: f64) -> Self {
        Measure { what: Cow::Borrowed(what), value, limit }
    }

    pub fn is_met(&self) -> bool {
        self.value >= self.limit
    }
}

/// A row of the table of detectors.
#[derive(Clone, Copy)]
pub struct Entry {
    pub name: &'static str,
    /// Takes the policy's own keys from the section; faults go to the section, which then refuses keys not taken.
    pub build: fn(&mut Section<'_>) -> Box<dyn PassivePolicy>,
}

pub const BUILTIN: &[Entry] = &[transport_failure_rate::ENTRY, consecutive_failures::ENTRY];
