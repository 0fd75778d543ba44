use super::*;

fn case(active: bool) -> Case {
    let active = active.then_some(Thresholds { healthy_after: 2, unhealthy_after: 2 });
    let breaker = Some((COUNT, breaking(Threshold::Number(2))));
    Case::new(Settings { active, breaker, ..Settings::default() })
}

#[test]
fn given_failures_when_the_threshold_is_reached_then_open_asleep_half_open_and_closed() {
    let mut case = case(false);
    assert_eq!(case.attempt(BAD), []);
    assert_eq!(case.attempt(BAD), [Step::CircuitOpened]);
    assert_eq!(case.wait(4_999), []);
    assert_eq!(case.wait(1), [Step::HalfOpen]);
    assert_eq!(case.trial(BAD), [Step::CircuitOpened]);
    assert_eq!(case.wait(5_000), [Step::HalfOpen]);
    assert_eq!(case.trial(OK), [Step::CircuitClosed]);
    assert_eq!(case.state(), State::Healthy);
}

#[test]
fn given_an_active_check_when_it_fails_then_open_without_traffic_and_closed_by_its_pass() {
    let mut case = case(true);
    case.probe(false);
    assert_eq!(case.probe(false), [Step::MarkedOut, Step::CircuitOpened]);
    assert_eq!(case.wait(60_000), [], "sleep's end admits nothing while probes fail");
    assert_eq!(case.probe(true), []);
    assert_eq!(case.probe(true), [Step::CircuitClosed, Step::Readmitted]);
    assert!(!case.out());
}

#[test]
fn given_two_half_open_judges_when_a_trial_succeeds_then_one_outcome_answers_both() {
    let mut case = Case::new(Settings {
        breaker: Some((COUNT, Breaking { sleep: Duration::from_secs(10), ..breaking(Threshold::Number(2)) })),
        ..passive(vec![in_a_row(2)], HOW)
    });
    case.attempt(BAD);
    assert_eq!(case.attempt(BAD), [Step::Ejected, Step::CircuitOpened]);
    assert_eq!(case.wait(10_000), [Step::HalfOpen, Step::HalfOpen]);
    assert_eq!(case.state(), State::HalfOpen);
    assert_eq!(case.trial(OK), [Step::Readmitted, Step::CircuitClosed]);
    assert!(!case.out());
}
