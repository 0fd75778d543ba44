use std::collections::HashMap;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The connections of one destination that are open, idle ones included. They are counted in and out by whoever opens and
/// closes them; while the list is locked, none of them is closed, so that a descriptor is never another's.
///
/// Each belongs to a pool. Attempts use connections of the pool that is there when they look, so that those of earlier ones can be
/// ended without taking one away from an attempt.
#[derive(Debug)]
pub struct Sockets {
    /// Each with the pool that was there when it was opened.
    open: Mutex<HashMap<RawFd, u64>>,
    pool: AtomicU64,
}

/// No two destinations ever have the same.
static POOLS: AtomicU64 = AtomicU64::new(0);

fn next() -> u64 {
    POOLS.fetch_add(1, Ordering::SeqCst)
}

impl Default for Sockets {
    fn default() -> Self {
        Sockets { open: Mutex::default(), pool: AtomicU64::new(next()) }
    }
}

impl Sockets {
    /// The one to take connections from.
    pub fn pool(&self) -> u64 {
        self.pool.load(Ordering::SeqCst)
    }

    /// From here on connections come from another pool, which is returned.
    pub(super) fn next_pool(&self) -> u64 {
        let next = next();
        self.pool.fetch_max(next, Ordering::SeqCst).max(next)
    }

    pub fn opened(&self, socket: RawFd) {
        let mut open = self.lock();
        open.insert(socket, self.pool());
    }

    /// It is about to be closed, and not before this returns.
    pub fn closing(&self, socket: RawFd) {
        self.lock().remove(&socket);
    }

    /// How many are open.
    pub fn count(&self) -> usize {
        self.lock().len()
    }

    /// Ends those of the pools before.
    pub(super) fn end_before(&self, pool: u64, end: impl FnMut(RawFd)) {
        let open = self.lock();
        open.iter().filter(|(_, of)| **of < pool).map(|(socket, _)| *socket).for_each(end);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<RawFd, u64>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use crate::model::{Crowd, Live};
    use std::os::fd::RawFd;
    use std::sync::Arc;

    fn ended(live: &Live) -> Vec<RawFd> {
        let mut ended = Vec::new();
        live.end_idle_connections(|socket| ended.push(socket));
        ended.sort_unstable();
        ended
    }

    #[test]
    fn given_connections_when_nothing_is_in_flight_then_all_of_the_pools_before_are_ended_and_else_none() {
        let live = Arc::new(Live::within(&Arc::new(Crowd::default())));
        let pool = live.sockets.pool();
        [7, 9].iter().for_each(|socket| live.sockets.opened(*socket));
        let lease = live.lease(None).expect("no bound");
        assert_eq!((ended(&live), live.sockets.pool()), (vec![], pool), "a pool that is in use goes on");
        drop(lease);
        let copy = live.copy();
        assert_eq!((ended(&live), live.in_use()), (vec![], 1));
        drop(copy);
        assert_eq!(ended(&live), [7, 9]);
        assert_ne!(live.sockets.pool(), pool, "whoever comes now takes none of them");
        live.sockets.closing(7);
        live.sockets.opened(7);
        assert_eq!((live.sockets.count(), ended(&live)), (2, vec![7, 9]), "the next look finds what is left");
        [7, 9].iter().for_each(|socket| live.sockets.closing(*socket));
        assert_eq!((live.sockets.count(), ended(&live)), (0, vec![]));
    }

    #[test]
    fn given_two_destinations_when_they_pool_then_never_the_same() {
        let (one, two) = (Live::default(), Live::default());
        let first = (one.sockets.pool(), two.sockets.pool());
        one.sockets.opened(1);
        two.sockets.opened(2);
        assert_eq!((ended(&one), ended(&two)), (vec![1], vec![2]));
        let pools = [first.0, first.1, one.sockets.pool(), two.sockets.pool()];
        assert_eq!(pools.iter().collect::<std::collections::HashSet<_>>().len(), 4, "{pools:?}");
    }
}
