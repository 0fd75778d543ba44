//! YARP's own black-box cases of health that need a cluster, by their number, through `mode: full` where ours differs on purpose. The
//! others: 11–14 and 21–27 in `health/standing/tests`, 15–19 in `probes.rs`, 33 in `health/available.rs`.

use crate::support::{Answer, DEADLINE, Edge, Gate, Origin, Step, eventually, free_port};

/// YARP's defaults: one rate over 60 s, 0.3 from 10 on, no limit to what is ejected.
const FULL: &str = "passive: { detectors: [{ policy: TransportFailureRate, window: 60s, minimum_requests: 10, failure_rate: 0.3 }], reactivation: { mode: full, period: 1m }, max_ejected: \"100%\" }";

fn cluster(destinations: &[String], health: &str) -> String {
    let lines: String =
        destinations.iter().enumerate().map(|(i, url)| format!("      d{}: \"{url}\"\n", i + 1)).collect();
    format!(
        "routes: {{ all: {{ cluster: c }} }}\nclusters:\n  c:\n    load_balancing: RoundRobin\n    retry: off\n    destinations:\n{lines}    health: {{ {health} }}\n"
    )
}

async fn state(edge: &Edge, id: &str) -> String {
    edge.destination("c", id).await["state"].as_str().unwrap_or_default().to_owned()
}

fn dead() -> String {
    format!("http://127.0.0.1:{}", free_port())
}

#[tokio::test(flavor = "multi_thread")]
async fn case_12_given_threshold_three_when_probes_cannot_connect_then_unknown_after_two_and_unhealthy_after_three() {
    let check = "passive: off, active: { type: http, interval: 300ms, jitter: 0%, unhealthy_after: 3 }";
    let edge = Edge::start(&cluster(&[dead()], check)).await;
    let failed = "derbent_upstream_health_checks_total{cluster=\"c\",destination=\"d1\",result=\"error\"}";
    eventually(DEADLINE, "unhealthy", async || state(&edge, "d1").await == "unhealthy").await;
    edge.logged(&["d1[", "active check failed 3 times in a row (unhealthy_after 3)"]).await;
    assert!(edge.metric(failed).await.is_some_and(|probes| probes >= 3.0));
}

#[tokio::test(flavor = "multi_thread")]
async fn case_20_given_four_destinations_when_all_change_places_then_exactly_the_good_ones_are_available() {
    let origins =
        [Origin::named("1").await, Origin::named("2").await, Origin::named("3").await, Origin::named("4").await];
    let ill = |origin: &Origin, ill: bool| {
        origin.answer_by(move |_| Answer::new(if ill { 503 } else { 200 }, "", ""));
    };
    [false, false, true, true].iter().zip(&origins).for_each(|(now, origin)| ill(origin, *now));
    let check = "passive: off, active: { type: http, interval: 100ms, unhealthy_after: 1 }";
    let edge = Edge::start(&cluster(&origins.each_ref().map(|origin| origin.url()), check)).await;
    let available = async |ids: [bool; 4]| {
        for (i, expected) in ids.into_iter().enumerate() {
            if edge.destination("c", &format!("d{}", i + 1)).await["available"] != expected {
                return false;
            }
        }
        true
    };
    eventually(DEADLINE, "the first two", async || available([true, true, false, false]).await).await;
    [true, false, true, false].iter().zip(&origins).for_each(|(now, origin)| ill(origin, *now));
    eventually(DEADLINE, "the second and the fourth", async || available([false, true, false, true]).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn case_28_given_a_destination_that_never_connects_when_asked_then_ten_times_502_and_503_ever_after() {
    let edge = Edge::start(&cluster(&[dead()], &format!("available: HealthyAndUnknown, {FULL}"))).await;
    let mut statuses = Vec::new();
    for _ in 0..52 {
        statuses.push(edge.get("/").await.status);
    }
    assert_eq!(statuses[..10], [502; 10]);
    assert_eq!(statuses[10..], [503; 42]);
    edge.logged(&["d1[", "is unhealthy", "reactivation in 60s"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn case_29_given_42_clients_that_leave_before_an_answer_when_the_next_comes_then_it_is_served() {
    let gate = Gate::closed();
    let origin = Origin::start({
        let gate = gate.clone();
        move |request| match request.target().as_str() {
            "/slow" => Answer::script([Step::Wait(gate.clone())]),
            _ => Answer::new(418, "", "teapot"),
        }
    })
    .await;
    let edge = Edge::start(&cluster(&[origin.url()], &format!("available: HealthyAndUnknown, {FULL}"))).await;
    for n in 1..=42 {
        let mut client = edge.connect().await;
        client.send("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n").await;
        eventually(DEADLINE, "it is there", async || origin.hits("/slow") >= n).await;
    }
    let aborts = "derbent_upstream_errors_total{cluster=\"c\",destination=\"d1\",reason=\"client_abort\"}";
    eventually(DEADLINE, "all have left", async || edge.metric(aborts).await == Some(42.0)).await;
    assert_eq!(edge.get("/").await.status, 418);
    assert_ne!(state(&edge, "d1").await, "unhealthy");
    gate.open();
}

#[tokio::test(flavor = "multi_thread")]
async fn case_30_given_passive_off_when_everything_fails_then_nobody_judges_and_it_stays() {
    let edge = Edge::start(&cluster(&[dead()], "available: HealthyAndUnknown, passive: off")).await;
    for _ in 0..30 {
        assert_eq!(edge.get("/").await.status, 502);
    }
    assert_eq!(state(&edge, "d1").await, "unknown");
}
