//! The laws that every row of [`BUILTIN`](super::BUILTIN) obeys, whatever its policy. A new policy is held to them by
//! being in the table.

use super::{BUILTIN, Balancer, Draw, Entry, Site, Tried};
use crate::config::{Node, Problems, Section, Spot};
use crate::model::testing::{load, members, request};
use crate::model::{Dice, Lease, Member, Outcome, RequestView};
use http::{HeaderMap, HeaderValue, header};
use proptest::prelude::*;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// With its defaults.
fn built(entry: &Entry) -> Box<dyn Balancer> {
    let at = Spot { file: "test".into(), line: 1, column: 1, path: String::new() };
    let mut problems = Problems::default();
    let node = Node::empty_map(at);
    let balancer = (entry.build)(&mut Section::of_map(&node, &mut problems), &Site { zone: Some("zone-0".into()) });
    assert!(problems.is_empty(), "{problems}");
    balancer
}

/// One with each key that Maglev may go by.
fn keyed(number: u32, headers: &mut HeaderMap) -> RequestView<'_> {
    headers.insert(header::COOKIE, HeaderValue::from(number));
    let client_ip = Some(std::net::IpAddr::from(number.to_be_bytes()));
    RequestView { headers, client_ip, ..request() }
}

/// Destinations with weights, a zone for every third, and some load.
fn set(weights: &[u32], busy: &[usize]) -> (Vec<Arc<Member>>, Vec<Lease>) {
    let ids: Vec<(String, String)> = (0..weights.len()).map(|i| (format!("d{i}"), format!("zone-{}", i % 3))).collect();
    let rows: Vec<(&str, u32, &str)> =
        ids.iter().zip(weights).map(|((id, zone), weight)| (id.as_str(), *weight, zone.as_str())).collect();
    let set = members(&rows);
    let leases = busy.iter().flat_map(|&i| load(&set[i % set.len()], 1 + i % 3)).collect();
    (set, leases)
}

proptest! {
    #[test]
    fn given_any_set_when_picked_then_an_untried_one_and_none_only_when_all_were_tried(
        weights in prop::collection::vec(1u32..50, 1..12),
        heard in heard(),
        busy in prop::collection::vec(0usize..12, 0..6),
        tried in prop::collection::vec(0usize..12, 0..14),
        seed: u64,
    ) {
        let (set, _leases) = set(&weights, &busy);
        let mut not = Tried::default();
        tried.iter().filter(|&&i| i < set.len()).for_each(|&i| not.insert(i));
        for entry in BUILTIN {
            let policy = built(entry);
            let picker = policy.prepare(&set);
            let mut dice = Dice::with_seed(seed);
            let mut headers = HeaderMap::new();
            let start = Instant::now();
            for (number, (outcome, at, waited)) in (0..20).zip(heard.iter().cycle()) {
                let now = start + Duration::from_millis(*at);
                policy.learn(&set[number % set.len()], *outcome, Duration::from_millis(*waited), now);
                let request = keyed(number as u32, &mut headers);
                let mut draw = Draw { request, tried: &not, now, dice: &mut dice };
                match picker.pick(&set, &mut draw) {
                    Some(i) => {
                        prop_assert!(i < set.len(), "{}: out of the set", entry.name);
                        prop_assert!(!not.contains(set[i].index), "{}: picked a tried one", entry.name);
                    }
                    None => prop_assert_eq!(not.len(), set.len(), "{}: gave up early", entry.name),
                }
            }
        }
    }
}

/// What may come of attempts, in any order of time: `(outcome, milliseconds of now, milliseconds waited)`.
fn heard() -> impl Strategy<Value = Vec<(Outcome, u64, u64)>> {
    let outcomes = [
        Outcome::Status(200),
        Outcome::Status(503),
        Outcome::Refused,
        Outcome::ReadTimeout,
        Outcome::ClientAbort,
        Outcome::Local,
    ];
    prop::collection::vec((prop::sample::select(outcomes.to_vec()), 0u64..1_000_000, 0u64..100_000), 1..20)
}

#[test]
fn given_equal_chance_and_equal_events_when_picked_then_the_picks_are_equal() {
    for entry in BUILTIN {
        let run = || {
            let (set, _leases) = set(&[3, 1, 2, 2, 5], &[0, 3]);
            let policy = built(entry);
            let (mut dice, mut headers, now) = (Dice::with_seed(9), HeaderMap::new(), Instant::now());
            let mut picked = Vec::new();
            for part in [&set[..], &set[1..], &set[..4], &set[..]] {
                let picker = policy.prepare(part);
                for number in 0..50 {
                    let request = keyed(number, &mut headers);
                    let mut draw = Draw { request, tried: &Tried::default(), now, dice: &mut dice };
                    let position = picker.pick(part, &mut draw).expect("none was tried");
                    policy.learn(&part[position], Outcome::Status(200), Duration::from_millis(number.into()), now);
                    picked.push(part[position].index);
                }
            }
            picked
        };
        assert_eq!(run(), run(), "{}", entry.name);
    }
}

#[test]
fn given_many_threads_when_they_pick_at_once_then_every_pick_is_an_untried_one() {
    for entry in BUILTIN {
        let (set, _leases) = set(&[1, 2, 3], &[1]);
        let policy = built(entry);
        let picker = policy.prepare(&set);
        let mut tried = Tried::default();
        tried.insert(1);
        let now = Instant::now();
        std::thread::scope(|scope| {
            for seed in 0..4 {
                let (picker, policy, set, tried) = (&picker, &policy, &set, &tried);
                scope.spawn(move || {
                    let (mut dice, mut headers) = (Dice::with_seed(seed), HeaderMap::new());
                    for number in 0..2_000 {
                        let request = keyed(number, &mut headers);
                        let mut draw = Draw { request, tried, now, dice: &mut dice };
                        let position = picker.pick(set, &mut draw).expect("two are left");
                        assert_ne!(set[position].index, 1, "{}", entry.name);
                        let _lease = set[position].live.lease(None);
                        policy.learn(&set[position], Outcome::Status(200), Duration::from_millis(1), now);
                    }
                });
            }
        });
        let in_flight: Vec<u32> = set.iter().map(|member| member.live.in_flight()).collect();
        assert_eq!(set[0].live.cluster_in_flight(), in_flight.iter().sum::<u32>(), "{}", entry.name);
    }
}

#[test]
fn given_small_and_large_sets_when_picked_then_nothing_is_allocated() {
    for size in [1, 3, 3_000] {
        let weights: Vec<u32> = (0..size).map(|i| 1 + i % 7).collect();
        let (set, _leases) = set(&weights, &[0, 1]);
        let mut tried = Tried::default();
        tried.insert(0);
        for entry in BUILTIN {
            let policy = built(entry);
            let picker = policy.prepare(&set);
            let (mut dice, mut headers, now) = (Dice::with_seed(1), HeaderMap::new(), Instant::now());
            let request = keyed(7, &mut headers);
            let before = allocations();
            for _ in 0..100 {
                let mut draw = Draw { request, tried: &tried, now, dice: &mut dice };
                if let Some(position) = picker.pick(&set, &mut draw) {
                    policy.learn(&set[position], Outcome::Status(200), Duration::from_millis(1), now);
                    policy.learn(&set[position], Outcome::Refused, Duration::ZERO, now);
                }
            }
            assert_eq!(allocations() - before, 0, "{} at {size}", entry.name);
        }
    }
}

/// Counts what each test's own thread allocates.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

fn allocations() -> usize {
    ALLOCATIONS.with(Cell::get)
}

#[global_allocator]
static COUNTING: Counting = Counting;

// SAFETY: hands everything on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // A thread that is going away has no counter any more.
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        unsafe { System.dealloc(at, layout) }
    }
}
