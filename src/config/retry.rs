//! Section `retry` of a cluster: when a request that failed goes to another destination.

use super::Section;
use super::health::Count;
use super::outline::{one_of, unit};
use super::route::method;
use super::units::{DAY, ms};
use super::{Located, unknown};
use http::Method;
use serde_json::json;
use std::time::Duration;

/// What Pingora keeps of a body, to send it again.
const MAX_BODY: u64 = 64 * 1024;

/// The statuses of gRPC but its 0, which is none to try again after: their numbers count from 1.
const GRPC: [&str; 16] = [
    "cancelled",
    "unknown",
    "invalid_argument",
    "deadline_exceeded",
    "not_found",
    "already_exists",
    "permission_denied",
    "resource_exhausted",
    "failed_precondition",
    "aborted",
    "out_of_range",
    "unimplemented",
    "internal",
    "unavailable",
    "data_loss",
    "unauthenticated",
];

/// `clusters.*.retry`
#[derive(Debug, Clone, PartialEq)]
pub struct Retry {
    /// In all, the first included. Default 3, 1–[`Retry::MOST`].
    pub attempts: u8,
    /// After what. Default connect and reset.
    pub on: Count,
    /// After what status of gRPC, by number, in an answer that is a head alone; whatever `methods` says, for gRPC knows POST
    /// only. Default none.
    pub on_grpc: Vec<u8>,
    /// What may be sent again once it was sent. Default GET, HEAD, OPTIONS, PUT, DELETE and TRACE.
    pub methods: Vec<Method>,
    /// From its start, or from the end of the request where that comes later, an attempt has so long to the head of its
    /// answer. Default none, 1ms–24h.
    pub attempt_timeout: Option<Duration>,
    pub delay: Delay,
    pub budget: RetryBudget,
    /// Larger bodies are sent once. Default 64KiB, which is the most; in bytes.
    pub max_body: u64,
    /// The same destination again when none is left. Default `true`.
    pub repeat: bool,
}

/// How long another attempt waits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Delay {
    /// The first retry is at once, the second waits up to `initial`, each further one up to `multiplier` times as long.
    Backoff {
        /// Default 25ms, 0s–10s.
        initial: Duration,
        /// Default 2, 1–10.
        multiplier: f64,
        /// Default 1s, or `initial` when that is longer; up to 10s.
        max: Duration,
        /// `jitter: full`, the default: anything from nothing to the delay; `none`: the delay.
        jitter: bool,
    },
    /// Each retry waits for so long. 0s–10s.
    Fixed(Duration),
}

/// How many retries there may be a second, of the whole cluster.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RetryBudget {
    /// Of the requests, 0–1. Default 20%.
    pub percent: f64,
    /// So many beside them. Default 10, 0–10,000.
    pub floor: u32,
}

impl Retry {
    /// Attempts at most.
    pub const MOST: u8 = 10;

    pub(super) fn read(section: &mut Section<'_>) -> Self {
        let attempts = section.integer("attempts", 1..=Self::MOST.into()).unwrap_or(3);
        let on = Count::words(section, "on").unwrap_or(Count { timeout: false, ..Count::default() });
        let on_grpc = grpc(section);
        let methods = section.checked_words("methods", method);
        let methods = match section.has("methods") {
            true => methods.into_iter().map(|method| method.value).collect(),
            false => {
                vec![Method::GET, Method::HEAD, Method::OPTIONS, Method::PUT, Method::DELETE, Method::TRACE]
            }
        };
        Retry {
            attempts: u8::try_from(attempts).unwrap_or(Self::MOST),
            on,
            on_grpc,
            methods,
            attempt_timeout: section.duration("attempt_timeout", ms(1)..=DAY),
            delay: Delay::read(section),
            budget: section.defaulted("budget", |budget| RetryBudget {
                percent: budget.percent("percent").unwrap_or(0.2),
                floor: budget.integer("floor", 0..=10_000).and_then(|floor| u32::try_from(floor).ok()).unwrap_or(10),
            }),
            max_body: section.size("max_body", 0..=MAX_BODY).unwrap_or(MAX_BODY),
            repeat: section.flag("repeat").unwrap_or(true),
        }
    }
}

fn grpc(section: &mut Section<'_>) -> Vec<u8> {
    section.note("on_grpc", || {
        let word = one_of(GRPC.into_iter());
        json!({ "anyOf": [word, { "type": "array", "items": word }] })
    });
    let mut statuses = Vec::new();
    for Located { value: word, at } in section.words("on_grpc") {
        match (1..).zip(GRPC).find(|(_, name)| *name == word) {
            Some((status, _)) => statuses.push(status),
            None => section.problem(&at, unknown("status of gRPC", &word, &GRPC)),
        }
    }
    statuses
}

impl Delay {
    const MOST: Duration = Duration::from_secs(10);

    /// A duration alone is fixed.
    fn read(section: &mut Section<'_>) -> Self {
        section.note("delay", || unit("duration", "a duration from 0s to 10s".to_owned()));
        if section.take("delay").is_some_and(|node| node.scalar().is_some()) {
            let fixed = section.duration("delay", Duration::ZERO..=Self::MOST);
            return Delay::Fixed(fixed.unwrap_or_default());
        }
        section.defaulted("delay", |delay| {
            let initial = delay.duration("initial", Duration::ZERO..=Self::MOST).unwrap_or(ms(25));
            let max = delay.duration("max", Duration::ZERO..=Self::MOST).unwrap_or(ms(1_000).max(initial));
            if max < initial {
                delay.problem(&delay.spot_of("max"), "`initial` is longer already");
            }
            Delay::Backoff {
                initial,
                multiplier: delay.number("multiplier", 1.0..=10.0).unwrap_or(2.0),
                max,
                jitter: delay.word("jitter", &[("full", true), ("none", false)]).unwrap_or(true),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, LoadError};

    fn config(retry: &str) -> Result<Config, LoadError> {
        let lines = ["listeners: { web: 0.0.0.0:1 }", "routes: { r: { cluster: c } }"];
        let text = format!("{}\nclusters: {{ c: {{ destinations: [\"http://a\"], {retry} }} }}\n", lines.join("\n"));
        Config::parse("t.yaml", &text)
    }

    fn retry(text: &str) -> Option<Retry> {
        config(text).unwrap_or_else(|error| panic!("{error}")).clusters.remove(0).retry
    }

    #[test]
    fn given_nothing_or_off_when_read_then_the_defaults_or_none() {
        let defaults = Retry {
            attempts: 3,
            on: Count { connect: true, timeout: false, reset: true, statuses: Vec::new() },
            on_grpc: Vec::new(),
            methods: vec![Method::GET, Method::HEAD, Method::OPTIONS, Method::PUT, Method::DELETE, Method::TRACE],
            attempt_timeout: None,
            delay: Delay::Backoff { initial: ms(25), multiplier: 2.0, max: ms(1_000), jitter: true },
            budget: RetryBudget { percent: 0.2, floor: 10 },
            max_body: 65_536,
            repeat: true,
        };
        assert_eq!(retry("slow_start: 0s"), Some(defaults.clone()));
        assert_eq!(retry("retry: {}"), Some(defaults));
        assert_eq!(retry("retry: off"), None);
    }

    #[test]
    fn given_every_key_when_read_then_every_value_arrives() {
        let read = retry(
            "retry: { attempts: 5, on: [timeout, \"503\", 5xx], on_grpc: [unavailable, cancelled], methods: [GET, POST], attempt_timeout: 2s, delay: { initial: 1s, \
             multiplier: 1.5, max: 2s, jitter: none }, budget: { percent: 5%, floor: 0 }, max_body: 1KiB, repeat: false }",
        );
        let expected = Retry {
            attempts: 5,
            on: Count { connect: false, timeout: true, reset: false, statuses: vec![503..=503, 500..=599] },
            on_grpc: vec![14, 1],
            methods: vec![Method::GET, Method::POST],
            attempt_timeout: Some(ms(2_000)),
            delay: Delay::Backoff { initial: ms(1_000), multiplier: 1.5, max: ms(2_000), jitter: false },
            budget: RetryBudget { percent: 0.05, floor: 0 },
            max_body: 1_024,
            repeat: false,
        };
        assert_eq!(read, Some(expected));
        let delay = |text: &str| retry(text).map(|retry| retry.delay);
        assert_eq!(delay("retry: { delay: 50ms }"), Some(Delay::Fixed(ms(50))));
        let long = Delay::Backoff { initial: ms(2_000), multiplier: 2.0, max: ms(2_000), jitter: true };
        assert_eq!(delay("retry: { delay: { initial: 2s } }"), Some(long));
        assert_eq!(retry("retry: { on_grpc: unauthenticated }").map(|retry| retry.on_grpc), Some(vec![16]));
        assert_eq!(retry("retry: { methods: [] }").map(|retry| retry.methods), Some(Vec::new()));
    }

    #[test]
    fn given_a_wrong_value_when_read_then_one_fault_at_its_path() {
        for (written, fault) in [
            ("retry: on", "retry: expected a section of keys; found \"on\""),
            ("retry: { attempts: 0 }", "retry.attempts: expected a whole number from 1 to 10"),
            ("retry: { attempt: 2 }", "retry.attempt: unknown key \"attempt\"; did you mean \"attempts\"?"),
            ("retry: { on: [] }", "retry.on: needs at least one, such as `connect`"),
            ("retry: { on: [conect] }", "retry.on[0]: unknown outcome \"conect\"; did you mean \"connect\"?"),
            (
                "retry: { on: [unavailable] }",
                "retry.on[0]: unknown outcome \"unavailable\"; one of: connect, timeout, reset, 4xx",
            ),
            (
                "retry: { on_grpc: [unavailible] }",
                "retry.on_grpc[0]: unknown status of gRPC \"unavailible\"; did you mean \"unavailable\"?",
            ),
            ("retry: { on_grpc: ok }", "retry.on_grpc: unknown status of gRPC \"ok\""),
            ("retry: { methods: [get] }", "retry.methods[0]: methods are written in capitals; did you mean \"GET\"?"),
            ("retry: { delay: 11s }", "retry.delay: expected a duration from 0s to 10s"),
            ("retry: { delay: { jiter: full } }", "retry.delay.jiter: unknown key \"jiter\"; did you mean \"jitter\"?"),
            ("retry: { delay: { max: 5ms } }", "retry.delay.max: `initial` is longer already"),
            ("retry: { budget: { percent: 101% } }", "retry.budget.percent: "),
            ("retry: { budget: { floor: -1 } }", "retry.budget.floor: expected a whole number from 0 to 10000"),
            ("retry: { attempt_timeout: 0s }", "retry.attempt_timeout: expected a duration from 1ms to 24h"),
            ("retry: { max_body: 65KiB }", "retry.max_body: expected a size from 0 bytes to 64KiB"),
        ] {
            let Err(LoadError::Faults(faults)) = config(written) else { panic!("no fault: {written}") };
            let found: Vec<String> = faults.iter().map(ToString::to_string).collect();
            let [found] = &found[..] else { panic!("{written}\n{faults}") };
            assert!(found.contains(&format!(": clusters.c.{fault}")), "{written}\n{found}");
        }
    }
}
