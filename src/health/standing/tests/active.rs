use super::*;

#[test]
fn given_threshold_two_when_two_probes_fail_then_unknown_first_and_out_at_the_second() {
    let mut case = Case::new(checked(1, 2));
    assert_eq!(case.probe(false), []);
    assert_eq!(case.state(), State::Unknown);
    assert_eq!(case.probe(false), [Step::MarkedOut]);
    assert_eq!(case.state(), State::Unhealthy);
    assert_eq!(case.probe(false), []);
    assert_eq!(case.last().why(), "active check failed 2 times in a row (unhealthy_after 2): 503, 503");
    assert_eq!(case.last().next.to_string(), "back when its probes pass once in a row");
}

#[test]
fn given_an_unhealthy_destination_when_one_probe_passes_then_it_is_back_at_once() {
    let mut case = Case::new(checked(1, 2));
    case.probe(false);
    case.probe(false);
    assert_eq!(case.probe(true), [Step::Readmitted]);
    assert_eq!(case.state(), State::Healthy);
}

#[test]
fn given_dual_thresholds_when_every_third_probe_fails_then_nothing_flaps() {
    let mut case = Case::new(checked(2, 3));
    for n in 0..60 {
        assert_eq!(case.probe(n % 3 != 2), [], "probe {n}");
    }
    assert_eq!(case.state(), State::Healthy);
}

#[test]
fn given_probe_first_when_probes_pass_then_nothing_until_healthy_after_in_a_row() {
    let mut case = Case::new(Settings { probe_first: true, ..checked(2, 3) });
    assert!(case.out());
    assert_eq!(case.state(), State::Unhealthy);
    assert_eq!(case.probe(true), []);
    assert!(case.out());
    assert_eq!(case.probe(true), [Step::Readmitted]);
    assert_eq!((case.told[0].reason, case.out()), (Reason::Unprobed, false));
}

#[test]
fn given_probe_first_when_the_first_probe_fails_then_it_is_marked_at_once() {
    let mut case = Case::new(Settings { probe_first: true, ..checked(1, 3) });
    assert_eq!(case.probe(false), [Step::MarkedOut]);
    assert_eq!(case.live.marks.reasons().collect::<Vec<_>>(), [Reason::Active, Reason::Unprobed]);
    assert!(!case.live.marks.is_overridable(), "no panic sends to what no probe has passed");
    assert_eq!(case.probe(true), [Step::Readmitted, Step::Readmitted]);
    assert!(!case.out());
}
