//! What probes that speak HTTP have in common: a connection for one request, and a body read up to a limit.

use super::cause::no_h2c;
use super::{Connectors, Target};
use crate::config::Spoken;
use pingora::http::RequestHeader;
use pingora::protocols::http::client::HttpSession as ClientSession;
use pingora::upstreams::peer::HttpPeer;
use pingora::{Error, ErrorType, Result};
use std::sync::Arc;

/// Of every probe, unless its own headers say another.
const AGENT: &str = concat!("derbent/", env!("CARGO_PKG_VERSION"), " (health check)");

/// Where a request goes and in which version.
pub struct Line {
    connectors: Arc<Connectors>,
    peer: HttpPeer,
    spoken: Spoken,
}

impl Line {
    pub fn new(target: &Target, spoken: Spoken, connectors: &Arc<Connectors>) -> Self {
        let mut peer = target.peer.clone();
        let (most, least) = spoken.majors();
        peer.options.set_http_version(most, least);
        // A connection that could take a second stream would be kept for it.
        peer.options.max_h2_streams = 1;
        Line { connectors: connectors.clone(), peer, spoken }
    }

    pub async fn open(&self) -> Result<ClientSession> {
        let (session, _) = self.connectors.http.get_http_session(&self.peer).await?;
        if self.spoken == Spoken::Http2 && !matches!(session, ClientSession::H2(_)) {
            return Error::e_explain(ErrorType::H2Downgrade, "the destination does not agree on it");
        }
        Ok(session)
    }

    /// An error of an exchange over it, by what was asked of the other side.
    pub fn blame(&self, error: Box<Error>) -> Box<Error> {
        let by_prior_knowledge = self.spoken == Spoken::Http2 && !self.peer.is_tls();
        if by_prior_knowledge { no_h2c(error) } else { error }
    }
}

/// The head of a request for `path` below the target's own; `None` when it cannot be sent.
pub fn head(method: &str, path: &str, target: &Target, spoken: Spoken) -> Option<RequestHeader> {
    let path = format!("{}{path}", target.path);
    let mut head = RequestHeader::build(method, path.as_bytes(), None).ok()?;
    head.insert_header("Host", target.host.as_str()).ok()?;
    head.insert_header("User-Agent", AGENT).ok()?;
    match spoken {
        Spoken::Http10 => head.set_version(::http::Version::HTTP_10),
        Spoken::Http11 => {}
        // Pingora would say https of cleartext too, which servers refuse. HTTP/1.1 makes nothing of it.
        Spoken::Negotiated | Spoken::Http2 => {
            let scheme = if target.peer.is_tls() { "https" } else { "http" };
            head.set_uri(format!("{scheme}://{}{path}", target.host).parse().ok()?);
        }
    }
    Some(head)
}

/// What comes of the body, up to `limit` bytes.
pub async fn body(session: &mut ClientSession, limit: usize) -> Result<Vec<u8>> {
    let mut body = Vec::new();
    while body.len() < limit {
        let Some(chunk) = session.read_response_body().await? else { break };
        body.extend_from_slice(&chunk);
    }
    body.truncate(limit);
    Ok(body)
}
