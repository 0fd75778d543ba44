//! `/api/v1/requests`: what just went wrong, without any access log.

use crate::support::{Answer, Edge, Origin, derbent, free_port, loopback};
use serde_json::{Value, json};

/// The requests shown, once there are so many.
async fn shown(edge: &Edge, count: usize) -> Vec<Value> {
    let mut requests = Vec::new();
    crate::support::eventually(crate::support::DEADLINE, &format!("{count} requests"), async || {
        let answer = edge.admin_get("/api/v1/requests").await.json();
        requests = answer["requests"].as_array().cloned().unwrap_or_default();
        requests.len() >= count
    })
    .await;
    assert_eq!(requests.len(), count, "{requests:#?}");
    requests
}

#[tokio::test(flavor = "multi_thread")]
async fn given_requests_when_some_are_retried_or_fail_then_those_and_each_of_their_attempts_are_shown_the_newest_first()
{
    let origin = Origin::start(|request| match request.target().as_str() {
        "/ill" => Answer::new(503, "", "ill"),
        _ => Answer::ok("fine"),
    })
    .await;
    let dead = loopback(free_port());
    let edge = Edge::start(&format!(
        "routes: {{ both: {{ match: {{ path: /both }}, cluster: both }}, dead: {{ match: {{ path: /dead }}, cluster: dead }}, \
         ill: {{ match: {{ path: /ill }}, cluster: fine }}, fine: {{ match: {{ path: /fine }}, cluster: fine }} }}\n\
         clusters:\n  both: {{ destinations: {{ a: \"http://{dead}\", b: \"{0}\" }}, load_balancing: FirstAlphabetical }}\n  \
         dead: {{ destinations: {{ a: \"http://{dead}\" }}, retry: off }}\n  fine: {{ destinations: {{ b: \"{0}\" }} }}\n",
        origin.url()
    ))
    .await;
    let mut client = edge.connect().await;
    // Neither a good answer, a destination's own 503, nor what the client did wrong.
    for (path, status) in [("/fine", 200), ("/ill", 503), ("/nowhere", 404)] {
        assert_eq!(client.get(path, "").await.expect("an answer").status, status);
    }
    assert_eq!(client.get("/both?token=s3cret", "x-request-id: r-1\r\n").await.expect("an answer").status, 200);
    assert_eq!(client.get("/dead", "x-request-id: r-2\r\n").await.expect("an answer").status, 502);

    let shown = shown(&edge, 2).await;
    let [second, first] = &shown[..] else { panic!("two") };
    for (key, value) in [
        ("request_id", json!("r-1")),
        ("method", json!("GET")),
        ("path", json!("/both")),
        ("route", json!("both")),
        ("cluster", json!("both")),
        ("status", json!(200)),
        ("failed", Value::Null),
        ("host", Value::Null),
    ] {
        assert_eq!(first[key], value, "{key} in {first}");
    }
    let attempts = first["attempts"].as_array().expect("a list");
    let told = |attempt: &Value| json!([attempt["destination"], attempt["outcome"], attempt["reused"]]);
    let told: Vec<Value> = attempts.iter().map(told).collect();
    assert_eq!(told, [json!(["a", "refused", null]), json!(["b", 200, false])]);
    assert!(attempts.iter().all(|attempt| attempt["waited_ms"].is_number()), "{first}");
    assert!(first["time"].is_string() && first["duration_ms"].is_number(), "{first}");
    assert_eq!((&second["status"], &second["failed"]), (&json!(502), &json!("destination_failed")));
    assert_eq!(second["attempts"].as_array().map(Vec::len), Some(1), "{second}");

    let output = derbent(["ctl", "--admin", &edge.admin().to_string(), "requests"]).await;
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    let lines: Vec<&str> = told.lines().collect();
    assert_eq!((output.status.code(), lines.len()), (Some(0), 5), "{told}");
    assert!(lines[0].contains("  GET /dead  502 in ") && lines[0].ends_with(", cluster dead, request r-2"), "{told}");
    assert!(lines[1].starts_with("  a  refused after "), "{told}");
    assert!(lines[4].starts_with("  b  200 after ") && lines[4].contains(", connected in "), "{told}");
}
