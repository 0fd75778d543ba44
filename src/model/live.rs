use super::{Latency, Lease, Marks, Refusal};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// What a destination is doing now; survives as long as the destination keeps its place in the configuration.
#[derive(Debug, Default)]
pub struct Live {
    pub marks: Marks,
    /// Told only where the balancing policy goes by it.
    pub latency: Latency,
    in_flight: AtomicU32,
    cluster_in_flight: Arc<AtomicU32>,
    last_taken: AtomicU64,
}

impl Live {
    /// One whose attempts are counted in `cluster` too, which all destinations of a cluster share.
    pub fn within(cluster: &Arc<AtomicU32>) -> Self {
        Live { cluster_in_flight: cluster.clone(), ..Live::default() }
    }

    /// Attempts in progress.
    pub fn in_flight(&self) -> u32 {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Attempts in progress at all destinations of the cluster.
    pub fn cluster_in_flight(&self) -> u32 {
        self.cluster_in_flight.load(Ordering::Relaxed)
    }

    /// The turn in which it was last taken, by the count of its cluster; 0 = never. Kept only where the balancing policy
    /// goes by it.
    pub fn last_taken(&self) -> u64 {
        self.last_taken.load(Ordering::Relaxed)
    }

    pub fn take(&self, turn: u64) {
        self.last_taken.fetch_max(turn, Ordering::Relaxed);
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
                Ok(_) => break,
                Err(seen) => now = seen,
            }
        }
        self.cluster_in_flight.fetch_add(1, Ordering::Relaxed);
        Ok(Lease::new(self.clone()))
    }

    pub(super) fn release(&self) {
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
        self.cluster_in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}
