//! Failovers and canaries, seen from both sides: who is asked, in which order, with what.

use crate::support::{Answer, Client, DEADLINE, Edge, Load, Origin, Request, Response, derbent, eventually};
use serde_json::json;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// Destinations by name and role; `more` are further keys of the cluster, in flow style.
async fn before(destinations: &[(&str, &str, &Origin)], more: &str) -> Edge {
    let written = destinations
        .iter()
        .map(|(id, role, origin)| format!("{id}: {{ address: \"{}\", role: {role} }}", origin.url()));
    let written: Vec<String> = written.collect();
    Edge::start(&format!(
        "routes: {{ all: {{ cluster: app }} }}\nclusters: {{ app: {{ destinations: {{ {} }}, {more} }} }}\n",
        written.join(", ")
    ))
    .await
}

async fn ask(edge: &Edge, method: &str, headers: &str, body: &str) -> Response {
    let mut client = edge.connect().await;
    let length = body.len();
    client.send(format!("{method} /x HTTP/1.1\r\nhost: h\r\n{headers}content-length: {length}\r\n\r\n{body}")).await;
    client.read_response().await.expect("an answer")
}

type Order = Arc<Mutex<Vec<(&'static str, Request)>>>;

/// It answers 503 and notes who was asked.
async fn noted(name: &'static str, order: &Order) -> Origin {
    let order = order.clone();
    Origin::start(move |request| {
        order.lock().expect("no panic").push((name, request.clone()));
        Answer::new(503, "", name)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn given_attempts_3_and_two_for_each_failover_when_all_fail_then_p_p_p_f1_f1_f2_f2_each_with_the_clients_own_request()
 {
    let order = Order::default();
    let [p, f1, f2] = [noted("P", &order).await, noted("F1", &order).await, noted("F2", &order).await];
    // Written before the primary, and in the other order than their names: the file's order counts among failovers only.
    let destinations = [("y", "failover", &f1), ("p", "primary", &p), ("b", "failover", &f2)];
    let more = "retry: { on: [\"503\"], delay: 0s }, failover: { attempts_per_destination: 2 }";
    let edge = before(&destinations, more).await;
    let answer = ask(&edge, "PUT", "x-own: mine\r\n", "body").await;
    assert_eq!((answer.status, answer.text().as_str()), (503, "F2"));
    let seen = std::mem::take(&mut *order.lock().expect("no panic"));
    assert_eq!(seen.iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["P", "P", "P", "F1", "F1", "F2", "F2"]);
    let ids: Vec<_> = seen.iter().map(|(_, request)| request.header("x-request-id")).collect();
    for (name, request) in &seen {
        assert_eq!((request.header("x-own").as_deref(), request.target().as_str()), (Some("mine"), "/x"), "{name}");
    }
    for origin in [&p, &f1, &f2] {
        assert!(origin.requests().iter().all(|request| request.body == b"body"));
    }
    assert!(ids.iter().all(|id| id == &ids[0]));
    edge.counts("derbent_failovers_total{cluster=\"app\"}", 1.0).await;

    // A POST was sent once.
    assert_eq!(ask(&edge, "POST", "", "body").await.text(), "P");
    assert_eq!(order.lock().expect("no panic").len(), 1);
    order.lock().expect("no panic").clear();
    let off = before(&destinations, "retry: { on: [\"503\"], delay: 0s }, failover: { enabled: false }").await;
    assert_eq!(ask(&off, "GET", "", "").await.text(), "P");
    let seen: Vec<_> = order.lock().expect("no panic").iter().map(|(name, _)| *name).collect();
    assert_eq!(seen, ["P", "P", "P"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn given_failovers_when_all_primaries_die_under_load_then_no_request_fails_and_the_primaries_come_back() {
    let mut p1 = Origin::named("p").await;
    let mut p2 = Origin::named("p").await;
    let f = Origin::named("f").await;
    let more = "health: { active: { type: tcp, interval: 100ms } }";
    let edge = before(&[("p1", "primary", &p1), ("f", "failover", &f), ("p2", "primary", &p2)], more).await;
    let load = Load::on(edge.address(), 8);
    load.more(200).await;
    assert_eq!(f.hits("/"), 0);
    p1.stop().await;
    p2.stop().await;
    load.more(500).await;
    assert!(f.hits("/") > 0);
    assert_eq!(edge.metric("derbent_cluster_panic_mode{cluster=\"app\"}").await, Some(0.0));
    p1.restart().await;
    eventually(DEADLINE, "the primary serves", async || p1.hits("/") > 0 && edge.get("/").await.text() == "p").await;
    load.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_canary_of_5_percent_when_a_thousand_requests_come_then_exactly_fifty_of_them_and_a_match_besides() {
    let [p, c] = [Origin::named("p").await, Origin::named("c").await];
    let more = "canary: { percent: 5%, match: { header: { name: X-Canary, values: [\"1\"] } } }";
    let edge = before(&[("p", "primary", &p), ("c", "canary", &c)], more).await;
    let clients = (0..4).map(|_| {
        let address = edge.address();
        tokio::spawn(async move {
            let mut client = Client::connect(address).await;
            for _ in 0..250 {
                assert_eq!(client.get("/", "").await.expect("an answer").status, 200);
            }
        })
    });
    for client in clients.collect::<Vec<_>>() {
        client.await.expect("all answered");
    }
    assert_eq!((p.hits("/"), c.hits("/")), (950, 50));
    for _ in 0..3 {
        assert_eq!(ask(&edge, "GET", "x-canary: 1\r\n", "").await.text(), "c");
    }
    edge.counts("derbent_canary_requests_total{cluster=\"app\",arm=\"canary\"}", 53.0).await;
    edge.counts("derbent_canary_requests_total{cluster=\"app\",arm=\"primary\"}", 950.0).await;
    edge.counts("derbent_canary_share{cluster=\"app\"}", 0.05).await;

    let admin = edge.admin().to_string();
    let ctl = async |share: &str| derbent(["ctl", "--admin", &admin, "canary", "app", share]).await;
    let told = ctl("100%").await;
    let text = String::from_utf8(told.stdout).expect("text");
    assert!(text.starts_with("app: 1 of 1 available, canary 100% by order\n") && text.contains("c (canary)"), "{text}");
    assert_eq!(edge.get("/").await.text(), "c");
    edge.logged(&["the canary of cluster app gets 100% of the new requests"]).await;
    let told = ctl("default").await;
    assert!(told.status.success());
    edge.counts("derbent_canary_share{cluster=\"app\"}", 0.05).await;
    let canary = edge.admin_get("/api/v1/clusters/app").await.json()["canary"].clone();
    assert_eq!(canary, json!({ "percent": 5.0, "ordered": false, "cooldown_left_s": null }));
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_canary_that_fails_when_asked_then_no_client_sees_it_and_it_rests_and_comes_back_by_itself() {
    let p = Origin::named("p").await;
    let fails = Arc::new(AtomicBool::new(true));
    let failing = fails.clone();
    let c = Origin::start(move |_| match failing.load(Ordering::SeqCst) {
        true => Answer::new(503, "", "c"),
        false => Answer::ok("c"),
    })
    .await;
    let more = "retry: { on: [\"503\"] }, canary: { percent: 50%, cooldown: 2s }, health: { passive: { count: [connect, \"503\"] } }";
    let edge = before(&[("p", "primary", &p), ("c", "canary", &c)], more).await;
    for _ in 0..6 {
        assert_eq!(edge.get("/").await.text(), "p");
    }
    assert_eq!(c.hits("/"), 1);
    edge.counts("derbent_canary_cooldown{cluster=\"app\"}", 1.0).await;
    edge.logged(&["canary c of cluster app failed (it answered 503): all requests go to the primaries for 2s"]).await;
    fails.store(false, Ordering::SeqCst);
    edge.logged(&["the canary of cluster app gets requests again"]).await;
    eventually(DEADLINE, "the canary serves", async || edge.get("/").await.text() == "c").await;
    edge.counts("derbent_canary_cooldown{cluster=\"app\"}", 0.0).await;
}
