//! `type: tcp`: good when the port accepts a connection. Its only key is `port`.

use super::{Check, Connectors, Entry, ProbeKind, Target, Verdict};
use crate::config::Reach;
use async_trait::async_trait;
use pingora::Result;
use pingora::upstreams::peer::{BasicPeer, HttpPeer};
use std::sync::Arc;

pub const ENTRY: Entry = Entry { name: "tcp", build: |params| Box::new(TcpProbe { reach: Reach::read_port(params) }) };

struct TcpProbe {
    reach: Reach,
}

impl ProbeKind for TcpProbe {
    fn reach(&self) -> &Reach {
        &self.reach
    }

    fn prepare(&self, target: &Target, connectors: &Arc<Connectors>) -> Box<dyn Check> {
        Box::new(TcpCheck { connectors: connectors.clone(), peer: peer(&target.peer) })
    }

    fn signature(&self, target: &Target) -> String {
        format!("tcp {}", target.connection())
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
impl Check for TcpCheck {
    async fn check(&self) -> Result<Verdict> {
        let stream = self.connectors.tcp.new_stream(&self.peer).await?;
        drop(stream);
        Ok(Verdict::Wanted("connected".to_string()))
    }
}
