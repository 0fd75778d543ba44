//! Bodies and their framing: they stream, arrive whole or visibly cut, and leave the connections fit for the next request.

use crate::support::{Answer, DEADLINE, Edge, Gate, Origin, Step, eventually};
use std::io::ErrorKind;
use std::sync::Arc;

const MIB: usize = 1 << 20;
/// One upstream connection would do for requests one after the other; now and then Pingora does not get hold of the
/// pooled one in time and makes another.
const FEW: usize = 6;

#[tokio::test(flavor = "multi_thread")]
async fn given_an_answer_in_chunks_when_the_second_is_held_back_then_the_first_has_come_already() {
    let gate = Gate::closed();
    let held = gate.clone();
    let origin = Origin::start(move |_| {
        Answer::script([
            Step::send("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\none\r\n"),
            Step::Wait(held.clone()),
            Step::send("3\r\ntwo\r\n0\r\n\r\n"),
        ])
    })
    .await;
    let edge = Edge::before(&origin).await;
    let mut client = edge.connect().await;
    client.send("GET / HTTP/1.1\r\nhost: h\r\n\r\n").await;
    assert_eq!(client.read_head().await.unwrap().header("transfer-encoding"), Some("chunked"));
    let mut body = Vec::new();
    assert!(client.read_chunk(&mut body).await.unwrap());
    assert_eq!(body, b"one");
    gate.open();
    while client.read_chunk(&mut body).await.unwrap() {}
    assert_eq!(body, b"onetwo");
}

#[tokio::test(flavor = "multi_thread")]
async fn given_an_answer_of_known_length_when_half_is_held_back_then_the_other_half_has_come_already() {
    let gate = Gate::closed();
    let held = gate.clone();
    let origin = Origin::start(move |_| {
        Answer::script([
            Step::send("HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\none"),
            Step::Wait(held.clone()),
            Step::send("two"),
        ])
    })
    .await;
    let edge = Edge::before(&origin).await;
    let mut client = edge.connect().await;
    client.send("GET / HTTP/1.1\r\nhost: h\r\n\r\n").await;
    client.read_head().await.unwrap();
    assert_eq!(client.read_exact(3).await.unwrap(), b"one");
    gate.open();
    assert_eq!(client.read_exact(3).await.unwrap(), b"two");
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_request_body_when_its_second_half_is_not_sent_yet_then_the_first_has_arrived() {
    let origin = Origin::named("done").await;
    let edge = Edge::before(&origin).await;
    let mut client = edge.connect().await;
    for (framing, first, second) in [
        ("content-length: 6", "one", "two"),
        ("transfer-encoding: chunked", "3\r\none\r\n", "3;ext=1\r\ntwo\r\n0\r\nX-Trailer: 1\r\n\r\n"),
    ] {
        let before = origin.requests().len();
        client.send(format!("POST / HTTP/1.1\r\nhost: h\r\n{framing}\r\n\r\n{first}")).await;
        let arrived = |body: &[u8]| origin.requests().get(before).is_some_and(|request| request.body == body);
        eventually(DEADLINE, "the first half arrives", async || arrived(b"one")).await;
        client.send(second).await;
        assert_eq!(client.read_response().await.unwrap().text(), "done");
        assert!(arrived(b"onetwo") && origin.requests()[before].complete, "{framing}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn given_bodies_of_8_mib_when_sent_both_ways_then_not_a_byte_is_lost() {
    let sent = noise(8 * MIB, 1);
    let answer = noise(8 * MIB, 2);
    let returned = answer.clone();
    let origin = Origin::start(move |request| match request.target().as_str() {
        "/chunked" => Answer::script([
            Step::ReadBody,
            Step::send("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"),
            Step::send(chunked(&returned)),
        ]),
        _ => Answer::script([
            Step::ReadBody,
            Step::send(format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", returned.len())),
            Step::send(returned.clone()),
        ]),
    })
    .await;
    let edge = Edge::before(&origin).await;
    let mut client = edge.connect().await;
    for (at, (path, framing, body)) in [
        ("/length", format!("content-length: {}", sent.len()), sent.clone()),
        ("/chunked", "transfer-encoding: chunked".to_owned(), chunked(&sent)),
    ]
    .into_iter()
    .enumerate()
    {
        client.send(format!("PUT {path} HTTP/1.1\r\nhost: h\r\n{framing}\r\n\r\n")).await;
        client.send(body).await;
        let response = client.read_response().await.unwrap();
        assert!(response.body == answer, "{path}: {} bytes came back", response.body.len());
        let request = &origin.requests()[at];
        assert!(request.body == sent && request.complete, "{path}: {} bytes arrived", request.body.len());
    }
    edge.counts("derbent_http_request_bytes_total{route=\"all\"}", 16.0 * MIB as f64).await;
    edge.counts("derbent_http_response_bytes_total{route=\"all\"}", 16.0 * MIB as f64).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_side_that_takes_nothing_when_the_other_sends_48_mib_then_the_proxy_does_not_keep_them() {
    let body = Arc::new(vec![b'd'; 48 * MIB]);
    let origin = Origin::start(move |_| {
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", 48 * MIB);
        Answer::script([Step::send(head), Step::send(body.to_vec())])
    })
    .await;
    let edge = Edge::before(&origin).await;
    let before = peak_memory(edge.pid());
    let mut down = edge.connect().await;
    down.send("GET /down HTTP/1.1\r\nhost: h\r\n\r\n").await;
    down.read_head().await.unwrap();
    // Time enough for a proxy that buffers to fill up; one that does not passes at any speed.
    for _ in 0..20 {
        edge.metrics().await;
    }
    assert_eq!(down.read_exact(48 * MIB).await.unwrap().len(), 48 * MIB);
    let more = peak_memory(edge.pid()) - before;
    assert!(more < 24 * MIB, "{} MiB more at its peak", more / MIB);
}

#[tokio::test(flavor = "multi_thread")]
async fn given_expect_continue_when_the_destination_says_so_then_the_client_is_told_and_sends() {
    let gate = Gate::closed();
    let held = gate.clone();
    let origin = Origin::start(move |_| {
        Answer::ok("done").after([Step::Wait(held.clone()), Step::send("HTTP/1.1 100 Continue\r\n\r\n")])
    })
    .await;
    let edge = Edge::before(&origin).await;
    let mut client = edge.connect().await;
    client.send("PUT / HTTP/1.1\r\nhost: h\r\nexpect: 100-continue\r\ncontent-length: 4\r\n\r\n").await;
    eventually(DEADLINE, "the head arrives", async || origin.hits("/") == 1).await;
    assert_eq!(origin.requests()[0].header("expect").as_deref(), Some("100-continue"));
    gate.open();
    assert_eq!(client.read_response().await.unwrap().status, 100);
    assert_eq!(origin.requests()[0].body, b"");
    client.send("body").await;
    let response = client.read_response().await.unwrap();
    assert_eq!((response.status, response.text().as_str()), (200, "done"));
    assert_eq!(origin.requests()[0].body, b"body");
    edge.counts("derbent_http_requests_total{listener=\"web\",route=\"all\",method=\"PUT\",code=\"200\"}", 1.0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn given_expect_continue_when_the_answer_is_final_then_no_100_comes_and_no_later_request_is_taken_for_the_body() {
    let origin = Origin::start(|request| match request.method().as_str() {
        // Without reading the body, and without closing: whoever writes another request here has it swallowed.
        "PUT" => Answer::script([Step::send("HTTP/1.1 417 No\r\ncontent-length: 2\r\n\r\nno"), Step::ReadBody]),
        _ => Answer::ok("fine"),
    })
    .await;
    let edge = Edge::before(&origin).await;
    let mut client = edge.connect().await;
    client.send("PUT / HTTP/1.1\r\nhost: h\r\nexpect: 100-continue\r\ncontent-length: 4\r\n\r\n").await;
    let response = client.read_response().await.unwrap();
    assert_eq!((response.status, response.text().as_str()), (417, "no"));
    for _ in 0..3 {
        assert_eq!(edge.get("/after").await.text(), "fine");
    }
    assert_eq!((origin.hits("/after"), origin.requests()[0].body.len()), (3, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn given_an_interim_answer_when_passed_on_then_it_is_no_answer_yet() {
    let early = "HTTP/1.1 103 Early Hints\r\nlink: </a.css>; rel=preload\r\n\r\n";
    let origin = Origin::start(move |_| Answer::ok("final").after([Step::send(early), Step::send(early)])).await;
    let edge = Edge::before(&origin).await;
    let mut client = edge.connect().await;
    for _ in 0..2 {
        client.send("GET / HTTP/1.1\r\nhost: h\r\n\r\n").await;
        for _ in 0..2 {
            let interim = client.read_response().await.unwrap();
            assert_eq!((interim.status, interim.header("link")), (103, Some("</a.css>; rel=preload")));
        }
        assert_eq!(client.read_response().await.unwrap().text(), "final");
    }
    edge.counts(&answers("2xx"), 2.0).await;
    assert_eq!(edge.metric(&answers("1xx")).await.unwrap_or_default(), 0.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn given_answers_without_a_body_when_passed_on_then_both_connections_go_on() {
    let origin = Origin::start(|request| match (request.method().as_str(), request.target().as_str()) {
        ("HEAD", "/length") => Answer::bodiless(200, "content-length: 1000\r\n"),
        ("HEAD", "/chunked") => Answer::bodiless(200, "transfer-encoding: chunked\r\n"),
        ("HEAD", _) => Answer::bodiless(200, ""),
        (_, "/204") => Answer::bodiless(204, "x-a: 1\r\n"),
        (_, "/304") => Answer::bodiless(304, "etag: \"x\"\r\n"),
        (_, "/304-length") => Answer::bodiless(304, "content-length: 1000\r\n"),
        _ => Answer::ok(""),
    })
    .await;
    let edge = Edge::before(&origin).await;
    let mut client = edge.connect().await;
    for (method, path, status) in [
        ("HEAD", "/length", 200),
        ("HEAD", "/chunked", 200),
        ("HEAD", "/plain", 200),
        ("GET", "/204", 204),
        ("DELETE", "/204", 204),
        ("GET", "/304", 304),
        ("GET", "/304-length", 304),
        ("HEAD", "/304", 304),
        ("GET", "/empty", 200),
    ] {
        client.send(format!("{method} {path} HTTP/1.1\r\nhost: h\r\n\r\n")).await;
        let head = client.read_head().await.unwrap();
        assert_eq!(head.status, if method == "HEAD" { 200 } else { status }, "{method} {path}");
        if (method, path) == ("HEAD", "/length") {
            assert_eq!(head.header("content-length"), Some("1000"));
        }
        // Whatever a body left behind would be read as this head.
        assert_eq!(client.get("/next", "").await.unwrap().status, 200, "after {method} {path}");
    }
    assert!(origin.accepted() < FEW, "{} upstream connections", origin.accepted());
    assert_eq!(origin.hits("/next"), 9);
}

#[tokio::test(flavor = "multi_thread")]
async fn given_an_early_answer_when_the_client_still_sends_then_it_gets_the_answer_and_nobody_is_poisoned() {
    let origin = Origin::start(|request| match request.method().as_str() {
        "POST" => Answer::script([Step::send("HTTP/1.1 413 Much\r\ncontent-length: 3\r\n\r\nbig"), Step::ReadBody]),
        _ => Answer::ok("fine"),
    })
    .await;
    let edge = Edge::before(&origin).await;
    for framing in ["content-length: 1000000\r\n\r\nstart", "transfer-encoding: chunked\r\n\r\n5\r\nstart\r\n"] {
        let mut client = edge.connect().await;
        client.send(format!("POST / HTTP/1.1\r\nhost: h\r\n{framing}")).await;
        let response = client.read_response().await.unwrap();
        assert_eq!((response.status, response.text().as_str()), (413, "big"), "{framing}");
        // Still in the middle of its body.
        for _ in 0..3 {
            assert_eq!(edge.get("/after").await.text(), "fine");
        }
    }
    assert_eq!(origin.hits("/after"), 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn given_an_early_answer_and_a_close_when_the_client_still_sends_then_it_gets_the_answer() {
    let answered = Gate::closed();
    let seen = answered.clone();
    let origin = Origin::start(move |_| {
        let head = "HTTP/1.1 401 Who\r\nconnection: close\r\ncontent-length: 3\r\n\r\nwho";
        Answer::script([Step::send(head), Step::Wait(seen.clone()), Step::Close])
    })
    .await;
    let edge = Edge::before(&origin).await;
    let mut client = edge.connect().await;
    client.send("POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 1000000\r\n\r\nstart").await;
    let response = client.read_response().await.unwrap();
    assert_eq!((response.status, response.text().as_str()), (401, "who"));
    answered.open();
    // The rest of the body may still come, and goes nowhere.
    drop(client);
    edge.counts(&answers("4xx"), 1.0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn given_an_answer_cut_short_when_passed_on_then_the_client_sees_that_it_is_not_whole() {
    let origin = Origin::named("").await;
    let edge = Edge::before(&origin).await;
    let heads = ["content-length: 10\r\n\r\nhalf", "transfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n"];
    let mut cut = 0;
    for head in heads {
        for end in [Step::Close, Step::Reset] {
            // The body is on its way to the client before the end comes.
            let gate = Gate::closed();
            let held = gate.clone();
            let (sent, last) = (format!("HTTP/1.1 200 OK\r\n{head}"), end.clone());
            origin
                .answer_by(move |_| Answer::script([Step::send(sent.clone()), Step::Wait(held.clone()), last.clone()]));
            let mut client = edge.connect().await;
            client.send("GET / HTTP/1.1\r\nhost: h\r\n\r\n").await;
            let response = client.read_head().await.unwrap();
            gate.open();
            let body = match response.header("content-length") {
                Some(_) => client.read_exact(10).await.map(drop),
                None => {
                    async {
                        while client.read_chunk(&mut Vec::new()).await? {}
                        Ok(())
                    }
                    .await
                }
            };
            let error = body.expect_err(&format!("{head:?} {end:?}"));
            assert!(matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset), "{error}");
            cut += 1;
            edge.counts(&errors("reset"), f64::from(cut)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_body_that_ends_with_the_connection_when_passed_on_then_it_is_whole_and_a_reset_is_not_taken_for_its_end()
 {
    let origin = Origin::start(|_| Answer::script([Step::send("HTTP/1.1 200 OK\r\n\r\nall"), Step::Close])).await;
    let edge = Edge::before(&origin).await;
    assert_eq!(edge.get("/").await.text(), "all");
    let gate = Gate::closed();
    let held = gate.clone();
    origin.answer_by(move |_| {
        Answer::script([Step::send("HTTP/1.1 200 OK\r\n\r\nhalf"), Step::Wait(held.clone()), Step::Reset])
    });
    let mut client = edge.connect().await;
    client.send("GET / HTTP/1.1\r\nhost: h\r\n\r\n").await;
    let head = client.read_head().await.unwrap();
    assert_eq!(head.header("transfer-encoding"), Some("chunked"), "else its end could not be told from a cut");
    gate.open();
    let mut body = Vec::new();
    let ended = loop {
        match client.read_chunk(&mut body).await {
            Ok(true) => {}
            ended => break ended,
        }
    };
    assert_eq!(body, b"half");
    ended.expect_err("no clean end");
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_client_of_http_1_0_when_the_answer_is_chunked_then_it_gets_it_unframed_and_closed() {
    let origin =
        Origin::start(|_| Answer::chunked(&["one", "two"]).after([Step::send("HTTP/1.1 103 Hints\r\n\r\n")])).await;
    let edge = Edge::before(&origin).await;
    let mut client = edge.connect().await;
    client.send("GET / HTTP/1.0\r\nhost: h\r\n\r\n").await;
    let all = client.read_to_end().await.unwrap();
    let text = String::from_utf8_lossy(&all);
    assert!(text.starts_with("HTTP/1.1 200") || text.starts_with("HTTP/1.0 200"), "{text}");
    assert!(!text.to_lowercase().contains("transfer-encoding") && text.ends_with("\r\n\r\nonetwo"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn given_requests_sent_without_waiting_when_answered_then_all_are_in_order() {
    let origin = Origin::start(|request| Answer::ok(&request.target())).await;
    let edge = Edge::before(&origin).await;
    let mut client = edge.connect().await;
    let get = |at| format!("GET /{at} HTTP/1.1\r\nhost: h\r\n\r\n");
    let post = |at| format!("POST /{at} HTTP/1.1\r\nhost: h\r\ncontent-length: 5\r\n\r\nhello");
    client.send([get(0), post(1), get(2), post(3), get(4)].concat()).await;
    for at in 0..5 {
        assert_eq!(client.read_response().await.unwrap().text(), format!("/{at}"));
    }
    assert!(origin.requests().iter().filter(|request| request.method() == "POST").all(|post| post.body == b"hello"));
    assert_eq!(client.get("/5", "").await.unwrap().text(), "/5");
}

#[tokio::test(flavor = "multi_thread")]
async fn given_many_requests_over_one_connection_when_answered_then_one_connection_serves_them_on_either_side() {
    let origin = Origin::start(|request| match request.target().len() % 3 {
        0 => Answer::chunked(&[&request.target(), "!"]),
        1 => Answer::new(404, "", &format!("{}!", request.target())),
        _ => Answer::ok(&format!("{}!", request.target())),
    })
    .await;
    let edge = Edge::before(&origin).await;
    let mut client = edge.connect().await;
    for at in 0..400 {
        let path = format!("/{}", "x".repeat(at % 7));
        let (method, body) = match at % 4 {
            0 => ("POST", "content-length: 2\r\n\r\nab"),
            1 => ("PUT", "transfer-encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n"),
            2 => ("POST", "content-length: 0\r\n\r\n"),
            _ => ("GET", "\r\n"),
        };
        client.send(format!("{method} {path} HTTP/1.1\r\nhost: h\r\n{body}")).await;
        assert_eq!(client.read_response().await.unwrap().text(), format!("{path}!"), "request {at}");
    }
    assert_eq!(origin.requests().len(), 400);
    assert!(origin.accepted() < FEW, "{} upstream connections", origin.accepted());
    edge.counts("derbent_downstream_connections_total{listener=\"web\"}", 1.0).await;
    let reused = edge.metric("derbent_upstream_connections_total{cluster=\"app\",reused=\"true\"}").await;
    assert_eq!(reused, Some((400 - origin.accepted()) as f64));
}

fn answers(class: &str) -> String {
    format!("derbent_upstream_requests_total{{cluster=\"app\",destination=\"one\",code_class=\"{class}\"}}")
}

fn errors(reason: &str) -> String {
    format!("derbent_upstream_errors_total{{cluster=\"app\",destination=\"one\",reason=\"{reason}\"}}")
}

fn noise(length: usize, seed: u64) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    std::iter::repeat_with(|| random.u8(..)).take(length).collect()
}

/// In chunks of odd sizes, the last one included.
fn chunked(body: &[u8]) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(3);
    let (mut left, mut out) = (body, Vec::with_capacity(body.len() + body.len() / 100));
    while !left.is_empty() {
        let (chunk, rest) = left.split_at(random.usize(1..100_000).min(left.len()));
        out.extend(format!("{:x}\r\n", chunk.len()).bytes());
        out.extend(chunk);
        out.extend(b"\r\n");
        left = rest;
    }
    out.extend(b"0\r\n\r\n");
    out
}

/// In bytes.
fn peak_memory(pid: u32) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("a running process");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
    line.trim().trim_end_matches(" kB").parse::<usize>().expect("a number") * 1024
}
