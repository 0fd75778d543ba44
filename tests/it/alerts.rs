//! The alerts of `conf/prometheus`: that they ask for what there is, and that a real destination made ill moves what they
//! watch. What fires when is `promtool test rules`' to say, which `scripts/test` runs where there is one.

use crate::support::{Answer, DEADLINE, Edge, Origin, eventually};
use derbent::observe::metrics::PREFIX;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;

const LOST: &str = r#"from="healthy",to="unhealthy",reason="#;
const ONE: &str = r#"{cluster="catalog",destination="one""#;

fn read(file: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{file}: {error}"))
}

fn yaml(file: &str) -> Value {
    serde_yaml::from_str(&read(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

fn rules() -> Vec<Value> {
    let groups = yaml("conf/prometheus/alerts.yaml")["groups"].as_array().expect("groups").clone();
    let rules: Vec<Value> = groups.iter().flat_map(|group| group["rules"].as_array().expect("rules").clone()).collect();
    assert!(rules.len() > 2, "{rules:?}");
    rules
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_else(|| panic!("no {key} in {value}"))
}

/// A proxy that has a breaker, without which there is no circuit to tell of, in front of `one`, which answers 200 to requests and to its probe what the test sets.
async fn start() -> (Origin, Edge) {
    let one = Origin::named("one").await;
    health(&one, 200);
    let edge = Edge::start(&format!(
        "routes: {{ all: {{ cluster: catalog }} }}\nclusters:\n  catalog:\n    destinations: {{ one: {} }}\n    health: {{ active: {{ type: http, path: /health, interval: 100ms }}, breaker: {{}} }}\n",
        one.url()
    ))
    .await;
    (one, edge)
}

fn health(origin: &Origin, status: u16) {
    origin.answer_by(move |request| match request.target().as_str() {
        "/health" => Answer::new(status, "", ""),
        _ => Answer::ok("one"),
    });
}

/// The names of metrics in a text: words that begin as ours and the process's do.
fn metrics_named(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with(PREFIX) || word.starts_with("process_")).collect()
}

/// `name{a="b",c!="d"}` as name and the pairs `a="b"` that must hold; `job` is Prometheus's own.
fn selectors(expression: &str) -> Vec<(&str, Vec<&str>)> {
    let parts = expression.split('}').filter_map(|part| part.split_once('{'));
    parts
        .filter_map(|(before, matchers)| {
            let name = before.rsplit(|c: char| !c.is_ascii_alphanumeric() && c != '_').next()?;
            let equal = matchers.split(',').filter(|matcher| !matcher.contains("!=") && !matcher.starts_with("job="));
            Some((name, equal.collect()))
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn given_the_files_for_prometheus_when_their_metrics_are_looked_up_then_the_page_has_them() {
    let (_one, edge) = start().await;
    let page = edge.metrics().await;
    let has = |name: &str, pairs: &[&str]| {
        let samples = page.lines().filter_map(|line| line.strip_prefix(name));
        let mut samples = samples.filter(|rest| rest.starts_with(['{', ' ']));
        samples.any(|rest| pairs.iter().all(|pair| rest.contains(pair)))
    };
    let mut seen = 0;
    for file in ["alerts.yaml", "alerts_test.yaml", "scrape.yaml"] {
        for name in metrics_named(&read(&format!("conf/prometheus/{file}"))) {
            assert!(has(name, &[]), "{file} asks for {name}, not in\n{page}");
            seen += 1;
        }
    }
    assert!(seen > 5, "{seen} metrics in the files");
    for rule in rules() {
        for (name, pairs) in selectors(text(&rule, "expr")) {
            let there = name == "up" || has(name, &pairs);
            assert!(there, "{} asks for {name} {pairs:?}, not in\n{page}", text(&rule, "alert"));
        }
    }
}

#[test]
fn given_an_alert_when_read_then_it_says_what_why_and_where_to_read_on_and_has_a_case_that_fires() {
    let headings: Vec<String> = read("README.md")
        .lines()
        .filter_map(|line| line.strip_prefix("### "))
        .map(|heading| format!("README.md#{}", heading.to_lowercase()))
        .collect();
    let tests = yaml("conf/prometheus/alerts_test.yaml");
    let cases: Vec<&Value> = tests["tests"]
        .as_array()
        .expect("tests")
        .iter()
        .flat_map(|t| t["alert_rule_test"].as_array())
        .flatten()
        .collect();
    for rule in rules() {
        let (name, annotations) = (text(&rule, "alert"), &rule["annotations"]);
        assert!(["critical", "warning", "info"].contains(&text(&rule["labels"], "severity")), "{name}");
        assert!(!text(annotations, "summary").is_empty() && !text(annotations, "description").is_empty(), "{name}");
        let runbook = text(annotations, "runbook_url").to_owned();
        assert!(headings.contains(&runbook), "{name}: README.md has no heading for {runbook}");
        let of_it = cases.iter().filter(|case| case["alertname"] == name);
        let fires: Vec<bool> =
            of_it.map(|case| case["exp_alerts"].as_array().is_some_and(|it| !it.is_empty())).collect();
        assert!(
            fires.contains(&true) && fires.contains(&false),
            "{name}: a case in which it fires, and one where not: {fires:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_destination_made_ill_when_probed_then_what_the_two_alerts_watch_moves() {
    let (one, edge) = start().await;
    let healthy = format!("derbent_destination_healthy{ONE}}}");
    let lost = |reason: &str| format!("derbent_destination_health_transitions_total{ONE},{LOST}\"{reason}\"}}");
    assert_eq!(edge.metric(&healthy).await, Some(1.0));
    for reason in ["active", "passive", "breaker", "operator", "unprobed"] {
        assert_eq!(edge.metric(&lost(reason)).await, Some(0.0), "increase() sees the first only from 0: {reason}");
    }
    health(&one, 503);
    edge.counts(&lost("active"), 1.0).await;
    eventually(DEADLINE, "the gauge falls", async || edge.metric(&healthy).await == Some(0.0)).await;
    let ready = format!("derbent_destination_admin_state{ONE},state=\"ready\"}}");
    assert_eq!(edge.metric(&ready).await, Some(1.0), "no order silences DerbentDestinationUnhealthy");
}

#[tokio::test(flavor = "multi_thread")]
async fn given_an_ejected_destination_when_it_is_half_open_then_it_is_still_not_healthy() {
    let mut one = Origin::named("one").await;
    let health = "{ available: HealthyAndUnknown, passive: { reactivation: { period: 100ms } } }";
    let edge = Edge::start(&format!(
        "routes: {{ all: {{ cluster: catalog }} }}\nclusters:\n  catalog:\n    destinations: {{ one: {} }}\n    health: {health}\n",
        one.url()
    ))
    .await;
    one.stop().await;
    let state = async || edge.destination("catalog", "one").await["state"].as_str().unwrap_or_default().to_owned();
    eventually(DEADLINE, "it is ejected", async || {
        edge.get("/").await;
        ["unhealthy", "half_open"].contains(&state().await.as_str())
    })
    .await;
    // Without traffic the trial stays open.
    eventually(DEADLINE, "it is half-open", async || state().await == "half_open").await;
    assert_eq!(edge.metric(&format!("derbent_destination_healthy{ONE}}}")).await, Some(0.0));
    assert_eq!(edge.metric(&format!("derbent_destination_ejected{ONE}}}")).await, Some(1.0));
    let lost = format!("derbent_destination_health_transitions_total{ONE},{LOST}\"passive\"}}");
    assert_eq!(edge.metric(&lost).await, Some(1.0));
}
