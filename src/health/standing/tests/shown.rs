use super::*;

#[test]
fn given_a_mark_that_stands_for_long_when_the_history_forgot_it_then_why_it_was_set_is_still_told() {
    let mut case = Case::new(passive(vec![in_a_row(1)], HOW));
    case.order(Order::Override(Override::Drain), None);
    case.attempt(BAD);
    for _ in 0..2 * HISTORY {
        case.wait(300_000);
        case.trial(BAD);
    }
    assert!(case.standing.history().all(|step| step.decision.reason == Reason::Passive));
    let drained = case.standing.marked(Reason::Operator).expect("it stands");
    assert_eq!((drained.times, drained.set.why().as_str()), (1, "drain, by 127.0.0.1"));
    let ejected = case.standing.marked(Reason::Passive).expect("it stands");
    assert_eq!((ejected.times as usize, ejected.first.decision.step), (2 * HISTORY + 1, Step::Ejected));
    assert_eq!((ejected.set.why().as_str(), ejected.half_open.is_some()), ("a trial failed: refused", false));
    case.wait(300_000);
    let half_open = case.standing.marked(Reason::Passive).expect("it stands");
    assert_eq!(half_open.last().decision.step, Step::HalfOpen);
    case.trial(OK);
    assert!(case.standing.marked(Reason::Passive).is_none());
}

#[test]
fn given_states_that_change_when_asked_since_when_then_the_last_change_and_none_before_any() {
    let mut case = Case::new(passive(vec![in_a_row(2)], HOW));
    let at = |case: &Case| case.standing.since().map(|since| since.0);
    case.wait(1_000);
    assert_eq!((case.state(), at(&case)), (State::Unknown, None));
    case.attempt(OK);
    case.wait(1_000);
    case.attempt(BAD);
    assert_eq!((case.state(), at(&case)), (State::Healthy, Some(1_000)));
    case.attempt(BAD);
    case.wait(10_000);
    assert_eq!((case.state(), at(&case)), (State::HalfOpen, Some(12_000)));
    case.order(Order::Weight(Some(5)), Some(60));
    case.order(Order::Override(Override::Maint), None);
    assert_eq!((case.state(), at(&case)), (State::Maintenance, Some(12_000)));
    let held: Vec<(Order, Option<u64>)> = case
        .standing
        .orders()
        .map(|held| (held.order, held.until.map(|until| (until - case.start).as_secs())))
        .collect();
    assert_eq!(held, [(Order::Override(Override::Maint), None), (Order::Weight(Some(5)), Some(72))]);
    case.wait(60_000);
    assert_eq!(case.standing.orders().count(), 1);
}
