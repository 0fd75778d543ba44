//! What a destination gets to see of a request's head, and the client of the answer's.

use crate::support::{Answer, Client, Edge, Origin, Request, Response, one_destination};

const ODD_TARGETS: [&str; 21] = [
    "/",
    "/?",
    "/a?",
    "/a%2Fb%2f",
    "//a//b/",
    "//",
    "/a;b=c;d",
    "/a/../b/./c",
    "/..",
    "/a/%2e%2e/%2E/b",
    "/a?b=c?d&&=",
    "/a?/../%2F//;",
    "/a?%00%20+%zz",
    "/a%zz%",
    "/~!$&'()*+,;=:@-._",
    "/a|b",
    "/a?b={c}&d[]=e",
    "/a:80//b@c",
    "/http://other.example/x",
    "/?http://other.example/?",
    "/*",
];

#[tokio::test(flavor = "multi_thread")]
async fn given_odd_paths_and_queries_when_forwarded_then_they_arrive_byte_for_byte() {
    let origin = Origin::named("").await;
    let edge = Edge::before(&origin).await;
    let mut client = edge.connect().await;
    for target in ODD_TARGETS {
        assert_eq!(target_seen(&origin, &mut client, target).await, target);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_prefix_to_remove_when_forwarded_then_it_alone_is_missing() {
    let origin = Origin::named("").await;
    let edge = Edge::start(&format!(
        "routes: {{ api: {{ match: {{ path: \"/api/v1/{{**rest}}\" }}, cluster: app, \
         transforms: [{{ path_remove_prefix: /api/v1 }}] }} }}\n\
         clusters: {{ app: {{ destinations: [\"{}\"] }} }}\n",
        origin.url()
    ))
    .await;
    let mut client = edge.connect().await;
    for target in ODD_TARGETS {
        let sent = format!("/api/v1{target}");
        assert_eq!(target_seen(&origin, &mut client, &sent).await, target, "sent {sent}");
    }
    for (sent, expected) in [
        ("/api/v1", "/"),
        ("/api/v1?a=/api/v1", "/?a=/api/v1"),
        ("/api/v1/api/v1/b", "/api/v1/b"),
        ("http://shop.example/api/v1/a%2Fb/../c;d?e=f?g&", "/a%2Fb/../c;d?e=f?g&"),
    ] {
        assert_eq!(target_seen(&origin, &mut client, sent).await, expected, "sent {sent}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_path_in_the_destinations_address_when_forwarded_then_it_goes_before_the_requests() {
    let origin = Origin::named("").await;
    for address in [format!("{}/base/v2", origin.url()), format!("{}/base/v2/", origin.url())] {
        let edge = Edge::start(&one_destination(&address, "")).await;
        let mut client = edge.connect().await;
        for target in ODD_TARGETS {
            assert_eq!(target_seen(&origin, &mut client, target).await, format!("/base/v2{target}"));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn given_an_absolute_request_line_when_forwarded_then_the_destination_gets_path_and_query() {
    let origin = Origin::named("").await;
    let edge = Edge::before(&origin).await;
    let mut client = edge.connect().await;
    for (sent, expected) in [
        ("http://shop.example/a%2Fb//c;d/../e?f=g?h&&=", "/a%2Fb//c;d/../e?f=g?h&&="),
        ("http://shop.example", "/"),
        ("http://shop.example?x=1", "/?x=1"),
        ("http://shop.example/a?", "/a?"),
    ] {
        assert_eq!(target_seen(&origin, &mut client, sent).await, expected, "sent {sent}");
        let request = last(&origin);
        assert_eq!(request.header("host"), Some(origin.address().to_string()));
        assert_eq!(values(&request.headers(), "x-forwarded-host"), ["shop.example"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn given_options_of_the_server_when_forwarded_then_no_path_is_put_before_the_asterisk() {
    let origin = Origin::named("").await;
    let edge = Edge::start(&one_destination(&format!("{}/base", origin.url()), "")).await;
    exchange(&mut edge.connect().await, "OPTIONS * HTTP/1.1\r\nhost: h\r\n\r\n").await;
    assert_eq!(last(&origin).target(), "*");
}

#[tokio::test(flavor = "multi_thread")]
async fn given_bytes_beyond_ascii_in_a_field_when_forwarded_then_they_pass_unchanged() {
    let origin = Origin::named("").await;
    let edge = Edge::before(&origin).await;
    let mut client = edge.connect().await;
    client.send(b"GET / HTTP/1.1\r\nhost: h\r\nx-a: \xe9\r\n\r\n").await;
    assert_eq!(client.read_response().await.unwrap().status, 200);
    let head = last(&origin).head;
    assert!(head.windows(8).any(|window| window == b"x-a: \xe9\r\n"), "{}", String::from_utf8_lossy(&head));
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_target_without_a_path_when_sent_then_it_is_refused_and_does_not_grow_onto_the_destinations_path() {
    let origin = Origin::named("").await;
    let edge = Edge::start(&one_destination(&format!("{}/base", origin.url()), "")).await;
    for target in ["-secret", "a/b", "?x", "mailto:a", "ftp://h/a"] {
        let mut client = edge.connect().await;
        client.send(format!("GET {target} HTTP/1.1\r\nhost: h\r\n\r\n")).await;
        assert_eq!(client.read_response().await.unwrap().status, 400, "{target}");
    }
    assert_eq!(origin.requests().len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn given_what_the_client_says_of_itself_when_forwarded_then_ours_stands_in_its_place() {
    let origin = Origin::named("").await;
    let edge = Edge::before(&origin).await;
    let mut client = edge.connect().await;
    let forged = "x-forwarded-for: 1.2.3.4\r\nX-Forwarded-For: 5.6.7.8\r\nx-forwarded-proto: https\r\n\
                  x-forwarded-host: evil.example\r\nx-forwarded-port: 1\r\nx-forwarded-prefix: /evil\r\n\
                  forwarded: for=1.2.3.4\r\nx-real-ip: 1.2.3.4\r\n";
    let answer = exchange(&mut client, &format!("GET / HTTP/1.1\r\nHost: shop.example:8080\r\n{forged}\r\n")).await;
    let headers = last(&origin).headers();
    assert_eq!(values(&headers, "host"), [origin.address().to_string()]);
    assert_eq!(values(&headers, "x-forwarded-for"), ["127.0.0.1"]);
    assert_eq!(values(&headers, "x-forwarded-proto"), ["http"]);
    assert_eq!(values(&headers, "x-forwarded-host"), ["shop.example:8080"]);
    for gone in ["x-forwarded-port", "x-forwarded-prefix", "forwarded", "x-real-ip", "via"] {
        assert_eq!(values(&headers, gone), [""; 0], "{gone}");
    }
    assert_eq!(answer.header("via"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_host_of_the_destination_when_forwarded_then_that_is_the_host() {
    let origin = Origin::named("").await;
    let edge = Edge::start(&format!(
        "routes: {{ all: {{ cluster: app }} }}\n\
         clusters: {{ app: {{ destinations: {{ one: {{ address: \"{}\", host: catalog.internal }} }} }} }}\n",
        origin.url()
    ))
    .await;
    let mut client = edge.connect().await;
    exchange(&mut client, "GET / HTTP/1.1\r\nhost: shop.example\r\n\r\n").await;
    let headers = last(&origin).headers();
    assert_eq!(values(&headers, "host"), ["catalog.internal"]);
    assert_eq!(values(&headers, "x-forwarded-host"), ["shop.example"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_request_id_when_sane_then_it_is_kept_else_a_new_one_is_made() {
    let origin = Origin::named("").await;
    let edge = Edge::before(&origin).await;
    let mut client = edge.connect().await;
    for sane in ["a", "0192-AF/x:y", &"x".repeat(128)] {
        client.get("/", &format!("x-request-id: {sane}\r\n")).await.unwrap();
        assert_eq!(values(&last(&origin).headers(), "x-request-id"), [sane]);
    }
    let mut made = Vec::new();
    for line in ["", "x-request-id:\r\n", "x-request-id: a b\r\n", "x-request-id: \u{e9}\r\n", &too_long()] {
        client.get("/", line).await.unwrap();
        let ids = values(&last(&origin).headers(), "x-request-id");
        assert_eq!(ids.len(), 1, "{line:?}");
        assert!(ids[0].len() == 32 && ids[0].bytes().all(|b| b.is_ascii_hexdigit()), "{line:?} gave {ids:?}");
        made.extend(ids);
    }
    made.sort();
    made.dedup();
    assert_eq!(made.len(), 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn given_hop_by_hop_fields_when_forwarded_then_they_and_the_nominated_ones_are_gone() {
    let origin = Origin::named("").await;
    let edge = Edge::before(&origin).await;
    let mut client = edge.connect().await;
    let hop_by_hop = "Connection: keep-alive, X-Private\r\nConnection: x-other , Keep-Alive\r\nX-Private: 1\r\n\
                      X-Other: 2\r\nKeep-Alive: timeout=5\r\nProxy-Connection: keep-alive\r\nTE: trailers\r\n\
                      Upgrade: h2c\r\nX-Kept: 3\r\n";
    exchange(&mut client, &format!("GET /first HTTP/1.1\r\nhost: h\r\n{hop_by_hop}\r\n")).await;
    let headers = last(&origin).headers();
    for gone in ["x-private", "x-other", "keep-alive", "proxy-connection", "te", "upgrade"] {
        assert_eq!(values(&headers, gone), [""; 0], "{gone} in {headers:?}");
    }
    assert!(!values(&headers, "connection").join(",").to_lowercase().contains("x-private"), "{headers:?}");
    assert_eq!(values(&headers, "x-kept"), ["3"]);
    // What is not passed on as an upgrade takes no connection of its own from the pool's.
    for _ in 0..20 {
        exchange(&mut client, &format!("GET /more HTTP/1.1\r\nhost: h\r\n{hop_by_hop}\r\n")).await;
    }
    assert!(origin.accepted() < 6, "{} upstream connections", origin.accepted());
}

#[tokio::test(flavor = "multi_thread")]
async fn given_hop_by_hop_fields_in_an_answer_when_passed_on_then_they_and_the_nominated_ones_are_gone() {
    let headers = "Connection: keep-alive, X-Private\r\nconnection: X-Other\r\nX-Private: 1\r\nX-Other: 2\r\n\
                   Keep-Alive: timeout=5\r\nProxy-Connection: keep-alive\r\nProxy-Authenticate: Basic\r\n\
                   Upgrade: h2c\r\nTE: trailers\r\nTrailer: X-T\r\nX-Kept: 3\r\n";
    let origin = Origin::start(move |_| Answer::new(200, headers, "body")).await;
    let edge = Edge::before(&origin).await;
    let mut client = edge.connect().await;
    for _ in 0..2 {
        let answer = client.get("/", "").await.unwrap();
        let gone = [
            "x-private",
            "x-other",
            "keep-alive",
            "proxy-connection",
            "proxy-authenticate",
            "upgrade",
            "te",
            "trailer",
        ];
        for gone in gone {
            assert_eq!(answer.header(gone), None, "{gone} in {:?}", answer.headers);
        }
        assert!(!values(&answer.headers, "connection").join(",").to_lowercase().contains("x-"), "{:?}", answer.headers);
        assert_eq!((answer.header("x-kept"), answer.text().as_str()), (Some("3"), "body"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn given_framing_named_by_connection_when_forwarded_then_bodies_keep_their_ends() {
    let origin = Origin::start(|request| match request.target().as_str() {
        "/chunked" => Answer::chunked(&["ab", "cd"]),
        _ => Answer::new(200, "connection: content-length, transfer-encoding\r\n", "answer"),
    })
    .await;
    let edge = Edge::before(&origin).await;
    let mut client = edge.connect().await;
    for (framing, body) in [
        ("connection: content-length\r\ncontent-length: 5\r\n", "hello"),
        ("connection: transfer-encoding\r\ntransfer-encoding: chunked\r\n", "5\r\nhello\r\n0\r\n\r\n"),
    ] {
        let answer = exchange(&mut client, &format!("POST /post HTTP/1.1\r\nhost: h\r\n{framing}\r\n{body}")).await;
        assert_eq!((answer.status, answer.text().as_str()), (200, "answer"), "{framing}");
        let request = last(&origin);
        assert_eq!((request.body.as_slice(), request.complete), (b"hello".as_slice(), true), "{framing}");
    }
    let answer = client.get("/chunked", "").await.unwrap();
    assert_eq!((answer.status, answer.text().as_str()), (200, "abcd"));
}

#[tokio::test(flavor = "multi_thread")]
async fn given_repeated_and_empty_headers_when_passed_then_all_arrive_in_order_both_ways() {
    let lines = "X-A: 1\r\nSet-Cookie: a=1; Path=/\r\nX-Empty:\r\nx-a: 2, 3\r\nSet-Cookie: b=2\r\nX-A: \r\n";
    let origin = Origin::start(move |_| Answer::new(200, lines, "")).await;
    let edge = Edge::before(&origin).await;
    let mut client = edge.connect().await;
    let answer = client.get("/", lines).await.unwrap();
    for headers in [last(&origin).headers(), answer.headers] {
        assert_eq!(values(&headers, "x-a"), ["1", "2, 3", ""], "{headers:?}");
        assert_eq!(values(&headers, "set-cookie"), ["a=1; Path=/", "b=2"], "{headers:?}");
        assert_eq!(values(&headers, "x-empty"), [""], "{headers:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn given_methods_known_or_not_when_forwarded_then_they_arrive_as_sent() {
    let origin = Origin::named("done").await;
    let edge = Edge::before(&origin).await;
    let mut client = edge.connect().await;
    for method in ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND", "M-SEARCH"] {
        let answer =
            exchange(&mut client, &format!("{method} / HTTP/1.1\r\nhost: h\r\ncontent-length: 0\r\n\r\n")).await;
        assert_eq!((answer.status, last(&origin).method().as_str()), (200, method));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn given_statuses_of_all_classes_when_answered_then_they_pass_unchanged() {
    let origin =
        Origin::start(|request| Answer::new(request.target()[1..].parse().unwrap(), "x-from: origin\r\n", "mine"))
            .await;
    let edge = Edge::before(&origin).await;
    let mut client = edge.connect().await;
    for status in [200, 201, 206, 301, 307, 400, 401, 404, 418, 429, 500, 502, 503, 504, 599] {
        let answer = client.get(&format!("/{status}"), "").await.unwrap();
        assert_eq!((answer.status, answer.header("x-from")), (status, Some("origin")));
        assert_eq!(answer.text(), "mine");
    }
    assert_eq!(origin.requests().len(), 15);
}

/// Sends a GET for `target` and tells which target arrived.
async fn target_seen(origin: &Origin, client: &mut Client, target: &str) -> String {
    let host = target.strip_prefix("http://").map_or("h", |rest| rest.split(['/', '?']).next().unwrap_or_default());
    let before = origin.requests().len();
    let answer = exchange(client, &format!("GET {target} HTTP/1.1\r\nhost: {host}\r\n\r\n")).await;
    assert_eq!((answer.status, origin.requests().len()), (200, before + 1), "{target}");
    last(origin).target()
}

async fn exchange(client: &mut Client, request: &str) -> Response {
    client.send(request).await;
    client.read_response().await.unwrap_or_else(|error| panic!("{error} after {request:?}"))
}

fn last(origin: &Origin) -> Request {
    origin.requests().pop().expect("a request")
}

fn values(headers: &[(String, String)], name: &str) -> Vec<String> {
    headers.iter().filter(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.clone()).collect()
}

fn too_long() -> String {
    format!("x-request-id: {}\r\n", "x".repeat(129))
}
