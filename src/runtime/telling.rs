//! What people are told of a step of health: one event for each.

use super::Cluster;
use super::cluster::Panic;
use crate::health::Change;
use crate::model::Member;
use crate::observe::event;
use std::time::SystemTime;

pub(super) fn step(cluster: &Cluster, member: &Member, change: &Change, at: SystemTime) {
    let metrics = cluster.destination_metrics(member);
    let endpoint = member.destination.endpoint.authority();
    let Some(explanation) = &change.explanation else { return };
    if let Some(transition) = &change.transition {
        let why = explanation.why();
        let reason = transition.reason.index();
        let change = event::HealthChange { to_healthy: transition.to_healthy, reason, at, why };
        event::health_changed(metrics, endpoint, change);
    }
}

pub(super) fn panic(cluster: &Cluster, panic: Panic) {
    match panic {
        Panic::Entered(destinations) => event::panic_entered(&cluster.metrics, destinations),
        Panic::Left(available) => event::panic_left(&cluster.metrics, available),
    }
}
