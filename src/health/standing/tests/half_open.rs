use super::*;

fn case() -> Case {
    Case::new(passive(vec![in_a_row(5)], HOW))
}

fn ejected() -> Case {
    let mut case = case();
    (0..5).for_each(|_| drop(case.attempt(BAD)));
    case
}

#[test]
fn given_600_good_answers_when_it_dies_then_out_at_the_5th_failure() {
    let mut case = Case::new(passive(vec![rate(60, 10, 0.3), rate(5, 10, 0.5), in_a_row(5)], HOW));
    (0..600).for_each(|_| assert_eq!(case.attempt(OK), []));
    assert!((0..4).all(|_| case.attempt(BAD).is_empty()));
    assert_eq!(case.attempt(BAD), [Step::Ejected]);
    assert_eq!(case.last().why(), "ConsecutiveFailures (failures 5): failures in a row 5 ≥ 5");
    assert_eq!(case.last().next.to_string(), "half-open in 10s");
    assert_eq!(case.last().evidence.len(), 32);
}

#[test]
fn given_an_ejection_when_the_period_is_over_then_one_trial_decides() {
    let mut case = ejected();
    assert_eq!(case.state(), State::Unhealthy);
    assert_eq!(case.wait(10_000), [Step::HalfOpen]);
    assert_eq!(case.state(), State::HalfOpen);
    assert_eq!(case.trial(BAD), [Step::EjectedAgain]);
    assert_eq!(case.due(), Some(30), "20 s this time");
    assert_eq!(case.wait(20_000), [Step::HalfOpen]);
    assert_eq!(case.trial(OK), [Step::Readmitted]);
    assert_eq!((case.state(), case.cap.taken()), (State::Healthy, 0));
    let transitions = case.told.iter().filter(|change| change.transition.is_some()).count();
    assert_eq!(transitions, 2, "a failed trial is none");
}

#[test]
fn given_late_outcomes_of_older_attempts_when_they_come_then_they_judge_nothing() {
    let mut case = ejected();
    let old = Ticket { epoch: 0, trial: false, panic: false };
    case.wait(10_000);
    assert_eq!(case.conclude(OK, old), []);
    assert_eq!(case.conclude(BAD, old), []);
    assert_eq!(case.trial(OK), [Step::Readmitted]);
    (0..9).for_each(|_| assert_eq!(case.conclude(BAD, old), []));
    assert!(!case.out());
}

#[test]
fn given_no_request_that_suits_a_trial_when_a_period_is_over_then_any_will_do_until_it_is_decided() {
    let mut case = ejected();
    case.wait(10_000);
    assert!(!case.live.takes_any_trial());
    assert_eq!(case.due(), Some(20));
    case.wait(10_000);
    assert_eq!((case.live.takes_any_trial(), case.due()), (true, None));
    case.trial(BAD);
    assert!(!case.live.takes_any_trial());
    case.wait(20_000);
    assert!(!case.live.takes_any_trial());
    case.trial(OK);
    assert_eq!(case.due(), None);
}

#[test]
fn given_a_client_that_leaves_when_it_was_on_trial_then_the_place_is_free_again() {
    let mut case = ejected();
    case.wait(10_000);
    assert_eq!(case.trial(Outcome::ClientAbort), []);
    assert_eq!(case.trial(Outcome::ClientAbort), []);
    assert_eq!(case.trial(OK), [Step::Readmitted]);
}

#[test]
fn given_no_traffic_when_probes_pass_then_the_first_lifts_and_the_next_readmits() {
    let settings = Settings {
        active: Some(Thresholds { healthy_after: 2, unhealthy_after: 9 }),
        ..passive(vec![in_a_row(1)], HOW)
    };
    let mut case = Case::new(settings);
    case.attempt(BAD);
    assert_eq!(case.probe(true), [], "it began at the ejection, not after it");
    case.now += Duration::from_secs(1);
    assert_eq!(case.probe(true), [Step::HalfOpen]);
    assert_eq!(case.probe(true), []);
    assert_eq!(case.probe(false), []);
    assert_eq!(case.probe(true), []);
    assert_eq!(case.probe(true), [Step::Readmitted]);
}

#[test]
fn given_a_panic_when_a_request_succeeds_then_it_counts_as_a_passed_trial() {
    let mut case = ejected();
    let ticket = Ticket { epoch: case.live.epoch(), trial: false, panic: true };
    assert_eq!(case.conclude(BAD, ticket), []);
    assert_eq!(case.conclude(OK, ticket), [Step::Readmitted]);
}

#[test]
fn given_as_many_out_as_may_be_when_a_detector_fires_then_no_mark_and_one_line_a_period() {
    let mut case = case();
    case.cap.take();
    let steps: Vec<Step> = (0..20).flat_map(|_| case.attempt(BAD)).collect();
    assert_eq!(steps, [Step::EjectionSkipped; 16]);
    assert!(!case.out());
    assert_eq!(case.told.iter().filter(|change| change.explanation.is_some()).count(), 1);
    case.now += Duration::from_secs(10);
    case.attempt(BAD);
    assert_eq!(case.told.iter().filter(|change| change.explanation.is_some()).count(), 2);
    case.cap.give_back();
    assert_eq!(case.attempt(BAD), [Step::Ejected]);
}

#[test]
fn given_reactivation_off_and_no_place_when_a_detector_fires_on_and_on_then_it_is_told_now_and_then_only() {
    let off = Passive { count: COUNT, detectors: vec![in_a_row(1)], reactivation: None };
    let mut case = Case::new(Settings { passive: Some(off), ..Settings::default() });
    case.cap.take();
    let steps: Vec<Step> = (0..20).flat_map(|_| case.attempt(BAD)).collect();
    assert_eq!(steps, [Step::EjectionSkipped; 20]);
    assert_eq!(case.told.iter().filter(|change| change.explanation.is_some()).count(), 1);
}

#[test]
fn given_1000_clients_that_leave_when_told_then_no_step() {
    let mut case = case();
    (0..1_000).for_each(|_| assert_eq!(case.attempt(Outcome::ClientAbort), []));
}

#[test]
fn given_reactivation_off_when_ejected_then_it_stays_out() {
    let settings = Settings {
        passive: Some(Passive { count: COUNT, detectors: vec![in_a_row(1)], reactivation: None }),
        ..Settings::default()
    };
    let mut case = Case::new(settings);
    assert_eq!(case.attempt(BAD), [Step::Ejected]);
    assert_eq!(case.last().next, Next::Never);
    assert_eq!(case.wait(86_400_000), []);
    assert_eq!(case.order(Order::Uneject, None), [Step::Readmitted]);
}

#[test]
fn given_slow_start_when_it_returns_then_its_share_grows_in_ten_steps() {
    let mut case = Case::new(Settings { slow_start: Duration::from_secs(10), ..passive(vec![in_a_row(1)], HOW) });
    case.attempt(BAD);
    case.wait(10_000);
    case.trial(OK);
    assert_eq!(case.last().next.to_string(), "its share grows for 10s (slow_start)");
    let shares: Vec<u8> = (0..11)
        .map(|_| {
            let share = case.live.ramp();
            case.wait(1_000);
            share
        })
        .collect();
    assert_eq!(shares, [1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
    assert_eq!((case.state(), case.due()), (State::Healthy, None));
}
