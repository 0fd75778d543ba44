//! Whatever happens in whatever order, reloads included.

use super::*;
use proptest::prelude::*;

/// Of every kind that a file can write.
pub(super) fn settings(seed: u32) -> Settings {
    let bit = |n: u32| seed >> n & 1 == 1;
    let how = Reactivating {
        period: if bit(0) { Duration::from_millis(100) } else { Duration::from_secs(3_600) },
        full: bit(1) && bit(2),
        trial_requests: if bit(3) { 3 } else { 1 },
        multiplier: if bit(4) { 10.0 } else { 1.0 },
        max: if bit(5) { Duration::from_secs(3_600) } else { Duration::from_secs(1) },
        lifted_by_probe: bit(6),
    };
    let detectors = vec![
        in_a_row(if bit(7) { 2 } else { 3 }),
        rate(if bit(8) { 600 } else { 1 }, 2, if bit(9) { 0.0 } else { 0.5 }),
    ];
    let mut count = COUNT;
    count.statuses = if bit(10) { vec![500..=599] } else { Vec::new() };
    let passive = Passive { count: count.clone(), detectors, reactivation: (bit(11) || bit(12)).then_some(how) };
    let threshold = if bit(13) { Threshold::Share(0.5) } else { Threshold::Number(2) };
    let how = Breaking { trial_requests: if bit(14) { 3 } else { 1 }, ..breaking(threshold) };
    let active = bit(15).then_some(Thresholds { healthy_after: 1 + seed % 3, unhealthy_after: 2 });
    Settings {
        probe_first: active.is_some() && bit(16),
        active,
        passive: (bit(17) || bit(18)).then_some(passive),
        breaker: bit(19).then_some((if bit(20) { COUNT } else { count }, how)),
        slow_start: if bit(21) { Duration::from_millis(7) } else { Duration::ZERO },
    }
}

pub(super) fn hold(case: &Case) {
    let (standing, marks) = (&case.standing, &case.live.marks);
    let passive = marks.has(Reason::Passive);
    assert_eq!(passive, standing.phase() != Phase::Serving);
    assert_eq!((passive, case.cap.taken()), (standing.holds_place, u32::from(passive)));
    assert_eq!(marks.has(Reason::Breaker), standing.circuit().is_some_and(|circuit| circuit != Circuit::Closed));
    assert_eq!(marks.has(Reason::Operator), standing.order().is_some());
    let on_trial = |judge, half_open| !marks.has(judge) || half_open;
    let half_open = on_trial(Reason::Passive, matches!(standing.phase(), Phase::HalfOpen { .. }))
        && on_trial(Reason::Breaker, matches!(standing.circuit(), Some(Circuit::HalfOpen { .. })))
        && [Reason::Active, Reason::Operator, Reason::Unprobed].iter().all(|reason| !marks.has(*reason));
    assert_eq!(marks.is_on_trial(), half_open && !marks.is_empty());
    assert!(standing.penalty() >= 1.0 && standing.penalty() <= 36_000.0);
    assert!(marks.is_empty() || case.live.ramp() == WHOLE, "only who may be drawn ramps");
    assert!(standing.history().count() <= HISTORY);
    let has = |reason| standing.marked(reason).is_some();
    Reason::ALL
        .iter()
        .filter(|reason| **reason != Reason::Unprobed)
        .for_each(|reason| assert_eq!(marks.has(*reason), has(*reason)));
    if marks.has(Reason::Active) || marks.has(Reason::Unprobed) {
        assert!(standing.settings.active.is_some(), "a judge that is not there has no mark");
    }
}

pub(super) fn step(case: &mut Case, open: &mut Vec<crate::model::Lease>, (what, how): (u8, u32)) {
    match what {
        0 => {
            let lease = || case.live.lease(None).expect("no bound");
            match how % 3 {
                0 => open.push(lease()),
                1 if case.live.marks.is_on_trial() => open.extend(case.live.lease_on_trial(None)),
                _ => open.push(if case.out() { lease().in_panic() } else { lease() }),
            }
        }
        1..=4 if !open.is_empty() => {
            let lease = open.swap_remove(how as usize % open.len());
            let outcomes = [OK, BAD, Outcome::Status(500), Outcome::ClientAbort, BAD, Outcome::Reset];
            let ticket = lease.ticket();
            case.conclude(outcomes[how as usize % outcomes.len()], ticket);
        }
        5 => drop(case.attempt(if how % 3 == 0 { OK } else { BAD })),
        6 | 7 => drop(case.probe(how % 2 == 0)),
        8 => {
            let states = [Override::Drain, Override::Leave, Override::Maint, Override::Eject].map(Order::Override);
            let orders = [Order::Ready, Order::Uneject, Order::Weight(Some(0)), Order::Weight(None)];
            let order = states.into_iter().chain(orders).nth(how as usize % 8).expect("one of eight");
            case.order(order, (how % 2 == 0).then_some(86_400));
        }
        9 => {
            let around = Around { live: &case.live, cap: &case.cap };
            let changes = case.standing.adopt(Arc::new(settings(how)), &around, case.now);
            assert!(
                changes
                    .iter()
                    .filter_map(|change| change.explanation.as_deref())
                    .all(|e| replay(e) == Some(e.decision))
            );
        }
        10 => {
            let around = Around { live: &case.live, cap: &case.cap };
            case.standing.disable(&around, case.now);
        }
        11 => case.now = case.now.checked_sub(Duration::from_millis(u64::from(how % 500))).unwrap_or(case.now),
        _ => drop(case.wait([1, 99, 5_000, 3_600_000][how as usize % 4])),
    }
}

proptest! {
    #[test]
    fn given_any_events_and_reloads_when_applied_then_marks_places_and_phases_agree_and_it_comes_back(
        first in any::<u32>(),
        events in prop::collection::vec((0u8..14, any::<u32>()), 1..200),
    ) {
        let (mut case, mut open) = (Case::new(settings(first)), Vec::new());
        for event in events {
            step(&mut case, &mut open, event);
            hold(&case);
            if let Some(due) = case.standing.next_due(&case.live).filter(|due| *due <= case.now) {
                let before = case.now;
                case.apply(Event::Due);
                hold(&case);
                let next = case.standing.next_due(&case.live);
                prop_assert!(next.is_none_or(|next| next > before || next > due), "what was due came");
            }
        }
        open.clear();
        prop_assert_eq!((case.live.in_flight(), case.live.cluster_in_flight()), (0, 0));
        let around = Around { live: &case.live, cap: &case.cap };
        // Ready, and all judges still there: it comes back by time, trials and probes.
        let back = Settings { active: Some(Thresholds { healthy_after: 2, unhealthy_after: 2 }), ..passive(vec![in_a_row(2)], HOW) };
        case.standing.adopt(Arc::new(back), &around, case.now);
        case.order(Order::Ready, None);
        for _ in 0..8 {
            case.wait(3_600_000);
            if case.live.marks.is_on_trial() {
                case.trial(OK);
            }
            case.probe(true);
        }
        hold(&case);
        prop_assert!(!case.out(), "{:?}", case.standing.history().last());
    }
}
