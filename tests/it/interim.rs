//! `Expect: 100-continue`, and what HTTP/1.0 clients get: where the two sides speak different versions, the proxy says what one of them cannot.

use crate::support::{Answer, Client, Edge, Gate, H2Client, H2Origin, Origin, Step, free_port, loopback, take};
use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, RecvStream};
use http::Request;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use tokio::net::TcpListener;

const H2: &str = "request: { version: 2, version_policy: Exact }";
const HTTP10: &str = "request: { version: 1.0 }";

/// An edge whose destinations `a`, `b`, … are tried in this order; `more` are further keys of the cluster.
async fn edge(destinations: &[SocketAddr], more: &str) -> Edge {
    let name = |at: usize| char::from(b'a' + at as u8);
    let all: Vec<_> =
        destinations.iter().enumerate().map(|(at, to)| format!("{}: \"http://{to}\"", name(at))).collect();
    Edge::start(&format!(
        "routes: {{ all: {{ cluster: app }} }}\n\
         clusters: {{ app: {{ load_balancing: FirstAlphabetical, destinations: {{ {} }}, {more} }} }}\n",
        all.join(", ")
    ))
    .await
}

/// A destination of HTTP/2 that gives each request to `serve`.
async fn h2_destination<F>(
    serve: impl Fn(Request<RecvStream>, SendResponse<Bytes>) -> F + Send + Clone + 'static,
) -> SocketAddr
where
    F: Future<Output = Result<(), h2::Error>> + Send + 'static,
{
    let listener = TcpListener::bind(loopback(free_port())).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let serve = serve.clone();
            tokio::spawn(async move {
                let mut connection = h2::server::handshake(stream).await?;
                while let Some(accepted) = connection.accept().await {
                    let (request, respond) = accepted?;
                    tokio::spawn(serve(request, respond));
                }
                Ok::<(), h2::Error>(())
            });
        }
    });
    address
}

type Seen = Arc<Mutex<Vec<Request<Vec<u8>>>>>;

/// One that answers with the body, once it has all of it; those before the `first` it resets then.
async fn patient(seen: &Seen, first: usize) -> SocketAddr {
    let seen = seen.clone();
    h2_destination(move |request, mut respond| {
        let seen = seen.clone();
        async move {
            let (head, mut stream) = request.into_parts();
            let mut body = Vec::new();
            while let Some(chunk) = stream.data().await {
                body.extend(take(&mut stream, chunk?));
            }
            let number = {
                let mut seen = seen.lock().unwrap();
                seen.push(Request::from_parts(head, body.clone()));
                seen.len()
            };
            if number < first {
                respond.send_reset(Reason::INTERNAL_ERROR);
                return Ok(());
            }
            respond.send_response(http::Response::new(()), false)?.send_data(body.into(), true)
        }
    })
    .await
}

fn put(expect: &str, body: &str) -> String {
    format!("PUT / HTTP/1.1\r\nhost: h\r\nexpect: {expect}\r\ncontent-length: 4\r\n\r\n{body}")
}

/// Sends the body when told to, and what it gets then, which is not told again.
async fn told(client: &mut Client) -> (u16, String) {
    client.send(put("100-Continue", "")).await;
    assert_eq!(client.read_response().await.unwrap().head, b"HTTP/1.1 100 Continue\r\n\r\n");
    client.send("body").await;
    let answer = client.read_response().await.unwrap();
    (answer.status, answer.text())
}

#[tokio::test(flavor = "multi_thread")]
async fn given_expect_continue_when_the_destination_speaks_a_version_that_cannot_say_so_then_the_proxy_does_and_once() {
    let seen = Seen::default();
    let edge = edge(&[patient(&seen, 0).await], H2).await;
    let mut client = edge.connect().await;
    for _ in 0..2 {
        assert_eq!(told(&mut client).await, (200, "body".into()));
    }
    // Who does not wait is not told.
    client.send(put("100-continue", "body")).await;
    assert_eq!(client.read_response().await.unwrap().text(), "body");
    assert!(seen.lock().unwrap().iter().all(|request| !request.headers().contains_key("expect")));

    let origin =
        Origin::start(|_| Answer::script([Step::ReadBody, Step::send("HTTP/1.0 200 OK\r\n\r\ndone"), Step::Close]))
            .await;
    let edge = self::edge(&[origin.address()], HTTP10).await;
    assert_eq!(told(&mut edge.connect().await).await, (200, "done".into()));
    assert_eq!((origin.requests()[0].header("expect"), &*origin.requests()[0].body), (None, &b"body"[..]));
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_client_that_was_told_to_go_on_when_the_attempt_breaks_then_others_follow_and_it_is_told_no_more() {
    let seen = Seen::default();
    let destination = patient(&seen, 3).await;
    let edge = edge(&[destination, destination], H2).await;
    let mut client = edge.connect().await;
    assert_eq!(told(&mut client).await, (200, "body".into()));
    assert!(seen.lock().unwrap().iter().all(|request| request.body() == b"body"));
    edge.counts("derbent_upstream_retries_total{cluster=\"app\",reason=\"protocol\"}", 2.0).await;
    // Nor is it when the first destination has said so itself.
    let go_on = [Step::send("HTTP/1.1 100 Continue\r\n\r\n"), Step::ReadBody, Step::Reset];
    let (breaks, serves) = (Origin::start(move |_| Answer::script(go_on.clone())).await, Origin::named("served").await);
    let edge = self::edge(&[breaks.address(), serves.address()], "").await;
    assert_eq!(told(&mut edge.connect().await).await, (200, "served".into()));
    assert_eq!(breaks.requests()[0].header("expect").as_deref(), Some("100-Continue"));
    assert_eq!((serves.requests()[0].header("expect"), &*serves.requests()[0].body), (None, &b"body"[..]));
    // And where none is left, it gets our own answer.
    let seen = Seen::default();
    let edge = self::edge(&[patient(&seen, usize::MAX).await], H2).await;
    assert_eq!(told(&mut edge.connect().await).await.0, 502);
}

#[tokio::test(flavor = "multi_thread")]
async fn given_expect_continue_when_the_answer_is_ours_then_it_comes_alone() {
    let edge = edge(&[loopback(free_port())], H2).await;
    let mut client = edge.connect().await;
    client.send(put("100-continue", "")).await;
    assert_eq!(client.read_response().await.unwrap().status, 502);
    // It is the last one on its connection, which ends without waiting for a body that nobody asked for.
    assert_eq!(client.read_to_end().await.unwrap(), b"");
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_client_of_http_2_when_it_expects_and_sends_then_it_is_served_whatever_the_destination_speaks() {
    let listener = |more: &str, destination: SocketAddr| {
        format!(
            "listeners: {{ web: {{ address: \"{{}}\", protocols: [http1, h2c] }} }}\nroutes: {{ all: {{ cluster: app }} }}\n\
             clusters: {{ app: {{ destinations: {{ a: \"http://{destination}\" }}, {more} }} }}\n"
        )
    };
    let seen = Seen::default();
    let origin = Origin::start(|_| Answer::ok("done").after([Step::send("HTTP/1.1 100 Continue\r\n\r\n")])).await;
    for (more, destination, text) in
        [(H2, patient(&seen, 0).await, "body"), ("request: { version: 1.1 }", origin.address(), "done")]
    {
        let address = loopback(free_port());
        let _edge = Edge::start(&listener(more, destination).replace("{}", &address.to_string())).await;
        let client = H2Client::connect(address).await;
        let request = Request::put("http://h/").header("expect", "100-continue").body(()).unwrap();
        let answer = client.send(request, b"body").await.unwrap();
        assert_eq!((answer.status, answer.text().as_str()), (200, text));
    }
    // It may still be refused by a final answer.
    assert_eq!(seen.lock().unwrap()[0].headers()["expect"], "100-continue");
    assert_eq!(origin.requests()[0].header("expect").as_deref(), Some("100-continue"));
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_client_of_http_1_0_when_the_destination_of_http_2_says_no_length_then_it_gets_the_body_bare_and_closed()
 {
    let origin = H2Origin::start().await;
    let edge = edge(&[origin.address()], H2).await;
    let mut client = edge.connect().await;
    client.send("POST / HTTP/1.0\r\nhost: h\r\nconnection: keep-alive\r\ncontent-length: 6\r\n\r\nonetwo").await;
    let head = client.read_head().await.unwrap();
    let fields = ["transfer-encoding", "content-length", "connection"].map(|name| head.header(name));
    assert_eq!((head.status, fields), (200, [None, None, Some("close")]));
    assert_eq!(client.read_to_end().await.unwrap(), b"onetwo");
    // As ever, chunks to one that knows them.
    let mut client = edge.connect().await;
    client.send("POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 6\r\n\r\nonetwo").await;
    let answer = client.read_response().await.unwrap();
    assert_eq!((answer.header("transfer-encoding"), answer.text().as_str()), (Some("chunked"), "onetwo"));
}

#[tokio::test(flavor = "multi_thread")]
async fn given_an_answer_without_a_length_to_a_client_of_http_1_0_when_it_breaks_off_then_it_does_not_look_whole() {
    let gate = Gate::closed();
    let held = gate.clone();
    let origin = Origin::start(move |request| {
        let end = if request.target() == "/reset" { Step::Reset } else { Step::Close };
        let some = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n";
        Answer::script([Step::send(some), Step::Wait(held.clone()), end])
    })
    .await;
    let held = gate.clone();
    let resets = h2_destination(move |_, mut respond| {
        let gate = held.clone();
        async move {
            let mut body = respond.send_response(http::Response::new(()), false)?;
            body.send_data(Bytes::from_static(b"abc"), false)?;
            gate.wait().await;
            body.send_reset(Reason::INTERNAL_ERROR);
            Ok(())
        }
    })
    .await;
    let edges = [edge(&[origin.address()], "").await, edge(&[resets], H2).await];
    let mut clients = Vec::new();
    for (edge, target) in [(&edges[0], "/close"), (&edges[0], "/reset"), (&edges[1], "/")] {
        let mut client = edge.connect().await;
        client.send(format!("GET {target} HTTP/1.0\r\nhost: h\r\n\r\n")).await;
        assert_eq!(client.read_head().await.unwrap().header("transfer-encoding"), None);
        assert_eq!(client.read_exact(3).await.unwrap(), b"abc");
        clients.push((client, target));
    }
    gate.open();
    for (mut client, target) in clients {
        let end = client.read_to_end().await.expect_err(target);
        assert_eq!(end.kind(), std::io::ErrorKind::ConnectionReset, "{target}");
    }
}
