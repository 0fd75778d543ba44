use super::{Lease, Marks, Refusal};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// What a destination is doing now; survives as long as the destination keeps its place in the configuration.
#[derive(Debug, Default)]
pub struct Live {
    pub marks: Marks,
    in_flight: AtomicU32,
}

impl Live {
    /// Attempts in progress.
    pub fn in_flight(&self) -> u32 {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Counts one attempt in, unless `max` are in flight already. The count falls when the lease drops.
    pub fn lease(self: &Arc<Self>, max: Option<u32>) -> Result<Lease, Refusal> {
        let max = max.unwrap_or(u32::MAX);
        let mut now = self.in_flight.load(Ordering::Relaxed);
        loop {
            if now >= max {
                return Err(Refusal::Full);
            }
            match self.in_flight.compare_exchange_weak(now, now + 1, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Ok(Lease::new(self.clone())),
                Err(seen) => now = seen,
            }
        }
    }

    pub(super) fn release(&self) {
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}
