//! What the admin listener shows of the clusters.

use crate::model::Member;
use crate::runtime::{Cluster, Snapshot};
use serde_json::{Value, json};

pub fn clusters(snapshot: &Snapshot) -> Value {
    let clusters: Vec<Value> = snapshot.clusters.iter().map(|cluster| of(cluster)).collect();
    json!({ "clusters": clusters })
}

pub fn cluster(snapshot: &Snapshot, name: &str) -> Option<Value> {
    snapshot.cluster(name).map(|cluster| of(cluster))
}

fn of(cluster: &Cluster) -> Value {
    let published = cluster.published();
    let available = |member: &Member| published.set.iter().any(|other| other.index == member.index);
    let destination = |member: &std::sync::Arc<Member>| {
        let destination = &member.destination;
        json!({
            "id": destination.id,
            "address": destination.endpoint.to_string(),
            "state": cluster.state(member).as_str(),
            "available": available(member),
            "in_flight": member.live.in_flight(),
            "weight": destination.weight,
            "last_probe": cluster.last_cause(member),
        })
    };
    json!({
        "name": cluster.name,
        "panic": published.panic,
        "available": published.set.len(),
        "destinations": cluster.members.iter().map(destination).collect::<Vec<_>>(),
    })
}

/// Writes what only a scrape asks for.
pub fn gauges(snapshot: &Snapshot) {
    for cluster in &snapshot.clusters {
        for member in &cluster.members {
            let attempts = i64::from(member.live.in_flight());
            cluster.destination_metrics(member).set_in_flight(attempts);
            cluster.gauges(member);
        }
    }
}
