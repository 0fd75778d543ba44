use super::Lifecycle;
use super::lifecycle::may_end;
use crate::observe::{ListenerMetrics, Metrics, event};
use async_trait::async_trait;
use pingora::server::{ShutdownSignal, ShutdownSignalWatch};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::sleep;

/// How often a draining process looks whether it may go.
const LOOK: Duration = Duration::from_millis(50);

/// Whoever sends it means "read your file again", and its default action would end the process.
const HANGUP: &str = "SIGHUP";

/// SIGTERM, SIGINT and SIGQUIT drain, a second one ends at once; SIGHUP changes nothing and is told so. In place of Pingora's own watch, which closes the
/// listeners at the first signal and, on SIGQUIT, shuts down even when no successor took the sockets.
pub struct Signals {
    pub lifecycle: Arc<Lifecycle>,
    pub metrics: Arc<Metrics>,
    pub listeners: Vec<ListenerMetrics>,
}

#[async_trait]
impl ShutdownSignalWatch for Signals {
    async fn recv(&self) -> ShutdownSignal {
        let kinds = [
            ("SIGTERM", SignalKind::terminate()),
            ("SIGINT", SignalKind::interrupt()),
            ("SIGQUIT", SignalKind::quit()),
            (HANGUP, SignalKind::hangup()),
        ];
        let mut watched: Vec<(&str, Signal)> =
            kinds.into_iter().filter_map(|(name, kind)| Some((name, signal(kind).ok()?))).collect();
        let name = loop {
            match next(&mut watched).await {
                HANGUP => event::hangup_ignored(),
                name => break name,
            }
        };
        self.lifecycle.set_draining();
        event::draining(&self.metrics, name);
        tokio::select! {
            () = self.drained() => {}
            name = next(&mut watched) => event::draining(&self.metrics, format_args!("{name}, ending at once")),
        }
        // Nothing is waited for any more. Not the fast one: it tells the listeners nothing, and one that is woken while its
        // runtime goes tries to accept for ever.
        ShutdownSignal::GracefulTerminate
    }
}

impl Signals {
    async fn drained(&self) {
        let begun = Instant::now();
        let in_flight = || self.listeners.iter().map(ListenerMetrics::requests_in_flight).sum();
        while !may_end(begun.elapsed(), in_flight()) {
            sleep(LOOK).await;
        }
    }
}

/// The name of the first signal to come.
async fn next(watched: &mut [(&'static str, Signal)]) -> &'static str {
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
