//! What systemd wants to know of a unit of `Type=notify`, one datagram each. Without `NOTIFY_SOCKET` nothing is told, and what
//! cannot be sent is nobody's loss.

use std::ffi::OsString;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

#[derive(Clone, Default)]
pub struct Notify(Option<Arc<Supervisor>>);

struct Supervisor {
    socket: UnixDatagram,
    address: SocketAddr,
    is_ready: AtomicBool,
}

impl Notify {
    pub fn from_environment() -> Self {
        Notify(std::env::var_os("NOTIFY_SOCKET").and_then(Supervisor::at).map(Arc::new))
    }

    /// This process is the one to look after, and ready.
    pub fn ready(&self) {
        if let Some(supervisor) = &self.0 {
            supervisor.is_ready.store(true, Ordering::Release);
            supervisor.send(&format!("READY=1\nMAINPID={}", std::process::id()));
        }
    }

    pub fn stopping(&self) {
        if let Some(supervisor) = &self.0 {
            supervisor.is_ready.store(false, Ordering::Release);
            supervisor.send("STOPPING=1");
        }
    }

    /// Another process is the one to look after; what this one does is not for the supervisor.
    pub fn given_up(&self) {
        if let Some(supervisor) = &self.0 {
            supervisor.is_ready.store(false, Ordering::Release);
        }
    }

    /// The file is read while `work` runs.
    pub fn reloading<T>(&self, work: impl FnOnce() -> T) -> T {
        let supervisor = self.0.as_ref().filter(|supervisor| supervisor.is_ready.load(Ordering::Acquire));
        if let Some(supervisor) = supervisor {
            let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
            let micros = now.tv_sec * 1_000_000 + now.tv_nsec / 1_000;
            supervisor.send(&format!("RELOADING=1\nMONOTONIC_USEC={micros}"));
        }
        let done = work();
        if let Some(supervisor) = supervisor {
            supervisor.send("READY=1");
        }
        done
    }
}

impl Supervisor {
    /// A path, or with `@` a name without a file.
    fn at(address: OsString) -> Option<Self> {
        let address = match address.as_bytes() {
            [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
            _ => SocketAddr::from_pathname(&address),
        };
        let socket = UnixDatagram::unbound().ok()?;
        // A supervisor that reads nothing does not hold anybody up.
        socket.set_nonblocking(true).ok()?;
        Some(Supervisor { socket, address: address.ok()?, is_ready: AtomicBool::new(false) })
    }

    fn send(&self, state: &str) {
        let _ = self.socket.send_to_addr(state.as_bytes(), &self.address);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(address: &str, socket: &UnixDatagram) {
        let notify = Notify(Supervisor::at(address.into()).map(Arc::new));
        let heard = || {
            let mut bytes = [0; 200];
            let read = socket.recv(&mut bytes).map_or(0, |read| read);
            String::from_utf8_lossy(&bytes[..read]).into_owned()
        };
        socket.set_nonblocking(true).expect("a socket");
        notify.reloading(|| ());
        assert_eq!(heard(), "", "not ready, so nothing is reloaded");
        notify.ready();
        assert_eq!(heard(), format!("READY=1\nMAINPID={}", std::process::id()));
        let reloading = notify.reloading(heard);
        assert!(reloading.starts_with("RELOADING=1\nMONOTONIC_USEC="), "{reloading}");
        assert_eq!(heard(), "READY=1");
        notify.given_up();
        notify.reloading(|| ());
        assert_eq!(heard(), "", "another process is the main one");
        notify.stopping();
        assert_eq!(heard(), "STOPPING=1");
    }

    #[test]
    fn given_a_supervisor_when_told_then_it_hears_each_step_at_a_path_and_at_a_name() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("notify");
        told(path.to_str().expect("text"), &UnixDatagram::bind(&path).expect("bound"));
        let name = format!("derbent-notify-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).expect("a name");
        told(&format!("@{name}"), &UnixDatagram::bind_addr(&address).expect("bound"));
        Notify::default().ready();
    }
}
