//! How long a request and its attempts may take: route `timeout` and `attempt_timeout`, for clients of HTTP/1 and HTTP/2.

use crate::support::{
    Answer, Client, DEADLINE, Edge, Gate, H2Client, H2Origin, H2Response, Origin, Request, Step, eventually, free_port,
    in_time, loopback,
};
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Passive health by the first failure, so that a state tells who was blamed; it comes back by itself much later.
const STRICT: &str = "health: { available: HealthyAndUnknown, passive: { detectors: [{ policy: ConsecutiveFailures, \
                      failures: 1 }], max_ejected: 100%, reactivation: { period: 1h } } }";

fn errors(destination: &str, reason: &str) -> String {
    format!("derbent_upstream_errors_total{{cluster=\"app\",destination=\"{destination}\",reason=\"{reason}\"}}")
}

/// Listeners for both protocols; `route` and `more` are further keys of the route and the cluster.
async fn before(urls: &[&str], route: &str, more: &str) -> Both {
    let http2 = loopback(free_port());
    let http1 = loopback(free_port());
    let destinations: Vec<String> = ["a", "b"].iter().zip(urls).map(|(id, url)| format!("{id}: \"{url}\"")).collect();
    let edge = Edge::start(&format!(
        "listeners: {{ web: \"{http1}\", two: {{ address: \"{http2}\", protocols: [h2c] }} }}\n\
         routes: {{ all: {{ cluster: app, {route} }} }}\n\
         clusters: {{ app: {{ load_balancing: FirstAlphabetical, destinations: {{ {} }}, {more} }} }}\n",
        destinations.join(", ")
    ))
    .await;
    Both { edge, http1, http2 }
}

struct Both {
    edge: Edge,
    http1: SocketAddr,
    http2: SocketAddr,
}

impl Both {
    /// The status by HTTP/1 and by HTTP/2.
    async fn put(&self, body: &str) -> [u16; 2] {
        let mut client = Client::connect(self.http1).await;
        client.send(format!("PUT / HTTP/1.1\r\nhost: h\r\ncontent-length: {}\r\n\r\n{body}", body.len())).await;
        let one = client.read_response().await.expect("an answer").status;
        let request = http::Request::put("http://h/").body(()).expect("a request");
        let two = H2Client::connect(self.http2).await.send(request, body.as_bytes()).await.expect("an answer").status;
        [one, two]
    }

    async fn state(&self) -> String {
        self.edge.destination("app", "a").await["state"].as_str().unwrap_or_default().to_owned()
    }
}

fn hangs(_: &Request) -> Answer {
    Answer::script([Step::ReadBody, Step::Wait(Gate::closed())])
}

/// A byte of a head every so often, for ever.
fn drips(_: &Request) -> Answer {
    let drip = [Step::Pause(Duration::from_millis(20)), Step::send("x")];
    let drops = std::iter::repeat_n(drip, 2_000).flatten();
    Answer::script([Step::ReadBody, Step::send("HTTP/1.1 200 OK\r\nx-a: ")].into_iter().chain(drops))
}

/// 200, some of the body, a pause, and the rest.
fn pauses(pause: Step) -> Answer {
    let head = "HTTP/1.1 200 OK\r\ncontent-length: 8\r\n\r\nhalf";
    Answer::script([Step::ReadBody, Step::send(head), pause, Step::send("rest")])
}

#[tokio::test(flavor = "multi_thread")]
async fn row_18_given_a_route_timeout_when_the_destination_does_not_answer_then_504_and_it_is_blamed() {
    for respond in [hangs, drips] {
        let origin = Origin::start(respond).await;
        let both = before(&[&origin.url()], "timeout: 400ms", STRICT).await;
        let began = Instant::now();
        let mut client = Client::connect(both.http1).await;
        let answer = client.get("/", "").await.expect("an answer");
        assert_eq!((answer.status, answer.header("connection")), (504, Some("close")));
        assert!(began.elapsed() >= Duration::from_millis(400));
        both.edge.counts(&errors("a", "route_timeout"), 1.0).await;
        eventually(DEADLINE, "the upstream request is given up", async || origin.open() == 0).await;
        eventually(DEADLINE, "it is out", async || both.state().await == "unhealthy").await;
        both.edge.logged(&["route_timeout", "the route's timeout is over"]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_route_timeout_when_over_then_it_is_504_for_both_protocols_with_and_without_a_body() {
    for respond in [hangs, drips] {
        let origin = Origin::start(respond).await;
        let both = before(&[&origin.url()], "timeout: 300ms", "health: { passive: off }").await;
        assert_eq!(both.put("").await, [504, 504]);
        assert_eq!(both.put("body").await, [504, 504]);
        both.edge.counts(&errors("a", "route_timeout"), 4.0).await;
        eventually(DEADLINE, "the upstream requests are given up", async || origin.open() == 0).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_route_timeout_when_the_client_was_awaited_then_504_and_the_destination_is_not_blamed() {
    let origin = Origin::start(hangs).await;
    let both = before(&[&origin.url()], "timeout: 300ms", STRICT).await;
    let mut client = Client::connect(both.http1).await;
    client.send("POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 10\r\n\r\nhalf").await;
    assert_eq!(client.read_response().await.expect("an answer").status, 504);
    let request = http::Request::post("http://h/").body(()).expect("a request");
    let (mut body, answer) = H2Client::connect(both.http2).await.open(request).await;
    body.send_data("half".into(), false).expect("open");
    assert_eq!(H2Response::read(answer).await.expect("an answer").status, 504);
    both.edge.counts(&errors("a", "route_timeout"), 2.0).await;
    assert_ne!(both.state().await, "unhealthy");
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_route_timeout_when_the_answer_has_begun_then_it_is_cut() {
    let origin = Origin::start(|_| pauses(Step::Wait(Gate::closed()))).await;
    let both = before(&[&origin.url()], "timeout: 300ms", STRICT).await;
    let mut client = Client::connect(both.http1).await;
    client.send("GET / HTTP/1.1\r\nhost: h\r\n\r\n").await;
    assert_eq!(client.read_head().await.expect("a head").status, 200);
    assert_eq!(client.read_to_end().await.expect("the rest"), b"half");
    assert!(H2Client::connect(both.http2).await.get("http://h/").await.is_err());
    both.edge.counts(&errors("a", "route_timeout"), 2.0).await;
    eventually(DEADLINE, "the upstream requests are given up", async || origin.open() == 0).await;
    // It was silent for less than a second.
    assert_ne!(both.state().await, "unhealthy");
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_destination_that_is_silent_in_its_answer_when_the_route_timeout_cuts_it_then_it_is_blamed() {
    let origin = Origin::start(|_| pauses(Step::Wait(Gate::closed()))).await;
    let both = before(&[&origin.url()], "timeout: 1500ms", STRICT).await;
    let mut client = Client::connect(both.http1).await;
    client.send("GET / HTTP/1.1\r\nhost: h\r\n\r\n").await;
    assert!(client.read_to_end().await.expect("a cut answer").ends_with(b"half"));
    eventually(DEADLINE, "it is out", async || both.state().await == "unhealthy").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_route_timeout_when_requests_are_quick_then_a_kept_connection_outlives_it() {
    let origin = Origin::named("fine").await;
    let both = before(&[&origin.url()], "timeout: 200ms", "").await;
    let mut client = Client::connect(both.http1).await;
    let two = H2Client::connect(both.http2).await;
    for _ in 0..4 {
        assert_eq!(client.get("/", "").await.expect("an answer").text(), "fine");
        assert_eq!(two.get("http://h/").await.expect("an answer").text(), "fine");
        tokio::time::sleep(Duration::from_millis(110)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_tunnel_when_the_route_timeout_is_over_then_it_goes_on() {
    let origin = Origin::start(|_| Answer::upgrade("websocket")).await;
    let both = before(&[&origin.url()], "timeout: 300ms", "").await;
    let mut client = Client::connect(both.http1).await;
    client.send("GET / HTTP/1.1\r\nhost: h\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n").await;
    assert_eq!(client.read_head().await.expect("a head").status, 101);
    tokio::time::sleep(Duration::from_millis(500)).await;
    client.send("still").await;
    assert_eq!(client.read_exact(5).await.expect("an echo"), b"still");
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_queue_when_the_route_timeout_comes_first_then_504() {
    let origin = Origin::start(hangs).await;
    let text = format!(
        "routes: {{ all: {{ cluster: app, timeout: 300ms }}, held: {{ match: {{ path: /held }}, cluster: app }} }}\n\
         clusters: {{ app: {{ destinations: {{ one: {{ address: \"{}\", max_requests: 1 }} }}, \
         queue: {{ max: 5, deadline: 1m }} }} }}\n",
        origin.url()
    );
    let edge = Edge::start(&text).await;
    let mut held = edge.connect().await;
    held.send("GET /held HTTP/1.1\r\nhost: h\r\n\r\n").await;
    eventually(DEADLINE, "it arrived", async || origin.requests().len() == 1).await;
    assert_eq!(edge.get("/").await.status, 504);
    edge.counts("derbent_cluster_queued_total{cluster=\"app\",result=\"deadline\"}", 1.0).await;
}

/// With `timeout` in `on` the next destination is asked, in the time that is left.
#[tokio::test(flavor = "multi_thread")]
async fn given_an_attempt_timeout_when_the_first_destination_hangs_or_drips_then_the_second_answers() {
    for respond in [hangs, drips] {
        let (slow, quick) = (Origin::start(respond).await, Origin::named("quick").await);
        let retry = "health: { passive: off }, retry: { on: [connect, reset, timeout], attempt_timeout: 300ms }";
        let both = before(&[&slow.url(), &quick.url()], "timeout: 20s", retry).await;
        assert_eq!(both.put("").await, [200, 200]);
        assert_eq!(both.put("body").await, [200, 200]);
        both.edge.counts(&errors("a", "read_timeout"), 4.0).await;
        assert_eq!(both.edge.metric(&errors("a", "client_abort")).await, Some(0.0));
        assert_eq!(quick.requests().iter().filter(|request| request.body == b"body").count(), 2);
        eventually(DEADLINE, "the slow one is given up", async || slow.open() == 0).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn given_an_attempt_timeout_alone_when_over_then_504_and_the_destination_is_blamed() {
    let origin = Origin::start(hangs).await;
    let both = before(&[&origin.url()], "order: 0", &format!("{STRICT}, retry: {{ attempt_timeout: 300ms }}")).await;
    assert_eq!(both.put("body").await[0], 504);
    both.edge.counts(&errors("a", "read_timeout"), 1.0).await;
    assert_eq!(both.state().await, "unhealthy");
}

/// It bounds the time to the head: neither a pause in the answer nor a client that takes its time.
#[tokio::test(flavor = "multi_thread")]
async fn given_an_attempt_timeout_when_a_body_pauses_for_longer_then_nothing_is_cut() {
    let origin = Origin::start(|_| pauses(Step::Pause(Duration::from_millis(500)))).await;
    let both = before(&[&origin.url()], "order: 0", "retry: { attempt_timeout: 200ms }").await;
    let mut client = Client::connect(both.http1).await;
    assert_eq!(client.get("/", "").await.expect("an answer").text(), "halfrest");
    assert_eq!(H2Client::connect(both.http2).await.get("http://h/").await.expect("an answer").text(), "halfrest");
    client.send("POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 8\r\n\r\nhalf").await;
    tokio::time::sleep(Duration::from_millis(400)).await;
    client.send("rest").await;
    assert_eq!(client.read_response().await.expect("an answer").text(), "halfrest");
    assert_eq!(origin.requests().last().expect("it came").body, b"halfrest");
}

/// From HTTP/2 to HTTP/2 under an alarm: fields, body and trailers as without one.
#[tokio::test(flavor = "multi_thread")]
async fn given_a_timed_stream_to_a_destination_of_http2_when_it_echoes_then_nothing_is_lost() {
    let origin = H2Origin::start().await;
    let url = format!("http://{}", origin.address());
    let exact = "request: { version: 2, version_policy: Exact }";
    let both = before(&[&url], "timeout: 20s", exact).await;
    let request =
        http::Request::post("http://h/echo?x=1").header("te", "trailers").header("content-type", "application/grpc");
    let client = H2Client::connect(both.http2).await;
    let answer = client.send(request.body(()).expect("a request"), &[b'x'; 200_000]).await.expect("an answer");
    assert_eq!((answer.status, answer.body.len()), (200, 200_000));
    assert_eq!(answer.trailers.get("grpc-status").expect("a trailer"), "0");
    let seen = origin.seen().remove(0);
    assert_eq!(seen.headers.get("te").expect("kept"), "trailers");
    assert_eq!(seen.uri.path_and_query().expect("a path"), "/echo?x=1");
    assert_eq!(seen.uri.authority().expect("its own").as_str(), origin.address().to_string());
}

/// A destination that takes the connection and no more of the body than its buffers do.
#[tokio::test(flavor = "multi_thread")]
async fn given_a_destination_that_takes_no_body_when_the_route_timeout_is_over_then_504() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    let both = before(&[&url], "timeout: 500ms", STRICT).await;
    let client = tokio::net::TcpStream::connect(both.http1).await.expect("connected");
    let (mut read, mut write) = client.into_split();
    let sending = tokio::spawn(async move {
        let _ = write.write_all(b"PUT / HTTP/1.1\r\nhost: h\r\ncontent-length: 100000000\r\n\r\n").await;
        while write.write_all(&[b'x'; 65_536]).await.is_ok() {}
    });
    let (_taken, _) = listener.accept().await.expect("a connection");
    let mut status = [0; 12];
    in_time("an answer", read.read_exact(&mut status)).await.expect("an answer");
    assert_eq!(&status, b"HTTP/1.1 504");
    sending.abort();
    both.edge.counts(&errors("a", "route_timeout"), 1.0).await;
    assert_ne!(both.state().await, "unhealthy");
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_client_that_takes_nothing_when_the_route_timeout_is_over_then_it_is_cut_and_the_destination_not_blamed()
 {
    let origin = Origin::start(|_| {
        let head = "HTTP/1.1 200 OK\r\ncontent-length: 50000000\r\n\r\n";
        Answer::script([Step::send(head), Step::send(vec![b'x'; 50_000_000]), Step::Wait(Gate::closed())])
    })
    .await;
    let both = before(&[&origin.url()], "timeout: 1500ms", STRICT).await;
    let mut client = Client::connect(both.http1).await;
    client.send("GET / HTTP/1.1\r\nhost: h\r\n\r\n").await;
    both.edge.counts(&errors("a", "route_timeout"), 1.0).await;
    let two = H2Client::connect(both.http2).await;
    let (_body, answer) = two.open(http::Request::get("http://h/").body(()).expect("a request")).await;
    let _untouched = in_time("a head", answer).await.expect("a head");
    both.edge.counts(&errors("a", "route_timeout"), 2.0).await;
    eventually(DEADLINE, "the upstream requests are given up", async || origin.open() == 0).await;
    assert_ne!(both.state().await, "unhealthy");
}
