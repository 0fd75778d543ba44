//! `GET /api/v1/explain/…`: what a person and what a program learns of a destination that left, that stays, and that is not there.

use crate::support::{Answer, Client, DEADLINE, Edge, Origin, Response, eventually};
use derbent::explain::{Decision, Explanation, Rule, Step, replay};
use serde_json::Value;

/// One route to cluster `app`, its destinations `a`, `b` … in the order of the origins; `health` in flow style.
fn app(origins: &[&Origin], health: &str) -> String {
    let one = |(id, origin): (char, &&Origin)| format!("{id}: \"{}\"", origin.url());
    let destinations: Vec<String> = ('a'..).zip(origins).map(one).collect();
    format!(
        "routes: {{ all: {{ cluster: app }} }}\nclusters:\n  app:\n    load_balancing: RoundRobin\n    destinations: {{ {} }}\n    health: {health}\n",
        destinations.join(", ")
    )
}

async fn in_state(edge: &Edge, id: &str, state: &str) {
    eventually(DEADLINE, &format!("{id} is {state}"), async || edge.destination("app", id).await["state"] == state)
        .await;
}

async fn explained(edge: &Edge, id: &str) -> String {
    let answer = edge.admin_get(&format!("/api/v1/explain/app/{id}")).await;
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("text/plain; charset=utf-8")));
    answer.text()
}

async fn as_json(edge: &Edge, id: &str) -> Value {
    edge.admin_get(&format!("/api/v1/explain/app/{id}?format=json")).await.json()
}

fn line<'t>(text: &'t str, begin: &str) -> &'t str {
    text.lines().find(|line| line.starts_with(begin)).unwrap_or_else(|| panic!("no line {begin:?} in\n{text}"))
}

/// Each step's decision follows from what is told of it.
fn replayed(told: &Value) -> Vec<Explanation> {
    let history = told["history"].as_array().expect("a list").iter();
    let history: Vec<Explanation> =
        history.map(|step| serde_json::from_value(step.clone()).expect("an Explanation")).collect();
    for step in &history {
        assert_eq!(replay(step), Some(step.decision), "{step:?}");
    }
    history
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_destination_killed_under_load_when_explained_then_rule_numbers_evidence_and_the_way_back() {
    let (mut dead, live) = (Origin::named("a").await, Origin::named("b").await);
    let health = "{ passive: { reactivation: { period: 1h, backoff: { max: 1h } } } }";
    let edge = Edge::start(&app(&[&dead, &live], health)).await;
    let (text, json) = (explained(&edge, "a").await, as_json(&edge, "a").await);
    assert!(text.starts_with("a of cluster app is unknown: gets requests, and nothing was found out yet\n"), "{text}");
    assert_eq!(line(&text, "why"), "why      no mark stands, and none was ever set");
    assert_eq!((&json["state"], &json["since"], &json["next"]), (&"unknown".into(), &Value::Null, &Value::Null));
    for _ in 0..40 {
        assert_eq!(edge.get("/").await.status, 200);
    }
    dead.stop().await;
    eventually(DEADLINE, "ejected", async || {
        tokio::join!(edge.get("/"), edge.get("/"), edge.get("/"), edge.get("/"));
        edge.destination("app", "a").await["state"] == "unhealthy"
    })
    .await;

    let text = explained(&edge, "a").await;
    let mut lines = text.lines();
    let first = lines.next().unwrap_or_default();
    assert!(
        first.starts_with("a of cluster app is unhealthy since 20") && first.ends_with("ago): gets no requests"),
        "{text}"
    );
    assert!(lines.next().unwrap_or_default().starts_with(&format!("address  {}, 0 in flight, weight 1", dead.url())));
    let rule = "ConsecutiveFailures (failures 5): failures in a row 5 ≥ 5";
    assert_eq!(line(&text, "why"), format!("why      passive: {rule}"));
    let seen = line(&text, "         ejected at ");
    assert!(seen.contains("; seen until then: 20 × 200, ") && seen.contains(" × refused"), "{text}");
    let next = line(&text, "next");
    assert!(next.starts_with("next     half-open in ") && next.contains(", at ") && next.ends_with('Z'), "{text}");
    assert!(text.contains("\nsteps, newest first\n"));
    assert!(line(&text, "  20").contains(&format!("ejected (passive): {rule}; half-open in 1h")), "{text}");
    let refused = text.lines().filter(|line| line.contains("  traffic  failure     refused in ")).count();
    assert!(refused >= 1 && text.contains(", route all, attempt 1\n"), "{text}");

    let json = as_json(&edge, "a").await;
    for (key, value) in [("cluster", "app"), ("destination", "a"), ("state", "unhealthy"), ("why", rule)] {
        assert_eq!(json[key], value, "{key}");
    }
    assert_eq!((&json["address"], &json["marks"]), (&dead.url().into(), &serde_json::json!(["passive"])));
    assert!(json["next"].as_str().is_some_and(|next| next.starts_with("half-open in ")), "{json}");
    let [step] = &replayed(&json)[..] else { panic!("one step: {json}") };
    assert!(matches!(step.decision, Decision { step: Step::Ejected, was_healthy: true, is_healthy: false, .. }));
    assert!(matches!(&step.rule, Rule::Detector { policy, .. } if policy == "ConsecutiveFailures"));
    assert_eq!(json["evidence"].as_array().map(Vec::is_empty), Some(false));

    let view = edge.destination("app", "a").await;
    assert_eq!((&view["marks"], &view["why"]), (&serde_json::json!(["passive"]), &rule.into()), "{view}");
    assert_eq!((&view["since"], &view["available"]), (&json["since"], &false.into()));
    let cluster = edge.admin_get("/api/v1/clusters/app").await.json();
    assert_eq!((&cluster["ejected"], &cluster["half_open"], &cluster["available"]), (&1.into(), &0.into(), &1.into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_killed_destination_that_comes_back_when_explained_then_each_step_replays_to_its_decision() {
    let (mut dead, live) = (Origin::named("a").await, Origin::named("b").await);
    let health =
        "{ active: { type: tcp, interval: 100ms, unhealthy_after: 2 }, passive: { reactivation: { period: 200ms } } }";
    let edge = Edge::start(&app(&[&dead, &live], health)).await;
    dead.stop().await;
    in_state(&edge, "a", "unhealthy").await;
    let text = explained(&edge, "a").await;
    assert!(
        text.contains("active: active check failed 2 times in a row (unhealthy_after 2): connection refused"),
        "{text}"
    );
    assert!(text.contains("back when its probes pass once in a row"), "{text}");
    assert!(text.contains("  probe    failure     connection refused in "), "{text}");
    dead.restart().await;
    eventually(DEADLINE, "healthy", async || {
        edge.get("/").await;
        edge.destination("app", "a").await["state"] == "healthy"
    })
    .await;
    let json = as_json(&edge, "a").await;
    let history = replayed(&json);
    assert!(history.iter().any(|step| step.decision.step == Step::Readmitted && step.decision.is_healthy), "{json}");
    let text = explained(&edge, "a").await;
    assert!(
        text.starts_with("a of cluster app is healthy since ") && text.contains(": gets its share of the requests\n")
    );
    assert!(line(&text, "why").starts_with("why      no mark stands; last step "), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_destination_that_answers_500_to_everything_when_5xx_counts_then_out_else_in_and_both_are_explained() {
    let (counting, not_counting) = (
        "{ passive: { count: [connect, timeout, reset, \"5xx\"], reactivation: { period: 1h, backoff: { max: 1h } } } }",
        "{ passive: { count: [connect, timeout, reset] } }",
    );
    let (bad, good) = (Origin::start(|_| Answer::new(500, "", "")).await, Origin::named("b").await);
    let edge = Edge::start(&app(&[&bad, &good], counting)).await;
    for _ in 0..30 {
        edge.get("/").await;
    }
    in_state(&edge, "a", "unhealthy").await;
    let text = explained(&edge, "a").await;
    assert_eq!(line(&text, "why"), "why      passive: ConsecutiveFailures (failures 5): failures in a row 5 ≥ 5");
    assert!(line(&text, "         ejected at ").ends_with("; seen until then: 5 × 500"), "{text}");
    assert_eq!((bad.hits("/"), text.contains("\nnote ")), (5, false), "{text}");

    let edge = Edge::start(&app(&[&bad, &good], not_counting)).await;
    for _ in 0..30 {
        edge.get("/").await;
    }
    let text = explained(&edge, "a").await;
    assert!(text.starts_with("a of cluster app is healthy since "), "{text}");
    assert_eq!(line(&text, "why"), "why      no mark stands, and none was ever set");
    let note = "note     it answered with 5xx, which is no failure here: health.passive.count lacks \"5xx\"";
    assert_eq!(line(&text, "note"), note);
    assert_eq!(text.lines().filter(|line| line.contains("  traffic  success     500 in ")).count(), 15, "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn given_names_when_asked_for_then_any_character_and_404_names_the_nearest() {
    let origin = Origin::named("a").await;
    let yaml = format!(
        "routes: {{ all: {{ cluster: \"odd/name\" }} }}\nclusters: {{ \"odd/name\": {{ destinations: [\"http://[::1]:5301\", \"{}\"] }} }}\n",
        origin.url()
    );
    let edge = Edge::start(&yaml).await;
    for path in ["odd%2Fname/%5B%3A%3A1%5D%3A5301", "odd%2fname/%5b::1%5d:5301"] {
        let answer = edge.admin_get(&format!("/api/v1/explain/{path}")).await;
        assert!(answer.text().starts_with("[::1]:5301 of cluster odd/name is unknown: "), "{}", answer.text());
    }
    for (path, said) in [
        ("/api/v1/explain/od%2Fname/x", "unknown cluster \"od/name\"; did you mean \"odd/name\"?"),
        (
            "/api/v1/explain/odd%2Fname/%5B::1%5D:5302",
            "cluster odd/name: unknown destination \"[::1]:5302\"; did you mean \"[::1]:5301\"?",
        ),
        ("/api/v1/clusters/od%2Fname", "unknown cluster \"od/name\"; did you mean \"odd/name\"?"),
        ("/api/v1/explain/odd%2Fname", "not found; there are "),
        ("/api/v1/explain/odd/name/x", "not found; there are "),
    ] {
        let answer = edge.admin_get(path).await;
        assert_eq!((answer.status, answer.text().starts_with(said)), (404, true), "{path}: {}", answer.text());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn given_what_is_accepted_when_explained_then_text_by_default_and_json_where_it_is_asked_for() {
    let origin = Origin::named("a").await;
    let edge = Edge::start(&app(&[&origin], "{}")).await;
    let ask = async |query: &str, accept: &str| -> Response {
        let mut client = Client::connect(edge.admin()).await;
        client.get(&format!("/api/v1/explain/app/a{query}"), accept).await.expect("an answer")
    };
    for (query, accept, is_json) in [
        ("", "", false),
        ("", "accept: */*\r\n", false),
        ("", "accept: application/json\r\n", true),
        ("", "accept: text/html, application/json;q=0.9\r\n", true),
        ("?format=json", "", true),
        ("?format=text", "accept: application/json\r\n", false),
        ("?x=y&format=json", "accept: text/plain\r\n", true),
    ] {
        let answer = ask(query, accept).await;
        let kind = if is_json { "application/json" } else { "text/plain; charset=utf-8" };
        assert_eq!((answer.status, answer.header("content-type")), (200, Some(kind)), "{query} {accept}");
    }
    let refused = ask("?format=jso", "").await;
    assert_eq!(
        (refused.status, refused.text().as_str()),
        (400, "unknown format \"jso\"; did you mean \"json\"? One of: text, json\n")
    );
}
