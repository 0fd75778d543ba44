//! What people are told of a step of health: one event for each.

use super::Cluster;
use super::cluster::Panic;
use crate::health::{Change, Circuit, Explanation, Next, Override, Rule, Step};
use crate::model::{Member, Reason};
use crate::observe::{AdminState, BreakerState, event};
use std::time::SystemTime;

pub(super) fn step(cluster: &Cluster, member: &Member, change: &Change, at: SystemTime) {
    let metrics = cluster.destination_metrics(member);
    let endpoint = member.destination.endpoint.authority();
    let Some(told) = change.explanation.as_deref() else {
        return event::ejection_skipped(metrics, endpoint, "", "", false);
    };
    if change.reason == Reason::Operator {
        order(cluster, member, told);
    }
    let (why, next) = (told.why(), &told.next);
    match change.step {
        Step::EjectionSkipped => {
            return event::ejection_skipped(metrics, endpoint, why, told.limit(), true);
        }
        Step::EjectedAgain => return event::ejected_again(metrics, endpoint, why, next),
        Step::HalfOpen if change.reason == Reason::Passive => {
            return event::half_open(metrics, endpoint, why, next);
        }
        Step::HalfOpen => return event::breaker_changed(metrics, endpoint, BreakerState::HalfOpen, why, next),
        Step::CircuitOpened => event::breaker_changed(metrics, &endpoint, BreakerState::Open, &why, next),
        Step::CircuitClosed => event::breaker_changed(metrics, &endpoint, BreakerState::Closed, &why, &Next::Nothing),
        Step::Reweighted => return,
        Step::MarkedOut | Step::Readmitted | Step::Ejected => {}
    }
    let detector = match &told.rule {
        Rule::Detector { policy, .. } => Some(policy.as_str()),
        _ => None,
    };
    let to_healthy = matches!(change.step, Step::Readmitted | Step::CircuitClosed);
    let reason = change.reason.index();
    let health = event::HealthChange { to_healthy, reason, detector, at, why, next };
    match change.transition {
        Some(_) => event::health_changed(metrics, endpoint, health),
        None => event::mark_changed(metrics, endpoint, health),
    }
}

pub(super) fn breaker(circuit: Circuit) -> BreakerState {
    match circuit {
        Circuit::Closed => BreakerState::Closed,
        Circuit::Open { .. } => BreakerState::Open,
        Circuit::HalfOpen { .. } => BreakerState::HalfOpen,
    }
}

pub(super) fn panic(cluster: &Cluster, panic: Panic) {
    match panic {
        Panic::Entered { available, enabled, serving } => {
            event::panic_entered(&cluster.metrics, available, enabled, serving);
        }
        Panic::Left { available, enabled } => event::panic_left(&cluster.metrics, available, enabled),
    }
}

fn order(cluster: &Cluster, member: &Member, told: &Explanation) {
    let Rule::Operator { order, by } = &told.rule else { return };
    let metrics = cluster.destination_metrics(member);
    let endpoint = member.destination.endpoint.authority();
    let state = match cluster.standing(member).order() {
        None => AdminState::Ready,
        Some(Override::Drain) => AdminState::Drain,
        Some(Override::Maint) => AdminState::Maint,
        Some(Override::Eject) => AdminState::Eject,
    };
    if told.by_time() {
        return event::override_ended(metrics, endpoint, state, order, "its time is over");
    }
    let until = told.next_at().map_or(String::new(), |at| at.to_string());
    event::overridden(metrics, endpoint, state, order, by, until);
}
