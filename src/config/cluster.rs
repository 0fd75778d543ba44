use super::{Located, Policy};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// One entry of section `clusters`.
#[derive(Debug, Clone)]
pub struct Cluster {
    pub name: Located<String>,
    /// Default PowerOfTwoChoices.
    pub load_balancing: Policy,
    pub destinations: Vec<Destination>,
    /// Default [`Discovery::Fixed`].
    pub discovery: Discovery,
    pub health: Health,
    pub connection: Connection,
    /// `request.activity_timeout`: no byte either way for so long ends the request. Default 100s.
    pub activity_timeout: Duration,
}

/// How a destination's host becomes addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Discovery {
    /// As written; a host name is looked up once, at load.
    Fixed,
    /// The host is a logical name of section `services`; one that is not there is looked up as written.
    Services,
}

#[derive(Debug, Clone)]
pub struct Destination {
    pub id: Located<String>,
    /// `http://host[:port][/path]` or `https://…`.
    pub address: Located<String>,
    /// Probes go here when given; same form.
    pub health_address: Option<Located<String>>,
    /// Host header and TLS name instead of the address's own.
    pub host: Option<Located<String>>,
    /// 0–1000, default 1. 0: no new requests.
    pub weight: u32,
    /// Requests in flight it may have; `None` = no bound.
    pub max_requests: Option<u32>,
    /// `false`: no new requests, no probes, kept in view.
    pub enabled: bool,
    pub metadata: BTreeMap<String, String>,
}

#[derive(Debug, Clone)]
pub struct Health {
    /// Default HealthyOrPanic.
    pub available: Policy,
    pub active: Option<ActiveCheck>,
}

/// `health.active`. The kind's own keys (`path`, `expect` …) stay in `kind.params`.
#[derive(Debug, Clone)]
pub struct ActiveCheck {
    /// `type: http | tcp`; the registry's probe kinds.
    pub kind: Policy,
    /// Default 15s, 100ms–1h.
    pub interval: Duration,
    /// The whole probe, connecting included. Default 10s, 1ms–10m.
    pub timeout: Duration,
    /// Consecutive failures that take a destination out. Default 2, 1–1000.
    pub unhealthy_after: u32,
    /// Consecutive successes that bring it back. Default 1, 1–1000.
    pub healthy_after: u32,
    /// Each pause is the interval ± this share, 0–1. Default 0.1.
    pub jitter: f64,
}

#[derive(Debug, Clone)]
pub struct Connection {
    /// TCP and TLS of one attempt. Default 5s.
    pub connect_timeout: Duration,
    /// An idle upstream connection is closed after this. Default 60s.
    pub idle_timeout: Duration,
    pub tls: UpstreamTls,
}

#[derive(Debug, Clone)]
pub struct UpstreamTls {
    /// `false` accepts any certificate, and warns at every start.
    pub verify: bool,
    pub ca: Option<Located<PathBuf>>,
    /// Both or neither.
    pub client_certificate: Option<super::Certificate>,
    pub server_name: Option<Located<String>>,
}
