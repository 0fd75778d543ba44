//! What only one process at a time holds: the admin listener, the pid file, the socket for successors. The processes that it came from
//! hear of it when this one leaves, while they could still come back.

use super::place::patiently;
use super::wire::{self, BACK, LEAVING};
use serde_json::json;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use tokio::sync::watch;

/// Streams to the processes before; one that leads nowhere: to one that is gone, or has closed its listeners.
pub(super) type Before = Vec<Weak<UnixStream>>;

pub struct Seat {
    held: watch::Sender<bool>,
    socket: Option<PathBuf>,
    pid_file: Option<PathBuf>,
    /// Whom it was taken from, and whom that had it from, while they listen.
    before: Mutex<Before>,
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

    pub(super) fn take(&self, before: Before) {
        *self.before() = before;
        self.held.send_replace(true);
    }

    /// To the next, which is there.
    pub(super) fn give(&self) {
        self.part();
        self.held.send_replace(false);
    }

    /// To the next, which is there and keeps the streams as well: none of those before is back while one of the two is there.
    pub(super) fn bequeath(&self) -> Vec<Arc<UnixStream>> {
        self.held.send_replace(false);
        self.listening()
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
        for before in self.listening() {
            let _ = wire::send(&before, &json!(word));
        }
    }

    /// Those who still could come back.
    fn listening(&self) -> Vec<Arc<UnixStream>> {
        self.before().iter().filter_map(Weak::upgrade).collect()
    }

    fn before(&self) -> MutexGuard<'_, Before> {
        self.before.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// `None` when it cannot be had, which the log says by then.
    pub(super) async fn listen(&self) -> Option<UnixListener> {
        let path = self.socket.as_deref()?;
        patiently(&format!("no successor can take over at {}", path.display()), || listen(path)).await
    }

    /// Whether the pid file is this process's; without one, whoever it is.
    pub(super) fn names(&self, pid: u32) -> bool {
        let Some(path) = &self.pid_file else { return true };
        std::fs::read_to_string(path).is_ok_and(|written| written.trim().parse() == Ok(pid))
    }

    pub(super) async fn write_pid(&self) {
        let Some(path) = &self.pid_file else { return };
        patiently(&format!("this process is not in {}", path.display()), || write_pid(path)).await;
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

    #[tokio::test]
    async fn given_a_leftover_when_listened_then_it_is_replaced_and_only_its_holder_puts_it_away() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let (socket, pid_file) = (directory.path().join("s"), directory.path().join("pid"));
        let seat = Seat::new(true, Some(socket.clone()), Some(pid_file.clone()));
        drop(listen(&socket).expect("bound"));
        assert!(UnixStream::connect(&socket).is_err(), "a leftover");
        let _listener = seat.listen().await.expect("bound anew");
        UnixStream::connect(&socket).expect("somebody listens");
        let mode = std::fs::metadata(&socket).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        seat.write_pid().await;
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
