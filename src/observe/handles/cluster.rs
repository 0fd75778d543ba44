//! What is told of a cluster as a whole.

use super::super::metrics::{Metrics, Row};
use super::super::page::{Page, histogram};
use super::super::throttle::Throttle;
use super::destination::{UPSTREAM_ERRORS, count};
use super::zeros;
use prometheus::Histogram;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Instant;

/// Values of label `reason` of `upstream_retries_total`, beside [`UPSTREAM_ERRORS`].
const STATUS: &str = "status";

/// Values of label `reason` of `upstream_retries_denied_total`; [`ClusterMetrics::retry_denied`] takes the index.
pub const RETRIES_DENIED: &[&str; 7] =
    &["answered", "method", "body_sent", "limit", "budget", "no_destination", "timeout"];

/// What became of a request that found every destination full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueResult {
    Served,
    /// The queue was full too.
    Full,
    Deadline,
    NoDestination,
    ClientLeft,
}

const QUEUE_RESULTS: [&str; 5] = ["served", "full", "deadline", "no_destination", "client_left"];

/// Counts of one cluster.
#[derive(Clone)]
pub struct ClusterMetrics(pub(super) Arc<Cluster>);

pub(in super::super) struct Cluster {
    pub(super) name: String,
    pub(super) probes: Histogram,
    header: Histogram,
    connect: Histogram,
    connected: AtomicU64,
    reused: AtomicU64,
    panic: AtomicBool,
    /// The bits of a number a second.
    probe_rate: AtomicU64,
    ejections_skipped: AtomicU64,
    retries: [AtomicU64; UPSTREAM_ERRORS.len()],
    status_retries: AtomicU64,
    retries_denied: [AtomicU64; RETRIES_DENIED.len()],
    queue: Histogram,
    queue_length: AtomicU64,
    queued: [AtomicU64; QUEUE_RESULTS.len()],
    failovers: AtomicU64,
    canary: Canary,
    affinity: Sessions,
    destinations: [AtomicU64; STATES.len()],
    no_destination: Throttle,
}

/// Of a cluster that has one; told from the first word on.
#[derive(Default)]
struct Canary {
    told: AtomicBool,
    /// Requests by [`ARMS`].
    requests: [AtomicU64; ARMS.len()],
    permille: AtomicU64,
    rests: AtomicBool,
}

/// Of a cluster that binds sessions; told from the first word on.
struct Sessions {
    told: AtomicBool,
    requests: [AtomicU64; Affinity::ALL.len()],
    lost: Throttle,
}

/// What became of a request's session: the values of label `result` of `affinity_requests_total`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Affinity {
    /// Its destination took the request.
    Hit,
    /// It was bound.
    New,
    /// To another destination.
    Rebound,
    Refused,
}

impl Affinity {
    const ALL: [Affinity; 4] = [Affinity::Hit, Affinity::New, Affinity::Rebound, Affinity::Refused];

    pub fn as_str(self) -> &'static str {
        match self {
            Affinity::Hit => "hit",
            Affinity::New => "new",
            Affinity::Rebound => "rebound",
            Affinity::Refused => "refused",
        }
    }
}

/// Values of label `arm` of `canary_requests_total`.
const ARMS: [&str; 2] = ["primary", "canary"];

/// How many destinations a cluster has in each state. They overlap: a healthy one may be draining.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Destinations {
    /// Named by the configuration or found by discovery.
    pub configured: usize,
    /// Without a mark.
    pub healthy: usize,
    /// That may be drawn for what they are, a panic aside.
    pub available: usize,
    /// Taking no new requests by the operator's order.
    pub draining: usize,
    /// Out by a passive detector.
    pub ejected: usize,
}

const STATES: [&str; 5] = ["configured", "healthy", "available", "draining", "ejected"];

impl Metrics {
    pub fn cluster(&self, cluster: &str) -> ClusterMetrics {
        ClusterMetrics(self.series.clusters.get([cluster], || Cluster {
            name: cluster.to_owned(),
            probes: histogram(Row::HealthCheckDuration),
            header: histogram(Row::UpstreamHeaderDuration),
            connect: histogram(Row::UpstreamConnectDuration),
            connected: AtomicU64::new(0),
            reused: AtomicU64::new(0),
            panic: AtomicBool::new(false),
            probe_rate: AtomicU64::new(0),
            ejections_skipped: AtomicU64::new(0),
            retries: zeros(),
            status_retries: AtomicU64::new(0),
            retries_denied: zeros(),
            queue: histogram(Row::QueueDuration),
            queue_length: AtomicU64::new(0),
            queued: zeros(),
            failovers: AtomicU64::new(0),
            canary: Canary::default(),
            affinity: Sessions {
                told: AtomicBool::new(false),
                requests: zeros(),
                lost: Throttle::new(self.series.born),
            },
            destinations: zeros(),
            no_destination: Throttle::new(self.series.born),
        }))
    }
}

impl ClusterMetrics {
    /// The cluster's name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// An attempt made a new connection, in so many seconds, TLS included.
    pub fn connected(&self, seconds: f64) {
        self.0.connected.fetch_add(1, Relaxed);
        self.0.connect.observe(seconds);
    }

    /// An attempt took a connection from the pool.
    pub fn reused(&self) {
        self.0.reused.fetch_add(1, Relaxed);
    }

    /// A response header came, so many seconds after its attempt began.
    pub fn header(&self, seconds: f64) {
        self.0.header.observe(seconds);
    }

    /// A request is tried again; `reason` is an index into [`UPSTREAM_ERRORS`], none for a status.
    pub fn retried(&self, reason: Option<usize>) {
        match reason {
            Some(reason) => count(&self.0.retries, reason),
            None => drop(self.0.status_retries.fetch_add(1, Relaxed)),
        }
    }

    /// A request would have been tried again; `reason` is an index into [`RETRIES_DENIED`].
    pub fn retry_denied(&self, reason: usize) {
        count(&self.0.retries_denied, reason);
    }

    /// A request begins to wait for a place.
    pub fn queued(&self, now: Instant) -> Queued {
        self.0.queue_length.fetch_add(1, Relaxed);
        Queued { cluster: self.0.clone(), since: now, result: QueueResult::ClientLeft }
    }

    /// A request found every destination full, and the queue too.
    pub fn queue_full(&self) {
        count(&self.0.queued, QueueResult::Full as usize);
    }

    /// A request reached the failovers.
    pub fn failed_over(&self) {
        self.0.failovers.fetch_add(1, Relaxed);
    }

    /// A new request went to a canary, or not, where there is one.
    pub fn canary_request(&self, to_canary: bool) {
        count(&self.0.canary.requests, usize::from(to_canary));
    }

    /// The share of new requests that go to a canary, in tenths of a percent, and whether it is in its cool-down.
    pub fn set_canary(&self, permille: u32, rests: bool) {
        let canary = &self.0.canary;
        canary.permille.store(u64::from(permille), Relaxed);
        canary.rests.store(rests, Relaxed);
        canary.told.store(true, Relaxed);
    }

    /// It binds sessions.
    pub fn binds_sessions(&self) {
        self.0.affinity.told.store(true, Relaxed);
    }

    /// A request is over whose session came to this.
    pub fn affinity(&self, result: Affinity) {
        count(&self.0.affinity.requests, result as usize);
    }

    /// Whether unhealthy destinations get traffic because no healthy one is left.
    pub fn set_panic(&self, panic: bool) {
        self.0.panic.store(panic, Relaxed);
    }

    /// Probes a second that it asks for.
    pub fn set_probe_rate(&self, per_second: f64) {
        self.0.probe_rate.store(per_second.to_bits(), Relaxed);
    }

    /// A detector fired, and as many were ejected already as may be.
    pub fn ejection_skipped(&self) {
        self.0.ejections_skipped.fetch_add(1, Relaxed);
    }

    pub fn set_destinations(&self, count: Destinations) {
        let Destinations { configured, healthy, available, draining, ejected } = count;
        for (gauge, value) in self.0.destinations.iter().zip([configured, healthy, available, draining, ejected]) {
            gauge.store(value as u64, Relaxed);
        }
    }

    pub(in super::super) fn session_lost(&self) -> &Throttle {
        &self.0.affinity.lost
    }

    pub(in super::super) fn no_destination(&self) -> &Throttle {
        &self.0.no_destination
    }
}

/// A request that waits; its client has left when it is dropped without an [`end`](Queued::end).
pub struct Queued {
    cluster: Arc<Cluster>,
    since: Instant,
    result: QueueResult,
}

impl Queued {
    pub fn end(mut self, result: QueueResult) {
        self.result = result;
    }
}

impl Drop for Queued {
    fn drop(&mut self) {
        self.cluster.queue_length.fetch_sub(1, Relaxed);
        self.cluster.queue.observe(self.since.elapsed().as_secs_f64());
        count(&self.cluster.queued, self.result as usize);
    }
}

impl Cluster {
    pub(in super::super) fn collect(&self, page: &mut Page) {
        let name = self.name.as_str();
        page.histogram(Row::HealthCheckDuration, &[name], &self.probes);
        page.histogram(Row::UpstreamHeaderDuration, &[name], &self.header);
        page.histogram(Row::UpstreamConnectDuration, &[name], &self.connect);
        page.counter(Row::UpstreamConnections, &[name, "false"], &self.connected);
        page.counter(Row::UpstreamConnections, &[name, "true"], &self.reused);
        for (reason, retries) in UPSTREAM_ERRORS.iter().zip(&self.retries) {
            page.counter(Row::UpstreamRetries, &[name, reason], retries);
        }
        page.counter(Row::UpstreamRetries, &[name, STATUS], &self.status_retries);
        for (reason, denied) in RETRIES_DENIED.iter().zip(&self.retries_denied) {
            page.counter(Row::RetriesDenied, &[name, reason], denied);
        }
        page.gauge(Row::QueueLength, &[name], self.queue_length.load(Relaxed) as f64);
        for (result, queued) in QUEUE_RESULTS.iter().zip(&self.queued) {
            page.counter(Row::Queued, &[name, result], queued);
        }
        page.histogram(Row::QueueDuration, &[name], &self.queue);
        page.counter(Row::Failovers, &[name], &self.failovers);
        self.canary.collect(name, page);
        if self.affinity.told.load(Relaxed) {
            for (result, requests) in Affinity::ALL.iter().zip(&self.affinity.requests) {
                page.counter(Row::Affinity, &[name, result.as_str()], requests);
            }
        }
        page.counter(Row::EjectionsSkipped, &[name], &self.ejections_skipped);
        page.gauge(Row::PanicMode, &[name], f64::from(self.panic.load(Relaxed)));
        page.gauge(Row::ProbesExpected, &[name], f64::from_bits(self.probe_rate.load(Relaxed)));
        for (state, value) in STATES.iter().zip(&self.destinations) {
            page.gauge(Row::Destinations, &[name, state], value.load(Relaxed) as f64);
        }
    }
}

impl Canary {
    fn collect(&self, cluster: &str, page: &mut Page) {
        if !self.told.load(Relaxed) {
            return;
        }
        for (arm, requests) in ARMS.iter().zip(&self.requests) {
            page.counter(Row::CanaryRequests, &[cluster, arm], requests);
        }
        page.gauge(Row::CanaryShare, &[cluster], self.permille.load(Relaxed) as f64 / 1000.0);
        page.gauge(Row::CanaryCooldown, &[cluster], f64::from(self.rests.load(Relaxed)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_a_cluster_when_it_is_told_of_then_each_fact_stands_in_its_own_series() {
        let metrics = Metrics::new();
        let cluster = metrics.cluster("catalog");
        cluster.connected(0.3);
        cluster.reused();
        cluster.reused();
        cluster.header(0.02);
        cluster.set_panic(true);
        cluster.set_probe_rate(0.4);
        cluster.ejection_skipped();
        cluster.retried(None);
        (0..2).for_each(|_| cluster.retried(Some(6)));
        cluster.retry_denied(4);
        cluster.queue_full();
        let waits = cluster.queued(Instant::now());
        cluster.queued(Instant::now()).end(QueueResult::Served);
        drop(cluster.queued(Instant::now()));
        cluster.failed_over();
        cluster.canary_request(true);
        cluster.set_canary(5, true);
        cluster.set_destinations(Destinations { configured: 5, healthy: 4, available: 3, draining: 2, ejected: 1 });
        let page = metrics.render();
        for line in [
            "upstream_connect_duration_seconds_sum{cluster=\"catalog\"} 0.3",
            "upstream_response_header_duration_seconds_sum{cluster=\"catalog\"} 0.02",
            "upstream_health_check_duration_seconds_count{cluster=\"catalog\"} 0",
            "upstream_connections_total{cluster=\"catalog\",reused=\"false\"} 1",
            "upstream_connections_total{cluster=\"catalog\",reused=\"true\"} 2",
            "cluster_panic_mode{cluster=\"catalog\"} 1",
            "probes_per_second_expected{cluster=\"catalog\"} 0.4",
            "upstream_retries_total{cluster=\"catalog\",reason=\"status\"} 1",
            "upstream_retries_total{cluster=\"catalog\",reason=\"reset\"} 2",
            "upstream_retries_denied_total{cluster=\"catalog\",reason=\"budget\"} 1",
            "cluster_queue_length{cluster=\"catalog\"} 1",
            "cluster_queued_total{cluster=\"catalog\",result=\"full\"} 1",
            "cluster_queued_total{cluster=\"catalog\",result=\"served\"} 1",
            "cluster_queued_total{cluster=\"catalog\",result=\"client_left\"} 1",
            "cluster_queue_duration_seconds_count{cluster=\"catalog\"} 2",
            "failovers_total{cluster=\"catalog\"} 1",
            "canary_requests_total{cluster=\"catalog\",arm=\"canary\"} 1",
            "canary_requests_total{cluster=\"catalog\",arm=\"primary\"} 0",
            "canary_share{cluster=\"catalog\"} 0.005",
            "canary_cooldown{cluster=\"catalog\"} 1",
            "upstream_ejections_skipped_total{cluster=\"catalog\"} 1",
            "cluster_destinations{cluster=\"catalog\",state=\"configured\"} 5",
            "cluster_destinations{cluster=\"catalog\",state=\"healthy\"} 4",
            "cluster_destinations{cluster=\"catalog\",state=\"available\"} 3",
            "cluster_destinations{cluster=\"catalog\",state=\"draining\"} 2",
            "cluster_destinations{cluster=\"catalog\",state=\"ejected\"} 1",
        ] {
            assert!(page.contains(&format!("\nderbent_{line}\n")), "{line} in\n{page}");
        }
        drop(waits);
    }
}
