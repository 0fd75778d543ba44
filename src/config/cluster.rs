//! Section `clusters`: destinations and the policies over them. Names of policies are not resolved, files are not
//! opened; the destinations themselves are read in [`super::destination`].

use super::address::server_name;
use super::{Certificate, Destination, HttpVersion, Located, Node, Policy, Problems, Section};
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
    /// `request.version` and `request.version_policy`
    pub version: HttpVersion,
    /// `request.activity_timeout`: no byte either way for so long ends the request. Default 100s, 10ms–24h.
    pub activity_timeout: Duration,
}

/// How a destination's host becomes addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Discovery {
    /// As written; a host name is looked up once, at load.
    Fixed,
    /// The host is a logical name of section `services`; one that is not there is looked up as written.
    Services,
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
    /// TCP and TLS of one attempt. Default 5s, 1ms–10m.
    pub connect_timeout: Duration,
    /// An idle upstream connection is closed after this. Default 60s, 100ms–24h.
    pub idle_timeout: Duration,
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
        entries.into_iter().map(|(name, node)| Cluster::read(name, node, root.problems())).collect()
    }

    fn read(name: Located<String>, node: &Node, problems: &mut Problems) -> Self {
        let mut section = Section::of_map(node, problems);
        let load_balancing = policy(&mut section, "load_balancing", "PowerOfTwoChoices");
        let destinations = Destination::read_all(&mut section);
        let discovery = section.defaulted("discovery", Discovery::read);
        let health = section.defaulted("health", Health::read);
        let connection = section.defaulted("connection", Connection::read);
        let (activity_timeout, version) = section.defaulted("request", |request| {
            let activity_timeout = request.duration("activity_timeout", ms(10)..=DAY);
            (activity_timeout.unwrap_or(Duration::from_secs(100)), HttpVersion::read(request))
        });
        let off = section.off("retry");
        if section.has("retry") && !off {
            section.problem(&section.spot_of("retry"), "only `off` is known here: nothing is retried yet");
        }
        section.finish();
        Cluster { name, load_balancing, destinations, discovery, health, connection, version, activity_timeout }
    }
}

impl Discovery {
    fn read(section: &mut Section<'_>) -> Self {
        section.word("type", &[("services", Discovery::Services)]).unwrap_or(Discovery::Fixed)
    }
}

impl Health {
    fn read(section: &mut Section<'_>) -> Self {
        let available = policy(section, "available", "HealthyOrPanic");
        let active = match section.off("active") {
            true => None,
            false => section.take("active").and_then(|node| ActiveCheck::read(node, section.problems())),
        };
        Health { available, active }
    }
}

impl ActiveCheck {
    /// `type` alone as the short form. Keys that are not of every check are the kind's.
    fn read(node: &Node, problems: &mut Problems) -> Option<Self> {
        let short = node.scalar().map(|_| Node::empty_map(node.at.clone()));
        let mut section = Section::of_map(short.as_ref().unwrap_or(node), problems);
        section.word("policy", &[("ConsecutiveFailures", ())]);
        let count =
            |section: &mut Section<'_>, key| section.integer(key, 1..=1000).and_then(|count| u32::try_from(count).ok());
        let interval = section.duration("interval", ms(100)..=HOUR).unwrap_or(Duration::from_secs(15));
        let timeout = section.duration("timeout", ms(1)..=TEN_MINUTES).unwrap_or(Duration::from_secs(10));
        let unhealthy_after = count(&mut section, "unhealthy_after").unwrap_or(2);
        let healthy_after = count(&mut section, "healthy_after").unwrap_or(1);
        let jitter = section.percent("jitter").unwrap_or(0.1);
        let rest = section.rest();
        let kind = Policy::read(if short.is_some() { node } else { &rest }, "type", problems)?;
        Some(ActiveCheck { kind, interval, timeout, unhealthy_after, healthy_after, jitter })
    }
}

impl Connection {
    fn read(section: &mut Section<'_>) -> Self {
        Connection {
            connect_timeout: section.duration("connect_timeout", ms(1)..=TEN_MINUTES).unwrap_or(Duration::from_secs(5)),
            idle_timeout: section.duration("idle_timeout", ms(100)..=DAY).unwrap_or(Duration::from_secs(60)),
            tls: section.defaulted("tls", UpstreamTls::read),
        }
    }
}

impl UpstreamTls {
    fn read(section: &mut Section<'_>) -> Self {
        UpstreamTls {
            verify: section.flag("verify").unwrap_or(true),
            ca: section.path("ca"),
            client_certificate: Certificate::read(section, "client_cert", "client_key"),
            server_name: section.checked("server_name", server_name),
        }
    }
}

fn policy(section: &mut Section<'_>, key: &'static str, default: &str) -> Policy {
    let at = section.spot_of(key);
    let written = section.take(key).and_then(|node| Policy::read(node, "policy", section.problems()));
    written.unwrap_or_else(|| Policy::named(Located { value: default.to_owned(), at }))
}

const TEN_MINUTES: Duration = Duration::from_secs(600);
const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(86_400);

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}
