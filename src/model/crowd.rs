use super::Line;
use std::sync::atomic::{AtomicU32, Ordering};

/// The attempts in progress at all destinations of a cluster, and the requests that wait for one of their places.
#[derive(Debug, Default)]
pub struct Crowd {
    in_flight: AtomicU32,
    pub line: Line,
}

impl Crowd {
    pub fn in_flight(&self) -> u32 {
        self.in_flight.load(Ordering::Relaxed)
    }

    pub(super) fn enter(&self) {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
    }

    /// A place that was held is free again.
    pub(super) fn leave(&self) {
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
        self.line.freed();
    }
}
