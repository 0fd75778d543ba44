//! How the process comes and goes.

use super::super::escape::Escaped;
use super::super::handles::{Left, Phase};
use super::super::metrics::Metrics;
use super::TARGET;
use log::{error, info, warn};
use std::fmt::{self, Display};
use std::net::SocketAddr;
use std::time::Duration;

/// Requests are welcome.
pub fn ready(metrics: &Metrics) {
    metrics.set_phase(Phase::Ready);
    info!(target: TARGET, "ready");
}

/// The process takes its leave, because of `why`: its listeners close after `close`, what is left is cut after `end`.
pub fn draining(metrics: &Metrics, why: impl Display, close: impl Display, end: impl Display) {
    metrics.set_phase(Phase::Announced);
    let why = Escaped(why);
    info!(target: TARGET, "draining: {why}; listeners close in {close}, what is left then ends within {end}");
}

/// It stays after all, because of `why`.
pub fn drain_withdrawn(metrics: &Metrics, why: impl Display) {
    metrics.set_phase(Phase::Ready);
    let why = Escaped(why);
    warn!(target: TARGET, "no longer draining: {why}; this process serves on");
}

/// The successor is ready, and this process takes its leave.
pub fn upgraded(successor: u32) {
    info!(target: TARGET, "process {successor} is ready and takes over");
}

/// There is no successor after all, because of `why`.
pub fn upgrade_failed(metrics: &Metrics, why: impl Display) {
    metrics.upgraded(false);
    let why = Escaped(why);
    error!(target: TARGET, "upgrade failed: {why}; this process serves on");
}

/// This process took over from another, or from none that was left. Counted here, for nobody asks the other any more.
pub fn took_over(metrics: &Metrics, from: Option<u32>) {
    metrics.upgraded(true);
    match from {
        Some(pid) => info!(target: TARGET, "took over from process {pid}"),
        None => warn!(target: TARGET, "took over; the process before was gone by then"),
    }
}

/// What the process before knew of health goes on here; `what` says of whom.
pub fn health_taken_over(metrics: &Metrics, what: impl Display) {
    metrics.health_taken_over(true);
    let what = Escaped(what);
    info!(target: TARGET, "health taken over: {what}");
}

/// What the process before knew of health is not known here, because of `why`.
pub fn health_not_taken_over(metrics: &Metrics, why: impl Display) {
    metrics.health_taken_over(false);
    let why = Escaped(why);
    warn!(target: TARGET, "health is found out anew, that of the process before is ignored: {why}");
}

/// The process before goes on, because of `why`; this one is not wanted.
pub fn not_wanted(why: impl Display) {
    let why = Escaped(why);
    error!(target: TARGET, "the process before keeps its place ({why}); this one ends");
}

/// What belongs to the place that was taken over cannot be had, because of `why`; it is tried on. `without`: what is so until then.
pub fn place_incomplete(without: impl Display, why: impl Display) {
    let why = Escaped(why);
    warn!(target: TARGET, "{without}: {why}; it is tried again for a minute");
}

/// After [`place_incomplete`].
pub fn place_complete(without: impl Display) {
    info!(target: TARGET, "{without}: it could be had at last");
}

/// After [`place_incomplete`]: it could not be had in all that time.
pub fn place_given_up(without: impl Display, why: impl Display) {
    let why = Escaped(why);
    error!(target: TARGET, "{without}: {why}; it is not tried again");
}

/// The admin listener's address is another's, because of `why`; it is tried on.
pub fn admin_missing(address: SocketAddr, why: impl Display) {
    let why = Escaped(why);
    error!(target: TARGET, "no admin listener on {address}: {why}; it is tried again every second");
}

/// After [`admin_missing`].
pub fn admin_had(address: SocketAddr) {
    info!(target: TARGET, "admin listener on {address}, which is free by now");
}

/// The listeners close.
pub fn closing(metrics: &Metrics, after: Duration, left: Left) {
    metrics.set_phase(Phase::Closing);
    info!(target: TARGET, "listeners close after {after:.1?}; left are {left}");
}

/// Nothing is waited for any more; `signal` is what ended the wait.
pub fn drained(metrics: &Metrics, left: Left, after: Duration, signal: Option<&str>) {
    metrics.set_phase(Phase::Done);
    let by = signal.map_or(String::new(), |signal| format!(", {signal} again"));
    match left.requests {
        ..=0 => info!(target: TARGET, "drained after {after:.1?}{by}: no request was cut"),
        1 => warn!(target: TARGET, "ending after {after:.1?}{by}: 1 request is cut"),
        cut => warn!(target: TARGET, "ending after {after:.1?}{by}: {cut} requests are cut"),
    }
}

impl Display for Left {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = |n: i64, one: &str| format!("{n} {one}{}", if n == 1 { "" } else { "s" });
        let (connections, tunnels) = (count(self.connections, "connection"), count(self.tunnels, "WebSocket"));
        let requests = count(self.requests, "request");
        write!(f, "{connections}, {requests} in flight, {tunnels} among them")
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::capture::lines;
    use super::*;
    use log::{Level, LevelFilter};

    #[test]
    fn given_a_life_when_told_then_each_phase_has_its_line_and_the_gauges_follow() {
        let metrics = Metrics::new();
        let is = |draining: u8, phase: &str| {
            let page = metrics.render();
            let sum = page.lines().filter(|line| line.starts_with("derbent_lifecycle_phase{") && line.ends_with(" 1"));
            assert_eq!(sum.count(), 1, "{page}");
            assert!(page.contains(&format!("derbent_lifecycle_phase{{phase=\"{phase}\"}} 1\n")), "{page}");
            assert!(page.contains(&format!("derbent_draining {draining}\n")), "{page}");
        };
        is(0, "starting");
        let seen = lines(LevelFilter::Info, || {
            ready(&metrics);
            is(0, "ready");
            draining(&metrics, "SIG\nTERM", "2s", "8s");
            is(1, "announced");
            drain_withdrawn(&metrics, "the successor is gone");
            is(0, "ready");
            health_taken_over(&metrics, "2 destinations");
            health_not_taken_over(&metrics, "it\nis");
            closing(&metrics, Duration::from_millis(2_010), Left { connections: 2, requests: 1, tunnels: 1 });
            is(1, "closing");
            drained(&metrics, Left { connections: 1, ..Left::default() }, Duration::from_secs(5), None);
            let left = |requests| Left { requests, ..Left::default() };
            drained(&metrics, left(1), Duration::from_secs(8), None);
            drained(&metrics, left(2), Duration::from_millis(300), Some("SIGTERM"));
            is(1, "done");
        });
        let expected = [
            (Level::Info, "ready"),
            (Level::Info, "draining: SIG\\nTERM; listeners close in 2s, what is left then ends within 8s"),
            (Level::Warn, "no longer draining: the successor is gone; this process serves on"),
            (Level::Info, "health taken over: 2 destinations"),
            (Level::Warn, "health is found out anew, that of the process before is ignored: it\\nis"),
            (
                Level::Info,
                "listeners close after 2.0s; left are 2 connections, 1 request in flight, 1 WebSocket among them",
            ),
            (Level::Info, "drained after 5.0s: no request was cut"),
            (Level::Warn, "ending after 8.0s: 1 request is cut"),
            (Level::Warn, "ending after 300.0ms, SIGTERM again: 2 requests are cut"),
        ];
        assert_eq!(seen, expected.map(|(level, text)| (level, text.to_owned())));
    }
}
