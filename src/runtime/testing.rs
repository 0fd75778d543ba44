//! Clusters for tests, compiled as every other.

use super::{Cluster, Registry, compile};
use crate::config::Config;
use crate::discovery::SystemNames;
use crate::observe::Metrics;
use std::sync::Arc;

/// A cluster of destinations by their ids.
pub fn cluster(policy: &str, ids: &[&str]) -> Arc<Cluster> {
    let written: Vec<String> =
        (0..ids.len()).map(|i| format!("{{ address: \"http://127.0.0.1:{}\" }}", 7_001 + i)).collect();
    build(policy, ids.iter().copied().zip(written.iter().map(String::as_str)))
}

/// A cluster of destinations as they are written.
pub fn cluster_of(policy: &str, written: &[&str]) -> Arc<Cluster> {
    const IDS: [&str; 4] = ["a", "b", "c", "d"];
    build(policy, IDS.into_iter().zip(written.iter().copied()))
}

fn build<'a>(policy: &str, destinations: impl Iterator<Item = (&'a str, &'a str)>) -> Arc<Cluster> {
    let destinations: String = destinations.map(|(id, written)| format!("      {id}: {written}\n")).collect();
    let text = format!(
        "listeners: {{ web: \"127.0.0.1:1\" }}\nroutes: {{ all: {{ cluster: c }} }}\nclusters:\n  c:\n    load_balancing: \
         {policy}\n    destinations:\n{destinations}"
    );
    let config = Config::parse("test", &text).expect("a valid file");
    let snapshot = compile(&config, &Registry::builtin(), &SystemNames, &Metrics::new(), config.problems());
    snapshot.expect("no faults").clusters[0].clone()
}
