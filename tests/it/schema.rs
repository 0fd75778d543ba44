//! `derbent schema` and `conf/schema.json`: one thing, which takes every file that we show and refuses what the reader does.

use crate::support::{derbent, shown_configurations};
use serde_json::Value;
use std::path::Path;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

fn read(file: &str) -> String {
    std::fs::read_to_string(Path::new(ROOT).join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

fn committed() -> Value {
    serde_json::from_str(&read("conf/schema.json")).expect("JSON")
}

fn validator() -> jsonschema::Validator {
    jsonschema::draft202012::new(&committed()).expect("a JSON Schema")
}

fn yaml(text: &str) -> Value {
    serde_yaml::from_str(text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

#[tokio::test]
async fn given_the_command_when_run_then_it_prints_the_committed_file() {
    let output = derbent(["schema"]).await;
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && output.stderr.is_empty());
    assert!(printed == read("conf/schema.json"), "derbent schema > conf/schema.json brings it up to date");
}

#[test]
fn given_every_file_of_conf_when_held_against_the_schema_then_it_is_valid() {
    jsonschema::draft202012::meta::validate(&committed()).expect("the schema itself is valid");
    let validator = validator();
    let files = shown_configurations();
    assert!(files.iter().any(|file| file.ends_with("derbent.yaml")), "{files:?}");
    for file in files {
        let faults: Vec<String> = validator
            .iter_errors(&yaml(&std::fs::read_to_string(&file).unwrap()))
            .map(|fault| format!("{}: {fault}", fault.instance_path()))
            .collect();
        assert!(faults.is_empty(), "{}: {faults:#?}", file.display());
    }
}

#[test]
fn given_a_file_with_a_fault_when_held_against_the_schema_then_it_is_refused_as_the_reader_does() {
    let validator = validator();
    for wrong in [
        "lisstener: {}",
        "version: [1]",
        "server: { thread: 2 }",
        "server: { keepalive_pool: 1000001 }",
        "server: { keepalive_pool: \"12\" }",
        "admin: on",
        "log: { level: wran }",
        "access_log: on",
        "access_log: { format: text }",
        "listeners: { web: { protocols: [http1] } }",
        "routes: { all: { mach: {} } }",
        "routes: { all: { match: { headers: [{ name: x, mode: Exakt }] } } }",
        "routes: { all: { match: { query: [{ name: x, mode: NotExists }] } } }",
        "routes: { all: { redirect: { to: /x, status: 300 } } }",
        "routes: { all: { transforms: [{ path_remove: /x }] } }",
        "clusters: { app: { destinations: { a: { adress: \"http://a\" } } } }",
        "clusters: { app: { destinations: { a: { address: \"http://a\", weight: 1001 } } } }",
        "clusters: { app: {} }",
        "clusters: { app: { destinations: [], load_balancing: RoundRobbin } }",
        "clusters: { app: { destinations: [], load_balancing: { policy: Random, spill_over: 3 } } }",
        "clusters: { app: { destinations: [], load_balancing: { policy: PreferSameZone, spill_over: 0 } } }",
        "clusters: { app: { destinations: [], health: { active: { type: tcp, path: /x } } } }",
        "clusters: { app: { destinations: [], health: { active: { interval: 5s } } } }",
        "clusters: { app: { destinations: [], request: { activity_timeout: 5 } } }",
        "clusters: { app: { destinations: [], retry: on } }",
        "clusters: { app: { destinations: [], slow_start: 5 } }",
        "clusters: { app: { destinations: [], health: { initial: trusted } } }",
        "clusters: { app: { destinations: [], health: { passive: on } } }",
        "clusters: { app: { destinations: [], health: { passive: { count: [600] } } } }",
        "clusters: { app: { destinations: [], health: { passive: { detectors: [{ failures: 5 }] } } } }",
        "clusters: { app: { destinations: [], health: { passive: { detectors: [ConsecutiveFailure] } } } }",
        "clusters: { app: { destinations: [], health: { passive: { detectors: [{ policy: ConsecutiveFailures, window: 5s }] } } } }",
        "clusters: { app: { destinations: [], health: { passive: { reactivation: { backoff: { multiplier: 11 } } } } } }",
        "clusters: { app: { destinations: [], health: { passive: { max_ejected: -1 } } } }",
        "clusters: { app: { destinations: [], health: { breaker: { threshold: half } } } }",
    ] {
        assert!(!validator.is_valid(&yaml(wrong)), "valid: {wrong}");
    }
    for right in [
        "include: conf.d/*.yaml",
        "admin: off\nserver: { threads: auto, keepalive_pool: \"${POOL:-7}\" }",
        "listeners: { web: \"[::]:8080\" }",
        "routes: { all: { order: -1, redirect: { to: /x, status: 308 } } }",
        "clusters: { app: { destinations: [\"http://a\"], load_balancing: \"${POLICY:-Random}\" } }",
        "clusters: { app: { destinations: { a: \"http://a\" }, load_balancing: { policy: PreferSameZone, spill_over: 9 } } }",
        "clusters: { app: { destinations: { a: \"http://a\" }, health: { active: tcp } } }",
        "clusters: { app: { destinations: { a: \"http://a\" }, health: { active: off } } }",
        "clusters: { app: { destinations: [\"http://a\"], health: { passive: off, breaker: {} } } }",
        "clusters: { app: { destinations: [\"http://a\"], health: { passive: { count: 5xx, reactivation: off, max_ejected: 2 } } } }",
        "clusters: { app: { destinations: [\"http://a\"], health: { passive: { count: [connect, 503], max_ejected: 50% } } } }",
        "clusters: { app: { destinations: [\"http://a\"], health: { breaker: { threshold: 7, count: \"${WHAT:-5xx}\" } } } }",
        "clusters: { app: { destinations: [\"http://a\"], health: { active: { type: http, timeout: \"00:00:02\" } } } }",
    ] {
        assert!(validator.is_valid(&yaml(right)), "refused: {right}");
    }
}

/// What the reader knows is told: the file with every key has them all, and README.md too.
#[test]
fn given_the_schema_when_its_keys_are_looked_up_then_the_shown_file_and_the_readme_have_them() {
    let mut keys = Vec::new();
    collect(&committed(), &mut keys);
    assert!(keys.iter().any(|key| key == "spill_over"), "{keys:?}");
    let (shown, readme) = (read("conf/derbent.yaml"), read("README.md"));
    let words = |text: &str| -> Vec<String> {
        text.split(|c: char| !c.is_alphanumeric() && c != '_').map(str::to_owned).collect()
    };
    let (in_readme, missing_there) = (words(&readme), |key: &&String| !shown.contains(&format!("{key}:")));
    let missing: Vec<_> = keys.iter().filter(missing_there).collect();
    let untold: Vec<_> = keys.iter().filter(|key| !in_readme.contains(key)).collect();
    assert!(missing.is_empty() && untold.is_empty(), "not in conf/derbent.yaml: {missing:?}, README.md: {untold:?}");
}

/// The names of all properties.
fn collect(schema: &Value, keys: &mut Vec<String>) {
    match schema {
        Value::Object(members) => {
            if let Some(Value::Object(properties)) = members.get("properties") {
                keys.extend(properties.keys().cloned());
            }
            members.values().for_each(|member| collect(member, keys));
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, keys)),
        _ => {}
    }
}
