//! Clients that leave, and those that only say that their request is whole: of HTTP/1 and HTTP/2, before destinations of either.

use crate::support::{
    Client, DEADLINE, Edge, Gate, H2Client, H2Origin, H2Response, Held, Origin, eventually, free_port, in_time,
    loopback,
};
use bytes::Bytes;
use http::HeaderMap;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinHandle;

const IN_FLIGHT: &str = "derbent_http_requests_in_flight{listener=\"web\"}";

/// A client that has ended its side and takes nothing is given up after so long.
const HALF_CLOSED: Duration = Duration::from_secs(5);

/// Passive health by the first failure, so that a state tells who was blamed; it comes back by itself much later.
const STRICT: &str =
    "health: { passive: { detectors: [{ policy: ConsecutiveFailures, failures: 1 }], reactivation: { period: 1h } } }";

/// Before one destination; `route` and `cluster` are further keys of these, and what stands beside the clusters is `more`.
async fn before(address: SocketAddr, version: &str, [route, cluster, more]: [&str; 3]) -> (Edge, SocketAddr) {
    let listener = loopback(free_port());
    let edge = Edge::start(&format!(
        "access_log: {{ path: access }}\n\
         listeners: {{ web: {{ address: \"{listener}\", protocols: [http1, h2c] }} }}\n\
         routes: {{ all: {{ cluster: app, {route} }} }}\n\
         clusters:\n  app: {{ destinations: {{ one: \"http://{address}\" }}, request: {{ {version} }}, {cluster} }}\n{more}"
    ))
    .await;
    (edge, listener)
}

async fn logged(edge: &Edge, count: usize) -> Vec<Value> {
    let mut lines = Vec::new();
    eventually(DEADLINE, &format!("{count} lines"), async || {
        let text = std::fs::read_to_string(edge.directory().join("access")).unwrap_or_default();
        lines = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        lines.len() >= count
    })
    .await;
    lines
}

async fn state(edge: &Edge) -> String {
    edge.destination("app", "one").await["state"].as_str().unwrap_or_default().to_owned()
}

/// What a request has behind its head.
#[derive(Debug, Clone, Copy)]
enum Behind {
    Nothing,
    Body,
    Trailers,
    BodyAndTrailers,
}

/// A client with its request sent.
enum Asked {
    One(Client),
    Two(H2Client, h2::SendStream<Bytes>, h2::client::ResponseFuture),
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Leaves {
    Http1,
    Stream,
    Connection,
}

const LEAVES: [Leaves; 3] = [Leaves::Http1, Leaves::Stream, Leaves::Connection];

impl Asked {
    async fn http1(address: SocketAddr, behind: Behind) -> Asked {
        let mut client = Client::connect(address).await;
        client
            .send(match behind {
                Behind::Nothing => "GET / HTTP/1.1\r\nhost: h\r\n\r\n",
                Behind::Body => "POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 5\r\n\r\nhello",
                Behind::Trailers => {
                    "POST / HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n0\r\nx-a: 1\r\n\r\n"
                }
                Behind::BodyAndTrailers => {
                    "POST / HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nx-a: 1\r\n\r\n"
                }
            })
            .await;
        Asked::One(client)
    }

    async fn http2(address: SocketAddr, behind: Behind) -> Asked {
        let client = H2Client::connect(address).await;
        let request = http::Request::post("http://h/").body(()).expect("a request");
        let (mut body, answer) = client.open(request).await;
        let trailers = || HeaderMap::from_iter([("x-a".parse().expect("a name"), "1".parse().expect("a value"))]);
        match behind {
            Behind::Nothing => body.send_data(Bytes::new(), true),
            Behind::Body => body.send_data(Bytes::from_static(b"hello"), true),
            Behind::Trailers => body.send_trailers(trailers()),
            Behind::BodyAndTrailers => {
                body.send_data(Bytes::from_static(b"hello"), false).expect("open");
                body.send_trailers(trailers())
            }
        }
        .expect("open");
        Asked::Two(client, body, answer)
    }

    async fn by(leaves: Leaves, address: SocketAddr, behind: Behind) -> Asked {
        match leaves {
            Leaves::Http1 => Asked::http1(address, behind).await,
            _ => Asked::http2(address, behind).await,
        }
    }

    /// `None`: it goes on with its connection.
    fn leave(self, leaves: Leaves) -> Option<H2Client> {
        match self {
            Asked::One(client) => client.reset(),
            Asked::Two(client, ..) if leaves == Leaves::Connection => client.drop_connection(),
            Asked::Two(client, body, answer) => {
                drop((body, answer));
                return Some(client);
            }
        }
        None
    }

    async fn answer(self) -> (u16, String) {
        match self {
            Asked::One(mut client) => {
                let answer = client.read_response().await.expect("an answer");
                (answer.status, answer.text())
            }
            Asked::Two(_client, _body, answer) => {
                let answer = H2Response::read(answer).await.expect("an answer");
                (answer.status, answer.text())
            }
        }
    }
}

const TRAILED: [Behind; 2] = [Behind::Trailers, Behind::BodyAndTrailers];

#[tokio::test(flavor = "multi_thread")]
async fn given_a_request_with_trailers_when_its_client_leaves_then_the_destination_is_cancelled_and_the_place_free() {
    for held in Held::both(&Gate::closed()).await {
        let (edge, address) = before(held.address(), held.version, ["", "", ""]).await;
        let mut count = 0;
        for leaves in LEAVES {
            for behind in TRAILED {
                let asked = Asked::by(leaves, address, behind).await;
                count += 1;
                eventually(DEADLINE, "the request arrives", async || held.whole() == count).await;
                let _stays = asked.leave(leaves);
                eventually(DEADLINE, "it is cancelled", async || held.open() == 0).await;
                edge.counts(IN_FLIGHT, 0.0).await;
                let line = logged(&edge, count).await.remove(count - 1);
                assert_eq!(line["status"], 499, "{leaves:?} {behind:?} {}: {line}", held.version);
                assert_eq!(line["attempts"][0]["outcome"], "client_abort", "{line}");
            }
        }
        assert_eq!(edge.destination("app", "one").await["in_flight"], 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_request_with_trailers_when_its_time_is_over_then_504_and_the_silent_destination_is_blamed() {
    let retry = format!("{STRICT}, retry: {{ attempt_timeout: 300ms }}");
    for ([route, cluster], reason) in
        [(["timeout: 400ms", STRICT], "route_timeout"), (["order: 0", retry.as_str()], "read_timeout")]
    {
        for held in Held::both(&Gate::closed()).await {
            for behind in TRAILED {
                for leaves in [Leaves::Http1, Leaves::Stream] {
                    // Where the time was over before the request got there, nobody is to blame.
                    let edge = loop {
                        let whole = held.whole();
                        let (edge, address) = before(held.address(), held.version, [route, cluster, ""]).await;
                        let status = Asked::by(leaves, address, behind).await.answer().await.0;
                        assert_eq!(status, 504, "{reason} {behind:?} {leaves:?} {}", held.version);
                        if held.whole() > whole {
                            break edge;
                        }
                    };
                    let line = logged(&edge, 1).await.remove(0);
                    assert_eq!(line["attempts"][0]["outcome"], reason, "{line}");
                    assert!(line["attempts"][0]["waited_ms"].as_f64() > Some(0.0), "{line}");
                    eventually(DEADLINE, "it is blamed", async || state(&edge).await == "unhealthy").await;
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_request_with_trailers_when_mirrored_then_its_copy_is_whole() {
    let gate = Gate::closed();
    gate.open();
    for held in Held::both(&gate).await {
        let mirror = Origin::named("copy").await;
        let next = format!("  next: {{ destinations: {{ n: \"{}\" }} }}\n", mirror.url());
        let cluster = "mirror: { percent: 100%, cluster: next }";
        let (edge, address) = before(held.address(), held.version, ["", cluster, &next]).await;
        for leaves in [Leaves::Http1, Leaves::Stream] {
            for behind in TRAILED {
                assert_eq!(Asked::by(leaves, address, behind).await.answer().await, (200, "late".to_owned()));
            }
        }
        edge.counts("derbent_mirror_requests_total{cluster=\"app\",result=\"ok\"}", 4.0).await;
        let mut copied: Vec<Vec<u8>> = mirror.requests().into_iter().map(|request| request.body).collect();
        copied.sort();
        assert_eq!(copied, [&b""[..], b"", b"hello", b"hello"], "{}", held.version);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_request_with_trailers_when_its_stream_is_refused_then_it_is_sent_again_to_its_end() {
    let origin = H2Origin::refusing(|number| number % 2 == 1).await;
    let version = "version: 2, version_policy: Exact";
    let (_edge, address) = before(origin.address(), version, ["", STRICT, ""]).await;
    for leaves in [Leaves::Http1, Leaves::Stream] {
        for (behind, body) in TRAILED.into_iter().zip(["", "hello"]) {
            assert_eq!(Asked::by(leaves, address, behind).await.answer().await, (200, body.to_owned()), "{leaves:?}");
        }
    }
    assert_eq!(origin.seen().len(), 8);
}

/// What `told` comes to when it has taken less than a client is waited for that has ended its side: a machine may be slower than that.
async fn quicker<T>(mut told: impl AsyncFnMut() -> T) -> T {
    loop {
        let began = Instant::now();
        let value = told().await;
        if began.elapsed() < HALF_CLOSED {
            return value;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_client_that_ends_its_side_when_its_request_is_whole_then_it_gets_its_answer_of_either_destination() {
    const REQUESTS: [&str; 4] = [
        "GET / HTTP/1.1\r\nhost: h\r\n\r\n",
        "HEAD / HTTP/1.1\r\nhost: h\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: h\r\ncontent-length: 2\r\n\r\nab",
        "POST / HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n",
    ];
    let answers = quicker(async || {
        let gate = Gate::closed();
        let mut waiting = Vec::new();
        for held in Held::both(&gate).await {
            let (edge, address) = before(held.address(), held.version, ["", "", ""]).await;
            let mut clients = Vec::new();
            for request in REQUESTS {
                let mut client = Client::connect(address).await;
                client.send(request).await;
                client.finish().await;
                clients.push(client);
            }
            eventually(DEADLINE, "all arrive", async || held.whole() == REQUESTS.len()).await;
            waiting.push((held, edge, clients));
        }
        // Long enough for a proxy that takes the end for a leave to have noticed.
        tokio::time::sleep(Duration::from_millis(300)).await;
        gate.open();
        let mut heads = Vec::new();
        for (held, _edge, clients) in waiting {
            for (request, mut client) in REQUESTS.into_iter().zip(clients) {
                let status = client.read_head().await.map(|head| head.status);
                heads.push((held.version, request, status.unwrap_or(0)));
            }
        }
        heads
    })
    .await;
    for (version, request, status) in answers {
        assert_eq!(status, 200, "{version}: {request:?}");
    }
}

/// An address that takes no connection: whoever listens there has his hands full, until he is let.
struct Full {
    listener: TcpListener,
    _first: TcpStream,
}

impl Full {
    async fn new() -> Full {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind(loopback(free_port())).expect("a port");
        let listener = socket.listen(0).expect("an address of its own");
        let first = TcpStream::connect(listener.local_addr().expect("bound")).await.expect("the one that fits");
        Full { listener, _first: first }
    }

    fn address(&self) -> SocketAddr {
        self.listener.local_addr().expect("bound")
    }

    /// From now on all come through to `address`.
    fn lead_to(self, address: SocketAddr) -> JoinHandle<()> {
        tokio::spawn(async move {
            while let Ok((mut near, _)) = self.listener.accept().await {
                tokio::spawn(async move {
                    let mut far = TcpStream::connect(address).await?;
                    copy_bidirectional(&mut near, &mut far).await
                });
            }
        })
    }
}

const PATIENT: &str = "connection: { connect_timeout: 10m }";

#[tokio::test(flavor = "multi_thread")]
async fn given_a_client_that_leaves_when_its_destination_takes_no_connection_then_its_place_is_free_and_nobody_blamed()
{
    for version in ["version: 1.1", "version: 2, version_policy: Exact"] {
        let full = Full::new().await;
        let (edge, address) = before(full.address(), version, ["", &format!("{PATIENT}, {STRICT}"), ""]).await;
        let mut count = 0;
        for leaves in LEAVES {
            for behind in [Behind::Nothing, Behind::Body] {
                let asked = Asked::by(leaves, address, behind).await;
                eventually(DEADLINE, "it has its place", async || {
                    edge.destination("app", "one").await["in_flight"] == 1
                })
                .await;
                let _stays = asked.leave(leaves);
                edge.counts(IN_FLIGHT, 0.0).await;
                count += 1;
                let line = logged(&edge, count).await.remove(count - 1);
                assert_eq!((&line["status"], &line["failed"]), (&json!(499), &json!("client_abort")), "{line}");
                let attempts = line["attempts"].as_array().expect("attempts");
                assert_eq!(attempts.len(), 1, "{leaves:?} {behind:?} {version}: {line}");
                assert_eq!((&attempts[0]["outcome"], &attempts[0]["reused"]), (&json!("client_abort"), &Value::Null));
            }
        }
        let destination = edge.destination("app", "one").await;
        assert_eq!(destination["in_flight"], 0);
        assert_ne!(destination["state"], "unhealthy");
    }
}

/// Of TLS the gateway awaits the destination's first word, out of its client's sight; the second connection is not made.
#[tokio::test(flavor = "multi_thread")]
async fn given_a_client_that_left_when_its_connection_fails_later_then_no_other_is_opened_for_it() {
    let mute = TcpListener::bind(loopback(free_port())).await.expect("a port");
    let listener = loopback(free_port());
    let edge = Edge::start(&format!(
        "access_log: {{ path: access }}\n\
         listeners: {{ web: {{ address: \"{listener}\", protocols: [http1, h2c] }} }}\n\
         routes: {{ all: {{ cluster: app }} }}\n\
         clusters: {{ app: {{ destinations: {{ one: \"https://{}\" }}, {PATIENT}, health: {{ passive: off }} }} }}\n",
        mute.local_addr().expect("bound")
    ))
    .await;
    let asked = Asked::http2(listener, Behind::Body).await;
    let (connection, _) = in_time("a connection", mute.accept()).await.expect("a connection");
    asked.leave(Leaves::Connection);
    edge.counts("derbent_downstream_connections{listener=\"web\"}", 0.0).await;
    drop(connection);
    let line = logged(&edge, 1).await.remove(0);
    assert_eq!((&line["status"], &line["failed"]), (&json!(499), &json!("client_abort")), "{line}");
    edge.counts(IN_FLIGHT, 0.0).await;
    let more = tokio::time::timeout(Duration::from_millis(100), mute.accept()).await;
    assert!(more.is_err(), "another connection: {line}");
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_client_that_ends_its_side_when_its_destination_takes_no_connection_yet_then_it_gets_its_answer() {
    let gate = Gate::closed();
    gate.open();
    for held in Held::both(&gate).await {
        for request in [
            "GET / HTTP/1.1\r\nhost: h\r\n\r\n",
            "POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 2\r\n\r\nab",
            "POST / HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n",
        ] {
            let answer = quicker(async || {
                let full = Full::new().await;
                let (edge, address) = before(full.address(), held.version, ["", PATIENT, ""]).await;
                let mut client = Client::connect(address).await;
                client.send(request).await;
                eventually(DEADLINE, "it has its place", async || {
                    edge.destination("app", "one").await["in_flight"] == 1
                })
                .await;
                client.finish().await;
                let leading = full.lead_to(held.address());
                let answer = client.read_response().await.map(|answer| (answer.status, answer.text()));
                leading.abort();
                answer.map_err(|error| error.to_string())
            })
            .await;
            assert_eq!(answer, Ok((200, "late".to_owned())), "{} {request:?}", held.version);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_client_that_ends_its_side_within_its_body_when_its_destination_takes_no_connection_then_400() {
    let full = Full::new().await;
    let (edge, address) = before(full.address(), "version: 1.1", ["", &format!("{PATIENT}, {STRICT}"), ""]).await;
    let mut client = Client::connect(address).await;
    client.send("POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 9\r\n\r\nhalf").await;
    client.finish().await;
    assert_eq!(client.read_response().await.expect("an answer").status, 400);
    let line = logged(&edge, 1).await.remove(0);
    assert_eq!((&line["failed"], &line["attempts"][0]["outcome"]), (&json!("bad_request"), &json!("client_abort")));
    assert_ne!(state(&edge).await, "unhealthy");
}
