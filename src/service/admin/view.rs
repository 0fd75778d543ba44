//! What the admin listener shows of the clusters.

use super::told::{Told, joined};
use crate::model::{Member, Reason, WHOLE};
use crate::observe::{Departure, Metrics};
use crate::runtime::{CanaryView, Cluster, Runtime};
use serde_json::{Value, json};
use std::time::Instant;

/// Who is on its leave stands beside the clusters too: its own may be gone.
pub fn clusters(runtime: &Runtime, now: Instant) -> Value {
    let all = runtime.leaving();
    let clusters: Vec<Value> = runtime.pin().clusters.iter().map(|of| cluster(of, &all, now)).collect();
    json!({ "clusters": clusters, "leaving": leaving(all.iter(), now) })
}

/// `all` are on their leave; shown are those of the cluster.
pub fn cluster(cluster: &Cluster, all: &[Departure], now: Instant) -> Value {
    let published = cluster.published();
    let count = |is: &dyn Fn(&Member) -> bool| cluster.members.iter().filter(|member| is(member)).count();
    json!({
        "name": cluster.name,
        "panic": published.primaries.panic,
        "available": published.primaries.set.len(),
        "ejected": count(&|member| member.live.marks.has(Reason::Passive)),
        "canary": cluster.canary_view(now).map(canary),
        "half_open": count(&|member| member.live.marks.is_on_trial()),
        "destinations": cluster.members.iter().map(|member| destination(cluster, member, now)).collect::<Vec<_>>(),
        "leaving": leaving(all.iter().filter(|departure| departure.cluster == cluster.name), now),
    })
}

fn leaving<'a>(departures: impl Iterator<Item = &'a Departure>, now: Instant) -> Value {
    let one = |of: &Departure| {
        json!({
            "cluster": of.cluster,
            "destination": of.destination,
            "address": of.address,
            "reason": of.why.label(),
            "for_s": now.saturating_duration_since(of.since).as_secs_f64(),
            "in_flight": of.requests,
            "connections": of.connections,
        })
    };
    departures.map(one).collect()
}

fn canary(view: CanaryView) -> Value {
    json!({
        "percent": f64::from(view.permille) / 10.0,
        "ordered": view.ordered,
        "cooldown_left_s": view.rests.map(|left| left.as_secs_f64()),
    })
}

pub fn destination(cluster: &Cluster, member: &Member, now: Instant) -> Value {
    let told = Told::of(cluster, member, &cluster.standing(member), now);
    let destination = &member.destination;
    json!({
        "id": destination.id,
        "address": destination.endpoint.to_string(),
        "role": destination.role.as_str(),
        "state": told.state.as_str(),
        "since": told.since.map(|since| since.to_string()),
        "available": told.available,
        "marks": marks(&told),
        "why": joined(&told.why()),
        "next": joined(&told.next()),
        "in_flight": member.live.in_flight(),
        "connections": member.live.sockets.count(),
        "weight": destination.weight,
        "effective_weight": f64::from(member.effective_weight()) / f64::from(WHOLE),
        "last_probe": told.last_probe,
        "overrides": told.overrides(),
    })
}

pub fn marks(told: &Told) -> Vec<&'static str> {
    told.marks.iter().map(|(reason, _)| reason.as_str()).collect()
}

/// Writes what only a scrape asks for.
pub fn gauges(runtime: &Runtime, metrics: &Metrics, now: Instant) {
    metrics.set_leaving(runtime.leaving());
    for cluster in &runtime.pin().clusters {
        cluster.gauge(now);
        for member in &cluster.members {
            let attempts = i64::from(member.live.in_flight());
            let metrics = cluster.destination_metrics(member);
            metrics.set_in_flight(attempts);
            metrics.set_idle_timeout(member.live.idle.time(cluster.upstream(member).idle_timeout(), now));
            cluster.gauges(member);
        }
    }
}
