//! The tests' own tools: what they say of a server is only as good as they are.

use crate::support::{Answer, Client, DEADLINE, Gate, Origin, Step, eventually, free_port, get};
use std::io::ErrorKind;

#[test]
fn given_two_reservations_when_made_then_the_ports_differ() {
    assert_ne!(free_port(), free_port());
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_kept_connection_when_two_requests_are_sent_then_both_are_seen_on_it_byte_for_byte() {
    let origin = Origin::named("one").await;
    let mut client = Client::connect(origin.address()).await;
    let sent = "POST /a%2Fb//c?x=;y HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";
    client.send(format!("{sent}3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n")).await;
    assert_eq!(client.read_response().await.unwrap().text(), "one");
    assert_eq!(client.get("/second", "x-a: b\r\n").await.unwrap().status, 200);
    let requests = origin.requests();
    assert_eq!(requests[0].head, sent.as_bytes());
    assert_eq!((requests[0].method(), requests[0].target()), ("POST".to_owned(), "/a%2Fb//c?x=;y".to_owned()));
    assert_eq!((requests[0].body.as_slice(), requests[0].complete), (b"abcde".as_slice(), true));
    assert_eq!((requests[1].header("X-A").as_deref(), requests[1].connection), (Some("b"), 1));
    assert_eq!((origin.hits("/second"), origin.accepted(), origin.open()), (1, 1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_chunked_answer_when_read_then_chunks_come_apart_or_joined() {
    let origin = Origin::start(|_| Answer::chunked(&["abc", "defg"])).await;
    assert_eq!(get(origin.address(), "/").await.unwrap().text(), "abcdefg");
    let mut client = Client::connect(origin.address()).await;
    client.send("GET / HTTP/1.1\r\n\r\n").await;
    client.read_head().await.unwrap();
    let mut body = Vec::new();
    assert!(client.read_chunk(&mut body).await.unwrap());
    assert_eq!(body, b"abc");
    assert!(client.read_chunk(&mut body).await.unwrap() && !client.read_chunk(&mut body).await.unwrap());
    assert_eq!(body, b"abcdefg");
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_gate_when_closed_then_the_answer_waits_for_it() {
    let gate = Gate::closed();
    let held = gate.clone();
    let origin = Origin::start(move |_| Answer::ok("late").after([Step::Wait(held.clone())])).await;
    let address = origin.address();
    let request = tokio::spawn(async move { get(address, "/").await });
    eventually(DEADLINE, "the request arrives", async || origin.hits("/") == 1).await;
    assert!(!request.is_finished());
    gate.open();
    assert_eq!(request.await.unwrap().unwrap().text(), "late");
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_broken_answer_when_read_then_a_cut_is_told_from_a_reset() {
    let origin = Origin::named("").await;
    let half = "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf";
    origin.answer_by(move |_| Answer::script([Step::send(half), Step::Close]));
    assert_eq!(get(origin.address(), "/").await.unwrap_err().kind(), ErrorKind::UnexpectedEof);
    origin.answer_by(|_| Answer::script([Step::Reset]));
    assert_eq!(get(origin.address(), "/").await.unwrap_err().kind(), ErrorKind::ConnectionReset);
}

#[tokio::test(flavor = "multi_thread")]
async fn given_interim_answers_when_read_then_they_come_before_the_last_and_an_upgrade_echoes() {
    let origin = Origin::named("").await;
    origin.answer_by(|_| Answer::ok("done").after([Step::send("HTTP/1.1 100 Continue\r\n\r\n")]));
    let mut client = Client::connect(origin.address()).await;
    client.send("PUT / HTTP/1.1\r\nexpect: 100-continue\r\ncontent-length: 4\r\n\r\n").await;
    assert_eq!(client.read_response().await.unwrap().status, 100);
    assert!(!origin.requests()[0].complete);
    client.send("body").await;
    assert_eq!(client.read_response().await.unwrap().text(), "done");
    origin.answer_by(|_| Answer::upgrade("websocket"));
    assert_eq!(client.get("/", "upgrade: websocket\r\n").await.unwrap().status, 101);
    client.send("ping").await;
    assert_eq!(client.read_exact(4).await.unwrap(), b"ping");
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_stopped_origin_when_asked_then_connections_are_reset_refused_and_back_on_the_same_port() {
    let mut origin = Origin::named("again").await;
    let mut kept = Client::connect(origin.address()).await;
    kept.get("/", "").await.unwrap();
    origin.stop().await;
    assert_eq!(kept.read_to_end().await.unwrap_err().kind(), ErrorKind::ConnectionReset);
    assert_eq!(get(origin.address(), "/").await.unwrap_err().kind(), ErrorKind::ConnectionRefused);
    assert_eq!(origin.open(), 0);
    origin.restart().await;
    assert_eq!(get(origin.address(), "/").await.unwrap().text(), "again");
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_client_that_resets_when_the_origin_waits_then_the_connection_counts_as_closed() {
    let origin = Origin::start(|_| Answer::script([Step::Wait(Gate::closed())])).await;
    let mut client = Client::connect(origin.address()).await;
    client.send("GET / HTTP/1.1\r\n\r\n").await;
    eventually(DEADLINE, "the request arrives", async || origin.hits("/") == 1).await;
    assert_eq!(origin.open(), 1);
    client.reset();
    eventually(DEADLINE, "the origin sees the client leave", async || origin.open() == 0).await;
}
