use super::{Live, Reason};
use crate::config::Role;
use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scheme {
    Http,
    Https,
}

impl Scheme {
    pub fn as_str(self) -> &'static str {
        match self {
            Scheme::Http => "http",
            Scheme::Https => "https",
        }
    }

    pub fn default_port(self) -> u16 {
        match self {
            Scheme::Http => 80,
            Scheme::Https => 443,
        }
    }
}

/// Where requests or probes go: a written URL and the socket address that its host became.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Endpoint {
    pub scheme: Scheme,
    /// As written, without brackets: the TLS name, unless something else is said.
    pub host: String,
    pub port: u16,
    /// Goes before the request's path; no trailing slash, often empty.
    pub path: String,
    pub socket: SocketAddr,
}

impl Endpoint {
    /// `host:port`, as logs show it and as a `Host` header carries it where the port is not the scheme's own.
    pub fn authority(&self) -> String {
        format!("{}:{}", bracketed(&self.host), self.port)
    }

    pub fn host_header(&self) -> String {
        if self.port == self.scheme.default_port() { bracketed(&self.host) } else { self.authority() }
    }
}

fn bracketed(host: &str) -> String {
    if host.contains(':') { format!("[{host}]") } else { host.to_string() }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}{}", self.scheme.as_str(), self.authority(), self.path)
    }
}

/// One address of a cluster. Immutable: what changes while it serves is in [`Live`].
#[derive(Debug, Clone)]
pub struct Destination {
    pub id: String,
    pub endpoint: Endpoint,
    /// Where probes go, when not to `endpoint`.
    pub health_endpoint: Option<Endpoint>,
    /// Host header and TLS name, when not the address's own.
    pub host: Option<String>,
    /// 0 takes no new requests.
    pub weight: u32,
    pub max_requests: Option<u32>,
    pub enabled: bool,
    pub role: Role,
    pub metadata: BTreeMap<String, String>,
}

/// A destination in its cluster: what it is, what it is doing, and its place in the cluster's order.
#[derive(Debug, Clone)]
pub struct Member {
    /// Position in the configuration's order; also the key of everything the cluster prepares per destination.
    pub index: usize,
    pub destination: Arc<Destination>,
    pub live: Arc<Live>,
}

impl Member {
    pub fn is(&self, role: Role) -> bool {
        self.destination.role == role
    }

    /// May be drawn at all, health aside.
    pub fn takes_new_requests(&self) -> bool {
        self.destination.enabled && self.weight() > 0
    }

    /// The operator's weight, else the configuration's.
    pub fn weight(&self) -> u32 {
        self.live.weight().unwrap_or(self.destination.weight)
    }

    /// The weight in tenths, less what slow start or a panic takes off; for policies that ramp.
    pub fn effective_weight(&self) -> u32 {
        self.weight().saturating_mul(u32::from(self.live.share()))
    }

    pub fn is_unmarked(&self) -> bool {
        self.live.marks.is_empty()
    }

    /// The operator lets it finish with the sessions that are bound to it, and nobody else objects.
    pub fn keeps_sessions(&self) -> bool {
        self.live.is_draining() && !self.is_found_out()
    }

    /// Out by another word than the operator's.
    pub fn is_found_out(&self) -> bool {
        self.live.marks.reasons().any(|reason| reason != Reason::Operator)
    }
}
