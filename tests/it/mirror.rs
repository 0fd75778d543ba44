//! Copies of requests: what a mirror gets, and that nobody else feels it.

use crate::support::{
    Answer, Client, DEADLINE, Edge, Gate, H2Client, H2Origin, Origin, Request, Response, Step, eventually, free_port,
    loopback,
};
use std::time::Duration;
use tokio::net::{TcpSocket, TcpStream};

/// Before destination `one` and, of role `mirror`, `two`; `mirror` are the section's keys.
async fn before(one: &Origin, two: &str, mirror: &str) -> Edge {
    Edge::start(&with_mirror(one, two, mirror)).await
}

fn with_mirror(one: &Origin, two: &str, mirror: &str) -> String {
    let destinations = format!("one: {{ address: \"{}\" }}, two: {{ address: \"{two}\", role: mirror }}", one.url());
    format!(
        "routes: {{ all: {{ cluster: app, match: {{ path: \"/api/{{**rest}}\" }}, transforms: [{{ path_remove_prefix: /api }}] }} }}\n\
         clusters: {{ app: {{ destinations: {{ {destinations} }}, mirror: {{ {mirror} }} }} }}\n"
    )
}

fn copies(result: &str) -> String {
    format!("derbent_mirror_requests_total{{cluster=\"app\",result=\"{result}\"}}")
}

fn compared(result: &str) -> String {
    format!("derbent_mirror_compared_total{{cluster=\"app\",result=\"{result}\"}}")
}

const IN_FLIGHT: &str = "derbent_mirror_requests_in_flight{cluster=\"app\"}";

/// So many requests arrived, and all of each.
async fn arrived(origin: &Origin, count: usize) -> Vec<Request> {
    let whole = async || origin.requests().iter().filter(|request| request.complete).count() == count;
    eventually(DEADLINE, &format!("{count} requests at the mirror"), whole).await;
    origin.requests()
}

async fn post(client: &mut Client, headers: &str, body: &[u8]) -> Response {
    let head =
        format!("POST /api/a?b=1 HTTP/1.1\r\nhost: shop.example\r\n{headers}content-length: {}\r\n\r\n", body.len());
    client.send([head.as_bytes(), body].concat()).await;
    client.read_response().await.expect("an answer")
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_mirror_when_a_request_comes_then_it_gets_what_the_destination_gets_for_the_clients_host_and_marked() {
    let (one, two) = (Origin::named("one").await, Origin::named("two").await);
    let edge = before(&one, &format!("{}/shadow", two.url()), "percent: 100%").await;
    let mut client = edge.connect().await;
    let hops =
        "connection: keep-alive, x-private\r\nx-private: 1\r\nx-real-ip: 9.9.9.9\r\ncookie: a=1\r\nte: trailers\r\n";
    assert_eq!(post(&mut client, hops, b"hello").await.text(), "one");
    let (copy, request) = (arrived(&two, 1).await.remove(0), one.requests().remove(0));
    assert_eq!((copy.method(), copy.target()), ("POST".into(), "/shadow/a?b=1".into()));
    assert_eq!((copy.body.clone(), request.target()), (b"hello".to_vec(), "/a?b=1".into()));
    assert_eq!(copy.header("host").as_deref(), Some("shop.example"));
    assert_eq!(copy.header("x-derbent-mirror").as_deref(), Some("1"));
    for same in ["x-forwarded-for", "x-forwarded-proto", "x-forwarded-host", "x-request-id", "cookie", "content-length"]
    {
        assert!(copy.header(same).is_some(), "{same}");
        assert_eq!(copy.header(same), request.header(same), "{same}");
    }
    for gone in ["x-private", "x-real-ip"] {
        assert_eq!((copy.header(gone), request.header(gone)), (None, None), "{gone}");
    }
    assert_eq!((request.header("x-derbent-mirror"), copy.header("connection")), (None, None));
    edge.counts(&copies("ok"), 1.0).await;
    edge.counts(IN_FLIGHT, 0.0).await;
    let answers = "derbent_upstream_requests_total{cluster=\"app\",destination=\"two\",code_class=\"2xx\"}";
    assert_eq!(edge.metric(answers).await, Some(0.0));
    // One after the other they share a connection.
    post(&mut client, "", b"").await;
    assert!(arrived(&two, 2).await.iter().all(|copy| copy.connection == 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_copy_or_an_upgrade_when_it_comes_then_it_is_not_copied() {
    let answer = |request: &Request| match request.header("upgrade") {
        Some(_) => Answer::upgrade("websocket"),
        None => Answer::ok("one"),
    };
    let (one, two) = (Origin::start(answer).await, Origin::named("two").await);
    let edge = before(&one, &two.url(), "percent: 100%").await;
    assert_eq!(post(&mut edge.connect().await, "x-derbent-mirror: 1\r\n", b"").await.text(), "one");
    assert_eq!(one.requests()[0].header("x-derbent-mirror"), None);
    let mut tunnel = edge.connect().await;
    let upgrade = "connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    tunnel.send(format!("GET /api/ws HTTP/1.1\r\nhost: h\r\n{upgrade}\r\n")).await;
    assert_eq!(tunnel.read_head().await.expect("an answer").status, 101);
    // A later one is, so that it is seen that those before were not.
    assert_eq!(edge.get("/api/last").await.text(), "one");
    assert_eq!(arrived(&two, 1).await[0].target(), "/last");
    edge.counts(&copies("ok"), 1.0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_share_when_a_hundred_requests_come_then_exactly_so_many_are_copied() {
    let (one, two) = (Origin::named("one").await, Origin::named("two").await);
    let edge = before(&one, &two.url(), "percent: 15%").await;
    let mut client = edge.connect().await;
    for n in 0..100 {
        assert_eq!(client.get(&format!("/api/{n}"), "").await.expect("an answer").text(), "one");
    }
    edge.counts(&copies("ok"), 15.0).await;
    assert_eq!((two.requests().len(), one.requests().len()), (15, 100));
}

#[tokio::test(flavor = "multi_thread")]
async fn given_bodies_when_copied_then_whole_up_to_the_bound_and_larger_ones_not_at_all() {
    let (one, two) = (Origin::named("one").await, Origin::named("two").await);
    let edge = before(&one, &two.url(), "percent: 100%").await;
    let body = |size: usize| (0..size).map(|at| (at % 251) as u8).collect::<Vec<u8>>();
    let mut client = edge.connect().await;
    for size in [0, 1, 65_536, 65_537, 300_000] {
        assert_eq!(post(&mut client, "", &body(size)).await.text(), "one", "{size}");
    }
    edge.counts(&copies("dropped_body"), 2.0).await;
    client.send("POST /api/chunks HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\nexpect: 100-continue\r\n\r\n5\r\nhello\r\n0\r\n\r\n").await;
    while client.read_response().await.expect("an answer").status < 200 {}
    let copies = arrived(&two, 4).await;
    let mut sizes: Vec<usize> = copies.iter().map(|copy| copy.body.len()).collect();
    sizes.sort_unstable();
    assert_eq!(sizes, [0, 1, 5, 65_536]);
    assert!(copies.iter().all(|copy| copy.body == b"hello" || copy.body == body(copy.body.len())));
    let chunked = copies.iter().find(|copy| copy.target() == "/chunks").expect("it was copied");
    assert_eq!(chunked.header("content-length").as_deref(), Some("5"));
    assert_eq!((chunked.header("transfer-encoding"), chunked.header("expect")), (None, None));
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_mirror_that_hangs_when_requests_go_on_then_they_are_answered_and_copies_are_bounded_and_end() {
    let gate = Gate::closed();
    let held = gate.clone();
    let (one, two) = (Origin::named("one").await, {
        Origin::start(move |_| Answer::ok("two").after([Step::Wait(held.clone())])).await
    });
    let edge = before(&one, &two.url(), "percent: 100%, max_in_flight: 3, timeout: 30s").await;
    let mut client = edge.connect().await;
    for _ in 0..20 {
        assert_eq!(client.get("/api/a", "").await.expect("an answer").text(), "one");
    }
    edge.counts(&copies("dropped_full"), 17.0).await;
    assert_eq!(edge.metric(IN_FLIGHT).await, Some(3.0));
    gate.open();
    edge.counts(&copies("ok"), 3.0).await;
    edge.counts(IN_FLIGHT, 0.0).await;
    let destination = edge.destination("app", "two").await;
    assert_eq!(destination["in_flight"], 0, "{destination}");
}

/// However far a connection gets: not at all, for the first that nobody accepts is all that a backlog of 0 has room for; or to
/// where it waits for a word.
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn given_a_mirror_that_lets_nobody_connect_or_says_no_word_when_requests_go_on_then_copies_are_bounded_and_end() {
    let one = Origin::named("one").await;
    for (scheme, backlog, request) in
        [("http", 0, "{}"), ("https", 0, "{}"), ("http", 64, "{ version_policy: Exact }"), ("https", 64, "{}")]
    {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind(loopback(0)).expect("its port");
        let silent = socket.listen(backlog).expect("a listener");
        let address = silent.local_addr().expect("its address");
        let first = TcpStream::connect(address).await.expect("the first");
        let edge = Edge::start(&format!(
            "routes: {{ all: {{ cluster: app }} }}\n\
             clusters:\n  app: {{ destinations: [\"{}\"], mirror: {{ percent: 100%, cluster: next, max_in_flight: 3, timeout: 1m }} }}\n\
             \x20 next: {{ destinations: {{ n: \"{scheme}://{address}\" }}, request: {request}, connection: {{ connect_timeout: 10m }} }}\n",
            one.url(),
        ))
        .await;
        let mut client = edge.connect().await;
        for _ in 0..20 {
            assert_eq!(post(&mut client, "", b"hello").await.text(), "one");
        }
        edge.counts(&copies("dropped_full"), 17.0).await;
        assert_eq!(edge.metric(IN_FLIGHT).await, Some(3.0), "{scheme} {backlog}");
        drop((first, silent));
        edge.counts(&copies("failed"), 3.0).await;
        edge.counts(IN_FLIGHT, 0.0).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_copy_that_was_answered_when_the_next_goes_then_it_takes_the_same_connection_until_the_mirror_leaves() {
    let (one, two) = (Origin::named("one").await, Origin::named("two").await);
    let edge = before(&one, &two.url(), "percent: 100%").await;
    let mut client = edge.connect().await;
    for sent in 1..=5 {
        post(&mut client, "", b"hello").await;
        edge.counts(&copies("ok"), f64::from(sent)).await;
    }
    assert_eq!((arrived(&two, 5).await.len(), two.accepted()), (5, 1));
    edge.reload(
        &with_mirror(&one, &two.url(), "percent: 100%").replace("role: mirror", "role: mirror, enabled: false"),
    )
    .await;
    eventually(DEADLINE, "its connection ends", async || two.open() == 0).await;
}

/// Else the thread of the copies alone takes 2 MiB at a time.
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn given_the_process_when_it_runs_then_it_has_no_transparent_huge_pages() {
    let edge = Edge::before(&Origin::named("one").await).await;
    let status = std::fs::read_to_string(format!("/proc/{}/status", edge.pid())).expect("its status");
    assert!(status.contains("THP_enabled:\t0\n"), "{status}");
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_mirror_without_answers_when_its_time_is_over_or_it_refuses_then_it_is_told_and_no_health_hears_of_it()
{
    let one = Origin::named("one").await;
    let silent = Origin::start(|_| Answer::script([Step::Wait(Gate::closed())])).await;
    let edge = before(&one, &silent.url(), "percent: 100%, timeout: 50ms").await;
    assert_eq!(edge.get("/api/a").await.text(), "one");
    edge.counts(&copies("timeout"), 1.0).await;
    edge.logged(&["mirror two of cluster app gave no answer: timed out after 50ms"]).await;
    let reset = Origin::start(|_| Answer::script([Step::Reset])).await;
    for url in [format!("http://{}", loopback(free_port())), reset.url()] {
        let edge = before(&one, &url, "percent: 100%").await;
        for _ in 0..5 {
            assert_eq!(edge.get("/api/a").await.text(), "one");
        }
        edge.counts(&copies("failed"), 5.0).await;
        let destination = edge.destination("app", "two").await;
        assert_eq!(destination["marks"], serde_json::json!([]), "{destination}");
        let unanswered = "derbent_upstream_errors_total{cluster=\"app\",destination=\"two\",reason=\"refused\"}";
        assert_eq!(edge.metric(unanswered).await, Some(0.0));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn given_answers_when_compared_then_by_status_and_length_whichever_is_first() {
    let one = Origin::start(|request| match request.target().as_str() {
        "/slow" => Answer::ok("12345").after([Step::Pause(Duration::from_millis(100))]),
        "/chunks" => Answer::chunked(&["1", "2345"]),
        _ => Answer::ok("12345"),
    })
    .await;
    let two = Origin::start(|request| match request.target().as_str() {
        "/status" => Answer::new(500, "", "12345"),
        "/length" => Answer::ok("1234"),
        _ => Answer::ok("54321"),
    })
    .await;
    let edge = before(&one, &two.url(), "percent: 100%, compare: true").await;
    let mut client = edge.connect().await;
    for path in ["/same", "/slow", "/chunks", "/status", "/length"] {
        client.get(&format!("/api{path}"), "").await.expect("an answer");
    }
    edge.counts(&compared("same"), 3.0).await;
    edge.counts(&compared("status"), 1.0).await;
    edge.counts(&compared("length"), 1.0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn given_another_cluster_and_a_dead_primary_when_a_request_is_sent_again_then_its_copy_is_sent_once() {
    let (one, two) = (Origin::named("one").await, Origin::named("two").await);
    let reset = Origin::start(|_| Answer::script([Step::ReadBody, Step::Reset])).await;
    let edge = Edge::start(&format!(
        "routes: {{ all: {{ cluster: app }} }}\n\
         clusters:\n  app: {{ destinations: {{ a: \"{}\", b: \"{}\" }}, load_balancing: FirstAlphabetical, mirror: {{ percent: 100%, cluster: next }} }}\n\
         \x20 next: {{ destinations: {{ n: \"{}\" }} }}\n",
        reset.url(),
        one.url(),
        two.url()
    ))
    .await;
    let mut client = edge.connect().await;
    client.send("PUT /a HTTP/1.1\r\nhost: h\r\ncontent-length: 5\r\n\r\nhello").await;
    assert_eq!(client.read_response().await.expect("an answer").text(), "one");
    edge.counts(&copies("ok"), 1.0).await;
    assert_eq!((reset.requests().len(), two.requests().len()), (1, 1));
    assert_eq!(two.requests()[0].body, b"hello");
    assert_eq!(edge.destination("next", "n").await["in_flight"], 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn given_http2_on_either_side_when_copied_then_what_was_asked_arrives() {
    let (one, two) = (Origin::named("one").await, Origin::named("two").await);
    let address = loopback(free_port());
    let listener = format!("listeners: {{ web: {{ address: \"{address}\", protocols: [http1, h2c] }} }}\n");
    let _edge = Edge::start(&(listener + &with_mirror(&one, &two.url(), "percent: 100%"))).await;
    let client = H2Client::connect(address).await;
    let request =
        || http::Request::post("http://shop.example/api/a?b=1").header("cookie", "a=1").header("cookie", "b=2");
    let answer = client.send(request().body(()).expect("a request"), b"hello").await.expect("an answer");
    assert_eq!(answer.text(), "one");
    let copy = arrived(&two, 1).await.remove(0);
    assert!(copy.head.starts_with(b"POST /a?b=1 HTTP/1.1\r\n"));
    assert_eq!(copy.header("host").as_deref(), Some("shop.example"));
    assert_eq!((copy.header("cookie").as_deref(), &copy.body[..]), (Some("a=1; b=2"), &b"hello"[..]));
    let far = H2Origin::start().await;
    let edge = Edge::start(&format!(
        "routes: {{ all: {{ cluster: app }} }}\n\
         clusters:\n  app: {{ destinations: [\"{}\"], mirror: {{ percent: 100%, cluster: next }} }}\n\
         \x20 next: {{ destinations: {{ n: \"http://{}/shadow\" }}, request: {{ version: 2, version_policy: Exact }} }}\n",
        one.url(),
        far.address(),
    ))
    .await;
    let mut plain = edge.connect().await;
    assert_eq!(post(&mut plain, "", b"hello").await.text(), "one");
    edge.counts(&copies("ok"), 1.0).await;
    post(&mut plain, "", b"").await;
    edge.counts(&copies("ok"), 2.0).await;
    assert_eq!((far.seen().len(), far.connections()), (2, 1));
    let seen = far.seen().remove(0);
    assert_eq!(seen.uri.to_string(), "http://shop.example/shadow/api/a?b=1");
    assert_eq!(seen.headers["x-derbent-mirror"], "1");
    assert!(!seen.headers.contains_key("host"));
}
