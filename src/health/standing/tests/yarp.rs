//! Its passive cases by number.

use super::*;

fn full(seconds: u64, minimum: u32, limit: f64, period: u64) -> Case {
    let how = Reactivating { full: true, period: Duration::from_secs(period), ..HOW };
    Case::new(passive(vec![rate(seconds, minimum, limit)], how))
}

/// Attempts, each followed by a pause; whether it was out after each.
fn run(case: &mut Case, outcomes: &[(Outcome, u64)]) -> Vec<bool> {
    let one = |&(outcome, pause): &(Outcome, u64)| {
        case.attempt(outcome);
        let out = case.out();
        case.now += Duration::from_millis(pause);
        out
    };
    outcomes.iter().map(one).collect()
}

#[test]
fn case_21_given_three_successes_and_three_failures_when_the_limit_is_a_half_then_out_at_the_third() {
    let mut case = full(30, 1, 0.5, 30);
    assert_eq!(run(&mut case, &[(OK, 4_000); 3]), [false; 3]);
    assert_eq!(run(&mut case, &[(BAD, 1_000); 3]), [false, false, true]);
}

#[test]
fn case_22_given_a_higher_limit_when_failures_go_on_then_out_when_the_old_successes_left_the_window() {
    let mut case = full(30, 1, 0.61, 100);
    run(&mut case, &[(OK, 1_000); 3]);
    assert_eq!(run(&mut case, &[(BAD, 1_000); 4]), [false; 4]);
    case.now += Duration::from_secs(6);
    assert_eq!(run(&mut case, &[(BAD, 0)]), [true]);
    assert_eq!(case.last().next, Next::FullTraffic { in_ms: 100_000, period_ms: 100_000, window_ms: 30_000 });
}

#[test]
fn case_23_given_failures_that_leave_the_window_when_others_come_then_the_rate_decides_each_time() {
    let mut case = full(30, 1, 0.5, 30);
    assert_eq!(run(&mut case, &[(BAD, 1_000); 2]), [true, true]);
    assert_eq!(run(&mut case, &[(OK, 5_000); 4]), [true, true, false, false]);
    assert_eq!(run(&mut case, &[(BAD, 1); 2]), [false, true]);
    case.now += Duration::from_millis(10_998);
    assert_eq!(run(&mut case, &[(OK, 1), (OK, 1), (BAD, 1)]), [false, false, false]);
}

#[test]
fn case_24_given_a_period_under_the_window_when_ejected_then_the_window_and_healthy_after_it() {
    let mut case = full(30, 1, 0.5, 10);
    case.attempt(BAD);
    assert_eq!(case.last().next.to_string(), "reactivation in 30s (period 10s raised to the 30s window)");
    assert_eq!(case.due(), Some(30));
    assert_eq!(case.wait(29_999), []);
    assert_eq!(case.wait(1), [Step::Readmitted]);
    assert_eq!(case.state(), State::Unknown);
    case.now += Duration::from_secs(1);
    assert_eq!(case.attempt(OK), []);
    assert_eq!(case.state(), State::Healthy);
}

#[test]
fn case_25_given_no_clock_movement_when_successes_follow_then_it_heals_at_once() {
    let mut case = full(30, 1, 0.5, 30);
    assert_eq!(run(&mut case, &[(OK, 0), (OK, 0), (BAD, 0), (BAD, 0)]), [false, false, false, true]);
    assert_eq!(run(&mut case, &[(OK, 0), (OK, 0)]), [false, false]);
}

#[test]
fn case_26_given_an_ejection_of_2_s_when_it_is_over_then_unknown_and_the_active_state_untouched() {
    let how = Reactivating { full: true, period: Duration::from_secs(2), ..HOW };
    let mut case = Case::new(Settings {
        active: Some(Thresholds { healthy_after: 1, unhealthy_after: 1 }),
        ..passive(vec![in_a_row(1)], how)
    });
    case.probe(false);
    case.attempt(BAD);
    assert_eq!(case.wait(2_000), [Step::Readmitted]);
    assert_eq!(case.live.marks.reasons().collect::<Vec<_>>(), [Reason::Active]);
    assert_eq!(case.told.last().map(|change| change.transition.is_none()), Some(true));
}

#[test]
fn case_27_given_the_state_it_has_when_set_again_then_neither_a_timer_nor_a_step() {
    let mut case = full(30, 1, 0.5, 30);
    case.attempt(BAD);
    case.now += Duration::from_secs(5);
    assert_eq!(case.attempt(BAD), []);
    assert_eq!(case.due(), Some(30));
}
