//! Destinations on their leave, at the real binary: no new requests, those in flight finish, then the connections to them end at
//! once, and what is left is shown all the while.

use crate::support::{
    Answer, Client, DEADLINE, Edge, Gate, Origin, Step, derbent, eventually, free_port, in_time, loopback,
    one_destination,
};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Spoken {
    Http1,
    Http1Tls,
    Http2,
    Http2Tls,
}

impl Spoken {
    const ALL: [Spoken; 4] = [Spoken::Http1, Spoken::Http1Tls, Spoken::Http2, Spoken::Http2Tls];

    fn is_tls(self) -> bool {
        matches!(self, Spoken::Http1Tls | Spoken::Http2Tls)
    }

    fn is_http2(self) -> bool {
        matches!(self, Spoken::Http2 | Spoken::Http2Tls)
    }
}

/// Answers with its name; `/held` and `/slow` when their gates open.
#[derive(Clone)]
struct Door {
    name: &'static str,
    spoken: Spoken,
    address: SocketAddr,
    open: Arc<AtomicUsize>,
    asked: Arc<AtomicUsize>,
    held: Gate,
    slow: Gate,
}

impl Door {
    async fn start(name: &'static str, spoken: Spoken) -> Door {
        let listener = TcpListener::bind(loopback(free_port())).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (open, asked, held, slow) = (Arc::default(), Arc::default(), Gate::closed(), Gate::closed());
        let door = Door { name, spoken, address, open, asked, held, slow };
        let (at, tls) = (door.clone(), acceptor(spoken));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (at, tls) = (at.clone(), tls.clone());
                tokio::spawn(async move {
                    at.open.fetch_add(1, Ordering::SeqCst);
                    match at.spoken.is_tls() {
                        true => at.serve(tls.accept(stream).await.expect("a handshake")).await,
                        false => at.serve(stream).await,
                    }
                    at.open.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        door
    }

    /// Until the other side ends the connection.
    async fn serve(&self, stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) {
        let door = self.clone();
        let service = service_fn(move |request: Request<Incoming>| {
            let door = door.clone();
            async move {
                door.asked.fetch_add(1, Ordering::SeqCst);
                let path = request.uri().path().to_owned();
                // One that is not taken in may cost the connection.
                let _ = request.into_body().collect().await;
                match path.as_str() {
                    "/held" => door.held.wait().await,
                    "/slow" => door.slow.wait().await,
                    _ => {}
                }
                Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(door.name.as_bytes()))))
            }
        });
        let io = TokioIo::new(stream);
        let _ = match self.spoken.is_http2() {
            true => hyper::server::conn::http2::Builder::new(TokioExecutor::new()).serve_connection(io, service).await,
            false => hyper::server::conn::http1::Builder::new().serve_connection(io, service).await,
        };
    }

    fn url(&self) -> String {
        let scheme = if self.spoken.is_tls() { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    fn open(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }
}

fn acceptor(spoken: Spoken) -> TlsAcceptor {
    let certified = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(certified.signing_key.serialize_der()));
    let config = rustls::ServerConfig::builder_with_provider(default_provider().into())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth();
    let mut config = config.with_single_cert(vec![certified.cert.der().clone()], key).unwrap();
    config.alpn_protocols = vec![if spoken.is_http2() { b"h2".to_vec() } else { b"http/1.1".to_vec() }];
    TlsAcceptor::from(Arc::new(config))
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Way {
    Removed,
    Disabled,
    Drained,
    Maintenance,
}

impl Way {
    fn word(self) -> &'static str {
        match self {
            Way::Removed => "removed",
            Way::Disabled => "disabled",
            Way::Drained => "drained",
            Way::Maintenance => "maintenance",
        }
    }
}

/// Cluster `app` of `a`, which gets every request while it is there, and `b`.
fn app(a: &Door, b: &Door, written: &str) -> String {
    let version = if a.spoken.is_http2() { "2" } else { "1.1" };
    let a = match written {
        "" => String::new(),
        more => format!("a: {{ address: \"{}\", {more} }}, ", a.url()),
    };
    format!(
        "routes: {{ all: {{ cluster: app }} }}\nclusters: {{ app: {{ load_balancing: FirstAlphabetical, destinations: {{ {a}b: \"{}\" }}, \
         connection: {{ idle_timeout: 10m, tls: {{ verify: false }} }}, request: {{ version: {version}, version_policy: Exact }} }} }}\n",
        b.url()
    )
}

/// Exit code 0, and what it printed.
async fn ctl(edge: &Edge, arguments: &[&str]) -> String {
    let admin = edge.admin().to_string();
    let output = derbent([&["ctl", "--admin", &admin][..], arguments].concat()).await;
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn ask(edge: &Edge, path: &'static str) -> JoinHandle<(u16, String)> {
    let address = edge.address();
    tokio::spawn(async move {
        let answer = Client::connect(address).await.get(path, "").await.expect("an answer");
        (answer.status, answer.text())
    })
}

async fn leaves(spoken: Spoken, way: Way) {
    let (a, b) = (Door::start("a", spoken).await, Door::start("b", spoken).await);
    let edge = Edge::start(&app(&a, &b, "enabled: true")).await;
    let held = [ask(&edge, "/held"), ask(&edge, "/held")];
    let slow = ask(&edge, "/slow");
    eventually(DEADLINE, "three requests at a", async || a.asked() == 3).await;
    a.held.open();
    for answer in held {
        assert_eq!(in_time("a held answer", answer).await.unwrap(), (200, "a".to_owned()));
    }
    let connections = a.open();
    assert!(if spoken.is_http2() { connections >= 1 } else { connections == 3 }, "{spoken:?}: {connections}");
    eventually(DEADLINE, "only the slow one is in flight", async || {
        let shown = edge.destination("app", "a").await;
        shown["in_flight"] == 1 && shown["connections"] == connections
    })
    .await;

    match way {
        Way::Removed => edge.reload(&app(&a, &b, "")).await,
        Way::Disabled => edge.reload(&app(&a, &b, "enabled: false")).await,
        Way::Drained => drop(ctl(&edge, &["drain", "app", "a"]).await),
        Way::Maintenance => drop(ctl(&edge, &["maint", "app", "a"]).await),
    }
    let plural = if connections == 1 { "" } else { "s" };
    let begins = format!(
        "] of cluster app leaves ({}); left are 1 request in flight, {connections} connection{plural}",
        way.word()
    );
    edge.logged(&["INFO", "a[127.0.0.1:", &begins]).await;
    for _ in 0..10 {
        assert_eq!(edge.get("/").await.text(), "b", "{spoken:?} {way:?}");
    }
    assert_eq!(
        (a.asked(), a.open()),
        (3, connections),
        "a new request, or the one in flight was cut: {spoken:?} {way:?}"
    );
    let shown = edge.clusters().await["leaving"][0].clone();
    for (key, value) in [("cluster", "app"), ("destination", "a"), ("reason", way.word())] {
        assert_eq!(shown[key], value, "{shown}");
    }
    assert_eq!((&shown["in_flight"], &shown["connections"]), (&1.into(), &connections.into()), "{shown}");
    let series = |left| {
        format!(
            "derbent_destination_leaving{{cluster=\"app\",destination=\"a\",reason=\"{}\",left=\"{left}\"}}",
            way.word()
        )
    };
    assert_eq!(edge.metric(&series("requests")).await, Some(1.0));
    assert_eq!(edge.metric(&series("connections")).await, Some(connections as f64));
    let status = ctl(&edge, &["status"]).await;
    let row = status.lines().skip_while(|line| *line != "leaving:").nth(2).unwrap_or_else(|| panic!("{status}"));
    let cells: Vec<&str> = row.split_whitespace().collect();
    assert_eq!([cells[0], cells[1], cells[2], cells[4]], ["app", "a", way.word(), "1"], "{status}");

    a.slow.open();
    assert_eq!(in_time("the slow answer", slow).await.unwrap(), (200, "a".to_owned()));
    eventually(DEADLINE, "a sees all its connections end, long before the idle time", async || a.open() == 0).await;
    edge.logged(&["INFO", "a[127.0.0.1:", &format!("] of cluster app has left ({}) after ", way.word())]).await;
    assert_eq!(edge.clusters().await["leaving"], serde_json::json!([]));
    assert_eq!(edge.metric(&series("connections")).await, None);
    let kept = b.open();
    assert_eq!(edge.get("/").await.text(), "b");
    assert_eq!(b.open(), kept, "b's connections are its own");

    match way {
        Way::Removed | Way::Disabled => edge.reload(&app(&a, &b, "enabled: true")).await,
        Way::Drained | Way::Maintenance => drop(ctl(&edge, &["ready", "app", "a"]).await),
    }
    eventually(DEADLINE, "a serves again", async || edge.get("/").await.text() == "a").await;
    assert_eq!(edge.clusters().await["leaving"], serde_json::json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn given_requests_and_idle_connections_when_removed_by_reload_then_what_is_in_flight_ends_well_and_all_is_closed()
{
    for spoken in Spoken::ALL {
        leaves(spoken, Way::Removed).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn given_requests_and_idle_connections_when_drained_then_what_is_in_flight_ends_well_and_all_is_closed() {
    for spoken in Spoken::ALL {
        leaves(spoken, Way::Drained).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn given_requests_and_idle_connections_when_disabled_or_in_maintenance_then_the_same() {
    for (spoken, way) in [
        (Spoken::Http1, Way::Disabled),
        (Spoken::Http2, Way::Disabled),
        (Spoken::Http1Tls, Way::Maintenance),
        (Spoken::Http2Tls, Way::Maintenance),
    ] {
        leaves(spoken, way).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_cluster_that_a_reload_drops_when_a_request_is_in_flight_then_it_is_shown_to_its_end() {
    let (origin, other, gate) = (Origin::named("a").await, Origin::named("other").await, Gate::closed());
    let held = gate.clone();
    origin.answer_by(move |_| Answer::ok("slow").after([Step::Wait(held.clone())]));
    let edge = Edge::start(&one_destination(&origin.url(), "")).await;
    let slow = ask(&edge, "/");
    eventually(DEADLINE, "it waits at the origin", async || origin.hits("/") == 1).await;
    let next = format!(
        "routes: {{ all: {{ cluster: next }} }}\nclusters: {{ next: {{ destinations: [\"{}\"] }} }}\n",
        other.url()
    );
    edge.reload(&next).await;
    edge.logged(&["one[127.0.0.1:", "of cluster app leaves (removed); left are 1 request in flight, 1 connection"])
        .await;
    let shown = edge.clusters().await;
    assert_eq!(
        (&shown["leaving"][0]["cluster"], &shown["leaving"][0]["in_flight"]),
        (&"app".into(), &1.into()),
        "{shown}"
    );
    gate.open();
    assert_eq!(in_time("the slow answer", slow).await.unwrap(), (200, "slow".to_owned()));
    eventually(DEADLINE, "its connection is closed", async || origin.open() == 0).await;
    edge.logged(&["of cluster app has left (removed)"]).await;
}

/// A client whose session is bound to `a`, before `a` and `b`.
struct Bound {
    edge: Edge,
    a: Origin,
    b: Origin,
    client: Client,
    cookie: String,
}

impl Bound {
    async fn to_a() -> Bound {
        let (a, b) = (Origin::named("a").await, Origin::named("b").await);
        let edge = Edge::start(&format!(
            "routes: {{ all: {{ cluster: app }} }}\nclusters: {{ app: {{ load_balancing: FirstAlphabetical, destinations: {{ a: \"{}\", b: \"{}\" }}, \
             session_affinity: {{ policy: HashCookie, key_name: k }}, connection: {{ idle_timeout: 10m }} }} }}\n",
            a.url(),
            b.url()
        ))
        .await;
        let mut client = edge.connect().await;
        let bound = client.get("/", "").await.unwrap();
        let cookie =
            bound.header("set-cookie").and_then(|field| field.split(';').next()).expect("a session").to_owned();
        Bound { edge, a, b, client, cookie }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_drained_destination_when_its_sessions_go_on_then_so_do_their_connections_until_they_are_quiet() {
    let Bound { edge, a, b: _b, mut client, cookie } = Bound::to_a().await;
    ctl(&edge, &["drain", "app", "a"]).await;
    edge.logged(&["a[127.0.0.1:", "leaves (drained); left are 0 requests in flight, 1 connection"]).await;
    assert_eq!(edge.get("/").await.text(), "b");
    for _ in 0..5 {
        let answer = client.get("/", &format!("cookie: {cookie}\r\n")).await.unwrap();
        assert_eq!(answer.text(), "a");
    }
    assert!(a.open() > 0, "its connection is kept for its session");
    eventually(DEADLINE, "nobody asks any more", async || a.open() == 0).await;
    edge.logged(&["of cluster app has left (drained)"]).await;
    // It keeps its session all the same.
    assert_eq!(client.get("/", &format!("cookie: {cookie}\r\n")).await.unwrap().text(), "a");
    ctl(&edge, &["ready", "app", "a"]).await;
    assert_eq!(edge.get("/").await.text(), "a");
}

#[tokio::test(flavor = "multi_thread")]
async fn given_an_order_to_leave_when_its_time_is_over_then_its_sessions_go_elsewhere_and_its_connections_end() {
    let Bound { edge, a, b: _b, mut client, cookie } = Bound::to_a().await;
    ctl(&edge, &["leave", "app", "a", "--for", "2s"]).await;
    let shown = ctl(&edge, &["explain", "app", "a"]).await;
    assert!(shown.contains("draining") && shown.contains("sessions go elsewhere"), "{shown}");
    edge.logged(&["orders maint for a[127.0.0.1:", "of cluster app"]).await;
    let answer = client.get("/", &format!("cookie: {cookie}\r\n")).await.unwrap();
    assert_eq!(answer.text(), "b");
    assert_ne!(answer.header("set-cookie"), None, "bound anew");
    eventually(DEADLINE, "its connections end", async || a.open() == 0).await;
    let shown = ctl(&edge, &["status", "app"]).await;
    assert!(shown.contains("maintenance") && !shown.contains("leaving:"), "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn given_posts_without_end_when_a_destination_comes_and_goes_then_none_is_lost_to_a_connection_that_was_ended() {
    for spoken in [Spoken::Http1, Spoken::Http2] {
        let (a, b) = (Door::start("a", spoken).await, Door::start("b", spoken).await);
        let edge = Edge::start(&app(&a, &b, "enabled: true")).await;
        let stop = Arc::new(AtomicBool::new(false));
        let posts: Vec<JoinHandle<usize>> = (0..4)
            .map(|_| {
                let (address, stop) = (edge.address(), stop.clone());
                tokio::spawn(async move {
                    let (mut client, mut answered) = (Client::connect(address).await, 0);
                    while !stop.load(Ordering::SeqCst) {
                        client.send("POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 4\r\n\r\nbody").await;
                        assert_eq!(client.read_response().await.expect("an answer").status, 200);
                        answered += 1;
                    }
                    answered
                })
            })
            .collect();
        for turn in 0..12 {
            let asked = a.asked();
            eventually(DEADLINE, "a is asked", async || a.asked() > asked + 20).await;
            match turn % 2 {
                0 => edge.reload(&app(&a, &b, "")).await,
                _ => drop(ctl(&edge, &["drain", "app", "a"]).await),
            }
            let left = || edge.stderr().iter().filter(|line| line.contains("] of cluster app has left (")).count();
            eventually(DEADLINE, "a is let go", async || a.open() == 0 && left() == turn + 1).await;
            match turn % 2 {
                0 => edge.reload(&app(&a, &b, "enabled: true")).await,
                _ => drop(ctl(&edge, &["ready", "app", "a"]).await),
            }
        }
        stop.store(true, Ordering::SeqCst);
        for posted in posts {
            assert!(in_time("the end of a client", posted).await.expect("none was lost") > 0);
        }
    }
}

/// Cluster `app` of one destination that takes one request at a time, and a queue.
fn queued(name: &str, origins: &[(&str, &Origin)]) -> String {
    let each = |(id, origin): &(&str, &Origin)| format!("{id}: {{ address: \"{}\", max_requests: 1 }}", origin.url());
    let destinations = origins.iter().map(each).collect::<Vec<_>>().join(", ");
    format!(
        "routes: {{ all: {{ cluster: {name} }} }}\nclusters: {{ {name}: {{ destinations: {{ {destinations} }}, queue: {{ max: 9, deadline: 10m }} }} }}\n"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn given_requests_in_a_queue_when_a_reload_drops_their_cluster_or_brings_another_destination_then_that_serves_them()
 {
    let (full, free, gate) = (Origin::named("full").await, Origin::named("free").await, Gate::closed());
    let held = gate.clone();
    full.answer_by(move |_| Answer::ok("full").after([Step::Wait(held.clone())]));
    for (name, next) in
        [("other", vec![("b", &free)]), ("app", vec![("a", &full), ("b", &free)]), ("app", vec![("b", &free)])]
    {
        let edge = Edge::start(&queued("app", &[("a", &full)])).await;
        let before = full.hits("/");
        let first = ask(&edge, "/first");
        eventually(DEADLINE, "the only place is taken", async || full.hits("/") == before + 1).await;
        let waiting = [ask(&edge, "/second"), ask(&edge, "/third")];
        edge.counts("derbent_cluster_queue_length{cluster=\"app\"}", 2.0).await;
        edge.reload(&queued(name, &next)).await;
        for answer in waiting {
            assert_eq!(in_time("an answer", answer).await.unwrap(), (200, "free".to_owned()), "{name} {}", next.len());
        }
        assert_eq!(full.hits("/"), before + 1, "nobody was sent to where there was no place");
        drop(first);
    }
    gate.open();
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_request_of_hours_when_the_listeners_are_closed_then_orders_ejections_probes_and_reloads_go_on() {
    let [a, b, c] = [
        Door::start("a", Spoken::Http1).await,
        Door::start("b", Spoken::Http1).await,
        Door::start("c", Spoken::Http1).await,
    ];
    let closed = loopback(free_port());
    let yaml = |b: &str| {
        format!(
            "server: {{ drain: {{ close_listeners: 100ms, end: 10h, kill: 11h }}, reload: {{ watch: false }} }}\n\
             routes: {{ slow: {{ match: {{ path: /slow }}, cluster: probed }}, faulty: {{ match: {{ path: /faulty }}, cluster: faulty }}, \
             all: {{ cluster: app }} }}\n\
             clusters:\n  app: {{ load_balancing: FirstAlphabetical, destinations: {{ a: \"{}\"{b} }}, connection: {{ idle_timeout: 10m }} }}\n  \
             probed: {{ destinations: {{ c: \"{}\" }}, health: {{ active: {{ type: http, path: /probe, interval: 100ms }} }} }}\n  \
             faulty: {{ load_balancing: FirstAlphabetical, destinations: {{ d: \"http://{closed}\", e: \"{}\" }}, \
             health: {{ passive: {{ detectors: [{{ policy: ConsecutiveFailures, failures: 1 }}], reactivation: {{ period: 1s }} }} }} }}\n",
            a.url(),
            c.url(),
            c.url(),
        )
    };
    let with_b = format!(", b: \"{}\"", b.url());
    let mut edge = Edge::start(&yaml(&with_b)).await;
    let slow = ask(&edge, "/slow");
    let mut kept = edge.connect().await;
    assert_eq!(kept.get("/", "").await.unwrap().text(), "a");
    assert!(a.open() > 0, "an idle connection");
    edge.signal("TERM");
    eventually(DEADLINE, "the listeners are closed", async || {
        edge.admin_get("/api/v1/drain").await.json()["phase"] == "closing"
    })
    .await;

    kept.get("/faulty", "").await.expect("an answer, from whomever");
    edge.logged(&["d[127.0.0.1:", "of cluster faulty is unhealthy"]).await;
    edge.logged(&["d[127.0.0.1:", "of cluster faulty is half-open"]).await;
    let state = async |id| edge.destination("app", id).await["state"].clone();
    ctl(&edge, &["drain", "app", "a"]).await;
    eventually(DEADLINE, "the idle connections of a drained one end", async || a.open() == 0).await;
    ctl(&edge, &["maint", "app", "b", "--for", "1s"]).await;
    assert_eq!(state("b").await, "maintenance");
    eventually(DEADLINE, "an order ends when its time is over", async || state("b").await != "maintenance").await;
    let asked = c.asked();
    eventually(DEADLINE, "probes go on", async || c.asked() > asked + 2).await;
    edge.reload(&yaml("")).await;
    assert_eq!(edge.destination("app", "b").await, serde_json::Value::Null, "removed by the file");

    c.slow.open();
    assert_eq!(in_time("the slow answer", slow).await.unwrap(), (200, "c".to_owned()));
    assert_eq!(edge.ended().await.code(), Some(0));
    edge.logged(&["INFO", "drained after ", "no request was cut"]).await;
}
