use super::*;

fn adopt(case: &mut Case, settings: Settings) -> Vec<Step> {
    let around = Around { live: &case.live, cap: &case.cap };
    let changes = case.standing.adopt(Arc::new(settings), &around, case.now);
    changes.iter().map(|change| change.step).collect()
}

#[test]
fn given_the_same_detector_when_adopted_then_its_history_stays_and_another_begins_anew() {
    let mut case = Case::new(passive(vec![in_a_row(3)], HOW));
    case.attempt(BAD);
    case.attempt(BAD);
    assert_eq!(adopt(&mut case, passive(vec![rate(60, 10, 0.3), in_a_row(3)], HOW)), []);
    assert_eq!(case.attempt(BAD), [Step::Ejected]);
    case.wait(10_000);
    case.trial(OK);
    case.attempt(BAD);
    case.attempt(BAD);
    adopt(&mut case, passive(vec![in_a_row(2)], HOW));
    assert_eq!(case.attempt(BAD), []);
    assert_eq!(case.attempt(BAD), [Step::Ejected]);
}

#[test]
fn given_reactivation_off_when_it_is_adopted_again_then_what_was_ejected_meanwhile_comes_back() {
    let off = || Passive { count: COUNT, detectors: vec![in_a_row(1)], reactivation: None };
    let mut case = Case::new(Settings { passive: Some(off()), ..Settings::default() });
    assert_eq!(case.attempt(BAD), [Step::Ejected]);
    assert_eq!((case.wait(60_000), case.due()), (vec![], None));
    adopt(&mut case, passive(vec![in_a_row(1)], HOW));
    assert_eq!(case.due(), Some(70), "a period from then on");
    assert_eq!(case.wait(10_000), [Step::HalfOpen]);
    assert_eq!(case.trial(OK), [Step::Readmitted]);
}

#[test]
fn given_mode_full_when_a_reload_changes_detectors_or_brings_it_while_out_then_no_failure_ends_the_ejection() {
    let full = |detectors| passive(detectors, Reactivating { full: true, period: Duration::from_secs(20), ..HOW });
    let half = |detectors| passive(detectors, Reactivating { period: Duration::from_secs(20), ..HOW });
    let both = || vec![rate(5, 4, 0.5), in_a_row(2)];
    for (before, after) in [
        (full(both()), full(vec![rate(5, 4, 0.4), in_a_row(3)])),
        (full(both()), full(vec![rate(5, 4, 0.5), in_a_row(3)])),
        (half(both()), full(both())),
    ] {
        let mut case = Case::new(before);
        case.attempt(BAD);
        assert_eq!(case.attempt(BAD), [Step::Ejected]);
        adopt(&mut case, after);
        for _ in 0..19 {
            case.wait(1_000);
            assert_eq!((case.attempt(BAD), case.out()), (vec![], true));
        }
        assert_eq!(case.wait(1_000), [Step::Readmitted]);
    }
    // What was kept needs no time.
    let mut case = Case::new(full(both()));
    (0..2).for_each(|_| drop(case.attempt(BAD)));
    adopt(&mut case, full(vec![rate(5, 4, 0.5), in_a_row(3)]));
    assert_eq!(case.attempt(OK), [Step::Readmitted]);
}

#[test]
fn given_an_active_check_that_was_gone_when_there_is_one_again_then_its_old_findings_are_forgotten() {
    let mut case = Case::new(checked(1, 2));
    (0..3).for_each(|_| drop(case.probe(false)));
    assert_eq!(adopt(&mut case, Settings::default()), [Step::Readmitted]);
    assert_eq!(case.probe(false), [], "one that the reload overtook");
    assert_eq!(case.standing.last_cause(), None);
    adopt(&mut case, checked(1, 2));
    assert_eq!(case.probe(false), []);
    assert_eq!(case.probe(false), [Step::MarkedOut]);
}

#[test]
fn given_judges_that_are_gone_when_adopted_then_their_marks_are_lifted() {
    let mut case = Case::new(Settings {
        active: Some(Thresholds { healthy_after: 1, unhealthy_after: 1 }),
        breaker: Some((COUNT, breaking(Threshold::Number(1)))),
        ..passive(vec![in_a_row(1)], HOW)
    });
    case.attempt(BAD);
    case.probe(false);
    assert_eq!(case.live.marks.reasons().count(), 3);
    let steps = adopt(&mut case, Settings::default());
    assert_eq!(steps, [Step::Readmitted, Step::CircuitClosed, Step::Readmitted]);
    assert_eq!((case.out(), case.cap.taken()), (false, 0));
}
