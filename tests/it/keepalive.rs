//! Connections to destinations that are kept for the next request, and what comes of one that is closed as it is used again.

use crate::support::{
    Answer, Client, DEADLINE, Edge, Gate, Origin, Request, Step, eventually, free_port, loopback, one_destination, take,
};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use std::collections::{BTreeSet, HashSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

const IDLE: &str = "derbent_destination_idle_timeout_seconds{cluster=\"app\",destination=\"one\"}";
const RESETS: &str = "derbent_upstream_errors_total{cluster=\"app\",destination=\"one\",reason=\"reset\"}";

/// On one connection of the client's the destination's is in the pool before the next request is read.
async fn ask(client: &mut Client, method: &str, path: &str) -> u16 {
    let body = if ["PUT", "POST"].contains(&method) { "content-length: 4\r\n\r\nbody" } else { "\r\n" };
    client.send(format!("{method} {path} HTTP/1.1\r\nhost: h\r\n{body}")).await;
    client.read_response().await.expect("an answer").status
}

/// Serves one request of each connection, takes the second, and closes without an answer to it.
struct ClosesTheSecond {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<String>>>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Spoken {
    Http1,
    Http1Tls,
    /// Closed without TLS's own word for it.
    Http1TlsCut,
    Http2,
}

impl ClosesTheSecond {
    async fn start(spoken: Spoken) -> Self {
        let listener = TcpListener::bind(loopback(free_port())).await.unwrap();
        let origin = ClosesTheSecond { address: listener.local_addr().unwrap(), seen: Arc::default() };
        let (seen, tls) = (origin.seen.clone(), acceptor());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (seen, tls) = (seen.clone(), tls.clone());
                tokio::spawn(async move {
                    match spoken {
                        Spoken::Http1 => http1(stream, true, &seen).await,
                        Spoken::Http2 => http2(stream, &seen).await,
                        _ => http1(tls.accept(stream).await.ok()?, spoken == Spoken::Http1Tls, &seen).await,
                    }
                });
            }
        });
        origin
    }

    /// How often a request for `path` arrived.
    fn times(&self, path: &str) -> usize {
        self.seen.lock().unwrap().iter().filter(|seen| *seen == path).count()
    }
}

async fn http1(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    says_so: bool,
    seen: &Mutex<Vec<String>>,
) -> Option<()> {
    for answer in [&b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"[..], b""] {
        let mut request = Vec::new();
        while !request.ends_with(b"body") && (request.starts_with(b"P") || !request.ends_with(b"\r\n\r\n")) {
            stream.read_buf(&mut request).await.ok().filter(|read| *read > 0)?;
        }
        seen.lock().unwrap().push(String::from_utf8_lossy(&request).split(' ').nth(1)?.to_owned());
        stream.write_all(answer).await.ok()?;
    }
    if says_so { stream.shutdown().await.ok() } else { None }
}

/// No GOAWAY either.
async fn http2(stream: impl AsyncRead + AsyncWrite + Unpin, seen: &Mutex<Vec<String>>) -> Option<()> {
    let mut connection = h2::server::handshake(stream).await.ok()?;
    let (first, mut respond) = connection.accept().await?.ok()?;
    seen.lock().unwrap().push(first.uri().path().to_owned());
    tokio::spawn(async move {
        let mut body = first.into_body();
        while let Some(Ok(chunk)) = body.data().await {
            take(&mut body, chunk);
        }
        respond.send_response(http::Response::new(()), true)
    });
    let (second, _) = connection.accept().await?.ok()?;
    seen.lock().unwrap().push(second.uri().path().to_owned());
    None
}

fn acceptor() -> TlsAcceptor {
    let made = rcgen::generate_simple_self_signed(["h".to_owned()]).unwrap();
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    let config = rustls::ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    TlsAcceptor::from(Arc::new(config))
}

/// What comes of a request on a connection of the pool, and how often it arrived. One that came before the connection was back has
/// a new one: then another is asked.
async fn on_a_pooled_one(origin: &ClosesTheSecond, client: &mut Client, method: &str) -> (u16, usize) {
    for number in 0..100 {
        assert_eq!(ask(client, "GET", "/first").await, 200);
        let path = format!("/{method}-{number}");
        let came = (ask(client, method, &path).await, origin.times(&path));
        if came != (200, 1) {
            return came;
        }
    }
    panic!("{method}: no connection of the pool was ever taken");
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_pooled_connection_when_closed_before_an_answer_then_a_get_and_a_put_do_not_see_it_and_a_post_is_sent_once()
 {
    for (spoken, scheme, keys) in [
        (Spoken::Http1, "http", ""),
        (Spoken::Http1Tls, "https", "connection: { tls: { verify: false } },"),
        (Spoken::Http1TlsCut, "https", "connection: { tls: { verify: false } },"),
        (Spoken::Http2, "http", "request: { version: 2, version_policy: Exact },"),
    ] {
        let origin = ClosesTheSecond::start(spoken).await;
        let url = format!("{scheme}://{}", origin.address);
        let edge = Edge::start(&one_destination(&url, &format!("{keys} retry: off"))).await;
        let mut client = edge.connect().await;
        for method in ["GET", "PUT", "DELETE"] {
            assert_eq!(on_a_pooled_one(&origin, &mut client, method).await, (200, 2), "{spoken:?} {method}");
        }
        assert_eq!(edge.metric(RESETS).await, Some(0.0), "{spoken:?}");
        assert_eq!(on_a_pooled_one(&origin, &mut client, "POST").await, (502, 1), "{spoken:?}");
        edge.counts(RESETS, 1.0).await;
        let halved = async || edge.metric(IDLE).await <= Some(3.75);
        eventually(DEADLINE, "each of the four halves the time", halved).await;
        edge.logged(&["INFO", "one[", "are kept for 30s instead of 60s: it closed one as it was used again"]).await;
    }
}

/// What comes of requests on a connection after its first, which is answered.
fn then(
    second: impl Fn(&Request) -> Answer + Send + Sync + 'static,
) -> impl Fn(&Request) -> Answer + Send + Sync + 'static {
    let served = Mutex::new(HashSet::new());
    move |request| match served.lock().unwrap().insert(request.connection) {
        true => Answer::ok("fine"),
        false => second(request),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_body_that_is_being_sent_when_the_pooled_connection_is_closed_then_it_arrives_whole_over_another() {
    for (size, first) in [(2, 1), (65_536, 1), (65_536, 40_000), (65_536, 65_536)] {
        let gate = Gate::closed();
        let dies = gate.clone();
        let origin = Origin::start(then(move |_| Answer::script([Step::Wait(dies.clone()), Step::Reset]))).await;
        let edge = Edge::start(&one_destination(&origin.url(), "retry: off")).await;
        let mut client = edge.connect().await;
        assert_eq!(ask(&mut client, "GET", "/").await, 200);
        let body: Vec<u8> = (0..size).map(|at| (at * 7 % 251) as u8).collect();
        client.send(format!("PUT /put HTTP/1.1\r\nhost: h\r\ncontent-length: {size}\r\n\r\n")).await;
        client.send(&body[..first]).await;
        eventually(DEADLINE, "it is there", async || origin.hits("/put") == 1).await;
        gate.open();
        let _ = client.try_send(&body[first..]).await;
        assert_eq!(client.read_response().await.expect("an answer").status, 200, "{first} of {size}");
        let arrived = origin.requests();
        assert!(arrived.len() == 3 && arrived[2].complete && arrived[2].body == body, "{first} of {size}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn given_an_answer_that_has_begun_when_the_pooled_connection_is_closed_then_it_is_no_race() {
    let origin = Origin::start(then(|_| Answer::script([Step::send("HTTP/1.1 2"), Step::Close]))).await;
    let edge = Edge::start(&one_destination(&origin.url(), "retry: off")).await;
    let mut client = edge.connect().await;
    assert_eq!((ask(&mut client, "GET", "/").await, ask(&mut client, "GET", "/cut").await), (200, 502));
    assert_eq!((origin.hits("/cut"), edge.metric(IDLE).await), (1, Some(60.0)));
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_destination_that_says_when_it_closes_then_connections_are_kept_for_less_also_after_a_reload() {
    for (said, kept) in [("timeout=5", 4.0), ("max=9, timeout=1", 0.5), ("timeout=61", 60.0), ("max=9", 60.0)] {
        let header = format!("keep-alive: {said}\r\n");
        let origin = Origin::start(move |_| Answer::new(200, &header, "")).await;
        let edge = Edge::start(&one_destination(&origin.url(), "")).await;
        edge.counts(IDLE, 60.0).await;
        assert_eq!(edge.get("/").await.status, 200);
        edge.counts(IDLE, kept).await;
        edge.reload(&one_destination(&origin.url(), "connection: { connect_timeout: 3s }")).await;
        edge.counts(IDLE, kept).await;
        if kept < 60.0 {
            edge.logged(&["INFO", "one[", "instead of 60s: it says that it closes them after"]).await;
        }
    }
}

/// Over which requests came so far.
fn connections(origin: &Origin) -> BTreeSet<usize> {
    origin.requests().iter().map(|request| request.connection).collect()
}

/// Asks until a connection has another request. One that comes before the last is back in the pool has a new one.
async fn used_again(origin: &Origin, client: &mut Client) -> usize {
    for _ in 0..100 {
        let before = connections(origin);
        assert_eq!(ask(client, "GET", "/").await, 200);
        let last = origin.requests().last().expect("it came").connection;
        if before.contains(&last) {
            return last;
        }
    }
    panic!("no connection of the pool was ever taken");
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_shorter_time_that_was_learned_when_asked_again_then_what_was_pooled_before_is_not_used() {
    let origin = Origin::start(|_| Answer::new(200, "keep-alive: timeout=100\r\n", "")).await;
    let edge = Edge::start(&one_destination(&origin.url(), "connection: { idle_timeout: 1h }")).await;
    let mut client = edge.connect().await;
    // It goes back to the pool of the hour, before which it was made.
    assert_eq!(ask(&mut client, "GET", "/").await, 200);
    let first = connections(&origin);
    assert!(!first.contains(&used_again(&origin, &mut client).await));
    origin.answer_by(|_| Answer::new(200, "keep-alive: timeout=50\r\n", ""));
    assert_eq!(ask(&mut client, "GET", "/").await, 200);
    let before = connections(&origin);
    assert!(!before.contains(&used_again(&origin, &mut client).await));
    edge.counts(IDLE, 49.0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_destination_that_keeps_nothing_when_it_says_so_then_neither_do_we() {
    let origin = Origin::start(|_| Answer::new(200, "keep-alive: timeout=0\r\n", "")).await;
    let edge = Edge::start(&one_destination(&origin.url(), "")).await;
    let mut client = edge.connect().await;
    for connections in 1..5 {
        assert_eq!((ask(&mut client, "GET", "/").await, origin.accepted()), (200, connections));
    }
    edge.counts(IDLE, 0.0).await;
    edge.logged(&["are not kept instead of 60s: it says that it closes them after 0s"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_short_time_when_it_is_over_then_the_connection_is_closed_by_us() {
    let origin = Origin::start(|_| Answer::new(200, "keep-alive: timeout=1\r\n", "")).await;
    let edge = Edge::start(&one_destination(&origin.url(), "")).await;
    let mut client = edge.connect().await;
    for _ in 0..2 {
        assert_eq!(ask(&mut client, "GET", "/").await, 200);
    }
    // The first one is still in the pool of the minute.
    eventually(DEADLINE, "it is closed", async || origin.open() == 1).await;
    assert_eq!(origin.accepted(), 2);
}
