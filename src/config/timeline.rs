//! A timeline for `derbent simulate`: what load comes when, and what each destination does then. A file of its own, read as
//! configurations are. Whether its names are those of the configuration is for `simulate` to judge, in the same report.

use super::include::{read_main, text_of};
use super::route::method;
use super::units::{DAY, HOUR, ms};
use super::{LoadError, Located, Node, Problems, Section, env, yaml};
use http::Method;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

#[derive(Debug, Clone)]
pub struct Timeline {
    /// Default the configuration's first.
    pub cluster: Option<Located<String>>,
    /// 1ms–24h. `None` = until the last phase's requests are over.
    pub length: Option<Duration>,
    /// By their times. Never empty, but for a faulty file.
    pub phases: Vec<Phase>,
    /// What is asked for, in these proportions. Never empty; default GET of `/`.
    pub mix: Vec<Mixed>,
    /// The share of requests whose client leaves before it is answered. Default none.
    pub abort: f64,
    /// By destination, each by time. Whoever is not in it answers well.
    pub destinations: Vec<(Located<String>, Vec<Turn>)>,
}

/// From a time on, until the next one's.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Phase {
    pub at: Duration,
    pub load: Load,
    /// So many requests begin in it; `None` = no bound.
    pub requests: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Load {
    /// Requests come at this rate, whatever becomes of them: evenly, or by chance (Poisson).
    Open { rps: f64, poisson: bool },
    /// So many clients, each of which asks again when it was answered and has thought for a while.
    Closed { clients: u32, think: Duration },
}

/// One kind of request.
#[derive(Debug, Clone)]
pub struct Mixed {
    pub method: Method,
    pub path: String,
    /// Bytes of its body.
    pub body: u64,
    pub share: f64,
}

/// What changes at a destination.
#[derive(Debug, Clone, PartialEq)]
pub struct Turn {
    pub at: Duration,
    /// `None` = as before.
    pub does: Option<Does>,
    /// Of the time to an answer or a failure; each varies by up to half of it. `None` = as before.
    pub latency: Option<Duration>,
    /// What its check's path says; `None` = as before.
    pub healthy: Option<bool>,
    /// The share of requests (without `does`, of probes) that this is true of; the others find it well.
    pub share: f64,
}

/// What a destination does with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Does {
    Ok,
    /// Answers well, but late: the time is that of `share` only.
    Delay,
    /// It is gone: new connections are refused, and what is in progress breaks off.
    Refuse,
    /// Takes the request and breaks off.
    Reset,
    Status(u16),
    /// Takes the request and never answers.
    Hang,
}

impl Timeline {
    /// Until it is told otherwise a destination takes so long, to answer or to fail.
    pub const LATENCY: Duration = ms(2);

    /// As far as it can be read, with the faults so far; nothing may be simulated with one.
    ///
    /// # Errors
    /// When the file cannot be read or is no YAML.
    pub fn draft(path: &Path, env: &dyn Fn(&str) -> Option<String>) -> Result<(Timeline, Problems), LoadError> {
        let bytes = read_main(path).map_err(|source| LoadError::Io { path: path.to_owned(), source })?;
        draft(&path.to_string_lossy(), &bytes, env)
    }

    /// As [`Timeline::draft`], of a text; `name` stands in messages.
    ///
    /// # Errors
    /// When it is no YAML.
    pub fn parse(name: &str, text: &str) -> Result<(Timeline, Problems), LoadError> {
        draft(name, text.as_bytes(), &|_| None)
    }

    fn read(root: &Node, problems: &mut Problems) -> Timeline {
        let mut root = Section::of_map(root, problems);
        let cluster = root.text("cluster");
        let length = root.duration("length", ms(1)..=DAY);
        root.require("load", "`{ rps: 100 }`, or `{ concurrency: 20 }`");
        let load = root.section("load", |load| {
            let abort = load.percent("abort").unwrap_or(0.0);
            (load_phases(load), Mixed::read_all(load), abort)
        });
        let (phases, mix, abort) = load.unwrap_or_default();
        let destinations = root.named("destinations");
        let turns = |(name, node): (Located<String>, &Node)| (name, Turn::read_all(node, root.problems()));
        let destinations = destinations.into_iter().map(turns).collect();
        let endless = phases.last().is_some_and(|last| last.requests.is_none());
        if endless && !root.has("length") {
            root.lacks("needs `length`: 120s, or else `requests` for the last of its load");
        }
        root.finish();
        Timeline { cluster, length, phases, mix, abort, destinations }
    }
}

fn draft(name: &str, bytes: &[u8], of: &dyn Fn(&str) -> Option<String>) -> Result<(Timeline, Problems), LoadError> {
    let mut problems = Problems::default();
    let file: Arc<str> = name.into();
    let root = text_of(&file, bytes, &mut problems).and_then(|text| yaml::read(&file, text, &mut problems));
    let Some(mut root) = root else { return Err(LoadError::Faults(problems)) };
    env::expand(&mut root, of, &mut problems);
    let timeline = Timeline::read(&root, &mut problems);
    Ok((timeline, problems))
}

/// One phase from the start, or those of `phases`.
fn load_phases(load: &mut Section<'_>) -> Vec<Phase> {
    if !load.has("phases") {
        return Phase::read(load, Duration::ZERO).into_iter().collect();
    }
    load.miss_empty("phases", "`{ at: 0s, rps: 100 }`");
    let mut phases = Vec::new();
    for node in load.list("phases") {
        let mut section = Section::of_map(node, load.problems());
        let at = at(&mut section);
        phases.extend(Phase::read(&mut section, at));
        section.finish();
    }
    phases.sort_by_key(|phase| phase.at);
    phases
}

fn at(section: &mut Section<'_>) -> Duration {
    section.require("at", "a time since the start, such as 10s");
    section.duration("at", Duration::ZERO..=DAY).unwrap_or_default()
}

impl Phase {
    fn read(section: &mut Section<'_>, at: Duration) -> Option<Phase> {
        let rps = section.number("rps", 0.0..=1_000_000.0);
        let poisson = section.word("arrivals", &[("even", false), ("poisson", true)]).unwrap_or(false);
        let clients = section.integer("concurrency", 1..=100_000).and_then(|clients| u32::try_from(clients).ok());
        let think = section.duration("think", Duration::ZERO..=HOUR).unwrap_or_default();
        let requests = section.integer("requests", 1..=1_000_000_000);
        let (open, closed) = (section.has("rps"), section.has("concurrency"));
        if open == closed {
            section.lacks("needs `rps` or `concurrency`, one of them");
        }
        for (key, beside, is) in [("arrivals", "rps", open), ("think", "concurrency", closed)] {
            if section.has(key) && !is {
                let message = format!("has a meaning beside `{beside}` only");
                section.problem(&section.spot_of(key), message);
            }
        }
        let load = match (rps, clients) {
            (Some(rps), _) => Load::Open { rps, poisson },
            (_, Some(clients)) => Load::Closed { clients, think },
            _ => return None,
        };
        Some(Phase { at, load, requests })
    }
}

impl Mixed {
    fn read_all(load: &mut Section<'_>) -> Vec<Mixed> {
        let whole = || Mixed { method: Method::GET, path: "/".to_owned(), body: 0, share: 1.0 };
        if !load.has("mix") {
            return vec![whole()];
        }
        load.miss_empty("mix", "`{ method: GET }`");
        let mut mix = Vec::new();
        for node in load.list("mix") {
            let mut section = Section::of_map(node, load.problems());
            let method = section.checked("method", method).map_or(Method::GET, |method| method.value);
            let path = section.text("path").map_or("/".to_owned(), |path| path.value);
            let body = section.size("body", 0..=u64::MAX).unwrap_or(0);
            let share = section.percent("share").unwrap_or(1.0);
            section.finish();
            mix.push(Mixed { method, path, body, share });
        }
        if !mix.is_empty() && mix.iter().all(|kind| kind.share <= 0.0) {
            load.problem(&load.spot_of("mix"), "needs at least one `share` above 0%");
        }
        mix
    }
}

impl Turn {
    fn read_all(node: &Node, problems: &mut Problems) -> Vec<Turn> {
        let Some(items) = node.items() else {
            problems.push(&node.at, format!("expected a list, such as [{{ at: 5s, do: refuse }}]; {}", node.found()));
            return Vec::new();
        };
        let mut turns: Vec<Turn> = Vec::new();
        for item in items {
            let mut section = Section::of_map(item, problems);
            turns.push(Turn::read(&mut section));
            section.finish();
        }
        turns.sort_by_key(|turn| turn.at);
        turns
    }

    fn read(section: &mut Section<'_>) -> Turn {
        const WORDS: [(&str, Does); 6] = [
            ("ok", Does::Ok),
            ("delay", Does::Delay),
            ("refuse", Does::Refuse),
            ("reset", Does::Reset),
            ("status", Does::Status(503)),
            ("hang", Does::Hang),
        ];
        let at = at(section);
        let does = section.word("do", &WORDS);
        let latency = section.duration("latency", ms(1)..=HOUR);
        let status = section.integer("status", 200..=599).and_then(|status| u16::try_from(status).ok());
        let healthy = section.word("health", &[("up", true), ("down", false)]);
        let share = section.percent("share").unwrap_or(1.0);
        if !section.has("do") && !section.has("health") {
            section.lacks("needs `do`, `health` or both: what changes at this time");
        }
        match does {
            Some(Does::Status(_)) => section.require("status", "the status it answers by, such as 503"),
            Some(Does::Delay) => section.require("latency", "how long its answers take, such as 3s"),
            _ => {}
        }
        for (key, word) in [("status", "do: status"), ("latency", "do")] {
            let of = if key == "status" { matches!(does, Some(Does::Status(_))) } else { section.has("do") };
            if section.has(key) && !of {
                section.problem(&section.spot_of(key), format!("has a meaning beside `{word}` only"));
            }
        }
        let does = match (does, status) {
            (Some(Does::Status(_)), Some(status)) => Some(Does::Status(status)),
            (does, _) => does,
        };
        Turn { at, does, latency, healthy, share }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> (Timeline, Vec<String>) {
        let (timeline, problems) = Timeline::parse("t", text).unwrap_or_else(|faults| panic!("{faults}"));
        (
            timeline,
            problems.iter().map(|fault| format!("{}:{}: {}", fault.at.line, fault.at.path, fault.message)).collect(),
        )
    }

    #[test]
    fn given_little_when_read_then_the_defaults() {
        let (timeline, faults) = read("load: { concurrency: 20, requests: 600 }\n");
        assert_eq!(faults, Vec::<String>::new());
        let load = Load::Closed { clients: 20, think: Duration::ZERO };
        assert_eq!(timeline.phases, [Phase { at: Duration::ZERO, load, requests: Some(600) }]);
        assert!(timeline.cluster.is_none() && timeline.length.is_none() && timeline.destinations.is_empty());
        let [kind] = &timeline.mix[..] else { panic!("one") };
        assert_eq!((&kind.method, kind.path.as_str(), kind.body, kind.share), (&Method::GET, "/", 0, 1.0));
        assert_eq!(timeline.abort, 0.0);
    }

    #[test]
    fn given_phases_and_turns_in_any_order_when_read_then_by_time() {
        let (timeline, faults) = read(
            "length: 1m\nload: { phases: [{ at: 5s, concurrency: 2, think: 10ms }, { at: 0s, rps: 0.5, arrivals: poisson }] }\n\
             destinations: { a: [{ at: 9s, health: down, share: 0.5 }, { at: 1s, do: status, status: 429 }, { at: 9s, do: delay, \
             latency: 3s }] }\n",
        );
        assert_eq!(faults, Vec::<String>::new());
        let loads: Vec<Load> = timeline.phases.iter().map(|phase| phase.load).collect();
        let closed = Load::Closed { clients: 2, think: ms(10) };
        assert_eq!(loads, [Load::Open { rps: 0.5, poisson: true }, closed]);
        let turns = &timeline.destinations[0].1;
        let turn = |at, does, latency, healthy, share| Turn { at: ms(at), does, latency, healthy, share };
        assert_eq!(
            turns[..],
            [
                turn(1_000, Some(Does::Status(429)), None, None, 1.0),
                turn(9_000, None, None, Some(false), 0.5),
                turn(9_000, Some(Does::Delay), Some(ms(3_000)), None, 1.0),
            ]
        );
    }

    #[test]
    fn given_wrong_timelines_when_read_then_each_fault_in_its_place() {
        for (text, fault) in [
            ("length: 1s\n", "1:: needs `load`: `{ rps: 100 }`, or `{ concurrency: 20 }`"),
            ("load: { rps: 1 }\n", "1:: needs `length`: 120s, or else `requests` for the last of its load"),
            ("length: 1s\nload: {}\n", "2:load: needs `rps` or `concurrency`, one of them"),
            ("length: 1s\nload: { rps: 1, think: 1s }\n", "2:load.think: has a meaning beside `concurrency` only"),
            ("length: 1s\nload: { phases: [] }\n", "2:load.phases: needs at least one, such as `{ at: 0s, rps: 100 }`"),
            ("length: 1s\nload: { phases: [{ at: 0s, rps: 1 }], rps: 2 }\n", "2:load.rps: unknown key \"rps\""),
            (
                "length: 1s\nload: { rps: 1, mix: [{ methods: GET }] }\n",
                "unknown key \"methods\"; did you mean \"method\"?",
            ),
            ("length: 1s\nload: { rps: 1, mix: [{ share: 0% }] }\n", "needs at least one `share` above 0%"),
            (
                "length: 1s\nload: { rps: 1 }\ndestinations: { a: refuse }\n",
                "expected a list, such as [{ at: 5s, do: refuse }]",
            ),
            ("length: 1s\nload: { rps: 1 }\ndestinations: { a: [{ at: 1s }] }\n", "needs `do`, `health` or both"),
            (
                "length: 1s\nload: { rps: 1 }\ndestinations: { a: [{ at: 1s, do: delay }] }\n",
                "needs `latency`: how long",
            ),
            (
                "length: 1s\nload: { rps: 1 }\ndestinations: { a: [{ at: 1s, do: ok, status: 200 }] }\n",
                "status: has a meaning beside `do: status` only",
            ),
            (
                "length: 1s\nload: { rps: 1 }\ndestinations: { a: [{ at: 1s, health: down, latency: 2ms }] }\n",
                "latency: has a meaning beside `do` only",
            ),
        ] {
            let (_, faults) = read(text);
            assert!(faults.iter().any(|told| told.contains(fault)), "{text}\n{faults:#?}");
        }
    }

    #[test]
    fn given_what_is_no_yaml_or_no_map_when_read_then_a_fault_and_no_panic() {
        assert!(Timeline::parse("t", "load: [").is_err());
        for text in ["", "[]", "x", "load: 5\n", "destinations: []\nload: { rps: 1 }\nlength: 1s\n"] {
            assert!(!read(text).1.is_empty(), "{text}");
        }
    }
}
