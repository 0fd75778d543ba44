//! The sections about the process itself: `server`, `admin`, `log`, and the static list `services`. All but `services`
//! have a default for every key.

use super::address::endpoint;
use super::node::quote;
use super::{Drain, Located, Node, Problems, Section};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

/// Section `server`.
#[derive(Debug, Clone)]
pub struct Server {
    /// Stands in every line of the log and of the access log; default the host name.
    pub name: String,
    /// Worker threads of the proxy service, 1–1024; `auto` (default) = the cores this process may use, cgroup limit counted.
    pub threads: usize,
    /// Where this instance runs; PreferSameZone reads it.
    pub zone: Option<String>,
    /// Idle upstream connections kept, over all destinations and threads; 0–1,000,000. Default 1024.
    pub keepalive_pool: usize,
    pub drain: Drain,
    /// The file is read again when it changes; default true. SIGHUP and the admin API always work.
    pub watch: bool,
    /// Where a successor asks for the listening sockets; none by default.
    pub upgrade_socket: Option<Located<PathBuf>>,
    /// Holds the id of the process that serves; none by default.
    pub pid_file: Option<Located<PathBuf>>,
}

/// Section `admin`; `off` turns the listener off.
#[derive(Debug, Clone)]
pub struct Admin {
    /// Default 127.0.0.1:5390. Another than a loopback address needs a token.
    pub address: Located<SocketAddr>,
    pub token_file: Option<Located<PathBuf>>,
}

/// Section `log`; default `info` and `text`. RUST_LOG wins over it.
#[derive(Debug, Clone)]
pub struct Log {
    pub level: log::LevelFilter,
    pub format: LogFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    Text,
    Json,
}

/// One name of section `services`: scheme → addresses (`host:port`).
#[derive(Debug, Clone)]
pub struct Service {
    pub name: Located<String>,
    pub endpoints: Vec<(String, Vec<Located<String>>)>,
}

impl Server {
    pub(super) fn read(section: &mut Section<'_>) -> Self {
        const THREADS: std::ops::RangeInclusive<usize> = 1..=1024;
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = section.scalar("threads", "auto, or a number of threads from 1 to 1024", |text| match text {
            "auto" => Some(cores),
            text => text.parse().ok().filter(|threads| THREADS.contains(threads)),
        });
        let keepalive_pool = section.integer("keepalive_pool", 0..=1_000_000);
        let name = section.text("name");
        if let Some(Located { value, at }) = name.as_ref().filter(|name| name.value.contains(char::is_control)) {
            // It stands in every log line, and a record is one line.
            section.problem(at, format!("a name has printable characters only; found {}", quote(value)));
        }
        Server {
            name: name.map_or_else(host_name, |name| name.value),
            threads: threads.map_or(cores, |threads| threads.value),
            zone: section.text("zone").map(|zone| zone.value),
            keepalive_pool: keepalive_pool.and_then(|n| usize::try_from(n).ok()).unwrap_or(1024),
            drain: section.defaulted("drain", Drain::read),
            watch: section.defaulted("reload", |reload| reload.flag("watch")).unwrap_or(true),
            upgrade_socket: section.path("upgrade_socket"),
            pid_file: section.path("pid_file"),
        }
    }
}

impl Admin {
    /// On by default; `None` is `admin: off`.
    pub(super) fn read(root: &mut Section<'_>) -> Option<Self> {
        if root.off("admin") {
            return None;
        }
        Some(root.defaulted("admin", |section| {
            let address = section.checked("address", socket_address).unwrap_or_else(|| Located {
                value: SocketAddr::from(([127, 0, 0, 1], 5390)),
                at: section.spot_of("address"),
            });
            let token_file = section.path("token_file");
            if !address.value.ip().is_loopback() && token_file.is_none() {
                let message = "an address other than loopback needs `token_file` beside it";
                section.problem(&address.at, message);
            }
            Admin { address, token_file }
        }))
    }
}

impl Log {
    pub(super) fn read(section: &mut Section<'_>) -> Self {
        use log::LevelFilter::{Debug, Error, Info, Off, Trace, Warn};
        let levels =
            [("off", Off), ("error", Error), ("warn", Warn), ("info", Info), ("debug", Debug), ("trace", Trace)];
        let formats = [("text", LogFormat::Text), ("json", LogFormat::Json)];
        Log {
            level: section.word("level", &levels).unwrap_or(Info),
            format: section.word("format", &formats).unwrap_or(LogFormat::Text),
        }
    }
}

impl Service {
    pub(super) fn read_all(root: &mut Section<'_>) -> Vec<Self> {
        let entries = root.named("services");
        entries.into_iter().map(|(name, node)| Service::read(name, node, root.problems())).collect()
    }

    fn read(name: Located<String>, node: &Node, problems: &mut Problems) -> Self {
        let mut section = Section::of_map(node, problems);
        let mut endpoints = Vec::new();
        for scheme in ["http", "https"] {
            let addresses = section.checked_words(scheme, endpoint);
            if section.has(scheme) {
                section.miss_empty(scheme, "`127.0.0.1:5302`");
                endpoints.push((scheme.to_owned(), addresses));
            }
        }
        section.finish();
        Service { name, endpoints }
    }
}

/// `IP:port`. Not port 0: which port it became nobody could know.
pub(super) fn socket_address(text: &str) -> Result<SocketAddr, String> {
    let address = text.parse().ok().filter(|address: &SocketAddr| address.port() != 0);
    address.ok_or_else(|| "expected an IP address with a port, such as 0.0.0.0:8080 or [::]:8080".to_owned())
}

/// Whether only one of the two can be listened on: the same port of the same address, or of one that covers the other.
pub(super) fn exclude_each_other(a: SocketAddr, b: SocketAddr) -> bool {
    let (one, two) = (a.ip().to_canonical(), b.ip().to_canonical());
    // `[::]` takes IPv4 connections too.
    let covers = |wide: IpAddr, other: IpAddr| wide.is_unspecified() && (wide.is_ipv6() || other.is_ipv4());
    // Port 0 stands for an address that is a fault itself.
    a.port() == b.port() && a.port() != 0 && (one == two || covers(one, two) || covers(two, one))
}

/// What the kernel calls this machine, else what the environment does.
fn host_name() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname")
        .ok()
        .or_else(|| std::env::var("HOSTNAME").ok())
        .map(|name| name.trim().to_owned())
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| "derbent".to_owned())
}
