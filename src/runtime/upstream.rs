//! How to reach one destination: a Pingora peer prepared once, so that a request only clones it. Data, no IO; the one
//! file of this floor that names Pingora's peers.

use crate::config;
use crate::config::{Problems, Spoken};
use crate::health::active::Target;
use crate::model::{Destination, Endpoint, Scheme};
use http::{HeaderValue, Version};
use pingora::protocols::tls::CaType;
use pingora::upstreams::peer::HttpPeer;
use pingora::utils::tls::{CertKey, WrappedX509, parse_x509};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Streams at a time on one HTTP/2 connection; Pingora's default is one. A server's own limit, where lower, wins.
const STREAMS: u32 = 100;
/// What a stream may send ahead of its client, in bytes. The connection may send that for each of its streams: were it less,
/// clients that take nothing would keep the others' answers back.
const STREAM_WINDOW: u32 = 256 * 1024;

/// One destination's peer, for requests and for probes.
pub struct Upstream {
    peer: HttpPeer,
    pub spoken: Spoken,
    /// The Host header that requests carry.
    pub host: HeaderValue,
    /// Goes before the request's path.
    pub path: String,
    probe: HttpPeer,
    probe_spoken: Spoken,
    probe_host: String,
    probe_path: String,
}

/// What the destinations of a cluster have in common.
pub struct Connecting {
    connection: config::Connection,
    activity_timeout: Duration,
    version: config::HttpVersion,
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
            version: cluster.version,
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
            spoken: self.spoken(endpoint),
            host: HeaderValue::from_str(&host(endpoint)).ok()?,
            path: endpoint.path.clone(),
            probe: self.peer(probed, destination),
            probe_spoken: self.spoken(probed),
            probe_host: host(probed),
            probe_path: probed.path.clone(),
        })
    }

    fn spoken(&self, endpoint: &Endpoint) -> Spoken {
        self.version.spoken(endpoint.scheme == Scheme::Https)
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
        let (most, least) = self.spoken(endpoint).majors();
        options.set_http_version(most, least);
        options.max_h2_streams = STREAMS as usize;
        options.h2_stream_window_size = Some(STREAM_WINDOW);
        options.h2_connection_window_size = Some(STREAM_WINDOW * STREAMS);
        // No pings: servers of gRPC take them for abuse. A connection that hangs is left by `activity_timeout`.
        peer
    }
}

impl Upstream {
    /// The version that requests ask for.
    pub fn asked(&self) -> Version {
        match self.spoken {
            Spoken::Http10 => Version::HTTP_10,
            Spoken::Http11 => Version::HTTP_11,
            Spoken::Negotiated | Spoken::Http2 => Version::HTTP_2,
        }
    }

    /// A peer whose connections come from the pool and go back to it; one of HTTP/1.0 has no use for that.
    pub fn pooled(&self) -> Box<HttpPeer> {
        if self.spoken == Spoken::Http10 { self.fresh() } else { Box::new(self.peer.clone()) }
    }

    /// A fresh peer for an upgrade, which only HTTP/1.1 has: Pingora's pooled connections break some tunnels right after
    /// the 101.
    pub fn for_upgrade(&self) -> Box<HttpPeer> {
        let mut peer = self.fresh();
        peer.options.set_http_version(1, 1);
        peer
    }

    /// A peer that gets a new connection, which nobody else will use.
    pub fn fresh(&self) -> Box<HttpPeer> {
        static UNIQUE: AtomicU64 = AtomicU64::new(1 << 63);
        let mut peer = Box::new(self.peer.clone());
        peer.group_key = UNIQUE.fetch_add(1, Ordering::Relaxed);
        peer.options.idle_timeout = Some(Duration::ZERO);
        peer
    }

    pub fn probe_target(&self) -> Target<'_> {
        Target { peer: &self.probe, spoken: self.probe_spoken, host: &self.probe_host, path: &self.probe_path }
    }
}
