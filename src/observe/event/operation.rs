//! What the operator did: orders about destinations, and configurations. Every line names who or what it came from.

use super::super::escape::Escaped;
use super::super::handles::{AdminState, DestinationMetrics};
use super::super::metrics::Metrics;
use super::{TARGET, place};
use log::{error, info, warn};
use std::fmt::{self, Display};
use std::time::{SystemTime, UNIX_EPOCH};

/// The operator ordered `what` (`drain`, `weight 5`) of a destination; `state` is what it is ordered to be by all orders that
/// stand. `by` names the peer; `until` is when the order ends, or
/// empty for one that only ends others.
pub fn overridden(
    destination: &DestinationMetrics,
    endpoint: impl Display,
    state: AdminState,
    what: impl Display,
    by: impl Display,
    until: impl Display,
) {
    destination.set_admin_state(state);
    let (place, cluster) = (place(destination, endpoint), destination.cluster().name());
    let (what, by, until) = (Escaped(what), Escaped(by), Until(until));
    info!(target: TARGET, "operator {by} orders {what} for {place} of cluster {cluster}{until}");
}

/// The order `what` no longer stands, because of `why`: its time is over, or who ended it.
pub fn override_ended(
    destination: &DestinationMetrics,
    endpoint: impl Display,
    state: AdminState,
    what: impl Display,
    why: impl Display,
) {
    destination.set_admin_state(state);
    let (place, cluster) = (place(destination, endpoint), destination.cluster().name());
    let (what, why) = (Escaped(what), Escaped(why));
    info!(target: TARGET, "the order {what} for {place} of cluster {cluster} ended: {why}");
}

/// The file was read again and is in force. `summary` says what became of what was there:
/// `3 destinations kept, 1 reset, 0 dropped`.
pub fn reloaded(metrics: &Metrics, hash: &str, summary: impl Display, at: SystemTime) {
    metrics.set_config_hash(hash);
    metrics.config_taken(true, unix(at));
    let summary = Escaped(summary);
    info!(target: TARGET, "configuration reloaded ({hash}): {summary}");
}

/// The file was read again and is faulty; the configuration before it stays in force.
pub fn reload_rejected(metrics: &Metrics, faults: impl Display) {
    metrics.config_rejected();
    let faults = Escaped(faults);
    error!(target: TARGET, "configuration not reloaded, the one before stays in force: {faults}");
}

/// Lines of the access log were not written; counts them. `told` is the log and why, for the first in a row of losses.
pub fn access_lines_dropped(metrics: &Metrics, lines: u64, told: Option<(&str, impl Display)>) {
    metrics.access_lines_dropped(lines);
    if let Some((log, why)) = told {
        let (log, why) = (Escaped(log), Escaped(why));
        warn!(target: TARGET, "access log {log}: lines are dropped and counted ({why})");
    }
}

/// The access log takes its lines again; so many were lost.
pub fn access_log_caught_up(log: &str, lost: u64) {
    let log = Escaped(log);
    info!(target: TARGET, "access log {log}: lines are written again, {lost} were lost");
}

/// SIGHUP came to a process that no file started.
pub fn nothing_to_reload() {
    warn!(target: TARGET, "SIGHUP changes nothing: no file started this process, so there is nothing to read again");
}

/// Seconds; 0 before 1970.
pub(super) fn unix(at: SystemTime) -> f64 {
    at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

struct Until<T>(T);

impl<T: Display> Display for Until<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let until = self.0.to_string();
        if until.is_empty() { Ok(()) } else { write!(f, ", until {}", Escaped(until)) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::capture::lines;
    use super::*;
    use log::{Level, LevelFilter};
    use std::time::Duration;

    #[test]
    fn given_orders_when_told_then_the_peer_is_named_and_the_state_follows() {
        let metrics = Metrics::new();
        let destination = metrics.destination("catalog", "catalog-1");
        let is = |state: &str| metrics.render().contains(&format!("destination=\"catalog-1\",state=\"{state}\"}} 1\n"));
        let seen = lines(LevelFilter::Info, || {
            let until = "2026-11-30T10:00:00Z";
            overridden(&destination, "localhost:5301", AdminState::Drain, "drain", "127.0.0.1:40312", until);
            assert!(is("drain") && !is("ready"));
            overridden(&destination, "localhost:5301", AdminState::Drain, "weight 5", "127.0.0.1:40313", "ended");
            assert!(is("drain"));
            overridden(&destination, "localhost:5301", AdminState::Drain, "uneject", "127.0.0.1:40313", "");
            override_ended(&destination, "localhost:5301", AdminState::Ready, "drain", "its time is over (5m)");
            assert!(is("ready") && !is("drain"));
        });
        let place = "catalog-1[localhost:5301] of cluster catalog";
        let texts = [
            format!("operator 127.0.0.1:40312 orders drain for {place}, until 2026-11-30T10:00:00Z"),
            format!("operator 127.0.0.1:40313 orders weight 5 for {place}, until ended"),
            format!("operator 127.0.0.1:40313 orders uneject for {place}"),
            format!("the order drain for {place} ended: its time is over (5m)"),
        ];
        assert_eq!(seen, texts.map(|text| (Level::Info, text)));
    }

    #[test]
    fn given_lines_that_are_lost_when_told_then_all_are_counted_and_the_first_loss_and_the_end_have_a_line() {
        let metrics = Metrics::new();
        let seen = lines(LevelFilter::Info, || {
            access_lines_dropped(&metrics, 3, Some(("logs/a\n", "disk full")));
            access_lines_dropped(&metrics, 4, None::<(&str, &str)>);
            access_log_caught_up("logs/a\n", 7);
        });
        let begun = "access log logs/a\\n: lines are dropped and counted (disk full)".to_owned();
        let ended = "access log logs/a\\n: lines are written again, 7 were lost".to_owned();
        assert_eq!(seen, [(Level::Warn, begun), (Level::Info, ended)]);
        assert_page(&metrics, &["log_lines_dropped_total{log=\"access\"} 7"]);
    }

    #[test]
    fn given_reloads_when_one_is_rejected_then_the_hash_and_the_time_are_those_of_the_last_taken() {
        let metrics = Metrics::new();
        let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
        assert_page(&metrics, &["config_last_reload_successful 1"]);
        assert!(!metrics.render().contains("derbent_config_last_reload_success_timestamp_seconds"));
        let seen = lines(LevelFilter::Info, || {
            reloaded(&metrics, "0123456789ab", "3 destinations kept, 1 reset", at(7));
            reload_rejected(&metrics, "shop.yaml:3:1: unknown key\nshop.yaml:9:1: no such cluster");
        });
        let rejected = "configuration not reloaded, the one before stays in force: shop.yaml:3:1: unknown key\\nshop.yaml:9:1: no such cluster";
        let taken = "configuration reloaded (0123456789ab): 3 destinations kept, 1 reset";
        assert_eq!(seen, [(Level::Info, taken.to_owned()), (Level::Error, rejected.to_owned())]);
        let same = ["config_last_reload_success_timestamp_seconds 7", "config_info{config_hash=\"0123456789ab\"} 1"];
        assert_page(&metrics, &same);
        assert_page(&metrics, &["config_reloads_total{result=\"success\"} 1", "config_last_reload_successful 0"]);
        lines(LevelFilter::Info, || reloaded(&metrics, "ba9876543210", "", at(9)));
        assert_page(&metrics, &["config_reloads_total{result=\"success\"} 2", "config_last_reload_successful 1"]);
        assert_page(&metrics, &["config_reloads_total{result=\"rejected\"} 1"]);
    }

    fn assert_page(metrics: &Metrics, lines: &[&str]) {
        let page = metrics.render();
        for line in lines {
            assert!(page.contains(&format!("\nderbent_{line}\n")), "{line} in\n{page}");
        }
    }
}
