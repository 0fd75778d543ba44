//! What came of the copies that a cluster's requests are mirrored by.

use super::super::metrics::{Metrics, Row};
use super::super::page::Page;
use super::super::throttle::Throttle;
use super::zeros;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

/// What came of one copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mirrored {
    /// A whole answer, whatever its status.
    Ok,
    /// No destination, no connection, or no whole answer.
    Failed,
    Timeout,
    /// Not made: there were as many as there may be.
    DroppedFull,
    /// Not made: the body was larger than what is kept of one.
    DroppedBody,
}

impl Mirrored {
    const ALL: [Mirrored; 5] =
        [Mirrored::Ok, Mirrored::Failed, Mirrored::Timeout, Mirrored::DroppedFull, Mirrored::DroppedBody];

    fn label(self) -> &'static str {
        match self {
            Mirrored::Ok => "ok",
            Mirrored::Failed => "failed",
            Mirrored::Timeout => "timeout",
            Mirrored::DroppedFull => "dropped_full",
            Mirrored::DroppedBody => "dropped_body",
        }
    }
}

/// What a mirror's answer is beside the client's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compared {
    Same,
    /// Another status.
    Status,
    /// The same status, and a body of another length.
    Length,
}

impl Compared {
    const ALL: [Compared; 3] = [Compared::Same, Compared::Status, Compared::Length];

    fn label(self) -> &'static str {
        match self {
            Compared::Same => "same",
            Compared::Status => "status",
            Compared::Length => "length",
        }
    }
}

/// Counts of one cluster's mirror.
#[derive(Clone)]
pub struct MirrorMetrics(Arc<Mirror>);

pub(in super::super) struct Mirror {
    cluster: String,
    results: [AtomicU64; Mirrored::ALL.len()],
    compared: [AtomicU64; Compared::ALL.len()],
    in_flight: AtomicI64,
    failed: Throttle,
}

impl Metrics {
    /// Of the cluster whose requests are mirrored.
    pub fn mirror(&self, cluster: &str) -> MirrorMetrics {
        MirrorMetrics(self.series.mirrors.get([cluster], || Mirror {
            cluster: cluster.to_owned(),
            results: zeros(),
            compared: zeros(),
            in_flight: AtomicI64::new(0),
            failed: Throttle::new(self.series.born),
        }))
    }
}

impl MirrorMetrics {
    /// The cluster's name.
    pub fn cluster(&self) -> &str {
        &self.0.cluster
    }

    /// What came of a copy, or why there is none.
    pub fn ended(&self, result: Mirrored) {
        self.0.results[result as usize].fetch_add(1, Relaxed);
    }

    /// Both answers to a request were whole.
    pub fn compared(&self, result: Compared) {
        self.0.compared[result as usize].fetch_add(1, Relaxed);
    }

    /// One more copy is in flight.
    pub fn entered(&self) {
        self.0.in_flight.fetch_add(1, Relaxed);
    }

    /// One less.
    pub fn left(&self) {
        self.0.in_flight.fetch_sub(1, Relaxed);
    }

    pub(in super::super) fn failed(&self) -> &Throttle {
        &self.0.failed
    }
}

impl Mirror {
    pub(in super::super) fn collect(&self, page: &mut Page) {
        let cluster = self.cluster.as_str();
        for (result, copies) in Mirrored::ALL.iter().zip(&self.results) {
            page.counter(Row::MirrorRequests, &[cluster, result.label()], copies);
        }
        for (result, answers) in Compared::ALL.iter().zip(&self.compared) {
            page.counter(Row::MirrorCompared, &[cluster, result.label()], answers);
        }
        page.gauge(Row::MirrorInFlight, &[cluster], self.in_flight.load(Relaxed) as f64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_copies_when_told_then_each_stands_under_its_own_word() {
        let metrics = Metrics::new();
        let mirror = metrics.mirror("catalog");
        for (result, n) in Mirrored::ALL.into_iter().zip(1..) {
            (0..n).for_each(|_| mirror.ended(result));
        }
        for (result, n) in Compared::ALL.into_iter().zip(1..) {
            (0..n).for_each(|_| mirror.compared(result));
        }
        (0..3).for_each(|_| mirror.entered());
        mirror.left();
        let page = metrics.render();
        for line in [
            "mirror_requests_total{cluster=\"catalog\",result=\"ok\"} 1",
            "mirror_requests_total{cluster=\"catalog\",result=\"failed\"} 2",
            "mirror_requests_total{cluster=\"catalog\",result=\"timeout\"} 3",
            "mirror_requests_total{cluster=\"catalog\",result=\"dropped_full\"} 4",
            "mirror_requests_total{cluster=\"catalog\",result=\"dropped_body\"} 5",
            "mirror_compared_total{cluster=\"catalog\",result=\"same\"} 1",
            "mirror_compared_total{cluster=\"catalog\",result=\"status\"} 2",
            "mirror_compared_total{cluster=\"catalog\",result=\"length\"} 3",
            "mirror_requests_in_flight{cluster=\"catalog\"} 2",
        ] {
            assert!(page.contains(&format!("\nderbent_{line}\n")), "{line} in\n{page}");
        }
    }
}
