//! Clusters for tests, compiled as every other.

use super::{Cluster, Registry, Scene, Snapshot, compile};
use crate::config::Config;
use crate::discovery::SystemNames;
use crate::model::Epoch;
use crate::observe::Metrics;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

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
    compiled(&text).1.clusters[0].clone()
}

/// A whole file.
pub fn compiled(text: &str) -> (Config, Snapshot) {
    let config = Config::parse("test", text).unwrap_or_else(|faults| panic!("{faults}"));
    let epoch = Epoch { instant: Instant::now(), wall: SystemTime::UNIX_EPOCH };
    let scene =
        Scene { registry: &Registry::builtin(), names: &SystemNames, metrics: &Metrics::new(), epoch, serving: None };
    let snapshot = compile(&config, &scene, config.problems()).unwrap_or_else(|faults| panic!("{faults}"));
    (config, snapshot)
}
