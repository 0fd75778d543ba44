//! Where the process stands: starting → ready → announced → closing → done. One machine that is told what happens and what
//! time it is; everyone else looks at its phase here.
//!
//! | Phase | until | `/ready` | Connections |
//! |---|---|---|---|
//! | starting | the first round of probes is over | 503 | taken |
//! | ready | a signal, an order, or a successor that is ready | 200 | taken |
//! | announced | `close_listeners` after that, always | 503 | taken; every answer says that its connection closes, HTTP/2 gets its GOAWAY |
//! | closing | no request is in flight, but not before [`HOLD`]; at the latest `end` | 503 | no new ones; the idle ones close with the process |
//! | done | | | cut |
//!
//! Only a second signal cuts anything of this short. A successor that is lost while its predecessor still takes connections
//! makes the predecessor ready again.

use crate::config::{Drain, show_duration};
use crate::model::{Epoch, Stamp};
use crate::observe::{Left, ListenerMetrics, Metrics, Phase, event};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// Connections that were taken last have this long to bring their requests, after the listeners closed: one in the middle
/// of its TLS handshake is in no count yet, and the client of an idle one may be writing just now.
const HOLD: Duration = Duration::from_secs(3);

/// What the machine is told.
#[derive(Debug)]
pub enum Word {
    /// The first round of probes is over.
    Probed,
    Signal(&'static str),
    /// By the admin API.
    Ordered {
        by: String,
    },
    /// A successor is ready to serve in this process's place.
    Succeeded {
        by: u32,
    },
    /// It is not there any more.
    SuccessorLost,
    /// Time passes.
    Look,
}

/// The machine.
#[derive(Debug)]
struct Life {
    times: Drain,
    phase: Phase,
    since: Instant,
    leave: Option<Leave>,
}

#[derive(Debug)]
struct Leave {
    begun: Instant,
    why: String,
    signals: u32,
    /// Another process took over; what ends it if that is lost.
    successor: bool,
    /// The signal that ended the wait.
    forced: Option<&'static str>,
}

impl Life {
    fn new(times: Drain, now: Instant) -> Self {
        Life { times, phase: Phase::Starting, since: now, leave: None }
    }

    /// The phase that it enters by this.
    fn hear(&mut self, word: Word, left: Left, now: Instant) -> Option<Phase> {
        let next = match word {
            Word::Probed => (self.phase == Phase::Starting).then_some(Phase::Ready),
            Word::Signal(name) => self.signal(name, now),
            Word::Ordered { by } => self.begin(format!("ordered by {by}"), now),
            Word::Succeeded { by } => {
                let next = self.begin(format!("process {by} takes over"), now);
                self.leave.iter_mut().filter(|_| next.is_some()).for_each(|leave| leave.successor = true);
                next
            }
            Word::SuccessorLost => self.lose_successor(),
            Word::Look => self.look(left, now),
        }?;
        (self.phase, self.since) = (next, now);
        Some(next)
    }

    fn begin(&mut self, why: String, now: Instant) -> Option<Phase> {
        if self.leave.is_some() {
            return None;
        }
        self.leave = Some(Leave { begun: now, why, signals: 0, successor: false, forced: None });
        Some(Phase::Announced)
    }

    fn signal(&mut self, name: &'static str, now: Instant) -> Option<Phase> {
        let began = self.begin(name.to_owned(), now);
        let leave = self.leave.as_mut()?;
        leave.signals += 1;
        match leave.signals {
            // Where an order began it, as one before a container's end does, the first changes nothing.
            1 => began,
            _ if self.phase == Phase::Done => None,
            _ => {
                leave.forced = Some(name);
                Some(Phase::Done)
            }
        }
    }

    fn lose_successor(&mut self) -> Option<Phase> {
        let leave = self.leave.as_ref()?;
        let stays = self.phase == Phase::Announced && leave.successor && leave.signals == 0;
        stays.then(|| {
            self.leave = None;
            Phase::Ready
        })
    }

    fn look(&self, left: Left, now: Instant) -> Option<Phase> {
        let passed = now.saturating_duration_since(self.leave.as_ref()?.begun);
        let Drain { close_listeners, end, .. } = self.times;
        let held = passed >= (close_listeners + HOLD).min(end);
        match self.phase {
            Phase::Announced if passed >= close_listeners => Some(Phase::Closing),
            Phase::Closing if passed >= end || (held && left.requests <= 0) => Some(Phase::Done),
            _ => None,
        }
    }
}

/// The machine, for everyone.
pub struct Lifecycle {
    life: Mutex<Life>,
    /// What requests look at.
    is_draining: AtomicBool,
    is_done: AtomicBool,
    phase: watch::Sender<Phase>,
    draining: watch::Sender<bool>,
    closing: watch::Sender<bool>,
    /// Said once.
    done: watch::Sender<bool>,
    epoch: Epoch,
    metrics: Arc<Metrics>,
    listeners: Vec<ListenerMetrics>,
}

/// For who asks how it goes.
pub struct Shown {
    pub phase: Phase,
    pub since: Stamp,
    pub left: Left,
    pub leave: Option<ShownLeave>,
}

pub struct ShownLeave {
    pub why: String,
    pub begun: Stamp,
    pub closes_listeners: Stamp,
    pub ends: Stamp,
}

impl Lifecycle {
    pub fn new(times: Drain, metrics: Arc<Metrics>, listeners: Vec<ListenerMetrics>, epoch: Epoch) -> Self {
        Lifecycle {
            life: Mutex::new(Life::new(times, epoch.instant)),
            is_draining: AtomicBool::new(false),
            is_done: AtomicBool::new(false),
            phase: watch::Sender::default(),
            draining: watch::Sender::default(),
            closing: watch::Sender::default(),
            done: watch::Sender::default(),
            epoch,
            metrics,
            listeners,
        }
    }

    /// One word; whoever watches sees what came of it when this returns.
    pub fn hear(&self, word: Word, now: Instant) {
        let mut life = self.life();
        let (left, before) = (ListenerMetrics::left(&self.listeners), life.phase);
        let Some(phase) = life.hear(word, left, now) else { return };
        self.is_draining.store(phase.is_draining(), Ordering::Release);
        self.draining.send_if_modified(|draining| std::mem::replace(draining, phase.is_draining()) != *draining);
        if phase >= Phase::Closing {
            self.closing.send_if_modified(|closing| !std::mem::replace(closing, true));
        }
        if phase == Phase::Done {
            self.is_done.store(true, Ordering::Release);
            self.done.send_replace(true);
        }
        self.phase.send_replace(phase);
        // Who reads of it finds it so.
        self.tell(&life, before, left, now);
    }

    fn tell(&self, life: &Life, before: Phase, left: Left, now: Instant) {
        let leave = life.leave.as_ref();
        let passed = leave.map_or(Duration::ZERO, |leave| now.saturating_duration_since(leave.begun));
        match life.phase {
            Phase::Starting => {}
            Phase::Ready if before.is_draining() => event::drain_withdrawn(&self.metrics, "the successor is gone"),
            Phase::Ready => event::ready(&self.metrics),
            Phase::Announced => {
                let why = leave.map_or("", |leave| leave.why.as_str());
                let [close, end] = [life.times.close_listeners, life.times.end].map(show_duration);
                event::draining(&self.metrics, why, close, end);
            }
            Phase::Closing => event::closing(&self.metrics, passed, left),
            Phase::Done => {
                event::drained(&self.metrics, left, passed, leave.and_then(|leave| leave.forced));
            }
        }
    }

    pub fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::Acquire)
    }

    /// True from the drain's beginning on, for those who wait for it.
    pub fn draining(&self) -> watch::Receiver<bool> {
        self.draining.subscribe()
    }

    /// True from when the listeners close, and then for good.
    pub fn closing(&self) -> watch::Receiver<bool> {
        self.closing.subscribe()
    }

    /// What is under way is cut.
    pub fn is_done(&self) -> bool {
        self.is_done.load(Ordering::Acquire)
    }

    /// For those who wait for that; it changes once.
    pub fn done(&self) -> watch::Receiver<bool> {
        self.done.subscribe()
    }

    /// Comes back when what is under way is cut. What tends to requests goes by this.
    pub async fn over(&self) {
        // An error means that the process ends as well.
        drop(self.done().wait_for(|done| *done).await);
    }

    /// Requests in flight.
    pub fn requests(&self) -> i64 {
        ListenerMetrics::left(&self.listeners).requests
    }

    pub fn phase(&self) -> watch::Receiver<Phase> {
        self.phase.subscribe()
    }

    /// `None` when requests are welcome, else why not.
    pub fn not_ready(&self) -> Option<&'static str> {
        match *self.phase.borrow() {
            Phase::Starting => Some("starting: the first round of probes is not over"),
            Phase::Ready => None,
            _ => Some("draining"),
        }
    }

    /// When the process must be gone; `None` while it does not take its leave.
    pub fn killed_at(&self) -> Option<Instant> {
        let life = self.life();
        life.leave.as_ref().map(|leave| leave.begun + life.times.kill)
    }

    pub fn shown(&self) -> Shown {
        let life = self.life();
        let stamp = |instant| self.epoch.stamp(instant);
        Shown {
            phase: life.phase,
            since: stamp(life.since),
            left: ListenerMetrics::left(&self.listeners),
            leave: life.leave.as_ref().map(|leave| ShownLeave {
                why: leave.why.clone(),
                begun: stamp(leave.begun),
                closes_listeners: stamp(leave.begun + life.times.close_listeners),
                ends: stamp(leave.begun + life.times.end),
            }),
        }
    }

    fn life(&self) -> MutexGuard<'_, Life> {
        self.life.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: Left = Left { connections: 0, requests: 0, tunnels: 0 };
    const IDLE: Left = Left { connections: 2, ..NOTHING };
    const BUSY: Left = Left { requests: 1, ..IDLE };

    /// A life, and what it becomes by words said so many milliseconds after its beginning.
    struct Told(Life, Instant);

    impl Told {
        fn ready() -> Told {
            let now = Instant::now();
            let mut told = Told(Life::new(Drain::default(), now), now);
            assert_eq!(told.hear(0, Word::Probed, NOTHING), Some(Phase::Ready));
            told
        }

        fn hear(&mut self, at: u64, word: Word, left: Left) -> Option<Phase> {
            self.0.hear(word, left, self.1 + Duration::from_millis(at))
        }

        fn look(&mut self, at: u64, left: Left) -> Option<Phase> {
            self.hear(at, Word::Look, left)
        }
    }

    #[test]
    fn given_a_signal_when_time_passes_then_announced_in_full_and_held_and_bounded_in_the_end() {
        for (left, ends) in [(NOTHING, 5_000), (IDLE, 5_000), (BUSY, 8_000)] {
            let mut told = Told::ready();
            assert_eq!(told.hear(0, Word::Signal("SIGTERM"), left), Some(Phase::Announced));
            assert_eq!(told.look(1_999, left), None, "{left:?}");
            assert_eq!(told.look(2_000, left), Some(Phase::Closing), "{left:?}");
            assert_eq!(told.look(ends - 1, left), None, "{left:?}");
            assert_eq!(told.look(ends, left), Some(Phase::Done), "{left:?}");
            assert_eq!(told.look(ends + 1, left), None, "{left:?}");
        }
    }

    #[test]
    fn given_a_request_that_ends_when_it_does_then_so_does_the_process() {
        let mut told = Told::ready();
        told.hear(0, Word::Signal("SIGTERM"), BUSY);
        told.look(2_000, BUSY);
        assert_eq!((told.look(6_000, BUSY), told.look(6_001, IDLE)), (None, Some(Phase::Done)));
    }

    #[test]
    fn given_an_end_before_the_hold_is_over_when_it_comes_then_it_is_the_end() {
        let mut told = Told::ready();
        told.0.times = Drain { end: Duration::from_secs(3), ..Drain::default() };
        told.hear(0, Word::Signal("SIGTERM"), NOTHING);
        told.look(2_000, NOTHING);
        assert_eq!((told.look(2_999, NOTHING), told.look(3_000, BUSY)), (None, Some(Phase::Done)));
    }

    #[test]
    fn given_a_second_signal_when_it_comes_in_any_phase_then_it_is_over_at_once() {
        for looks in [&[][..], &[2_000], &[2_000, 3_000]] {
            let mut told = Told::ready();
            told.hear(0, Word::Signal("SIGTERM"), BUSY);
            for look in looks {
                told.look(*look, BUSY);
            }
            assert_eq!(told.hear(3_500, Word::Signal("SIGINT"), BUSY), Some(Phase::Done));
            assert_eq!(told.0.leave.as_ref().and_then(|leave| leave.forced), Some("SIGINT"));
            assert_eq!(told.hear(3_600, Word::Signal("SIGINT"), BUSY), None);
        }
    }

    #[test]
    fn given_an_order_when_a_signal_follows_then_the_drain_goes_on_and_only_the_next_one_ends_it() {
        let mut told = Told::ready();
        let order = || Word::Ordered { by: "127.0.0.1:4".into() };
        assert_eq!(told.hear(0, order(), BUSY), Some(Phase::Announced));
        assert_eq!(told.hear(100, order(), BUSY), None);
        assert_eq!(told.hear(200, Word::Signal("SIGTERM"), BUSY), None);
        assert_eq!(told.look(2_000, BUSY), Some(Phase::Closing), "counted from the order");
        assert_eq!(told.hear(2_100, Word::Signal("SIGTERM"), BUSY), Some(Phase::Done));
    }

    #[test]
    fn given_probes_that_report_late_when_a_drain_began_then_it_stays_a_drain() {
        let now = Instant::now();
        let mut told = Told(Life::new(Drain::default(), now), now);
        assert_eq!(told.hear(0, Word::Signal("SIGTERM"), NOTHING), Some(Phase::Announced));
        assert_eq!(told.hear(1, Word::Probed, NOTHING), None);
        assert_eq!(told.0.phase, Phase::Announced);
    }

    #[test]
    fn given_a_successor_when_it_is_lost_then_the_process_stays_unless_it_is_too_late_or_told_to_end() {
        let succeeded = || Word::Succeeded { by: 7 };
        let mut told = Told::ready();
        assert_eq!(told.hear(0, succeeded(), BUSY), Some(Phase::Announced));
        assert_eq!(told.hear(1_900, Word::SuccessorLost, BUSY), Some(Phase::Ready));
        assert_eq!(told.look(2_500, BUSY), None);
        assert_eq!(told.hear(3_000, succeeded(), BUSY), Some(Phase::Announced), "the next one");
        assert_eq!(told.look(5_000, BUSY), Some(Phase::Closing));
        assert_eq!(told.hear(5_001, Word::SuccessorLost, BUSY), None, "the listeners are closed");
        for first in [succeeded(), Word::Ordered { by: "someone".into() }, Word::Signal("SIGTERM")] {
            let mut told = Told::ready();
            told.hear(0, first, BUSY);
            told.hear(1, Word::Signal("SIGTERM"), BUSY);
            assert_eq!(told.hear(2, Word::SuccessorLost, BUSY), None);
        }
    }

    #[test]
    fn given_a_life_when_watched_then_all_who_look_agree() {
        let metrics = Arc::new(Metrics::new());
        let listener = metrics.listener("web");
        let now = Instant::now();
        let epoch = Epoch { instant: now, wall: std::time::SystemTime::now() };
        let lifecycle = Lifecycle::new(Drain::default(), metrics, vec![listener.clone()], epoch);
        let (phase, draining) = (lifecycle.phase(), lifecycle.draining());
        assert_eq!((*phase.borrow(), *draining.borrow(), lifecycle.killed_at()), (Phase::Starting, false, None));
        assert!(lifecycle.not_ready().is_some_and(|why| why.starts_with("starting")));
        lifecycle.hear(Word::Probed, now);
        assert_eq!((lifecycle.not_ready(), lifecycle.is_draining()), (None, false));
        let _request = listener.request_started();
        lifecycle.hear(Word::Ordered { by: "127.0.0.1:4".into() }, now);
        assert_eq!((*phase.borrow(), *draining.borrow(), lifecycle.is_draining()), (Phase::Announced, true, true));
        assert_eq!(lifecycle.not_ready(), Some("draining"));
        assert_eq!(lifecycle.killed_at(), Some(now + Drain::default().kill));
        let shown = lifecycle.shown();
        assert_eq!((shown.phase, shown.left.requests), (Phase::Announced, 1));
        assert_eq!(shown.leave.map(|leave| leave.why).as_deref(), Some("ordered by 127.0.0.1:4"));
        let done = lifecycle.done();
        assert_eq!((lifecycle.is_done(), *done.borrow(), lifecycle.requests()), (false, false, 1));
        (0..2).for_each(|_| lifecycle.hear(Word::Signal("SIGTERM"), now));
        assert_eq!((lifecycle.is_done(), *done.borrow(), *phase.borrow()), (true, true, Phase::Done));
    }
}
