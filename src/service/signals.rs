use super::lifecycle::Word;
use super::{AccessLog, Lifecycle, Seat};
use crate::observe::Phase;
use async_trait::async_trait;
use pingora::server::{ShutdownSignal, ShutdownSignalWatch};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval};

/// How often a draining process looks whether it may go.
const LOOK: Duration = Duration::from_millis(50);
/// Requests that are cut have this long to be counted and told of.
const CUT_WITHIN: Duration = Duration::from_millis(500);
const CUT_LOOK: Duration = Duration::from_millis(5);

/// Tells the [`Lifecycle`] of SIGTERM, SIGINT, SIGQUIT and of the time that passes, and does what its last phases ask for; SIGHUP is
/// the [`Reloader`](super::Reloader)'s. In place of Pingora's own watch, which ends the server at the first signal and, on
/// SIGQUIT, shuts down even when no successor took the sockets.
pub struct Signals(Arc<End>);

/// What is done when nothing is left to wait for.
struct End {
    lifecycle: Arc<Lifecycle>,
    /// Written out before the end.
    access_log: Option<AccessLog>,
    seat: Arc<Seat>,
    /// Called from a thread of its own.
    at_end: fn(),
    called: AtomicBool,
}

impl Signals {
    pub fn new(lifecycle: Arc<Lifecycle>, access_log: Option<AccessLog>, seat: Arc<Seat>, at_end: fn()) -> Self {
        Signals(Arc::new(End { lifecycle, access_log, seat, at_end, called: AtomicBool::new(false) }))
    }
}

#[async_trait]
impl ShutdownSignalWatch for Signals {
    /// Comes back when the drain is over and all that it asks for is done.
    async fn recv(&self) -> ShutdownSignal {
        drive(&self.0).await;
        let end = self.0.clone();
        // An error means that `at_end` panicked, which is told.
        let _ = spawn_blocking(move || end.come()).await;
        // Not the fast one, which does not wait for the services' last words.
        ShutdownSignal::GracefulTerminate
    }
}

async fn drive(end: &Arc<End>) {
    let lifecycle = &end.lifecycle;
    let (mut watched, mut phase) = (watched(), lifecycle.phase());
    let mut look = interval(LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut guard = None;
    loop {
        let now = *phase.borrow_and_update();
        if now == Phase::Done {
            break;
        }
        match lifecycle.killed_at() {
            Some(at) if guard != Some(at) => {
                guard = Some(at);
                let end = end.clone();
                std::thread::spawn(move || end.kill(at));
            }
            _ => {}
        }
        tokio::select! {
            name = ending(&mut watched) => lifecycle.hear(Word::Signal(name), Instant::now()),
            _ = look.tick(), if now.is_draining() => lifecycle.hear(Word::Look, Instant::now()),
            // The sender is kept above.
            _ = phase.changed() => {}
        }
    }
}

impl End {
    fn come(&self) {
        let until = Instant::now() + CUT_WITHIN;
        while self.lifecycle.requests() > 0 && Instant::now() < until {
            std::thread::sleep(CUT_LOOK);
        }
        if let Some(log) = &self.access_log {
            log.flush();
        }
        self.seat.leave();
        self.call();
    }

    /// Whatever hangs by then. A drain that was withdrawn, and may have begun again, is not this one.
    fn kill(&self, at: Instant) {
        std::thread::sleep(at.saturating_duration_since(Instant::now()));
        if self.lifecycle.killed_at() == Some(at) {
            self.call();
        }
    }

    fn call(&self) {
        if !self.called.swap(true, Ordering::AcqRel) {
            (self.at_end)();
        }
    }
}

fn watched() -> Vec<(&'static str, Signal)> {
    let kinds =
        [("SIGTERM", SignalKind::terminate()), ("SIGINT", SignalKind::interrupt()), ("SIGQUIT", SignalKind::quit())];
    kinds.into_iter().filter_map(|(name, kind)| Some((name, signal(kind).ok()?))).collect()
}

/// The name of the first signal to come.
async fn ending(watched: &mut [(&'static str, Signal)]) -> &'static str {
    std::future::poll_fn(|context| {
        for (name, signal) in watched.iter_mut() {
            if signal.poll_recv(context).is_ready() {
                return std::task::Poll::Ready(*name);
            }
        }
        std::task::Poll::Pending
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Drain;
    use crate::model::Epoch;
    use std::sync::atomic::AtomicUsize;
    use std::time::SystemTime;

    static ENDED: AtomicUsize = AtomicUsize::new(0);

    #[test]
    fn given_a_process_that_hangs_when_its_last_moment_comes_then_it_ends_once_and_only_by_the_drain_that_runs() {
        let epoch = Epoch { instant: Instant::now(), wall: SystemTime::now() };
        let lifecycle = Arc::new(Lifecycle::new(Drain::default(), Arc::default(), Vec::new(), epoch));
        let count = || {
            ENDED.fetch_add(1, Ordering::SeqCst);
        };
        let Signals(end) = Signals::new(lifecycle.clone(), None, Arc::new(Seat::new(true, None, None)), count);
        let begun = epoch.instant.checked_sub(Drain::default().kill).expect("a machine that runs for some seconds");
        end.kill(epoch.instant);
        assert_eq!(ENDED.load(Ordering::SeqCst), 0, "nothing runs");
        lifecycle.hear(Word::Signal("SIGTERM"), begun);
        end.kill(begun);
        assert_eq!(ENDED.load(Ordering::SeqCst), 0, "another one");
        end.kill(epoch.instant);
        end.come();
        assert_eq!(ENDED.load(Ordering::SeqCst), 1);
    }
}
