//! How to reach one destination: a Pingora peer prepared once, so that a request only clones it. Data, no IO: that is
//! [`super::dial`]'s.

use super::dial::Dialer;
use crate::config;
use crate::config::{Problems, Reach, ReachTls, Spoken};
use crate::health::active::Target;
use crate::model::{Destination, Endpoint, Scheme, Sockets};
use http::{HeaderValue, Version};
use pingora::protocols::tls::CaType;
use pingora::upstreams::peer::HttpPeer;
use pingora::utils::tls::{CertKey, WrappedX509, parse_x509};
use sha2::{Digest, Sha256};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// What a stream may send ahead of its client, in bytes. The connection may send that for each of its streams: were it less,
/// clients that take nothing would keep the others' answers back.
const STREAM_WINDOW: u32 = 256 * 1024;

/// The least idle time there is: where no time at all is the first that Pingora's timers are asked for, they count below zero.
const AT_ONCE: Duration = Duration::from_millis(1);

/// One destination's peer, for requests and for probes.
pub struct Upstream {
    peer: HttpPeer,
    sockets: Arc<Sockets>,
    pub spoken: Spoken,
    /// The Host header that requests carry.
    pub host: HeaderValue,
    /// Goes before the request's path.
    pub path: String,
    /// Whom the active check looks at.
    pub probed: Target,
}

/// What the destinations of a cluster have in common.
pub struct Connecting {
    connection: config::Connection,
    activity_timeout: Duration,
    version: config::HttpVersion,
    tls: Certificates,
    reach: Reach,
    /// `tls` of the active check, where it is its own.
    probe_tls: Option<Certificates>,
    /// Keeps pooled connections of other settings apart: Pingora's pool does not look at the authorities.
    group: u64,
}

/// What is trusted and shown in TLS.
struct Certificates {
    verify: bool,
    server_name: Option<String>,
    ca: Option<Arc<CaType>>,
    client: Option<Arc<CertKey>>,
    /// A hash of both.
    digest: String,
}

impl Certificates {
    fn read(tls: &config::UpstreamTls, problems: &mut Problems) -> Self {
        let authorities = tls.ca.as_ref().and_then(|ca| super::tls::authorities(ca, problems));
        let client = tls.client_certificate.as_ref().and_then(|files| super::tls::client_certificate(files, problems));
        let mut hash = Sha256::new();
        for der in authorities.iter().flatten().chain([&Vec::new()]).chain(client.iter().flat_map(|(chain, _)| chain)) {
            hash.update(der.len().to_be_bytes());
            hash.update(der);
        }
        Certificates {
            verify: tls.verify,
            server_name: tls.server_name.as_ref().map(|name| name.value.clone()),
            ca: authorities.map(|found| found.into_iter().map(|der| WrappedX509::new(der, parse_x509)).collect()),
            client: client.map(|(chain, key)| Arc::new(CertKey::new(chain, key))),
            digest: hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect(),
        }
    }
}

impl Connecting {
    /// `reach` is the active check's.
    pub fn new(cluster: &config::Cluster, reach: Option<&Reach>, problems: &mut Problems) -> Self {
        let tls = Certificates::read(&cluster.connection.tls, problems);
        let reach = reach.cloned().unwrap_or_default();
        let mut hasher = DefaultHasher::new();
        (&cluster.name.value, &tls.digest).hash(&mut hasher);
        Connecting {
            connection: cluster.connection.clone(),
            activity_timeout: cluster.activity_timeout,
            version: cluster.version,
            probe_tls: match &reach.tls {
                ReachTls::Own(own) => Some(Certificates::read(own, problems)),
                _ => None,
            },
            tls,
            reach,
            group: hasher.finish(),
        }
    }

    /// Requests' connections are counted among `sockets`. `None` when the host cannot stand in a header.
    pub fn to(&self, destination: &Destination, sockets: &Arc<Sockets>) -> Option<Upstream> {
        let endpoint = &destination.endpoint;
        let host = destination.host.clone().unwrap_or_else(|| endpoint.host_header());
        Some(Upstream {
            peer: self.request_peer(destination, sockets),
            sockets: sockets.clone(),
            spoken: self.spoken(endpoint),
            host: HeaderValue::from_str(&host).ok()?,
            path: endpoint.path.clone(),
            probed: self.probed(destination),
        })
    }

    fn probed(&self, destination: &Destination) -> Target {
        let written = destination.health_endpoint.as_ref().unwrap_or(&destination.endpoint);
        let endpoint = self.reached(written);
        let tls = self.probe_tls.as_ref().unwrap_or(&self.tls);
        let own = self.reach.host.as_ref().map(|host| &host.value);
        let host = own.or(destination.host.as_ref());
        // A name that the cluster asks for is the destinations'; a probe to a host of its own asks for that.
        let name = tls.server_name.as_ref().filter(|_| own.is_none() || self.probe_tls.is_some());
        Target {
            peer: self.peer(&endpoint, tls, name.or(host)),
            certificates: tls.digest.clone(),
            spoken: self.spoken(&endpoint),
            authority: endpoint.authority(),
            host: host.cloned().unwrap_or_else(|| endpoint.host_header()),
            path: endpoint.path,
        }
    }

    /// The endpoint as probes get to it.
    fn reached(&self, written: &Endpoint) -> Endpoint {
        let mut endpoint = written.clone();
        if let Some(port) = self.reach.port {
            endpoint.port = port;
            endpoint.socket.set_port(port);
        }
        match self.reach.tls {
            ReachTls::AsRequests => {}
            ReachTls::Off => endpoint.scheme = Scheme::Http,
            ReachTls::On | ReachTls::Own(_) => endpoint.scheme = Scheme::Https,
        }
        endpoint
    }

    fn spoken(&self, endpoint: &Endpoint) -> Spoken {
        self.version.spoken(endpoint.scheme == Scheme::Https)
    }

    fn request_peer(&self, destination: &Destination, sockets: &Arc<Sockets>) -> HttpPeer {
        let endpoint = &destination.endpoint;
        let name = self.tls.server_name.as_ref().or(destination.host.as_ref());
        let mut peer = self.peer(endpoint, &self.tls, name);
        peer.group_key = self.group;
        let options = &mut peer.options;
        options.custom_l4 = Some(Arc::new(Dialer(sockets.clone())));
        options.read_timeout = Some(self.activity_timeout);
        options.write_timeout = Some(self.activity_timeout);
        options.idle_timeout = Some(self.connection.idle_timeout);
        options.max_h2_streams = Upstream::STREAMS as usize;
        options.h2_stream_window_size = Some(STREAM_WINDOW);
        options.h2_connection_window_size = Some(STREAM_WINDOW * Upstream::STREAMS);
        // No pings: servers of gRPC take them for abuse. A connection that hangs is left by `activity_timeout`.
        peer
    }

    /// `name` is asked for and verified, a port aside; else the endpoint's host.
    fn peer(&self, endpoint: &Endpoint, certificates: &Certificates, name: Option<&String>) -> HttpPeer {
        let tls = endpoint.scheme == Scheme::Https;
        let name = super::router::split_port(name.unwrap_or(&endpoint.host)).0;
        // Without a TLS name Pingora verifies nothing, so there always is one.
        let mut peer = HttpPeer::new(endpoint.socket, tls, if tls { name.into() } else { String::new() });
        peer.client_cert_key = certificates.client.clone();
        let options = &mut peer.options;
        options.connection_timeout = Some(self.connection.connect_timeout);
        options.total_connection_timeout = Some(self.connection.connect_timeout);
        options.verify_cert = certificates.verify;
        options.verify_hostname = certificates.verify;
        options.ca = certificates.ca.clone();
        let (most, least) = self.spoken(endpoint).majors();
        options.set_http_version(most, least);
        peer
    }
}

impl Upstream {
    /// At a time on one HTTP/2 connection; Pingora's default is one. A server's own limit, where lower, wins.
    pub const STREAMS: u32 = 100;

    /// TCP and TLS of one attempt.
    pub fn connect_timeout(&self) -> Duration {
        self.peer.options.total_connection_timeout.unwrap_or_default()
    }

    /// The version that requests ask for.
    pub fn asked(&self) -> Version {
        match self.spoken {
            Spoken::Http10 => Version::HTTP_10,
            Spoken::Http11 => Version::HTTP_11,
            Spoken::Negotiated | Spoken::Http2 => Version::HTTP_2,
        }
    }

    /// `connection.idle_timeout`
    pub fn idle_timeout(&self) -> Duration {
        self.peer.options.idle_timeout.unwrap_or_default()
    }

    /// A peer whose connections come from the pool and are kept there for `idle`; one of HTTP/1.0 has no use for that. It is
    /// asked for by who is counted in: see [`crate::model::Live::end_idle_connections`].
    ///
    /// Pingora reads the time when a connection goes back, of the peer it was made for. So each time has a pool of its own:
    /// what went back under a longer one, learned to be too long, is not used again.
    pub fn pooled(&self, idle: Duration) -> Box<HttpPeer> {
        if self.spoken == Spoken::Http10 || idle.is_zero() {
            return self.fresh();
        }
        let mut peer = Box::new(self.peer.clone());
        let mut hasher = DefaultHasher::new();
        (peer.group_key, self.sockets.pool(), idle).hash(&mut hasher);
        peer.group_key = hasher.finish() >> 1;
        peer.options.idle_timeout = Some(idle);
        peer
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
        peer.options.idle_timeout = Some(AT_ONCE);
        peer
    }
}

#[cfg(test)]
mod tests {
    use crate::runtime::testing::cluster_of;
    use std::time::Duration;

    #[test]
    fn given_fresh_peers_when_prepared_then_no_two_share_a_pool_and_each_has_an_idle_time_that_pingora_can_count() {
        let cluster = cluster_of("RoundRobin", &["\"http://127.0.0.1:7001\""]);
        let upstream = cluster.upstream(&cluster.members[0]);
        let peers = [upstream.fresh(), upstream.fresh(), upstream.for_upgrade(), upstream.pooled(Duration::ZERO)];
        let pools: std::collections::HashSet<u64> = peers.iter().map(|peer| peer.group_key).collect();
        assert_eq!(pools.len(), peers.len());
        assert!(peers.iter().all(|peer| peer.options.idle_timeout == Some(Duration::from_millis(1))));
    }

    #[test]
    fn given_idle_connections_that_were_ended_when_a_peer_is_prepared_then_it_takes_none_of_them_nor_of_anothers() {
        let cluster = cluster_of("RoundRobin", &["\"http://127.0.0.1:7001\"", "\"http://127.0.0.1:7001\""]);
        let [a, b] = &cluster.members[..] else { panic!("two") };
        let pool = |member| cluster.upstream(member).pooled(Duration::from_secs(60)).group_key;
        let before = pool(a);
        assert_eq!(pool(a), before);
        assert_ne!(pool(b), before, "the same address, but another destination");
        a.live.end_idle_connections(|_| ());
        assert_ne!(pool(a), before);
    }
}
