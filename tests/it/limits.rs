//! What is in progress at a time, and what waits: places, connections, and clients that leave.

use crate::support::{
    Answer, Client, DEADLINE, Edge, Gate, H2Client, H2Origin, Origin, Response, Step, eventually, free_port, loopback,
};
use http::Request;
use std::time::{Duration, Instant};

const LENGTH: &str = "derbent_cluster_queue_length{cluster=\"app\"}";
const IN_FLIGHT: &str = "derbent_upstream_requests_in_flight{cluster=\"app\",destination=\"one\"}";

fn queued(result: &str) -> String {
    format!("derbent_cluster_queued_total{{cluster=\"app\",result=\"{result}\"}}")
}

fn errors(reason: &str) -> String {
    format!("derbent_upstream_errors_total{{cluster=\"app\",destination=\"one\",reason=\"{reason}\"}}")
}

/// Answers with the target when the gate is open.
async fn gated(gate: &Gate) -> Origin {
    let gate = gate.clone();
    Origin::start(move |request| Answer::ok(&request.target()).after([Step::Wait(gate.clone())])).await
}

/// One destination that takes `places` requests at a time; `more` are further keys of the cluster.
async fn before(origin: &Origin, places: u32, more: &str) -> Edge {
    Edge::start(&with_places(origin, places, more)).await
}

fn with_places(origin: &Origin, places: u32, more: &str) -> String {
    format!(
        "routes: {{ all: {{ cluster: app }} }}\nclusters: {{ app: {{ destinations: {{ one: {{ address: \"{}\", \
         max_requests: {places} }} }}, {more} }} }}\n",
        origin.url()
    )
}

async fn sent(edge: &Edge, request: &str) -> Client {
    let mut client = edge.connect().await;
    client.send(request).await;
    client
}

async fn get(edge: &Edge, path: &str) -> Client {
    sent(edge, &format!("GET {path} HTTP/1.1\r\nhost: h\r\n\r\n")).await
}

async fn answer(mut client: Client) -> Response {
    client.read_response().await.expect("an answer")
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_queue_when_places_come_free_then_requests_are_served_in_the_order_they_came() {
    let gate = Gate::closed();
    let origin = gated(&gate).await;
    let edge = before(&origin, 1, "queue: { max: 3, deadline: 1m }").await;
    let mut clients = vec![get(&edge, "/0").await];
    edge.counts(IN_FLIGHT, 1.0).await;
    for n in 1..4 {
        let request = format!("PUT /{n} HTTP/1.1\r\nhost: h\r\ncontent-length: 4\r\n\r\nbody");
        clients.push(sent(&edge, &request).await);
        edge.counts(LENGTH, f64::from(n)).await;
    }
    let turned_away = edge.get("/4").await;
    assert_eq!((turned_away.status, turned_away.header("retry-after")), (503, Some("1")));
    gate.open();
    for (n, client) in clients.into_iter().enumerate() {
        let answer = answer(client).await;
        assert_eq!((answer.status, answer.text()), (200, format!("/{n}")));
    }
    let targets: Vec<String> = origin.requests().iter().map(|request| request.target()).collect();
    assert_eq!(targets, ["/0", "/1", "/2", "/3"]);
    assert!(origin.requests()[1..].iter().all(|request| request.body == b"body" && request.complete));
    edge.counts(&queued("served"), 3.0).await;
    edge.counts(&queued("full"), 1.0).await;
    edge.counts(LENGTH, 0.0).await;
    edge.counts("derbent_http_requests_rejected_total{route=\"all\",reason=\"overload\"}", 1.0).await;
    assert_eq!(edge.metric(IN_FLIGHT).await, Some(0.0));
}

/// A trial that is refused for want of a place must wake nobody, least of all the request that asked for it.
#[tokio::test(flavor = "multi_thread")]
async fn given_a_trial_under_way_when_more_wait_in_a_queue_then_their_deadline_holds_and_the_others_go_on() {
    let gate = Gate::closed();
    let (mut half_open, other) = (Origin::named("half-open").await, Origin::named("other").await);
    let edge = Edge::start(&format!(
        "server: {{ threads: 1 }}\nroutes: {{ all: {{ cluster: app }} }}\nclusters: {{ app: {{ load_balancing: RoundRobin, destinations: {{ \
         one: {{ address: \"{}\", max_requests: 2 }}, two: {{ address: \"{}\", max_requests: 1 }} }}, queue: {{ max: 9, deadline: 500ms }}, health: {{ \
         passive: {{ detectors: [{{ policy: ConsecutiveFailures, failures: 1 }}], reactivation: {{ period: 100ms }} }} }} }} }}\n",
        half_open.url(),
        other.url()
    ))
    .await;
    half_open.stop().await;
    eventually(DEADLINE, "it is out", async || {
        edge.get("/").await;
        edge.destination("app", "one").await["state"] != "healthy"
    })
    .await;
    for origin in [&half_open, &other] {
        let gate = gate.clone();
        origin.answer_by(move |_| Answer::ok("late").after([Step::Wait(gate.clone())]));
    }
    half_open.restart().await;
    eventually(DEADLINE, "it is half-open", async || edge.destination("app", "one").await["state"] == "half_open")
        .await;
    let under_way = [get(&edge, "/trial").await, get(&edge, "/other").await];
    eventually(DEADLINE, "both are asked", async || half_open.hits("/") + other.hits("/late") + other.hits("/") > 1)
        .await;
    edge.counts(IN_FLIGHT, 1.0).await;
    for _ in 0..2 {
        assert_eq!(answer(get(&edge, "/more").await).await.status, 503);
    }
    gate.open();
    for client in under_way {
        assert_eq!(answer(client).await.text(), "late");
    }
    edge.counts(IN_FLIGHT, 0.0).await;
    edge.counts(LENGTH, 0.0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_queue_when_its_deadline_is_over_then_503_and_the_connection_is_kept() {
    let gate = Gate::closed();
    let origin = gated(&gate).await;
    let edge = before(&origin, 1, "queue: { max: 10, deadline: 300ms }").await;
    let held = get(&edge, "/held").await;
    edge.counts(IN_FLIGHT, 1.0).await;
    let mut client = edge.connect().await;
    for body in
        ["content-length: 0\r\n\r\n", "content-length: 4\r\n\r\nbody", "transfer-encoding: chunked\r\n\r\n0\r\n\r\n"]
    {
        let began = Instant::now();
        client.send(format!("POST /late HTTP/1.1\r\nhost: h\r\n{body}")).await;
        let late = client.read_response().await.expect("an answer");
        assert_eq!((late.status, late.header("retry-after")), (503, Some("1")));
        assert!(late.text().contains("every destination that may take it is at its limit"), "{}", late.text());
        assert!(began.elapsed() >= Duration::from_millis(300));
    }
    edge.counts(&queued("deadline"), 3.0).await;
    gate.open();
    assert_eq!(answer(held).await.text(), "/held");
    client.send("GET /next HTTP/1.1\r\nhost: h\r\n\r\n").await;
    assert_eq!(client.read_response().await.expect("an answer").text(), "/next");
    assert_eq!(origin.hits("/late"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn given_clients_in_a_queue_when_they_leave_then_their_places_are_free_at_once() {
    let gate = Gate::closed();
    let origin = gated(&gate).await;
    let edge = before(&origin, 1, "queue: { max: 2, deadline: 1m }").await;
    let held = get(&edge, "/held").await;
    edge.counts(IN_FLIGHT, 1.0).await;
    let mut gone = 0.0;
    for request in [
        "GET /gone HTTP/1.1\r\nhost: h\r\n\r\n",
        "POST /gone HTTP/1.1\r\nhost: h\r\ncontent-length: 4\r\n\r\nbody",
        "POST /gone HTTP/1.1\r\nhost: h\r\ncontent-length: 9\r\n\r\nhalf",
    ] {
        for reset in [false, true] {
            let client = sent(&edge, request).await;
            edge.counts(LENGTH, 1.0).await;
            if reset {
                client.reset();
            } else {
                drop(client);
            }
            gone += 1.0;
            edge.counts(&queued("client_left"), gone).await;
            edge.counts(LENGTH, 0.0).await;
        }
    }
    let last = get(&edge, "/last").await;
    edge.counts(LENGTH, 1.0).await;
    gate.open();
    assert_eq!((answer(held).await.text(), answer(last).await.text()), ("/held".into(), "/last".into()));
    assert_eq!(origin.hits("/gone"), 0);
    edge.counts("derbent_http_requests_in_flight{listener=\"web\"}", 0.0).await;
    assert!(!edge.stderr().iter().any(|line| line.contains("WARN")), "{:#?}", edge.stderr());
}

/// HTTP/2: one stream leaves, its neighbours stay.
#[tokio::test(flavor = "multi_thread")]
async fn given_a_stream_in_a_queue_when_it_is_reset_then_its_place_is_free_and_the_others_are_served() {
    let gate = Gate::closed();
    let origin = gated(&gate).await;
    let address = loopback(free_port());
    let listeners = format!("listeners: {{ web: {{ address: \"{address}\", protocols: [http1, h2c] }} }}\n");
    let edge = Edge::start(&(listeners + &with_places(&origin, 1, "queue: { max: 5, deadline: 1m }"))).await;
    let client = H2Client::connect(address).await;
    let request = |path| Request::post(format!("http://h{path}")).body(()).expect("a request");
    let (mut held, held_answer) = client.open(request("/held")).await;
    held.send_data("body".into(), true).expect("open");
    edge.counts(IN_FLIGHT, 1.0).await;
    let (leaving, never) = client.open(request("/gone")).await;
    edge.counts(LENGTH, 1.0).await;
    let (mut staying, answered) = client.open(request("/stays")).await;
    edge.counts(LENGTH, 2.0).await;
    drop((leaving, never));
    edge.counts(&queued("client_left"), 1.0).await;
    edge.counts(LENGTH, 1.0).await;
    staying.send_data("body".into(), true).expect("open");
    gate.open();
    for (answer, text) in [(held_answer, "/held"), (answered, "/stays")] {
        let answer = crate::support::H2Response::read(answer).await.expect("an answer");
        assert_eq!((answer.status, answer.text()), (200, text.to_owned()));
    }
    assert_eq!(origin.hits("/gone"), 0);
    assert!(origin.requests().iter().all(|request| request.body == b"body"));
}

/// A queue that was full of work outlives the configuration.
#[tokio::test(flavor = "multi_thread")]
async fn given_a_queue_when_the_file_is_reloaded_then_who_waits_goes_on_waiting_and_is_served() {
    let gate = Gate::closed();
    let origin = gated(&gate).await;
    let edge = before(&origin, 1, "queue: { max: 5, deadline: 1m }").await;
    let held = get(&edge, "/held").await;
    edge.counts(IN_FLIGHT, 1.0).await;
    let waits = get(&edge, "/waits").await;
    edge.counts(LENGTH, 1.0).await;
    edge.reload(&with_places(&origin, 1, "queue: { max: 6, deadline: 1m }")).await;
    let later = get(&edge, "/later").await;
    edge.counts(LENGTH, 2.0).await;
    gate.open();
    for (client, path) in [(held, "/held"), (waits, "/waits"), (later, "/later")] {
        assert_eq!(answer(client).await.text(), path);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn given_max_connections_when_all_are_in_use_then_the_next_attempt_waits_and_then_503_that_nobody_is_blamed_for()
{
    let gate = Gate::closed();
    let origin = gated(&gate).await;
    let edge = before(&origin, 100, "connection: { max_connections: 2, connect_timeout: 1s }, retry: off").await;
    let held = [get(&edge, "/1").await, get(&edge, "/2").await];
    eventually(DEADLINE, "both arrived", async || origin.requests().len() == 2).await;
    let began = Instant::now();
    let turned_away = edge.get("/3").await;
    assert_eq!((turned_away.status, turned_away.header("retry-after")), (503, Some("1")));
    assert!(began.elapsed() >= Duration::from_secs(1));
    let waits = get(&edge, "/4").await;
    edge.counts(IN_FLIGHT, 3.0).await;
    gate.open();
    for (client, path) in held.into_iter().chain([waits]).zip(["/1", "/2", "/4"]) {
        assert_eq!(answer(client).await.text(), path);
    }
    // A place may be free a moment before its connection is back in the pool.
    assert!(origin.accepted() <= 3 && origin.hits("/3") == 0, "{}", origin.accepted());
    edge.counts(IN_FLIGHT, 0.0).await;
    edge.counts(&errors("overload"), 1.0).await;
    assert_eq!(edge.destination("app", "one").await["state"], "healthy");
}

#[tokio::test(flavor = "multi_thread")]
async fn given_max_connections_when_many_requests_come_at_once_then_no_more_reach_the_destination_and_all_are_answered()
{
    let gate = Gate::closed();
    let origin = gated(&gate).await;
    let edge = before(&origin, 1000, "connection: { max_connections: 3, connect_timeout: 1m }").await;
    let mut clients = Vec::new();
    for _ in 0..20 {
        clients.push(get(&edge, "/").await);
    }
    edge.counts(IN_FLIGHT, 20.0).await;
    eventually(DEADLINE, "three arrived", async || origin.requests().len() == 3).await;
    assert_eq!(origin.accepted(), 3);
    gate.open();
    for client in clients {
        assert_eq!(answer(client).await.status, 200);
    }
    assert_eq!(origin.requests().len(), 20);
    edge.counts(IN_FLIGHT, 0.0).await;
}

/// A hundred streams share one.
#[tokio::test(flavor = "multi_thread")]
async fn given_max_connections_to_a_destination_of_http2_when_many_come_at_once_then_they_share_that_many() {
    let origin = H2Origin::start().await;
    let edge = Edge::start(&format!(
        "routes: {{ all: {{ cluster: app }} }}\nclusters: {{ app: {{ destinations: {{ one: \"http://{}\" }}, request: \
         {{ version: 2, version_policy: Exact }}, connection: {{ max_connections: 1, connect_timeout: 1m }} }} }}\n",
        origin.address()
    ))
    .await;
    let mut clients = Vec::new();
    for _ in 0..40 {
        clients.push(sent(&edge, "POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 8\r\n\r\nhalf").await);
    }
    eventually(DEADLINE, "all are there at once", async || origin.seen().len() == 40).await;
    // Pingora makes another where one is looked for in the moment that it is handed to somebody else.
    assert!(origin.connections() < 20, "{}", origin.connections());
    for client in &mut clients {
        client.send("rest").await;
    }
    for client in clients {
        assert_eq!(answer(client).await.text(), "halfrest");
    }
}

/// Half of the clients speak HTTP/2.
#[tokio::test(flavor = "multi_thread")]
async fn given_a_thousand_clients_that_leave_when_in_flight_then_each_cancels_its_request_and_no_health_changes() {
    let origin = Origin::start(|_| Answer::script([Step::Wait(Gate::closed())])).await;
    let address = loopback(free_port());
    let listeners = format!("listeners: {{ web: {{ address: \"{address}\", protocols: [http1, h2c] }} }}\n");
    let cluster = with_places(&origin, 50, "queue: { max: 100, deadline: 30s }");
    let edge = Edge::start(&(listeners + &cluster)).await;
    for round in 0..20_usize {
        let arrived = (round + 1) * 50;
        let mut clients = Vec::new();
        for _ in 0..25 {
            let mut client = Client::connect(address).await;
            client.send("GET / HTTP/1.1\r\nhost: h\r\n\r\n").await;
            clients.push(client);
        }
        let client = H2Client::connect(address).await;
        let mut streams = Vec::new();
        for _ in 0..25 {
            streams.push(client.open(Request::post("http://h/").body(()).expect("a request")).await);
        }
        // Were a place not given back, the next fifty would not get here.
        eventually(DEADLINE, "all arrived", async || origin.requests().len() == arrived).await;
        clients.into_iter().for_each(Client::reset);
        drop(streams);
        eventually(DEADLINE, "all were cancelled", async || origin.open() == 0).await;
    }
    edge.counts(&errors("client_abort"), 1000.0).await;
    edge.counts(IN_FLIGHT, 0.0).await;
    let metrics = edge.metrics().await;
    let transitions = metrics.lines().filter(|line| line.starts_with("derbent_destination_health_transitions_total"));
    assert!(transitions.clone().count() > 0 && transitions.clone().all(|line| line.ends_with(" 0")), "{metrics}");
}
