//! `type: http`: a GET, a new connection each time; good when the status is an expected one. Keys: `path` (default `/`),
//! `expect.status` (default 200-299), `version` (this and no other; default what requests speak). Redirects are not followed.

use super::cause::no_h2c;
use super::{Connectors, Entry, Probe, ProbeKind, Target};
use crate::config::{HttpVersion, Located, Section, Spoken, Version};
use async_trait::async_trait;
use pingora::http::RequestHeader;
use pingora::protocols::http::client::HttpSession as ClientSession;
use pingora::upstreams::peer::HttpPeer;
use pingora::{Error, ErrorType, Result};
use pingora_load_balancing::Backend;
use pingora_load_balancing::health_check::HealthCheck;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

pub const ENTRY: Entry = Entry { name: "http", build };

fn build(params: &mut Section<'_>) -> Box<dyn ProbeKind> {
    let path = match params.text("path") {
        Some(path) if !path.value.starts_with('/') || path.value.parse::<http::Uri>().is_err() => {
            params.problem(
                &path.at,
                format!("{:?} is no path: expected one that starts with /, like /health", path.value),
            );
            "/".to_string()
        }
        Some(path) => path.value,
        None => "/".to_string(),
    };
    let mut expected = Vec::new();
    params.section("expect", |expect| {
        for status in expect.words("status") {
            match status_range(&status) {
                Some(range) => expected.push(range),
                None => expect.problem(
                    &status.at,
                    format!("{:?} is no status: expected 100 to 599, like 204 or 200-299", status.value),
                ),
            }
        }
    });
    if expected.is_empty() {
        expected.push(200..=299);
    }
    let version = params.word("version", &Version::WORDS).map(HttpVersion::exact);
    Box::new(HttpProbe { path, expected: expected.into(), version })
}

fn status_range(word: &Located<String>) -> Option<RangeInclusive<u16>> {
    let number = |text: &str| text.trim().parse::<u16>().ok().filter(|status| (100..600).contains(status));
    let (first, last) = word.value.split_once('-').unwrap_or((&word.value, &word.value));
    let range = number(first)?..=number(last)?;
    (!range.is_empty()).then_some(range)
}

struct HttpProbe {
    path: String,
    expected: Arc<[RangeInclusive<u16>]>,
    version: Option<HttpVersion>,
}

impl ProbeKind for HttpProbe {
    fn prepare(&self, target: &Target<'_>, connectors: &Arc<Connectors>) -> Probe {
        let status = Arc::new(AtomicU16::new(0));
        let path = format!("{}{}", target.path, self.path);
        let tls = target.peer.is_tls();
        let spoken = self.version.map_or(target.spoken, |version| version.spoken(tls));
        let Some(request) = request(&path, target.host, tls, spoken) else {
            return Probe { check: Box::new(Unsendable(path)), status };
        };
        let check = HttpCheck {
            connectors: connectors.clone(),
            peer: peer(target.peer, spoken),
            spoken,
            request,
            expected: self.expected.clone(),
            seen: status.clone(),
        };
        Probe { check: Box::new(check), status }
    }
}

fn request(path: &str, host: &str, tls: bool, spoken: Spoken) -> Option<RequestHeader> {
    let mut request = RequestHeader::build("GET", path.as_bytes(), None).ok()?;
    request.insert_header("Host", host).ok()?;
    request.insert_header("User-Agent", concat!("derbent/", env!("CARGO_PKG_VERSION"), " (health check)")).ok()?;
    match spoken {
        Spoken::Http10 => request.set_version(::http::Version::HTTP_10),
        Spoken::Http11 => {}
        // Pingora would say https of cleartext too, which servers refuse. HTTP/1.1 makes nothing of it.
        Spoken::Negotiated | Spoken::Http2 => {
            let scheme = if tls { "https" } else { "http" };
            request.set_uri(format!("{scheme}://{host}{path}").parse().ok()?);
        }
    }
    Some(request)
}

/// For one request: a connection that could take a second stream would be kept for it.
fn peer(of: &HttpPeer, spoken: Spoken) -> HttpPeer {
    let mut peer = of.clone();
    let (most, least) = spoken.majors();
    peer.options.set_http_version(most, least);
    peer.options.max_h2_streams = 1;
    peer
}

struct HttpCheck {
    connectors: Arc<Connectors>,
    peer: HttpPeer,
    spoken: Spoken,
    request: RequestHeader,
    expected: Arc<[RangeInclusive<u16>]>,
    seen: Arc<AtomicU16>,
}

#[async_trait]
impl HealthCheck for HttpCheck {
    async fn check(&self, _target: &Backend) -> Result<()> {
        let asked = self.ask().await;
        let by_prior_knowledge = self.spoken == Spoken::Http2 && !self.peer.is_tls();
        asked.map_err(|error| if by_prior_knowledge { no_h2c(error) } else { error })
    }

    fn health_threshold(&self, _success: bool) -> usize {
        1
    }
}

impl HttpCheck {
    /// The head of the answer decides; its body is not read.
    async fn ask(&self) -> Result<()> {
        let (mut session, _) = self.connectors.http.get_http_session(&self.peer).await?;
        if self.spoken == Spoken::Http2 && !matches!(session, ClientSession::H2(_)) {
            return Error::e_explain(ErrorType::H2Downgrade, "the destination does not agree on it");
        }
        session.set_write_timeout(self.peer.options.write_timeout);
        session.set_read_timeout(self.peer.options.read_timeout);
        session.write_request_header(Box::new(self.request.clone())).await?;
        session.finish_request_body().await?;
        session.read_response_header().await?;
        let status = session.response_header().map_or(0, |response| response.status.as_u16());
        self.seen.store(status, Ordering::Relaxed);
        if self.expected.iter().any(|range| range.contains(&status)) {
            return Ok(());
        }
        Error::e_explain(ErrorType::CustomCode("unexpected status", status), "probe")
    }
}

/// A destination whose path or host cannot be sent: every probe says so.
struct Unsendable(String);

#[async_trait]
impl HealthCheck for Unsendable {
    async fn check(&self, _target: &Backend) -> Result<()> {
        Error::e_explain(ErrorType::InternalError, format!("cannot ask for {:?}", self.0))
    }

    fn health_threshold(&self, _success: bool) -> usize {
        1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Spot;

    #[test]
    fn given_statuses_as_written_when_read_then_ranges_or_nothing() {
        let read = |text: &str| {
            let at = Spot { file: "f".into(), line: 1, column: 1, path: String::new() };
            status_range(&Located { value: text.to_string(), at })
        };
        assert_eq!(read("204"), Some(204..=204));
        assert_eq!(read("200-299"), Some(200..=299));
        for wrong in ["", "99", "600", "299-200", "2xx", "200-", "-200", "70000"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}
