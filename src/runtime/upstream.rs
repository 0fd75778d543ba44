//! How to reach one destination: a Pingora peer prepared once, so that a request only clones it. Data, no IO; the one
//! file of this floor that names Pingora's peers.

use crate::config;
use crate::config::Problems;
use crate::health::active::Target;
use crate::model::{Destination, Endpoint, Scheme};
use http::HeaderValue;
use pingora::protocols::tls::CaType;
use pingora::upstreams::peer::HttpPeer;
use pingora::utils::tls::{CertKey, WrappedX509, parse_x509};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// One destination's peer, for requests and for probes.
pub struct Upstream {
    peer: HttpPeer,
    /// The Host header that requests carry.
    pub host: HeaderValue,
    /// Goes before the request's path.
    pub path: String,
    probe: HttpPeer,
    probe_host: String,
    probe_path: String,
}

/// What the destinations of a cluster have in common.
pub struct Connecting {
    connection: config::Connection,
    activity_timeout: Duration,
    ca: Option<Arc<CaType>>,
    client: Option<Arc<CertKey>>,
    /// Keeps the pooled connections of clusters apart: Pingora's pool does not look at the authorities.
    group: u64,
}

impl Connecting {
    pub fn new(cluster: &config::Cluster, problems: &mut Problems) -> Self {
        let tls = &cluster.connection.tls;
        let authorities = tls.ca.as_ref().and_then(|ca| super::tls::authorities(ca, problems));
        let client = tls.client_certificate.as_ref().and_then(|files| super::tls::client_certificate(files, problems));
        let mut hasher = DefaultHasher::new();
        (&cluster.name.value, &authorities).hash(&mut hasher);
        Connecting {
            connection: cluster.connection.clone(),
            activity_timeout: cluster.activity_timeout,
            ca: authorities.map(|found| found.into_iter().map(|der| WrappedX509::new(der, parse_x509)).collect()),
            client: client.map(|(chain, key)| Arc::new(CertKey::new(chain, key))),
            group: hasher.finish() >> 1,
        }
    }

    /// `None` when the host cannot stand in a header, which is a fault at `at`.
    pub fn to(&self, destination: &Destination) -> Option<Upstream> {
        let endpoint = &destination.endpoint;
        let probed = destination.health_endpoint.as_ref().unwrap_or(endpoint);
        let host = |of: &Endpoint| destination.host.clone().unwrap_or_else(|| of.host_header());
        Some(Upstream {
            peer: self.peer(endpoint, destination),
            host: HeaderValue::from_str(&host(endpoint)).ok()?,
            path: endpoint.path.clone(),
            probe: self.peer(probed, destination),
            probe_host: host(probed),
            probe_path: probed.path.clone(),
        })
    }

    fn peer(&self, endpoint: &Endpoint, destination: &Destination) -> HttpPeer {
        let tls = endpoint.scheme == Scheme::Https;
        let own = || destination.host.as_deref().unwrap_or(&endpoint.host);
        let written = self.connection.tls.server_name.as_ref();
        let name = written.map_or_else(own, |name| name.value.as_str());
        let name = super::router::split_port(name).0;
        // Without a TLS name Pingora verifies nothing, so there always is one.
        let mut peer = HttpPeer::new(endpoint.socket, tls, if tls { name.into() } else { String::new() });
        peer.group_key = self.group;
        peer.client_cert_key = self.client.clone();
        let options = &mut peer.options;
        options.connection_timeout = Some(self.connection.connect_timeout);
        options.total_connection_timeout = Some(self.connection.connect_timeout);
        options.read_timeout = Some(self.activity_timeout);
        options.write_timeout = Some(self.activity_timeout);
        options.idle_timeout = Some(self.connection.idle_timeout);
        options.verify_cert = self.connection.tls.verify;
        options.verify_hostname = self.connection.tls.verify;
        options.ca = self.ca.clone();
        peer
    }
}

impl Upstream {
    /// A peer whose connections come from the pool and go back to it.
    pub fn pooled(&self) -> Box<HttpPeer> {
        Box::new(self.peer.clone())
    }

    /// A peer that gets a new connection, which nobody else will use: for upgrades, since Pingora's pooled connections
    /// break some tunnels right after the 101, and for a second try after a pooled connection turned out closed.
    pub fn fresh(&self) -> Box<HttpPeer> {
        static UNIQUE: AtomicU64 = AtomicU64::new(1 << 63);
        let mut peer = self.pooled();
        peer.group_key = UNIQUE.fetch_add(1, Ordering::Relaxed);
        peer.options.idle_timeout = Some(Duration::ZERO);
        peer
    }

    pub fn probe_target(&self) -> Target<'_> {
        Target { peer: &self.probe, host: &self.probe_host, path: &self.probe_path }
    }
}
