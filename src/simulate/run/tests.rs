//! What holds under any timeline and any settings of health.

use super::*;
use crate::config::{Config, Timeline};
use crate::health::{Explanation, replay, share_of};
use crate::model::Epoch;
use crate::observe::Metrics;
use crate::runtime::{Registry, Scene, compile};
use crate::simulate::{Anywhere, Told};
use proptest::prelude::*;
use std::time::UNIX_EPOCH;

/// A cluster of so many destinations, `a`, `b` …, with these keys more.
fn config(destinations: usize, keys: &str) -> String {
    let ids: String = (0..destinations)
        .map(|i| format!("      {}: \"http://127.0.0.1:{}\"\n", (b'a' + i as u8) as char, 7_001 + i))
        .collect();
    format!(
        "listeners: {{ web: \"127.0.0.1:1\" }}\nroutes: {{ all: {{ cluster: c }} }}\nclusters:\n  c:\n    \
         request: {{ activity_timeout: 1s }}\n    destinations:\n{ids}{keys}"
    )
}

fn run(config: &str, timeline: &str, seed: u64) -> Run {
    let start = Instant::now();
    let config = Config::parse("config", config).unwrap_or_else(|faults| panic!("{faults}\n{config}"));
    let epoch = Epoch { instant: start, wall: UNIX_EPOCH };
    let scene =
        Scene { registry: &Registry::builtin(), names: &Anywhere, metrics: &Metrics::new(), epoch, serving: None };
    let snapshot = compile(&config, &scene, config.problems()).unwrap_or_else(|faults| panic!("{faults}"));
    let (timeline, mut problems) = Timeline::parse("timeline", timeline).unwrap_or_else(|faults| panic!("{faults}"));
    let scenario = Scenario::new(timeline, &config, &snapshot, &mut problems);
    Run::new(scenario.unwrap_or_else(|| panic!("{problems}")), seed, start)
}

/// Settings of health, with what the laws must know of them.
#[derive(Debug, Clone)]
struct Judged {
    text: String,
    destinations: usize,
    most_ejected: u32,
    /// A panic begins before the last one is out.
    early_panic: bool,
    counts_500: bool,
}

fn passive() -> impl Strategy<Value = (String, Option<f64>, bool)> {
    let rate = (1..10u32, 2..20u32, 1..10u32).prop_map(|(window, least, tenths)| {
        format!(
            "{{ policy: TransportFailureRate, window: {window}s, minimum_requests: {least}, failure_rate: 0.{tenths} }}"
        )
    });
    let row = (1..6u32).prop_map(|failures| format!("{{ policy: ConsecutiveFailures, failures: {failures} }}"));
    let detectors = prop::collection::vec(prop_oneof![rate, row], 1..4);
    let reactivation = (1..20u32, any::<bool>(), 1..4u32, 1..4u32, any::<bool>());
    (detectors, reactivation, 0..=10u32, any::<bool>()).prop_map(|(detectors, how, most, counts_500)| {
        let (period, full, trials, multiplier, lifted) = how;
        let mode = if full { "full" } else { "half_open" };
        let count = if counts_500 { "[connect, timeout, reset, \"5xx\"]" } else { "[connect, timeout, reset]" };
        let text = format!(
            "      passive:\n        count: {count}\n        detectors: [{}]\n        max_ejected: \"{}%\"\n        \
             reactivation: {{ period: {period}s, mode: {mode}, trial_requests: {trials}, lifted_by_probe: {lifted}, \
             backoff: {{ multiplier: {multiplier}, max: 60s }} }}\n",
            detectors.join(", "),
            most * 10,
        );
        (text, Some(f64::from(most) / 10.0), counts_500)
    })
}

fn active() -> impl Strategy<Value = String> {
    let kinds = prop::sample::select(vec!["http", "tcp", "grpc"]);
    (kinds, 1..5u32, 1..4u32, 1..4u32, any::<bool>()).prop_map(|(kind, interval, bad, good, first)| {
        let initial = if first { "      initial: probe_first\n" } else { "" };
        format!(
            "{initial}      active: {{ type: {kind}, interval: {interval}s, interval_when_unhealthy: 700ms, timeout: 1s, \
             unhealthy_after: {bad}, healthy_after: {good} }}\n"
        )
    })
}

fn judged() -> impl Strategy<Value = Judged> {
    let policies = ["PowerOfTwoChoices", "LeastRequests", "RoundRobin", "Random", "PeakEwma", "Maglev"];
    let available = ["HealthyOrPanic", "HealthyAndUnknown", "{ policy: Panic, enter_below: \"50%\" }"];
    let breaker = (2..8u32, 1..5u32).prop_map(|(threshold, sleep)| {
        format!("      breaker: {{ window: 5s, threshold: {threshold}, sleep: {sleep}s }}\n")
    });
    let off = Just(("      passive: off\n".to_string(), None, false));
    (
        1..6usize,
        prop::sample::select(policies.to_vec()),
        prop::sample::select(available.to_vec()),
        prop_oneof![4 => passive(), 1 => off],
        prop::option::of(active()),
        prop::option::of(breaker),
        prop::sample::select(vec!["0s", "5s"]),
    )
        .prop_map(|(destinations, policy, available, passive, active, breaker, slow_start)| {
            let (passive, share, counts_500) = passive;
            let keys = format!(
                "    load_balancing: {policy}\n    slow_start: {slow_start}\n    health:\n      available: \
                 {available}\n{passive}{}{}",
                active.unwrap_or_default(),
                breaker.unwrap_or_default()
            );
            Judged {
                text: config(destinations, &keys),
                destinations,
                most_ejected: share.map_or(0, |share| share_of(destinations as u32, share)),
                early_panic: available.contains("Panic,"),
                counts_500,
            }
        })
}

/// Turns of all destinations in the first 30 s; then all are well. `length` in seconds.
fn timeline(length: u32) -> impl Strategy<Value = String> {
    let does =
        vec!["do: ok", "do: refuse", "do: reset", "do: hang", "do: status, status: 500", "health: down", "health: up"];
    let turn = (0..30_000u32, prop::sample::select(does), 1..=10u32).prop_map(|(at, does, tenths)| {
        format!("{{ at: {at}ms, {does}, share: 0.{} }}", if tenths == 10 { "99".into() } else { tenths.to_string() })
    });
    let whole = (0..30_000u32, prop::sample::select(vec!["do: refuse", "do: reset", "do: ok", "health: down"]))
        .prop_map(|(at, does)| format!("{{ at: {at}ms, {does} }}"));
    let turns = prop::collection::vec(prop::collection::vec(prop_oneof![turn, whole], 0..6), 5);
    let load = prop_oneof![
        (5..40u32).prop_map(|rps| format!("rps: {rps}, arrivals: poisson")),
        (1..5u32).prop_map(|clients| format!("concurrency: {clients}, think: 100ms")),
    ];
    (load, turns, 0..20u32).prop_map(move |(load, turns, abort)| {
        let destinations: String = ["a", "b", "c", "d", "e"]
            .iter()
            .zip(turns)
            .map(|(id, turns)| {
                let turns: String = turns.iter().map(|turn| format!("{turn}, ")).collect();
                format!("  {id}: [{turns}{{ at: 30s, do: ok, health: up }}]\n")
            })
            .collect();
        format!("length: {length}s\nload: {{ {load}, abort: \"{abort}%\" }}\ndestinations:\n{destinations}")
    })
}

/// Only those destinations that the cluster has.
fn fitting(timeline: &str, destinations: usize) -> String {
    let is_gone = |line: &str| line.starts_with("  ") && usize::from(line.as_bytes()[2] - b'a') >= destinations;
    timeline.lines().filter(|line| !is_gone(line)).map(|line| format!("{line}\n")).collect()
}

/// What is looked at before and after each happening.
struct Seen {
    under_way: usize,
    unmarked: Vec<bool>,
    penalties: Vec<f64>,
    successes: u64,
}

fn look(run: &Run, judged: &Judged) -> Seen {
    let members = &run.scenario.cluster.members;
    let of_500 = if judged.counts_500 { 0 } else { run.findings.answers(500) };
    Seen {
        under_way: run.flights.under_way(),
        unmarked: members.iter().map(|member| member.is_unmarked()).collect(),
        penalties: members.iter().map(|member| run.scenario.cluster.standing(member).penalty()).collect(),
        successes: run.findings.answers(200) + of_500,
    }
}

/// Every happening to the end; each must keep the laws.
fn all_by_law(run: &mut Run, judged: &Judged) {
    let mut before = look(run, judged);
    while run.step() {
        let after = look(run, judged);
        let cluster = &run.scenario.cluster;
        if after.under_way > before.under_way {
            drawn_by_law(run, judged, &before.unmarked);
        }
        for (before_it, after_it) in before.penalties.iter().zip(&after.penalties) {
            assert!(after_it >= before_it || after.successes > before.successes, "a penalty fell without a success");
        }
        let in_flight: u32 = cluster.members.iter().map(|member| member.live.in_flight()).sum();
        assert_eq!(in_flight as usize, after.under_way);
        let ejected = cluster.members.iter().filter(|member| member.live.marks.has(crate::model::Reason::Passive));
        let ejected = ejected.count() as u32;
        assert!(ejected <= judged.most_ejected, "{ejected} are ejected, {} may be", judged.most_ejected);
        before = after;
    }
}

/// Nobody marked is drawn while an unmarked one exists, trials and panics aside.
fn drawn_by_law(run: &Run, judged: &Judged, unmarked: &[bool]) {
    let newest = run.flights.all.iter().flatten().find(|flight| flight.number == run.flights.number);
    let Drawn { member, lease, .. } = &newest.expect("one has begun").drawn;
    if unmarked[member.index] {
        return;
    }
    let ticket = lease.ticket();
    assert!(ticket.trial || ticket.panic, "{} was drawn, marked as it is", member.destination.id);
    let panics = run.scenario.cluster.published().primaries.panic;
    assert!(ticket.trial || (panics && (judged.early_panic || !unmarked.contains(&true))), "no cause for a panic");
}

fn assert_replays(findings: &Findings) {
    for (at, id, told) in findings.steps() {
        assert_eq!(replay(told), Some(told.decision), "{id} at {at:?}: {told:?}");
        let text = serde_json::to_string(&**told).expect("JSON");
        let read: Explanation = serde_json::from_str(&text).expect("the same JSON");
        assert_eq!((replay(&read), &read), (Some(told.decision), &**told));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn given_any_timeline_and_settings_when_run_then_the_laws_of_draw_count_and_penalty_hold_and_all_replays(
        judged in judged(), timeline in timeline(60), seed in any::<u64>()
    ) {
        let mut run = run(&judged.text, &fitting(&timeline, judged.destinations), seed);
        all_by_law(&mut run, &judged);
        assert_replays(&run.findings);
        let cluster = run.scenario.cluster.clone();
        drop(run);
        prop_assert!(cluster.members.iter().all(|member| member.live.in_flight() == 0));
    }

    /// The longest period, the window of `mode: full` and a request that hangs on trial, or that many probes.
    #[test]
    fn given_destinations_that_are_well_again_when_the_longest_period_is_over_then_all_are_back(
        judged in judged(), timeline in timeline(130), seed in any::<u64>()
    ) {
        let mut run = run(&judged.text, &fitting(&timeline, judged.destinations), seed);
        while run.step() {}
        for member in &run.scenario.cluster.members {
            prop_assert!(member.is_unmarked(), "{}", Told { findings: &run.findings, explain: false });
        }
    }
}

const ENDLESS_ABORTS: &str = "load: { rps: 100, requests: 1000, abort: \"100%\" }\n";

#[test]
fn given_a_thousand_clients_that_leave_when_run_then_no_step() {
    let judges = "    health:\n      passive: { detectors: [{ policy: ConsecutiveFailures, failures: 1 }] }\n      \
                  breaker: { threshold: 1, minimum_requests: 1 }\n";
    let findings = run(&config(2, judges), ENDLESS_ABORTS, 1).finish(|_| {});
    assert_eq!((findings.requests(), findings.steps().count(), findings.answers(200)), (1000, 0, 0));
}

const HALF_DEAD: &str = "load: { rps: 1000, requests: 5000, arrivals: poisson }\ndestinations:\n  a: [{ at: 1s, do: \
                         refuse }, { at: 2s, do: ok }]\n  b: [{ at: 0s, do: status, status: 503, share: \"5%\" }]\n";

#[test]
fn given_one_seed_when_run_twice_then_equal_to_the_byte_and_another_seed_differs() {
    let told = |seed| {
        let findings = run(&config(3, ""), HALF_DEAD, seed).finish(|_| {});
        format!("{}{}", findings.json(true), Told { findings: &findings, explain: true })
    };
    assert_eq!(told(7), told(7));
    assert_ne!(told(7), told(8));
}

#[test]
fn given_an_even_load_when_run_then_exactly_so_many_requests_whatever_the_seed() {
    for (timeline, requests) in [
        ("length: 10s\nload: { rps: 33 }\n", 330),
        ("length: 10s\nload: { phases: [{ at: 1s, rps: 10 }, { at: 5s, rps: 0 }, { at: 9s, rps: 100 }] }\n", 140),
        ("load: { concurrency: 7, requests: 1001 }\n", 1001),
        ("length: 1s\nload: { rps: 100, requests: 5 }\n", 5),
    ] {
        for seed in 0..3 {
            assert_eq!(run(&config(3, ""), timeline, seed).finish(|_| {}).requests(), requests, "{timeline}");
        }
    }
}

#[test]
fn given_a_destination_that_goes_when_requests_are_in_progress_then_they_break_off_and_none_is_lost() {
    let timeline = "load: { concurrency: 10, requests: 10 }\ndestinations:\n  a: [{ at: 0s, do: delay, latency: 500ms }, \
                    { at: 100ms, do: refuse }]\n";
    let findings = run(&config(1, ""), timeline, 1).finish(|_| {});
    assert_eq!((findings.answers(502), findings.requests()), (10, 10));
}

#[test]
fn given_nobody_to_ask_when_clients_of_a_closed_load_ask_then_time_goes_on() {
    let health =
        "    health: { available: HealthyAndUnknown, initial: probe_first, active: { type: tcp, interval: 1s } }\n";
    let timeline = "length: 2s\nload: { concurrency: 3 }\ndestinations:\n  a: [{ at: 0s, do: refuse }]\n";
    let findings = run(&config(1, health), timeline, 1).finish(|_| {});
    assert!((5_900..6_010).contains(&findings.answers(503)), "{}", findings.answers(503));
}

#[test]
fn given_a_path_for_checks_that_fails_when_run_then_probes_take_the_destination_out_and_bring_it_back() {
    let health = "    health:\n      active: { type: http, interval: 5s, interval_when_unhealthy: 1s, jitter: 0% }\n";
    let timeline = "length: 60s\nload: { rps: 10 }\ndestinations:\n  a: [{ at: 12s, health: down }, { at: 31500ms, health: \
                    up }]\n";
    let findings = run(&config(2, health), timeline, 1).finish(|_| {});
    let steps: Vec<(u64, bool)> =
        findings.steps().map(|(at, _, told)| (at.as_secs(), told.decision.is_healthy)).collect();
    assert_eq!(steps, [(20, false), (32, true)]);
    assert_eq!(findings.answers(200), 600);
}
