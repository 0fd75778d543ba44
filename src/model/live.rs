use super::lease::TrialPlaces;
use super::{Connected, Copying, Crowd, IdleTime, Latency, Lease, Line, Marks, Refusal, Sockets, Trials};
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};

/// A whole share, in tenths.
pub const WHOLE: u8 = 10;

/// What a destination is doing now; survives as long as the destination keeps its place in the configuration.
#[derive(Debug)]
pub struct Live {
    pub marks: Marks,
    /// Places for requests while its detectors, or its breaker, are half-open.
    pub passive_trials: Trials,
    pub breaker_trials: Trials,
    /// Told only where the balancing policy goes by it.
    pub latency: Latency,
    /// How long its idle connections are kept.
    pub idle: IdleTime,
    /// Its connections.
    pub sockets: Arc<Sockets>,
    in_flight: AtomicU32,
    copies: AtomicU32,
    crowd: Arc<Crowd>,
    connections: AtomicU32,
    /// Attempts that wait for a connection.
    pub connecting: Line,
    /// Requests whose sessions are bound here, which wait for a place of this destination and no other.
    pub bound: Line,
    shares_connections: AtomicBool,
    last_taken: AtomicU64,
    epoch: AtomicU32,
    ramp: AtomicU8,
    share: AtomicU8,
    recent: AtomicU8,
    weight: AtomicU32,
    maintenance: AtomicBool,
    draining: AtomicBool,
    any_trial: AtomicBool,
}

/// In place of a weight: the configuration's holds.
const NO_WEIGHT: u32 = u32::MAX;

impl Default for Live {
    fn default() -> Self {
        Live {
            marks: Marks::default(),
            passive_trials: Trials::default(),
            breaker_trials: Trials::default(),
            latency: Latency::default(),
            idle: IdleTime::default(),
            sockets: Arc::default(),
            in_flight: AtomicU32::new(0),
            copies: AtomicU32::new(0),
            crowd: Arc::default(),
            connections: AtomicU32::new(0),
            connecting: Line::default(),
            bound: Line::default(),
            shares_connections: AtomicBool::new(false),
            last_taken: AtomicU64::new(0),
            epoch: AtomicU32::new(0),
            ramp: AtomicU8::new(WHOLE),
            share: AtomicU8::new(WHOLE),
            recent: AtomicU8::new(0),
            weight: AtomicU32::new(NO_WEIGHT),
            maintenance: AtomicBool::new(false),
            draining: AtomicBool::new(false),
            any_trial: AtomicBool::new(false),
        }
    }
}

impl Live {
    /// One whose attempts are counted in `cluster` too, which all destinations of a cluster share.
    pub fn within(cluster: &Arc<Crowd>) -> Self {
        Live { crowd: cluster.clone(), ..Live::default() }
    }

    /// Grows with each ejection and each end of one: tells an attempt begun before from one begun after.
    pub fn epoch(&self) -> u32 {
        self.epoch.load(Ordering::Acquire)
    }

    pub fn next_epoch(&self) {
        self.epoch.fetch_add(1, Ordering::AcqRel);
    }

    /// How far it has come in its slow start, in tenths from 1 to [`WHOLE`].
    pub fn ramp(&self) -> u8 {
        self.ramp.load(Ordering::Relaxed)
    }

    pub fn set_ramp(&self, tenths: u8) {
        self.ramp.store(tenths.clamp(1, WHOLE), Ordering::Relaxed);
    }

    /// What it gets of its weight, in tenths: the published decision on slow start and panic.
    pub fn share(&self) -> u8 {
        self.share.load(Ordering::Relaxed)
    }

    pub fn set_share(&self, tenths: u8) {
        self.share.store(tenths.clamp(1, WHOLE), Ordering::Relaxed);
    }

    /// How many of its last attempts were good, in tenths from 0; 0 too where there was none.
    pub fn recent(&self) -> u8 {
        self.recent.load(Ordering::Relaxed)
    }

    pub fn set_recent(&self, tenths: u8) {
        self.recent.store(tenths.min(WHOLE), Ordering::Relaxed);
    }

    /// The operator's word in place of the configuration's weight.
    pub fn weight(&self) -> Option<u32> {
        Some(self.weight.load(Ordering::Relaxed)).filter(|weight| *weight != NO_WEIGHT)
    }

    pub fn set_weight(&self, weight: Option<u32>) {
        self.weight.store(weight.unwrap_or(NO_WEIGHT), Ordering::Relaxed);
    }

    /// Half-open for so long without a trial that any request will do.
    pub fn takes_any_trial(&self) -> bool {
        self.any_trial.load(Ordering::Relaxed)
    }

    pub fn set_takes_any_trial(&self, any: bool) {
        self.any_trial.store(any, Ordering::Relaxed);
    }

    /// The operator works on it: it gets no probes.
    pub fn in_maintenance(&self) -> bool {
        self.maintenance.load(Ordering::Relaxed)
    }

    pub fn set_maintenance(&self, maintenance: bool) {
        self.maintenance.store(maintenance, Ordering::Relaxed);
    }

    /// The operator lets it run dry: no new requests, but those of its sessions.
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    pub fn set_draining(&self, draining: bool) {
        self.draining.store(draining, Ordering::Relaxed);
    }

    /// Attempts in progress.
    pub fn in_flight(&self) -> u32 {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Attempts in progress, and copies of mirrored requests.
    pub fn in_use(&self) -> u32 {
        self.in_flight.load(Ordering::SeqCst).saturating_add(self.copies.load(Ordering::SeqCst))
    }

    /// Counts a copy of a mirrored request in. The count falls when the guard drops.
    pub fn copy(self: &Arc<Self>) -> Copying {
        self.copies.fetch_add(1, Ordering::SeqCst);
        Copying::new(self.clone())
    }

    pub(super) fn copied(&self) {
        self.copies.fetch_sub(1, Ordering::SeqCst);
    }

    /// When nothing is in progress, `end`s the connections that are open. Whoever was counted in before it looked at the pool is
    /// seen here, or sees the next one, whose connections stay: so none of these is being used, and none will be.
    pub fn end_idle_connections(&self, end: impl FnMut(RawFd)) {
        if self.in_use() > 0 {
            return;
        }
        let pool = self.sockets.next_pool();
        if self.in_use() == 0 {
            self.sockets.end_before(pool, end);
        }
    }

    /// Attempts in progress at all destinations of the cluster.
    pub fn cluster_in_flight(&self) -> u32 {
        self.crowd.in_flight()
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
        count_in(&self.in_flight, max.unwrap_or(u32::MAX))?;
        self.crowd.enter();
        Ok(Lease::new(self.clone()))
    }

    /// As [`Live::lease`], on trial: with a place of each judge that is half-open. `None`, and nothing was taken, when one has
    /// none, or `max` are in flight. Places come first: a lease given back would wake who waits for one, and be it the same
    /// request that asks again and again.
    pub fn lease_on_trial(self: &Arc<Self>, max: Option<u32>) -> Option<Lease> {
        let places = TrialPlaces::take(self)?;
        match self.lease(max) {
            Ok(lease) => Some(lease.on_trial(places)),
            Err(_) => {
                places.give_back(self);
                None
            }
        }
    }

    pub(super) fn release(&self) {
        self.in_flight.fetch_sub(1, Ordering::SeqCst);
        self.bound.freed();
        self.crowd.leave();
    }

    /// Counts one attempt's connection in, unless `max` are in use. The count falls when the guard drops.
    pub fn connect(self: &Arc<Self>, max: u32) -> Result<Connected, Refusal> {
        count_in(&self.connections, max)?;
        Ok(Connected::new(self.clone()))
    }

    /// Attempts on a connection or about to make one, where their number is limited.
    pub fn connected(&self) -> u32 {
        self.connections.load(Ordering::Relaxed)
    }

    pub(super) fn disconnect(&self) {
        self.connections.fetch_sub(1, Ordering::SeqCst);
        self.connecting.freed();
    }

    /// Whether attempts share its connections, by what was last seen of it; not before anything was.
    pub fn shares_connections(&self) -> bool {
        self.shares_connections.load(Ordering::Relaxed)
    }

    pub fn set_shares_connections(&self, shares: bool) {
        // One less to store where all requests would.
        if self.shares_connections() != shares {
            self.shares_connections.store(shares, Ordering::SeqCst);
            self.connecting.freed();
        }
    }
}

/// One more, unless it is `max`. In one order with [`Line`]'s count, for whoever waits.
fn count_in(count: &AtomicU32, max: u32) -> Result<(), Refusal> {
    let more = |now| (now < max).then_some(now + 1);
    count.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more).map(drop).map_err(|_| Refusal::Full)
}
