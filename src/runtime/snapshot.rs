use super::router::Router;
use super::tls::Served;
use super::{Cluster, Route};
use crate::config::Protocols;
use crate::model::RequestView;
use crate::observe::access_log::Format;
use ipnet::IpNet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// All that the request path reads. Immutable; health changes inside the clusters' published sets.
pub struct Snapshot {
    pub(super) router: Router,
    /// In the configuration's order; the router and the routes name them by position.
    pub routes: Vec<Arc<Route>>,
    pub clusters: Vec<Arc<Cluster>>,
    pub listeners: Vec<ListenerPlan>,
    pub admin: Option<AdminPlan>,
    pub access_log: Option<AccessPlan>,
    /// Whose word on where a request came from is believed.
    pub trusted_proxies: Vec<IpNet>,
    /// [`crate::config::Config::fingerprint`]
    pub config_hash: String,
}

/// A listener, ready to be opened.
pub struct ListenerPlan {
    pub name: String,
    pub address: SocketAddr,
    pub protocols: Protocols,
    /// Connections that come from now on are kept this long without a request.
    pub idle_timeout: Duration,
    /// The first is the default; none = no TLS.
    pub certificates: Vec<Served>,
}

/// The admin listener, ready to be opened.
pub struct AdminPlan {
    pub address: SocketAddr,
    pub token: Option<String>,
}

/// The access log, ready to be started.
pub struct AccessPlan {
    /// `None`: standard output.
    pub path: Option<PathBuf>,
    pub format: Format,
}

impl Snapshot {
    /// The most specific route that the request matches.
    pub fn route(&self, request: &RequestView<'_>) -> Option<&Arc<Route>> {
        self.router.find(request).map(|position| &self.routes[position])
    }

    pub fn cluster(&self, name: &str) -> Option<&Arc<Cluster>> {
        self.clusters.iter().find(|cluster| cluster.name == name)
    }
}
