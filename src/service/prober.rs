//! Probes every enabled destination of a cluster with an active check, each at its own jittered pace, so that one that
//! hangs never delays another's verdict. Each target has a registry of pingora-load-balancing to itself, which runs the
//! check; what a result means is the cluster's to judge.
//!
//! Deliberately not here: Pingora's own loop over all targets, which paces them all by the slowest.

use super::Lifecycle;
use crate::health::Event;
use crate::health::active::{Connectors, Finding, Observed, ProbeResult};
use crate::model::{Dice, Member};
use crate::observe::{self, event};
use crate::runtime::{CheckPlan, Cluster, Runtime};
use async_trait::async_trait;
use pingora::protocols::l4::socket::SocketAddr;
use pingora::server::ShutdownWatch;
use pingora::services::background::BackgroundService;
use pingora_load_balancing::discovery::Static;
use pingora_load_balancing::{Backend, Backends, HealthRegistry};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};

pub struct Prober {
    runtime: Arc<Runtime>,
    lifecycle: Arc<Lifecycle>,
}

impl Prober {
    pub fn new(runtime: Arc<Runtime>, lifecycle: Arc<Lifecycle>) -> Self {
        Prober { runtime, lifecycle }
    }
}

#[async_trait]
impl BackgroundService for Prober {
    async fn start(&self, mut shutdown: ShutdownWatch) {
        let snapshot = self.runtime.pin();
        // Closed when every task dropped its sender, which it does after its first result.
        let (first_result, mut first_round) = mpsc::channel::<()>(1);
        let mut longest = Duration::ZERO;
        let connectors = Arc::new(Connectors::default());
        let mut tasks = tokio::task::JoinSet::new();
        for cluster in &snapshot.clusters {
            let Some(check) = &cluster.check else { continue };
            for member in cluster.members.iter().filter(|member| member.destination.enabled) {
                longest = longest.max(check.timeout);
                let target = (cluster.clone(), member.clone());
                tasks.spawn(watch(target, connectors.clone(), first_result.clone()));
            }
        }
        drop(first_result);
        let grace = longest + Duration::from_secs(1);
        let _ = timeout(grace, first_round.recv()).await;
        self.lifecycle.set_ready();
        while !*shutdown.borrow() && shutdown.changed().await.is_ok() {}
    }
}

/// Probes one destination for as long as the process lives.
async fn watch(
    (cluster, member): (Arc<Cluster>, Arc<Member>),
    connectors: Arc<Connectors>,
    first_result: mpsc::Sender<()>,
) {
    let Some(check) = &cluster.check else { return };
    // The view is what keeps the target in the registry.
    let (registry, _view) = registry(&cluster, &member, check, &connectors).await;
    let mut begun = Instant::now();
    registry.run_health_check(false).await;
    drop(first_result);
    loop {
        sleep_until(begun + pause(check.interval, check.jitter, &mut Dice::new())).await;
        begun = Instant::now();
        registry.run_health_check(false).await;
    }
}

/// A registry whose one target is the destination and whose check hands every result to the cluster.
async fn registry(
    cluster: &Arc<Cluster>,
    member: &Arc<Member>,
    check: &CheckPlan,
    connectors: &Arc<Connectors>,
) -> (Arc<HealthRegistry>, Backends) {
    let registry = Arc::new(HealthRegistry::new());
    let judge = (cluster.clone(), member.clone());
    registry.set_health_check(Box::new(Observed {
        probe: check.kind.prepare(&cluster.upstream(member).probe_target(), connectors),
        timeout: check.timeout,
        observe: move |finding| found(&judge.0, &judge.1, finding),
    }));
    let destination = &member.destination;
    let endpoint = destination.health_endpoint.as_ref().unwrap_or(&destination.endpoint);
    let target = Backend { addr: SocketAddr::Inet(endpoint.socket), weight: 1, ext: Default::default() };
    let view = Backends::new_with_health_registry(Static::new(BTreeSet::from([target])), registry.clone());
    // A static list cannot fail to be discovered.
    let _ = view.update(|_| {}).await;
    (registry, view)
}

fn found(cluster: &Cluster, member: &Member, finding: Finding) {
    let result = match finding.result {
        ProbeResult::Success => observe::ProbeResult::Success,
        ProbeResult::Failure => observe::ProbeResult::Failure,
        ProbeResult::Timeout => observe::ProbeResult::Timeout,
        ProbeResult::Error | ProbeResult::NotMade => observe::ProbeResult::Error,
    };
    let destination = &member.destination;
    let endpoint = destination.health_endpoint.as_ref().unwrap_or(&destination.endpoint);
    let metrics = cluster.destination_metrics(member);
    event::probe_result(metrics, endpoint.authority(), result, &finding.cause, finding.took);
    if finding.result == ProbeResult::NotMade {
        // Else a flood of clients that takes all descriptors would take all destinations out.
        return;
    }
    let passed = finding.result == ProbeResult::Success;
    let now = std::time::Instant::now();
    let begun = now.checked_sub(finding.took).unwrap_or(now);
    cluster.judge(member, Event::Probe { passed, cause: finding.cause, begun }, now);
}

/// From the start of one probe to the start of the next: the interval, up to `jitter` of it more or less.
fn pause(interval: Duration, jitter: f64, dice: &mut Dice) -> Duration {
    interval.mul_f64(1.0 + jitter * (2.0 * dice.f64() - 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_a_jitter_when_paused_then_within_its_share_and_not_always_the_same() {
        let mut dice = Dice::with_seed(1);
        let pauses: Vec<f64> =
            (0..1000).map(|_| pause(Duration::from_secs(10), 0.1, &mut dice).as_secs_f64()).collect();
        assert!(pauses.iter().all(|pause| (9.0..=11.0).contains(pause)));
        assert!(pauses.iter().any(|p| *p < 9.2) && pauses.iter().any(|p| *p > 10.8));
        assert_eq!(pause(Duration::from_secs(10), 0.0, &mut dice), Duration::from_secs(10));
    }
}
