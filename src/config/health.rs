//! Section `health` of a cluster: who judges its destinations, by what, and how one that is out comes back. Which detectors
//! and probes there are is not known here: they are open slots.

use super::node::Kind;
use super::units::{self, HOUR, TEN_MINUTES, ms};
use super::{Located, Node, Policy, Problems, Section, Spot, unknown};
use serde_json::json;
use std::ops::RangeInclusive;
use std::time::Duration;

#[derive(Debug, Clone)]
pub struct Health {
    /// Default HealthyOrPanic.
    pub available: Policy,
    pub initial: Initial,
    pub active: Option<ActiveCheck>,
    /// On by default; `None` is `passive: off`.
    pub passive: Option<Passive>,
    /// Off unless written.
    pub breaker: Option<Breaker>,
}

/// What a destination gets before its first probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Initial {
    /// Requests, as if it were healthy. The default.
    Trust,
    /// Nothing until a probe has passed. Needs an active check.
    ProbeFirst,
}

/// `health.active`. The kind's own keys (`path`, `expect` …) stay in `kind.params`.
#[derive(Debug, Clone)]
pub struct ActiveCheck {
    /// `type: http | tcp | grpc`; the registry's probe kinds.
    pub kind: Policy,
    /// Default 15s, 100ms–1h.
    pub interval: Duration,
    /// Instead of the interval while the destination is unhealthy. Default the interval, 100ms–1h.
    pub interval_when_unhealthy: Duration,
    /// The whole probe, connecting included. Default 10s, 1ms–10m.
    pub timeout: Duration,
    /// Consecutive failures that take a destination out. Default 2, 1–1000.
    pub unhealthy_after: u32,
    /// Consecutive successes that bring it back. Default 1, 1–1000.
    pub healthy_after: u32,
    /// Each pause is the interval ± this share, 0–1. Default 0.1.
    pub jitter: f64,
}

/// `health.passive`: judged by what came of requests.
#[derive(Debug, Clone)]
pub struct Passive {
    pub at: Spot,
    /// The section stands in the file; else all of it is the default.
    pub written: bool,
    pub count: Count,
    /// The first to fire ejects. Never empty; the default is TransportFailureRate over 60s and over 5s, and
    /// ConsecutiveFailures.
    pub detectors: Vec<Policy>,
    /// `None` is `reactivation: off`: what is ejected stays out.
    pub reactivation: Option<Reactivation>,
    /// How many of a tier may be ejected at a time. Default 50%; 0 = none, and then this judge ejects nobody.
    pub max_ejected: Limit,
}

/// `health.passive.reactivation`: how what was ejected comes back.
#[derive(Debug, Clone, PartialEq)]
pub struct Reactivation {
    /// The first ejection lasts so long. Default 10s, 100ms–1h.
    pub period: Duration,
    pub mode: Mode,
    /// Requests that decide, at a time. Default 1, 1–100.
    pub trial_requests: u32,
    /// `backoff.multiplier`: of the period, at each ejection without a success between. Default 2, 1–10.
    pub multiplier: f64,
    /// `backoff.max`: no period grows longer. Default 5m, or the period when that is longer; up to 1h.
    pub max: Duration,
    /// A probe begun after the ejection and passed ends the period at once. Default `true`.
    pub lifted_by_probe: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// A few requests decide. The default.
    HalfOpen,
    /// All traffic at once, as YARP does it.
    Full,
}

/// A part of a whole, or a number.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Limit {
    /// Above 0, up to 1.
    Share(f64),
    Number(u32),
}

/// `health.breaker`: a circuit breaker for each destination.
#[derive(Debug, Clone, PartialEq)]
pub struct Breaker {
    /// Failures are counted over so long. Default 10s, 1s–10m.
    pub window: Duration,
    /// Opens at this share or number of failures. Default 50%; never 0.
    pub threshold: Limit,
    /// A share is looked at from so many requests on. Default 10, 1–1,000,000.
    pub minimum_requests: u32,
    /// Open for so long. Default 5s, 100ms–1h.
    pub sleep: Duration,
    /// Half-open requests at a time. Default 1, 1–100.
    pub trial_requests: u32,
    pub count: Count,
}

/// What counts as a failure. Default: connect, timeout and reset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Count {
    /// No connection.
    pub connect: bool,
    /// No answer in time.
    pub timeout: bool,
    /// Broken off, or not understood.
    pub reset: bool,
    pub statuses: Vec<RangeInclusive<u16>>,
}

impl Health {
    pub(super) fn read(section: &mut Section<'_>) -> Self {
        let available = Policy::slot(section, "available", "HealthyOrPanic");
        let words = [("trust", Initial::Trust), ("probe_first", Initial::ProbeFirst)];
        let initial = section.word("initial", &words).unwrap_or(Initial::Trust);
        let off = section.off("active");
        let active = match off {
            true => None,
            false => section.take("active").and_then(|node| ActiveCheck::read(node, section.problems())),
        };
        if initial == Initial::ProbeFirst && (off || !section.has("active")) {
            let at = section.spot_of("initial");
            section.problem(&at, "probe_first needs an active check: without probes nothing is ever let in");
        }
        let passive = match section.off("passive") {
            true => None,
            false => {
                let written = section.has("passive");
                Some(section.defaulted("passive", |passive| Passive::read(passive, written)))
            }
        };
        let breaker = match section.off("breaker") {
            true => None,
            false => section.section("breaker", Breaker::read),
        };
        Health { available, initial, active, passive, breaker }
    }
}

impl ActiveCheck {
    /// `type` alone as the short form. Keys that are not of every check are the kind's.
    fn read(node: &Node, problems: &mut Problems) -> Option<Self> {
        let short = node.scalar().map(|_| Node::empty_map(node.at.clone()));
        let mut section = Section::of_map(short.as_ref().unwrap_or(node), problems);
        section.word("policy", &[("ConsecutiveFailures", ())]);
        let interval = section.duration("interval", ms(100)..=HOUR).unwrap_or(Duration::from_secs(15));
        let interval_when_unhealthy = section.duration("interval_when_unhealthy", ms(100)..=HOUR).unwrap_or(interval);
        let timeout = section.duration("timeout", ms(1)..=TEN_MINUTES).unwrap_or(Duration::from_secs(10));
        let unhealthy_after = number(&mut section, "unhealthy_after", 1..=1000).unwrap_or(2);
        let healthy_after = number(&mut section, "healthy_after", 1..=1000).unwrap_or(1);
        let jitter = section.percent("jitter").unwrap_or(0.1);
        let beside = section.asked().to_vec();
        let rest = section.rest();
        let kind = Policy::read(if short.is_some() { node } else { &rest }, "type", problems)?.beside(beside);
        Some(ActiveCheck { kind, interval, interval_when_unhealthy, timeout, unhealthy_after, healthy_after, jitter })
    }
}

impl Passive {
    fn read(section: &mut Section<'_>, written: bool) -> Self {
        Passive {
            at: section.at().clone(),
            written,
            count: Count::read(section),
            detectors: detectors(section),
            reactivation: match section.off("reactivation") {
                true => None,
                false => Some(section.defaulted("reactivation", Reactivation::read)),
            },
            max_ejected: Limit::read(section, "max_ejected", 0).unwrap_or(Limit::Share(0.5)),
        }
    }
}

fn detectors(section: &mut Section<'_>) -> Vec<Policy> {
    let Some(node) = section.take("detectors") else {
        let at = section.spot_of("detectors");
        let rate =
            |window, failure_rate| [("window", window), ("minimum_requests", "10"), ("failure_rate", failure_rate)];
        return vec![
            detector(&at, "TransportFailureRate", &rate("60s", "0.3")),
            detector(&at, "TransportFailureRate", &rate("5s", "0.5")),
            detector(&at, "ConsecutiveFailures", &[("failures", "5")]),
        ];
    };
    match &node.kind {
        Kind::List(items) if !items.is_empty() => {
            items.iter().filter_map(|item| Policy::read(item, "policy", section.problems())).collect()
        }
        Kind::List(_) => {
            section.problem(&node.at, "needs at least one detector; to have none write `passive: off`");
            Vec::new()
        }
        _ => {
            section.problem(&node.at, format!("expected a list of detectors; {}", node.found()));
            Vec::new()
        }
    }
}

/// As if it were written.
fn detector(at: &Spot, name: &str, params: &[(&str, &str)]) -> Policy {
    let text = |text: &str| Located { value: text.to_owned(), at: at.clone() };
    let value = |text: &str| Node { at: at.clone(), kind: Kind::plain(text.to_owned()) };
    let entries = params.iter().map(|(key, written)| (text(key), value(written))).collect();
    Policy::new(text(name), Node { at: at.clone(), kind: Kind::Map(entries) })
}

impl Reactivation {
    fn read(section: &mut Section<'_>) -> Self {
        let period = section.duration("period", ms(100)..=HOUR).unwrap_or(Duration::from_secs(10));
        let modes = [("half_open", Mode::HalfOpen), ("full", Mode::Full)];
        let mode = section.word("mode", &modes).unwrap_or(Mode::HalfOpen);
        let trial_requests = number(section, "trial_requests", 1..=100).unwrap_or(1);
        let (multiplier, max) = section.defaulted("backoff", |backoff| {
            let max = backoff.duration("max", ms(100)..=HOUR);
            if max.is_some_and(|max| max < period) {
                let message = format!("the period is longer already: {}", units::show_duration(period));
                backoff.problem(&backoff.spot_of("max"), message);
            }
            (backoff.number("multiplier", 1.0..=10.0).unwrap_or(2.0), max.unwrap_or(period.max(ms(300_000))))
        });
        let lifted_by_probe = section.flag("lifted_by_probe").unwrap_or(true);
        Reactivation { period, mode, trial_requests, multiplier, max, lifted_by_probe }
    }
}

impl Limit {
    /// `50%` or 0.5, else a whole number of `least` or more. No share at all is the number 0.
    fn read(section: &mut Section<'_>, key: &'static str, least: u32) -> Option<Self> {
        const MOST: u32 = 1_000_000;
        let expected = format!("a share such as 50%, or a whole number from {least} to {MOST}");
        section.note(key, || {
            let number = json!({ "type": "integer", "minimum": least, "maximum": MOST });
            json!({ "anyOf": [number, { "$ref": "#/$defs/share" }], "description": expected })
        });
        let limit = |text: &str| match text.contains(['%', '.']) {
            true => {
                units::percent(text).ok().map(|share| if share > 0.0 { Limit::Share(share) } else { Limit::Number(0) })
            }
            false => text.parse().ok().map(Limit::Number),
        };
        let within = |limit: &Limit| !matches!(limit, Limit::Number(number) if !(least..=MOST).contains(number));
        Some(section.scalar(key, &expected, |text| limit(text).filter(within))?.value)
    }
}

impl Breaker {
    fn read(section: &mut Section<'_>) -> Self {
        Breaker {
            window: section.duration("window", ms(1_000)..=TEN_MINUTES).unwrap_or(Duration::from_secs(10)),
            threshold: Limit::read(section, "threshold", 1).unwrap_or(Limit::Share(0.5)),
            minimum_requests: number(section, "minimum_requests", 1..=1_000_000).unwrap_or(10),
            sleep: section.duration("sleep", ms(100)..=HOUR).unwrap_or(Duration::from_secs(5)),
            trial_requests: number(section, "trial_requests", 1..=100).unwrap_or(1),
            count: Count::read(section),
        }
    }
}

impl Default for Count {
    fn default() -> Self {
        Count { connect: true, timeout: true, reset: true, statuses: Vec::new() }
    }
}

impl Count {
    fn read(section: &mut Section<'_>) -> Self {
        Count::words(section, "count").unwrap_or_default()
    }

    /// `None` when the key is absent.
    pub(super) fn words(section: &mut Section<'_>, key: &'static str) -> Option<Self> {
        const KNOWN: [&str; 6] = ["connect", "timeout", "reset", "4xx", "5xx", "a status from 200 to 599"];
        section.note(key, || {
            let word = "^(connect|timeout|reset|4xx|5xx|[2-5][0-9][0-9])$|\\$\\{";
            let status = json!({ "type": "integer", "minimum": 200, "maximum": 599 });
            let item = json!({ "anyOf": [{ "type": "string", "pattern": word }, status] });
            json!({ "anyOf": [item, { "type": "array", "items": item, "minItems": 1 }] })
        });
        if !section.has(key) {
            section.words(key);
            return None;
        }
        section.miss_empty(key, "`connect`");
        let mut count = Count { connect: false, timeout: false, reset: false, statuses: Vec::new() };
        for Located { value: word, at } in section.words(key) {
            match word.as_str() {
                "connect" => count.connect = true,
                "timeout" => count.timeout = true,
                "reset" => count.reset = true,
                "4xx" => count.statuses.push(400..=499),
                "5xx" => count.statuses.push(500..=599),
                status => match status.parse().ok().filter(|status| (200..=599).contains(status)) {
                    Some(status) => count.statuses.push(status..=status),
                    None => section.problem(&at, unknown("outcome", &word, &KNOWN)),
                },
            }
        }
        Some(count)
    }
}

fn number(section: &mut Section<'_>, key: &'static str, range: RangeInclusive<u64>) -> Option<u32> {
    section.integer(key, range).and_then(|number| u32::try_from(number).ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Cluster, Config, LoadError};

    fn config(cluster: &str) -> Result<Config, LoadError> {
        let lines = ["listeners: { web: 0.0.0.0:1 }", "routes: { r: { cluster: c } }"];
        let text = format!("{}\nclusters: {{ c: {{ destinations: [\"http://a\"], {cluster} }} }}\n", lines.join("\n"));
        Config::parse("t.yaml", &text)
    }

    fn cluster(text: &str) -> Cluster {
        config(text).unwrap_or_else(|error| panic!("{error}")).clusters.remove(0)
    }

    fn health(text: &str) -> Health {
        cluster(&format!("health: {text}")).health
    }

    /// Names and parameters, the latter as numbers or as milliseconds.
    fn shown(detectors: &[Policy]) -> Vec<(String, Vec<f64>)> {
        let read = |policy: &Policy| {
            let mut problems = Problems::default();
            let mut params = policy.params(&mut problems);
            let window = params.duration("window", ms(0)..=HOUR).map(|window| window.as_secs_f64());
            let counts = ["minimum_requests", "failure_rate", "failures"];
            let numbers = counts.into_iter().filter_map(|key| params.number(key, 0.0..=99.0));
            let all = window.into_iter().chain(numbers.collect::<Vec<_>>()).collect();
            params.finish();
            assert!(problems.is_empty(), "{problems}");
            (policy.name.value.clone(), all)
        };
        detectors.iter().map(read).collect()
    }

    #[test]
    fn given_no_health_section_when_read_then_passive_as_documented_and_the_rest_off() {
        let cluster = cluster("load_balancing: Random");
        let Health { initial, active, passive, breaker, .. } = cluster.health;
        assert_eq!((cluster.slow_start, initial), (Duration::ZERO, Initial::Trust));
        assert!(active.is_none() && breaker.is_none());
        let passive = passive.expect("on by default");
        assert_eq!((passive.written, passive.at.path.as_str()), (false, "clusters.c.health.passive"));
        assert_eq!((passive.count, passive.max_ejected), (Count::default(), Limit::Share(0.5)));
        let detectors = shown(&passive.detectors);
        let rate = |window, share| ("TransportFailureRate".to_owned(), vec![window, 10.0, share]);
        assert_eq!(detectors, [rate(60.0, 0.3), rate(5.0, 0.5), ("ConsecutiveFailures".to_owned(), vec![5.0])]);
        let expected = Reactivation {
            period: Duration::from_secs(10),
            mode: Mode::HalfOpen,
            trial_requests: 1,
            multiplier: 2.0,
            max: Duration::from_secs(300),
            lifted_by_probe: true,
        };
        assert_eq!(passive.reactivation, Some(expected));
        let named = health("{ breaker: {}, passive: { count: connect } }");
        let expected = Breaker {
            window: Duration::from_secs(10),
            threshold: Limit::Share(0.5),
            minimum_requests: 10,
            sleep: Duration::from_secs(5),
            trial_requests: 1,
            count: Count::default(),
        };
        assert_eq!(named.breaker, Some(expected));
        assert!(named.passive.is_some_and(|passive| passive.written && passive.detectors.len() == 3));
    }

    #[test]
    fn given_every_key_of_health_when_read_then_every_value_arrives() {
        let health = health(
            "{ initial: probe_first, active: { type: tcp, interval: 2s, interval_when_unhealthy: 500ms }, \
             passive: { count: [timeout, \"5xx\", 429], detectors: [ConsecutiveFailures, { policy: Own, failures: 7 }], \
             reactivation: { period: 1s, mode: full, trial_requests: 3, backoff: { multiplier: 1.5, max: 2s }, \
             lifted_by_probe: false }, max_ejected: 2 }, breaker: { window: 1m, threshold: 7, minimum_requests: 3, \
             sleep: 1s, trial_requests: 2, count: 503 } }",
        );
        assert_eq!(health.initial, Initial::ProbeFirst);
        let active = health.active.expect("given");
        assert_eq!((active.interval, active.interval_when_unhealthy), (Duration::from_secs(2), ms(500)));
        let passive = health.passive.expect("given");
        let none = Count { connect: false, timeout: false, reset: false, statuses: Vec::new() };
        assert_eq!(passive.count, Count { timeout: true, statuses: vec![500..=599, 429..=429], ..none.clone() });
        let detectors = shown(&passive.detectors);
        assert_eq!(detectors, [("ConsecutiveFailures".to_owned(), vec![]), ("Own".to_owned(), vec![7.0])]);
        let expected = Reactivation {
            period: Duration::from_secs(1),
            mode: Mode::Full,
            trial_requests: 3,
            multiplier: 1.5,
            max: Duration::from_secs(2),
            lifted_by_probe: false,
        };
        assert_eq!((passive.reactivation, passive.max_ejected), (Some(expected), Limit::Number(2)));
        let expected = Breaker {
            window: Duration::from_secs(60),
            threshold: Limit::Number(7),
            minimum_requests: 3,
            sleep: Duration::from_secs(1),
            trial_requests: 2,
            count: Count { statuses: vec![503..=503], ..none },
        };
        assert_eq!(health.breaker, Some(expected));
    }

    #[test]
    fn given_judges_that_are_off_when_read_then_none() {
        let off = health("{ active: off, passive: off, breaker: off }");
        assert!(off.active.is_none() && off.passive.is_none() && off.breaker.is_none());
        assert!(health("{ passive: { reactivation: off } }").passive.is_some_and(|it| it.reactivation.is_none()));
    }

    #[test]
    fn given_limits_as_written_when_read_then_a_share_or_a_number() {
        for (written, limit) in [
            ("50%", Limit::Share(0.5)),
            ("0.25", Limit::Share(0.25)),
            ("100%", Limit::Share(1.0)),
            ("1.0", Limit::Share(1.0)),
            ("1", Limit::Number(1)),
            ("0", Limit::Number(0)),
            ("0%", Limit::Number(0)),
        ] {
            let passive = health(&format!("{{ passive: {{ max_ejected: {written} }} }}")).passive;
            assert_eq!(passive.map(|passive| passive.max_ejected), Some(limit), "{written}");
        }
    }

    #[test]
    fn given_a_period_above_the_default_maximum_when_read_then_it_is_the_maximum() {
        let passive = health("{ passive: { reactivation: { period: 10m } } }").passive;
        let reactivation = passive.and_then(|passive| passive.reactivation);
        assert_eq!(reactivation.map(|it| it.max), Some(TEN_MINUTES));
    }

    #[test]
    fn given_the_places_of_a_cluster_when_asked_then_of_what_is_written_else_of_the_section_above() {
        let places = cluster("slow_start: 5s, health: { passive: { max_ejected: 1 } }").places;
        assert!(places.written("slow_start").is_some() && places.written("request").is_none());
        assert!(places.written("destinations").is_none());
        let (passive, max) = (places.spot_of("health.passive"), places.spot_of("health.passive.max_ejected"));
        let count = places.spot_of("health.passive.count");
        assert_eq!((count.column, count.path.as_str()), (passive.column, "clusters.c.health.passive.count"));
        assert!(max.column > passive.column && max.line == 3, "{max:?}");
        assert_eq!(places.spot_of("request.version").path, "clusters.c.request.version");
    }

    #[test]
    fn given_a_wrong_value_when_read_then_one_fault_at_its_path() {
        for (written, fault) in [
            ("slow_start: 2h", "slow_start: expected a duration from 0s to 1h"),
            ("health: { initial: trusted }", "health.initial: unknown initial \"trusted\"; did you mean \"trust\"?"),
            ("health: { initial: probe_first }", "health.initial: probe_first needs an active check"),
            ("health: { initial: probe_first, active: off }", "health.initial: probe_first needs an active check"),
            ("health: { initial: probe_first, active: {} }", "health.active: needs `type`"),
            ("health: { active: { type: tcp, interval_when_unhealthy: 0s } }", "health.active.interval_when_unhealthy"),
            ("health: { pasive: {} }", "health.pasive: unknown key \"pasive\"; did you mean \"passive\"?"),
            ("health: { passive: on }", "health.passive: expected a section of keys; found \"on\""),
            ("health: { passive: { count: [] } }", "health.passive.count: needs at least one, such as `connect`"),
            (
                "health: { passive: { count: [connect, reest] } }",
                "health.passive.count[1]: unknown outcome \"reest\"; did you mean \"reset\"?",
            ),
            (
                "health: { passive: { count: [200, 600] } }",
                "health.passive.count[1]: unknown outcome \"600\"; one of: connect, timeout, reset, 4xx, 5xx, a status from 200",
            ),
            (
                "health: { passive: { detectors: [] } }",
                "health.passive.detectors: needs at least one detector; to have",
            ),
            (
                "health: { passive: { detectors: } }",
                "health.passive.detectors: expected a list of detectors; found not",
            ),
            ("health: { passive: { detectors: [{ failures: 5 }] } }", "health.passive.detectors[0]: needs `policy`"),
            (
                "health: { passive: { max_ejected: 101% } }",
                "health.passive.max_ejected: expected a share such as 50%, or",
            ),
            (
                "health: { passive: { max_ejected: -1 } }",
                "health.passive.max_ejected: expected a share such as 50%, or",
            ),
            (
                "health: { passive: { reactivation: { mode: halfopen } } }",
                "health.passive.reactivation.mode: unknown mode \"halfopen\"; did you mean \"half_open\"?",
            ),
            (
                "health: { passive: { reactivation: { period: 2h } } }",
                "health.passive.reactivation.period: expected a du",
            ),
            (
                "health: { passive: { reactivation: { trial_requests: 0 } } }",
                "health.passive.reactivation.trial_requests",
            ),
            (
                "health: { passive: { reactivation: { backoff: { multiplier: 0.5 } } } }",
                "health.passive.reactivation.backoff.multiplier: expected a number from 1 to 10",
            ),
            (
                "health: { passive: { reactivation: { period: 10s, backoff: { max: 5s } } } }",
                "health.passive.reactivation.backoff.max: the period is longer already: 10s",
            ),
            (
                "health: { breaker: { threshold: 0% } }",
                "health.breaker.threshold: expected a share such as 50%, or a whole",
            ),
            (
                "health: { breaker: { threshold: 0 } }",
                "health.breaker.threshold: expected a share such as 50%, or a whole",
            ),
            ("health: { breaker: { window: 500ms } }", "health.breaker.window: expected a duration from 1s to 10m"),
            (
                "health: { breaker: { sleeps: 5s } }",
                "health.breaker.sleeps: unknown key \"sleeps\"; did you mean \"sleep\"?",
            ),
        ] {
            let Err(LoadError::Faults(faults)) = config(written) else { panic!("no fault: {written}") };
            let found: Vec<String> = faults.iter().map(ToString::to_string).collect();
            let [found] = &found[..] else { panic!("{written}\n{faults}") };
            assert!(found.contains(&format!(": clusters.c.{fault}")), "{written}\n{found}");
        }
    }
}
