//! What a unit of `Type=notify` is told, datagram by datagram: systemd is a socket of the test's own.

use crate::support::{Answer, DEADLINE, Edge, Gate, Origin, Step, derbent, eventually, get, one_destination};
use crate::upgrade::{Successor, ctl_upgrade, pid};
use std::os::unix::net::UnixDatagram;
use std::time::Duration;
use tempfile::TempDir;

struct Supervisor(UnixDatagram);

impl Supervisor {
    /// Of a process that runs `yaml` and has not been waited for.
    fn of(yaml: &str) -> (Supervisor, Edge) {
        let directory = TempDir::new().unwrap();
        let path = directory.path().join("notify");
        let socket = UnixDatagram::bind(&path).expect("bound");
        socket.set_read_timeout(Some(DEADLINE)).unwrap();
        let edge = Edge::launch(directory, yaml, &[("NOTIFY_SOCKET", path.to_str().unwrap())]);
        (Supervisor(socket), edge)
    }

    fn hears(&self) -> String {
        let mut bytes = [0; 200];
        let read = self.0.recv(&mut bytes).expect("told in time");
        String::from_utf8_lossy(&bytes[..read]).into_owned()
    }

    fn hears_that_it_is(&self, pid: u32) {
        assert_eq!(self.hears(), format!("READY=1\nMAINPID={pid}"));
    }

    /// At a time that is not before `since`, as systemd wants it of `Type=notify-reload`.
    fn hears_of_a_reload(&self, since: Duration) {
        let told = self.hears();
        let at = told.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").unwrap_or_else(|| panic!("{told}"));
        let at = Duration::from_micros(at.parse().expect("microseconds"));
        assert!(since <= at && at <= monotonic(), "{at:?} is not between {since:?} and now");
        assert_eq!(self.hears(), "READY=1");
    }

    fn has_heard_all(&self) {
        self.0.set_nonblocking(true).unwrap();
        let more = self.0.recv(&mut [0; 200]);
        assert_eq!(more.expect_err("nothing is told").kind(), std::io::ErrorKind::WouldBlock);
        self.0.set_nonblocking(false).unwrap();
    }
}

/// Cut to microseconds, as it is told.
fn monotonic() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Duration::from_micros((now.tv_sec * 1_000_000 + now.tv_nsec / 1_000).unsigned_abs())
}

fn yaml(origin: &Origin, drain: &str) -> String {
    let server = format!(
        "server: {{ upgrade_socket: up.sock, pid_file: pid, reload: {{ watch: false }}, drain: {{ {drain} }} }}\n"
    );
    let probes = "health: { active: { type: http, path: /health, interval: 60s, timeout: 60s } }";
    server + &one_destination(&origin.url(), probes)
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_unit_when_it_starts_reloads_is_upgraded_and_stops_then_systemd_is_told_each_step_and_no_other() {
    let gate = Gate::closed();
    let held = gate.clone();
    let origin = Origin::start(move |_| Answer::ok("well").after([Step::Wait(held.clone())])).await;
    let good = yaml(&origin, "close_listeners: 100ms, end: 8s, kill: 9s");
    let (systemd, mut edge) = Supervisor::of(&good);
    eventually(DEADLINE, "it is probing", async || origin.hits("/health") == 1).await;
    systemd.has_heard_all();
    gate.open();
    systemd.hears_that_it_is(edge.pid());

    let asked = monotonic();
    edge.reload(&good).await;
    systemd.hears_of_a_reload(asked);
    edge.write("routes: { all: { cluster: nowhere } }\n");
    let asked = monotonic();
    let refused = derbent(["ctl", "reload", "--admin", &edge.admin().to_string()]).await;
    assert_eq!(refused.status.code(), Some(1));
    systemd.hears_of_a_reload(asked);
    assert_eq!(ctl_upgrade(&edge).await.0, Some(1), "no successor starts on that file");
    systemd.has_heard_all();

    edge.write(&good);
    let (code, out) = ctl_upgrade(&edge).await;
    assert_eq!(code, Some(0), "{out}");
    let successor = Successor(pid(&edge));
    systemd.hears_that_it_is(successor.0);
    assert_eq!(edge.ended().await.code(), Some(0));
    systemd.has_heard_all();
    successor.kill("-HUP");
    systemd.hears_of_a_reload(asked);
    successor.kill("-TERM");
    assert_eq!(systemd.hears(), "STOPPING=1");
    eventually(DEADLINE, "the successor ends", async || successor.is_gone()).await;
    systemd.has_heard_all();
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_successor_that_is_lost_when_it_was_the_main_process_then_systemd_is_told_that_the_one_before_is() {
    let origin = Origin::named("one").await;
    let (systemd, edge) = Supervisor::of(&yaml(&origin, "close_listeners: 90s, end: 95s, kill: 99s"));
    systemd.hears_that_it_is(edge.pid());
    let (code, out) = ctl_upgrade(&edge).await;
    assert_eq!(code, Some(0), "{out}");
    let successor = Successor(pid(&edge));
    systemd.hears_that_it_is(successor.0);
    drop(successor);
    systemd.hears_that_it_is(edge.pid());
    assert_eq!(get(edge.address(), "/").await.expect("an answer").text(), "one");
    systemd.has_heard_all();
}
