//! What the health engine decided. `why` is the rule, its numbers and the evidence; `next` what follows by itself, as in
//! `half-open in 10s`, or empty.

use super::super::escape::Escaped;
use super::super::handles::{BreakerState, ClusterMetrics, DestinationMetrics, TRANSITION_REASONS, TRIAL};
use super::operation::unix;
use super::{TARGET, place};
use log::{Level, info, log, warn};
use std::fmt::{self, Display};
use std::time::{Duration, SystemTime};

/// Index into [`TRANSITION_REASONS`].
const PASSIVE: usize = 1;

/// How the mark of one judge changed.
pub struct HealthChange<'a, W, N> {
    /// The mark is lifted; else it is set.
    pub to_healthy: bool,
    /// The judge: index into [`TRANSITION_REASONS`].
    pub reason: usize,
    /// The policy of the detector that fired; `None` for any other cause.
    pub detector: Option<&'a str>,
    pub at: SystemTime,
    /// `active check failed 2 times in a row (unhealthy_after 2): 503, 503`
    pub why: W,
    pub next: N,
}

/// A destination's effective health changed: a warning for a loss, information for a return.
pub fn health_changed(
    destination: &DestinationMetrics,
    endpoint: impl Display,
    change: HealthChange<'_, impl Display, impl Display>,
) {
    destination.transition(change.to_healthy, change.reason, unix(change.at));
    count_ejection(destination, &change);
    let (level, state) = if change.to_healthy { (Level::Info, "healthy") } else { (Level::Warn, "unhealthy") };
    let (place, cluster) = (place(destination, endpoint), destination.cluster().name());
    let (why, next) = (Escaped(change.why), Next(change.next));
    log!(target: TARGET, level, "{place} of cluster {cluster} is {state}: {why}{next}");
}

/// One judge changed its mind about a destination that is unhealthy before and after, by another's mark.
pub fn mark_changed(
    destination: &DestinationMetrics,
    endpoint: impl Display,
    change: HealthChange<'_, impl Display, impl Display>,
) {
    count_ejection(destination, &change);
    let judge = TRANSITION_REASONS.get(change.reason).copied().unwrap_or_default();
    let mark = if change.to_healthy { "lifted" } else { "set" };
    let (place, cluster) = (place(destination, endpoint), destination.cluster().name());
    let (why, next) = (Escaped(change.why), Next(change.next));
    info!(target: TARGET, "{place} of cluster {cluster} stays unhealthy, {judge} mark {mark}: {why}{next}");
}

fn count_ejection<W, N>(destination: &DestinationMetrics, change: &HealthChange<'_, W, N>) {
    match (change.reason, change.to_healthy) {
        (PASSIVE, true) => destination.set_ejected(false),
        (PASSIVE, false) => destination.ejected(change.detector.unwrap_or_default()),
        _ => {}
    }
}

/// A trial failed: no change of health, but one more ejection.
pub fn ejected_again(destination: &DestinationMetrics, endpoint: impl Display, why: impl Display, next: impl Display) {
    destination.ejected(TRIAL);
    let (place, cluster) = (place(destination, endpoint), destination.cluster().name());
    let (why, next) = (Escaped(why), Next(next));
    warn!(target: TARGET, "{place} of cluster {cluster} is ejected again: {why}{next}");
}

/// A detector fired, and as many were ejected already as may be: the destination keeps its traffic. Always counted; `tell`
/// is false where the line was written not long ago. `limit` says what is reached: `1 of at most 1 are out (max_ejected 50%)`.
pub fn ejection_skipped(
    destination: &DestinationMetrics,
    endpoint: impl Display,
    why: impl Display,
    limit: impl Display,
    tell: bool,
) {
    destination.cluster().ejection_skipped();
    if tell {
        let (place, cluster) = (place(destination, endpoint), destination.cluster().name());
        let why = Escaped(why);
        warn!(target: TARGET, "{place} of cluster {cluster} should be ejected and is not, {limit}: {why}");
    }
}

/// Trials decide from here on whether an ejected destination returns.
pub fn half_open(destination: &DestinationMetrics, endpoint: impl Display, why: impl Display, next: impl Display) {
    let (place, cluster) = (place(destination, endpoint), destination.cluster().name());
    let (why, next) = (Escaped(why), Next(next));
    info!(target: TARGET, "{place} of cluster {cluster} is half-open: {why}{next}");
}

/// The circuit of a destination changed; what that means for its health is [`health_changed`]'s to tell.
pub fn breaker_changed(
    destination: &DestinationMetrics,
    endpoint: impl Display,
    to: BreakerState,
    why: impl Display,
    next: impl Display,
) {
    destination.breaker(to);
    let (level, state) = match to {
        BreakerState::Open => (Level::Warn, "open"),
        BreakerState::HalfOpen => (Level::Info, "half-open"),
        BreakerState::Closed => (Level::Info, "closed"),
    };
    let (place, cluster) = (place(destination, endpoint), destination.cluster().name());
    let (why, next) = (Escaped(why), Next(next));
    log!(target: TARGET, level, "circuit of {place} of cluster {cluster} is {state}: {why}{next}");
}

/// Too few of the cluster's enabled destinations are available, and `serving` of them get traffic whatever their health.
pub fn panic_entered(cluster: &ClusterMetrics, available: usize, enabled: usize, serving: usize) {
    cluster.set_panic(true);
    let name = cluster.name();
    warn!(target: TARGET, "cluster {name} panics: {available} of {enabled} available, {serving} get traffic whatever their health");
}

/// Enough are available again.
pub fn panic_left(cluster: &ClusterMetrics, available: usize, enabled: usize) {
    cluster.set_panic(false);
    info!(target: TARGET, "cluster {} is over its panic: {available} of {enabled} available", cluster.name());
}

/// A canary failed: all requests go to the primaries for the cool-down.
pub fn canary_rests(cluster: &ClusterMetrics, destination: &str, cooldown: Duration, why: impl Display) {
    let (name, seconds) = (cluster.name(), cooldown.as_secs_f64());
    warn!(target: TARGET, "canary {destination} of cluster {name} failed ({why}): all requests go to the primaries for {seconds}s");
}

/// The operator set the share of a canary, in tenths of a percent; `None`: the configuration's again.
pub fn canary_ordered(cluster: &ClusterMetrics, permille: Option<u32>, by: impl Display) {
    let share = permille.map_or("as configured".to_owned(), |permille| format!("{}%", f64::from(permille) / 10.0));
    info!(target: TARGET, "the canary of cluster {} gets {share} of the new requests, by {by}", cluster.name());
}

/// The cool-down is over.
pub fn canary_returns(cluster: &ClusterMetrics) {
    info!(target: TARGET, "the canary of cluster {} gets requests again", cluster.name());
}

/// The end of a line: what follows by itself, where there is something.
struct Next<N>(N);

impl<N: Display> Display for Next<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let next = self.0.to_string();
        if next.is_empty() { Ok(()) } else { write!(f, "; next: {}", Escaped(next)) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::capture::lines;
    use super::super::super::metrics::Metrics;
    use super::*;
    use log::LevelFilter;
    use std::time::{Duration, UNIX_EPOCH};

    const ENDPOINT: &str = "localhost:5301";
    const PLACE: &str = "catalog-1[localhost:5301] of cluster catalog";

    #[test]
    fn given_health_changes_when_told_then_a_loss_warns_a_return_informs_and_both_count() {
        let (metrics, destination) = one();
        let seen = lines(LevelFilter::Info, || {
            let why = "active check failed 2 times in a row (unhealthy_after 2): 503, 503";
            health_changed(&destination, ENDPOINT, change(false, "active", None, why, ""));
            let why = "active check passed (healthy_after 1): 200";
            health_changed(&destination, ENDPOINT, change(true, "active", None, why, "its share grows for 30s"));
        });
        let lost = format!("{PLACE} is unhealthy: active check failed 2 times in a row (unhealthy_after 2): 503, 503");
        let back = "is healthy: active check passed (healthy_after 1): 200; next: its share grows for 30s";
        assert_eq!(seen, [(Level::Warn, lost), (Level::Info, format!("{PLACE} {back}"))]);
        let page = metrics.render();
        assert!(page.contains("from=\"healthy\",to=\"unhealthy\",reason=\"active\"} 1\n"), "{page}");
        assert!(page.contains("from=\"unhealthy\",to=\"healthy\",reason=\"active\"} 1\n"), "{page}");
        assert!(page.contains("derbent_destination_ejected{cluster=\"catalog\",destination=\"catalog-1\"} 0\n"));
    }

    #[test]
    fn given_an_ejection_when_it_is_made_repeated_and_ends_then_lines_counters_and_gauge_agree() {
        let (metrics, destination) = one();
        let ejected = || metrics.render().contains("_ejected{cluster=\"catalog\",destination=\"catalog-1\"} 1\n");
        let seen = lines(LevelFilter::Info, || {
            let why = "ConsecutiveFailures (failures 5): 5 in a row";
            let lost = change(false, "passive", Some("ConsecutiveFailures"), why, "half-open in 10s");
            health_changed(&destination, ENDPOINT, lost);
            half_open(&destination, ENDPOINT, "its time is over (10s)", "one request at a time is on trial");
            assert!(ejected());
            ejected_again(&destination, ENDPOINT, "a trial failed: refused", "half-open in 20s");
            health_changed(&destination, ENDPOINT, change(true, "passive", None, "trial passed: 200 (1 of 1)", ""));
            assert!(!ejected());
        });
        let line = |text: &str| format!("{PLACE} {text}");
        let lost = "is unhealthy: ConsecutiveFailures (failures 5): 5 in a row; next: half-open in 10s";
        let trial = "is half-open: its time is over (10s); next: one request at a time is on trial";
        let again = "is ejected again: a trial failed: refused; next: half-open in 20s";
        let back = "is healthy: trial passed: 200 (1 of 1)";
        assert_eq!(
            seen,
            [
                (Level::Warn, line(lost)),
                (Level::Info, line(trial)),
                (Level::Warn, line(again)),
                (Level::Info, line(back))
            ]
        );
        let page = metrics.render();
        for (reason, ejections) in [("ConsecutiveFailures", 1), ("trial", 1), ("TransportFailureRate", 0)] {
            let labels = format!("cluster=\"catalog\",destination=\"catalog-1\",reason=\"{reason}\"");
            let line = format!("derbent_upstream_ejections_total{{{labels}}} {ejections}\n");
            assert!(page.contains(&line), "{line} in\n{page}");
        }
        assert!(page.contains("to=\"unhealthy\",reason=\"passive\"} 1\n"), "a failed trial is no transition: {page}");
    }

    #[test]
    fn given_an_unhealthy_destination_when_another_judge_marks_it_then_an_ejection_counts_and_no_transition() {
        let (metrics, destination) = one();
        let seen = lines(LevelFilter::Info, || {
            let set = change(false, "passive", Some("TransportFailureRate"), "rate 0.5 ≥ 0.3", "half-open in 10s");
            mark_changed(&destination, ENDPOINT, set);
            assert!(
                metrics
                    .render()
                    .contains("derbent_destination_ejected{cluster=\"catalog\",destination=\"catalog-1\"} 1\n")
            );
            mark_changed(&destination, ENDPOINT, change(true, "passive", None, "trial passed", ""));
        });
        let stays = format!("{PLACE} stays unhealthy, passive mark");
        let set = format!("{stays} set: rate 0.5 ≥ 0.3; next: half-open in 10s");
        assert_eq!(seen, [(Level::Info, set), (Level::Info, format!("{stays} lifted: trial passed"))]);
        let page = metrics.render();
        assert!(page.contains("reason=\"TransportFailureRate\"} 1\n"), "{page}");
        assert!(page.contains("to=\"unhealthy\",reason=\"passive\"} 0\n"), "{page}");
        assert!(
            page.contains("derbent_destination_ejected{cluster=\"catalog\",destination=\"catalog-1\"} 0\n"),
            "{page}"
        );
    }

    #[test]
    fn given_ejections_that_may_not_be_made_when_told_then_all_count_and_the_caller_limits_the_lines() {
        let (metrics, destination) = one();
        let seen = lines(LevelFilter::Info, || {
            for tell in [true, false, false] {
                ejection_skipped(
                    &destination,
                    ENDPOINT,
                    "rate 0.5 ≥ 0.3",
                    "1 of at most 1 are out (max_ejected)",
                    tell,
                );
            }
        });
        let line = "should be ejected and is not, 1 of at most 1 are out (max_ejected): rate 0.5 ≥ 0.3";
        assert_eq!(seen, [(Level::Warn, format!("{PLACE} {line}"))]);
        let page = metrics.render();
        assert!(page.contains("derbent_upstream_ejections_skipped_total{cluster=\"catalog\"} 3\n"), "{page}");
        assert!(
            page.contains("derbent_destination_ejected{cluster=\"catalog\",destination=\"catalog-1\"} 0\n"),
            "{page}"
        );
    }

    #[test]
    fn given_a_circuit_when_it_changes_then_only_its_opening_warns_and_the_state_follows() {
        let (metrics, destination) = one();
        let seen = lines(LevelFilter::Info, || {
            let open = |destination| {
                breaker_changed(destination, ENDPOINT, BreakerState::Open, "6 of 10 failed", "half-open in 5s");
            };
            open(&destination);
            assert!(metrics.render().contains("state=\"open\"} 1\n"));
            breaker_changed(&destination, ENDPOINT, BreakerState::HalfOpen, "its time is over (5s)", "");
            breaker_changed(&destination, ENDPOINT, BreakerState::Closed, "trial passed: 200 (1 of 1)", "");
        });
        let line = |text: &str| format!("circuit of {PLACE} is {text}");
        assert_eq!(
            seen,
            [
                (Level::Warn, line("open: 6 of 10 failed; next: half-open in 5s")),
                (Level::Info, line("half-open: its time is over (5s)")),
                (Level::Info, line("closed: trial passed: 200 (1 of 1)")),
            ]
        );
        let page = metrics.render();
        for to in ["open", "half_open", "closed"] {
            assert!(page.contains(&format!("to=\"{to}\"}} 1\n")), "{to} in\n{page}");
        }
    }

    #[test]
    fn given_panic_when_it_comes_and_goes_then_the_gauge_follows() {
        let metrics = Metrics::new();
        let cluster = metrics.cluster("catalog");
        let gauge = || metrics.render().contains("derbent_cluster_panic_mode{cluster=\"catalog\"} 1\n");
        let seen = lines(LevelFilter::Info, || {
            panic_entered(&cluster, 1, 4, 3);
            assert!(gauge());
            panic_left(&cluster, 2, 4);
            assert!(!gauge());
        });
        let entered = "cluster catalog panics: 1 of 4 available, 3 get traffic whatever their health";
        assert_eq!(seen[0], (Level::Warn, entered.to_owned()));
        assert_eq!(seen[1], (Level::Info, "cluster catalog is over its panic: 2 of 4 available".to_owned()));
    }

    #[test]
    fn given_what_a_peer_chose_in_why_or_next_when_told_then_it_stays_on_the_line() {
        let (_metrics, destination) = one();
        let seen = lines(LevelFilter::Info, || half_open(&destination, ENDPOINT, "a\nWARN b", "c\rd"));
        assert_eq!(seen, [(Level::Info, format!("{PLACE} is half-open: a\\nWARN b; next: c\\rd"))]);
    }

    #[test]
    fn given_the_table_of_reasons_when_read_then_passive_is_where_ejections_are_counted() {
        assert_eq!(TRANSITION_REASONS[PASSIVE], "passive");
    }

    fn one() -> (Metrics, DestinationMetrics) {
        let metrics = Metrics::new();
        let destination = metrics.destination("catalog", "catalog-1");
        (metrics, destination)
    }

    fn change<'a>(
        to_healthy: bool,
        judge: &str,
        detector: Option<&'a str>,
        why: &'a str,
        next: &'a str,
    ) -> HealthChange<'a, &'a str, &'a str> {
        let reason = TRANSITION_REASONS.iter().position(|reason| *reason == judge).expect("a judge");
        HealthChange { to_healthy, reason, detector, at: UNIX_EPOCH + Duration::from_secs(7), why, next }
    }
}
