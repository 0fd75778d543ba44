//! `type: http`: a request on a new connection each time. Keys: `method` (default GET), `path` with a query (default `/`),
//! `headers`, `body`, `version` (this and no other; default what requests speak), [`Expect`]'s and [`Reach`]'s. Redirects are
//! not followed.

use super::exchange::{self, Line};
use super::expect::{BODY, Expect};
use super::{Check, Connectors, Entry, ProbeKind, Target, Verdict};
use crate::config::{HttpVersion, Reach, Section, Spoken, Version};
use ::http::uri::PathAndQuery;
use ::http::{HeaderName, HeaderValue};
use async_trait::async_trait;
use bytes::Bytes;
use pingora::http::RequestHeader;
use pingora::protocols::http::client::HttpSession as ClientSession;
use pingora::{Error, ErrorType, Result};
use std::sync::Arc;

pub const ENTRY: Entry = Entry { name: "http", build };

const METHODS: [(&str, &str); 6] =
    [("GET", "GET"), ("POST", "POST"), ("PUT", "PUT"), ("HEAD", "HEAD"), ("OPTIONS", "OPTIONS"), ("DELETE", "DELETE")];
/// So many statuses below 200 may come before the final one.
const INTERIM: usize = 16;
/// What the exchange itself says, or a key of its own.
const NOT_HERE: [&str; 6] = ["host", "content-length", "transfer-encoding", "connection", "upgrade", "te"];

fn build(params: &mut Section<'_>) -> Box<dyn ProbeKind> {
    let method = params.word("method", &METHODS).unwrap_or("GET");
    let asked = Asked {
        method,
        path: path(params),
        headers: headers(params),
        body: params.text("body").map(|body| Bytes::from(body.value)).unwrap_or_default(),
        version: params.word("version", &Version::WORDS).map(HttpVersion::exact),
        expect: Expect::read(params),
    };
    if method == "HEAD" && !asked.expect.is_blind_to_bodies() {
        let at = params.spot_of("expect");
        params.problem(&at, "an answer to HEAD has no body: expected another method, or no `body` here");
    }
    Box::new(HttpProbe { reach: Reach::read(params), asked })
}

fn path(params: &mut Section<'_>) -> String {
    let Some(path) = params.text("path") else { return "/".to_string() };
    let fits = path.value.starts_with('/') && !path.value.contains('#') && path.value.parse::<PathAndQuery>().is_ok();
    if fits {
        return path.value;
    }
    let message =
        format!("{:?} is no path: expected one that starts with /, like /health or /health?deep=1", path.value);
    params.problem(&path.at, message);
    "/".to_string()
}

fn headers(params: &mut Section<'_>) -> Vec<(HeaderName, HeaderValue)> {
    let mut headers: Vec<(HeaderName, HeaderValue)> = Vec::new();
    for (name, value) in params.texts("headers") {
        let fault = match (name.value.parse::<HeaderName>(), HeaderValue::from_str(&value.value)) {
            (Err(_), _) => (name.at, format!("{:?} is no name of a header", name.value)),
            (Ok(known), _) if known == "host" => (name.at, "the Host header is key `host` of the check".to_string()),
            (Ok(known), _) if NOT_HERE.contains(&known.as_str()) => {
                (name.at, format!("{known} is made by the probe itself"))
            }
            (Ok(known), _) if headers.iter().any(|(other, _)| *other == known) => {
                (name.at, format!("header {known} is written twice"))
            }
            (Ok(_), Err(_)) => (value.at, "cannot stand in a header: expected visible characters".to_string()),
            (Ok(known), Ok(value)) => {
                headers.push((known, value));
                continue;
            }
        };
        params.problem(&fault.0, fault.1);
    }
    headers
}

struct HttpProbe {
    reach: Reach,
    asked: Asked,
}

#[derive(Debug, Clone)]
struct Asked {
    method: &'static str,
    path: String,
    headers: Vec<(HeaderName, HeaderValue)>,
    body: Bytes,
    version: Option<HttpVersion>,
    expect: Expect,
}

impl Asked {
    fn spoken(&self, target: &Target) -> Spoken {
        self.version.map_or(target.spoken, |version| version.spoken(target.peer.is_tls()))
    }

    /// `None` when the path or the host cannot be sent.
    fn head(&self, target: &Target) -> Option<RequestHeader> {
        let mut head = exchange::head(self.method, &self.path, target, self.spoken(target))?;
        for (name, value) in &self.headers {
            head.insert_header(name.clone(), value.clone()).ok()?;
        }
        if !self.body.is_empty() || matches!(self.method, "POST" | "PUT") {
            head.insert_header("Content-Length", self.body.len()).ok()?;
        }
        Some(head)
    }
}

impl ProbeKind for HttpProbe {
    fn reach(&self) -> &Reach {
        &self.reach
    }

    fn prepare(&self, target: &Target, connectors: &Arc<Connectors>) -> Box<dyn Check> {
        let Some(head) = self.asked.head(target) else {
            return Box::new(Unsendable(format!("{}{}", target.path, self.asked.path)));
        };
        let line = Line::new(target, self.asked.spoken(target), connectors);
        Box::new(HttpCheck { line, head, body: self.asked.body.clone(), expect: self.asked.expect.clone() })
    }

    fn signature(&self, target: &Target) -> String {
        format!("http {} {:?} {:?}", target.signature(), self.asked.spoken(target), self.asked)
    }
}

struct HttpCheck {
    line: Line,
    head: RequestHeader,
    body: Bytes,
    expect: Expect,
}

#[async_trait]
impl Check for HttpCheck {
    async fn check(&self) -> Result<Verdict> {
        self.ask().await.map_err(|error| self.line.blame(error))
    }
}

impl HttpCheck {
    /// The body is read only where it decides.
    async fn ask(&self) -> Result<Verdict> {
        let mut session = self.line.open().await?;
        session.write_request_header(Box::new(self.head.clone())).await?;
        if !self.body.is_empty() {
            session.write_request_body(self.body.clone(), false).await?;
        }
        session.finish_request_body().await?;
        let status = self.answered(&mut session).await?;
        let judged = session.response_header().map_or(Ok(()), |head| self.expect.head(head));
        if let Err(unwanted) = judged {
            return Ok(unwanted);
        }
        if self.expect.is_blind_to_bodies() {
            return Ok(Verdict::Wanted(status.to_string()));
        }
        let body = exchange::body(&mut session, BODY).await?;
        Ok(self.expect.body(status, &body))
    }

    /// The final status; of HTTP/1.1 others may come before it, and of too many the last is taken for it.
    async fn answered(&self, session: &mut ClientSession) -> Result<u16> {
        let mut status = 0;
        for _ in 0..=INTERIM {
            session.read_response_header().await?;
            status = session.response_header().map_or(0, |head| head.status.as_u16());
            if !(100..200).contains(&status) || status == 101 {
                break;
            }
        }
        Ok(status)
    }
}

/// A destination whose path or host cannot be sent: every probe says so.
struct Unsendable(String);

#[async_trait]
impl Check for Unsendable {
    async fn check(&self) -> Result<Verdict> {
        Error::e_explain(ErrorType::InternalError, format!("cannot ask for {:?}", self.0))
    }
}
