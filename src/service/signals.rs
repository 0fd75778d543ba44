use super::lifecycle::{ANNOUNCED, may_end};
use super::{AccessLog, Lifecycle};
use crate::observe::{ListenerMetrics, Metrics, event};
use async_trait::async_trait;
use pingora::server::{ShutdownSignal, ShutdownSignalWatch};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::sleep;

/// How often a draining process looks whether it may go.
const LOOK: Duration = Duration::from_millis(50);

/// SIGTERM, SIGINT and SIGQUIT drain, a second one ends at once; SIGHUP is the [`Reloader`](super::Reloader)'s. In place of Pingora's
/// own watch, which closes the listeners at the first signal and, on SIGQUIT, shuts down even when no successor took the
/// sockets.
pub struct Signals {
    pub lifecycle: Arc<Lifecycle>,
    pub metrics: Arc<Metrics>,
    pub listeners: Vec<ListenerMetrics>,
    /// Written out before the end.
    pub access_log: Option<AccessLog>,
    /// Called when nothing is left to wait for, from a thread of its own. Pingora sleeps its whole grace period otherwise.
    pub at_end: fn(),
}

#[async_trait]
impl ShutdownSignalWatch for Signals {
    /// Comes back when the listeners shall close. Pingora then waits; so does a thread, for less.
    async fn recv(&self) -> ShutdownSignal {
        let mut watched = watched();
        let name = ending(&mut watched).await;
        let begun = Instant::now();
        self.lifecycle.set_draining();
        event::draining(&self.metrics, name);
        let again = tokio::select! {
            () = sleep(ANNOUNCED) => None,
            name = ending(&mut watched) => Some(name),
        };
        let (listeners, access_log, at_end) = (self.listeners.clone(), self.access_log.clone(), self.at_end);
        std::thread::spawn(move || {
            wait(begun, again, &listeners);
            if let Some(log) = access_log {
                log.flush();
            }
            at_end();
        });
        // Not the fast one: it tells the listeners nothing, and one that is woken while its runtime goes tries to accept
        // for ever.
        ShutdownSignal::GracefulTerminate
    }
}

/// Waits for what is in flight, or for another signal, and tells how it ended.
fn wait(begun: Instant, mut again: Option<&'static str>, listeners: &[ListenerMetrics]) {
    let requests = || listeners.iter().map(ListenerMetrics::requests_in_flight).sum();
    let connections = || listeners.iter().map(ListenerMetrics::open_connections).sum();
    let drained = async {
        while !may_end(begun.elapsed(), connections(), requests()) {
            sleep(LOOK).await;
        }
    };
    // Without a runtime there are no signals and no timers either: then Pingora's grace period is all there is.
    if again.is_none()
        && let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build()
    {
        again = runtime.block_on(async {
            let mut watched = watched();
            tokio::select! {
                () = drained => None,
                name = ending(&mut watched) => Some(name),
            }
        });
    }
    event::drained(requests(), begun.elapsed(), again);
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
