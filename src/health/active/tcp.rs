//! `type: tcp`: good when the port accepts a connection. Has no keys of its own.

use super::{Connectors, Entry, Probe, ProbeKind, Target};
use async_trait::async_trait;
use pingora::Result;
use pingora::upstreams::peer::{BasicPeer, HttpPeer};
use pingora_load_balancing::Backend;
use pingora_load_balancing::health_check::HealthCheck;
use std::sync::Arc;
use std::sync::atomic::AtomicU16;

pub const ENTRY: Entry = Entry { name: "tcp", build: |_| Box::new(TcpProbe) };

struct TcpProbe;

impl ProbeKind for TcpProbe {
    fn prepare(&self, target: &Target<'_>, connectors: &Arc<Connectors>) -> Probe {
        let check = TcpCheck { connectors: connectors.clone(), peer: peer(target.peer) };
        Probe { check: Box::new(check), status: Arc::new(AtomicU16::new(0)) }
    }
}

/// The address and the time to connect, without TLS.
fn peer(of: &HttpPeer) -> BasicPeer {
    let mut peer = BasicPeer::new("0.0.0.0:1");
    peer._address = of._address.clone();
    peer.options.connection_timeout = of.options.connection_timeout;
    peer
}

struct TcpCheck {
    connectors: Arc<Connectors>,
    peer: BasicPeer,
}

#[async_trait]
impl HealthCheck for TcpCheck {
    async fn check(&self, _target: &Backend) -> Result<()> {
        self.connectors.tcp.new_stream(&self.peer).await.map(drop)
    }

    fn health_threshold(&self, _success: bool) -> usize {
        1
    }
}
