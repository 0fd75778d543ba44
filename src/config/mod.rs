//! What the operator wrote, as plain data. Reading never stops at the first fault: every file is parsed into a tree
//! with positions ([`Node`]), sections take their keys from it ([`Section`]) and all faults come back together.
//!
//! Deliberately not here: anything that runs. Names of clusters and policies are text with a place ([`Located`]);
//! `runtime::compile` resolves them and reports what it does not find at that place, in the same report.
//!
//! Fails with [`LoadError`], and never otherwise: whatever the bytes of a file, there is a report or a configuration.

mod access_log;
mod address;
mod cluster;
mod destination;
mod env;
mod failover;
mod fingerprint;
mod fixed;
mod health;
mod include;
mod life;
mod listener;
mod load;
mod matcher;
mod mirror;
#[cfg(test)]
mod mutations;
mod node;
mod outline;
mod policy;
mod problem;
mod reach;
mod retry;
mod route;
mod section;
mod server;
mod session_affinity;
mod split;
mod template;
#[cfg(test)]
mod tests;
mod timeline;
mod units;
mod version;
mod watched;
mod yaml;

pub use access_log::{AccessFormat, AccessLog};
pub use address::HttpAddress;
pub use cluster::{Cluster, Connection, Discovery, Queue, UpstreamTls};
pub use destination::{Destination, Role};
pub use failover::{Canary, Failover};
pub use health::{ActiveCheck, Breaker, Count, Health, Initial, Limit, Mode, Passive, Reactivation};
pub use include::read_file;
pub use life::Drain;
pub use listener::{Certificate, Listener, ListenerTls, Protocols};
pub use load::LoadError;
pub use matcher::{HeaderMatch, MatchMode, QueryMatch, ValueTest};
pub use mirror::Mirror;
pub use node::{Located, Node, Places, Spot};
pub use outline::{Outline, Rows};
pub use policy::Policy;
pub use problem::{Problem, Problems, nearest, unknown};
pub use reach::{Reach, ReachTls};
pub use retry::{Delay, Retry, RetryBudget};
pub use route::{Action, Match, Route, Transform};
pub use section::Section;
pub use server::{Admin, Log, LogFormat, Server, Service};
pub use session_affinity::{AffinityFailure, CookieAttributes, IdForm, SameSite, Secure, SessionAffinity, key_file};
pub use split::Share;
pub use template::{Segment, segments};
pub use timeline::{Does, Load, Mixed, Phase, Timeline, Turn};
pub use units::{duration, permille, show_duration};
pub use version::{HttpVersion, Spoken, Version, VersionPolicy};
pub use watched::{Content, Looks, Watched};
pub use yaml::write;

use ipnet::IpNet;

/// A whole configuration, files merged, short forms spelled out, defaults filled in.
#[derive(Debug, Clone)]
pub struct Config {
    pub server: Server,
    /// `None` is `admin: off`.
    pub admin: Option<Admin>,
    pub log: Log,
    /// `None`: there is none.
    pub access_log: Option<AccessLog>,
    /// Whose word on where a request came from is believed. Default nobody's.
    pub trusted_proxies: Vec<IpNet>,
    /// These lists keep the order of the file.
    pub listeners: Vec<Listener>,
    pub routes: Vec<Route>,
    pub clusters: Vec<Cluster>,
    pub services: Vec<Service>,
    /// Names what the configuration amounts to: 12 hex digits of a SHA-256 over everything written, environment filled in;
    /// comments, layout and file names do not count.
    pub fingerprint: String,
    /// What only a restart changes.
    fixed: Vec<fixed::Fixed>,
    /// The texts of the files, for faults found later.
    sources: problem::Sources,
}
