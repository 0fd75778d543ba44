//! Who comes to take this process's place. One at a time; only this user's own processes, or root's.

use super::wire::{self, BACK, Inbox, LEAVING};
use super::{MOST_HEALTH, READY_WITHIN, Seat};
use crate::observe::{Metrics, Phase, event};
use crate::runtime::Runtime;
use crate::service::Lifecycle;
use crate::service::lifecycle::Word;
use serde_json::json;
use std::io::{self, ErrorKind};
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

const GREETS_WITHIN: Duration = Duration::from_secs(10);
/// Of what it asked for, a piece.
const TAKES_WITHIN: Duration = Duration::from_secs(10);
/// How often it is asked whether a successor that took over is still there.
const LOOK: Duration = Duration::from_millis(50);

pub struct Successors {
    lifecycle: Arc<Lifecycle>,
    seat: Arc<Seat>,
    metrics: Arc<Metrics>,
    runtime: Arc<Runtime>,
    /// Copies, by address; none when the listeners are closed.
    sockets: Mutex<Vec<(String, TcpListener)>>,
    /// Held while one is here.
    turn: Mutex<()>,
    greeted: AtomicU32,
    took_over: AtomicU32,
}

impl Successors {
    pub fn new(
        lifecycle: Arc<Lifecycle>,
        seat: Arc<Seat>,
        metrics: Arc<Metrics>,
        runtime: Arc<Runtime>,
        sockets: Vec<(String, TcpListener)>,
    ) -> Self {
        let (turn, greeted, took_over) = (Mutex::default(), AtomicU32::new(0), AtomicU32::new(0));
        Successors { lifecycle, seat, metrics, runtime, sockets: Mutex::new(sockets), turn, greeted, took_over }
    }

    /// Lets go of the sockets: while a copy is open, the kernel takes connections.
    pub fn close(&self) {
        self.sockets().clear();
    }

    /// Whether this process came to ask for the sockets.
    pub(super) fn has_greeted(&self, pid: u32) -> bool {
        self.greeted.load(Ordering::Acquire) == pid
    }

    pub(super) fn has_taken_over(&self, pid: u32) -> bool {
        self.took_over.load(Ordering::Acquire) == pid
    }

    /// Whether whoever reads the pid file finds this process.
    pub(super) fn is_named(&self, pid: u32) -> bool {
        self.seat.names(pid)
    }

    /// The whole conversation with one; blocks for as long as it lasts.
    pub(super) fn answer(&self, stream: io::Result<UnixStream>) {
        let Ok(stream) = stream else { return };
        let limited = stream.set_nonblocking(false).and_then(|()| stream.set_write_timeout(Some(TAKES_WITHIN)));
        if limited.is_err() {
            return;
        }
        // What does not even greet is no successor, and gets nothing. Who is refused has said all it wants to say by then, so that
        // it hears why.
        let mut inbox = Inbox::default();
        let Ok(greeting) = greeting(&stream, &mut inbox) else { return };
        let pid = greeting.pid;
        let refuse = |why: &str| drop(wire::send(&stream, &json!({ "refused": why })));
        let turn = match self.turn.try_lock() {
            Ok(turn) => turn,
            Err(TryLockError::Poisoned(turn)) => turn.into_inner(),
            Err(TryLockError::WouldBlock) => return refuse("another successor is on its way"),
        };
        if self.lifecycle.is_draining() {
            return refuse("it is draining");
        }
        self.greeted.store(pid, Ordering::Release);
        let Err(error) = self.hand_over(&stream, &mut inbox, &greeting) else {
            return self.look_after(&stream, inbox, pid);
        };
        let why = match error.kind() {
            ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => {
                format!("process {pid} ended before it was ready")
            }
            ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                refuse("it was not ready in time");
                format!("process {pid} was not ready within {READY_WITHIN:?}")
            }
            _ => format!("process {pid}: {error}"),
        };
        // Who reads of it may send the next one.
        drop(turn);
        event::upgrade_failed(&self.metrics, why);
    }

    /// Up to the point from which the successor serves in this process's place.
    fn hand_over(&self, stream: &UnixStream, inbox: &mut Inbox, greeting: &Greeting) -> io::Result<()> {
        {
            let sockets = self.sockets();
            let copies: Vec<&TcpListener> = sockets.iter().map(|(_, socket)| socket).collect();
            wire::send_sockets(stream, &copies)?;
            let addresses: Vec<&String> = sockets.iter().map(|(address, _)| address).collect();
            wire::send(stream, &json!({ "listeners": addresses, "pid": std::process::id(), "health": true }))?;
        }
        stream.set_read_timeout(Some(READY_WITHIN))?;
        let mut said = inbox.line(stream)?;
        if said == json!("health") {
            self.tell_health(stream)?;
            said = inbox.line(stream)?;
        }
        if said != json!("ready") {
            return Err(io::Error::new(ErrorKind::InvalidData, "it said something else than that it is ready"));
        }
        // First, so that there is no moment at which this process's end brings the one before back beside the successor.
        self.give_place(stream, greeting.inherits).inspect_err(|_| self.seat.take_back())?;
        event::upgraded(greeting.pid);
        self.lifecycle.hear(Word::Succeeded { by: greeting.pid }, Instant::now());
        self.took_over.store(greeting.pid, Ordering::Release);
        Ok(())
    }

    fn give_place(&self, stream: &UnixStream, inherits: bool) -> io::Result<()> {
        match inherits {
            true => wire::send_sockets(stream, &self.seat.bequeath())?,
            false => self.seat.give(),
        }
        wire::send(stream, &json!("yours"))
    }

    fn tell_health(&self, stream: &UnixStream) -> io::Result<()> {
        match self.runtime.hand_over(Instant::now()).write(MOST_HEALTH) {
            Ok(document) => wire::send_document(stream, &document),
            Err(why) => wire::send(stream, &json!({ "refused": why })),
        }
    }

    /// While this process still could come back.
    fn look_after(&self, stream: &UnixStream, mut inbox: Inbox, pid: u32) {
        let phase = self.lifecycle.phase();
        let _ = stream.set_read_timeout(Some(LOOK));
        let mut leaving = false;
        while *phase.borrow() < Phase::Closing {
            match inbox.line(stream) {
                Ok(word) if word == LEAVING => leaving = true,
                Ok(word) if word == BACK => leaving = false,
                // Of a later release.
                Ok(_) => {}
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock | ErrorKind::TimedOut => {}
                    // Whoever talks is there.
                    ErrorKind::InvalidData => return,
                    _ if leaving => return,
                    _ => return self.come_back(pid),
                },
            }
        }
    }

    /// Unless it is too late by now.
    fn come_back(&self, lost: u32) {
        self.lifecycle.hear(Word::SuccessorLost, Instant::now());
        if *self.lifecycle.phase().borrow() == Phase::Ready {
            event::upgrade_failed(&self.metrics, format_args!("process {lost} ended when it had just taken over"));
            self.seat.take_back();
        }
    }

    fn sockets(&self) -> MutexGuard<'_, Vec<(String, TcpListener)>> {
        self.sockets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Greeting {
    pid: u32,
    /// It keeps what streams lead to the processes before.
    inherits: bool,
}

fn greeting(stream: &UnixStream, inbox: &mut Inbox) -> io::Result<Greeting> {
    stream.set_read_timeout(Some(GREETS_WITHIN))?;
    let greeting = inbox.line(stream)?;
    let pid = greeting["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok());
    match pid {
        Some(pid) if greeting["derbent"] == 1 => Ok(Greeting { pid, inherits: greeting["inherits"] == true }),
        _ => {
            wire::send(stream, &json!({ "refused": "it speaks another version of the hand-over" }))?;
            Err(ErrorKind::InvalidData.into())
        }
    }
}
