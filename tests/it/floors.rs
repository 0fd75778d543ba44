//! The floors of the house, held: `use` goes down only, mechanisms do not know each other, Pingora and tasks stay in their
//! rooms, and no file or function grows too long. The rules are told in the crate's documentation.

use crate::support::source::{Named, Source};
use std::path::Path;

/// Every folder or file right below `src`, and its floor.
const ROOMS: [(&str, u8); 19] = [
    ("config", 0),
    ("observe", 0),
    ("model", 1),
    ("balance", MECHANISM),
    ("affinity", MECHANISM),
    ("health", MECHANISM),
    ("retry", MECHANISM),
    ("discovery", MECHANISM),
    ("filter", MECHANISM),
    ("runtime", 3),
    ("simulate", 3),
    ("edge", DRIVER),
    ("proxy", DRIVER),
    ("service", DRIVER),
    ("main", TOP),
    ("app", TOP),
    ("cli", TOP),
    ("demo", TOP),
    ("lib", TOP),
];
const MECHANISM: u8 = 2;
const ASSEMBLY: u8 = 3;
const DRIVER: u8 = 4;
const TOP: u8 = 5;

/// Timers, tasks, threads and signals live here; of Pingora's phases those that wait: for a place, before another attempt, and for the end
/// of a request's time.
const WAKING: [&str; 8] =
    ["service/", "edge/", "demo/", "cli/", "app.rs", "proxy/select.rs", "proxy/alarm.rs", "proxy/queue.rs"];
/// What a probe is; the one room below that does IO, so it times itself and bounds its time.
const PROBES: &str = "health/active/";
/// Prepare the peers that Pingora connects to, and say how it does.
const PEERS: [&str; 2] = ["runtime/upstream.rs", "runtime/dial.rs"];
const YAML: &str = "config/yaml.rs";
const LINES: usize = 500;
const FUNCTION_LINES: usize = 60;

#[test]
fn given_the_source_when_read_then_it_keeps_the_floors_and_sizes() {
    let sources = read_all();
    assert!(sources.iter().any(|source| source.path == "lib.rs"), "no source found");
    let faults: Vec<String> = sources.iter().flat_map(faults).collect();
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

/// All files below `src` but those that only tests have.
fn read_all() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files: Vec<_> =
        glob::glob(&format!("{}/**/*.rs", root.display())).unwrap().collect::<Result<_, _>>().unwrap();
    files.sort();
    let sources: Vec<Source> = files
        .iter()
        .map(|file| {
            let path = file.strip_prefix(&root).unwrap().to_str().unwrap();
            Source::read(path, &std::fs::read_to_string(file).unwrap())
        })
        .collect();
    let for_tests: Vec<Vec<String>> = sources
        .iter()
        .flat_map(|source| source.test_modules.iter().map(|child| [source.module(), vec![child.clone()]].concat()))
        .collect();
    sources.into_iter().filter(|source| !for_tests.iter().any(|module| source.module().starts_with(module))).collect()
}

fn faults(source: &Source) -> Vec<String> {
    let Some(floor) = floor(room(&source.path)) else {
        return vec![format!("src/{}:1: this room has no floor; give it one in tests/it/floors.rs", source.path)];
    };
    let mut faults: Vec<(usize, String)> = Vec::new();
    for (named, line) in source.paths() {
        let fault = match &named {
            Named::Inside(path) => inside(source, floor, path),
            Named::Outside(path) => outside(source, floor, path),
        };
        faults.extend(fault.map(|fault| (line, fault)));
    }
    for (name, line, length) in source.functions() {
        if length > FUNCTION_LINES {
            faults.push((line, format!("`{name}` has {length} lines, more than {FUNCTION_LINES}")));
        }
    }
    if source.lines > LINES {
        faults.push((1, format!("{} lines without tests, more than {LINES}", source.lines)));
    }
    faults.sort();
    faults.dedup();
    faults.into_iter().map(|(line, fault)| format!("src/{}:{line}: {fault}", source.path)).collect()
}

fn room(path: &str) -> &str {
    path.split('/').next().unwrap_or(path).trim_end_matches(".rs")
}

fn floor(room: &str) -> Option<u8> {
    ROOMS.iter().find(|(known, _)| *known == room).map(|(_, floor)| *floor)
}

/// What is wrong with naming `path` of this crate here.
fn inside(source: &Source, floor: u8, path: &[String]) -> Option<String> {
    let from = room(&source.path);
    let to = path.first().map_or("lib", String::as_str);
    if from == to {
        return None;
    }
    // What is no room is an item of lib.rs.
    let other = self::floor(to).unwrap_or(TOP);
    if other > floor {
        return Some(format!("floor {floor} ({from}) names floor {other} ({to}): `use` goes down only"));
    }
    match (from, to) {
        ("config", "observe") | ("observe", "config") => {
            return Some("config and observe do not know each other".to_owned());
        }
        (_, "observe") if floor < ASSEMBLY => {
            return Some(format!("what judges ({from}) never logs or counts: it returns facts"));
        }
        _ => {}
    }
    (floor == MECHANISM && other == MECHANISM).then(|| format!("a mechanism ({from}) names another ({to})"))
}

/// What is wrong with naming `path` of another crate here.
fn outside(source: &Source, floor: u8, path: &[String]) -> Option<String> {
    let file = source.path.as_str();
    let words: Vec<&str> = path.iter().map(String::as_str).collect();
    match words[..] {
        ["pingora", "http", ..] | ["pingora_http", ..] => {
            (floor < 1).then(|| "pingora's http types are for floor 1 and up".to_owned())
        }
        ["pingora", "lb", ..] | ["pingora_load_balancing", ..] => load_balancing(file, &words),
        [first, ..] if first == "pingora" || first.starts_with("pingora_") => {
            (floor < DRIVER && !file.starts_with(PROBES) && !PEERS.contains(&file))
                .then(|| format!("`{}` is for floors 4 and 5, {PROBES} {}", words.join("::"), PEERS.join(" ")))
        }
        [first, ..] if first == "serde_yaml" || first.starts_with("serde_saphyr") => {
            (file != YAML).then(|| format!("only {YAML} names a YAML crate"))
        }
        ["tokio", "time", "timeout"] | [.., "Instant", "now"] if file.starts_with(PROBES) => None,
        ["tokio", "spawn" | "time" | "signal", ..] | ["tokio", "task", "JoinSet" | "spawn" | "spawn_blocking", ..] => {
            waking(file, &words)
        }
        ["std", "thread", "spawn" | "sleep"] | ["thread", "spawn" | "sleep"] => waking(file, &words),
        ["log", ..] if (1..ASSEMBLY).contains(&floor) => Some("what judges never logs".to_owned()),
        [.., "Instant" | "SystemTime", "now"] if (1..DRIVER).contains(&floor) => {
            Some("what judges never reads the clock: it is told `now`".to_owned())
        }
        _ => None,
    }
}

fn load_balancing(file: &str, words: &[&str]) -> Option<String> {
    let prober = file == "service/prober.rs";
    if !prober && !file.starts_with(PROBES) && !file.starts_with("discovery/") {
        return Some("pingora_load_balancing is for health/active/, discovery/ and service/prober.rs".to_owned());
    }
    let selection = words.iter().find(|word| matches!(**word, "Backends" | "LoadBalancer"));
    selection.filter(|_| !prober).map(|word| format!("pingora's `{word}` is for service/prober.rs"))
}

fn waking(file: &str, words: &[&str]) -> Option<String> {
    let allowed = WAKING.iter().any(|place| file.starts_with(place));
    (!allowed)
        .then(|| format!("`{}`: timers, tasks, threads and signals are for {}", words.join("::"), WAKING.join(" ")))
}

#[test]
fn given_a_snippet_that_breaks_a_rule_when_checked_then_the_rule_and_line_are_told() {
    let cases = [
        ("config/a.rs", "use crate::model::Live;", "src/config/a.rs:1: floor 0 (config) names floor 1 (model)"),
        ("config/a.rs", "use crate::observe::event;", "do not know each other"),
        ("observe/a.rs", "\n\nfn a(_: crate::config::Config) {}", "src/observe/a.rs:3: config and observe"),
        ("balance/mod.rs", "use super::{model, health::Marks};", "a mechanism (balance) names another (health)"),
        ("retry/a.rs", "fn a() { super::super::runtime::pin() }", "names floor 3 (runtime)"),
        ("model/a.rs", "use crate::Derbent;", "names floor 5 (Derbent)"),
        ("health/a.rs", "fn a() { crate::observe::event::lost(); }", "never logs or counts"),
        ("health/a.rs", "fn a() { log::warn!(\"x\"); }", "never logs"),
        ("model/a.rs", "use crate::observe::{Metrics, event};", "what judges (model) never logs"),
        ("health/a.rs", "fn a() { std::time::Instant::now(); }", "never reads the clock"),
        ("runtime/a.rs", "fn a() { std::time::SystemTime::now(); }", "never reads the clock"),
        ("health/active/a.rs", "use tokio::time::sleep;", "`tokio::time::sleep`: timers"),
        ("health/active/a.rs", "fn a() { std::time::SystemTime::now(); }", "never reads the clock"),
        ("cli/a.rs", "use serde_yaml::Value;", "only config/yaml.rs names a YAML crate"),
        ("config/a.rs", "use pingora_http::RequestHeader;", "floor 1 and up"),
        ("runtime/draw.rs", "use pingora::upstreams::peer::HttpPeer;", "`pingora::upstreams::peer::HttpPeer` is for"),
        ("model/a.rs", "use pingora_error::Error;", "is for floors 4 and 5"),
        ("runtime/a.rs", "use pingora::lb::Backend;", "pingora_load_balancing is for"),
        (
            "health/active/a.rs",
            "use pingora_load_balancing::{Backend, Backends};",
            "`Backends` is for service/prober.rs",
        ),
        ("proxy/mod.rs", "use tokio::{\n    sync,\n    time,\n};", "src/proxy/mod.rs:3: `tokio::time`"),
        ("proxy/mod.rs", "use std::thread;\nfn a() { thread::spawn(|| ()); }", "src/proxy/mod.rs:2: `thread::spawn`"),
        ("misc/a.rs", "", "this room has no floor"),
    ];
    for (path, text, expected) in cases {
        let faults = faults(&Source::read(path, text));
        assert!(faults.len() == 1 && faults[0].contains(expected), "{path}: {text}\ngave {faults:?}");
    }
}

#[test]
fn given_a_snippet_that_keeps_the_rules_when_checked_then_nothing_is_told() {
    let cases = [
        ("balance/random.rs", "use super::{Balancer, Picker};\nuse crate::{config::Policy, model::Live};"),
        ("health/active/http.rs", "use pingora_load_balancing::health_check::HealthCheck;\nuse pingora::Result;"),
        ("service/prober.rs", "use pingora::lb::{Backends, LoadBalancer};\nfn a() { tokio::spawn(b()); }"),
        ("health/active/mod.rs", "use tokio::time::timeout;\nfn a() { std::time::Instant::now(); }"),
        ("proxy/a.rs", "use crate::service::Lifecycle;"),
        ("config/yaml.rs", "use serde_saphyr::granit_parser::Parser;\nfn a() { serde_yaml::to_string(); }"),
        ("model/request.rs", "use pingora::http::RequestHeader;\nuse std::time::Instant;"),
        ("runtime/upstream.rs", "use pingora::upstreams::peer::HttpPeer;"),
        ("simulate/mod.rs", "use crate::runtime::draw;"),
        ("main.rs", "use derbent::cli;"),
        (
            "config/a.rs",
            "// crate::model::x\n/// see crate::runtime::y\n/* crate::cli::z /* */ */ const A: &str = \"crate::app::q\";",
        ),
        ("config/a.rs", "const A: &str = r#\"a \" crate::app::q\"#; const B: char = '\"'; fn a<'a>(b: &'a str) {}"),
        ("config/a.rs", "fn a() {}\n#[cfg(test)]\nmod tests {\n    use crate::runtime::Runtime;\n}\n"),
        ("config/a.rs", "#[cfg(test)]\nuse crate::runtime::{Runtime, Snapshot};\nuse crate::config::Node;"),
    ];
    for (path, text) in cases {
        assert_eq!(faults(&Source::read(path, text)), Vec::<String>::new(), "{path}: {text}");
    }
}

#[test]
fn given_a_long_file_or_function_when_checked_then_tests_are_not_counted() {
    let function = format!("fn long() {{\n{}}}\n", "a();\n".repeat(59));
    let file = "const A: u8 = 1;\n".repeat(LINES + 1);
    let tests = format!("fn a() {{}}\n#[cfg(test)]\nmod tests {{\n{function}{file}}}\n");
    let told = |text: &str| faults(&Source::read("config/a.rs", text)).join("\n");
    assert_eq!(told(&function), "src/config/a.rs:1: `long` has 61 lines, more than 60");
    assert_eq!(told(&file), "src/config/a.rs:1: 501 lines without tests, more than 500");
    assert_eq!(told(&tests), "");
    for visible in ["", "pub(crate) "] {
        let text = format!("#[cfg(test)]\n{visible}mod contract;\nmod shares;\n");
        assert_eq!(Source::read("balance/mod.rs", &text).test_modules, ["contract"]);
    }
}
