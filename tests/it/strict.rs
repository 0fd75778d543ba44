//! What is ambiguous does not pass: heads, one row a case, and bodies; what arrives at the destination is looked at.

use crate::support::{Answer, DEADLINE, Edge, Origin, eventually};

/// After the answer.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Then {
    /// The client's connection takes another request.
    Goes,
    Closes,
}
use Then::{Closes, Goes};

/// Heads that are refused: the destination gets no byte.
const REFUSED: [(&str, &[u8], u16, Then); 59] = [
    ("no Host", b"GET / HTTP/1.1\r\n\r\n", 400, Goes),
    ("no Host, absolute", b"GET http://h/ HTTP/1.1\r\n\r\n", 400, Goes),
    ("empty Host", b"GET / HTTP/1.1\r\nHost:\r\n\r\n", 400, Goes),
    ("Host with a space", b"GET / HTTP/1.1\r\nHost: a b\r\n\r\n", 400, Goes),
    ("Host with a slash", b"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", 400, Goes),
    ("Host with a wrong port", b"GET / HTTP/1.1\r\nHost: h:65536\r\n\r\n", 400, Goes),
    ("Host with bytes beyond ASCII", b"GET / HTTP/1.1\r\nHost: h\xc3\xa9\r\n\r\n", 400, Goes),
    ("two Hosts", b"GET / HTTP/1.1\r\nHost: h\r\nHost: g\r\n\r\n", 400, Closes),
    ("one Host twice", b"GET / HTTP/1.1\r\nHost: h\r\nHost: h\r\n\r\n", 400, Closes),
    ("user in Host", b"GET / HTTP/1.1\r\nHost: u@h\r\n\r\n", 400, Closes),
    ("user in the target", b"GET http://u@h/ HTTP/1.1\r\nHost: h\r\n\r\n", 400, Closes),
    ("target and Host differ", b"GET http://g/ HTTP/1.1\r\nHost: h\r\n\r\n", 400, Closes),
    (
        "CL and TE",
        b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        400,
        Closes,
    ),
    (
        "TE and CL",
        b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\ncontent-length: 5\r\n\r\n0\r\n\r\n",
        400,
        Closes,
    ),
    ("two lengths", b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", 400, Closes),
    (
        "one length twice",
        b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nab",
        400,
        Closes,
    ),
    ("one length twice in a list", b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2, 2\r\n\r\nab", 400, Closes),
    ("a signed length", b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: +2\r\n\r\nab", 400, Closes),
    ("a negative length", b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: -2\r\n\r\nab", 400, Closes),
    ("a length in hex", b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 0x2\r\n\r\nab", 400, Closes),
    ("no length in it", b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length:\r\n\r\n", 400, Closes),
    (
        "a length without end",
        b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 99999999999999999999\r\n\r\n",
        400,
        Closes,
    ),
    ("gzip, chunked", b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501, Closes),
    (
        "gzip and chunked",
        b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        501,
        Closes,
    ),
    (
        "identity, chunked",
        b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: identity, chunked\r\n\r\n0\r\n\r\n",
        501,
        Closes,
    ),
    (
        "chunked twice",
        b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
        400,
        Closes,
    ),
    ("an empty coding", b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: , chunked\r\n\r\n0\r\n\r\n", 400, Closes),
    ("a coding after chunked", b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked, gzip\r\n\r\n", 400, Closes),
    ("no chunked", b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: xchunked\r\n\r\n", 400, Closes),
    ("TE of HTTP/1.0", b"POST / HTTP/1.0\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400, Closes),
    ("a coding in disguise", b"POST / HTTP/1.1\r\nHost: h\r\nTransfer_Encoding: chunked\r\n\r\n0\r\n\r\n", 400, Closes),
    ("a length in disguise", b"POST / HTTP/1.1\r\nHost: h\r\nContent_Length: 2\r\n\r\nab", 400, Closes),
    ("space before the colon", b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length : 2\r\n\r\nab", 400, Closes),
    ("space in a name", b"GET / HTTP/1.1\r\nHost: h\r\nx a: 1\r\n\r\n", 400, Closes),
    ("no name", b"GET / HTTP/1.1\r\nHost: h\r\n: 1\r\n\r\n", 400, Closes),
    ("no colon", b"GET / HTTP/1.1\r\nHost: h\r\nx\r\n\r\n", 400, Closes),
    ("a folded line", b"GET / HTTP/1.1\r\nHost: h\r\nx: 1\r\n 2\r\n\r\n", 400, Closes),
    ("a first line folded", b"GET / HTTP/1.1\r\n Host: h\r\n\r\n", 400, Closes),
    ("a bare CR", b"GET / HTTP/1.1\r\nHost: h\r\nx: 1\rTransfer-Encoding: chunked\r\n\r\n", 400, Closes),
    ("a NUL", b"GET / HTTP/1.1\r\nHost: h\r\nx: 1\0\r\n\r\n", 400, Closes),
    ("a space in the path", b"GET /a b HTTP/1.1\r\nHost: h\r\n\r\n", 400, Closes),
    ("a version in the path", b"GET / HTTP/1.1 HTTP/1.1\r\nHost: h\r\n\r\n", 400, Closes),
    ("a space in the query", b"GET /?a b HTTP/1.1\nHost: h\n\n", 400, Closes),
    ("two spaces", b"GET  / HTTP/1.1\r\nHost: h\r\n\r\n", 400, Closes),
    ("a tab in the path", b"GET /a\tb HTTP/1.1\r\nHost: h\r\n\r\n", 400, Closes),
    ("a control in the path", b"GET /a\x01b HTTP/1.1\r\nHost: h\r\n\r\n", 400, Closes),
    ("DEL in the path", b"GET /a\x7fb HTTP/1.1\r\nHost: h\r\n\r\n", 400, Closes),
    ("UTF-8 in the path", b"GET /caf\xc3\xa9 HTTP/1.1\r\nHost: h\r\n\r\n", 400, Goes),
    ("no UTF-8 in the path", b"GET /caf\xe9 HTTP/1.1\r\nHost: h\r\n\r\n", 400, Closes),
    ("a fragment", b"GET /a#b HTTP/1.1\r\nHost: h\r\n\r\n", 400, Goes),
    ("no path", b"GET secret HTTP/1.1\r\nHost: h\r\n\r\n", 400, Goes),
    ("another scheme", b"GET ftp://h/a HTTP/1.1\r\nHost: h\r\n\r\n", 400, Goes),
    ("an asterisk to get", b"GET * HTTP/1.1\r\nHost: h\r\n\r\n", 400, Goes),
    ("TRACE", b"TRACE / HTTP/1.1\r\nHost: h\r\n\r\n", 405, Goes),
    ("trace", b"trace / HTTP/1.1\r\nHost: h\r\n\r\n", 405, Goes),
    ("CONNECT", b"CONNECT h:80 HTTP/1.1\r\nHost: h:80\r\n\r\n", 405, Closes),
    ("another version", b"GET / HTTP/1.2\r\nHost: h\r\n\r\n", 400, Closes),
    ("HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400, Closes),
    ("nonsense", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400, Closes),
];

#[tokio::test(flavor = "multi_thread")]
async fn given_an_ambiguous_head_when_sent_then_it_is_refused_and_the_destination_gets_no_byte() {
    let origin = Origin::named("fine").await;
    let edge = Edge::before(&origin).await;
    let mut wrong = Vec::new();
    for (name, sent, status, then) in REFUSED {
        let mut client = edge.connect().await;
        client.send(sent).await;
        let seen = client.read_response().await.map(|response| response.status).unwrap_or_default();
        // Parsers refuse at different bytes of it; the connection is gone then.
        let goes = client.get("/after", "").await.is_ok_and(|response| response.text() == "fine");
        if (seen, goes) != (status, then == Goes) {
            wrong.push(format!("{name}: {seen}, {}", if goes { "goes on" } else { "closes" }));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    let strangers: Vec<String> =
        origin.requests().iter().map(|request| request.target()).filter(|target| target != "/after").collect();
    assert_eq!(strangers, [""; 0]);
    let rejected = "derbent_http_requests_rejected_total{route=\"none\",reason=\"bad_request\"}";
    edge.counts(rejected, REFUSED.len() as f64).await;
    edge.logged(&["INFO", "request refused on listener web: the request has no Host"]).await;
}

/// Heads that pass: their target as the destination sees it.
const PASSED: [(&str, &[u8], &str); 14] = [
    ("bare LF", b"GET /a HTTP/1.1\nHost: h\nX-A: 1\n\n", "/a"),
    ("LF and CRLF", b"GET /a HTTP/1.1\r\nHost: h\nX-A: 1\r\n\n", "/a"),
    ("empty lines before", b"\r\n\r\nGET /a HTTP/1.1\r\nHost: h\r\n\r\n", "/a"),
    ("HTTP/1.0", b"GET /a HTTP/1.0\r\n\r\n", "/a"),
    ("HTTP/1.0 kept alive", b"GET /a HTTP/1.0\r\nHost: h\r\nConnection: keep-alive\r\n\r\n", "/a"),
    ("absolute", b"GET http://h/a?b HTTP/1.1\r\nHost: h\r\n\r\n", "/a?b"),
    ("absolute, HTTP/1.0", b"GET http://h/a?b HTTP/1.0\r\n\r\n", "/a?b"),
    ("asterisk", b"OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n", "*"),
    ("an encoded space", b"GET /a%20b HTTP/1.1\r\nHost: h\r\n\r\n", "/a%20b"),
    ("dots and slashes", b"GET /a/../b//%2e%2e/%2F HTTP/1.1\r\nHost: h\r\n\r\n", "/a/../b//%2e%2e/%2F"),
    ("an unknown method", b"BREW /a HTTP/1.1\r\nHost: h\r\n\r\n", "/a"),
    ("an address with port", b"GET /a HTTP/1.1\r\nHost: [::1]:80\r\n\r\n", "/a"),
    ("space around values", b"POST /a HTTP/1.1\r\nHost: \t h\t \r\nContent-Length:\t2 \r\n\r\nab", "/a"),
    (
        "a coding in capitals",
        b"POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: CHUNKED\r\n\r\n2;x=y\r\nab\r\n0\r\nT: 1\r\n\r\n",
        "/a",
    ),
];

#[tokio::test(flavor = "multi_thread")]
async fn given_an_odd_head_that_is_clear_when_forwarded_then_the_destination_gets_strict_http() {
    let origin = Origin::named("fine").await;
    let edge = Edge::before(&origin).await;
    for (name, sent, target) in PASSED {
        let mut client = edge.connect().await;
        client.send(sent).await;
        let response = client.read_response().await.unwrap();
        assert_eq!((response.status, response.text().as_str()), (200, "fine"), "{name}");
        let request = origin.requests().pop().unwrap();
        assert_eq!(request.target(), target, "{name}");
        assert_strict(&request.head);
        let body: &[u8] = if request.method() == "POST" { b"ab" } else { b"" };
        assert_eq!((request.body.as_slice(), request.complete), (body, true), "{name}");
    }
    assert_eq!(origin.requests().len(), PASSED.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn given_sizes_at_and_above_the_limits_when_sent_then_only_those_above_are_refused() {
    let origin = Origin::named("fine").await;
    let edge = Edge::before(&origin).await;
    let mut client = edge.connect().await;
    let fill = |length: usize| "a".repeat(length);
    for (path, field, status) in [
        (fill(16 * 1024 - 1), String::new(), 200),
        (fill(16 * 1024), String::new(), 414),
        (String::new(), fill(65_000), 200),
        (String::new(), fill(66_000), 431),
        (fill(60_000), fill(300_000), 414),
    ] {
        client.send(format!("GET /{path} HTTP/1.1\r\nhost: h\r\nx: {field}\r\n\r\n")).await;
        let seen = client.read_response().await.unwrap().status;
        assert_eq!(seen, status, "{} and {}", path.len(), field.len());
    }
    assert_eq!(origin.requests().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn given_trace_when_refused_then_the_answer_says_what_is_allowed_and_why() {
    let edge = Edge::before(&Origin::named("").await).await;
    let mut client = edge.connect().await;
    client.send("TRACE / HTTP/1.1\r\nhost: h\r\nx-request-id: 7\r\n\r\n").await;
    let answer = client.read_response().await.unwrap();
    assert_eq!(answer.header("allow"), Some("GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"));
    assert_eq!(answer.text(), "405 TRACE is not passed on (request 7)\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_connection_field_that_names_what_we_add_when_sent_then_it_is_refused_in_words_and_the_connection_kept()
{
    let origin = Origin::named("fine").await;
    let edge = Edge::before(&origin).await;
    let mut client = edge.connect().await;
    for (named, words) in [
        ("x-forwarded-for", "Connection names Host, X-Forwarded-For, -Host or -Proto, which go on"),
        ("a, b, c, d, e, f, g, h, i, j", "Connection names more than 9 fields"),
        ("a b", "Connection names what is no field"),
    ] {
        client.send(format!("GET / HTTP/1.1\r\nhost: h\r\nx-request-id: 7\r\nconnection: {named}\r\n\r\n")).await;
        let answer = client.read_response().await.unwrap();
        assert_eq!((answer.status, answer.text()), (400, format!("400 {words} (request 7)\n")));
    }
    assert_eq!(origin.requests().len(), 0);
    // What else we add is ours whatever it names.
    client.send("GET / HTTP/1.1\r\nhost: h\r\nx-request-id: 7\r\nconnection: x-request-id, forwarded\r\n\r\n").await;
    assert_eq!(client.read_response().await.unwrap().status, 200);
    let [arrived] = &origin.requests()[..] else { panic!("one") };
    let ids: Vec<_> =
        arrived.headers().into_iter().filter(|(name, _)| name.eq_ignore_ascii_case("x-request-id")).collect();
    assert_eq!(ids.len(), 1, "{ids:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_pipelined_request_that_is_ambiguous_when_its_turn_comes_then_it_alone_is_refused() {
    let origin = Origin::start(|request| Answer::ok(&request.target())).await;
    let edge = Edge::before(&origin).await;
    for (second, status) in [
        ("GET / HTTP/1.1\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 9\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab", 400),
        ("TRACE / HTTP/1.1\r\nhost: h\r\n\r\n", 405),
    ] {
        let mut client = edge.connect().await;
        client.send(format!("GET /first HTTP/1.1\r\nhost: h\r\n\r\n{second}")).await;
        assert_eq!(client.read_response().await.unwrap().text(), "/first");
        assert_eq!(client.read_response().await.unwrap().status, status, "{second:?}");
    }
    assert_eq!(origin.requests().len(), origin.hits("/first"));
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_pipelined_target_with_a_space_when_it_was_read_too_early_to_be_seen_then_it_goes_out_encoded() {
    let origin = Origin::start(|request| Answer::ok(&request.target())).await;
    let edge = Edge::before(&origin).await;
    let mut client = edge.connect().await;
    client.send("GET /first HTTP/1.1\r\nhost: h\r\n\r\nGET /a b HTTP/1.1\r\nhost: h\r\n\r\n").await;
    assert_eq!(client.read_response().await.unwrap().text(), "/first");
    assert_eq!(client.read_response().await.unwrap().text(), "/a%20b");
    assert_strict(&origin.requests()[1].head);
}

/// Bodies that are not what their head said, from the second read on. A request hidden behind them must never arrive.
const BODY_FAULTS: [(&str, &str, &str); 8] = [
    ("no hex", "2\r\nab\r\n", "xyz\r\nGET /hidden HTTP/1.1\r\nhost: h\r\n\r\n"),
    ("a size without end", "2\r\nab\r\n", "ffffffffffffffffff\r\nGET /hidden HTTP/1.1\r\nhost: h\r\n\r\n"),
    ("a negative size", "2\r\nab\r\n", "-1\r\nGET /hidden HTTP/1.1\r\nhost: h\r\n\r\n"),
    ("a size in 0x", "2\r\nab\r\n", "0x2\r\nab\r\n0\r\n\r\nGET /hidden HTTP/1.1\r\nhost: h\r\n\r\n"),
    ("data longer than its size", "2\r\nab\r\n", "2\r\nabcd\r\n0\r\n\r\nGET /hidden HTTP/1.1\r\nhost: h\r\n\r\n"),
    ("a bare CR after a size", "2\r\nab\r\n", "2\rab\r\n0\r\n\r\nGET /hidden HTTP/1.1\r\nhost: h\r\n\r\n"),
    ("a bare LF after a size", "2\r\nab\r\n", "2\nab\r\n0\r\n\r\nGET /hidden HTTP/1.1\r\nhost: h\r\n\r\n"),
    ("a space in a size", "2\r\nab\r\n", "1 1\r\nab\r\n0\r\n\r\nGET /hidden HTTP/1.1\r\nhost: h\r\n\r\n"),
];

#[tokio::test(flavor = "multi_thread")]
async fn given_a_fault_in_a_streamed_body_when_it_comes_then_400_and_both_connections_end_with_nothing_behind_it() {
    let origin = Origin::named("fine").await;
    let edge = Edge::before(&origin).await;
    let mut wrong = Vec::new();
    for (name, first, rest) in BODY_FAULTS {
        let before = origin.requests().len();
        let mut client = edge.connect().await;
        client.send(format!("POST /body HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n{first}")).await;
        eventually(DEADLINE, "the first chunk arrives", async || {
            origin.requests().get(before).is_some_and(|request| request.body == b"ab")
        })
        .await;
        client.send(rest).await;
        let answer = client.read_response().await.map(|response| response.status).unwrap_or_default();
        let closed = client.get("/after", "").await.is_err();
        if (answer, closed) != (400, true) {
            wrong.push(format!("{name}: {answer}, closed: {closed}"));
        }
        eventually(DEADLINE, "the destination's connection is closed", async || origin.open() == 0).await;
        assert!(!origin.requests()[before].complete, "{name}: the destination took it for whole");
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert_eq!(origin.requests().len(), origin.hits("/body"));
    edge.counts("derbent_http_requests_rejected_total{route=\"all\",reason=\"bad_request\"}", BODY_FAULTS.len() as f64)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_client_that_ends_its_side_in_its_body_when_seen_then_it_is_told_400_and_the_destination_cut() {
    let origin = Origin::named("fine").await;
    let edge = Edge::before(&origin).await;
    for (at, framing) in
        ["content-length: 9\r\n\r\nab", "transfer-encoding: chunked\r\n\r\n2\r\nab\r\n"].iter().enumerate()
    {
        let mut client = edge.connect().await;
        client.send(format!("POST / HTTP/1.1\r\nhost: h\r\n{framing}")).await;
        eventually(DEADLINE, "the body begins", async || origin.requests().len() == at + 1).await;
        client.finish().await;
        assert_eq!(client.read_response().await.unwrap().status, 400, "{framing}");
        eventually(DEADLINE, "the destination's connection is closed", async || origin.open() == 0).await;
        assert!(!origin.requests()[at].complete);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_body_where_none_has_a_meaning_when_forwarded_then_nothing_else_uses_its_connection() {
    let origin = Origin::named("fine").await;
    let edge = Edge::before(&origin).await;
    let mut client = edge.connect().await;
    for (method, framing) in [
        ("GET", "content-length: 2\r\n\r\nab"),
        ("GET", "transfer-encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n"),
        ("DELETE", "content-length: 2\r\n\r\nab"),
    ] {
        for request in
            [format!("{method} /body HTTP/1.1\r\nhost: h\r\n{framing}"), "GET / HTTP/1.1\r\nhost: h\r\n\r\n".to_owned()]
        {
            client.send(request).await;
            assert_eq!(client.read_response().await.unwrap().text(), "fine");
        }
    }
    let requests = origin.requests();
    for body in requests.iter().filter(|request| request.target() == "/body") {
        assert_eq!(body.body, b"ab");
        assert_eq!(requests.iter().filter(|request| request.connection == body.connection).count(), 1);
    }
}

/// Of a head: CRLF only, one space on either side of the target, one host, one framing.
fn assert_strict(head: &[u8]) {
    let text = std::str::from_utf8(head).expect("ASCII");
    let lines: Vec<&str> = text.strip_suffix("\r\n\r\n").expect("an end").split("\r\n").collect();
    assert!(lines.iter().all(|line| !line.contains(['\r', '\n', '\0'])), "{text:?}");
    let words: Vec<&str> = lines[0].split(' ').collect();
    assert!(words.len() == 3 && words[2] == "HTTP/1.1" && (words[1].starts_with('/') || words[1] == "*"), "{text:?}");
    let fields: Vec<(String, &str)> = lines[1..]
        .iter()
        .map(|line| line.split_once(": ").unwrap_or_else(|| panic!("no field: {line:?}")))
        .map(|(name, value)| (name.to_ascii_lowercase(), value))
        .collect();
    let values = |wanted: &str| -> Vec<&str> {
        fields.iter().filter(|(name, _)| name == wanted).map(|(_, value)| *value).collect()
    };
    assert!(fields.iter().all(|(name, value)| !name.contains([' ', '\t']) && value.trim() == *value), "{text:?}");
    assert_eq!(values("host").len(), 1, "{text:?}");
    match (values("content-length").as_slice(), values("transfer-encoding").as_slice()) {
        ([], []) | ([], [_]) => {
            assert!(values("transfer-encoding").iter().all(|coding| *coding == "chunked"), "{text:?}")
        }
        ([length], []) => assert!(length.bytes().all(|digit| digit.is_ascii_digit()), "{text:?}"),
        _ => panic!("two framings: {text:?}"),
    }
}
