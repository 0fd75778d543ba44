//! The operator's orders over the admin listener: what they do to traffic, how they end, and whose are refused.

use crate::support::{
    Answer, Client, DEADLINE, Edge, Gate, Origin, Response, Step, eventually, free_port, get, loopback,
};
use std::net::SocketAddr;
use tempfile::TempDir;

/// One route to cluster `app` with `a` and `b` in turn.
fn app(a: &Origin, b: &Origin, more: &str) -> String {
    format!(
        "routes: {{ all: {{ cluster: app }} }}\nclusters: {{ app: {{ load_balancing: RoundRobin, destinations: {{ a: \"{}\", b: \"{}\" }}{more} }} }}\n",
        a.url(),
        b.url()
    )
}

const STATE: &str = "/api/v1/clusters/app/destinations/a/state";
const WEIGHT: &str = "/api/v1/clusters/app/destinations/a/weight";
const JSON: &str = "host: localhost\r\ncontent-type: application/json\r\n";

/// One request of its own connection; `headers` are whole lines.
async fn send(admin: SocketAddr, line: &str, headers: &str, body: &str) -> Response {
    let mut client = Client::connect(admin).await;
    let head = format!("{line} HTTP/1.1\r\n{headers}content-length: {}\r\nconnection: close\r\n\r\n", body.len());
    // A refusal may come before the body is taken.
    let _ = client.try_send(format!("{head}{body}").as_bytes()).await;
    client.read_response().await.expect("an answer")
}

async fn state(edge: &Edge, body: &str) -> serde_json::Value {
    let answer = send(edge.admin(), &format!("POST {STATE}"), JSON, body).await;
    assert_eq!(answer.status, 200, "{body}: {}", answer.text());
    answer.json()
}

async fn weight(edge: &Edge, body: &str) -> serde_json::Value {
    let answer = send(edge.admin(), &format!("PUT {WEIGHT}"), JSON, body).await;
    assert_eq!(answer.status, 200, "{body}: {}", answer.text());
    answer.json()
}

/// How many of so many requests in a row the origin got.
async fn got(edge: &Edge, origin: &Origin, requests: usize) -> usize {
    let before = origin.hits("/");
    for _ in 0..requests {
        assert_eq!(edge.get("/").await.status, 200);
    }
    origin.hits("/") - before
}

#[tokio::test(flavor = "multi_thread")]
async fn given_drain_when_requests_are_under_way_then_they_finish_and_no_new_one_comes_until_ready() {
    let (a, b, gate) = (Origin::named("a").await, Origin::named("b").await, Gate::closed());
    let held = gate.clone();
    a.answer_by(move |request| match request.target().as_str() {
        "/slow" => Answer::ok("finished").after([Step::Wait(held.clone())]),
        _ => Answer::ok("a"),
    });
    let edge = Edge::start(&app(&a, &b, "")).await;
    let mut client = edge.connect().await;
    let slow = tokio::spawn(async move { client.get("/slow", "").await.expect("an answer").text() });
    eventually(DEADLINE, "the first request waits at a", async || a.hits("/slow") == 1).await;
    let shown = state(&edge, r#"{"state": "drain", "for": "10m"}"#).await;
    assert_eq!(
        (&shown["state"], &shown["available"], &shown["in_flight"]),
        (&"draining".into(), &false.into(), &1.into())
    );
    let order = &shown["overrides"][0];
    assert_eq!(
        (&order["order"], order["by"].as_str().map(|by| by.starts_with("127.0.0.1:"))),
        (&"drain".into(), Some(true))
    );
    assert!(order["until"].as_str().is_some_and(|until| until.ends_with('Z')), "{shown}");
    assert_eq!(got(&edge, &a, 20).await, 0);
    let text = edge.admin_get("/api/v1/explain/app/a").await.text();
    assert!(text.starts_with("a of cluster app is draining since "), "{text}");
    assert!(text.contains(": no new requests\n") && text.contains(", 1 in flight, weight 1"), "{text}");
    assert!(
        text.contains("why      operator: drain, by 127.0.0.1:") && text.contains("\norder    drain, by 127.0.0.1:"),
        "{text}"
    );
    assert!(
        text.contains("next     the order ends in 10m, at ") || text.contains("next     the order ends in 9m"),
        "{text}"
    );
    edge.logged(&["operator 127.0.0.1:", " orders drain for a["]).await;

    gate.open();
    assert_eq!(slow.await.expect("no panic"), "finished");
    eventually(DEADLINE, "nothing in flight", async || edge.destination("app", "a").await["in_flight"] == 0).await;
    assert_eq!(got(&edge, &a, 10).await, 0);
    let shown = state(&edge, r#"{"state":"ready"}"#).await;
    assert_eq!((&shown["available"], &shown["overrides"]), (&true.into(), &serde_json::json!([])));
    assert_eq!(got(&edge, &a, 10).await, 5);
    let line = edge.logged(&["operator 127.0.0.1:", " orders ready for a["]).await;
    assert!(line.ends_with(" of cluster app"), "{line}");
}

#[tokio::test(flavor = "multi_thread")]
async fn given_weights_when_ordered_then_they_hold_in_place_of_the_configured_one_and_end_in_time() {
    let (a, b) = (Origin::named("a").await, Origin::named("b").await);
    let edge = Edge::start(&app(&a, &b, "")).await;
    let shown = weight(&edge, r#"{"weight": 4}"#).await;
    assert_eq!((&shown["weight"], &shown["effective_weight"]), (&1.into(), &4.0.into()));
    assert_eq!(shown["overrides"][0]["order"], "weight 4");
    assert_eq!(got(&edge, &a, 20).await, 16);
    assert_eq!(weight(&edge, r#"{"weight":0}"#).await["effective_weight"], 0.0);
    assert_eq!(got(&edge, &a, 10).await, 0);
    let text = edge.admin_get("/api/v1/explain/app/a").await.text();
    assert!(text.contains(": no new requests (weight 0)\n") && text.contains("weight 0 (1 configured)"), "{text}");
    assert_eq!(weight(&edge, r#"{"weight":null}"#).await["overrides"], serde_json::json!([]));
    assert_eq!(got(&edge, &a, 10).await, 5);
    let shown = weight(&edge, r#"{"weight":0,"for":"1s"}"#).await;
    assert!(shown["overrides"][0]["until"].is_string(), "{shown}");
    eventually(DEADLINE, "the order ended", async || edge.destination("app", "a").await["effective_weight"] == 1.0)
        .await;
    edge.logged(&["the order weight for a[", "ended: its time is over"]).await;
    assert_eq!(got(&edge, &a, 10).await, 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn given_maint_eject_and_uneject_when_ordered_then_the_state_follows() {
    let (mut a, b) = (Origin::named("a").await, Origin::named("b").await);
    let health = ", health: { passive: { reactivation: { period: 1h, backoff: { max: 1h } } } }";
    let edge = Edge::start(&app(&a, &b, health)).await;
    assert_eq!(state(&edge, r#"{"state":"maint"}"#).await["state"], "maintenance");
    let shown = state(&edge, r#"{"state":"eject","for":"1h"}"#).await;
    assert_eq!((&shown["state"], &shown["marks"]), (&"unhealthy".into(), &serde_json::json!(["operator"])));
    assert_eq!(got(&edge, &a, 10).await, 0);
    assert_eq!(state(&edge, r#"{"state":"uneject"}"#).await["available"], true);
    assert_eq!(got(&edge, &a, 10).await, 5);
    // The detectors' ejection, ended by hand.
    a.stop().await;
    eventually(DEADLINE, "ejected", async || {
        edge.get("/").await;
        edge.destination("app", "a").await["marks"] == serde_json::json!(["passive"])
    })
    .await;
    a.restart().await;
    let shown = state(&edge, r#"{"state":"uneject"}"#).await;
    assert_eq!((&shown["marks"], &shown["available"]), (&serde_json::json!([]), &true.into()), "{shown}");
    assert_eq!(got(&edge, &a, 10).await, 5);
    edge.logged(&["is healthy: uneject, by 127.0.0.1:"]).await;
    // Nothing to end is no fault.
    assert_eq!(state(&edge, r#"{"state":"uneject"}"#).await["available"], true);
    assert_eq!(state(&edge, r#"{"state":"eject","for":"1s"}"#).await["available"], false);
    eventually(DEADLINE, "the order ended", async || edge.destination("app", "a").await["available"] == true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn given_an_order_that_is_not_as_it_must_be_when_sent_then_it_is_refused_and_changes_nothing() {
    let (a, b) = (Origin::named("a").await, Origin::named("b").await);
    let edge = Edge::start(&app(&a, &b, "")).await;
    let (drain, five) = (r#"{"state":"drain"}"#, r#"{"weight":5}"#);
    let host = edge.admin().to_string();
    let from =
        |host: &str, origin: &str| format!("host: {host}\r\norigin: {origin}\r\ncontent-type: application/json\r\n");
    let kind = |kind: &str| format!("host: localhost\r\ncontent-type: {kind}\r\n");
    let unknown = "/api/v1/clusters/app/destinations/c/state";
    let large = format!("{{\"state\":\"drain\",\"for\":\"{}\"}}", " ".repeat(64 << 10));
    for (method, path, headers, body, status, said) in [
        ("GET", STATE, JSON.to_owned(), "", 405, "POST only"),
        ("PUT", STATE, JSON.to_owned(), drain, 405, "POST only"),
        ("DELETE", WEIGHT, JSON.to_owned(), "", 405, "PUT only"),
        ("POST", WEIGHT, JSON.to_owned(), five, 405, "PUT only"),
        ("POST", STATE, "host: localhost\r\n".to_owned(), drain, 415, "application/json"),
        ("POST", STATE, kind("text/plain"), drain, 415, "application/json"),
        ("POST", STATE, kind("application/x-www-form-urlencoded"), drain, 415, "application/json"),
        ("POST", STATE, kind("multipart/form-data; boundary=x"), drain, 415, "application/json"),
        ("POST", STATE, kind("application/jsonp"), drain, 415, "application/json"),
        ("POST", STATE, "host: evil.example\r\ncontent-type: application/json\r\n".to_owned(), drain, 403, "Host"),
        ("POST", STATE, from(&host, "http://evil.example"), drain, 403, "another origin"),
        ("POST", STATE, from(&host, "null"), drain, 403, "another origin"),
        ("POST", STATE, from(&host, "http://localhost:1"), drain, 403, "another origin"),
        ("POST", STATE, from(&host, &format!("https://{host}")), drain, 403, "another origin"),
        ("PUT", WEIGHT, from(&host, "http://127.0.0.1"), five, 403, "another origin"),
        ("POST", STATE, JSON.to_owned(), large.as_str(), 413, "64 KiB"),
        ("POST", STATE, JSON.to_owned(), "", 400, "the body is no JSON object"),
        ("POST", STATE, JSON.to_owned(), "state=drain", 400, "the body is no JSON object"),
        ("POST", STATE, JSON.to_owned(), r#"{"state":"drian"}"#, 400, "did you mean \"drain\"?"),
        (
            "POST",
            STATE,
            JSON.to_owned(),
            r#"{"state":"drain","fro":"1m"}"#,
            400,
            "unknown key \"fro\"; did you mean \"for\"?",
        ),
        ("POST", STATE, JSON.to_owned(), r#"{"state":"drain","for":"2d"}"#, 400, "for: expected a duration"),
        ("POST", STATE, JSON.to_owned(), five, 400, "unknown key \"weight\""),
        ("PUT", WEIGHT, JSON.to_owned(), r#"{"weight":1001}"#, 400, "from 0 to 1000"),
        ("POST", unknown, JSON.to_owned(), drain, 404, "unknown destination \"c\""),
        ("POST", "/api/v1/clusters/ap/destinations/a/state", JSON.to_owned(), drain, 404, "did you mean \"app\"?"),
        ("POST", "/api/v1/clusters/app/destinations/a", JSON.to_owned(), drain, 404, "not found"),
    ] {
        let answer = send(edge.admin(), &format!("{method} {path}"), &headers, body).await;
        assert_eq!(
            (answer.status, answer.text().contains(said)),
            (status, true),
            "{method} {path} {headers} {}",
            answer.text()
        );
        let allow = (status == 405).then(|| if path == STATE { "POST" } else { "PUT" });
        assert_eq!(answer.header("allow"), allow, "{method} {path}");
        assert_eq!(answer.text().trim_end().lines().count(), if status == 404 && said != "not found" { 2 } else { 1 });
    }
    let shown = edge.destination("app", "a").await;
    assert_eq!((&shown["state"], &shown["overrides"]), (&"unknown".into(), &serde_json::json!([])));
    assert!(!edge.stderr().iter().any(|line| line.contains("orders")), "{:?}", edge.stderr());
    // The listener's own page may give orders, and the content type may say more.
    let own = format!(
        "{}origin: http://{host}\r\n",
        format_args!("host: {host}\r\ncontent-type: Application/JSON; charset=utf-8\r\n")
    );
    assert_eq!(send(edge.admin(), &format!("POST {STATE}"), &own, drain).await.json()["state"], "draining");
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_token_when_orders_come_without_it_then_401_before_anything_is_read() {
    let (a, b) = (Origin::named("a").await, Origin::named("b").await);
    let (directory, port) = (TempDir::new().unwrap(), free_port());
    std::fs::write(directory.path().join("token"), "s3cret\n").unwrap();
    let admin = format!("admin: {{ address: \"127.0.0.1:{port}\", token_file: token }}\n");
    let edge = Edge::launch(directory, &(admin + &app(&a, &b, "")), &[]);
    let address = loopback(port);
    eventually(DEADLINE, "ready", async || get(address, "/ready").await.is_ok_and(|r| r.status == 200)).await;
    let with = |token: &str| format!("{JSON}authorization: Bearer {token}\r\n");
    for headers in [JSON.to_owned(), with("wrong"), with("")] {
        let answer = send(address, &format!("POST {STATE}"), &headers, "no JSON").await;
        assert_eq!((answer.status, answer.header("www-authenticate")), (401, Some("Bearer")), "{headers}");
    }
    let answer = send(address, &format!("POST {STATE}"), &with("s3cret"), r#"{"state":"drain"}"#).await;
    assert_eq!((answer.status, &answer.json()["state"]), (200, &"draining".into()));
    // The token is no leave for a page of another origin.
    let foreign = format!("{}origin: http://evil.example\r\n", with("s3cret"));
    assert_eq!(send(address, &format!("POST {STATE}"), &foreign, r#"{"state":"ready"}"#).await.status, 403);
    assert!(!edge.stderr().iter().any(|line| line.contains("s3cret")), "the token stands in the log");
}

#[tokio::test(flavor = "multi_thread")]
async fn given_orders_when_the_file_is_read_again_then_they_hold_and_end_as_they_would_have() {
    let (a, b) = (Origin::named("a").await, Origin::named("b").await);
    let edge = Edge::start(&app(&a, &b, "")).await;
    weight(&edge, r#"{"weight":7}"#).await;
    let before = state(&edge, r#"{"state":"drain","for":"1h"}"#).await;
    let file = edge.directory().join("derbent.yaml");
    let changed = std::fs::read_to_string(&file).unwrap().replace("RoundRobin", "Random");
    std::fs::write(&file, changed).unwrap();
    edge.signal("HUP");
    edge.logged(&["configuration reloaded"]).await;
    assert_eq!(edge.destination("app", "a").await["overrides"], before["overrides"]);
    assert_eq!(got(&edge, &a, 20).await, 0);
    let shown = state(&edge, r#"{"state":"ready"}"#).await;
    assert_eq!((&shown["available"], &shown["effective_weight"]), (&true.into(), &7.0.into()));
}
