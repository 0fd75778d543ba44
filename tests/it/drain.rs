//! How the process takes its leave: phase by phase, by signals and by orders, with what is under way to its end.

use crate::support::{
    Answer, Client, DEADLINE, Edge, Gate, H2Client, H2Origin, H2Response, Origin, Step, derbent, eventually, free_port,
    loopback, one_destination,
};
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const SWITCH: &str = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
const UPGRADE: &str = "GET /chat HTTP/1.1\r\nhost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                       Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

fn within(drain: &str, rest: &str) -> String {
    format!("server: {{ drain: {drain} }}\n{rest}")
}

async fn told(edge: &Edge) -> Value {
    edge.admin_get("/api/v1/drain").await.json()
}

async fn in_phase(edge: &Edge, phase: &str) {
    eventually(DEADLINE, phase, async || told(edge).await["phase"] == phase).await;
}

async fn ctl_drain(edge: &Edge) -> (Option<i32>, String) {
    let output = derbent(["ctl", "drain", "--admin", &edge.admin().to_string()]).await;
    (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn given_load_on_kept_connections_when_told_to_end_then_every_request_is_answered_and_every_connection_told() {
    let origin = Origin::start(|_| Answer::ok("fine").after([Step::Pause(Duration::from_millis(3))])).await;
    let yaml = within("{ close_listeners: 1s, end: 20s, kill: 21s }", &one_destination(&origin.url(), ""));
    let mut edge = Edge::start(&yaml).await;
    let (address, told_to_close) = (edge.address(), Arc::new(AtomicUsize::new(0)));
    let clients: Vec<_> = (0..8)
        .map(|_| {
            let told_to_close = told_to_close.clone();
            tokio::spawn(async move {
                let mut client = Client::connect(address).await;
                loop {
                    let answer = client.get("/", "").await.expect("what a kept connection asks is answered");
                    assert_eq!((answer.status, answer.text().as_str()), (200, "fine"));
                    if answer.header("connection") != Some("close") {
                        continue;
                    }
                    assert_eq!(client.read_to_end().await.expect("closed as it was told"), b"");
                    // Once is enough: a new connection may come too late.
                    return told_to_close.fetch_add(1, Ordering::SeqCst);
                }
            })
        })
        .collect();
    eventually(DEADLINE, "requests are coming", async || origin.hits("/") > 100).await;
    edge.signal("TERM");
    for client in clients {
        client.await.unwrap();
    }
    assert_eq!(told_to_close.load(Ordering::SeqCst), 8);
    assert_eq!(edge.ended().await.code(), Some(0));
    edge.logged(&["INFO", "draining: SIGTERM; listeners close in 1s, what is left then ends within 20s"]).await;
    edge.logged(&["INFO", "listeners close after ", "left are 0 connections"]).await;
    edge.logged(&["INFO", "drained after ", "no request was cut"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn given_requests_in_flight_or_in_a_queue_when_told_to_end_then_their_answers_are_their_connections_last() {
    let gate = Gate::closed();
    let held = gate.clone();
    let origin = Origin::start(move |_| Answer::ok("fine").after([Step::Wait(held.clone())])).await;
    let yaml = format!(
        "routes: {{ all: {{ cluster: app }} }}\nclusters: {{ app: {{ destinations: {{ a: {{ address: \"{}\", max_requests: 1 }} }}, \
         queue: {{ max: 1, deadline: 4s }} }} }}\n",
        origin.url()
    );
    let mut edge = Edge::start(&within("{ close_listeners: 6s, end: 20s, kill: 21s }", &yaml)).await;
    let (mut in_flight, mut waits) = (edge.connect().await, edge.connect().await);
    in_flight.send("GET /a HTTP/1.1\r\nhost: h\r\n\r\n").await;
    eventually(DEADLINE, "it is in flight", async || origin.hits("/a") == 1).await;
    waits.send("GET /b HTTP/1.1\r\nhost: h\r\n\r\n").await;
    let queued = "derbent_cluster_queue_length{cluster=\"app\"}";
    eventually(DEADLINE, "it waits", async || edge.metric(queued).await == Some(1.0)).await;
    edge.signal("TERM");
    in_phase(&edge, "announced").await;
    let refused = waits.read_response().await.expect("an answer");
    assert_eq!((refused.status, refused.header("connection")), (503, Some("close")));
    gate.open();
    let answer = in_flight.read_response().await.expect("an answer");
    assert_eq!((answer.status, answer.header("connection")), (200, Some("close")));
    for client in [&mut waits, &mut in_flight] {
        assert_eq!(client.read_to_end().await.expect("closed as it was told"), b"");
    }
    assert_eq!(edge.ended().await.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_websocket_when_told_to_end_then_it_goes_on_until_the_end_and_is_counted_as_left() {
    let origin = Origin::start(|_| Answer::script([Step::send(SWITCH), Step::Echo])).await;
    let yaml = within("{ close_listeners: 200ms, end: 3s, kill: 30s }", &one_destination(&origin.url(), ""));
    let mut edge = Edge::start(&yaml).await;
    let mut client = edge.connect().await;
    client.send(UPGRADE).await;
    assert_eq!(client.read_head().await.unwrap().status, 101);
    assert_eq!(edge.metric("derbent_downstream_tunnels{listener=\"web\"}").await, Some(1.0));
    let signalled = Instant::now();
    edge.signal("TERM");
    in_phase(&edge, "closing").await;
    let left = &told(&edge).await["left"];
    assert_eq!(
        (&left["tunnels"], &left["requests_in_flight"], &left["connections"]),
        (&1.into(), &1.into(), &1.into())
    );
    assert_eq!(edge.metric("derbent_lifecycle_phase{phase=\"closing\"}").await, Some(1.0));
    assert_eq!(edge.admin_get("/health").await.status, 200);
    assert!(Client::try_connect(edge.address()).await.is_err(), "the listeners are closed");
    let mut echoes = 0;
    while client.try_send(b"?").await.is_ok() && client.read_exact(1).await.is_ok_and(|byte| byte == b"?") {
        echoes += 1;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(signalled.elapsed() >= Duration::from_secs(3) && echoes > 0, "{:?}, {echoes}", signalled.elapsed());
    assert_eq!(edge.ended().await.code(), Some(0));
    edge.logged(&["WARN", "ending after ", "1 request is cut"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn given_an_http2_stream_when_told_to_end_then_goaway_comes_at_once_and_the_stream_has_until_the_end() {
    let origin = H2Origin::start().await;
    let address = loopback(free_port());
    let yaml = format!(
        "listeners: {{ web: {{ address: \"{address}\", protocols: [http1, h2c] }} }}\n{}",
        one_destination(&format!("http://{}", origin.address()), "request: { version: 2, version_policy: Exact }")
    );
    let mut edge = Edge::start(&within("{ close_listeners: 60s, end: 70s, kill: 80s }", &yaml)).await;
    let client = H2Client::connect(address).await;
    let request = http::Request::post(format!("http://{address}/s/stream")).body(()).unwrap();
    let (mut messages, response) = client.open(request).await;
    let idle = H2Client::connect(address).await;
    edge.signal("TERM");
    // A minute before anything else happens.
    idle.left().await.unwrap();
    assert_eq!(told(&edge).await["phase"], "announced");
    messages.send_data(bytes::Bytes::from("in flight"), true).unwrap();
    assert_eq!(H2Response::read(response).await.unwrap().text(), "in flight");
    client.closed().await.unwrap();
    edge.signal("INT");
    assert_eq!(edge.ended().await.code(), Some(0));
    edge.logged(&["INFO", "SIGINT again: no request was cut"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn given_an_order_when_drained_then_it_is_told_who_ordered_and_a_signal_after_it_cuts_nothing() {
    let gate = Gate::closed();
    let held = gate.clone();
    let origin = Origin::start(move |_| Answer::ok("late").after([Step::Wait(held.clone())])).await;
    let yaml = within("{ close_listeners: 500ms, end: 50s, kill: 55s }", &one_destination(&origin.url(), ""));
    let mut edge = Edge::start(&yaml).await;
    let before = told(&edge).await;
    assert_eq!((&before["phase"], &before["why"], &before["ends_by"]), (&"ready".into(), &Value::Null, &Value::Null));
    let mut client = edge.connect().await;
    client.send("GET /slow HTTP/1.1\r\nhost: h\r\n\r\n").await;
    eventually(DEADLINE, "the request arrives", async || origin.hits("/slow") == 1).await;
    let (code, out) = ctl_drain(&edge).await;
    assert!(code == Some(0) && out.starts_with("draining (ordered by 127.0.0.1:"), "{out}");
    assert!(out.contains("1 requests in flight"), "{out}");
    let ready = edge.admin_get("/ready").await;
    assert_eq!((ready.status, ready.text().as_str()), (503, "not ready: draining\n"));
    in_phase(&edge, "closing").await;
    // The container's end after its preStop.
    edge.signal("TERM");
    let begun = told(&edge).await["begun"].clone();
    let (code, again) = ctl_drain(&edge).await;
    assert!(code == Some(0) && begun.is_string(), "{again}");
    assert_eq!(told(&edge).await["begun"], begun, "ordered twice, begun once");
    gate.open();
    let answer = client.read_response().await.unwrap();
    assert_eq!((answer.status, answer.text().as_str()), (200, "late"));
    assert_eq!(edge.ended().await.code(), Some(0));
    edge.logged(&["INFO", "draining: ordered by 127.0.0.1:"]).await;
    edge.logged(&["INFO", "no request was cut"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn given_requests_that_are_cut_when_the_drain_ends_then_each_has_its_access_line_with_the_reason() {
    let half = "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf";
    let never = || Step::Wait(Gate::closed());
    let origin = Origin::start(move |request| match request.target().as_str() {
        "/chat" => Answer::script([Step::send(SWITCH), Step::Echo]),
        "/half" => Answer::script([Step::send(half), never()]),
        _ => Answer::script([never()]),
    })
    .await;
    let address = loopback(free_port());
    let yaml = format!(
        "access_log: {{ path: access }}\nlisteners: {{ web: {{ address: \"{address}\", protocols: [http1, h2c] }} }}\n{}",
        one_destination(&origin.url(), "")
    );
    let mut edge = Edge::start(&within("{ close_listeners: 100ms, end: 600ms, kill: 20s }", &yaml)).await;
    let mut clients = Vec::new();
    for head in [UPGRADE, "GET /half HTTP/1.1\r\nhost: h\r\n\r\n", "GET /never HTTP/1.1\r\nhost: h\r\n\r\n"] {
        let mut client = Client::connect(address).await;
        client.send(head).await;
        clients.push(client);
    }
    assert_eq!(clients[0].read_head().await.unwrap().status, 101);
    assert_eq!(clients[1].read_head().await.unwrap().status, 200);
    // One that waits between two requests is nobody's.
    let idle = Client::connect(address).await;
    let http2 = H2Client::connect(address).await;
    let request = http::Request::get(format!("http://{address}/stream")).body(()).unwrap();
    let (_messages, _response) = http2.open(request).await;
    eventually(DEADLINE, "all are there", async || origin.hits("/never") + origin.hits("/stream") == 2).await;
    edge.signal("TERM");
    assert_eq!(edge.ended().await.code(), Some(0));
    edge.logged(&["WARN", "ending after ", "4 requests are cut"]).await;
    let lines = std::fs::read_to_string(edge.directory().join("access")).unwrap();
    let mut cut: Vec<_> = lines
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .map(|line| (line["path"].as_str().unwrap().to_owned(), line["status"].clone(), line["failed"].clone()))
        .collect();
    cut.sort_by(|one, other| one.0.cmp(&other.0));
    let line = |path: &str, status: u16| (path.to_owned(), status.into(), "drain_ended".into());
    assert_eq!(cut, [line("/chat", 101), line("/half", 200), line("/never", 499), line("/stream", 499)]);
    let warned = edge.stderr().into_iter().filter(|line| line.contains("ERROR") || line.contains("WARN")).count();
    assert_eq!(warned, 1, "{:#?}", edge.stderr());
    drop((clients, idle));
}
