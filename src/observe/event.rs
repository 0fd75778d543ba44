//! One function a fact: the log line and the metric together, so that neither is forgotten and every place words it alike.
//! The metric is always counted; lines that a failing upstream could ask for at every request are limited to one a second
//! and tell how many were held back. All lines have target `derbent`.
//!
//! What a peer chose is shown [`Escaped`]. Arguments to be shown are `impl Display` (`format_args!` will do) and are not
//! formatted when the level is off. Deliberately not here: judgement, and the clock.

mod health;
mod leaving;
mod life;
mod operation;

pub use health::{
    HealthChange, breaker_changed, canary_ordered, canary_rests, canary_returns, ejected_again, ejection_skipped,
    half_open, health_changed, mark_changed, panic_entered, panic_left,
};
pub use leaving::{has_left, leaves, stays};
pub use life::{
    admin_had, admin_missing, closing, drain_withdrawn, drained, draining, health_not_taken_over, health_taken_over,
    not_wanted, place_complete, place_given_up, place_incomplete, ready, took_over, upgrade_failed, upgraded,
};
pub use operation::{
    access_lines_dropped, access_log_caught_up, nothing_to_reload, overridden, override_ended, reload_rejected,
    reloaded,
};

use super::escape::Escaped;
use super::handles::{
    ClusterMetrics, DestinationMetrics, ListenerMetrics, MirrorMetrics, Mirrored, ProbeResult, Rejected, RouteMetrics,
    UPSTREAM_ERRORS,
};
use super::metrics::Metrics;
use super::throttle::HeldBack;
use http::Version;
use log::{debug, info, warn};
use std::fmt::{self, Display};
use std::time::{Duration, Instant, SystemTime};

const TARGET: &str = "derbent";

/// The process runs by this file; `hash` is the first 12 hex digits of the SHA-256 of what it amounts to.
pub fn started(metrics: &Metrics, version: &str, file: impl Display, hash: &str, at: SystemTime) {
    metrics.set_config_hash(hash);
    metrics.config_taken(false, operation::unix(at));
    info!(target: TARGET, "derbent {version} started by {file} ({hash})");
}

/// A listener takes connections; `protocols` as in the configuration.
pub fn listening(listener: &str, address: impl Display, protocols: impl Display) {
    info!(target: TARGET, "listener {listener} on {address} ({protocols})");
}

/// A cluster is asked to believe any certificate; to be told at every start and reload.
pub fn certificate_not_verified(cluster: &str) {
    warn!(
        target: TARGET,
        "cluster {cluster} does not verify its upstreams' certificates (verify: false): anyone in between can answer for them"
    );
}

/// A probe of `endpoint` (`host:port`) ended. `outcome` is the status or the cause.
pub fn probe_result(
    destination: &DestinationMetrics,
    endpoint: impl Display,
    result: ProbeResult,
    outcome: impl Display,
    took: Duration,
) {
    destination.probe(result, took.as_secs_f64());
    let (place, cluster) = (place(destination, endpoint), destination.cluster().name());
    let outcome = Escaped(outcome);
    match result {
        ProbeResult::Success | ProbeResult::Failure => {
            info!(target: TARGET, "probe of {place} in cluster {cluster}: {outcome} in {took:.1?}");
        }
        ProbeResult::Timeout | ProbeResult::Error => {
            info!(target: TARGET, "probe of {place} in cluster {cluster}: {outcome}")
        }
    }
}

/// A request was refused for what it is, `why`; counts it as rejected. `route` is where it was counted as a request, or would
/// have been.
pub fn refused(listener: &ListenerMetrics, route: &RouteMetrics, why: impl Display, now: Instant) {
    route.rejected(Rejected::BadRequest);
    if let Some(more) = listener.refused().admit(now) {
        let (listener, why, more) = (listener.name(), Escaped(why), HeldBack(more));
        info!(target: TARGET, "request refused on listener {listener}: {why}{more}");
    }
}

/// A request found none to go to; counts it as rejected.
pub fn no_destination(cluster: &ClusterMetrics, route: &RouteMetrics, now: Instant) {
    route.rejected(Rejected::NoDestination);
    if let Some(more) = cluster.no_destination().admit(now) {
        let (cluster, route, more) = (cluster.name(), route.name(), HeldBack(more));
        warn!(target: TARGET, "no available destinations in cluster {cluster} (route {route}){more}");
    }
}

/// The key of a request's session leads to no destination that may be used, and `failure` says what follows.
pub fn session_lost(cluster: &ClusterMetrics, why: impl Display, failure: &str, now: Instant) {
    if let Some(more) = cluster.session_lost().admit(now) {
        let (cluster, more) = (cluster.name(), HeldBack(more));
        warn!(target: TARGET, "no destination for the key of a session in cluster {cluster} ({why}): {failure} applies{more}");
    }
}

/// An attempt failed; counts it. `reason` is an index into [`UPSTREAM_ERRORS`], `text` says more. A client that left is
/// nobody's failure and no warning.
pub fn forward_error(
    destination: &DestinationMetrics,
    endpoint: impl Display,
    reason: usize,
    text: impl Display,
    now: Instant,
) {
    destination.failed(reason);
    let word = UPSTREAM_ERRORS.get(reason).copied().unwrap_or_default();
    let (place, cluster) = (place(destination, endpoint), destination.cluster().name());
    let text = Escaped(text);
    if word == "client_abort" {
        debug!(target: TARGET, "request to {place} of cluster {cluster} given up ({word})");
    } else if let Some(more) = destination.forward_error(reason).and_then(|reason| reason.admit(now)) {
        let more = HeldBack(more);
        warn!(target: TARGET, "request to {place} of cluster {cluster} failed ({word}): {text}{more}");
    }
}

/// Idle connections to a destination are kept for less than before, because of `why`.
pub fn idle_time(
    destination: &DestinationMetrics,
    endpoint: impl Display,
    (before, after): (Duration, Duration),
    why: impl Display,
    now: Instant,
) {
    if let Some(more) = destination.idle_time().admit(now) {
        let (place, cluster, more) = (place(destination, endpoint), destination.cluster().name(), HeldBack(more));
        let kept = if after.is_zero() { "not kept".to_owned() } else { format!("kept for {after:?}") };
        info!(
            target: TARGET,
            "idle connections to {place} of cluster {cluster} are {kept} instead of {before:?}: {why}{more}"
        );
    }
}

/// A copy of a request was sent and no whole answer came of it, `why`; counts it. `result` is failed or timeout.
pub fn mirror_failed(mirror: &MirrorMetrics, result: Mirrored, place: impl Display, why: impl Display, now: Instant) {
    mirror.ended(result);
    if let Some(more) = mirror.failed().admit(now) {
        let (cluster, why, more) = (mirror.cluster(), Escaped(why), HeldBack(more));
        warn!(target: TARGET, "mirror {place} of cluster {cluster} gave no answer: {why}{more}");
    }
}

/// Where a request went and how.
pub struct Forwarding<'a, U> {
    pub route: &'a RouteMetrics,
    pub destination: &'a DestinationMetrics,
    /// Destinations that could have been drawn.
    pub available: usize,
    pub url: U,
    /// The HTTP version of the request sent and of the response received.
    pub asked: Version,
    pub received: Version,
}

/// A response header came back for a request.
pub fn forwarding(it: Forwarding<'_, impl Display>) {
    debug!(
        target: TARGET,
        "route {} → cluster {} ({} available), {}, {:?} asked, {:?} received, {}",
        it.route.name(), it.destination.cluster().name(), it.available, Escaped(it.url), it.asked, it.received,
        it.destination.name()
    );
}

/// `catalog-1[localhost:5301]`; a name that carries its endpoint already stays as it is.
fn place<E: Display>(destination: &DestinationMetrics, endpoint: E) -> Place<'_, E> {
    Place(destination.name(), endpoint)
}

struct Place<'a, E>(&'a str, E);

impl<E: Display> Display for Place<'_, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Place(name, endpoint) = self;
        let endpoint = endpoint.to_string();
        if name.contains('[') || **name == endpoint { f.write_str(name) } else { write!(f, "{name}[{endpoint}]") }
    }
}

#[cfg(test)]
mod tests {
    use super::super::capture::lines;
    use super::*;
    use log::{Level, LevelFilter};
    use std::time::UNIX_EPOCH;

    const READ_TIMEOUT: usize = 5;
    const CLIENT_ABORT: usize = 8;

    #[test]
    fn given_probes_when_told_then_an_answer_has_its_time_and_a_failure_its_cause() {
        let metrics = Metrics::new();
        let destination = metrics.destination("catalog", "catalog-1");
        let took = Duration::from_micros(1240);
        let seen = lines(LevelFilter::Info, || {
            probe_result(&destination, "localhost:5301", ProbeResult::Success, 200, took);
            probe_result(&destination, "localhost:5301", ProbeResult::Failure, 503, took);
            probe_result(&destination, "localhost:5301", ProbeResult::Error, "connection refused", took);
            probe_result(&destination, "localhost:5301", ProbeResult::Timeout, "timed out after 2s", took);
        });
        let texts = ["200 in 1.2ms", "503 in 1.2ms", "connection refused", "timed out after 2s"];
        let line = |text| (Level::Info, format!("probe of catalog-1[localhost:5301] in cluster catalog: {text}"));
        assert_eq!(seen, texts.map(line));
        assert!(metrics.render().contains("result=\"failure\"} 1\n"));
    }

    #[test]
    fn given_a_name_that_carries_its_endpoint_when_told_then_the_endpoint_stands_once() {
        let metrics = Metrics::new();
        let seen = lines(LevelFilter::Info, || {
            for name in ["127.0.0.1:9", "ordering[127.0.0.1:9]", "[::1]:9"] {
                let endpoint = if name.contains("::") { name } else { "127.0.0.1:9" };
                probe_result(&metrics.destination("a", name), endpoint, ProbeResult::Error, "refused", Duration::ZERO);
            }
        });
        let line = |name| (Level::Info, format!("probe of {name} in cluster a: refused"));
        assert_eq!(seen, ["127.0.0.1:9", "ordering[127.0.0.1:9]", "[::1]:9"].map(line));
    }

    #[test]
    fn given_shorter_idle_times_when_told_then_before_and_after_and_one_line_a_second() {
        let metrics = Metrics::new();
        let destination = metrics.destination("catalog", "catalog-1");
        let (now, ms) = (Instant::now(), Duration::from_millis);
        let seen = lines(LevelFilter::Info, || {
            for (at, before, after) in [(0, 60_000, 4_000), (10, 4_000, 2_000), (1_100, 500, 0)] {
                idle_time(&destination, "h:1", (ms(before), ms(after)), "it says so", now + ms(at));
            }
        });
        let line = |times| (Level::Info, format!("idle connections to catalog-1[h:1] of cluster catalog are {times}"));
        let last = "not kept instead of 500ms: it says so; 1 more since the last such line";
        assert_eq!(seen, ["kept for 4s instead of 60s: it says so", last].map(line));
    }

    #[test]
    fn given_requests_without_a_destination_when_a_second_passes_then_one_line_a_second_and_all_are_counted() {
        let metrics = Metrics::new();
        let (cluster, route) = (metrics.cluster("catalog"), metrics.route("web", "books"));
        let now = Instant::now();
        let seen = lines(LevelFilter::Info, || {
            (0..300).for_each(|_| no_destination(&cluster, &route, now));
            no_destination(&cluster, &route, now + Duration::from_secs(1));
        });
        let line = "no available destinations in cluster catalog (route books)";
        let later = format!("{line}; 299 more since the last such line");
        assert_eq!(seen, [(Level::Warn, line.to_owned()), (Level::Warn, later)]);
        assert!(metrics.render().contains("{route=\"books\",reason=\"no_destination\"} 301\n"));
    }

    #[test]
    fn given_requests_that_are_refused_when_a_second_passes_then_one_line_a_second_and_all_are_counted() {
        let metrics = Metrics::new();
        let (listener, route) = (metrics.listener("web"), metrics.route("web", "none"));
        let now = Instant::now();
        let seen = lines(LevelFilter::Info, || {
            for ms in [0, 10, 1100] {
                refused(&listener, &route, "no Host\n", now + Duration::from_millis(ms));
            }
        });
        let line = "request refused on listener web: no Host\\n".to_owned();
        let more = format!("{line}; 1 more since the last such line");
        assert_eq!(seen, [(Level::Info, line), (Level::Info, more)]);
        let counted = "derbent_http_requests_rejected_total{route=\"none\",reason=\"bad_request\"} 3\n";
        assert!(metrics.render().contains(counted));
    }

    #[test]
    fn given_two_destinations_that_fail_when_told_then_each_has_its_own_line_a_second() {
        let metrics = Metrics::new();
        let (one, two) = (metrics.destination("catalog", "catalog-1"), metrics.destination("catalog", "catalog-2"));
        let now = Instant::now();
        let seen = lines(LevelFilter::Info, || {
            for destination in [&one, &two, &one] {
                forward_error(destination, "localhost:5301", READ_TIMEOUT, "no byte for 2s", now);
            }
        });
        let line = |name| {
            format!("request to {name}[localhost:5301] of cluster catalog failed (read_timeout): no byte for 2s")
        };
        assert_eq!(seen, [(Level::Warn, line("catalog-1")), (Level::Warn, line("catalog-2"))]);
        assert!(metrics.render().contains("destination=\"catalog-1\",reason=\"read_timeout\"} 2\n"));
    }

    #[test]
    fn given_a_client_that_left_when_told_then_no_warning_and_a_count() {
        let metrics = Metrics::new();
        let destination = metrics.destination("catalog", "catalog-1");
        let now = Instant::now();
        let seen = lines(LevelFilter::Info, || forward_error(&destination, "h:1", CLIENT_ABORT, "gone", now));
        assert_eq!(seen, []);
        assert!(metrics.render().contains("reason=\"client_abort\"} 1\n"));
    }

    #[test]
    fn given_a_forwarded_request_when_debug_is_on_then_the_line_tells_all_and_its_url_is_escaped() {
        let metrics = Metrics::new();
        let seen = lines(LevelFilter::Debug, || forward(&metrics, "http://localhost:5301/books\r\nWARN forged"));
        let line = "route books → cluster catalog (3 available), http://localhost:5301/books\\r\\nWARN forged, HTTP/1.1 asked, HTTP/1.1 received, catalog-1";
        assert_eq!(seen, [(Level::Debug, line.to_owned())]);
    }

    #[test]
    fn given_a_forwarded_request_when_debug_is_off_then_nothing_is_formatted() {
        struct Never;
        impl Display for Never {
            fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
                panic!("formatted");
            }
        }
        let metrics = Metrics::new();
        assert_eq!(lines(LevelFilter::Info, || forward(&metrics, Never)), []);
    }

    #[test]
    fn given_the_life_of_a_process_when_told_then_lines_and_gauges_agree() {
        let metrics = Metrics::new();
        let seen = lines(LevelFilter::Info, || {
            started(&metrics, "0.1.0", "shop.yaml", "0123456789ab", UNIX_EPOCH + Duration::from_secs(7));
            listening("web", "127.0.0.1:5300", "http1");
            certificate_not_verified("legacy");
        });
        let texts: Vec<_> = seen.iter().map(|(_, text)| text.as_str()).collect();
        assert_eq!(
            texts[..2],
            ["derbent 0.1.0 started by shop.yaml (0123456789ab)", "listener web on 127.0.0.1:5300 (http1)"]
        );
        assert_eq!((seen[2].0, &texts[2][..14]), (Level::Warn, "cluster legacy"));
        let page = metrics.render();
        assert!(page.contains("derbent_config_last_reload_success_timestamp_seconds 7\n"), "{page}");
        assert!(page.contains("derbent_config_reloads_total{result=\"success\"} 0\n"), "{page}");
        assert!(page.contains("derbent_config_info{config_hash=\"0123456789ab\"} 1\n"), "{page}");
    }

    fn forward(metrics: &Metrics, url: impl Display) {
        let (route, destination) = (metrics.route("web", "books"), metrics.destination("catalog", "catalog-1"));
        let (asked, received) = (Version::HTTP_11, Version::HTTP_11);
        forwarding(Forwarding { route: &route, destination: &destination, available: 3, url, asked, received });
    }
}
