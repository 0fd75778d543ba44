//! Active checks at real servers: who is probed, how often and with what, and what follows from it in traffic, metrics,
//! log and views. Times are only ever held from below, or through a wait for a fact.

use crate::support::{Answer, Client, DEADLINE, Edge, Gate, Origin, Step, eventually, get};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// One route to cluster `catalog`: its destinations `id: …` and what its section has besides.
fn catalog(destinations: &[(&str, String)], more: &str) -> String {
    let lines: String = destinations.iter().map(|(id, written)| format!("      {id}: {written}\n")).collect();
    format!(
        "routes: {{ all: {{ cluster: catalog }} }}\nclusters:\n  catalog:\n    load_balancing: RoundRobin\n    destinations:\n{lines}{more}"
    )
}

/// The section `health` with an active check of these keys.
fn checked(keys: &str) -> String {
    format!("    health: {{ active: {{ {keys} }} }}\n")
}

/// 200 to requests, and to `/health` what the test sets.
async fn probed(name: &'static str) -> Origin {
    let origin = Origin::named(name).await;
    health(&origin, name, 200);
    origin
}

fn health(origin: &Origin, name: &'static str, status: u16) {
    origin.answer_by(move |request| match request.target().as_str() {
        "/health" => Answer::new(status, "", ""),
        _ => Answer::ok(name),
    });
}

/// 200 to requests, and to `/health` nothing ever.
fn hang(origin: &Origin) {
    origin.answer_by(|request| match request.target().as_str() {
        "/health" => Answer::script([Step::Wait(Gate::closed())]),
        _ => Answer::ok("hanging"),
    });
}

async fn in_state(edge: &Edge, id: &str, state: &str) {
    eventually(DEADLINE, &format!("{id} is {state}"), async || edge.destination("catalog", id).await["state"] == state)
        .await;
}

async fn probes(edge: &Edge, id: &str, result: &str) -> f64 {
    let labels = format!("{{cluster=\"catalog\",destination=\"{id}\",result=\"{result}\"}}");
    edge.metric(&format!("derbent_upstream_health_checks_total{labels}")).await.expect("there from the start")
}

async fn transitions(edge: &Edge, id: &str, from: &str, to: &str) -> f64 {
    let labels = format!("{{cluster=\"catalog\",destination=\"{id}\",from=\"{from}\",to=\"{to}\",reason=\"active\"}}");
    edge.metric(&format!("derbent_destination_health_transitions_total{labels}")).await.expect("there from the start")
}

async fn healthy(edge: &Edge, id: &str) -> Option<f64> {
    edge.metric(&format!("derbent_destination_healthy{{cluster=\"catalog\",destination=\"{id}\"}}")).await
}

async fn cluster_gauge(edge: &Edge, name: &str) -> Option<f64> {
    edge.metric(&format!("derbent_{name}")).await
}

/// The bodies of so many requests one after the other, sorted and without doubles.
async fn answering(edge: &Edge, requests: usize) -> Vec<String> {
    let mut seen = Vec::new();
    for _ in 0..requests {
        let response = edge.get("/").await;
        assert_eq!(response.status, 200);
        seen.push(response.text());
    }
    seen.sort();
    seen.dedup();
    seen
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_check_when_it_runs_then_the_first_probe_comes_at_once_and_the_rest_at_the_interval() {
    let origin = probed("one").await;
    let (interval, jitter, count) = (Duration::from_millis(200), 0.1, 8);
    let began = Instant::now();
    let check = checked("type: http, path: /health, interval: 200ms, jitter: 10%, timeout: 5s");
    let edge = Edge::start(&catalog(&[("one", origin.url())], &check)).await;
    assert!(origin.hits("/health") >= 1, "ready without a probe");
    eventually(DEADLINE, "more probes", async || origin.hits("/health") >= count).await;
    let least = interval.mul_f64((count - 1) as f64 * (1.0 - jitter));
    assert!(began.elapsed() >= least, "{count} probes within {:?}, before {least:?}", began.elapsed());
    let counted = probes(&edge, "one", "success").await;
    assert!(counted >= (count - 1) as f64, "{counted} of {count} probes counted");
    let histogram = "upstream_health_check_duration_seconds_count{cluster=\"catalog\"}";
    assert!(cluster_gauge(&edge, histogram).await.is_some_and(|n| n >= counted));
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_long_interval_when_it_starts_then_one_probe_at_once_and_no_second() {
    let origin = probed("one").await;
    let check = checked("type: http, path: /health, interval: 1h");
    let edge = Edge::start(&catalog(&[("one", origin.url())], &check)).await;
    in_state(&edge, "one", "healthy").await;
    assert_eq!(edge.destination("catalog", "one").await["last_probe"], "200");
    assert_eq!((origin.hits("/health"), probes(&edge, "one", "success").await), (1, 1.0));
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_probe_when_it_arrives_then_method_path_host_and_agent_are_as_written_each_on_a_new_connection() {
    let origin = Origin::start(|_| Answer::ok("")).await;
    let named = Origin::start(|_| Answer::ok("")).await;
    let destinations = [
        ("plain", format!("{}/base/", origin.url())),
        ("named", format!("{{ address: \"{}\", host: catalog.internal }}", named.url())),
    ];
    let check = checked("type: http, path: \"/health?deep=1\", interval: 100ms");
    let _edge = Edge::start(&catalog(&destinations, &check)).await;
    eventually(DEADLINE, "two probes", async || origin.requests().len() >= 2 && !named.requests().is_empty()).await;
    let probe = &origin.requests()[0];
    assert_eq!((probe.method(), probe.target()), ("GET".to_owned(), "/base/health?deep=1".to_owned()));
    assert_eq!(probe.header("host"), Some(origin.address().to_string()));
    assert_eq!(probe.header("user-agent"), Some(format!("derbent/{} (health check)", env!("CARGO_PKG_VERSION"))));
    assert_ne!(probe.connection, origin.requests()[1].connection);
    assert_eq!(named.requests()[0].header("host").as_deref(), Some("catalog.internal"));
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_hanging_destination_when_it_starts_then_ready_waits_for_the_first_round_and_requests_do_not() {
    let (one, two) = (probed("one").await, probed("two").await);
    hang(&two);
    let began = Instant::now();
    let check = checked("type: http, path: /health, interval: 1h, timeout: 4s");
    let yaml = catalog(&[("one", one.url()), ("two", two.url())], &check);
    let edge = Edge::launch(TempDir::new().unwrap(), &yaml, &[]);
    let mut waiting = None;
    eventually(DEADLINE, "the admin listener answers", async || {
        waiting = get(edge.admin(), "/ready").await.ok();
        waiting.is_some()
    })
    .await;
    let waiting = waiting.expect("answered");
    assert_eq!((waiting.status, waiting.text().contains("first round of probes")), (503, true), "{}", waiting.text());
    assert_eq!(edge.admin_get("/health").await.status, 200);
    assert_eq!(answering(&edge, 4).await, ["hanging", "one"]);
    eventually(DEADLINE, "ready", async || edge.admin_get("/ready").await.status == 200).await;
    assert!(began.elapsed() >= Duration::from_secs(4), "ready after {:?}", began.elapsed());
    assert_eq!(probes(&edge, "two", "timeout").await, 1.0);
    edge.logged(&["probe of two[", "timed out after 4s"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn given_two_failed_probes_when_one_passes_then_out_and_back_everywhere() {
    let (one, two) = (probed("one").await, probed("two").await);
    let check = checked("type: http, path: /health, interval: 100ms");
    let edge = Edge::start(&catalog(&[("one", one.url()), ("two", two.url())], &check)).await;
    for id in ["one", "two"] {
        assert_eq!(transitions(&edge, id, "healthy", "unhealthy").await, 0.0);
        assert_eq!(transitions(&edge, id, "unhealthy", "healthy").await, 0.0);
        assert_eq!(healthy(&edge, id).await, Some(1.0));
    }
    assert_eq!(answering(&edge, 4).await, ["one", "two"]);
    edge.logged(&["INFO", &format!("probe of one[{}] in cluster catalog: 200 in ", one.address())]).await;

    health(&one, "one", 503);
    in_state(&edge, "one", "unhealthy").await;
    assert_eq!(answering(&edge, 6).await, ["two"]);
    let place = format!("one[{}] of cluster catalog", one.address());
    let rule = "active check failed 2 times in a row (unhealthy_after 2): 503, 503";
    edge.logged(&["WARN", &format!("{place} is unhealthy: {rule}")]).await;
    edge.logged(&["INFO", &format!("probe of one[{}] in cluster catalog: 503 in ", one.address())]).await;
    assert_eq!(transitions(&edge, "one", "healthy", "unhealthy").await, 1.0);
    assert_eq!((healthy(&edge, "one").await, healthy(&edge, "two").await), (Some(0.0), Some(1.0)));
    assert_eq!(cluster_gauge(&edge, "cluster_destinations{cluster=\"catalog\",state=\"available\"}").await, Some(1.0));
    let last = "destination_last_transition_timestamp_seconds{cluster=\"catalog\",destination=\"one\"}";
    assert!(cluster_gauge(&edge, last).await.is_some_and(|at| at > 1.7e9));
    let shown = edge.destination("catalog", "one").await;
    assert_eq!((&shown["available"], &shown["last_probe"]), (&false.into(), &"503".into()), "{shown}");
    assert_eq!(edge.clusters().await["clusters"][0]["available"], 1);

    health(&one, "one", 200);
    in_state(&edge, "one", "healthy").await;
    assert_eq!(answering(&edge, 4).await, ["one", "two"]);
    edge.logged(&["INFO", &format!("{place} is healthy: active check passed once in a row (healthy_after 1): 200")])
        .await;
    assert_eq!(transitions(&edge, "one", "unhealthy", "healthy").await, 1.0);
    assert_eq!(
        (healthy(&edge, "one").await, transitions(&edge, "two", "healthy", "unhealthy").await),
        (Some(1.0), 0.0)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn given_every_second_probe_fails_when_two_in_a_row_are_needed_then_it_stays_in() {
    let origin = Origin::named("one").await;
    let seen = std::sync::atomic::AtomicUsize::new(0);
    origin.answer_by(move |request| match request.target().as_str() {
        "/health" if seen.fetch_add(1, std::sync::atomic::Ordering::Relaxed) % 2 == 1 => Answer::new(500, "", ""),
        _ => Answer::ok("one"),
    });
    let check = checked("type: http, path: /health, interval: 100ms");
    let edge = Edge::start(&catalog(&[("one", origin.url())], &check)).await;
    eventually(DEADLINE, "three failures", async || probes(&edge, "one", "failure").await >= 3.0).await;
    assert_eq!(transitions(&edge, "one", "healthy", "unhealthy").await, 0.0);
    assert_eq!(edge.destination("catalog", "one").await["state"], "healthy");
}

#[tokio::test(flavor = "multi_thread")]
async fn row_10_given_hanging_destinations_when_another_fails_then_its_verdict_does_not_wait_for_them() {
    let (stuck, other, bad) = (probed("stuck").await, probed("other").await, probed("bad").await);
    hang(&stuck);
    hang(&other);
    health(&bad, "bad", 500);
    // Nothing of the hanging ones is known before ten minutes are over.
    let check = checked("type: http, path: /health, interval: 100ms, timeout: 10m");
    let yaml = catalog(&[("stuck", stuck.url()), ("other", other.url()), ("bad", bad.url())], &check);
    let edge = Edge::launch(TempDir::new().unwrap(), &yaml, &[]);
    eventually(DEADLINE, "the admin listener answers", async || get(edge.admin(), "/health").await.is_ok()).await;
    in_state(&edge, "bad", "unhealthy").await;
    health(&bad, "bad", 200);
    in_state(&edge, "bad", "healthy").await;
    assert_eq!((stuck.hits("/health"), other.hits("/health")), (1, 1));
    for id in ["stuck", "other"] {
        assert_eq!(
            (probes(&edge, id, "timeout").await, edge.destination("catalog", id).await["state"].clone()),
            (0.0, "unknown".into())
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_broken_answer_to_a_probe_when_judged_then_its_cause_is_told() {
    const HEAD: &str = "HTTP/1.1 200 OK\r\n";
    for (steps, result, cause) in [
        (vec![Step::Reset], "error", "connection closed or reset"),
        (vec![Step::Close], "error", "connection closed or reset"),
        (vec![Step::send("no HTTP at all\r\n\r\n")], "error", "answer is not HTTP"),
        (vec![Step::send(HEAD), Step::Wait(Gate::closed())], "timeout", "timed out after 500ms"),
        // A head that drips is one probe, not one a byte.
        (
            std::iter::once(Step::send(HEAD))
                .chain(
                    (0..1000)
                        .flat_map(|n| [Step::Pause(Duration::from_millis(50)), Step::send(format!("x-{n}: 1\r\n"))]),
                )
                .collect(),
            "timeout",
            "timed out after 500ms",
        ),
    ] {
        let origin = Origin::start(move |_| Answer::script(steps.clone())).await;
        let timeout = if result == "timeout" { "500ms" } else { "30s" };
        let check = checked(&format!("type: http, interval: 100ms, timeout: {timeout}"));
        let edge = Edge::start(&catalog(&[("one", origin.url())], &check)).await;
        in_state(&edge, "one", "unhealthy").await;
        assert!(probes(&edge, "one", result).await >= 2.0, "{cause}");
        edge.logged(&[
            "WARN",
            &format!("is unhealthy: active check failed 2 times in a row (unhealthy_after 2): {cause}, {cause}"),
        ])
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_tcp_check_when_the_port_closes_and_opens_then_out_and_back_and_nothing_is_sent() {
    let mut origin = Origin::named("one").await;
    let check = checked("type: tcp, interval: 100ms");
    let edge = Edge::start(&catalog(&[("one", origin.url())], &check)).await;
    assert_eq!(edge.destination("catalog", "one").await["last_probe"], "connected");
    assert_eq!((origin.requests().len(), origin.accepted() >= 1), (0, true));
    origin.stop().await;
    in_state(&edge, "one", "unhealthy").await;
    edge.logged(&["WARN", "is unhealthy: ", "connection refused, connection refused"]).await;
    origin.restart().await;
    in_state(&edge, "one", "healthy").await;
    assert_eq!(origin.requests().len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_health_address_when_probed_then_it_alone_decides_and_requests_go_elsewhere() {
    let (serving, asked) = (Origin::named("one").await, probed("health").await);
    let written = format!("{{ address: \"{}\", health_address: \"{}\" }}", serving.url(), asked.url());
    let check = checked("type: http, path: /health, interval: 100ms");
    let edge = Edge::start(&catalog(&[("one", written)], &check)).await;
    assert_eq!(answering(&edge, 3).await, ["one"]);
    assert_eq!(asked.requests()[0].header("host"), Some(asked.address().to_string()));
    edge.logged(&[&format!("probe of one[{}] in cluster catalog: 200", asked.address())]).await;
    health(&asked, "health", 500);
    in_state(&edge, "one", "unhealthy").await;
    edge.logged(&["WARN", &format!("one[{}] of cluster catalog is unhealthy", serving.address())]).await;
    assert_eq!((serving.hits("/health"), asked.hits("/health") == asked.requests().len()), (0, true));
}

#[tokio::test(flavor = "multi_thread")]
async fn given_expected_statuses_when_probed_then_only_those_pass_and_redirects_are_not_followed() {
    let (gone, here, usual) = (probed("gone").await, probed("here").await, probed("usual").await);
    health(&gone, "gone", 404);
    let to = format!("location: {}/elsewhere\r\n", here.url());
    here.answer_by(move |request| match request.target().as_str() {
        "/health" => Answer::new(302, &to, ""),
        _ => Answer::ok("here"),
    });
    let check = checked("type: http, path: /health, interval: 100ms, expect: { status: [\"300-399\", 404] }");
    let destinations = [("gone", gone.url()), ("here", here.url()), ("usual", usual.url())];
    let edge = Edge::start(&catalog(&destinations, &check)).await;
    in_state(&edge, "usual", "unhealthy").await;
    edge.logged(&["WARN", "usual[", "(unhealthy_after 2): 200, 200"]).await;
    for id in ["gone", "here"] {
        assert_eq!(edge.destination("catalog", id).await["state"], "healthy");
    }
    assert_eq!((here.hits("/elsewhere"), probes(&edge, "usual", "failure").await >= 2.0), (0, true));
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_disabled_destination_when_it_runs_then_neither_probes_nor_requests_and_still_in_view() {
    let (on, off) = (probed("on").await, probed("off").await);
    let written = format!("{{ address: \"{}\", enabled: false }}", off.url());
    let check = checked("type: http, path: /health, interval: 100ms");
    let edge = Edge::start(&catalog(&[("off", written), ("on", on.url())], &check)).await;
    eventually(DEADLINE, "some probes", async || on.hits("/health") >= 4).await;
    assert_eq!(answering(&edge, 6).await, ["on"]);
    // Not even when it is the only one that is well.
    health(&on, "on", 500);
    in_state(&edge, "on", "unhealthy").await;
    edge.logged(&["cluster catalog panics"]).await;
    assert_eq!(answering(&edge, 2).await, ["on"]);
    assert_eq!((off.requests().len(), off.accepted()), (0, 0));
    let shown = edge.destination("catalog", "off").await;
    assert_eq!((&shown["state"], &shown["available"]), (&"disabled".into(), &false.into()), "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn given_all_are_out_when_healthy_or_panic_then_all_serve_and_it_is_told_until_one_is_back() {
    let (one, two) = (probed("one").await, probed("two").await);
    let check = checked("type: http, path: /health, interval: 100ms");
    let edge = Edge::start(&catalog(&[("one", one.url()), ("two", two.url())], &check)).await;
    const PANIC: &str = "cluster_panic_mode{cluster=\"catalog\"}";
    assert_eq!(cluster_gauge(&edge, PANIC).await, Some(0.0));
    health(&one, "one", 503);
    health(&two, "two", 503);
    in_state(&edge, "one", "unhealthy").await;
    in_state(&edge, "two", "unhealthy").await;
    edge.logged(&["WARN", "cluster catalog panics: 0 of 2 available, 2 get traffic whatever their health"]).await;
    assert_eq!(answering(&edge, 6).await, ["one", "two"]);
    assert_eq!(cluster_gauge(&edge, PANIC).await, Some(1.0));
    const AVAILABLE: &str = "cluster_destinations{cluster=\"catalog\",state=\"available\"}";
    assert_eq!(cluster_gauge(&edge, AVAILABLE).await, Some(0.0), "who serves in a panic is not available by that");
    assert_eq!(edge.clusters().await["clusters"][0]["panic"], true);
    health(&two, "two", 200);
    in_state(&edge, "two", "healthy").await;
    edge.logged(&["INFO", "cluster catalog is over its panic: 1 of 2 available"]).await;
    assert_eq!(answering(&edge, 4).await, ["two"]);
    assert_eq!(cluster_gauge(&edge, PANIC).await, Some(0.0));
}

#[tokio::test(flavor = "multi_thread")]
async fn given_all_are_out_when_healthy_and_unknown_then_503_and_it_is_told() {
    let one = probed("one").await;
    health(&one, "one", 503);
    let more = "    health: { available: HealthyAndUnknown, active: { type: http, path: /health, interval: 100ms } }\n";
    let edge = Edge::start(&catalog(&[("one", one.url())], more)).await;
    in_state(&edge, "one", "unhealthy").await;
    let mut client = Client::connect(edge.address()).await;
    for _ in 0..5 {
        let response = client.get("/", "").await.expect("the connection stays");
        assert_eq!((response.status, response.header("retry-after")), (503, Some("1")));
    }
    edge.logged(&["WARN", "no available destinations in cluster catalog (route all)"]).await;
    let rejected = "http_requests_rejected_total{route=\"all\",reason=\"no_destination\"}";
    assert_eq!(cluster_gauge(&edge, rejected).await, Some(5.0));
    assert_eq!(cluster_gauge(&edge, "cluster_panic_mode{cluster=\"catalog\"}").await, Some(0.0));
    assert_eq!(one.hits("/health"), one.requests().len());
    health(&one, "one", 200);
    in_state(&edge, "one", "healthy").await;
    assert_eq!(client.get("/", "").await.expect("the connection stays").status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_proxy_without_descriptors_when_it_cannot_probe_then_no_destination_is_judged_by_that() {
    let origin = probed("a").await;
    let edge = Edge::start(&catalog(
        &[("a", format!("\"{}\"", origin.url()))],
        &checked("type: http, path: /health, interval: 100ms, unhealthy_after: 2"),
    ))
    .await;
    in_state(&edge, "a", "healthy").await;
    let limit = |most: &str| {
        let arguments = ["--pid".to_owned(), edge.pid().to_string(), format!("--nofile={most}:")];
        let status = std::process::Command::new("prlimit").args(arguments).status().expect("prlimit of util-linux");
        assert!(status.success());
    };
    limit("1");
    eventually(DEADLINE, "three probes that could not be made", async || {
        edge.stderr().iter().filter(|line| line.contains("probe of a[") && line.contains("not tried")).count() >= 3
    })
    .await;
    limit("1024");
    assert_eq!(transitions(&edge, "a", "healthy", "unhealthy").await, 0.0);
    assert!(probes(&edge, "a", "error").await >= 3.0);
    assert_eq!(edge.get("/").await.text(), "a");
}
