//! One process in the place of another, with nothing lost between. The one that serves listens on a socket of its own; a successor,
//! started with `--upgrade`, asks there for the listening sockets.
//!
//! | Successor | Predecessor |
//! |---|---|
//! | has read and compiled its file: `{"derbent": 1, "pid": …, "inherits": true}` | |
//! | | the listening sockets, and `{"listeners": [address, …], "pid": …}`; or `{"refused": why}` |
//! | its first probes are over: `health` | |
//! | | a line with a number of bytes, and [what it knows of health](crate::runtime::Handover); or `{"refused": why}` |
//! | goes on with that where it can, and says so where it cannot | |
//! | accepts: `ready` | |
//! | | gives up the place (admin listener, pid file, this socket), drains: its own streams to those before it, and `yours` |
//! | takes the place | |
//! | drains, or hands the place to a successor that does not know of streams: `leaving`; that came to nothing: `back` | |
//! | | until its listeners are closed: comes back when the stream ends, unless that was `leaving` |
//!
//! A predecessor that knows what `health` asks for says so with its listeners; one that does not is not asked. What it learns after
//! it answered is its own: both serve from then on, and the order to drain comes a moment later.
//!
//! Until it says `ready` the successor owes nobody anything: whatever becomes of it, the predecessor serves on and says so, and
//! the next attempt is as good. When it is lost later, was not leaving, but before the predecessor has closed its listeners, the predecessor comes
//! back; a successor that was on its way to the one that is lost then takes over from the one that is back. What both share is the kernel's queue of connections, which no end of one of them empties.
//!
//! Of several upgrades in a row each process has the streams to all before it that still listen. So one comes back when everybody after
//! it is lost, and not while anybody is there; whoever is lost in the middle is missed by nobody. Where a later file has a shorter
//! `close_listeners`, a process that has closed its own listeners keeps such a stream to its end: the one before waits for that too.

mod gate;
mod launch;
mod place;
mod predecessor;
mod seat;
mod successors;
mod wire;

pub use gate::Gate;
pub use launch::{Launch, Launcher};
pub use predecessor::{Handed, Predecessor};
pub use seat::{Seat, listen};
pub use successors::Successors;

use self::predecessor::Verdict;
use super::Lifecycle;
use super::lifecycle::Word;
use super::notify::Notify;
use crate::observe::{Metrics, Phase, event};
use async_trait::async_trait;
use pingora::server::ShutdownWatch;
use pingora::services::background::BackgroundService;
use std::os::unix::net::UnixListener;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::task::spawn_blocking;

/// A successor that takes longer until it is ready is not waited for.
pub const READY_WITHIN: Duration = Duration::from_secs(120);

/// Of what is known of health: 10,000 destinations that are out by three judges each take 26 MB, without what only people read.
const MOST_HEALTH: usize = 64 << 20;

/// The process before, for whoever's turn it is to talk with it.
pub type Before = Arc<Mutex<Option<Predecessor>>>;

/// Takes over from the process before, holds the place, and gives it to the next.
pub struct Upgrade {
    lifecycle: Arc<Lifecycle>,
    seat: Arc<Seat>,
    successors: Arc<Successors>,
    predecessor: Before,
    metrics: Arc<Metrics>,
    /// Bound before anything ran, where there is no predecessor.
    socket: Mutex<Option<UnixListener>>,
    notify: Notify,
}

#[async_trait]
impl BackgroundService for Upgrade {
    async fn start(&self, _: ShutdownWatch) {
        let mut closing = self.lifecycle.closing();
        tokio::select! {
            () = self.live() => {}
            // An error means that the process ends.
            _ = closing.wait_for(|closing| *closing) => {}
        }
        self.successors.close();
    }
}

impl Upgrade {
    /// `socket` is for successors, where there is no predecessor.
    pub fn new(
        lifecycle: Arc<Lifecycle>,
        seat: Arc<Seat>,
        successors: Arc<Successors>,
        (predecessor, metrics): (Before, Arc<Metrics>),
        socket: Option<UnixListener>,
        notify: Notify,
    ) -> Self {
        Upgrade { lifecycle, seat, successors, predecessor, metrics, socket: Mutex::new(socket), notify }
    }

    async fn live(&self) {
        let before = take(&self.predecessor);
        if let Some(predecessor) = before
            && !self.take_over(predecessor).await
        {
            return;
        }
        tokio::join!(self.hold(), self.tell());
    }

    /// Whether the place is this process's.
    async fn take_over(&self, predecessor: Predecessor) -> bool {
        let mut phase = self.lifecycle.phase();
        let ready = phase.wait_for(|phase| *phase >= Phase::Ready).await.is_ok_and(|phase| *phase == Phase::Ready);
        if !ready {
            // It was told to end before: its predecessor sees it go.
            return false;
        }
        match spawn_blocking(|| predecessor.ready()).await {
            Ok(Verdict::Yours(pid, before)) => {
                event::took_over(&self.metrics, Some(pid));
                self.seat.take(before);
                true
            }
            Ok(Verdict::Gone) => {
                event::took_over(&self.metrics, None);
                self.seat.take(Vec::new());
                true
            }
            Ok(Verdict::Kept(why)) => {
                event::not_wanted(why);
                // Whom it accepted already is served, and sent to the other.
                self.lifecycle.hear(Word::Ordered { by: "the process before".to_owned() }, Instant::now());
                false
            }
            Err(_) => false,
        }
    }

    /// While the place is this process's, whoever wants it finds this process.
    async fn hold(&self) {
        let mut held = self.seat.held();
        while held.wait_for(|held| *held).await.is_ok() {
            tokio::select! {
                // The name is written first, and once.
                _ = async { tokio::join!(self.seat.write_pid(), self.listen()) } => {}
                _ = held.wait_for(|held| !*held) => {}
            }
        }
    }

    /// For good, to whoever wants the place.
    async fn listen(&self) {
        let bound = match take(&self.socket) {
            Some(bound) => Some(bound),
            None => self.seat.listen().await,
        };
        match bound.map(tokio::net::UnixListener::from_std) {
            Some(Ok(listener)) => self.answer(listener).await,
            // Nobody can ask.
            _ => std::future::pending().await,
        }
    }

    async fn answer(&self, listener: tokio::net::UnixListener) {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    let successors = self.successors.clone();
                    spawn_blocking(move || successors.answer(stream.into_std()));
                }
                // Out of descriptors, most likely.
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
    }

    /// Tells systemd whom it has to do with, and the process before that it is not to come back.
    async fn tell(&self) {
        let (mut held, mut phase) = (self.seat.held(), self.lifecycle.phase());
        loop {
            let (is_held, now) = (*held.borrow_and_update(), *phase.borrow_and_update());
            match now {
                Phase::Ready if is_held => self.notify.ready(),
                Phase::Announced if is_held => self.notify.stopping(),
                _ if !is_held => self.notify.given_up(),
                _ => {}
            }
            if now.is_draining() && is_held {
                self.seat.part();
            }
            tokio::select! {
                changed = held.changed() => if changed.is_err() { return },
                changed = phase.changed() => if changed.is_err() { return },
            }
        }
    }
}

fn take<T>(from: &Mutex<Option<T>>) -> Option<T> {
    from.lock().unwrap_or_else(PoisonError::into_inner).take()
}
