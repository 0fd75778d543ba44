//! Weaknesses of YARP that do not recur here, by their row in the list of them.

use super::*;

fn defaults() -> Case {
    Case::new(passive(vec![rate(60, 10, 0.3), rate(5, 10, 0.5), in_a_row(5)], HOW))
}

fn failures(case: &mut Case, most: usize) -> usize {
    (1..=most).find(|_| case.attempt(BAD).contains(&Step::Ejected)).expect("ejected")
}

#[test]
fn row_3_given_a_passive_ejection_when_probes_pass_again_then_it_does_not_sit_out_its_period() {
    let active = Some(Thresholds { healthy_after: 1, unhealthy_after: 2 });
    let mut case = Case::new(Settings { active, ..passive(vec![in_a_row(5)], HOW) });
    failures(&mut case, 5);
    case.wait(2_000);
    assert_eq!(case.probe(true), [Step::HalfOpen]);
    assert_eq!(case.trial(OK), [Step::Readmitted]);
}

#[test]
fn row_4_given_a_return_when_its_first_request_succeeds_then_old_failures_do_not_eject_it_again() {
    let mut case = defaults();
    failures(&mut case, 5);
    case.wait(10_000);
    case.trial(OK);
    for _ in 0..50 {
        assert_eq!(case.attempt(OK), []);
        case.now += Duration::from_millis(100);
    }
    assert_eq!(case.state(), State::Healthy);
}

#[test]
fn row_5_given_an_ejection_soon_after_another_when_told_then_the_time_told_is_the_time_it_ends() {
    for full in [false, true] {
        let how = Reactivating { full, multiplier: 1.0, ..HOW };
        let mut case = Case::new(passive(vec![in_a_row(1)], how));
        case.attempt(BAD);
        case.wait(4_000);
        case.order(Order::Uneject, None);
        case.wait(1_000);
        assert_eq!(case.attempt(BAD), [Step::Ejected]);
        let told = case.last().next_at().expect("a time").0;
        assert_eq!(told, 15_000);
        assert_eq!(case.due(), Some(15));
        assert_eq!(case.wait(9_999), []);
        assert_eq!(case.wait(1).len(), 1);
    }
}

#[test]
fn row_6_given_any_number_of_good_answers_before_when_it_dies_then_out_at_the_5th_failure_at_the_latest() {
    for good in [0, 9, 600, 5_000] {
        let mut case = defaults();
        (0..good).for_each(|_| drop(case.attempt(OK)));
        assert!(failures(&mut case, 10) <= 5, "after {good} good answers");
    }
}

#[test]
fn row_7_given_a_request_a_minute_when_it_is_dead_then_out_all_the_same() {
    let mut case = defaults();
    let out = (1..=10).find(|_| {
        case.now += Duration::from_secs(61);
        case.attempt(BAD).contains(&Step::Ejected)
    });
    assert_eq!(out, Some(5));
}
