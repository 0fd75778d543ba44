//! SIGHUP at the real binary: what changes, what stays, what is refused, and what becomes of those who are under way.

use crate::support::{Answer, DEADLINE, Edge, Gate, Load, Origin, Step, eventually, free_port, get, one_destination};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const SUCCESSFUL: &str = "derbent_config_last_reload_successful";
const REJECTED: &str = "derbent_config_reloads_total{result=\"rejected\"}";

/// One route to cluster `app` of destinations `id: …`, with further keys of the cluster.
fn app(destinations: &[(&str, String)], more: &str) -> String {
    let lines: String = destinations.iter().map(|(id, written)| format!("      {id}: {written}\n")).collect();
    format!(
        "routes: {{ all: {{ cluster: app }} }}\nclusters:\n  app:\n    load_balancing: RoundRobin\n    destinations:\n{lines}{more}"
    )
}

/// The first bad answer ejects, for an hour; nothing else brings it back.
const FOR_AN_HOUR: &str = "    health: { passive: { count: 5xx, detectors: [{ policy: ConsecutiveFailures, failures: 1 }], \
                           reactivation: { period: 1h, backoff: { max: 1h } } } }\n";

async fn in_state(edge: &Edge, id: &str, state: &str) {
    eventually(DEADLINE, &format!("{id} is {state}"), async || edge.destination("app", id).await["state"] == state)
        .await;
}

/// The hash in force.
async fn hash(edge: &Edge) -> String {
    let metrics = edge.metrics().await;
    let line = metrics.lines().find_map(|line| line.strip_prefix("derbent_config_info{config_hash=\""));
    line.expect("one is in force").split('"').next().unwrap_or_default().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_changed_file_when_a_hangup_comes_then_it_is_in_force_without_a_restart() {
    let (one, two) = (Origin::named("one").await, Origin::named("two").await);
    let edge = Edge::start(&one_destination(&one.url(), "")).await;
    let mut client = edge.connect().await;
    assert_eq!(client.get("/", "").await.unwrap().text(), "one");
    let before = hash(&edge).await;
    let next = "routes:\n  all: { cluster: app }\n  gone: { match: { path: /gone }, respond: { status: 410 } }\n";
    let next = format!("{next}clusters: {{ app: {{ destinations: {{ two: \"{}\" }} }} }}\n", two.url());
    edge.reload(&next).await;
    assert_eq!(client.get("/", "").await.unwrap().text(), "two", "on the connection that was there");
    assert_eq!(client.get("/gone", "").await.unwrap().status, 410);
    let after = hash(&edge).await;
    assert_ne!(before, after);
    let summary = "0 destinations kept, 0 reset, 1 added (app/two), 1 dropped (app/one)";
    edge.logged(&["INFO", &format!("configuration reloaded ({after}): {summary}")]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_faulty_file_when_reloaded_then_the_old_stays_and_all_faults_are_told_until_a_good_one_comes() {
    let origin = Origin::named("one").await;
    let good = one_destination(&origin.url(), "");
    let edge = Edge::start(&good).await;
    let before = hash(&edge).await;
    let faulty = "routes: { all: { cluster: ap } }\nclusters: { app: { load_balancing: RoundRobbin, destinations: [\"http://127.0.0.1:1\"] } }\n";
    edge.reload_rejected(faulty).await;
    let rejected =
        edge.logged(&["ERROR", "configuration not reloaded, the one before stays in force: 2 faults: "]).await;
    assert!(rejected.contains("derbent.yaml:4:27: routes.all.cluster: unknown cluster \"ap\""), "{rejected}");
    assert!(
        rejected.contains("clusters.app.load_balancing: unknown load balancing policy \"RoundRobbin\""),
        "{rejected}"
    );
    assert_eq!((edge.metric(SUCCESSFUL).await, edge.metric(REJECTED).await), (Some(0.0), Some(1.0)));
    assert_eq!((edge.get("/").await.text(), hash(&edge).await), ("one".to_owned(), before.clone()));
    edge.reload_rejected("routes: [\n").await;
    std::fs::remove_file(edge.directory().join("derbent.yaml")).unwrap();
    edge.signal("HUP");
    edge.counts(REJECTED, 3.0).await;
    edge.logged(&["ERROR", "stays in force: cannot read ", "derbent.yaml"]).await;
    assert_eq!((edge.get("/").await.text(), hash(&edge).await), ("one".to_owned(), before.clone()));
    edge.reload(&good).await;
    assert_eq!((edge.metric(SUCCESSFUL).await, hash(&edge).await), (Some(1.0), before));
}

#[tokio::test(flavor = "multi_thread")]
async fn given_what_needs_a_restart_when_it_changes_then_the_file_is_refused_whole_and_each_key_is_named() {
    let (one, two) = (Origin::named("one").await, Origin::named("two").await);
    let directory = TempDir::new().unwrap();
    std::fs::write(directory.path().join("token"), "first\n").unwrap();
    let admin = free_port();
    let file = |threads: &str, destination: &Origin| {
        format!(
            "server: {{ threads: {threads}, reload: {{ watch: false }} }}\nadmin: {{ address: \"127.0.0.1:{admin}\", token_file: token }}\n{}",
            one_destination(&destination.url(), "")
        )
    };
    let edge = Edge::launch(directory, &file("1", &one), &[]);
    let ready = async || get(edge.address(), "/").await.is_ok_and(|answer| answer.text() == "one");
    eventually(DEADLINE, "it serves", ready).await;
    edge.write(&file("2", &two));
    edge.signal("HUP");
    edge.logged(&["1 fault: ", "server.threads: 2 needs a restart, or an upgrade: the process runs with 1"]).await;
    std::fs::write(edge.directory().join("token"), "second\n").unwrap();
    edge.write(&file("1", &two));
    edge.signal("HUP");
    let told =
        edge.logged(&["1 fault: ", "admin.token_file: ", "holds another token now, which needs a restart"]).await;
    assert!(!told.contains("first") && !told.contains("second"), "{told}");
    assert_eq!(edge.get("/").await.text(), "one", "half applied");
    std::fs::write(edge.directory().join("token"), "first\n").unwrap();
    edge.write(&file("1", &two));
    edge.signal("HUP");
    edge.logged(&["configuration reloaded"]).await;
    assert_eq!(edge.get("/").await.text(), "two");
}

#[tokio::test(flavor = "multi_thread")]
async fn given_an_ejected_destination_when_a_storm_of_reloads_comes_then_it_gets_no_request_and_none_fails() {
    let origins = [Origin::named("a").await, Origin::named("b").await, Origin::named("c").await];
    let [a, b, c] = &origins;
    let file = |turn: usize| {
        let url = |origin: &Origin| format!("{{ address: \"{}\", metadata: {{ turn: \"{turn}\" }} }}", origin.url());
        app(&[("a", url(a)), ("b", url(b)), ("c", url(c))], FOR_AN_HOUR)
    };
    let edge = Edge::start(&file(0)).await;
    b.answer_by(|_| Answer::new(500, "", ""));
    let mut client = edge.connect().await;
    eventually(DEADLINE, "b is ejected", async || {
        client.get("/", "").await.unwrap();
        edge.destination("app", "b").await["state"] == "unhealthy"
    })
    .await;
    b.answer_by(|_| Answer::ok("b"));
    let (hits, load) = (b.requests().len(), Load::on(edge.address(), 8));
    for turn in 1..=50 {
        edge.write(&file(turn));
        edge.signal("HUP");
        load.more(1).await;
    }
    edge.reload(&file(51)).await;
    load.end().await;
    assert_eq!(b.requests().len(), hits, "requests while it was out");
    assert_eq!(edge.metric(REJECTED).await, Some(0.0));
    assert_eq!(edge.destination("app", "b").await["state"], "unhealthy");
    for id in ["a", "b", "c"] {
        assert_eq!(edge.destination("app", id).await["in_flight"], 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn row_11_given_an_ejected_destination_when_its_id_gets_another_address_then_it_serves_at_once() {
    let (one, bad, good) =
        (Origin::named("one").await, Origin::start(|_| Answer::new(500, "", "")).await, Origin::named("good").await);
    let file = |two: &Origin| {
        app(&[("one", format!("\"{}\"", one.url())), ("two", format!("\"{}\"", two.url()))], FOR_AN_HOUR)
    };
    let edge = Edge::start(&file(&bad)).await;
    for _ in 0..2 {
        edge.get("/").await;
    }
    in_state(&edge, "two", "unhealthy").await;
    const HEALTHY: &str = "derbent_destination_healthy{cluster=\"app\",destination=\"two\"}";
    assert_eq!(edge.metric(HEALTHY).await, Some(0.0));
    edge.reload(&file(&good)).await;
    edge.logged(&["1 destination kept (app/one), 1 reset (app/two), 0 added, 0 dropped"]).await;
    in_state(&edge, "two", "unknown").await;
    assert_eq!(edge.metric(HEALTHY).await, Some(1.0));
    let mut seen = [edge.get("/").await.text(), edge.get("/").await.text()];
    seen.sort();
    assert_eq!(seen, ["good", "one"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn given_requests_and_a_tunnel_when_their_destination_is_dropped_then_they_end_well_and_nothing_is_left() {
    let gate = Gate::closed();
    let held = gate.clone();
    let old = Origin::start(move |request| match request.header("upgrade") {
        Some(_) => Answer::upgrade("websocket"),
        None => Answer::ok("whole").after([Step::Wait(held.clone())]),
    })
    .await;
    let new = Origin::named("new").await;
    let edge = Edge::start("routes: { all: { respond: { status: 200 } } }\n").await;
    edge.reload(&one_destination(&old.url(), "")).await;
    let mut tunnel = edge.connect().await;
    tunnel.send("GET /chat HTTP/1.1\r\nhost: h\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n").await;
    assert_eq!(tunnel.read_head().await.unwrap().status, 101);
    let mut client = edge.connect().await;
    client.send("GET /slow HTTP/1.1\r\nhost: h\r\n\r\n").await;
    eventually(DEADLINE, "the request is at the origin", async || old.hits("/slow") == 1).await;
    let next = format!(
        "routes: {{ other: {{ cluster: other }} }}\nclusters: {{ other: {{ destinations: {{ new: \"{}\" }} }} }}\n",
        new.url()
    );
    for _ in 0..3 {
        edge.reload(&next).await;
    }
    assert_eq!(edge.get("/").await.text(), "new");
    tunnel.send("still there").await;
    assert_eq!(tunnel.read_exact(11).await.unwrap(), b"still there");
    gate.open();
    assert_eq!(client.read_response().await.unwrap().text(), "whole");
    assert_eq!(client.get("/", "").await.unwrap().text(), "new", "the next request on that connection");
    drop(tunnel);
    edge.counts("derbent_http_requests_in_flight{listener=\"web\"}", 0.0).await;
    eventually(DEADLINE, "the dropped leave the page", async || !edge.metrics().await.contains("cluster=\"app\""))
        .await;
    assert_eq!(edge.destination("other", "new").await["in_flight"], 0);
}

/// YARP's weakness 9: each change of the configuration begins the probes' wait anew.
#[tokio::test(flavor = "multi_thread")]
async fn row_9_given_a_check_when_the_file_changes_faster_than_its_interval_then_its_probes_go_on_at_the_interval() {
    let origin = Origin::named("one").await;
    let (interval, probes) = (Duration::from_millis(500), 5);
    let file = |turn: usize| {
        let one = format!("{{ address: \"{}\", metadata: {{ turn: \"{turn}\" }} }}", origin.url());
        let check = "    health: { active: { type: http, path: /health, interval: 500ms, jitter: 0% } }\n";
        app(&[("one", one)], check)
    };
    let began = Instant::now();
    let edge = Edge::start(&file(0)).await;
    let mut turn = 0;
    while origin.hits("/health") < probes {
        assert!(began.elapsed() < DEADLINE, "{} probes in {turn} reloads", origin.hits("/health"));
        turn += 1;
        edge.reload(&file(turn)).await;
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    let counted = origin.hits("/health") as u32;
    assert!(began.elapsed() >= interval * (counted - 1), "{counted} probes in {:?}", began.elapsed());
    assert!(turn > 1);
}

const SWITCH: &str = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
const UPGRADE: &str = "GET /chat HTTP/1.1\r\nhost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                       Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

#[tokio::test(flavor = "multi_thread")]
async fn given_a_thousand_websockets_when_reloaded_twenty_times_then_each_still_has_its_echo() {
    const POLICIES: [&str; 4] = ["RoundRobin", "LeastRequests", "Random", "PowerOfTwoChoices"];
    let origin = async || Origin::start(|_| Answer::script([Step::send(SWITCH), Step::Echo])).await;
    let origins = [origin().await, origin().await, origin().await];
    let destinations = ["one", "two", "three"].map(|id| id.to_owned());
    let file = |policy: &str, count: usize| {
        let those: Vec<_> =
            destinations.iter().zip(&origins).take(count).map(|(id, origin)| (&**id, origin.url())).collect();
        app(&those, "").replace("RoundRobin", policy)
    };
    let edge = Edge::start(&file("RoundRobin", 3)).await;
    let mut clients = Vec::new();
    for _ in 0..1_000 {
        let mut client = edge.connect().await;
        client.send(UPGRADE).await;
        assert_eq!(client.read_head().await.unwrap().status, 101);
        clients.push(client);
    }
    assert!(origins.iter().all(|origin| origin.hits("/chat") > 300), "they are everywhere");
    for reload in 1..=20_usize {
        // Every other time without the third, which a third of them are bound to.
        edge.reload(&file(POLICIES[reload % 4], if reload.is_multiple_of(2) { 3 } else { 2 })).await;
        for client in &mut clients {
            client.send(format!("{reload:02}")).await;
        }
        for (at, client) in clients.iter_mut().enumerate() {
            let echo = client.read_exact(2).await.unwrap_or_else(|error| panic!("{at}, reload {reload}: {error}"));
            assert_eq!(echo, format!("{reload:02}").as_bytes());
        }
    }
    assert_eq!(edge.metric("derbent_downstream_tunnels{listener=\"web\"}").await, Some(1_000.0));
}
