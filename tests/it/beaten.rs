//! Weaknesses of YARP that do not recur here, at the real binary, each named after its row in the list of them. Those that need
//! scripted time stand in `health/standing/tests`.

use crate::support::{Answer, DEADLINE, Edge, Origin, derbent, eventually, free_port};

/// One route to cluster `c`, its destinations in the order of the origins: d1, d2 …
fn cluster(policy: &str, origins: &[&Origin], more: &str) -> String {
    let lines: String =
        origins.iter().enumerate().map(|(i, origin)| format!("      d{}: \"{}\"\n", i + 1, origin.url())).collect();
    format!(
        "routes: {{ all: {{ cluster: c }} }}\nclusters:\n  c:\n    load_balancing: {policy}\n    destinations:\n{lines}{more}"
    )
}

async fn in_state(edge: &Edge, id: &str, state: &str) {
    eventually(DEADLINE, &format!("{id} is {state}"), async || edge.destination("c", id).await["state"] == state).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn row_2_given_a_destination_that_answers_500_to_everything_when_5xx_is_counted_then_it_leaves_and_else_it_stays()
{
    for (count, leaves) in [("[connect, timeout, reset, \"5xx\"]", true), ("[connect, timeout, reset]", false)] {
        let (bad, good) = (Origin::start(|_| Answer::new(500, "", "")).await, Origin::named("good").await);
        let health = format!("    health: {{ passive: {{ count: {count} }} }}\n");
        let edge = Edge::start(&cluster("RoundRobin", &[&bad, &good], &health)).await;
        for _ in 0..20 {
            edge.get("/").await;
        }
        let state = edge.destination("c", "d1").await["state"].as_str().map(str::to_owned);
        assert_eq!(state.as_deref(), Some(if leaves { "unhealthy" } else { "healthy" }), "count {count}");
        // Of ten failures that it would have got the fifth ejects it at the latest.
        assert_eq!(bad.hits("/") <= 5, leaves, "{} requests", bad.hits("/"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn row_3_given_an_ejected_destination_when_it_is_up_again_then_it_serves_after_two_probes_at_most() {
    let (mut dead, good) = (Origin::named("dead").await, Origin::named("good").await);
    // A period that no test waits for: only a probe can end it.
    let health = "    health:\n      active: { type: http, path: /health, interval: 300ms, unhealthy_after: 1000 }\n      passive: { reactivation: { period: 1h, backoff: { max: 1h } } }\n";
    let edge = Edge::start(&cluster("RoundRobin", &[&dead, &good], health)).await;
    dead.stop().await;
    eventually(DEADLINE, "ejected", async || {
        edge.get("/").await;
        edge.destination("c", "d1").await["state"] == "unhealthy"
    })
    .await;
    let (probes, served) = (dead.hits("/health"), dead.hits("/") - dead.hits("/health"));
    dead.restart().await;
    eventually(DEADLINE, "served again", async || {
        edge.get("/").await;
        dead.hits("/") - dead.hits("/health") > served
    })
    .await;
    let before = dead.requests().into_iter().skip(probes + served).take_while(|request| request.target() == "/health");
    assert!(before.count() <= 2, "{:?}", dead.requests().iter().map(|r| r.target()).collect::<Vec<_>>());
    in_state(&edge, "d1", "healthy").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn row_8_given_a_destination_that_no_probe_passed_when_requests_come_under_probe_first_then_it_gets_none() {
    let ill = Origin::start(|request| match request.target().as_str() {
        "/health" => Answer::new(503, "", ""),
        _ => Answer::ok("ill"),
    })
    .await;
    let good = Origin::named("good").await;
    let health = "    health: { initial: probe_first, active: { type: http, path: /health, interval: 100ms, unhealthy_after: 1000 } }\n";
    let edge = Edge::start(&cluster("RoundRobin", &[&ill, &good], health)).await;
    for _ in 0..20 {
        assert_eq!(edge.get("/").await.text(), "good");
    }
    assert_eq!(ill.hits("/") - ill.hits("/health"), 0);
    // All are ill: no panic sends to what no probe has passed yet.
    let alone = "    health: { initial: probe_first, active: { type: http, path: /health, interval: 100ms } }\n";
    let edge = Edge::start(&cluster("RoundRobin", &[&ill], alone)).await;
    let refused = edge.get("/").await;
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")));
}

#[tokio::test(flavor = "multi_thread")]
async fn row_14_given_an_idle_cluster_when_100_requests_come_one_by_one_then_least_requests_spreads_them() {
    let origins = [Origin::named("1").await, Origin::named("2").await, Origin::named("3").await];
    let edge = Edge::start(&cluster("LeastRequests", &[&origins[0], &origins[1], &origins[2]], "")).await;
    for _ in 0..100 {
        edge.get("/").await;
    }
    let mut hits = origins.each_ref().map(|origin| origin.hits("/"));
    hits.sort();
    assert_eq!(hits, [33, 33, 34]);
}

#[tokio::test(flavor = "multi_thread")]
async fn row_15_given_one_good_of_four_when_a_graded_panic_begins_then_it_is_told_and_most_requests_succeed() {
    let (good, dead) = (Origin::named("good").await, [free_port(), free_port(), free_port()]);
    let dead: String = dead.iter().map(|port| format!("      dead-{port}: \"http://127.0.0.1:{port}\"\n")).collect();
    let yaml = format!(
        "routes: {{ all: {{ cluster: c }} }}\nclusters:\n  c:\n    load_balancing: RoundRobin\n    retry: off\n    destinations:\n      good: \"{}\"\n{dead}    health:\n      available: {{ policy: Panic, enter_below: \"50%\", spread: least_bad }}\n      active: {{ type: tcp, interval: 100ms }}\n",
        good.url()
    );
    let edge = Edge::start(&yaml).await;
    let told = edge.logged(&["cluster c panics", "1 of 4 available", "4 get traffic"]).await;
    assert!(told.contains("WARN"), "{told}");
    assert_eq!(edge.metric("derbent_cluster_panic_mode{cluster=\"c\"}").await, Some(1.0));
    let mut served = 0;
    for _ in 0..130 {
        served += u32::from(edge.get("/").await.status == 200);
    }
    // Ten of thirteen by weight, where spreading to all would serve one of four.
    assert!((95..=105).contains(&served), "{served} of 130");
}

#[tokio::test(flavor = "multi_thread")]
async fn row_17_given_keys_and_values_that_mean_nothing_when_checked_then_each_is_a_fault_with_its_place() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("f.yaml");
    let text = "listeners: { web: \"127.0.0.1:1\" }\nroutes: { all: { cluster: d } }\nclusters:\n  c:\n    destinations: [\"http://127.0.0.1:1\"]\n    health:\n      active: { type: http, path: health, intervall: 5s }\n      passive: { detectors: [{ policy: TransportFailureRate, failure_rate: 2.5 }], max_ejectd: 1 }\n      breaker: { threshold: lots }\n";
    std::fs::write(&file, text).expect("written");
    let output = derbent(["check", "-c", file.to_str().expect("text")]).await;
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1));
    for fault in [
        "f.yaml:2:27: routes.all.cluster: unknown cluster \"d\"",
        "f.yaml:7:35: clusters.c.health.active.path",
        "unknown key \"intervall\"; did you mean \"interval\"?",
        "detectors[0].failure_rate",
        "unknown key \"max_ejectd\"; did you mean \"max_ejected\"?",
        "clusters.c.health.breaker.threshold",
    ] {
        assert!(told.contains(fault), "{fault} in\n{told}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn row_20_given_a_transition_when_it_happens_then_metric_api_and_log_name_cluster_and_destination() {
    let (mut dead, good) = (Origin::named("dead").await, Origin::named("good").await);
    let edge = Edge::start(&cluster("RoundRobin", &[&dead, &good], "")).await;
    let series = "derbent_destination_health_transitions_total{cluster=\"c\",destination=\"d1\",from=\"healthy\",to=\"unhealthy\",reason=\"passive\"}";
    assert_eq!(edge.metric(series).await, Some(0.0), "there from the start");
    dead.stop().await;
    for _ in 0..20 {
        edge.get("/").await;
    }
    assert_eq!(edge.metric(series).await, Some(1.0));
    assert_eq!(edge.metric("derbent_destination_healthy{cluster=\"c\",destination=\"d1\"}").await, Some(0.0));
    in_state(&edge, "d1", "unhealthy").await;
    edge.logged(&["d1[", "of cluster c is unhealthy", "ConsecutiveFailures (failures 5)", "next: half-open in 10s"])
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_cluster_without_active_checks_when_a_dead_destination_is_up_again_then_one_request_on_trial_brings_it_back()
 {
    let (mut dead, good) = (Origin::named("dead").await, Origin::named("good").await);
    let health = "    health: { passive: { reactivation: { period: 300ms } } }\n";
    let edge = Edge::start(&cluster("RoundRobin", &[&dead, &good], health)).await;
    dead.stop().await;
    for _ in 0..20 {
        edge.get("/").await;
    }
    dead.restart().await;
    let began = std::time::Instant::now();
    in_state(&edge, "d1", "half_open").await;
    assert!(began.elapsed() < DEADLINE);
    assert_eq!(edge.get("/").await.text(), "dead", "a free place is taken before the policy is asked");
    in_state(&edge, "d1", "healthy").await;
    let post = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx";
    let mut client = edge.connect().await;
    client.send(post).await;
    assert_eq!(client.read_response().await.expect("an answer").status, 200);
}

/// 20 clients one request after the other, `requests` each; how many answers were not 200.
async fn under_20_clients(edge: &Edge, requests: usize) -> usize {
    let clients = (0..20).map(|_| async {
        let mut failed = 0;
        for _ in 0..requests {
            failed += usize::from(edge.get("/").await.status != 200);
        }
        failed
    });
    futures_of(clients).await.into_iter().sum()
}

async fn futures_of<T>(futures: impl Iterator<Item = impl Future<Output = T>>) -> Vec<T> {
    let mut running: Vec<_> = futures.map(Box::pin).collect();
    let mut done = Vec::new();
    std::future::poll_fn(|context| {
        running.retain_mut(|future| match future.as_mut().poll(context) {
            std::task::Poll::Ready(result) => {
                done.push(result);
                false
            }
            std::task::Poll::Pending => true,
        });
        if running.is_empty() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
    done
}

#[tokio::test(flavor = "multi_thread")]
async fn given_one_of_three_killed_under_20_clients_when_cold_or_warm_then_its_5th_failure_is_its_last_but_for_what_was_under_way()
 {
    for good_before in [0, 30] {
        let mut origins = [Origin::named("1").await, Origin::named("2").await, Origin::named("3").await];
        // A period that no test waits for.
        let health =
            "    retry: off\n    health: { passive: { reactivation: { period: 1h, backoff: { max: 1h } } } }\n";
        let all = [&origins[0], &origins[1], &origins[2]];
        let edge = Edge::start(&cluster("PowerOfTwoChoices", &all, health)).await;
        assert_eq!(under_20_clients(&edge, good_before).await, 0);
        let [_, killed, _] = &mut origins;
        let (failed, ()) = tokio::join!(under_20_clients(&edge, 30), killed.stop());
        assert!(failed <= 5 + 19, "{failed} of 600 failed");
        let told = edge.admin_get("/api/v1/explain/c/d2?format=json").await.json();
        let ejected = &told["history"][told["history"].as_array().map_or(0, |steps| steps.len().saturating_sub(1))];
        assert_eq!(ejected["decision"]["step"], "ejected", "{told:#}");
        let failures = |of: &serde_json::Value| {
            let seen = of["evidence"].as_array().cloned().unwrap_or_default();
            seen.into_iter().filter(|seen| seen["counted"] == "failure").collect::<Vec<_>>()
        };
        let before = failures(ejected).len();
        assert!((1..=5).contains(&before), "ejected at failure {before} after {good_before} good answers");
        let out = ejected["at"].as_f64().unwrap_or_default();
        for late in failures(&told).iter().skip(before) {
            let begun = late["at"].as_f64().unwrap_or_default() - late["latency_ms"].as_f64().unwrap_or_default();
            assert!(begun <= out + 2.0, "begun {} ms after the ejection", begun - out);
        }
    }
}
