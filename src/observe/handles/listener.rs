//! What one listener has open. Gauges rise with a guard and fall by its Drop, so that a request that is cancelled or
//! panics leaves no trace.

use super::super::metrics::{Metrics, Row};
use super::super::page::Page;
use super::super::throttle::Throttle;
use super::Left;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::Instant;

/// Counts of one listener.
#[derive(Clone)]
pub struct ListenerMetrics(Arc<Listener>);

pub(in super::super) struct Listener {
    name: String,
    requests: Arc<AtomicI64>,
    connections: Arc<AtomicI64>,
    tunnels: Arc<AtomicI64>,
    accepted: AtomicU64,
    refused: Throttle,
}

impl Metrics {
    pub fn listener(&self, listener: &str) -> ListenerMetrics {
        ListenerMetrics(self.series.listeners.get([listener], || Listener {
            name: listener.to_owned(),
            requests: Arc::default(),
            connections: Arc::default(),
            tunnels: Arc::default(),
            accepted: AtomicU64::new(0),
            refused: Throttle::new(Instant::now()),
        }))
    }
}

impl ListenerMetrics {
    /// One more request in flight until the guard drops.
    #[must_use = "the request ends where the guard drops"]
    pub fn request_started(&self) -> InFlight {
        InFlight::new(&self.0.requests)
    }

    /// The request became a tunnel, until the guard drops.
    #[must_use = "the tunnel ends where the guard drops"]
    pub fn tunnel_opened(&self) -> InFlight {
        InFlight::new(&self.0.tunnels)
    }

    /// One more connection accepted, and open until the guard drops.
    #[must_use = "the connection ends where the guard drops"]
    pub fn connection_opened(&self) -> InFlight {
        self.0.accepted.fetch_add(1, Relaxed);
        InFlight::new(&self.0.connections)
    }
}

impl ListenerMetrics {
    /// What all of them have open.
    pub fn left(listeners: &[ListenerMetrics]) -> Left {
        let sum = |count: fn(&Listener) -> &AtomicI64| listeners.iter().map(|of| count(&of.0).load(Relaxed)).sum();
        Left {
            connections: sum(|of| &of.connections),
            requests: sum(|of| &of.requests),
            tunnels: sum(|of| &of.tunnels),
        }
    }

    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Limits the lines on refused requests.
    pub(in super::super) fn refused(&self) -> &Throttle {
        &self.0.refused
    }
}

impl Listener {
    pub(in super::super) fn collect(&self, page: &mut Page) {
        let labels = [self.name.as_str()];
        page.gauge(Row::RequestsInFlight, &labels, self.requests.load(Relaxed) as f64);
        page.gauge(Row::Tunnels, &labels, self.tunnels.load(Relaxed) as f64);
        page.gauge(Row::Connections, &labels, self.connections.load(Relaxed) as f64);
        page.counter(Row::ConnectionsAccepted, &labels, &self.accepted);
    }
}

/// One request, connection or tunnel that is going on.
pub struct InFlight(Arc<AtomicI64>);

impl InFlight {
    fn new(gauge: &Arc<AtomicI64>) -> Self {
        gauge.fetch_add(1, Relaxed);
        InFlight(Arc::clone(gauge))
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_requests_and_connections_when_their_guards_drop_then_the_gauges_fall_and_the_counter_stays() {
        let metrics = Metrics::new();
        let listener = metrics.listener("web");
        let connection = listener.connection_opened();
        let requests = (listener.request_started(), listener.request_started());
        assert_eq!(values(&metrics), [2, 1, 1]);
        drop((connection, requests));
        assert_eq!(values(&metrics), [0, 0, 1]);
    }

    #[test]
    fn given_a_request_when_it_panics_then_the_gauge_falls() {
        let metrics = Metrics::new();
        let listener = metrics.listener("web");
        let guard = listener.request_started();
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
            let _guard = guard;
            std::panic::resume_unwind(Box::new(()));
        }));
        assert!(result.is_err());
        assert_eq!(values(&metrics), [0, 0, 0]);
    }

    fn values(metrics: &Metrics) -> [i64; 3] {
        let page = metrics.render();
        ["http_requests_in_flight", "downstream_connections", "downstream_connections_total"].map(|name| {
            let start = format!("derbent_{name}{{listener=\"web\"}} ");
            let line = page.lines().find_map(|line| line.strip_prefix(&start)).expect("a sample");
            line.parse().expect("a whole number")
        })
    }
}
