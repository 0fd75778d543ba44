//! Many threads on one cluster at once: what must hold whoever comes first.

use super::testing::compiled;
use super::{Arm, Cluster, Report, Trail, draw};
use crate::config::Role;
use crate::health::{Event, Order, Override};
use crate::model::testing::request;
use crate::model::{Dice, Member, Outcome, Reason};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::thread::scope;
use std::time::{Duration, Instant};

const MEMBERS: usize = 64;
const LIMIT: u32 = 7;
const THREADS: u64 = 8;
const ROUNDS: u64 = 1_500;

fn cluster() -> Arc<Cluster> {
    let destinations: Vec<String> =
        (0..MEMBERS).map(|i| format!("d{i}: \"http://127.0.0.1:{}\"", 20_000 + i)).collect();
    let health = "{ active: { type: tcp, healthy_after: 2 }, breaker: { threshold: 4, sleep: 100ms, trial_requests: 3 }, passive: { \
                  detectors: [{ policy: ConsecutiveFailures, failures: 2 }], max_ejected: 7, reactivation: { period: 100ms, \
                  trial_requests: 3, backoff: { max: 400ms } } } }";
    let text = format!(
        "listeners: {{ web: \"127.0.0.1:1\" }}\nroutes: {{ all: {{ cluster: c }} }}\nclusters: {{ c: {{ destinations: {{ {} }}, health: {health} }} }}\n",
        destinations.join(", ")
    );
    compiled(&text).1.clusters[0].clone()
}

fn conclude(cluster: &Cluster, outcome: Outcome, now: Instant, dice: &mut Dice) {
    let mut trail = Trail::default();
    let Ok(drawn) = draw(cluster, Arm::Primary, request(), &mut trail, now, dice) else { return };
    let ticket = drawn.lease.ticket();
    let (route, waited) = (&Arc::from("all"), Duration::from_millis(1));
    let report = Report { outcome, ticket, begun: now, route, attempt: 1, detail: "", waited };
    cluster.report(&drawn.member, &report, now);
}

fn act(cluster: &Cluster, now: Instant, dice: &mut Dice) {
    let any = |dice: &mut Dice| cluster.members[(dice.f64() * MEMBERS as f64) as usize % MEMBERS].clone();
    let judge = |member: &Member, event: Event<'_>| drop(cluster.judge(member, event, now));
    match (dice.f64() * 100.0) as u32 {
        0..50 => conclude(cluster, Outcome::Refused, now, dice),
        50..80 => conclude(cluster, Outcome::Status(200), now, dice),
        80..84 => conclude(cluster, Outcome::ClientAbort, now, dice),
        84..94 => {
            let passed = dice.f64() < 0.7;
            judge(&any(dice), Event::Probe { passed, cause: String::new(), begun: now });
        }
        94..97 => {
            let order = if dice.f64() < 0.5 { Order::Uneject } else { Order::Override(Override::Eject) };
            judge(&any(dice), Event::Operator { order, lasts: None, by: String::new() });
        }
        _ => drop(cluster.due(now)),
    }
}

#[test]
fn given_many_threads_when_they_judge_at_once_then_never_more_ejected_than_may_be_and_all_come_back() {
    let cluster = cluster();
    let start = Instant::now();
    let (clock, gate) = (AtomicU64::new(0), Barrier::new(THREADS as usize));
    let at = || start + Duration::from_millis(clock.load(Ordering::Relaxed));
    scope(|threads| {
        let (cluster, gate, clock) = (&cluster, &gate, &clock);
        let working: Vec<_> = (0..THREADS)
            .map(|seed| {
                threads.spawn(move || {
                    let mut dice = Dice::with_seed(seed);
                    gate.wait();
                    for _ in 0..ROUNDS {
                        clock.fetch_add(1, Ordering::Relaxed);
                        act(cluster, at(), &mut dice);
                        assert!(cluster.kept.caps.of(Role::Primary).taken() <= LIMIT);
                    }
                })
            })
            .collect();
        working.into_iter().for_each(|thread| thread.join().expect("no panic"));
    });
    let ejected = || cluster.members.iter().filter(|member| member.live.marks.has(Reason::Passive)).count();
    assert_eq!(
        cluster.kept.caps.of(Role::Primary).taken() as usize,
        ejected(),
        "a place for each that is out, and no other"
    );
    // From here on all is well.
    let (mut dice, mut now) = (Dice::with_seed(99), at());
    for _ in 0..200 {
        now += Duration::from_millis(500);
        cluster.due(now);
        (0..200).for_each(|_| conclude(&cluster, Outcome::Status(200), now, &mut dice));
        for member in &cluster.members {
            cluster.judge(member, Event::Probe { passed: true, cause: String::new(), begun: now }, now);
        }
    }
    let marked: Vec<_> = cluster.members.iter().filter(|member| !member.is_unmarked()).collect();
    assert!(marked.is_empty(), "{marked:?}");
    assert_eq!(cluster.kept.caps.of(Role::Primary).taken(), 0);
    assert!(cluster.members.iter().all(|member| member.live.in_flight() == 0 && member.live.cluster_in_flight() == 0));
    let published = &cluster.published().primaries;
    assert_eq!((published.set.len(), published.trials.len(), published.panic), (MEMBERS, 0, false));
}
