//! What goes wrong, and who is told what: the client by status and body, the operator by metrics and log.

use crate::support::{
    Answer, Client, DEADLINE, Edge, Gate, Origin, Request, Response, Step, eventually, free_port, loopback,
    one_destination,
};
use std::collections::BTreeSet;
use std::sync::Mutex;

#[tokio::test(flavor = "multi_thread")]
async fn given_no_route_when_asked_then_404_in_text_or_json_and_the_connection_goes_on() {
    let edge = Edge::start(
        "routes: { books: { match: { path: /books }, cluster: app } }\n\
         clusters: { app: { destinations: [\"http://127.0.0.1:1\"] } }\n",
    )
    .await;
    let mut client = edge.connect().await;
    let text = client.get("/nowhere", "x-request-id: id-1\r\n").await.unwrap();
    assert_eq!((text.status, text.text().as_str()), (404, "404 no route matches this request (request id-1)\n"));
    assert_eq!(text.header("content-type"), Some("text/plain; charset=utf-8"));
    assert_eq!(text.header("x-request-id"), Some("id-1"));
    assert_eq!(text.header("cache-control"), Some("no-store"));
    let json = client.get("/nowhere", "accept: application/json\r\n").await.unwrap();
    assert_eq!((json.status, json.header("content-type")), (404, Some("application/json")));
    let id = json.header("x-request-id").expect("an id").to_owned();
    let expected = serde_json::json!({
        "status": 404, "error": "no_route", "message": "no route matches this request", "request_id": id,
    });
    assert_eq!(json.json(), expected);
    client.send("HEAD /nowhere HTTP/1.1\r\nhost: h\r\n\r\n").await;
    assert_eq!(client.read_head().await.unwrap().status, 404);
    edge.counts(&requests("none", "GET", 404), 2.0).await;
    edge.counts("derbent_http_requests_rejected_total{route=\"none\",reason=\"no_route\"}", 3.0).await;
    edge.counts("derbent_downstream_connections_total{listener=\"web\"}", 1.0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_large_body_when_nobody_wants_it_then_the_client_still_gets_its_answer() {
    let edge = Edge::start(
        "routes: { books: { match: { path: /books }, cluster: app } }\n\
         clusters: { app: { destinations: [\"http://127.0.0.1:1\"] } }\n",
    )
    .await;
    let body = "x".repeat(4 << 20);
    for (path, status) in [("/nowhere", 404), ("/books", 502)] {
        for _ in 0..10 {
            let mut client = edge.connect().await;
            let head = format!("POST {path} HTTP/1.1\r\nhost: h\r\ncontent-length: {}\r\n\r\n", body.len());
            client.send(head).await;
            client.send(&body).await;
            assert_eq!(client.read_response().await.unwrap().status, status, "{path}");
            if status == 404 {
                assert_eq!(client.get(path, "").await.unwrap().status, 404, "nothing of the body is left");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_destination_that_is_down_when_asked_then_502_refused() {
    let port = free_port();
    let edge = Edge::start(&one_destination(&format!("http://{}", loopback(port)), "retry: off")).await;
    let answer = edge.get("/").await;
    expect_failure(&answer, 502, "the destination could not be reached or broke off", port);
    told(&edge, 502, "refused", port, "connection refused").await;
    let mut client = edge.connect().await;
    let json = client.get("/", "accept: application/json\r\nx-request-id: id-2\r\n").await.unwrap().json();
    let expected = serde_json::json!({
        "status": 502, "error": "destination_failed",
        "message": "the destination could not be reached or broke off", "request_id": "id-2",
    });
    assert_eq!(json, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_destination_that_breaks_off_before_the_head_when_asked_then_502_reset() {
    for end in [Step::Reset, Step::Close] {
        let last = end.clone();
        let origin = Origin::start(move |_| Answer::script([last.clone()])).await;
        let edge = Edge::start(&one_destination(&origin.url(), "retry: off")).await;
        let port = origin.address().port();
        expect_failure(&edge.get("/").await, 502, "the destination could not be reached or broke off", port);
        told(&edge, 502, "reset", port, "connection closed or reset").await;
        assert_eq!(origin.hits("/"), 1, "a new connection is not tried twice ({end:?})");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn given_an_answer_that_is_no_http_when_asked_then_502_protocol() {
    for garbage in ["what is this\r\n\r\n", "HTTP/1.1 abc OK\r\n\r\n", "HTTP/1.1 200 OK\r\nno colon\r\n\r\n"] {
        let origin = Origin::start(move |_| Answer::script([Step::send(garbage), Step::Wait(Gate::closed())])).await;
        let edge = Edge::start(&one_destination(&origin.url(), "retry: off")).await;
        let port = origin.address().port();
        expect_failure(&edge.get("/").await, 502, "the destination could not be reached or broke off", port);
        told(&edge, 502, "protocol", port, "answer is not HTTP").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn given_no_available_destination_when_asked_then_503_with_retry_after_and_the_connection_goes_on() {
    let origin = Origin::start(|_| Answer::new(500, "", "")).await;
    let health = "health: { available: HealthyAndUnknown, active: { type: http, path: /health, interval: 100ms, \
                  unhealthy_after: 1 } }";
    let edge = Edge::start(&one_destination(&origin.url(), health)).await;
    edge.logged(&["one[", "is unhealthy"]).await;
    let mut client = edge.connect().await;
    for _ in 0..3 {
        let answer = client.get("/asked", "x-request-id: id-3\r\n").await.unwrap();
        assert_eq!((answer.status, answer.header("retry-after")), (503, Some("1")));
        assert_eq!(answer.text(), "503 no destination is available (request id-3)\n");
    }
    let json = client.get("/asked", "accept: text/html, application/problem+json\r\n").await.unwrap().json();
    assert_eq!((&json["status"], &json["error"]), (&503.into(), &"no_destination".into()));
    assert_eq!(origin.hits("/asked"), 0);
    edge.counts(&requests("all", "GET", 503), 4.0).await;
    edge.counts("derbent_http_requests_rejected_total{route=\"all\",reason=\"no_destination\"}", 4.0).await;
    edge.counts("derbent_downstream_connections_total{listener=\"web\"}", 1.0).await;
    edge.logged(&["WARN", "no available destinations in cluster app (route all)"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_silent_destination_when_activity_timeout_is_over_then_504_before_the_head_and_a_cut_after_it() {
    let origin = Origin::start(|request| match request.target().as_str() {
        "/before" => Answer::script([Step::Wait(Gate::closed())]),
        "/length" => Answer::script([
            Step::send("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf"),
            Step::Wait(Gate::closed()),
        ]),
        _ => Answer::script([
            Step::send("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n"),
            Step::Wait(Gate::closed()),
        ]),
    })
    .await;
    let edge = Edge::start(&one_destination(&origin.url(), "request: { activity_timeout: 300ms }")).await;
    let port = origin.address().port();
    expect_failure(&edge.get("/before").await, 504, "the destination did not answer in time", port);
    told(&edge, 504, "read_timeout", port, "no byte in time").await;
    for (at, path) in ["/length", "/chunked"].into_iter().enumerate() {
        let mut client = edge.connect().await;
        client.send(format!("GET {path} HTTP/1.1\r\nhost: h\r\n\r\n")).await;
        assert_eq!(client.read_head().await.unwrap().status, 200);
        let text = String::from_utf8(client.read_to_end().await.unwrap_or_default()).unwrap();
        assert!(!text.ends_with("0\r\n\r\n") && text.len() < 10 + "\r\n".len(), "{path}: {text:?}");
        edge.counts(&errors("read_timeout"), 2.0 + at as f64).await;
        eventually(DEADLINE, "the destination's connection is closed", async || origin.open() == 0).await;
    }
    edge.counts(&requests("all", "GET", 504), 1.0).await;
    edge.counts(&requests("all", "GET", 200), 2.0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_destination_that_does_not_accept_when_connect_timeout_is_over_then_504_connect_timeout() {
    let full = FullListener::new().await;
    let edge = Edge::start(&one_destination(&full.url(), "connection: { connect_timeout: 300ms }, retry: off")).await;
    let answer = edge.get("/").await;
    expect_failure(&answer, 504, "the destination did not answer in time", full.address.port());
    told(&edge, 504, "connect_timeout", full.address.port(), "connecting timed out").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_client_that_leaves_when_no_answer_came_yet_then_it_is_nobodys_failure() {
    let origin = Origin::start(|_| Answer::script([Step::Wait(Gate::closed())])).await;
    let edge = Edge::before(&origin).await;
    let requests_sent = [
        "GET /1 HTTP/1.1\r\nhost: h\r\n\r\n",
        "POST /2 HTTP/1.1\r\nhost: h\r\ncontent-length: 9\r\n\r\nhalf",
        "POST /3 HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n",
        "POST /4 HTTP/1.1\r\nhost: h\r\ncontent-length: 4\r\n\r\nhalf",
    ];
    let mut left = 0;
    for request in requests_sent {
        for reset in [false, true] {
            let mut client = edge.connect().await;
            client.send(request).await;
            left += 1;
            eventually(DEADLINE, "the request arrives", async || origin.requests().len() == left).await;
            if reset {
                client.reset()
            } else {
                drop(client)
            }
            eventually(DEADLINE, "the upstream request is given up", async || origin.open() == 0).await;
            edge.counts(&errors("client_abort"), left as f64).await;
        }
    }
    edge.counts(&requests("all", "GET", 499), 2.0).await;
    edge.counts(&requests("all", "POST", 499), 4.0).await;
    // The ends of half a body: that client may still hear what was wrong.
    edge.counts(&requests("all", "POST", 400), 2.0).await;
    only_error(&edge, "client_abort").await;
    assert!(!edge.stderr().iter().any(|line| line.contains("WARN")), "{:#?}", edge.stderr());
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_client_that_leaves_when_it_has_part_of_the_answer_then_it_is_nobodys_failure() {
    let origin = Origin::start(|_| {
        Answer::script([
            Step::send("HTTP/1.1 200 OK\r\ncontent-length: 50000000\r\n\r\n"),
            Step::send(vec![b'x'; 1_000_000]),
            Step::Wait(Gate::closed()),
        ])
    })
    .await;
    let edge = Edge::before(&origin).await;
    for reset in [false, true] {
        let mut client = edge.connect().await;
        client.send("GET / HTTP/1.1\r\nhost: h\r\n\r\n").await;
        client.read_exact(1000).await.unwrap();
        if reset {
            client.reset()
        } else {
            drop(client)
        }
        eventually(DEADLINE, "the upstream request is given up", async || origin.open() == 0).await;
    }
    edge.counts(&requests("all", "GET", 200), 2.0).await;
    let ok = "derbent_upstream_requests_total{cluster=\"app\",destination=\"one\",code_class=\"2xx\"}";
    edge.counts(ok, 2.0).await;
    only_error(&edge, "client_abort").await;
    assert!(!edge.stderr().iter().any(|line| line.contains("WARN")), "{:#?}", edge.stderr());
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_pooled_connection_that_the_destination_closes_when_used_then_idempotent_requests_go_again_and_others_not()
 {
    for end in [Step::Close, Step::Reset] {
        let origin = closes_second_requests(end).await;
        let edge = Edge::before(&origin).await;
        let big = format!("content-length: 100000\r\n\r\n{}", "x".repeat(100_000));
        let cases = [
            ("GET", "\r\n", 200),
            ("HEAD", "\r\n", 200),
            ("DELETE", "\r\n", 200),
            ("PUT", "content-length: 4\r\n\r\nbody", 200),
            ("PUT", "transfer-encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n", 200),
            ("POST", "content-length: 4\r\n\r\nbody", 502),
            ("PATCH", "content-length: 4\r\n\r\nbody", 502),
            // More than Pingora can send again.
            ("PUT", big.as_str(), 502),
        ];
        for (method, rest, status) in cases {
            let arrived = by_pooled_connection(&edge, &origin, method, rest, status).await;
            assert_eq!(arrived.len(), if status == 200 { 2 } else { 1 }, "{method}");
            if method == "PUT" && status == 200 {
                assert_eq!(arrived[1].body, b"body");
                assert_ne!(arrived[0].connection, arrived[1].connection);
            }
        }
        edge.counts(&errors("reset"), 3.0).await;
        only_error(&edge, "reset").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_pooled_connection_closed_while_idle_when_posting_then_the_post_goes_over_a_new_one() {
    let mut origin = Origin::named("fine").await;
    let edge = Edge::before(&origin).await;
    assert_eq!(edge.get("/").await.text(), "fine");
    origin.stop().await;
    origin.restart().await;
    let mut client = edge.connect().await;
    client.send("POST /post HTTP/1.1\r\nhost: h\r\ncontent-length: 4\r\n\r\nbody").await;
    assert_eq!(client.read_response().await.unwrap().text(), "fine");
    assert_eq!(origin.hits("/post"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_malformed_request_when_sent_then_400_and_the_destination_sees_nothing() {
    let origin = Origin::named("").await;
    let edge = Edge::before(&origin).await;
    for request in [
        "GET / HTTP/1.1\r\nhost: h\r\nno colon\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: h\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab",
        "GET / HTTP/1.1\r\nhost: h\r\nhost: g\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: h\r\nx a: 1\r\n\r\n",
        "POST / HTTP/1.1\r\nhost: h\r\ncontent-length: abc\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: h\r\nconnection: host\r\n\r\n",
        "nonsense\r\n\r\n",
    ] {
        let mut client = edge.connect().await;
        client.send(request).await;
        assert_eq!(client.read_response().await.unwrap().status, 400, "{request:?}");
    }
    assert_eq!(origin.requests().len(), 0);
    edge.counts("derbent_downstream_connections{listener=\"web\"}", 0.0).await;
    assert_eq!(edge.get("/").await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_request_body_that_is_no_chunks_when_sent_then_400_and_nobodys_failure() {
    let origin = Origin::named("fine").await;
    let edge = Edge::before(&origin).await;
    let mut client = edge.connect().await;
    client.send("POST / HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\n").await;
    assert_eq!(client.read_response().await.unwrap().status, 400);
    eventually(DEADLINE, "the upstream request is given up", async || origin.open() == 0).await;
    assert!(origin.requests().iter().all(|request| !request.complete));
    only_error(&edge, "client_abort").await;
}

/// What arrived of a request that met a pooled connection; now and then Pingora gets hold of none in time.
async fn by_pooled_connection(edge: &Edge, origin: &Origin, method: &str, rest: &str, status: u16) -> Vec<Request> {
    for attempt in 0..20 {
        assert_eq!(edge.get("/fill-the-pool").await.status, 200);
        let before = origin.requests();
        let path = format!("/{method}-{}-{attempt}", before.len());
        let mut client = edge.connect().await;
        client.send(format!("{method} {path} HTTP/1.1\r\nhost: h\r\n{rest}")).await;
        let answered = client.read_head().await.unwrap().status;
        let arrived: Vec<_> = origin.requests().into_iter().filter(|request| request.target() == path).collect();
        if before.iter().any(|request| request.connection == arrived[0].connection) {
            assert_eq!(answered, status, "{method} {rest:.20?}");
            return arrived;
        }
    }
    panic!("no pooled connection was used in 20 attempts");
}

/// Answers the first request of each connection, and those that fill the pool; closes at any other, as if it had been
/// idle for too long.
async fn closes_second_requests(end: Step) -> Origin {
    let used = Mutex::new(BTreeSet::new());
    Origin::start(move |request| {
        let mut used = used.lock().unwrap();
        let first = used.insert(request.connection);
        let answer = if request.method() == "HEAD" { Answer::bodiless(200, "") } else { Answer::ok("fine") };
        match first || request.target() == "/fill-the-pool" {
            true => answer,
            false => Answer::script([Step::ReadBody, end.clone()]),
        }
    })
    .await
}

/// Accepts nothing and has its queue full, so that connecting to it hangs.
struct FullListener {
    address: std::net::SocketAddr,
    _listener: tokio::net::TcpListener,
    _waiting: Vec<Client>,
}

impl FullListener {
    async fn new() -> FullListener {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind(loopback(0)).unwrap();
        let listener = socket.listen(1).unwrap();
        let address = listener.local_addr().unwrap();
        // The queue takes one more than it says.
        let waiting = vec![Client::connect(address).await, Client::connect(address).await];
        FullListener { address, _listener: listener, _waiting: waiting }
    }

    fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

fn expect_failure(answer: &Response, status: u16, message: &str, port: u16) {
    assert_eq!(answer.status, status);
    let id = answer.header("x-request-id").expect("an id");
    assert_eq!(answer.text(), format!("{status} {message} (request {id})\n"));
    let head = String::from_utf8_lossy(&answer.head).into_owned();
    assert!(!head.contains(&port.to_string()), "the destination is named: {head}");
}

/// By metrics and log: one failed attempt of GET on route `all`.
async fn told(edge: &Edge, status: u16, reason: &str, port: u16, words: &str) {
    edge.counts(&errors(reason), 1.0).await;
    edge.counts(&requests("all", "GET", status), 1.0).await;
    only_error(edge, reason).await;
    let line = format!("request to one[127.0.0.1:{port}] of cluster app failed ({reason}): {words}");
    edge.logged(&["WARN", &line]).await;
    edge.counts("derbent_http_requests_in_flight{listener=\"web\"}", 0.0).await;
}

async fn only_error(edge: &Edge, reason: &str) {
    let metrics = edge.metrics().await;
    let counted = metrics
        .lines()
        .filter(|line| line.starts_with("derbent_upstream_errors_total") && !line.ends_with(" 0"))
        .filter(|line| !line.contains(&format!("reason=\"{reason}\"")));
    assert_eq!(counted.collect::<Vec<_>>(), [""; 0]);
}

fn errors(reason: &str) -> String {
    format!("derbent_upstream_errors_total{{cluster=\"app\",destination=\"one\",reason=\"{reason}\"}}")
}

fn requests(route: &str, method: &str, status: u16) -> String {
    format!("derbent_http_requests_total{{listener=\"web\",route=\"{route}\",method=\"{method}\",code=\"{status}\"}}")
}
