//! What the operator wrote, as plain data. Reading never stops at the first fault: every file is parsed into a tree
//! with positions ([`node`]), sections take their keys from it ([`Section`]) and all faults come back together.
//!
//! Deliberately not here: anything that runs. Names of clusters and policies are text with a place ([`Located`]);
//! `runtime::compile` resolves them and reports what it does not find at that place, in the same report.

mod cluster;
mod listener;
mod node;
mod policy;
mod problem;
mod route;
mod section;
mod server;
mod units;
mod yaml;

pub use cluster::{ActiveCheck, Cluster, Connection, Destination, Discovery, Health, UpstreamTls};
pub use listener::{Certificate, Listener, ListenerTls};
pub use node::{Located, Node, Spot};
pub use policy::Policy;
pub use problem::{Problem, Problems};
pub use route::{Action, Match, Route, Transform};
pub use section::Section;
pub use server::{Admin, Log, LogFormat, Server, Service};

/// A whole configuration, files merged, short forms spelled out, defaults filled in.
#[derive(Debug, Clone)]
pub struct Config {
    pub server: Server,
    /// `None` is `admin: off`.
    pub admin: Option<Admin>,
    pub log: Log,
    /// These lists keep the order of the file.
    pub listeners: Vec<Listener>,
    pub routes: Vec<Route>,
    pub clusters: Vec<Cluster>,
    pub services: Vec<Service>,
}
