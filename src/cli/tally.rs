//! What a load probe counts, and how it is told: one line a fact, in the order people look for it, or one JSON object.
//!
//! Percentiles are over the answered requests, whatever their status; a failed one has no latency.

use super::get::Failure;
use http::{HeaderValue, StatusCode};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// For answers without the header.
const UNNAMED: &str = "(none)";
/// For values beyond [`MOST_NAMES`], or that are no short plain text.
const OTHER: &str = "(other)";
/// The server chooses the values, so they are bounded here.
const MOST_NAMES: usize = 1_000;
const LONGEST_NAME: usize = 100;

#[derive(Debug, Default)]
pub struct Tally {
    latencies: Vec<Duration>,
    names: BTreeMap<String, u32>,
    unnamed: u32,
    others: u32,
    statuses: BTreeMap<u16, u32>,
    failures: BTreeMap<Failure, u32>,
}

impl Tally {
    /// `name` is the header by which answers are counted.
    pub fn answered(&mut self, status: StatusCode, name: Option<&HeaderValue>, took: Duration) {
        self.latencies.push(took);
        *self.statuses.entry(status.as_u16()).or_default() += 1;
        *self.named(name) += 1;
    }

    pub fn failed(&mut self, failure: Failure) {
        *self.failures.entry(failure).or_default() += 1;
    }

    pub fn summary(mut self, concurrency: u32, elapsed: Duration) -> Summary {
        self.latencies.sort_unstable();
        Summary { tally: self, concurrency, elapsed }
    }

    fn named(&mut self, name: Option<&HeaderValue>) -> &mut u32 {
        let Some(name) = name else {
            return &mut self.unnamed;
        };
        let known = self.names.len();
        match name.to_str() {
            Ok(name) if name.len() <= LONGEST_NAME && (known < MOST_NAMES || self.names.contains_key(name)) => {
                self.names.entry(name.to_owned()).or_default()
            }
            _ => &mut self.others,
        }
    }
}

/// A whole run. `Display` gives the lines.
#[derive(Debug)]
pub struct Summary {
    /// Latencies in order.
    tally: Tally,
    concurrency: u32,
    elapsed: Duration,
}

impl Summary {
    pub fn all_answered(&self) -> bool {
        self.tally.failures.is_empty()
    }

    pub fn requests(&self) -> u32 {
        self.tally.statuses.values().chain(self.tally.failures.values()).sum()
    }

    /// The least latency within which more than `percent` (0–100) of the answers came; the slowest's when there is none.
    /// As the articles reckon: of 40 answers with two slow ones the 95th percentile is a slow one. `None` without answers.
    pub fn percentile(&self, percent: usize) -> Option<Duration> {
        let latencies = &self.tally.latencies;
        latencies.get(latencies.len() * percent / 100).or(latencies.last()).copied()
    }

    /// Header value and its answers, by name, those without and beyond the bounds last.
    pub fn instances(&self) -> Vec<(&str, u32)> {
        let named = self.tally.names.iter().map(|(name, count)| (name.as_str(), *count));
        let rest = [(UNNAMED, self.tally.unnamed), (OTHER, self.tally.others)];
        named.chain(rest.into_iter().filter(|(_, count)| *count > 0)).collect()
    }

    /// Answers by status, ascending.
    pub fn statuses(&self) -> &BTreeMap<u16, u32> {
        &self.tally.statuses
    }

    /// Requests without an answer, by kind.
    pub fn failures(&self) -> &BTreeMap<Failure, u32> {
        &self.tally.failures
    }

    pub fn json(&self) -> serde_json::Value {
        let ms = |percent| self.percentile(percent).map(|latency| latency.as_micros() as f64 / 1e3);
        let mut instances = serde_json::Map::new();
        for (name, count) in self.instances() {
            instances.insert(name.to_owned(), count.into());
        }
        let errors: BTreeMap<String, u32> =
            self.failures().iter().map(|(kind, count)| (kind.to_string(), *count)).collect();
        serde_json::json!({
            "requests": self.requests(),
            "concurrency": self.concurrency,
            "seconds": self.elapsed.as_secs_f64(),
            "p50_ms": ms(50),
            "p95_ms": ms(95),
            "p99_ms": ms(99),
            "max_ms": ms(100),
            "instances": instances,
            "statuses": self.statuses(),
            "errors": errors,
        })
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.elapsed.as_secs_f64();
        writeln!(f, "{} requests, concurrency {}, {seconds:.1} s", self.requests(), self.concurrency)?;
        if let (Some(p50), Some(p95)) = (self.percentile(50), self.percentile(95)) {
            let ms = |latency: Duration| latency.as_secs_f64() * 1e3;
            writeln!(f, "p50 {:.0} ms, p95 {:.0} ms", ms(p50), ms(p95))?;
        }
        for (name, count) in self.instances() {
            writeln!(f, "{name} {count}")?;
        }
        for (status, count) in self.statuses() {
            writeln!(f, "status {status} {count}")?;
        }
        for (kind, count) in self.failures() {
            writeln!(f, "error {kind} {count}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answers(tally: &mut Tally, name: Option<&'static str>, latencies_ms: impl IntoIterator<Item = u64>) {
        let name = name.map(HeaderValue::from_static);
        for ms in latencies_ms {
            tally.answered(StatusCode::OK, name.as_ref(), Duration::from_millis(ms));
        }
    }

    #[test]
    fn given_answers_and_failures_when_told_then_the_lines_are_these() {
        let mut tally = Tally::default();
        answers(&mut tally, None, [7]);
        answers(&mut tally, Some("catalog-2"), [50]);
        answers(&mut tally, Some("catalog-1"), [1, 2]);
        tally.answered(StatusCode::BAD_GATEWAY, None, Duration::from_micros(600));
        tally.failed(Failure::Reset);
        tally.failed(Failure::Refused);
        tally.failed(Failure::Refused);
        let summary = tally.summary(20, Duration::from_millis(140));
        let lines = "8 requests, concurrency 20, 0.1 s\np50 2 ms, p95 50 ms\ncatalog-1 2\ncatalog-2 1\n(none) 2\n\
                     status 200 4\nstatus 502 1\nerror refused 2\nerror reset 1\n";
        assert_eq!(summary.to_string(), lines);
        assert!(!summary.all_answered());
        let json = summary.json();
        assert_eq!(json["instances"], serde_json::json!({ "catalog-1": 2, "catalog-2": 1, "(none)": 2 }));
        assert_eq!(json["statuses"], serde_json::json!({ "200": 4, "502": 1 }));
        assert_eq!(json["errors"], serde_json::json!({ "refused": 2, "reset": 1 }));
        assert_eq!((&json["p50_ms"], &json["max_ms"]), (&2.0.into(), &50.0.into()));
    }

    #[test]
    fn given_latencies_when_asked_for_a_percentile_then_more_than_that_share_came_within_it() {
        for (latencies, percent, ms) in [
            (1..=100, 50, 51),
            (1..=100, 95, 96),
            (1..=20, 95, 20),
            (1..=21, 95, 20),
            (1..=40, 95, 39),
            (1..=3, 50, 2),
            (1..=1, 1, 1),
            (1..=7, 100, 7),
        ] {
            let mut tally = Tally::default();
            answers(&mut tally, None, latencies.clone().rev());
            let summary = tally.summary(1, Duration::ZERO);
            assert_eq!(summary.percentile(percent), Some(Duration::from_millis(ms)), "{latencies:?} {percent}");
        }
    }

    #[test]
    fn given_no_answer_at_all_when_told_then_there_are_no_percentiles() {
        let mut tally = Tally::default();
        tally.failed(Failure::ConnectTimeout);
        let summary = tally.summary(1, Duration::from_secs(2));
        assert_eq!(summary.to_string(), "1 requests, concurrency 1, 2.0 s\nerror connect_timeout 1\n");
        assert!(summary.json()["p50_ms"].is_null());
    }

    #[test]
    fn given_ever_new_names_when_counted_then_memory_stays_bounded_and_no_answer_is_lost() {
        let mut tally = Tally::default();
        let count = MOST_NAMES + 5;
        for at in 0..count {
            let name = HeaderValue::from_str(&format!("n{at}")).unwrap();
            tally.answered(StatusCode::OK, Some(&name), Duration::ZERO);
        }
        answers(&mut tally, Some("n0"), [0]);
        let long = HeaderValue::from_str(&"x".repeat(LONGEST_NAME + 1)).unwrap();
        tally.answered(StatusCode::OK, Some(&long), Duration::ZERO);
        let summary = tally.summary(1, Duration::ZERO);
        let instances = summary.instances();
        assert_eq!(instances.len(), MOST_NAMES + 1);
        assert_eq!(instances.last(), Some(&(OTHER, 6)));
        assert_eq!(instances[0], ("n0", 2));
    }
}
