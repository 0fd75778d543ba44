//! What only one process at a time holds: the admin listener, the pid file, the socket for successors. The process it was taken from
//! hears of it when this one leaves, while that could still come back.

use super::wire::{self, BACK, LEAVING};
use crate::observe::event;
use serde_json::json;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError, Weak};
use tokio::sync::watch;

pub struct Seat {
    held: watch::Sender<bool>,
    socket: Option<PathBuf>,
    pid_file: Option<PathBuf>,
    /// Whom it was taken from, while that listens.
    before: Mutex<Weak<UnixStream>>,
}

impl Seat {
    /// `held`: from the start, for there is no predecessor.
    pub fn new(held: bool, socket: Option<PathBuf>, pid_file: Option<PathBuf>) -> Self {
        Seat { held: watch::Sender::new(held), socket, pid_file, before: Mutex::default() }
    }

    /// Whether this process holds it.
    pub fn held(&self) -> watch::Receiver<bool> {
        self.held.subscribe()
    }

    /// From the process before; a stream that leads nowhere: from one that is gone.
    pub(super) fn take(&self, before: Weak<UnixStream>) {
        *self.before.lock().unwrap_or_else(PoisonError::into_inner) = before;
        self.held.send_replace(true);
    }

    /// To the next, which is there.
    pub(super) fn give(&self) {
        self.part();
        self.held.send_replace(false);
    }

    /// From the next, which is gone.
    pub(super) fn take_back(&self) {
        self.tell_before(BACK);
        self.held.send_replace(true);
    }

    /// This process is not to be replaced when it ends.
    pub(super) fn part(&self) {
        self.tell_before(LEAVING);
    }

    /// One that is gone needs no word.
    fn tell_before(&self, word: &str) {
        let before = self.before.lock().unwrap_or_else(PoisonError::into_inner).upgrade();
        let _ = before.map(|before| wire::send(&before, &json!(word)));
    }

    /// The process ends: what nobody took over is put away.
    pub fn leave(&self) {
        if !*self.held.borrow() {
            return;
        }
        self.part();
        // One that is gone already is no matter.
        for path in [&self.socket, &self.pid_file].into_iter().flatten() {
            let _ = std::fs::remove_file(path);
        }
    }

    /// `None`, and a line in the log, when it cannot be had.
    pub(super) fn listen(&self) -> Option<UnixListener> {
        let path = self.socket.as_deref()?;
        let told = |why: &io::Error| {
            event::place_incomplete(format_args!("no successor can take over at {}", path.display()), why);
        };
        listen(path).inspect_err(told).ok()
    }

    /// Whether the pid file is this process's; without one, whoever it is.
    pub(super) fn names(&self, pid: u32) -> bool {
        let Some(path) = &self.pid_file else { return true };
        std::fs::read_to_string(path).is_ok_and(|written| written.trim().parse() == Ok(pid))
    }

    pub(super) fn write_pid(&self) {
        let Some(path) = &self.pid_file else { return };
        if let Err(error) = write_pid(path) {
            event::place_incomplete(format_args!("cannot write {}", path.display()), error);
        }
    }
}

/// Whole or not at all, in place of what is there: a leftover, or the predecessor's. Only this user may connect.
///
/// # Errors
/// Those of binding, above all a directory that is not there and a path that is too long.
pub fn listen(path: &Path) -> io::Result<UnixListener> {
    let new = beside(path);
    let _ = std::fs::remove_file(&new);
    let listener = UnixListener::bind(&new)?;
    std::fs::set_permissions(&new, std::fs::Permissions::from_mode(0o600))?;
    std::fs::rename(&new, path)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

fn write_pid(path: &Path) -> io::Result<()> {
    let new = beside(path);
    std::fs::write(&new, format!("{}\n", std::process::id()))?;
    std::fs::rename(&new, path)
}

fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}", std::process::id()));
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_a_leftover_when_listened_then_it_is_replaced_and_only_its_holder_puts_it_away() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let (socket, pid_file) = (directory.path().join("s"), directory.path().join("pid"));
        let seat = Seat::new(true, Some(socket.clone()), Some(pid_file.clone()));
        drop(listen(&socket).expect("bound"));
        assert!(UnixStream::connect(&socket).is_err(), "a leftover");
        let _listener = seat.listen().expect("bound anew");
        UnixStream::connect(&socket).expect("somebody listens");
        let mode = std::fs::metadata(&socket).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        seat.write_pid();
        assert_eq!(std::fs::read_to_string(&pid_file).expect("written"), format!("{}\n", std::process::id()));
        assert!(seat.names(std::process::id()) && !seat.names(0) && Seat::new(true, None, None).names(0));
        seat.give();
        seat.leave();
        assert!(socket.exists() && pid_file.exists(), "they are another's");
        seat.take_back();
        seat.leave();
        assert!(!socket.exists() && !pid_file.exists());
        assert_eq!(std::fs::read_dir(directory.path()).expect("a directory").count(), 0, "nothing beside");
    }
}
