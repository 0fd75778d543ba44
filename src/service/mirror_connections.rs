//! The connections of copies, and their pool. Those of HTTP/1 without TLS, the usual ones, are opened here: Pingora's connecting
//! takes 9 KiB for each copy that waits for it, and its connector the system's authorities, a megabyte. With 64 bodies of
//! 64 KiB that would be a third more than the bodies. All others are Pingora's own. What fails, fails the copy.

use pingora::connectors::ConnectorOptions;
use pingora::connectors::http::{Connector, v1};
use pingora::protocols::http::client::HttpSession as ClientSession;
use pingora::protocols::http::v1::client::HttpSession;
use pingora::upstreams::peer::{HttpPeer, Peer};
use pingora::{Error, ErrorType, Result};
use std::sync::OnceLock;
use tokio::time::timeout;

/// Kept idle, of either kind.
const IDLE: usize = 128;
/// A file of authorities that has none.
const NO_AUTHORITIES: &str = "/dev/null";

/// Each is made when there is something to connect to.
#[derive(Default)]
pub struct MirrorConnections {
    plain: OnceLock<v1::Connector>,
    others: OnceLock<Connector>,
}

impl MirrorConnections {
    /// One that is idle, else a new one.
    pub async fn get(&self, peer: &HttpPeer) -> Result<ClientSession> {
        if !is_plain(peer) {
            return Ok(Box::pin(self.others().get_http_session(peer)).await?.0);
        }
        let session = match self.plain().reused_http_session(peer).await {
            Some(idle) => idle,
            None => opened(peer).await?,
        };
        Ok(ClientSession::H1(session))
    }

    /// Where it can be used again, it is kept.
    pub async fn give_back(&self, session: ClientSession, peer: &HttpPeer) {
        let idle = peer.idle_timeout();
        match session {
            ClientSession::H1(session) if is_plain(peer) => {
                self.plain().release_http_session(session, peer, idle).await;
            }
            session => self.others().release_http_session(session, peer, idle).await,
        }
    }

    fn plain(&self) -> &v1::Connector {
        self.plain.get_or_init(|| {
            let mut options = ConnectorOptions::new(IDLE);
            options.ca_file = Some(NO_AUTHORITIES.into());
            v1::Connector::new(Some(options))
        })
    }

    fn others(&self) -> &Connector {
        self.others.get_or_init(|| Connector::new(Some(ConnectorOptions::new(IDLE))))
    }
}

fn is_plain(peer: &HttpPeer) -> bool {
    !peer.is_tls() && peer.options.alpn.get_max_http_version() == 1
}

/// Counted among its destination's, as those of requests are.
async fn opened(peer: &HttpPeer) -> Result<HttpSession> {
    let Some(dialer) = &peer.options.custom_l4 else {
        return Error::e_explain(ErrorType::InternalError, "a peer without its way of connecting");
    };
    let within = peer.total_connection_timeout().unwrap_or_default();
    let Ok(connected) = timeout(within, dialer.connect(peer.address())).await else {
        return Error::e_explain(ErrorType::ConnectTimedout, format!("timed out after {within:?}"));
    };
    let mut stream = connected?;
    stream.set_nodelay()?;
    Ok(HttpSession::new_with_options(Box::new(stream), peer))
}
