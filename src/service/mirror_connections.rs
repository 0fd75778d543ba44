//! The connections of copies, and their pools. A copy that waits for one is to take little more than its body. So those without
//! TLS are opened here: Pingora's connecting takes 9 KiB for each copy that waits for it. With TLS it is Pingora's, for its
//! TLS is not to be had otherwise, and the system's authorities, up to a megabyte, are read only for who trusts them. What fails,
//! fails the copy.

use pingora::connectors::ConnectorOptions;
use pingora::connectors::http::v2::{Connector, H2HandshakeSettings, handshake};
use pingora::protocols::http::client::HttpSession as ClientSession;
use pingora::protocols::http::v1::client::HttpSession;
use pingora::protocols::l4::stream::Stream;
use pingora::upstreams::peer::{HttpPeer, Peer};
use pingora::{Error, ErrorType, OkOrErr, Result};
use std::sync::OnceLock;
use tokio::time::timeout;

/// Kept idle, of either kind.
const IDLE: usize = 128;
/// A file of authorities that has none.
const NO_AUTHORITIES: &str = "/dev/null";

/// Each connector is made when there is something to connect to. Either speaks both versions of HTTP.
#[derive(Default)]
pub struct MirrorConnections {
    /// For who trusts the system's authorities.
    trusting: OnceLock<Connector>,
    others: OnceLock<Connector>,
}

impl MirrorConnections {
    /// One that is idle or has room for a stream, else a new one.
    pub async fn get(&self, peer: &HttpPeer) -> Result<ClientSession> {
        let connector = self.connector(peer);
        let (least, most) = (peer.options.alpn.get_min_http_version(), peer.options.alpn.get_max_http_version());
        if most > 1
            && let Some(stream) = Box::pin(connector.reused_http_session(peer)).await?
        {
            return Ok(ClientSession::H2(stream));
        }
        if least == 1
            && let Some(idle) = connector.transport().reused_stream(peer).await
        {
            return Ok(ClientSession::H1(HttpSession::new_with_options(idle, peer)));
        }
        if peer.is_tls() {
            return Box::pin(over_tls(connector, peer, most)).await;
        }
        let stream = opened(peer).await?;
        if most == 1 {
            return Ok(ClientSession::H1(HttpSession::new_with_options(Box::new(stream), peer)));
        }
        Box::pin(over_http2(connector, stream, peer)).await
    }

    /// Where it can be used again, it is kept.
    pub async fn give_back(&self, session: ClientSession, peer: &HttpPeer) {
        let connector = self.connector(peer);
        let idle = peer.idle_timeout();
        match session {
            ClientSession::H1(mut session) => {
                session.respect_keepalive();
                if let Some(stream) = session.reuse().await {
                    connector.transport().release_stream(stream, peer.reuse_hash(), idle);
                }
            }
            ClientSession::H2(stream) => connector.release_http_session(stream, peer, idle),
            ClientSession::Custom(()) => {}
        }
    }

    fn connector(&self, peer: &HttpPeer) -> &Connector {
        let mut options = ConnectorOptions::new(IDLE);
        if peer.is_tls() && peer.options.ca.is_none() {
            return self.trusting.get_or_init(|| Connector::new(Some(options)));
        }
        options.ca_file = Some(NO_AUTHORITIES.into());
        self.others.get_or_init(|| Connector::new(Some(options)))
    }
}

async fn over_tls(connector: &Connector, peer: &HttpPeer, most: u8) -> Result<ClientSession> {
    if most > 1 {
        return connector.new_http_session(peer).await;
    }
    let stream = connector.transport().new_stream(peer).await?;
    Ok(ClientSession::H1(HttpSession::new_with_options(stream, peer)))
}

/// As Pingora does it, by prior knowledge; others find the connection while it has room.
async fn over_http2(connector: &Connector, stream: Stream, peer: &HttpPeer) -> Result<ClientSession> {
    let mut settings = H2HandshakeSettings::new();
    settings.max_streams = peer.options.max_h2_streams;
    settings.stream_window_size = peer.options.h2_stream_window_size;
    settings.connection_window_size = peer.options.h2_connection_window_size;
    let connection = handshake(Box::new(stream), settings).await?;
    let stream = connection.spawn_stream().await?.or_err(ErrorType::H2Error, "a new connection without room")?;
    if connection.more_streams_allowed() {
        connector.in_use_pool().insert(peer.reuse_hash(), connection);
    }
    Ok(ClientSession::H2(stream))
}

/// Counted among its destination's, as those of requests are.
async fn opened(peer: &HttpPeer) -> Result<Stream> {
    let Some(dialer) = &peer.options.custom_l4 else {
        return Error::e_explain(ErrorType::InternalError, "a peer without its way of connecting");
    };
    let within = peer.total_connection_timeout().unwrap_or_default();
    let Ok(connected) = timeout(within, dialer.connect(peer.address())).await else {
        return Error::e_explain(ErrorType::ConnectTimedout, format!("timed out after {within:?}"));
    };
    let mut stream = connected?;
    stream.set_nodelay()?;
    Ok(stream)
}
