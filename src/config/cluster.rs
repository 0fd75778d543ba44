//! Section `clusters`: destinations and the policies over them. Names of policies are not resolved, files are not
//! opened; the destinations themselves are read in [`super::destination`], section `health` in [`super::health`].

use super::address::server_name;
use super::failover::has_primary;
use super::units::{DAY, HOUR, TEN_MINUTES, ms};
use super::{
    Canary, Certificate, Destination, Failover, Health, HttpVersion, Located, Mirror, Node, Places, Policy, Problems,
    Retry, Section, SessionAffinity,
};
use std::path::PathBuf;
use std::time::Duration;

/// Of what is in progress at a time.
const MOST: u64 = 1_000_000;

/// One entry of section `clusters`.
#[derive(Debug, Clone)]
pub struct Cluster {
    pub name: Located<String>,
    /// Default PowerOfTwoChoices.
    pub load_balancing: Policy,
    /// A new or returning destination's share grows for so long. Default 0s, up to 1h.
    pub slow_start: Duration,
    pub destinations: Vec<Destination>,
    /// Default [`Discovery::Fixed`].
    pub discovery: Discovery,
    pub health: Health,
    pub connection: Connection,
    /// `request.version` and `request.version_policy`
    pub version: HttpVersion,
    /// `request.activity_timeout`: no byte either way for so long ends the request. Default 100s, 10ms–24h.
    pub activity_timeout: Duration,
    /// On by default; `None` is `retry: off`.
    pub retry: Option<Retry>,
    /// Where requests wait while every destination is at its `max_requests`. Default none: they are turned away.
    pub queue: Option<Queue>,
    /// `None`, or `off`: each request goes where the balancing policy says.
    pub session_affinity: Option<SessionAffinity>,
    /// To destinations of that role, when primaries are spent; `None`: there are none, or it is off.
    pub failover: Option<Failover>,
    pub canary: Option<Canary>,
    pub mirror: Option<Mirror>,
    /// Of all keys but those of the destinations.
    pub places: Places,
}

/// How a destination's host becomes addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Discovery {
    /// As written; a host name is looked up once, at load.
    Fixed,
    /// The host is a logical name of section `services`; one that is not there is looked up as written.
    Services,
}

/// `clusters.*.queue`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Queue {
    /// Requests that wait at a time. Default 100, 1–1,000,000.
    pub max: u32,
    /// One that has waited for so long is turned away. Default 1s, 1ms–10m.
    pub deadline: Duration,
}

#[derive(Debug, Clone)]
pub struct Connection {
    /// TCP and TLS of one attempt. Default 5s, 1ms–10m.
    pub connect_timeout: Duration,
    /// An idle upstream connection is closed after this, or sooner where the destination closes it sooner; it should be
    /// below the destination's own keep-alive time. Default 60s, 100ms–24h.
    pub idle_timeout: Duration,
    /// In use at a time, of each destination. Default no bound, 1–1,000,000.
    pub max_connections: Option<u32>,
    pub tls: UpstreamTls,
}

#[derive(Debug, Clone)]
pub struct UpstreamTls {
    /// `false` accepts any certificate, and warns at every start.
    pub verify: bool,
    pub ca: Option<Located<PathBuf>>,
    /// Both or neither.
    pub client_certificate: Option<Certificate>,
    pub server_name: Option<Located<String>>,
}

impl Cluster {
    /// Every one that is written, whatever is wrong in it, so that no route misses it for another's fault.
    pub(super) fn read_all(root: &mut Section<'_>) -> Vec<Self> {
        let entries = root.named("clusters");
        let read = entries.into_iter().map(|(name, node)| Cluster::read(name, node, root.problems()));
        let clusters: Vec<Self> = read.collect();
        SessionAffinity::check_names(&clusters, root.problems());
        clusters
    }

    fn read(name: Located<String>, node: &Node, problems: &mut Problems) -> Self {
        let mut section = Section::of_map(node, problems);
        let load_balancing = Policy::slot(&mut section, "load_balancing", "PowerOfTwoChoices");
        let slow_start = section.duration("slow_start", Duration::ZERO..=HOUR).unwrap_or_default();
        let destinations = Destination::read_all(&mut section);
        let discovery = section.defaulted("discovery", Discovery::read);
        let health = section.defaulted("health", Health::read);
        let connection = section.defaulted("connection", Connection::read);
        let (activity_timeout, version) = section.defaulted("request", |request| {
            let activity_timeout = request.duration("activity_timeout", ms(10)..=DAY);
            (activity_timeout.unwrap_or(Duration::from_secs(100)), HttpVersion::read(request))
        });
        let retry = match section.off("retry") {
            true => None,
            false => Some(section.defaulted("retry", Retry::read)),
        };
        let queue = section.section("queue", Queue::read);
        let session_affinity = match section.off("session_affinity") {
            true => None,
            false => section.take("session_affinity").and_then(|node| SessionAffinity::read(node, section.problems())),
        };
        has_primary(&mut section, &destinations);
        let failover = Failover::of(&mut section, &destinations);
        let canary = Canary::of(&mut section, &destinations);
        let mirror = Mirror::of(&mut section, &name.value, &destinations);
        section.finish();
        Cluster {
            name,
            load_balancing,
            slow_start,
            destinations,
            discovery,
            health,
            connection,
            version,
            activity_timeout,
            retry,
            queue,
            session_affinity,
            failover,
            canary,
            mirror,
            places: Places::of(node, "destinations"),
        }
    }
}

impl Discovery {
    fn read(section: &mut Section<'_>) -> Self {
        section.word("type", &[("services", Discovery::Services)]).unwrap_or(Discovery::Fixed)
    }
}

impl Queue {
    fn read(section: &mut Section<'_>) -> Self {
        Queue {
            max: section.integer("max", 1..=MOST).and_then(|max| u32::try_from(max).ok()).unwrap_or(100),
            deadline: section.duration("deadline", ms(1)..=TEN_MINUTES).unwrap_or(Duration::from_secs(1)),
        }
    }
}

impl Connection {
    fn read(section: &mut Section<'_>) -> Self {
        Connection {
            connect_timeout: section.duration("connect_timeout", ms(1)..=TEN_MINUTES).unwrap_or(Duration::from_secs(5)),
            idle_timeout: section.duration("idle_timeout", ms(100)..=DAY).unwrap_or(Duration::from_secs(60)),
            max_connections: section.integer("max_connections", 1..=MOST).and_then(|most| u32::try_from(most).ok()),
            tls: section.defaulted("tls", UpstreamTls::read),
        }
    }
}

impl UpstreamTls {
    pub(super) fn read(section: &mut Section<'_>) -> Self {
        UpstreamTls {
            verify: section.flag("verify").unwrap_or(true),
            ca: section.path("ca"),
            client_certificate: Certificate::read(section, "client_cert", "client_key"),
            server_name: section.checked("server_name", server_name),
        }
    }
}
