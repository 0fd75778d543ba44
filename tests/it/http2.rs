//! HTTP/2 on either side, and gRPC over it.

use crate::support::{
    Answer, Call, Client, DEADLINE, Edge, GoAway, GrpcHealth, H2Client, H2Origin, H2Response, Origin, Step, eventually,
    free_port, in_time, loopback, take,
};
use bytes::Bytes;
use http::Request;
use std::net::SocketAddr;
use std::sync::Arc;
use tempfile::TempDir;
use tokio::task::JoinSet;

const EXACT: &str = "request: { version: 2, version_policy: Exact }";

/// An edge with a listener for HTTP/1 and h2c; `more` are further keys of the cluster.
async fn edge(destination: SocketAddr, more: &str) -> (Edge, SocketAddr) {
    let address = loopback(free_port());
    let yaml = format!(
        "listeners: {{ web: {{ address: \"{address}\", protocols: [http1, h2c] }} }}\n\
         routes:\n  grpc: {{ match: {{ path: \"/s/{{**m}}\" }}, cluster: app }}\n  \
         all: {{ match: {{ hosts: [shop.example] }}, cluster: app }}\n\
         clusters: {{ app: {{ destinations: {{ one: \"http://{destination}\" }}, {more} }} }}\n"
    );
    (Edge::start(&yaml).await, address)
}

fn grpc(path: &str) -> Request<()> {
    Request::post(format!("http://shop.example{path}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(())
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn given_grpc_when_called_then_messages_stream_both_ways_and_trailers_arrive() {
    let origin = H2Origin::start().await;
    let (edge, address) = edge(origin.address(), EXACT).await;
    let client = H2Client::connect(address).await;
    let unary = client.send(grpc("/s/unary"), b"ping").await.unwrap();
    assert_eq!((unary.status, unary.text().as_str()), (200, "ping"));
    assert_eq!(unary.trailers["grpc-status"], "0");
    // Each message is answered before the next is sent.
    let (mut messages, response) = client.open(grpc("/s/stream")).await;
    let mut echoed = in_time("the head of the stream", response).await.unwrap().into_body();
    for message in ["one", "two", "three"] {
        messages.send_data(Bytes::from(message), false).unwrap();
        let chunk = in_time("an echo", echoed.data()).await.unwrap().unwrap();
        assert_eq!(take(&mut echoed, chunk), message);
    }
    messages.send_data(Bytes::new(), true).unwrap();
    assert!(in_time("the end", echoed.data()).await.is_none());
    assert_eq!(in_time("trailers", echoed.trailers()).await.unwrap().unwrap()["grpc-status"], "0");

    let seen = origin.seen();
    assert_eq!((seen[0].headers["te"].as_bytes(), origin.connections()), (&b"trailers"[..], 1));
    assert_eq!(seen[0].uri.authority().unwrap().as_str(), origin.address().to_string());
    assert_eq!(seen[0].headers["x-forwarded-host"], "shop.example");
    edge.logged(&["DEBUG", "/s/unary, HTTP/2.0 asked, HTTP/2.0 received"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_destination_that_leaves_every_few_requests_when_posted_to_then_none_fails() {
    let origin = GoAway::after(7).await;
    let (edge, address) = edge(origin.address(), EXACT).await;
    let client = Arc::new(H2Client::connect(address).await);
    let mut calls = JoinSet::new();
    for _ in 0..20 {
        let client = client.clone();
        calls.spawn(async move {
            for _ in 0..10 {
                let answer = client.send(grpc("/s/call"), b"message").await.unwrap();
                assert_eq!((answer.status, answer.header("grpc-status")), (200, None));
            }
        });
    }
    calls.join_all().await;
    assert!(origin.connections() >= 200 / 7, "{}", origin.connections());
    for word in ["overload", "protocol", "reset"] {
        edge.counts(&failed(word), 0.0).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_destination_that_refuses_streams_when_posted_to_then_others_rounds_serve_until_all_are_refused() {
    let now_and_then = H2Origin::refusing(|number| number % 3 == 1).await;
    let (edge, address) = edge(now_and_then.address(), EXACT).await;
    let client = H2Client::connect(address).await;
    for _ in 0..6 {
        assert_eq!(client.send(grpc("/s/call"), b"message").await.unwrap().text(), "message");
    }
    edge.counts(&failed("overload"), 3.0).await;
    edge.counts("derbent_upstream_retries_total{cluster=\"app\",reason=\"overload\"}", 3.0).await;
    let always = H2Origin::refusing(|_| true).await;
    let (edge, address) = self::edge(always.address(), EXACT).await;
    let client = H2Client::connect(address).await;
    let answer = client.send(grpc("/s/call"), b"").await.unwrap();
    assert_eq!((answer.status, answer.header("grpc-status")), (200, Some("14")));
    assert_eq!(client.get("http://shop.example/").await.unwrap().status, 503);
    assert_eq!(always.seen().len(), 6);
    edge.counts(&failed("overload"), 6.0).await;
    edge.logged(&["WARN", "failed (overload): refused unprocessed"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_status_of_grpc_in_on_grpc_when_it_is_the_whole_answer_then_another_is_asked_for_calls_of_grpc_alone() {
    const UNAVAILABLE: Call = Call::Code(14);
    let (declines, serves, also) = (
        GrpcHealth::start(UNAVAILABLE, None).await,
        H2Origin::start().await,
        GrpcHealth::start(UNAVAILABLE, None).await,
    );
    let address = loopback(free_port());
    let yaml = |second: SocketAddr, retry: &str| {
        format!(
            "listeners: {{ web: {{ address: \"{address}\", protocols: [http1, h2c] }} }}\n\
             routes: {{ all: {{ cluster: app }} }}\n\
             clusters: {{ app: {{ destinations: {{ a: \"http://{}\", b: \"http://{second}\" }}, {EXACT}, \
             load_balancing: FirstAlphabetical, retry: {retry} }} }}\n",
            declines.address()
        )
    };
    let (on, retried) =
        ("{ on_grpc: unavailable }", "derbent_upstream_retries_total{cluster=\"app\",reason=\"status\"}");
    let edge = Edge::start(&yaml(serves.address(), on)).await;
    let client = H2Client::connect(address).await;
    let status = async |request| {
        let answer: H2Response = client.send(request, b"message").await.unwrap();
        answer.headers.get("grpc-status").or(answer.trailers.get("grpc-status")).unwrap().to_str().unwrap().to_owned()
    };
    for call in 1..4 {
        let answer = client.send(grpc("/s/call"), b"message").await.unwrap();
        assert_eq!((answer.text().as_str(), declines.seen().len()), ("message", call));
    }
    assert_eq!(declines.seen()[0].body, b"message");
    edge.counts(retried, 3.0).await;
    let mut other = grpc("/s/call");
    other.headers_mut().insert("content-type", "application/json".parse().unwrap());
    assert_eq!(status(other).await, "14");
    for (answer, passes) in [(Call::Code(8), "8"), (Call::Status(1), "0")] {
        declines.answer(answer);
        assert_eq!(status(grpc("/s/call")).await, passes);
    }
    declines.answer(UNAVAILABLE);
    edge.counts(retried, 3.0).await;
    edge.reload(&yaml(also.address(), on)).await;
    assert_eq!((status(grpc("/s/call")).await.as_str(), also.seen().len()), ("14", 1));
    // The first one once more, as none is left.
    edge.counts(retried, 5.0).await;
    edge.reload(&yaml(serves.address(), "{}")).await;
    assert_eq!(status(grpc("/s/call")).await, "14");
}

fn failed(word: &str) -> String {
    format!("derbent_upstream_errors_total{{cluster=\"app\",destination=\"one\",reason=\"{word}\"}}")
}

#[tokio::test(flavor = "multi_thread")]
async fn given_hundreds_of_streams_at_once_when_asked_then_all_are_answered_over_few_connections() {
    let origin = H2Origin::start().await;
    let (_edge, address) = edge(origin.address(), EXACT).await;
    let client = Arc::new(H2Client::connect(address).await);
    // Then it knows how many streams it may open at a time.
    client.get("http://shop.example/").await.unwrap();
    let mut calls = JoinSet::new();
    for number in 0..200 {
        let client = client.clone();
        calls.spawn(async move {
            let body = format!("{number} ").repeat(1 + number % 50 * 200);
            let answer = client.send(grpc("/s/call"), body.as_bytes()).await.unwrap();
            assert!(answer.text() == body && answer.trailers["grpc-status"] == "0", "{number}");
        });
    }
    calls.join_all().await;
    assert_eq!(origin.seen().len(), 201);
    assert!(origin.connections() < 100, "{}", origin.connections());
}

#[tokio::test(flavor = "multi_thread")]
async fn given_uploads_from_http2_to_http1_when_one_follows_the_other_then_no_stray_chunk_is_between() {
    let origin = Origin::named("stored").await;
    let (edge, address) = edge(origin.address(), "").await;
    let client = H2Client::connect(address).await;
    let large = [b'x'; 300_000];
    for round in 0..10 {
        let body = if round % 2 == 0 { &b"small"[..] } else { &large };
        let request = Request::put("http://shop.example/file").body(()).unwrap();
        let answer = client.send(request, body).await.unwrap();
        assert_eq!((answer.status, answer.text().as_str()), (200, "stored"));
        // The answer may be here before its connection is back in the pool.
        edge.counts("derbent_http_requests_in_flight{listener=\"web\"}", 0.0).await;
    }
    let seen = origin.requests();
    assert!(seen.iter().all(|request| request.method() == "PUT" && request.complete));
    let lengths: Vec<usize> = seen.iter().map(|request| request.body.len()).collect();
    assert_eq!(lengths, [5, 300_000].repeat(5));
    assert!(origin.accepted() < 10, "{}", origin.accepted());
    edge.logged(&["DEBUG", "/file, HTTP/1.1 asked, HTTP/1.1 received"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_head_of_http2_when_sent_on_in_http1_then_it_is_one_of_http1() {
    let origin = Origin::named("one").await;
    let (_edge, address) = edge(origin.address(), "").await;
    let client = H2Client::connect(address).await;
    let mut request = grpc("/s/x?y=1");
    for crumb in ["a=1", "b=2; c=3", "d=4"] {
        request.headers_mut().append("cookie", crumb.parse().unwrap());
    }
    request.headers_mut().insert("proxy-authorization", "Basic x".parse().unwrap());
    client.send(request, b"").await.unwrap();
    let seen = &origin.requests()[0];
    assert_eq!((seen.method().as_str(), seen.target().as_str()), ("POST", "/s/x?y=1"));
    assert_eq!(seen.header("cookie").as_deref(), Some("a=1; b=2; c=3; d=4"));
    assert_eq!(seen.headers().iter().filter(|(name, _)| name.eq_ignore_ascii_case("cookie")).count(), 1);
    assert_eq!(seen.header("host"), Some(origin.address().to_string()));
    assert_eq!(seen.header("x-forwarded-host").as_deref(), Some("shop.example"));
    for gone in ["te", "connection", "proxy-authorization"] {
        assert_eq!(seen.header(gone), None, "{gone}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn given_http1_clients_when_the_destination_speaks_http2_then_they_are_served_in_http1() {
    let origin = H2Origin::start().await;
    let (edge, address) = edge(origin.address(), EXACT).await;
    let mut client = Client::connect(address).await;
    client.send("PUT /a?b HTTP/1.1\r\nhost: shop.example\r\ntransfer-encoding: chunked\r\nte: trailers\r\n\r\n").await;
    client.send("3\r\nabc\r\n0\r\n\r\n").await;
    let answer = client.read_response().await.unwrap();
    assert_eq!((answer.status, answer.text().as_str()), (200, "abc"));
    assert_eq!(origin.seen()[0].uri.path_and_query().unwrap(), "/a?b");
    assert!(!origin.seen()[0].headers.contains_key("te"));
    // A WebSocket needs HTTP/1.1, which this cluster forbids.
    let upgrade = "connection: upgrade\r\nupgrade: websocket\r\n";
    client.send(format!("GET / HTTP/1.1\r\nhost: shop.example\r\n{upgrade}\r\n")).await;
    assert_eq!(client.read_response().await.unwrap().status, 502);
    assert_eq!(origin.seen().len(), 1);
    edge.counts("derbent_downstream_connections{listener=\"web\"}", 1.0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn given_errors_of_ours_when_a_grpc_client_is_told_then_by_a_grpc_status_in_the_head() {
    let nobody = loopback(free_port());
    let (_edge, address) = edge(nobody, EXACT).await;
    let client = H2Client::connect(address).await;
    for (request, code) in [(grpc("/s/x"), "14"), (Request::post("http://x/y").body(()).unwrap(), "12")] {
        let mut request = request;
        request.headers_mut().insert("content-type", "application/grpc+proto".parse().unwrap());
        let answer = client.send(request, b"message").await.unwrap();
        assert_eq!((answer.status, answer.header("grpc-status")), (200, Some(code)));
        assert!(
            answer.body.is_empty()
                && answer.header("grpc-message").is_some()
                && answer.header("x-request-id").is_some()
        );
    }
    let silent = Origin::start(|_| Answer::script([Step::Pause(DEADLINE)])).await;
    let (_edge, address) = self::edge(silent.address(), "request: { activity_timeout: 50ms }").await;
    let client = H2Client::connect(address).await;
    assert_eq!(client.send(grpc("/s/x"), b"").await.unwrap().header("grpc-status"), Some("4"));
    assert_eq!(client.get("http://shop.example/").await.unwrap().status, 504);
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_listener_of_both_when_bytes_drip_then_none_waits_for_ever_and_short_requests_are_served() {
    let origin = Origin::named("one").await;
    let (edge, address) = edge(origin.address(), "").await;
    let mut stuck = JoinSet::new();
    for sent in ["", "PRI * HT", "PRI * HTTP/2.0\r\n\r\nSM", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "GET / HT"] {
        let mut client = Client::connect(address).await;
        client.send(sent).await;
        // What the server says of itself, and the end.
        stuck.spawn(async move { client.read_to_end().await });
    }
    let mut client = Client::connect(address).await;
    client.send("GET / HTTP/1.0\r\n\r\n").await;
    assert_eq!(client.read_response().await.unwrap().status, 404);
    let mut client = Client::connect(address).await;
    client.send("GET / HTTP/1.0\r\nhost: shop.example\r\n\r\n").await;
    assert_eq!(client.read_response().await.unwrap().text(), "one");
    stuck.join_all().await;
    edge.counts("derbent_downstream_connections{listener=\"web\"}", 0.0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_listener_of_h2c_alone_when_http1_comes_then_it_is_not_spoken() {
    let origin = Origin::named("one").await;
    let address = loopback(free_port());
    let _edge = Edge::start(&format!(
        "listeners: {{ web: {{ address: \"{address}\", protocols: h2c }} }}\n\
         routes: {{ all: {{ cluster: app }} }}\nclusters: {{ app: {{ destinations: [\"{}\"] }} }}\n",
        origin.url()
    ))
    .await;
    let mut client = Client::connect(address).await;
    client.send("GET / HTTP/1.1\r\nhost: shop.example\r\n\r\n").await;
    assert!(client.read_to_end().await.unwrap_or_default().is_empty());
    assert_eq!(H2Client::connect(address).await.get("http://shop.example/").await.unwrap().text(), "one");
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_drain_when_begun_then_http2_is_told_to_go_and_what_is_in_flight_ends_well() {
    let origin = H2Origin::start().await;
    let (mut edge, address) = edge(origin.address(), EXACT).await;
    let client = H2Client::connect(address).await;
    let (mut messages, response) = client.open(grpc("/s/stream")).await;
    let idle = H2Client::connect(address).await;
    idle.send(grpc("/s/x"), b"x").await.unwrap();
    edge.signal("TERM");
    // Without a word the idle one would be open for a minute.
    idle.closed().await.unwrap();
    let late = H2Client::connect(address).await;
    assert_eq!(late.send(grpc("/s/x"), b"late").await.unwrap().text(), "late");
    late.closed().await.unwrap();
    messages.send_data(Bytes::from("in flight"), true).unwrap();
    assert_eq!(H2Response::read(response).await.unwrap().text(), "in flight");
    client.closed().await.unwrap();
    assert!(edge.ended().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn given_h2c_exact_when_probed_then_only_who_speaks_it_is_healthy_and_the_others_cause_says_so() {
    let (h2c, http1) = (H2Origin::start().await, Origin::named("one").await);
    let closes = Origin::start(|_| Answer::script([Step::Close])).await;
    let yaml = format!(
        "routes: {{ all: {{ cluster: app }} }}\n\
         clusters:\n  app:\n    destinations: {{ h2c: \"http://{}\", http1: \"{}\", closes: \"{}\" }}\n    {EXACT}\n    \
         health: {{ active: {{ type: http, interval: 100ms, unhealthy_after: 1 }} }}\n  \
         own: {{ destinations: {{ http1: \"{}\" }}, {EXACT}, health: {{ active: {{ type: http, version: 1.1 }} }} }}\n",
        h2c.address(),
        http1.url(),
        closes.url(),
        http1.url(),
    );
    let edge = Edge::start(&yaml).await;
    for (cluster, id, state) in [
        ("app", "h2c", "healthy"),
        ("app", "http1", "unhealthy"),
        ("app", "closes", "unhealthy"),
        ("own", "http1", "healthy"),
    ] {
        eventually(DEADLINE, id, async || edge.destination(cluster, id).await["state"] == state).await;
    }
    for id in ["http1", "closes"] {
        edge.logged(&["INFO", &format!("probe of {id}["), "in cluster app: speaks no cleartext HTTP/2 ("]).await;
    }
    let seen = &h2c.seen()[0];
    assert_eq!((seen.method.as_str(), seen.uri.to_string()), ("GET", format!("http://{}/", h2c.address())));
    assert!(seen.headers["user-agent"].to_str().unwrap().starts_with("derbent/"));
    let before = h2c.connections();
    eventually(DEADLINE, "each probe has a connection of its own", async || h2c.connections() > before + 1).await;
    assert_eq!(edge.get("/").await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn given_version_1_0_when_asked_then_requests_say_so_and_have_connections_of_their_own() {
    let origin = Origin::named("old").await;
    let more = "request: { version: 1.0 }, health: { active: http }";
    let (edge, address) = edge(origin.address(), more).await;
    for _ in 0..2 {
        let mut client = Client::connect(address).await;
        client.send("PUT / HTTP/1.1\r\nhost: shop.example\r\ncontent-length: 2\r\n\r\nhi").await;
        assert_eq!(client.read_response().await.unwrap().text(), "old");
    }
    let mut client = Client::connect(address).await;
    client.send("PUT / HTTP/1.1\r\nhost: shop.example\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n").await;
    assert_eq!(client.read_response().await.unwrap().status, 411);
    let seen = origin.requests();
    assert!(seen.iter().all(|request| request.head.windows(11).any(|part| part == b" HTTP/1.0\r\n")), "{seen:?}");
    let connections: Vec<usize> = seen.iter().map(|request| request.connection).collect();
    assert_eq!(connections, [1, 2, 3]);
    edge.logged(&["DEBUG", "HTTP/1.0 asked, HTTP/1.1 received"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_second_certificate_without_a_name_when_checked_then_it_is_a_fault() {
    let directory = TempDir::new().unwrap();
    for (file, names) in [("first", vec![]), ("second", vec![])] {
        let made = rcgen::generate_simple_self_signed(names).unwrap();
        std::fs::write(directory.path().join(format!("{file}.pem")), made.cert.pem()).unwrap();
        std::fs::write(directory.path().join(format!("{file}.key")), made.signing_key.serialize_pem()).unwrap();
    }
    let yaml = "listeners: { web: { address: \"127.0.0.1:1\", tls: { certificates: [{ cert: first.pem, key: first.key },\n\
                \x20 { cert: second.pem, key: second.key }] } } }\n\
                routes: { all: { respond: {} } }\n";
    let file = directory.path().join("derbent.yaml");
    std::fs::write(&file, yaml).unwrap();
    let output = crate::support::derbent(["check".as_ref(), "-c".as_ref(), file.as_os_str()]).await;
    let told = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    assert!(told.contains("listeners.web.tls.certificates[1].cert: ") && told.contains("names no host"), "{told}");
    assert!(told.contains("1 fault"), "{told}");
}
