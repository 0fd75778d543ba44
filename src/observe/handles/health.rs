//! How a destination's health went, and what was decided about it. All of it is there from the start, at 0; the circuit only
//! where there is a breaker.

use super::super::metrics::Row;
use super::super::page::Page;
use super::destination::{DestinationMetrics, count};
use super::{OTHER, zeros};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed};

/// Values of label `reason` of `destination_health_transitions_total`; [`DestinationMetrics::transition`] takes the index.
pub const TRANSITION_REASONS: &[&str; 5] = &["active", "passive", "breaker", "operator", "unprobed"];

/// Values of label `reason` of `upstream_ejections_total`: the detectors' policies, [`TRIAL`], and one for policies of others'
/// making.
pub const EJECTION_REASONS: &[&str; 4] = &["TransportFailureRate", "ConsecutiveFailures", TRIAL, OTHER];

/// The reason of an ejection for a failed trial.
pub const TRIAL: &str = "trial";

/// The state of a circuit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BreakerState {
    Closed,
    Open,
    HalfOpen,
}

impl BreakerState {
    const ALL: [BreakerState; 3] = [BreakerState::Closed, BreakerState::Open, BreakerState::HalfOpen];

    /// The word that stands in metrics.
    pub fn label(self) -> &'static str {
        match self {
            BreakerState::Closed => "closed",
            BreakerState::Open => "open",
            BreakerState::HalfOpen => "half_open",
        }
    }
}

/// What the operator ordered of a destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AdminState {
    /// Nothing: health alone decides.
    Ready,
    /// No new requests, bound sessions only.
    Drain,
    /// No requests.
    Maint,
    /// Out as if a detector had ejected it.
    Eject,
}

impl AdminState {
    const ALL: [AdminState; 4] = [AdminState::Ready, AdminState::Drain, AdminState::Maint, AdminState::Eject];

    /// The word that stands in metrics, the API and commands.
    pub fn label(self) -> &'static str {
        match self {
            AdminState::Ready => "ready",
            AdminState::Drain => "drain",
            AdminState::Maint => "maint",
            AdminState::Eject => "eject",
        }
    }
}

/// The part of a destination's series that tells of its health.
pub(super) struct Health {
    lost: [AtomicU64; TRANSITION_REASONS.len()],
    regained: [AtomicU64; TRANSITION_REASONS.len()],
    /// The bits of a Unix time in seconds; 0 before the first transition.
    last_transition: AtomicU64,
    healthy: AtomicBool,
    ejections: [AtomicU64; EJECTION_REASONS.len()],
    ejected: AtomicBool,
    /// Index into [`AdminState::ALL`].
    admin: AtomicU8,
    /// Index into [`BreakerState::ALL`], or [`NO_BREAKER`].
    breaker: AtomicU8,
    breaker_changes: [AtomicU64; BreakerState::ALL.len()],
}

const NO_BREAKER: u8 = u8::MAX;

impl DestinationMetrics {
    /// Health changed, at this Unix time in seconds. `reason` is an index into [`TRANSITION_REASONS`].
    pub fn transition(&self, to_healthy: bool, reason: usize, at: f64) {
        let health = &self.0.health;
        count(if to_healthy { &health.regained } else { &health.lost }, reason);
        health.last_transition.store(at.to_bits(), Relaxed);
        self.set_healthy(to_healthy);
    }

    /// What health is without a change to tell of, as when it is first known.
    pub fn set_healthy(&self, healthy: bool) {
        self.0.health.healthy.store(healthy, Relaxed);
    }

    /// A passive ejection, for the first time or again. What is none of [`EJECTION_REASONS`] counts as `other`.
    pub fn ejected(&self, reason: &str) {
        let other = EJECTION_REASONS.len() - 1;
        let index = EJECTION_REASONS.iter().position(|known| *known == reason).unwrap_or(other);
        count(&self.0.health.ejections, index);
        self.set_ejected(true);
    }

    /// Whether a passive ejection stands, trials included.
    pub fn set_ejected(&self, ejected: bool) {
        self.0.health.ejected.store(ejected, Relaxed);
    }

    /// What the operator ordered.
    pub fn set_admin_state(&self, state: AdminState) {
        self.0.health.admin.store(state as u8, Relaxed);
    }

    /// The state of the circuit without a change to tell of; `None` takes the circuit's series from the page, as long as there
    /// is no breaker. To be told when a configuration is taken, not when it is tried.
    pub fn set_breaker(&self, state: Option<BreakerState>) {
        self.0.health.breaker.store(state.map_or(NO_BREAKER, |state| state as u8), Relaxed);
    }

    /// The circuit changed.
    pub fn breaker(&self, to: BreakerState) {
        count(&self.0.health.breaker_changes, to as usize);
        self.set_breaker(Some(to));
    }
}

impl Health {
    pub(super) fn new() -> Self {
        Health {
            lost: zeros(),
            regained: zeros(),
            last_transition: AtomicU64::new(0),
            healthy: AtomicBool::new(true),
            ejections: zeros(),
            ejected: AtomicBool::new(false),
            admin: AtomicU8::new(AdminState::Ready as u8),
            breaker: AtomicU8::new(NO_BREAKER),
            breaker_changes: zeros(),
        }
    }

    pub(super) fn collect(&self, page: &mut Page, cluster: &str, name: &str) {
        for (from, to, changes) in [("healthy", "unhealthy", &self.lost), ("unhealthy", "healthy", &self.regained)] {
            for (reason, changes) in TRANSITION_REASONS.iter().zip(changes) {
                page.counter(Row::Transitions, &[cluster, name, from, to, reason], changes);
            }
        }
        let last = self.last_transition.load(Relaxed);
        if last != 0 {
            page.gauge(Row::LastTransition, &[cluster, name], f64::from_bits(last));
        }
        page.gauge(Row::Healthy, &[cluster, name], f64::from(self.healthy.load(Relaxed)));
        for (reason, ejections) in EJECTION_REASONS.iter().zip(&self.ejections) {
            page.counter(Row::Ejections, &[cluster, name, reason], ejections);
        }
        page.gauge(Row::Ejected, &[cluster, name], f64::from(self.ejected.load(Relaxed)));
        let admin = self.admin.load(Relaxed);
        for state in AdminState::ALL {
            let value = f64::from(state as u8 == admin);
            page.gauge(Row::AdminState, &[cluster, name, state.label()], value);
        }
        self.collect_breaker(page, cluster, name);
    }

    fn collect_breaker(&self, page: &mut Page, cluster: &str, name: &str) {
        let now = self.breaker.load(Relaxed);
        if now == NO_BREAKER {
            return;
        }
        for (state, changes) in BreakerState::ALL.into_iter().zip(&self.breaker_changes) {
            page.gauge(Row::BreakerState, &[cluster, name, state.label()], f64::from(state as u8 == now));
            page.counter(Row::BreakerTransitions, &[cluster, name, state.label()], changes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::metrics::Metrics;
    use super::*;

    #[test]
    fn given_a_new_destination_when_rendered_then_every_transition_and_ejection_is_there_at_0() {
        let metrics = Metrics::new();
        let _destination = metrics.destination("catalog", "catalog-1");
        let page = metrics.render();
        for (from, to) in [("healthy", "unhealthy"), ("unhealthy", "healthy")] {
            for reason in ["active", "passive", "breaker", "operator", "unprobed"] {
                let labels = format!("from=\"{from}\",to=\"{to}\",reason=\"{reason}\"");
                assert_line(&page, "destination_health_transitions_total", &labels, "0");
            }
        }
        let transitions = page.lines().filter(|line| line.starts_with("derbent_destination_health_transitions_total{"));
        assert_eq!(transitions.count(), 10);
        assert!(!page.contains("last_transition_timestamp"), "{page}");
        assert_line(&page, "destination_healthy", "", "1");
        assert_line(&page, "destination_ejected", "", "0");
        for reason in ["TransportFailureRate", "ConsecutiveFailures", "trial", "other"] {
            assert_line(&page, "upstream_ejections_total", &format!("reason=\"{reason}\""), "0");
        }
        for (state, value) in [("ready", "1"), ("drain", "0"), ("maint", "0"), ("eject", "0")] {
            assert_line(&page, "destination_admin_state", &format!("state=\"{state}\""), value);
        }
    }

    #[test]
    fn given_a_loss_when_told_then_its_counter_its_time_and_the_gauge_tell() {
        let metrics = Metrics::new();
        let destination = metrics.destination("catalog", "catalog-1");
        destination.transition(false, 1, 1_796_004_900.5);
        let page = metrics.render();
        let labels = "from=\"healthy\",to=\"unhealthy\",reason=\"passive\"";
        assert_line(&page, "destination_health_transitions_total", labels, "1");
        assert_line(&page, "destination_last_transition_timestamp_seconds", "", "1796004900.5");
        assert_line(&page, "destination_healthy", "", "0");
        destination.transition(true, 0, 1_796_004_910.0);
        let page = metrics.render();
        let labels = "from=\"unhealthy\",to=\"healthy\",reason=\"active\"";
        assert_line(&page, "destination_health_transitions_total", labels, "1");
        assert_line(&page, "destination_healthy", "", "1");
    }

    #[test]
    fn given_ejections_when_told_then_each_stands_under_its_policy_and_strangers_together() {
        let metrics = Metrics::new();
        let destination = metrics.destination("catalog", "catalog-1");
        for reason in ["ConsecutiveFailures", TRIAL, TRIAL, "Mine", "Yours", "transportfailurerate"] {
            destination.ejected(reason);
        }
        let page = metrics.render();
        for (reason, ejections) in
            [("TransportFailureRate", "0"), ("ConsecutiveFailures", "1"), ("trial", "2"), ("other", "3")]
        {
            assert_line(&page, "upstream_ejections_total", &format!("reason=\"{reason}\""), ejections);
        }
        assert_line(&page, "destination_ejected", "", "1");
        destination.set_ejected(false);
        assert_line(&metrics.render(), "destination_ejected", "", "0");
    }

    #[test]
    fn given_an_order_when_told_then_one_state_of_the_set_is_1() {
        let metrics = Metrics::new();
        let destination = metrics.destination("catalog", "catalog-1");
        for ordered in AdminState::ALL {
            destination.set_admin_state(ordered);
            let page = metrics.render();
            for state in AdminState::ALL {
                let value = if state == ordered { "1" } else { "0" };
                assert_line(&page, "destination_admin_state", &format!("state=\"{}\"", state.label()), value);
            }
        }
    }

    #[test]
    fn given_a_breaker_when_it_comes_changes_and_goes_then_its_series_do_too() {
        let metrics = Metrics::new();
        let destination = metrics.destination("catalog", "catalog-1");
        assert!(!metrics.render().contains("derbent_circuit_breaker"));
        destination.set_breaker(Some(BreakerState::Closed));
        let page = metrics.render();
        for (state, value) in [("closed", "1"), ("open", "0"), ("half_open", "0")] {
            assert_line(&page, "circuit_breaker_state", &format!("state=\"{state}\""), value);
            assert_line(&page, "circuit_breaker_transitions_total", &format!("to=\"{state}\""), "0");
        }
        destination.breaker(BreakerState::Open);
        let page = metrics.render();
        for (state, value) in [("closed", "0"), ("open", "1"), ("half_open", "0")] {
            assert_line(&page, "circuit_breaker_state", &format!("state=\"{state}\""), value);
            assert_line(&page, "circuit_breaker_transitions_total", &format!("to=\"{state}\""), value);
        }
        destination.set_breaker(None);
        assert!(!metrics.render().contains("derbent_circuit_breaker"));
    }

    fn assert_line(page: &str, name: &str, labels: &str, value: &str) {
        let comma = if labels.is_empty() { "" } else { "," };
        let ours = "cluster=\"catalog\",destination=\"catalog-1\"";
        let line = format!("derbent_{name}{{{ours}{comma}{labels}}} {value}");
        assert!(page.lines().any(|it| it == line), "{line} in\n{page}");
    }
}
