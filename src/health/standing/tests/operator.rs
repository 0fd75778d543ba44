use super::*;

#[test]
fn given_orders_with_a_time_when_it_is_over_then_they_end_by_themselves() {
    let mut case = Case::new(checked(1, 2));
    case.probe(true);
    for (order, state) in
        [(Override::Drain, State::Draining), (Override::Maint, State::Maintenance), (Override::Eject, State::Unhealthy)]
    {
        assert_eq!(case.order(Order::Override(order), Some(60)), [Step::MarkedOut]);
        assert_eq!((case.state(), case.live.in_maintenance()), (state, order == Override::Maint));
        assert_eq!(case.wait(60_000), [Step::Readmitted]);
        assert_eq!((case.state(), case.live.in_maintenance()), (State::Healthy, false));
    }
    assert_eq!(case.order(Order::Weight(Some(5)), Some(1)), [Step::Reweighted]);
    assert_eq!(case.live.weight(), Some(5));
    assert_eq!(case.wait(1_000), [Step::Reweighted]);
    assert_eq!(case.live.weight(), None);
}

#[test]
fn given_a_drained_destination_when_another_judge_objects_too_then_ready_lifts_only_the_order() {
    let mut case = Case::new(checked(1, 1));
    case.order(Order::Override(Override::Drain), None);
    case.probe(false);
    assert_eq!(case.order(Order::Ready, None), [Step::Readmitted]);
    assert_eq!(case.state(), State::Unhealthy);
    assert_eq!(case.order(Order::Ready, None), []);
}
