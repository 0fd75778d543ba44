//! What came of a destination's attempts and probes.

use super::super::metrics::{Metrics, Row};
use super::super::page::Page;
use super::super::throttle::Throttle;
use super::health::Health;
use super::{CODE_CLASSES, ClusterMetrics, code_class, zeros};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Values of label `reason` of `upstream_errors_total`; [`DestinationMetrics::failed`] takes the index.
pub const UPSTREAM_ERRORS: &[&str; 12] = &[
    "dns",
    "refused",
    "unreachable",
    "connect_timeout",
    "tls",
    "read_timeout",
    "reset",
    "protocol",
    "client_abort",
    "route_timeout",
    "local",
    "overload",
];

/// What came of one probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProbeResult {
    /// The answer that the check asks for.
    Success,
    /// Another answer.
    Failure,
    /// No answer within the check's timeout.
    Timeout,
    /// No answer for another reason: refused, reset, not HTTP.
    Error,
}

impl ProbeResult {
    const ALL: [ProbeResult; 4] =
        [ProbeResult::Success, ProbeResult::Failure, ProbeResult::Timeout, ProbeResult::Error];

    /// The word that stands in metrics.
    pub fn label(self) -> &'static str {
        match self {
            ProbeResult::Success => "success",
            ProbeResult::Failure => "failure",
            ProbeResult::Timeout => "timeout",
            ProbeResult::Error => "error",
        }
    }
}

/// Counts of one destination of one cluster.
#[derive(Clone)]
pub struct DestinationMetrics(pub(super) Arc<Destination>);

pub(in super::super) struct Destination {
    cluster: ClusterMetrics,
    name: String,
    answered: [AtomicU64; CODE_CLASSES.len()],
    failed: [AtomicU64; UPSTREAM_ERRORS.len()],
    probes: [AtomicU64; ProbeResult::ALL.len()],
    pub(super) health: Health,
    probe_stale: AtomicBool,
    in_flight: AtomicI64,
    /// In milliseconds.
    idle_timeout: AtomicU64,
    idle_time: Throttle,
    /// By reason, so that a rare one is told beside a frequent one.
    forward_error: [Throttle; UPSTREAM_ERRORS.len()],
}

impl Metrics {
    /// Healthy until told otherwise.
    pub fn destination(&self, cluster: &str, destination: &str) -> DestinationMetrics {
        DestinationMetrics(self.series.destinations.get([cluster, destination], || Destination {
            cluster: self.cluster(cluster),
            name: destination.to_owned(),
            answered: zeros(),
            failed: zeros(),
            probes: zeros(),
            health: Health::new(),
            probe_stale: AtomicBool::new(false),
            in_flight: AtomicI64::new(0),
            idle_timeout: AtomicU64::new(0),
            idle_time: Throttle::new(self.series.born),
            forward_error: std::array::from_fn(|_| Throttle::new(self.series.born)),
        }))
    }
}

impl DestinationMetrics {
    /// The destination's name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The cluster that it is in.
    pub fn cluster(&self) -> &ClusterMetrics {
        &self.0.cluster
    }

    /// An attempt got a response of this status, whatever came of its body.
    pub fn answered(&self, status: u16) {
        self.0.answered[code_class(status)].fetch_add(1, Relaxed);
    }

    /// An attempt failed. `reason` is an index into [`UPSTREAM_ERRORS`].
    pub fn failed(&self, reason: usize) {
        count(&self.0.failed, reason);
    }

    /// A probe ended, after so many seconds.
    pub fn probe(&self, result: ProbeResult, seconds: f64) {
        self.0.probes[result as usize].fetch_add(1, Relaxed);
        self.0.cluster.0.probes.observe(seconds);
    }

    /// Whether results of its probes stay away.
    pub fn set_probe_stale(&self, stale: bool) {
        self.0.probe_stale.store(stale, Relaxed);
    }

    /// Attempts in progress, told when a page is asked for.
    pub fn set_in_flight(&self, attempts: i64) {
        self.0.in_flight.store(attempts, Relaxed);
    }

    /// How long its idle connections are kept, likewise.
    pub fn set_idle_timeout(&self, idle: Duration) {
        self.0.idle_timeout.store(u64::try_from(idle.as_millis()).unwrap_or(u64::MAX), Relaxed);
    }

    pub(in super::super) fn idle_time(&self) -> &Throttle {
        &self.0.idle_time
    }

    pub(in super::super) fn forward_error(&self, reason: usize) -> Option<&Throttle> {
        self.0.forward_error.get(reason)
    }
}

impl Destination {
    pub(in super::super) fn collect(&self, page: &mut Page) {
        let (cluster, name) = (self.cluster.name(), self.name.as_str());
        for (class, attempts) in CODE_CLASSES.iter().zip(&self.answered) {
            page.counter(Row::UpstreamRequests, &[cluster, name, class], attempts);
        }
        for (reason, attempts) in UPSTREAM_ERRORS.iter().zip(&self.failed) {
            page.counter(Row::UpstreamErrors, &[cluster, name, reason], attempts);
        }
        for (result, probes) in ProbeResult::ALL.iter().zip(&self.probes) {
            page.counter(Row::HealthChecks, &[cluster, name, result.label()], probes);
        }
        self.health.collect(page, cluster, name);
        page.gauge(Row::ProbeStale, &[cluster, name], f64::from(self.probe_stale.load(Relaxed)));
        page.gauge(Row::UpstreamInFlight, &[cluster, name], self.in_flight.load(Relaxed) as f64);
        page.gauge(Row::IdleTimeout, &[cluster, name], self.idle_timeout.load(Relaxed) as f64 / 1_000.0);
    }
}

/// An index outside its table is a defect of the caller; in a release it costs a count, not the request.
pub(super) fn count(counters: &[AtomicU64], index: usize) {
    debug_assert!(index < counters.len(), "no such reason: {index}");
    if let Some(counter) = counters.get(index) {
        counter.fetch_add(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_attempts_and_probes_when_told_then_each_stands_under_its_own_word() {
        let metrics = Metrics::new();
        let destination = metrics.destination("catalog", "catalog-1");
        for (n, reason) in UPSTREAM_ERRORS.iter().enumerate() {
            (0..=n).for_each(|_| destination.failed(n));
            let labels = format!("reason=\"{reason}\"");
            assert_line(&metrics.render(), "upstream_errors_total", &labels, &(n + 1).to_string());
        }
        for (result, n) in ProbeResult::ALL.into_iter().zip(1..) {
            (0..n).for_each(|_| destination.probe(result, 0.01));
            let labels = format!("result=\"{}\"", result.label());
            assert_line(&metrics.render(), "upstream_health_checks_total", &labels, &n.to_string());
        }
        for status in [101, 204, 304, 404, 503, 700] {
            destination.answered(status);
        }
        destination.set_in_flight(7);
        destination.set_idle_timeout(Duration::from_millis(7_500));
        assert_line(&metrics.render(), "destination_probe_stale", "", "0");
        destination.set_probe_stale(true);
        let page = metrics.render();
        for class in CODE_CLASSES {
            assert_line(&page, "upstream_requests_total", &format!("code_class=\"{class}\""), "1");
        }
        assert_line(&page, "upstream_requests_in_flight", "", "7");
        assert_line(&page, "destination_idle_timeout_seconds", "", "7.5");
        assert_line(&page, "destination_probe_stale", "", "1");
        assert!(page.contains("derbent_upstream_health_check_duration_seconds_count{cluster=\"catalog\"} 10\n"));
    }

    #[test]
    fn given_the_last_handle_when_dropped_then_the_destination_and_its_cluster_leave_the_page() {
        let metrics = Metrics::new();
        let destination = metrics.destination("catalog", "catalog-1");
        assert!(metrics.render().contains("catalog"));
        drop(destination);
        assert!(!metrics.render().contains("catalog"));
    }

    fn assert_line(page: &str, name: &str, labels: &str, value: &str) {
        let comma = if labels.is_empty() { "" } else { "," };
        let ours = "cluster=\"catalog\",destination=\"catalog-1\"";
        let line = format!("derbent_{name}{{{ours}{comma}{labels}}} {value}");
        assert!(page.lines().any(|it| it == line), "{line} in\n{page}");
    }
}
