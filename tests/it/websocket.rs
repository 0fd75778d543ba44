//! Tunnels: an upgrade passes, bytes go both ways, ends and silence are seen on the other side.

use crate::support::{
    Answer, Client, DEADLINE, Edge, Gate, Origin, Request, Response, Step, eventually, one_destination,
};
use std::time::Duration;

const SWITCH: &str = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                      Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";

#[tokio::test(flavor = "multi_thread")]
async fn given_an_upgrade_when_the_destination_agrees_then_bytes_pass_both_ways() {
    let origin = Origin::start(|_| Answer::script([Step::send(SWITCH), Step::Echo])).await;
    let edge = Edge::before(&origin).await;
    let mut client = edge.connect().await;
    let answer = upgrade(&mut client, "/chat?room=1").await;
    assert_eq!(answer.status, 101);
    assert_eq!(answer.header("sec-websocket-accept"), Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
    assert!(answer.header("upgrade").unwrap().eq_ignore_ascii_case("websocket"), "{:?}", answer.headers);
    assert!(answer.header("connection").unwrap().eq_ignore_ascii_case("upgrade"), "{:?}", answer.headers);
    let request = &origin.requests()[0];
    assert_eq!(request.target(), "/chat?room=1");
    assert!(request.header("upgrade").unwrap().eq_ignore_ascii_case("websocket"));
    assert!(request.header("connection").unwrap().eq_ignore_ascii_case("upgrade"));
    assert_eq!(request.header("sec-websocket-key").as_deref(), Some("dGhlIHNhbXBsZSBub25jZQ=="));
    for size in [1, 100, 70_000] {
        let sent: Vec<u8> = (0..size).map(|at| (at % 251) as u8).collect();
        client.send(&sent).await;
        assert!(client.read_exact(size).await.unwrap() == sent, "{size} bytes");
    }
    assert_eq!(edge.metric("derbent_http_requests_in_flight{listener=\"web\"}").await, Some(1.0));
    drop(client);
    edge.counts("derbent_http_requests_in_flight{listener=\"web\"}", 0.0).await;
    edge.counts("derbent_http_requests_total{listener=\"web\",route=\"all\",method=\"GET\",code=\"101\"}", 1.0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_server_that_speaks_at_once_when_upgraded_then_nothing_of_it_is_lost() {
    let origin = Origin::start(|request| match request.target().as_str() {
        "/together" => Answer::script([Step::send(format!("{SWITCH}welcome")), Step::Echo]),
        _ => Answer::script([Step::send(SWITCH), Step::send("wel"), Step::send("come"), Step::Echo]),
    })
    .await;
    let edge = Edge::before(&origin).await;
    for path in ["/together", "/apart"] {
        let mut client = edge.connect().await;
        assert_eq!(upgrade(&mut client, path).await.status, 101);
        assert_eq!(client.read_exact(7).await.unwrap(), b"welcome", "{path}");
        client.send("hello").await;
        assert_eq!(client.read_exact(5).await.unwrap(), b"hello", "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_tunnel_on_trial_when_it_is_agreed_to_then_the_destination_is_back_while_it_is_open() {
    let mut origin = Origin::start(|_| Answer::script([Step::send(SWITCH), Step::Echo])).await;
    let health = "    health: { passive: { detectors: [{ policy: ConsecutiveFailures, failures: 1 }], reactivation: { period: 100ms } } }\n";
    let edge = Edge::start(&one_destination(&origin.url(), health)).await;
    let is = async |state: &str| {
        eventually(DEADLINE, state, async || edge.destination("app", "one").await["state"] == state).await;
    };
    origin.stop().await;
    edge.get("/").await;
    is("half_open").await;
    origin.restart().await;
    let mut client = edge.connect().await;
    // A trial that came while it still was down ejects it again.
    while upgrade(&mut client, "/chat").await.status != 101 {
        is("half_open").await;
        client = edge.connect().await;
    }
    is("healthy").await;
    client.send("still open").await;
    assert_eq!(client.read_exact(10).await.unwrap(), b"still open");
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_tunnel_when_either_side_ends_then_the_other_sees_it() {
    let gate = Gate::closed();
    let held = gate.clone();
    let origin = Origin::start(move |request| {
        let last = if request.target() == "/server" { Step::Wait(held.clone()) } else { Step::Echo };
        Answer::script([Step::send(format!("{SWITCH}bye")), last, Step::Close])
    })
    .await;
    let edge = Edge::before(&origin).await;
    let mut client = edge.connect().await;
    upgrade(&mut client, "/server").await;
    gate.open();
    assert_eq!(client.read_to_end().await.unwrap(), b"bye");
    eventually(DEADLINE, "the destination's connection ends", async || origin.open() == 0).await;
    for reset in [false, true] {
        let mut client = edge.connect().await;
        upgrade(&mut client, "/client").await;
        assert_eq!(client.read_exact(3).await.unwrap(), b"bye");
        assert_eq!(origin.open(), 1);
        if reset {
            client.reset()
        } else {
            drop(client)
        }
        eventually(DEADLINE, "the destination sees the client leave", async || origin.open() == 0).await;
    }
    edge.counts("derbent_downstream_connections{listener=\"web\"}", 0.0).await;
    assert!(!edge.stderr().iter().any(|line| line.contains("WARN")), "{:?}", edge.stderr());
}

#[tokio::test(flavor = "multi_thread")]
async fn given_300_short_tunnels_when_ordinary_requests_run_beside_them_then_none_breaks() {
    let origin = Origin::start(|request| match request.header("upgrade") {
        Some(_) => Answer::script([Step::send(format!("{SWITCH}hi")), Step::Echo]),
        None => Answer::ok("plain"),
    })
    .await;
    let edge = Edge::before(&origin).await;
    let address = edge.address();
    let tunnels = (0..6).map(|task| {
        tokio::spawn(async move {
            let mut plain = Client::connect(address).await;
            for at in 0..50 {
                assert_eq!(plain.get("/plain", "").await.unwrap().text(), "plain");
                let mut client = Client::connect(address).await;
                assert_eq!(upgrade(&mut client, "/tunnel").await.status, 101);
                assert_eq!(client.read_exact(2).await.unwrap(), b"hi", "tunnel {task}/{at}");
                let sent = format!("{task}/{at}");
                client.send(&sent).await;
                assert_eq!(client.read_exact(sent.len()).await.unwrap(), sent.as_bytes());
            }
        })
    });
    for tunnel in tunnels.collect::<Vec<_>>() {
        tunnel.await.unwrap();
    }
    // No connection that ever was a tunnel, or was asked to be one, carried anything else.
    let requests = origin.requests();
    let (tunnels, plain): (Vec<&Request>, Vec<&Request>) =
        requests.iter().partition(|request| request.target() == "/tunnel");
    let mut numbers: Vec<usize> = tunnels.iter().map(|request| request.connection).collect();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!((tunnels.len(), numbers.len(), plain.len()), (300, 300, 300));
    assert!(plain.iter().all(|request| numbers.binary_search(&request.connection).is_err()));
}

#[tokio::test(flavor = "multi_thread")]
async fn given_an_upgrade_when_the_destination_declines_then_its_answer_passes_and_the_clients_connection_goes_on() {
    let origin = Origin::start(|request| match request.header("upgrade") {
        Some(_) => Answer::new(403, "", "no tunnels"),
        None => Answer::ok("plain"),
    })
    .await;
    let edge = Edge::before(&origin).await;
    let mut client = edge.connect().await;
    client.send(handshake("/")).await;
    let answer = client.read_response().await.unwrap();
    assert_eq!((answer.status, answer.text().as_str()), (403, "no tunnels"));
    assert_eq!(client.get("/", "").await.unwrap().text(), "plain");
    let connections: Vec<usize> = origin.requests().iter().map(|request| request.connection).collect();
    assert_eq!(connections, [1, 2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_101_that_nobody_asked_for_when_answered_then_the_client_gets_a_502() {
    let origin = Origin::start(|_| Answer::script([Step::send(SWITCH), Step::Echo])).await;
    let edge = Edge::before(&origin).await;
    let answer = edge.get("/").await;
    assert_eq!(answer.status, 502);
    // The upgrade of a client of HTTP/1.0 is not passed on.
    let mut old = edge.connect().await;
    old.send("GET / HTTP/1.0\r\nhost: h\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n").await;
    assert_eq!(old.read_response().await.unwrap().status, 502);
    assert_eq!(origin.requests().last().and_then(|request| request.header("upgrade")), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_tunnel_when_one_side_speaks_then_silence_of_the_other_does_not_end_it() {
    let origin = Origin::start(|request| match request.target().as_str() {
        "/server" => {
            let beats = (0..8).flat_map(|_| [Step::Pause(Duration::from_millis(400)), Step::send("!")]);
            Answer::script(std::iter::once(Step::send(SWITCH)).chain(beats).chain([Step::Wait(Gate::closed())]))
        }
        _ => Answer::script([Step::send(SWITCH), Step::Wait(Gate::closed())]),
    })
    .await;
    let edge = Edge::start(&one_destination(&origin.url(), "request: { activity_timeout: 2s }")).await;
    let mut server_speaks = edge.connect().await;
    upgrade(&mut server_speaks, "/server").await;
    let mut client_speaks = edge.connect().await;
    upgrade(&mut client_speaks, "/client").await;
    for beat in 0..8 {
        assert_eq!(server_speaks.read_exact(1).await.unwrap(), b"!", "beat {beat}");
        assert!(client_speaks.try_send(b"?").await.is_ok(), "beat {beat}");
        assert_eq!(origin.open(), 2, "beat {beat}");
    }
    // Then both are silent.
    server_speaks.read_to_end().await.unwrap();
    client_speaks.read_to_end().await.unwrap();
    eventually(DEADLINE, "both tunnels end", async || origin.open() == 0).await;
}

fn handshake(path: &str) -> String {
    format!(
        "GET {path} HTTP/1.1\r\nhost: h\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
}

async fn upgrade(client: &mut Client, path: &str) -> Response {
    client.send(handshake(path)).await;
    client.read_head().await.unwrap()
}
