//! Who is counted. A series lives as long as somebody holds a handle to it: the snapshot that names a destination holds
//! its handle, so that what a reload drops leaves the page by itself, and a configuration that was refused leaves
//! nothing behind. Two holders of the same labels share one series, so that a reload loses no count.

use super::handles::{Cluster, Departures, Destination, Listener, ListenerRoute, Mirror, Phase, Route};
use super::metrics::Row;
use super::page::Page;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Instant;

/// Everything that is counted now.
pub(super) struct Series {
    /// Zero of the clocks that limit log lines.
    pub(super) born: Instant,
    pub(super) process: Process,
    pub(super) listeners: Shelf<1, Listener>,
    pub(super) routes: Shelf<1, Route>,
    pub(super) listener_routes: Shelf<2, ListenerRoute>,
    pub(super) clusters: Shelf<1, Cluster>,
    pub(super) destinations: Shelf<2, Destination>,
    pub(super) mirrors: Shelf<1, Mirror>,
}

impl Series {
    pub(super) fn new(born: Instant) -> Self {
        Series {
            born,
            process: Process::default(),
            listeners: Shelf::default(),
            routes: Shelf::default(),
            listener_routes: Shelf::default(),
            clusters: Shelf::default(),
            destinations: Shelf::default(),
            mirrors: Shelf::default(),
        }
    }

    pub(super) fn collect(&self, page: &mut Page) {
        self.process.collect(page);
        self.listeners.live().iter().for_each(|it| it.collect(page));
        self.routes.live().iter().for_each(|it| it.collect(page));
        self.listener_routes.live().iter().for_each(|it| it.collect(page));
        self.clusters.live().iter().for_each(|it| it.collect(page));
        self.destinations.live().iter().for_each(|it| it.collect(page));
        self.mirrors.live().iter().for_each(|it| it.collect(page));
    }
}

/// Live values by their `N` label values.
pub(super) struct Shelf<const N: usize, T> {
    by_labels: Mutex<HashMap<[String; N], Weak<T>>>,
}

impl<const N: usize, T> Default for Shelf<N, T> {
    fn default() -> Self {
        Shelf { by_labels: Mutex::default() }
    }
}

impl<const N: usize, T> Shelf<N, T> {
    /// The value that has these labels, made when there is none.
    pub(super) fn get(&self, labels: [&str; N], make: impl FnOnce() -> T) -> Arc<T> {
        let key = labels.map(str::to_owned);
        let mut by_labels = lock(&self.by_labels);
        if let Some(live) = by_labels.get(&key).and_then(Weak::upgrade) {
            return live;
        }
        // The dead go when the map would grow, so that it stays within twice of what lives without a walk each time.
        if by_labels.len() == by_labels.capacity() {
            by_labels.retain(|_, value| value.strong_count() > 0);
        }
        let made = Arc::new(make());
        by_labels.insert(key, Arc::downgrade(&made));
        made
    }

    fn live(&self) -> Vec<Arc<T>> {
        lock(&self.by_labels).values().filter_map(Weak::upgrade).collect()
    }
}

/// What is said of the process as a whole.
#[derive(Default)]
pub(super) struct Process {
    build: Mutex<Option<[String; 3]>>,
    config_hash: Mutex<Option<String>>,
    reloaded: AtomicU64,
    rejected: AtomicU64,
    last_rejected: AtomicBool,
    /// The bits of a Unix time in seconds; 0 before the first.
    last_taken: AtomicU64,
    access_lines_dropped: AtomicU64,
    upgraded: AtomicU64,
    health_taken_over: AtomicU64,
    health_ignored: AtomicU64,
    upgrades_failed: AtomicU64,
    /// Of a [`Phase`].
    phase: AtomicUsize,
    leaving: Mutex<Departures>,
}

impl Process {
    pub(super) fn set_build(&self, build: [String; 3]) {
        *lock(&self.build) = Some(build);
    }

    pub(super) fn set_config_hash(&self, hash: String) {
        *lock(&self.config_hash) = Some(hash);
    }

    pub(super) fn config_taken(&self, reload: bool, at: f64) {
        self.reloaded.fetch_add(reload.into(), Relaxed);
        self.last_rejected.store(false, Relaxed);
        self.last_taken.store(at.to_bits(), Relaxed);
    }

    pub(super) fn config_rejected(&self) {
        self.rejected.fetch_add(1, Relaxed);
        self.last_rejected.store(true, Relaxed);
    }

    pub(super) fn access_lines_dropped(&self, lines: u64) {
        self.access_lines_dropped.fetch_add(lines, Relaxed);
    }

    pub(super) fn health_taken_over(&self, success: bool) {
        let counter = if success { &self.health_taken_over } else { &self.health_ignored };
        counter.fetch_add(1, Relaxed);
    }

    pub(super) fn upgraded(&self, success: bool) {
        let counter = if success { &self.upgraded } else { &self.upgrades_failed };
        counter.fetch_add(1, Relaxed);
    }

    pub(super) fn set_phase(&self, phase: Phase) {
        self.phase.store(phase as usize, Relaxed);
    }

    pub(super) fn set_leaving(&self, departures: Departures) {
        *lock(&self.leaving) = departures;
    }

    fn collect(&self, page: &mut Page) {
        lock(&self.leaving).collect(page);
        if let Some(build) = &*lock(&self.build) {
            page.gauge(Row::BuildInfo, &build.each_ref().map(String::as_str), 1.0);
        }
        if let Some(hash) = &*lock(&self.config_hash) {
            page.gauge(Row::ConfigInfo, &[hash], 1.0);
        }
        page.counter(Row::Reloads, &["success"], &self.reloaded);
        page.counter(Row::Reloads, &["rejected"], &self.rejected);
        page.gauge(Row::ReloadSuccessful, &[], f64::from(!self.last_rejected.load(Relaxed)));
        let taken = self.last_taken.load(Relaxed);
        if taken != 0 {
            page.gauge(Row::ReloadTime, &[], f64::from_bits(taken));
        }
        page.counter(Row::LogLinesDropped, &["access"], &self.access_lines_dropped);
        page.counter(Row::Upgrades, &["success"], &self.upgraded);
        page.counter(Row::Upgrades, &["failed"], &self.upgrades_failed);
        page.counter(Row::HealthTakenOver, &["success"], &self.health_taken_over);
        page.counter(Row::HealthTakenOver, &["ignored"], &self.health_ignored);
        let phase = self.phase.load(Relaxed);
        for known in Phase::ALL {
            page.gauge(Row::Phase, &[known.label()], f64::from(known as usize == phase));
        }
        page.gauge(Row::Draining, &[], f64::from(phase >= Phase::Announced as usize));
    }
}

/// A panic under one of these locks leaves a map or a value that is whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_two_holders_of_the_same_labels_when_one_leaves_then_the_value_stays() {
        let shelf = Shelf::<1, u8>::default();
        let old = shelf.get(["a"], || 1);
        let new = shelf.get(["a"], || 2);
        drop(old);
        assert_eq!((*new, shelf.live().len()), (1, 1));
    }

    #[test]
    fn given_the_last_holder_when_it_leaves_then_so_does_the_value() {
        let shelf = Shelf::<1, u8>::default();
        drop(shelf.get(["a"], || 1));
        assert_eq!(shelf.live().len(), 0);
        assert_eq!(*shelf.get(["a"], || 2), 2);
    }

    #[test]
    fn given_names_that_come_and_go_when_many_have_then_the_dead_do_not_pile_up() {
        let shelf = Shelf::<1, usize>::default();
        for name in 0..10_000 {
            drop(shelf.get([&name.to_string()], || name));
        }
        assert!(lock(&shelf.by_labels).len() < 10);
    }
}
