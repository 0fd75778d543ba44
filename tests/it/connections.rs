//! The life of client connections and of the process: silence is bounded, gauges fall whatever breaks, a drain is polite.

use crate::support::{
    Answer, Client, DEADLINE, Edge, Gate, H2Client, Origin, Step, eventually, free_port, get, in_time, loopback,
    one_destination,
};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

const IN_FLIGHT: &str = "derbent_http_requests_in_flight{listener=\"web\"}";
const OPEN: &str = "derbent_downstream_connections{listener=\"web\"}";

#[tokio::test(flavor = "multi_thread")]
async fn given_a_client_that_sends_no_whole_head_when_it_stays_then_its_connection_is_closed_in_bounded_time() {
    let origin = Origin::named("").await;
    let edge = Edge::before(&origin).await;
    let silent = edge.connect().await;
    let mut half = edge.connect().await;
    half.send("GET / HTTP/1.1\r\nhost: h\r\nx-a:").await;
    let mut dripping = edge.connect().await;
    dripping.send("GET / HTTP/1.1\r\nx-a: ").await;
    edge.counts(OPEN, 3.0).await;
    let drip = async {
        while dripping.try_send(b"b").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
    };
    let silence = async |mut client: Client| client.read_to_end().await.unwrap_or_default();
    let (_, silent, half) =
        in_time("all three ends", async { tokio::join!(drip, silence(silent), silence(half)) }).await;
    assert!(!silent.starts_with(b"HTTP/1.1 2") && !half.starts_with(b"HTTP/1.1 2"));
    edge.counts(OPEN, 0.0).await;
    assert_eq!(edge.metric(IN_FLIGHT).await, Some(0.0));
    assert_eq!(origin.accepted(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_request_that_lasts_longer_than_a_head_may_when_answered_then_it_is_not_cut() {
    let gate = Gate::closed();
    let held = gate.clone();
    let origin = Origin::start(move |_| Answer::ok("late").after([Step::Wait(held.clone())])).await;
    let edge = Edge::before(&origin).await;
    let mut client = edge.connect().await;
    client.send("GET / HTTP/1.1\r\nhost: h\r\n\r\n").await;
    tokio::time::sleep(Duration::from_secs(11)).await;
    gate.open();
    assert_eq!(client.read_response().await.unwrap().text(), "late");
}

#[tokio::test(flavor = "multi_thread")]
async fn given_an_idle_time_of_a_listener_when_a_file_changes_it_then_connections_from_then_on_are_closed_after_it() {
    let origin = Origin::named("fine").await;
    let address = loopback(free_port());
    let idle = |time: &str| {
        let limits = format!("limits: {{ idle_timeout: {time} }}");
        let listener = format!("{{ address: \"{address}\", protocols: [http1, h2c], {limits} }}");
        format!("listeners: {{ web: {listener} }}\n{}", one_destination(&origin.url(), ""))
    };
    let edge = Edge::start(&idle("1h")).await;
    let mut before = Client::connect(address).await;
    assert_eq!(before.get("/", "").await.unwrap().status, 200);
    edge.reload(&idle("1500ms")).await;
    let asked = Instant::now();
    let mut after = Client::connect(address).await;
    let http2 = H2Client::connect(address).await;
    assert_eq!(after.get("/", "").await.unwrap().header("connection"), Some("keep-alive"));
    assert_eq!(http2.get(&format!("http://{address}/")).await.unwrap().status, 200);
    // Pingora counts whole seconds.
    assert_eq!(after.read_to_end().await.unwrap(), b"");
    assert!(asked.elapsed() >= Duration::from_secs(2), "{:?}", asked.elapsed());
    http2.left().await.unwrap();
    assert_eq!(before.get("/", "").await.unwrap().text(), "fine", "it keeps the time it came under");
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_client_that_stalls_in_its_body_when_the_time_is_over_then_it_is_cut_and_the_destination_not_blamed() {
    let origin = Origin::named("").await;
    let edge = Edge::start(&one_destination(&origin.url(), "request: { activity_timeout: 400ms }")).await;
    for _ in 0..5 {
        let mut client = edge.connect().await;
        client.send("POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 10\r\n\r\nhalf").await;
        let answer = client.read_response().await.unwrap();
        assert_eq!((answer.status, answer.header("connection")), (408, Some("close")));
        client.read_to_end().await.unwrap();
        eventually(DEADLINE, "the upstream request is given up", async || origin.open() == 0).await;
    }
    edge.counts("derbent_upstream_errors_total{cluster=\"app\",destination=\"one\",reason=\"client_abort\"}", 5.0)
        .await;
    let timeouts = "derbent_upstream_errors_total{cluster=\"app\",destination=\"one\",reason=\"read_timeout\"}";
    assert_eq!(edge.metric(timeouts).await, Some(0.0));
}

#[tokio::test(flavor = "multi_thread")]
async fn given_two_listeners_when_used_then_each_counts_its_own() {
    let origin = Origin::named("").await;
    let (one, two) = (loopback(free_port()), loopback(free_port()));
    let listeners = format!("listeners: {{ one: \"{one}\", two: \"{two}\" }}\n");
    let edge = Edge::start(&(listeners + &one_destination(&origin.url(), ""))).await;
    let mut clients = Vec::new();
    for address in [one, two, two] {
        let mut client = Client::connect(address).await;
        assert_eq!(client.get("/", "").await.unwrap().status, 200);
        clients.push(client);
    }
    for (listener, count) in [("one", 1.0), ("two", 2.0)] {
        let gauge = format!("derbent_downstream_connections{{listener=\"{listener}\"}}");
        edge.counts(&gauge, count).await;
        let total =
            format!("derbent_http_requests_total{{listener=\"{listener}\",route=\"all\",method=\"GET\",code=\"200\"}}");
        edge.counts(&total, count).await;
    }
    clients.clear();
    edge.counts("derbent_downstream_connections{listener=\"one\"}", 0.0).await;
    edge.counts("derbent_downstream_connections{listener=\"two\"}", 0.0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn given_breaks_of_every_kind_at_any_point_when_all_is_over_then_every_gauge_is_at_zero() {
    let origin = Origin::start(|request| {
        let big = || vec![b'x'; 300_000];
        match request.target().rsplit('/').next().unwrap_or_default() {
            "ok" => Answer::ok("fine"),
            "big" => {
                Answer::script([Step::send("HTTP/1.1 200 OK\r\ncontent-length: 300000\r\n\r\n"), Step::Send(big())])
            }
            "cut" => Answer::script([
                Step::send("HTTP/1.1 200 OK\r\ncontent-length: 900000\r\n\r\n"),
                Step::Send(big()),
                Step::Close,
            ]),
            "reset" => Answer::script([Step::Reset]),
            "silent" => Answer::script([Step::Wait(Gate::closed())]),
            "early" => Answer::script([Step::send("HTTP/1.1 413 No\r\ncontent-length: 2\r\n\r\nno")]),
            "garbage" => Answer::script([Step::send("garbage\r\n\r\n"), Step::Close]),
            _ => Answer::upgrade("websocket"),
        }
    })
    .await;
    let edge = Edge::start(&one_destination(&origin.url(), "request: { activity_timeout: 1s }")).await;
    let seed = fastrand::u64(..);
    eprintln!("seed {seed}");
    let address = edge.address();
    let breakers = (0..8).map(|task| tokio::spawn(break_off(address, fastrand::Rng::with_seed(seed ^ task), 40)));
    for breaker in breakers.collect::<Vec<_>>() {
        breaker.await.unwrap();
    }
    edge.counts(IN_FLIGHT, 0.0).await;
    edge.counts(OPEN, 0.0).await;
    edge.counts("derbent_upstream_requests_in_flight{cluster=\"app\",destination=\"one\"}", 0.0).await;
    assert_eq!(edge.destination("app", "one").await["in_flight"], 0);
    assert!(!edge.stderr().iter().any(|line| line.contains("panicked")), "{:#?}", edge.stderr());
    // All attempts are accounted for, each once.
    let metrics = edge.metrics().await;
    let sum = |name: &str| -> f64 {
        let samples = metrics.lines().filter(|line| line.starts_with(name));
        samples.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
    };
    let (answered, failed) = (sum("derbent_upstream_requests_total{"), sum("derbent_upstream_errors_total{"));
    assert!(answered > 0.0 && failed > 0.0, "{answered} answered, {failed} failed");
    assert!(sum("derbent_http_requests_total{") > 0.0);
}

/// Sends requests up to a random point, reads a random part of the answer, and leaves in a random way.
async fn break_off(address: SocketAddr, mut random: fastrand::Rng, times: usize) {
    let ends = ["ok", "big", "cut", "reset", "silent", "early", "garbage", "tunnel"];
    let heads = [
        "GET /{} HTTP/1.1\r\nhost: h\r\n\r\n",
        "HEAD /{} HTTP/1.1\r\nhost: h\r\n\r\n",
        "POST /{} HTTP/1.1\r\nhost: h\r\ncontent-length: 9\r\n\r\nsome body",
        "PUT /{} HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n4\r\nsome\r\n5\r\n body\r\n0\r\n\r\n",
        "GET /{} HTTP/1.1\r\nhost: h\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n",
        "GET /ok HTTP/1.1\r\nhost: h\r\n\r\nGET /{} HTTP/1.1\r\nhost: h\r\n\r\n",
    ];
    for _ in 0..times {
        let request = random.choice(heads).unwrap().replace("{}", random.choice(ends).unwrap());
        let mut client = Client::connect(address).await;
        let until = if random.bool() { request.len() } else { random.usize(0..request.len()) };
        // The proxy may be gone from the connection by then; that is one of the ways.
        let _ = client.try_send(&request.as_bytes()[..until]).await;
        if until == request.len() {
            let (kind, size) = (random.u8(0..4), random.usize(1..200_000));
            let read = async {
                match kind {
                    0 => drop(client.read_head().await),
                    1 => drop(client.read_exact(size).await),
                    2 => drop(client.read_response().await),
                    _ => {}
                }
            };
            // Some of these would wait for what never comes.
            let _ = tokio::time::timeout(Duration::from_millis(random.u64(0..200)), read).await;
        }
        match random.bool() {
            true => client.reset(),
            false => drop(client),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_request_in_flight_when_told_to_end_then_it_is_announced_and_the_request_finishes_first() {
    let gate = Gate::closed();
    let held = gate.clone();
    let origin = Origin::start(move |request| match request.target().as_str() {
        "/slow" => Answer::ok("late").after([Step::Wait(held.clone())]),
        _ => Answer::ok("fine"),
    })
    .await;
    let mut edge = Edge::before(&origin).await;
    let mut slow = edge.connect().await;
    slow.send("GET /slow HTTP/1.1\r\nhost: h\r\n\r\n").await;
    let mut kept = edge.connect().await;
    assert_ne!(kept.get("/", "").await.unwrap().header("connection"), Some("close"));
    eventually(DEADLINE, "the slow request arrives", async || origin.hits("/slow") == 1).await;
    let signalled = Instant::now();
    edge.signal("TERM");
    edge.logged(&["draining: SIGTERM"]).await;
    let ready = edge.admin_get("/ready").await;
    assert_eq!((ready.status, ready.text().as_str()), (503, "not ready: draining\n"));
    assert_eq!(edge.metric("derbent_draining").await, Some(1.0));
    // Whoever has not noticed yet is served, and sent elsewhere with the next request.
    for client in [&mut kept, &mut edge.connect().await] {
        let answer = client.get("/", "").await.unwrap();
        assert_eq!((answer.status, answer.header("connection")), (200, Some("close")));
        assert_eq!(client.read_to_end().await.unwrap(), b"");
    }
    // Past the announcement the process would be gone but for the request.
    eventually(DEADLINE, "3 s pass", async || signalled.elapsed() > Duration::from_secs(3)).await;
    assert_eq!(edge.admin_get("/ready").await.status, 503);
    gate.open();
    let answer = slow.read_response().await.unwrap();
    assert_eq!((answer.status, answer.text().as_str()), (200, "late"));
    assert_eq!(edge.ended().await.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_process_when_told_to_end_twice_then_it_ends_at_once_whatever_is_in_flight() {
    let origin = Origin::start(|_| Answer::script([Step::Wait(Gate::closed())])).await;
    let drain = "server: { drain: { end: 1h, kill: 2h } }\n";
    let mut edge = Edge::start(&(drain.to_owned() + &one_destination(&origin.url(), ""))).await;
    let mut client = edge.connect().await;
    client.send("GET / HTTP/1.1\r\nhost: h\r\n\r\n").await;
    eventually(DEADLINE, "the request arrives", async || origin.hits("/") == 1).await;
    edge.signal("TERM");
    edge.logged(&["draining: SIGTERM"]).await;
    edge.signal("TERM");
    edge.ended().await;
    assert!(client.read_response().await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn given_an_idle_process_when_told_to_end_by_any_signal_then_it_exits_with_0() {
    let origin = Origin::named("").await;
    let mut edges = Vec::new();
    for name in ["TERM", "INT", "QUIT"] {
        let edge = Edge::before(&origin).await;
        // An idle client does not hold it.
        let mut idle = edge.connect().await;
        assert_eq!(idle.get("/", "").await.unwrap().status, 200);
        edge.signal(name);
        edges.push((name, edge, idle));
    }
    for (name, mut edge, mut idle) in edges {
        assert_eq!(edge.ended().await.code(), Some(0), "{name}");
        assert!(edge.stderr().iter().any(|line| line.contains(&format!("draining: SIG{name}"))));
        let _ = idle.read_to_end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_request_that_never_ends_when_told_to_end_then_the_process_does_all_the_same() {
    let origin = Origin::start(|_| Answer::script([Step::Wait(Gate::closed())])).await;
    let mut edge = Edge::before(&origin).await;
    let mut client = edge.connect().await;
    client.send("GET / HTTP/1.1\r\nhost: h\r\n\r\n").await;
    eventually(DEADLINE, "the request arrives", async || origin.hits("/") == 1).await;
    edge.signal("TERM");
    assert_eq!(edge.ended().await.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn given_clients_that_keep_coming_when_told_to_end_then_it_closes_its_listeners_and_cuts_none() {
    let origin = Origin::start(|_| Answer::ok("fine").after([Step::Pause(Duration::from_millis(200))])).await;
    let mut edge = Edge::before(&origin).await;
    let address = edge.address();
    let clients: Vec<_> = (0..4)
        .map(|_| {
            tokio::spawn(async move {
                // Until the door is closed; something is in flight at every moment before.
                while let Ok(answer) = get(address, "/").await {
                    assert_eq!(answer.status, 200);
                }
            })
        })
        .collect();
    eventually(DEADLINE, "requests are coming", async || origin.hits("/") > 8).await;
    edge.signal("TERM");
    assert_eq!(edge.ended().await.code(), Some(0));
    let lines = edge.stderr();
    assert!(lines.iter().any(|line| line.contains("no request was cut")), "{lines:#?}");
    for client in clients {
        client.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_drain_when_a_hangup_comes_then_what_is_in_flight_still_ends_well() {
    let gate = Gate::closed();
    let held = gate.clone();
    let origin = Origin::start(move |_| Answer::ok("whole").after([Step::Wait(held.clone())])).await;
    let mut edge = Edge::before(&origin).await;
    let mut client = edge.connect().await;
    client.send("GET /slow HTTP/1.1\r\nhost: h\r\n\r\n").await;
    eventually(DEADLINE, "the request is at the origin", async || origin.hits("/slow") == 1).await;
    edge.signal("TERM");
    edge.logged(&["draining: SIGTERM"]).await;
    edge.signal("HUP");
    edge.logged(&["configuration reloaded"]).await;
    // Behind the announcement nobody reads the file any more.
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    edge.signal("HUP");
    tokio::time::sleep(Duration::from_millis(200)).await;
    gate.open();
    assert_eq!(client.read_response().await.expect("a whole answer").text(), "whole");
    assert!(edge.ended().await.success());
}
