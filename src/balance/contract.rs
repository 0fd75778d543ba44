//! The laws that every row of [`BUILTIN`](super::BUILTIN) obeys, whatever its policy. A new policy is held to them by
//! being in the table.

use super::{BUILTIN, Balancer, Draw, Site, Tried};
use crate::config::{Node, Problems, Section, Spot};
use crate::model::testing::{load, members, request};
use crate::model::{Dice, Lease, Member};
use proptest::prelude::*;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;

fn built(build: fn(&mut Section<'_>, &Site) -> Box<dyn Balancer>) -> Box<dyn Balancer> {
    let at = Spot { file: "test".into(), line: 1, column: 1, path: String::new() };
    let mut problems = Problems::default();
    let node = Node::empty_map(at);
    let balancer = build(&mut Section::of_map(&node, &mut problems), &Site { zone: Some("zone-0".into()) });
    assert!(problems.is_empty(), "{problems}");
    balancer
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
        busy in prop::collection::vec(0usize..12, 0..6),
        tried in prop::collection::vec(0usize..12, 0..14),
        seed: u64,
    ) {
        let (set, _leases) = set(&weights, &busy);
        let mut not = Tried::default();
        tried.iter().filter(|&&i| i < set.len()).for_each(|&i| not.insert(i));
        for entry in BUILTIN {
            let picker = built(entry.build).prepare(&set);
            let mut dice = Dice::with_seed(seed);
            for _ in 0..20 {
                let mut draw = Draw { request: request(), tried: &not, dice: &mut dice };
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

#[test]
fn given_small_and_large_sets_when_picked_then_nothing_is_allocated() {
    for size in [1, 3, 3_000] {
        let weights: Vec<u32> = (0..size).map(|i| 1 + i % 7).collect();
        let (set, _leases) = set(&weights, &[0, 1]);
        let mut tried = Tried::default();
        tried.insert(0);
        for entry in BUILTIN {
            let picker = built(entry.build).prepare(&set);
            let mut dice = Dice::with_seed(1);
            let before = allocations();
            for _ in 0..100 {
                let mut draw = Draw { request: request(), tried: &tried, dice: &mut dice };
                picker.pick(&set, &mut draw);
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
