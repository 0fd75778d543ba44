use super::Counted;
use crate::model::{Epoch, Outcome, Stamp};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Kept of each destination; older ones are forgotten.
const KEPT: usize = 32;

/// One thing that was seen of a destination.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Evidence {
    /// When it was over.
    pub at: Stamp,
    pub by: By,
    /// The outcome's word, a status, or what a probe saw.
    pub what: String,
    /// As the detectors count it; of a probe, whether it passed.
    pub counted: Counted,
    /// To the response head, or to the failure.
    pub latency_ms: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum By {
    /// An attempt of a client's request, the first or a later one.
    Traffic {
        route: String,
        attempt: u8,
    },
    Probe,
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counted = match self.counted {
            Counted::Failure => "failure",
            Counted::Success => "success",
            Counted::Neither => "not counted",
        };
        let Evidence { at, by, what, latency_ms, .. } = self;
        match by {
            By::Probe => write!(f, "{at}  probe    {counted:<11} {what} in {latency_ms:.1} ms"),
            By::Traffic { route, attempt } => {
                write!(f, "{at}  traffic  {counted:<11} {what} in {latency_ms:.1} ms, route {route}, attempt {attempt}")
            }
        }
    }
}

/// The last things seen of one destination.
#[derive(Debug, Default)]
pub(super) struct Ring {
    seen: VecDeque<Seen>,
    good: usize,
    bad: usize,
}

/// A probe, as it was judged.
pub(super) struct Probed {
    pub passed: bool,
    pub cause: String,
    pub begun: Instant,
    pub at: Instant,
}

#[derive(Debug)]
struct Seen {
    at: Instant,
    what: What,
    counted: Counted,
    latency: Duration,
}

#[derive(Debug)]
enum What {
    Traffic { route: Arc<str>, attempt: u8, outcome: Outcome },
    Probe(String),
}

impl Ring {
    pub fn traffic(
        &mut self,
        (route, attempt): (&Arc<str>, u8),
        outcome: Outcome,
        counted: Counted,
        latency: Duration,
        at: Instant,
    ) {
        self.push(Seen { at, what: What::Traffic { route: route.clone(), attempt, outcome }, counted, latency });
    }

    pub fn probe(&mut self, passed: bool, cause: String, latency: Duration, at: Instant) {
        let counted = if passed { Counted::Success } else { Counted::Failure };
        self.push(Seen { at, what: What::Probe(cause), counted, latency });
    }

    /// Takes out the probes that were over after `then`, oldest first.
    pub fn take_probes(&mut self, then: Option<Instant>) -> Vec<Probed> {
        let mut taken = Vec::new();
        self.seen.retain_mut(|seen| {
            let What::Probe(cause) = &mut seen.what else { return true };
            let later = then.is_none_or(|then| seen.at > then);
            if later {
                let begun = seen.at.checked_sub(seen.latency).unwrap_or(seen.at);
                let passed = seen.counted == Counted::Success;
                taken.push(Probed { passed, cause: std::mem::take(cause), begun, at: seen.at });
            }
            !later
        });
        taken
    }

    /// How many of the attempts kept were good, in tenths; 0 where there is none.
    pub fn tenths_good(&self) -> u8 {
        let counted = self.good + self.bad;
        (self.good * 10).checked_div(counted).map_or(0, |tenths| tenths as u8)
    }

    pub fn told(&self, epoch: &Epoch) -> Vec<Evidence> {
        self.seen.iter().map(|seen| seen.told(epoch)).collect()
    }

    fn push(&mut self, seen: Seen) {
        if self.seen.len() == KEPT
            && let Some(gone) = self.seen.pop_front()
        {
            self.count(&gone, |n| n.saturating_sub(1));
        }
        self.count(&seen, |n| n + 1);
        self.seen.push_back(seen);
    }

    fn count(&mut self, seen: &Seen, change: impl Fn(usize) -> usize) {
        match (&seen.what, seen.counted) {
            (What::Traffic { .. }, Counted::Success) => self.good = change(self.good),
            (What::Traffic { .. }, Counted::Failure) => self.bad = change(self.bad),
            _ => {}
        }
    }
}

impl Seen {
    fn told(&self, epoch: &Epoch) -> Evidence {
        let (by, what) = match &self.what {
            What::Probe(cause) => (By::Probe, cause.clone()),
            What::Traffic { route, attempt, outcome } => {
                let what = match outcome {
                    Outcome::Status(status) => status.to_string(),
                    other => other.as_str().to_string(),
                };
                (By::Traffic { route: route.to_string(), attempt: *attempt }, what)
            }
        };
        let latency_ms = self.latency.as_micros() as f64 / 1_000.0;
        Evidence { at: epoch.stamp(self.at), by, what, counted: self.counted, latency_ms }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::SystemTime;

    #[test]
    fn given_many_outcomes_when_kept_then_the_last_ones_and_their_share_of_good() {
        let (mut ring, now, route) = (Ring::default(), Instant::now(), Arc::from("books"));
        assert_eq!(ring.tenths_good(), 0);
        for n in 0..100u32 {
            let (outcome, counted) =
                if n < 84 { (Outcome::Status(200), Counted::Success) } else { (Outcome::Refused, Counted::Failure) };
            ring.traffic((&route, 1), outcome, counted, Duration::from_millis(2), now);
        }
        assert_eq!(ring.tenths_good(), 5);
        ring.probe(false, "503".into(), Duration::ZERO, now);
        let told = ring.told(&Epoch { instant: now, wall: SystemTime::UNIX_EPOCH });
        assert_eq!(told.len(), KEPT);
        let last: Vec<String> = told[KEPT - 2..].iter().map(ToString::to_string).collect();
        assert_eq!(last[0], "1970-01-01T00:00:00.000Z  traffic  failure     refused in 2.0 ms, route books, attempt 1");
        assert_eq!(last[1], "1970-01-01T00:00:00.000Z  probe    failure     503 in 0.0 ms");
    }
}
