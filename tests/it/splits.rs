//! A route that several clusters share: exactly, over retries and reloads.

use crate::support::{Client, Edge, Origin, free_port, loopback};
use serde_json::Value;

/// Route `all` splits; cluster `a` has a dead destination too, whose requests are tried again.
fn yaml(a: &Origin, b: &Origin, weights: [u32; 2], more: &str) -> String {
    let dead = loopback(free_port());
    let [to_a, to_b] = weights;
    format!(
        "access_log: {{ path: access }}\n\
         routes: {{ all: {{ split: [{{ cluster: a, weight: {to_a} }}, {{ cluster: b, weight: {to_b} }}], \
         transforms: [{{ path_remove_prefix: /api }}] }} }}\n\
         clusters:\n  a: {{ destinations: {{ dead: \"http://{dead}\", live: \"{}\" }}, load_balancing: FirstAlphabetical, \
         retry: {{ budget: {{ floor: 1000 }} }}, health: {{ passive: off }} }}\n  b: {{ destinations: [\"{}\"] }}\n{more}",
        a.url(),
        b.url()
    )
}

/// Who answered each of so many requests, one after the other.
async fn answers(client: &mut Client, requests: usize) -> String {
    let mut answers = String::new();
    for _ in 0..requests {
        let answer = client.get("/api/books", "").await.expect("an answer");
        assert_eq!(answer.status, 200);
        answers += &answer.text();
    }
    answers
}

fn count(answers: &str, name: char) -> usize {
    answers.chars().filter(|&of| of == name).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_split_when_requests_are_retried_and_the_file_is_read_again_then_it_stays_exact() {
    let (a, b) = (Origin::named("a").await, Origin::named("b").await);
    let edge = Edge::start(&yaml(&a, &b, [95, 5], "")).await;
    let mut client = edge.connect().await;
    let mut seen = answers(&mut client, 130).await;
    edge.reload(&yaml(&a, &b, [190, 10], "  more: { destinations: [\"http://127.0.0.1:1\"] }\n")).await;
    seen += &answers(&mut client, 70).await;
    for begin in 0..=100 {
        assert_eq!(count(&seen[begin..begin + 100], 'b'), 5, "from {begin} of {seen}");
    }
    assert!(a.requests().iter().chain(&b.requests()).all(|request| request.target() == "/books"));
    // Each request of `a` came to the dead one first, and was no other request for that.
    assert_eq!(edge.metric("derbent_upstream_retries_total{cluster=\"a\",reason=\"refused\"}").await, Some(190.0));
    let answered = "derbent_upstream_requests_total{cluster=\"b\",destination=\"";
    let metrics = edge.metrics().await;
    let of_b = metrics.lines().filter(|line| line.starts_with(answered) && line.ends_with("code_class=\"2xx\"} 10"));
    assert_eq!(of_b.count(), 1, "{metrics}");

    edge.reload(&yaml(&a, &b, [1, 1], "")).await;
    assert_eq!(answers(&mut client, 4).await, "abab");
    let mut clusters = String::new();
    crate::support::eventually(crate::support::DEADLINE, "all lines", async || {
        let log = std::fs::read_to_string(edge.directory().join("access")).unwrap_or_default();
        let line = |line: &str| serde_json::from_str::<Value>(line).ok()?["cluster"].as_str().map(str::to_owned);
        clusters = log.lines().filter_map(line).collect();
        clusters.len() == 204
    })
    .await;
    assert_eq!(clusters, seen + "abab");
}
