//! Every metric in one table: name, type, labels, help, buckets. README's table is tested against it, a series is written
//! through it, and nothing is exported that has no row here (but `process_*`, which the prometheus crate brings along).
//!
//! Labels come from the configuration or from closed sets, never from a peer: no path, host, header or address.
//! Values live in the [`handles`](super::handles); this file turns them into a page when it is asked for. It does not
//! use the prometheus crate's metric vectors: those tell series apart by a hash of the label values written one after
//! the other, so that cluster `a`, destination `bc` and cluster `ab`, destination `c` would count into one series.

use super::handles::Phase;
use super::page::Book;
use super::shelf::Series;
use prometheus::{Registry, TextEncoder};
use std::sync::Arc;
use std::time::Instant;

/// Stands before every name of the table.
pub const PREFIX: &str = "derbent_";

/// Upper edges of every duration histogram, in seconds: from a cache hit on loopback to a client's patience.
pub const SECONDS: &[f64] =
    &[0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];

/// The content type of [`Metrics::render`].
pub const CONTENT_TYPE: &str = prometheus::TEXT_FORMAT;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// One row of [`TABLE`].
#[derive(Debug)]
pub struct Metric {
    /// Without [`PREFIX`].
    pub name: &'static str,
    pub kind: Kind,
    /// In the order in which values are given.
    pub labels: &'static [&'static str],
    pub help: &'static str,
}

impl Metric {
    pub fn full_name(&self) -> String {
        format!("{PREFIX}{}", self.name)
    }

    /// Upper bucket edges; empty but for histograms.
    pub fn buckets(&self) -> &'static [f64] {
        if self.kind == Kind::Histogram { SECONDS } else { &[] }
    }
}

/// Writes the rows once and makes both the table and the index into it, so that they cannot disagree.
macro_rules! table {
    ($($row:ident: $kind:ident $name:literal [$($label:literal),*] $help:literal)*) => {
        /// Index into [`TABLE`].
        #[derive(Debug, Clone, Copy)]
        pub(super) enum Row { $($row),* }

        /// Every metric, by subject.
        pub const TABLE: &[Metric] =
            &[$(Metric { name: $name, kind: Kind::$kind, labels: &[$($label),*], help: $help }),*];
    };
}

table! {
    Requests: Counter "http_requests_total" ["listener", "route", "method", "code"]
        "Requests completed, by final status sent."
    RequestDuration: Histogram "http_request_duration_seconds" ["route", "code_class"]
        "First request byte to last response byte."
    RequestsInFlight: Gauge "http_requests_in_flight" ["listener"]
        "Requests being processed."
    RequestBytes: Counter "http_request_bytes_total" ["route"]
        "Body bytes from clients."
    ResponseBytes: Counter "http_response_bytes_total" ["route"]
        "Body bytes to clients."
    RequestsRejected: Counter "http_requests_rejected_total" ["route", "reason"]
        "Requests that the proxy itself refused: no_route, bad_request, no_destination, overload."
    Tunnels: Gauge "downstream_tunnels" ["listener"]
        "WebSockets open; each is a request in flight too."
    Connections: Gauge "downstream_connections" ["listener"]
        "Open client connections."
    ConnectionsAccepted: Counter "downstream_connections_total" ["listener"]
        "Client connections accepted."
    UpstreamRequests: Counter "upstream_requests_total" ["cluster", "destination", "code_class"]
        "Attempts that got a response; retries count again."
    UpstreamErrors: Counter "upstream_errors_total" ["cluster", "destination", "reason"]
        "Attempts that got no whole response: dns, refused, unreachable, connect_timeout, tls, read_timeout, reset, protocol, client_abort, route_timeout, local, overload."
    UpstreamHeaderDuration: Histogram "upstream_response_header_duration_seconds" ["cluster"]
        "Attempt start to response header."
    UpstreamConnectDuration: Histogram "upstream_connect_duration_seconds" ["cluster"]
        "Set-up of a new upstream connection, TLS included."
    UpstreamConnections: Counter "upstream_connections_total" ["cluster", "reused"]
        "Upstream connections used by attempts, new (reused=false) or from the pool (reused=true)."
    UpstreamRetries: Counter "upstream_retries_total" ["cluster", "reason"]
        "Attempts made after another of the same request, by what came of that one: status, or a reason of upstream_errors_total."
    RetriesDenied: Counter "upstream_retries_denied_total" ["cluster", "reason"]
        "Attempts not made although `on` asked for them: answered, method, body_sent, limit, budget, no_destination, timeout (the route's would be over before the `delay` is)."
    QueueLength: Gauge "cluster_queue_length" ["cluster"]
        "Requests that wait because every destination is at its max_requests."
    Queued: Counter "cluster_queued_total" ["cluster", "result"]
        "Requests that found every destination full where there is a queue: served, full (it had its max), deadline, no_destination, client_left."
    QueueDuration: Histogram "cluster_queue_duration_seconds" ["cluster"]
        "Time in the queue, whatever came of it."
    Failovers: Counter "failovers_total" ["cluster"]
        "Requests that reached the failover tier."
    CanaryRequests: Counter "canary_requests_total" ["cluster", "arm"]
        "New requests of a cluster with a canary, by where they were sent first: primary (failovers too) or canary."
    CanaryShare: Gauge "canary_share" ["cluster"]
        "Share of the new requests that go to the canary, cool-down aside, 0-1."
    CanaryCooldown: Gauge "canary_cooldown" ["cluster"]
        "1 while all requests go to the primaries because a canary failed."
    MirrorRequests: Counter "mirror_requests_total" ["cluster", "result"]
        "Copies of requests: ok (a whole answer), failed (those not tried just after others included), timeout, and not made: dropped_full (max_in_flight), dropped_body (max_body). Only where there is a mirror."
    MirrorCompared: Counter "mirror_compared_total" ["cluster", "result"]
        "Answers of the mirror beside the client's: same, status (another one), length (of the body). Only where there is a mirror."
    MirrorInFlight: Gauge "mirror_requests_in_flight" ["cluster"]
        "Copies in progress. Only where there is a mirror."
    Affinity: Counter "affinity_requests_total" ["cluster", "result"]
        "Requests by what became of their session: hit (its destination took it), new (bound), rebound (to another), refused (503)."
    UpstreamInFlight: Gauge "upstream_requests_in_flight" ["cluster", "destination"]
        "Attempts in progress."
    IdleTimeout: Gauge "destination_idle_timeout_seconds" ["cluster", "destination"]
        "How long idle connections to the destination are kept: connection.idle_timeout, or less where it closes them sooner."
    Healthy: Gauge "destination_healthy" ["cluster", "destination"]
        "1 if no mark stands against the destination."
    Transitions: Counter "destination_health_transitions_total" ["cluster", "destination", "from", "to", "reason"]
        "Health changes; reason is active, passive, breaker, operator or unprobed. Every combination starts at 0."
    LastTransition: Gauge "destination_last_transition_timestamp_seconds" ["cluster", "destination"]
        "Unix time of the last health change; absent before the first."
    AdminState: Gauge "destination_admin_state" ["cluster", "destination", "state"]
        "1 for the state that the operator ordered: ready, drain, maint, eject."
    Ejected: Gauge "destination_ejected" ["cluster", "destination"]
        "1 from a passive ejection to the return, trials included."
    Ejections: Counter "upstream_ejections_total" ["cluster", "destination", "reason"]
        "Passive ejections by what caused them: TransportFailureRate, ConsecutiveFailures, trial (one that failed), other."
    EjectionsSkipped: Counter "upstream_ejections_skipped_total" ["cluster"]
        "Ejections not made because max_ejected was reached."
    BreakerState: Gauge "circuit_breaker_state" ["cluster", "destination", "state"]
        "1 for the state of the circuit: closed, open, half_open. Only where there is a breaker."
    BreakerTransitions: Counter "circuit_breaker_transitions_total" ["cluster", "destination", "to"]
        "Circuit changes, by new state. Only where there is a breaker."
    Leaving: Gauge "destination_leaving" ["cluster", "destination", "reason", "left"]
        "What is left of destinations on their leave (removed, disabled, drained, maintenance): requests (in flight), connections. Only while something is."
    Destinations: Gauge "cluster_destinations" ["cluster", "state"]
        "Destinations by state: configured, healthy, available, draining, ejected."
    HealthChecks: Counter "upstream_health_checks_total" ["cluster", "destination", "result"]
        "Probes: success, failure (an unwanted answer), timeout, error (no answer)."
    HealthCheckDuration: Histogram "upstream_health_check_duration_seconds" ["cluster"]
        "Probe time, whatever came of it."
    ProbeStale: Gauge "destination_probe_stale" ["cluster", "destination"]
        "1 if no result of a probe came for two intervals and the timeout."
    ProbesExpected: Gauge "probes_per_second_expected" ["cluster"]
        "Probes that the cluster asks this instance for: destinations / interval. Those that clusters share are made once."
    PanicMode: Gauge "cluster_panic_mode" ["cluster"]
        "1 while unhealthy destinations get traffic because too few healthy ones are left."
    ConfigInfo: Gauge "config_info" ["config_hash"]
        "Always 1; the label is the first 12 hex digits of the SHA-256 of the configuration in force."
    Reloads: Counter "config_reloads_total" ["result"]
        "Reloads of the configuration: success, rejected."
    ReloadSuccessful: Gauge "config_last_reload_successful" []
        "1 if the configuration was taken when it was last read, 0 if it was rejected and the one before stays in force."
    ReloadTime: Gauge "config_last_reload_success_timestamp_seconds" []
        "Unix time at which a configuration was last taken, the one of the start included."
    LogLinesDropped: Counter "log_lines_dropped_total" ["log"]
        "Lines that were not written, because their queue was full or their file did not take them; log is access."
    Upgrades: Counter "upgrades_total" ["result"]
        "Take-overs: success, told by the process that took over; failed, by the one that a successor came to (it ended, or took too long, before it was ready)."
    HealthTakenOver: Counter "health_taken_over_total" ["result"]
        "What the process before knew of health, at an upgrade: success, ignored (it was of another version, unreadable, or too long)."
    Phase: Gauge "lifecycle_phase" ["phase"]
        "1 for where this process stands: starting, ready, announced (draining, still taking connections), closing, done."
    Draining: Gauge "draining" []
        "1 while this process takes its leave."
    BuildInfo: Gauge "build_info" ["version", "revision", "pingora"]
        "Always 1; what this process was built from."
}

/// The metrics of one proxy, with a registry of their own. Cheap to clone; clones share everything.
///
/// ```
/// let metrics = derbent::observe::Metrics::new();
/// let destination = metrics.destination("catalog", "catalog-1");
/// destination.answered(200);
/// assert!(metrics.render().contains(
///     r#"derbent_upstream_requests_total{cluster="catalog",destination="catalog-1",code_class="2xx"} 1"#,
/// ));
/// ```
#[derive(Clone)]
pub struct Metrics {
    registry: Registry,
    pub(super) series: Arc<Series>,
}

impl Metrics {
    /// Panics never but for a malformed [`TABLE`], which the tests hold.
    pub fn new() -> Self {
        let registry = Registry::new();
        let series = Arc::new(Series::new(Instant::now()));
        let book = Book::new(Arc::clone(&series)).expect("the rows of the table are valid names and labels");
        registry.register(Box::new(book)).expect("the rows of the table are distinct");
        #[cfg(target_os = "linux")]
        registry
            .register(Box::new(prometheus::process_collector::ProcessCollector::for_self()))
            .expect("no row of the table is called process_*");
        Metrics { registry, series }
    }

    /// The page a Prometheus server reads, text format 0.0.4 ([`CONTENT_TYPE`]). Metrics without a series are left out.
    pub fn render(&self) -> String {
        // Fails for a family without samples, which the registry leaves out, and for a writer that fails, which a
        // String never does.
        TextEncoder::new().encode_to_string(&self.registry.gather()).unwrap_or_default()
    }

    /// What this process was built from: its version, source revision and Pingora's version.
    pub fn set_build(&self, version: &str, revision: &str, pingora: &str) {
        self.series.process.set_build([version, revision, pingora].map(str::to_owned));
    }

    /// Names the configuration in force; replaces the one before.
    pub fn set_config_hash(&self, hash: &str) {
        self.series.process.set_config_hash(hash.to_owned());
    }

    /// A configuration was taken at this Unix time in seconds. The one of the start is no reload and not counted.
    pub fn config_taken(&self, reload: bool, at: f64) {
        self.series.process.config_taken(reload, at);
    }

    /// A configuration was rejected; the one before stays in force.
    pub fn config_rejected(&self) {
        self.series.process.config_rejected();
    }

    /// So many lines of the access log were not written.
    pub fn access_lines_dropped(&self, lines: u64) {
        self.series.process.access_lines_dropped(lines);
    }

    /// A successor came, and was ready or not.
    pub fn upgraded(&self, success: bool) {
        self.series.process.upgraded(success);
    }

    /// What the process before knew of health goes on here, or not.
    pub fn health_taken_over(&self, success: bool) {
        self.series.process.health_taken_over(success);
    }

    /// Where the process stands; starting until told.
    pub fn set_phase(&self, phase: Phase) {
        self.series.process.set_phase(phase);
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{
        BreakerState, Departure, DestinationMetrics, ListenerMetrics, MirrorMetrics, Parting, Rejected, RouteMetrics,
    };
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn given_the_table_when_its_names_are_read_then_they_follow_the_rules_of_promtool() {
        for metric in TABLE {
            let name = metric.name;
            assert!(name.chars().all(|c| c.is_ascii_lowercase() || c == '_'), "{name}");
            assert_eq!(metric.kind == Kind::Counter, name.ends_with("_total"), "{name}");
            if metric.kind == Kind::Histogram {
                assert!(name.ends_with("_seconds"), "{name}: base unit");
                assert!(metric.labels.len() <= 2, "{name}: a histogram has 18 lines a series");
            }
            for suffix in ["_count", "_sum", "_bucket", "_milliseconds", "_ms", "_kilobytes"] {
                assert!(!name.ends_with(suffix), "{name}");
            }
            for label in metric.labels {
                assert!(label.chars().all(|c| c.is_ascii_lowercase() || c == '_'), "{name}: {label}");
                assert!(!["le", "quantile", "job", "instance"].contains(label), "{name}: {label}");
            }
            assert!(metric.help.ends_with('.'), "{name}");
        }
    }

    #[test]
    fn given_the_table_when_names_are_compared_then_none_is_there_twice() {
        let names: HashSet<_> = TABLE.iter().map(|metric| metric.name).collect();
        assert_eq!(names.len(), TABLE.len());
    }

    #[test]
    fn given_one_series_of_everything_when_rendered_then_every_row_is_there_and_every_line_parses() {
        let metrics = Metrics::new();
        let _held = use_every_metric(&metrics);
        let page = metrics.render();
        for metric in TABLE {
            let name = metric.full_name();
            assert!(page.contains(&format!("# HELP {name} ")), "{name} in\n{page}");
            let kind = format!("{:?}", metric.kind).to_lowercase();
            assert!(page.contains(&format!("# TYPE {name} {kind}\n")), "{name} in\n{page}");
        }
        page.lines().for_each(assert_line_parses);
    }

    #[test]
    fn given_an_odd_label_value_when_rendered_then_it_stays_on_its_line() {
        let metrics = Metrics::new();
        let _listener = metrics.listener("a\"b\nc\\d");
        metrics.render().lines().for_each(assert_line_parses);
    }

    #[test]
    fn given_names_that_read_alike_when_joined_then_they_are_two_series() {
        let metrics = Metrics::new();
        let (one, two) = (metrics.destination("a", "bc"), metrics.destination("ab", "c"));
        one.answered(200);
        two.answered(200);
        let page = metrics.render();
        for labels in [r#"cluster="a",destination="bc""#, r#"cluster="ab",destination="c""#] {
            let line = format!("derbent_upstream_requests_total{{{labels},code_class=\"2xx\"}} 1\n");
            assert!(page.contains(&line), "{line} in\n{page}");
        }
    }

    #[test]
    fn given_a_second_configuration_when_it_is_named_then_the_first_is_gone() {
        let metrics = Metrics::new();
        metrics.set_config_hash("aaaaaaaaaaaa");
        metrics.set_config_hash("bbbbbbbbbbbb");
        let page = metrics.render();
        assert!(page.contains("derbent_config_info{config_hash=\"bbbbbbbbbbbb\"} 1\n"), "{page}");
        assert!(!page.contains("aaaaaaaaaaaa"), "{page}");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn given_linux_when_rendered_then_the_process_is_there() {
        let page = Metrics::new().render();
        for name in ["process_resident_memory_bytes", "process_open_fds", "process_threads"] {
            assert!(page.contains(&format!("\n{name} ")), "{name} in\n{page}");
        }
    }

    fn use_every_metric(metrics: &Metrics) -> (ListenerMetrics, RouteMetrics, DestinationMetrics, MirrorMetrics) {
        metrics.set_build("0.1.0", "abc", "0.9.1");
        metrics.set_config_hash("0123456789ab");
        metrics.config_taken(false, 1.5);
        let listener = metrics.listener("web");
        let route = metrics.route("web", "catalog");
        route.request(&http::Method::GET, 200, 0.01, 1, 2);
        route.rejected(Rejected::NoDestination);
        let destination = metrics.destination("catalog", "catalog-1");
        destination.transition(false, 0, 1.5);
        destination.cluster().set_canary(50, false);
        destination.cluster().binds_sessions();
        destination.set_breaker(Some(BreakerState::Closed));
        metrics.set_leaving([Departure {
            cluster: "catalog".into(),
            destination: "catalog-1".into(),
            address: "localhost:5301".into(),
            why: Parting::Removed,
            since: Instant::now(),
            requests: 1,
            connections: 1,
        }]);
        (listener, route, destination, metrics.mirror("catalog"))
    }

    fn assert_line_parses(line: &str) {
        if line.starts_with("# HELP ") || line.starts_with("# TYPE ") {
            return;
        }
        let (series, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("no value: {line}"));
        value.parse::<f64>().unwrap_or_else(|_| panic!("not a number: {line}"));
        let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
        assert!(name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'), "{line}");
        let mut rest = labels;
        while rest != "}" {
            let (label, after) = rest.split_once("=\"").unwrap_or_else(|| panic!("no label: {line}"));
            assert!(label.chars().all(|c| c.is_ascii_lowercase() || c == '_'), "{line}");
            rest = after_quoted(after).unwrap_or_else(|| panic!("no closing quote: {line}"));
            rest = rest.strip_prefix(',').unwrap_or(rest);
        }
    }

    /// What follows the closing quote of an escaped label value.
    fn after_quoted(text: &str) -> Option<&str> {
        let mut escaped = false;
        let end = text.find(|c| {
            let closes = c == '"' && !escaped;
            escaped = c == '\\' && !escaped;
            closes
        })?;
        Some(&text[end + 1..])
    }
}
