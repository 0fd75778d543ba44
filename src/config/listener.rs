//! Section `listeners`: where connections are accepted. Files are named, not opened.

use super::outline::text;
use super::section::check_at;
use super::server::{exclude_each_other, socket_address};
use super::units::DAY;
use super::{Located, Node, Problems, Section, unknown};
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// One entry of section `listeners`.
#[derive(Debug, Clone)]
pub struct Listener {
    pub name: Located<String>,
    pub address: Located<SocketAddr>,
    pub protocols: Protocols,
    /// `limits.idle_timeout`: a client's connection without a request is closed after this, to the second above. Default 75s,
    /// 1s–24h.
    pub idle_timeout: Located<Duration>,
    pub tls: Option<ListenerTls>,
}

/// Above the 60 s of common balancers, which must be the ones to close.
const IDLE: Duration = Duration::from_secs(75);

/// What a listener speaks. Default HTTP/1, with TLS HTTP/2 too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Protocols {
    pub http1: bool,
    /// HTTP/2 where ALPN agrees on it; over TLS only.
    pub http2: bool,
    /// HTTP/2 by prior knowledge; without TLS only.
    pub h2c: bool,
}

#[derive(Debug, Clone)]
pub struct ListenerTls {
    /// At least one. The first serves whoever asks for a name of none.
    pub certificates: Vec<Certificate>,
}

#[derive(Debug, Clone)]
pub struct Certificate {
    pub cert: Located<PathBuf>,
    pub key: Located<PathBuf>,
}

impl Listener {
    /// A fault without any, or with two that cannot both be bound.
    pub(super) fn read_all(root: &mut Section<'_>) -> Vec<Self> {
        root.require_some("listeners", "`web: 0.0.0.0:8080`");
        let entries = root.named("listeners");
        let mut listeners: Vec<Listener> = Vec::new();
        for (name, node) in entries {
            let Some(listener) = Listener::read(name, node, root.problems()) else {
                continue;
            };
            let address = listener.address.value;
            if let Some(other) = listeners.iter().find(|other| exclude_each_other(other.address.value, address)) {
                root.problem(&listener.address.at, format!("listener `{}` has this address already", other.name.value));
            }
            listeners.push(listener);
        }
        listeners
    }

    fn read(name: Located<String>, node: &Node, problems: &mut Problems) -> Option<Self> {
        problems.note(&node.at.path, "", text);
        if let Some(text) = node.scalar() {
            let address = check_at(text, &node.at, problems, socket_address)?;
            let idle_timeout = Located { value: IDLE, at: node.at.under("limits.idle_timeout") };
            return Some(Listener { name, address, protocols: Protocols::of(false), idle_timeout, tls: None });
        }
        let mut section = Section::of_map(node, problems);
        section.require("address", "IP and port, such as 0.0.0.0:8080");
        let address = section.checked("address", socket_address);
        let protocols = Protocols::read(&mut section);
        // With a wrong address it stays in the draft, so that its files are judged too.
        let address = address
            .unwrap_or_else(|| Located { value: (Ipv4Addr::UNSPECIFIED, 0).into(), at: section.spot_of("address") });
        let idle_timeout = section.defaulted("limits", |limits| {
            let idle = limits.duration("idle_timeout", Duration::from_secs(1)..=DAY);
            Located { value: idle.unwrap_or(IDLE), at: limits.spot_of("idle_timeout") }
        });
        let tls = section.section("tls", ListenerTls::read).flatten();
        section.finish();
        Some(Listener { name, address, protocols, idle_timeout, tls })
    }
}

impl Protocols {
    const WORDS: [&str; 3] = ["http1", "http2", "h2c"];

    fn of(tls: bool) -> Self {
        Protocols { http1: true, http2: tls, h2c: false }
    }

    fn read(listener: &mut Section<'_>) -> Self {
        let tls = listener.has("tls");
        let words = listener.words("protocols");
        if !listener.has("protocols") {
            return Protocols::of(tls);
        }
        let at = listener.spot_of("protocols");
        let mut read = Protocols { http1: false, http2: false, h2c: false };
        for Located { value, at } in &words {
            match value.as_str() {
                "http1" => read.http1 = true,
                "http2" if tls => read.http2 = true,
                "h2c" if !tls => read.h2c = true,
                "http2" => listener.problem(at, "http2 is agreed on within TLS and there is no `tls`; without it h2c"),
                "h2c" => listener.problem(at, "h2c is HTTP/2 without TLS and there is `tls`; with it http2"),
                other => listener.problem(at, unknown("protocol", other, &Self::WORDS)),
            }
        }
        if words.is_empty() {
            listener.problem(&at, "expected at least one of http1, http2 and h2c");
        }
        read
    }
}

/// As a file writes them: `http1, h2c`.
impl fmt::Display for Protocols {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let spoken = Self::WORDS.into_iter().zip([self.http1, self.http2, self.h2c]);
        let spoken: Vec<&str> = spoken.filter(|(_, spoken)| *spoken).map(|(word, _)| word).collect();
        f.write_str(&spoken.join(", "))
    }
}

impl ListenerTls {
    fn read(section: &mut Section<'_>) -> Option<Self> {
        section.require("certificates", "a list of `{ cert: …, key: … }`");
        let at = section.spot_of("certificates");
        let items = section.list("certificates");
        if items.is_empty() && section.has("certificates") {
            section.problem(&at, "expected at least one certificate; found 0");
        }
        let mut certificates = Vec::new();
        for item in items {
            let mut entry = Section::of_map(item, section.problems());
            let certificate = Certificate::read(&mut entry, "cert", "key");
            if certificate.is_none() && !entry.has("cert") && !entry.has("key") {
                entry.require("cert", "a certificate file, and `key` with its private key");
            }
            entry.finish();
            certificates.extend(certificate);
        }
        Some(ListenerTls { certificates })
    }
}

impl Certificate {
    /// Two files or none; one without the other is a fault.
    pub(super) fn read(section: &mut Section<'_>, cert: &'static str, key: &'static str) -> Option<Self> {
        for (here, missing) in [(cert, key), (key, cert)] {
            if section.has(here) && !section.has(missing) {
                section.require(missing, &format!("`{here}` stands beside it"));
            }
        }
        let (cert, key) = (section.path(cert), section.path(key));
        Some(Certificate { cert: cert?, key: key? })
    }
}
