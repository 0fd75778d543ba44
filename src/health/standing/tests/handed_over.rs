//! What another process goes on with.

use super::laws::{hold, settings, step};
use super::*;
use crate::model::Stamp;
use proptest::prelude::*;

/// The destination in another process, whose wall clock is an hour ahead; `seconds` after that began it is asked to go on.
fn other(settings: Arc<Settings>, now: Instant, seconds: u64) -> Case {
    let mut case = Case::new(Settings::default());
    case.now = now;
    let begun = now.checked_sub(Duration::from_secs(seconds)).expect("a clock that ran before");
    let epoch = Epoch { instant: begun, wall: SystemTime::UNIX_EPOCH + Duration::from_secs(3_600) };
    case.standing = Standing::new(settings, epoch, &case.live);
    case
}

fn saved(case: &Case) -> Saved {
    let saved = case.standing.saved(&case.live, case.now);
    let text = serde_json::to_string(&saved).expect("written");
    let read: Saved = serde_json::from_str(&text).unwrap_or_else(|fault| panic!("{fault}: {text}"));
    assert_eq!(read, saved);
    read
}

fn shortened(mut saved: Saved) -> Saved {
    saved.shorten();
    saved
}

fn resume(case: &mut Case, saved: Saved) -> Vec<(Step, Reason)> {
    let around = Around { live: &case.live, cap: &case.cap };
    let changes = case.standing.resume(saved, true, &around, case.now);
    let explained = || changes.iter().filter_map(|change| change.explanation.as_deref());
    explained().for_each(|told| assert_eq!(replay(told), Some(told.decision), "{told:?}"));
    changes.iter().map(|change| (change.step, change.reason)).collect()
}

/// It goes on in another process under the same settings.
fn resumed(case: &Case) -> Case {
    let mut next = other(case.standing.settings.clone(), case.now, 100);
    assert_eq!(resume(&mut next, saved(case)), []);
    hold(&next);
    next
}

/// All that decides, but for what detectors and the breaker have counted.
fn decides(case: &Case) -> impl PartialEq + std::fmt::Debug {
    let Case { standing, live, .. } = case;
    let orders: Vec<_> = standing.orders().map(|held| (held.order, held.by.clone(), held.since, held.until)).collect();
    // A sleep that is over, but for the failed active check, is over.
    let circuit = standing.circuit().map(|circuit| match circuit {
        Circuit::Open { until } => Circuit::Open { until: until.max(case.now) },
        other => other,
    });
    let due = standing.next_due(live).map(|due| due.max(case.now));
    let machines = (standing.phase(), circuit, standing.penalty(), due);
    let words = (live.in_maintenance(), live.is_draining(), live.weight(), live.takes_any_trial(), live.ramp());
    let probes = (standing.probes.length(), standing.probes.causes());
    (live.marks.reasons().collect::<Vec<_>>(), live.marks.is_on_trial(), case.state(), machines, orders, words, probes)
}

/// Told since it was last asked.
fn told(case: &mut Case) -> Vec<(Step, Reason, Option<Transition>)> {
    case.told.drain(..).map(|change| (change.step, change.reason, change.transition)).collect()
}

fn forget_windows(case: &mut Case) {
    let blind = matches!(case.standing.phase(), Phase::Ejected { .. }).then_some(case.now);
    for detector in &mut case.standing.detectors {
        detector.tracker.clear();
        detector.blind_before = blind;
    }
    let breaker = case.standing.breaker.as_ref().map(|breaker| Breaker::resumed(*breaker.how(), breaker.circuit()));
    case.standing.breaker = breaker;
}

proptest! {
    #[test]
    fn given_any_standing_when_handed_over_at_any_time_then_it_decides_as_the_one_that_lived_on(
        first in any::<u32>(),
        before in prop::collection::vec((0u8..14, any::<u32>()), 0..100),
        mut own in prop::collection::vec((0u64..8_000, any::<bool>()), 0..4),
        lean in any::<bool>(),
        after in prop::collection::vec((0u8..14, any::<u32>()), 1..60),
    ) {
        // Time does not run backwards where two processes are to tell the same of it.
        let forward = |event: &&(u8, u32)| event.0 != 11;
        let (mut lives, mut open) = (Case::new(settings(first)), Vec::new());
        lives.now += Duration::from_secs(10);
        before.iter().filter(forward).for_each(|event| step(&mut lives, &mut open, *event));
        open.clear();
        lives.wait(0);
        let (mut next, now) = (other(lives.standing.settings.clone(), lives.now, 10), lives.now);
        own.sort_by_key(|(ago, _)| std::cmp::Reverse(*ago));
        let own: Vec<_> = own.iter().map(|(ago, passed)| (now - Duration::from_millis(*ago), *passed)).collect();
        for (at, passed) in &own {
            next.now = *at;
            next.probe(*passed);
        }
        next.now = now;
        let (saved, last) = (saved(&lives), lives.standing.probes.at());
        resume(&mut next, if lean { shortened(saved) } else { saved });
        hold(&next);
        forget_windows(&mut lives);
        let wanted = !lives.live.in_maintenance();
        for (at, passed) in own.iter().filter(|(at, _)| wanted && last.is_none_or(|last| *at > last)) {
            lives.now = *at;
            lives.probe(*passed);
        }
        lives.now = now;
        prop_assert_eq!(decides(&next), decides(&lives));
        (lives.told, next.told) = (Vec::new(), Vec::new());
        let mut next_open = Vec::new();
        for event in after.iter().filter(forward) {
            step(&mut lives, &mut open, *event);
            step(&mut next, &mut next_open, *event);
            hold(&next);
            prop_assert_eq!(decides(&next), decides(&lives), "{:?}", event);
            prop_assert_eq!(told(&mut next), told(&mut lives), "{:?}", event);
        }
    }
}

/// Out for 20 s by `mode: full`, with a window of 5 s.
fn out_in_full() -> Case {
    let how = Reactivating { full: true, period: Duration::from_secs(20), ..HOW };
    let mut case = Case::new(passive(vec![rate(5, 4, 0.5), in_a_row(4)], how));
    (0..4).for_each(|_| drop(case.attempt(BAD)));
    assert!(case.out());
    case.wait(1_000);
    case
}

#[test]
fn given_mode_full_when_an_ejection_is_handed_over_then_no_failure_ends_it_and_its_period_does() {
    let mut next = resumed(&out_in_full());
    // Too few for the rate.
    for _ in 0..9 {
        next.wait(2_000);
        assert_eq!((next.attempt(BAD), next.out()), (vec![], true), "{:?}", next.now - next.start);
    }
    assert_eq!(next.wait(1_000), [Step::Readmitted], "20 s after it began");
}

#[test]
fn given_mode_full_when_an_ejection_is_handed_over_then_a_success_ends_it_as_soon_as_the_detectors_know() {
    let mut next = resumed(&out_in_full());
    assert_eq!(next.attempt(OK), [], "1 of 5 in the process before");
    next.wait(6_000);
    assert_eq!(next.attempt(OK), [Step::Readmitted]);
    // A row has no window: what began under the process before ends none.
    let how = Reactivating { full: true, ..HOW };
    let mut case = Case::new(passive(vec![in_a_row(1)], how));
    case.attempt(BAD);
    let mut next = resumed(&case);
    let (ticket, route) = (Ticket { epoch: next.live.epoch(), trial: false, panic: true }, next.route.clone());
    let begun = next.now - Duration::from_millis(1);
    let late = Attempted { outcome: OK, ticket, begun, route: &route, attempt: 1, latency: Duration::ZERO };
    assert_eq!(next.apply(Event::Outcome(late)), []);
    assert_eq!(next.attempt(OK), [Step::Readmitted]);
}

proptest! {
    /// Traffic in a panic, whatever comes of it: what it does not know of before never brings it back sooner.
    #[test]
    fn given_mode_full_when_an_ejection_is_handed_over_then_it_is_out_as_long_as_in_the_process_before_at_least(
        outcomes in prop::collection::vec((0u64..4, 0u8..3), 1..60), limits in (1u32..6, 1u32..6, 1u64..8),
    ) {
        let (minimum, row, window) = limits;
        let how = Reactivating { full: true, period: Duration::from_secs(30), ..HOW };
        let mut lives = Case::new(passive(vec![rate(window, minimum, 0.5), in_a_row(row)], how));
        (0..minimum.max(row)).for_each(|_| drop(lives.attempt(BAD)));
        prop_assert!(lives.out());
        let mut next = resumed(&lives);
        for (seconds, outcome) in outcomes {
            let outcome = if outcome == 0 { OK } else { BAD };
            for case in [&mut lives, &mut next] {
                case.wait(seconds * 1_000);
                case.attempt(outcome);
            }
            if next.out() != lives.out() {
                prop_assert!(next.out(), "{:?}", next.standing.history().last());
                // From here on each has a story of its own.
                break;
            }
            if !next.out() {
                break;
            }
        }
    }
}

#[test]
fn given_an_ejection_when_handed_over_then_people_see_its_reason_and_its_age_by_the_other_clock() {
    let mut case = Case::new(passive(vec![in_a_row(2)], HOW));
    case.attempt(BAD);
    case.attempt(BAD);
    case.wait(10_000);
    case.trial(BAD);
    case.wait(4_000);
    let next = resumed(&case);
    let now = next.standing.epoch().stamp(next.now);
    assert_eq!(now, Stamp(3_700_000), "by its own clock");
    let ago = |stamp: Stamp| now.since(stamp).as_secs();
    let marked = next.standing.marked(Reason::Passive).expect("it is out");
    assert_eq!((ago(marked.first.at), ago(marked.set.at), marked.times), (14, 4, 2));
    assert_eq!(marked.set.why(), "a trial failed: refused");
    assert_eq!(marked.set.evidence.iter().map(|seen| ago(seen.at)).collect::<Vec<_>>(), [14, 14, 4]);
    assert!(marked.set.ahead(now).to_string().starts_with("half-open in 16s"));
    assert_eq!(next.standing.since().map(ago), Some(4));
    let steps: Vec<_> = next.standing.history().map(|step| (step.decision.step, ago(step.at))).collect();
    assert_eq!(steps, [(Step::Ejected, 14), (Step::HalfOpen, 4), (Step::EjectedAgain, 4)]);
    assert_eq!((next.standing.penalty(), next.cap.taken()), (4.0, 1));
}

#[test]
fn given_orders_when_handed_over_then_they_hold_and_end_when_they_were_to() {
    let mut case = Case::new(Settings::default());
    case.order(Order::Weight(Some(7)), Some(30));
    case.order(Order::Override(Override::Drain), None);
    case.wait(10_000);
    let mut next = resumed(&case);
    assert_eq!((next.state(), next.live.is_draining(), next.live.weight()), (State::Draining, true, Some(7)));
    assert!(
        next.standing.orders().all(|held| held.by == "127.0.0.1" && next.now - held.since == Duration::from_secs(10))
    );
    assert_eq!((next.wait(19_000), next.wait(1_000)), (vec![], vec![Step::Reweighted]));
    assert_eq!((next.live.weight(), next.order(Order::Ready, None)), (None, vec![Step::Readmitted]));
    case.order(Order::Override(Override::Maint), Some(60));
    let mut next = resumed(&case);
    assert!(next.live.in_maintenance() && !next.live.is_draining());
    assert_eq!((next.wait(60_000), next.live.in_maintenance()), (vec![Step::Readmitted, Step::Reweighted], false));
}

#[test]
fn given_probes_of_both_when_handed_over_then_the_later_ones_decide() {
    let strict = || Settings { probe_first: true, ..checked(1, 2) };
    let case = |passed: &[bool]| {
        let mut case = Case::new(strict());
        case.now += Duration::from_secs(20);
        passed.iter().for_each(|passed| drop(case.probe(*passed)));
        case
    };
    let next = |case: &Case, passed: bool, later: bool| {
        let mut next = other(case.standing.settings.clone(), case.now, 10);
        next.now = if later { case.now + Duration::from_secs(1) } else { case.now - Duration::from_secs(1) };
        next.probe(passed);
        next.now = case.now + Duration::from_secs(2);
        let saved = case.standing.saved(&case.live, next.now);
        let told = resume(&mut next, saved);
        hold(&next);
        (told, next)
    };
    let (out, well) = (case(&[false, false]), case(&[true]));
    assert!(out.out() && !well.out());
    let (told, mut stays) = next(&out, true, false);
    assert_eq!((told, stays.out()), (vec![], true), "an older pass");
    assert_eq!(stays.probe(true), [Step::Readmitted, Step::Readmitted]);
    let (told, back) = next(&out, true, true);
    assert_eq!((told.len(), back.out()), (2, false), "a later pass: unprobed and active");
    let (told, both) = next(&out, false, true);
    assert_eq!((told, both.out()), (vec![], true), "what both found was told");
    let (told, forgiven) = next(&well, false, false);
    let expected = vec![(Step::Readmitted, Reason::Active), (Step::Readmitted, Reason::Unprobed)];
    assert_eq!((told, forgiven.out()), (expected, false), "an older failure");
    assert_eq!(
        forgiven.standing.history().last().map(|step| step.why()).as_deref(),
        Some("the process before knew better")
    );
    let (_, mut once) = next(&well, false, true);
    assert!(!once.out(), "not its first, and one is not two");
    assert_eq!(once.probe(false), [Step::MarkedOut]);
}

#[test]
fn given_other_settings_when_handed_over_then_only_judges_that_are_there_have_marks() {
    let full = || Settings {
        breaker: Some((COUNT, breaking(Threshold::Number(1)))),
        ..Settings { slow_start: Duration::from_secs(10), ..passive(vec![in_a_row(1)], HOW) }
    };
    let mut case = Case::new(Settings { active: Some(Thresholds { healthy_after: 1, unhealthy_after: 1 }), ..full() });
    case.attempt(BAD);
    case.probe(false);
    assert_eq!(case.live.marks.reasons().count(), 3);
    let reasons = |settings: Settings, enabled: bool| {
        let mut next = other(Arc::new(settings), case.now, 10);
        let around = Around { live: &next.live, cap: &next.cap };
        assert!(next.standing.resume(saved(&case), enabled, &around, next.now).is_empty());
        hold(&next);
        next.live.marks.reasons().collect::<Vec<_>>()
    };
    assert_eq!(reasons(Settings::default(), true), []);
    assert_eq!(reasons(checked(1, 9), true), [Reason::Active]);
    assert_eq!(reasons(full(), true), [Reason::Passive, Reason::Breaker]);
    assert_eq!(reasons(full(), false), [Reason::Breaker], "disabled, it leaves its place");
    case.wait(10_000);
    case.now -= Duration::from_secs(1);
    let on_trial = passive(vec![in_a_row(1)], Reactivating { full: true, ..HOW });
    let mut next = other(Arc::new(on_trial), case.now, 10);
    resume(&mut next, saved(&case));
    assert_eq!((next.out(), next.standing.phase()), (false, Phase::Serving), "mode: full has no half-open");
}

#[test]
fn given_a_limit_that_is_lower_now_when_handed_over_then_who_is_out_stays_out() {
    let mut case = Case::new(passive(vec![in_a_row(1)], HOW));
    case.attempt(BAD);
    let mut next = other(case.standing.settings.clone(), case.now, 10);
    next.cap.set_limit(0);
    resume(&mut next, saved(&case));
    assert_eq!((next.out(), next.cap.taken()), (true, 1));
    next.now += Duration::from_secs(10);
    assert_eq!((next.wait(0), next.trial(OK), next.cap.taken()), (vec![Step::HalfOpen], vec![Step::Readmitted], 0));
}

#[test]
fn given_no_room_when_shortened_then_only_what_was_seen_and_the_steps_are_missing() {
    let mut case = Case::new(passive(vec![in_a_row(2)], HOW));
    case.attempt(BAD);
    case.attempt(BAD);
    let (whole, lean) = (saved(&case), shortened(saved(&case)));
    let length = |saved: &Saved| serde_json::to_string(saved).expect("written").len();
    assert!(2 * length(&lean) < 3 * length(&whole), "{} of {}", length(&lean), length(&whole));
    let mut next = other(case.standing.settings.clone(), case.now, 10);
    resume(&mut next, lean);
    let why = next.standing.marked(Reason::Passive).map(|marked| marked.set.why());
    assert_eq!(why.as_deref(), Some("ConsecutiveFailures (failures 2): failures in a row 2 ≥ 2"));
    assert_eq!(next.standing.history().count(), 0);
}
