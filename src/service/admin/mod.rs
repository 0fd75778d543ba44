//! The admin listener: our own, outside the sockets that Pingora knows. `/metrics`, `/health`, `/ready` at the root,
//! everything else below `/api/v1`. Read-only so far. With a token every path but `/health` and `/ready` wants it as
//! `Authorization: Bearer …`; without one only a loopback address is allowed, which the configuration made sure of, and
//! only loopback names in `Host`, so that no web page can reach it by a name of its own.

mod taken;
mod view;

use self::taken::Taken;
use super::Lifecycle;
use crate::observe::{Metrics, metrics::CONTENT_TYPE};
use crate::runtime::Runtime;
use async_trait::async_trait;
use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use pingora::server::ShutdownWatch;
use pingora::services::background::BackgroundService;
use std::convert::Infallible;
use std::net::TcpListener;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Semaphore;

/// Connections at a time; more wait to be accepted.
const MOST_CONNECTIONS: usize = 256;
const HEAD_WITHIN: Duration = Duration::from_secs(10);
/// A client that takes nothing of its answer for so long gives its place to others.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

pub struct Admin {
    socket: Mutex<Option<TcpListener>>,
    state: Arc<State>,
}

struct State {
    runtime: Arc<Runtime>,
    lifecycle: Arc<Lifecycle>,
    metrics: Arc<Metrics>,
    token: Option<String>,
}

impl Admin {
    /// `socket` is bound and non-blocking.
    pub fn new(
        socket: TcpListener,
        runtime: Arc<Runtime>,
        lifecycle: Arc<Lifecycle>,
        metrics: Arc<Metrics>,
        token: Option<String>,
    ) -> Self {
        let state = Arc::new(State { runtime, lifecycle, metrics, token });
        Admin { socket: Mutex::new(Some(socket)), state }
    }
}

#[async_trait]
impl BackgroundService for Admin {
    async fn start(&self, _shutdown: ShutdownWatch) {
        let socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(Ok(listener)) = socket.map(tokio::net::TcpListener::from_std) else { return };
        let places = Arc::new(Semaphore::new(MOST_CONNECTIONS));
        loop {
            let Ok(place) = places.clone().acquire_owned().await else { return };
            let Ok((stream, _)) = listener.accept().await else {
                // Out of descriptors, most likely: give others time to free some.
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            };
            let state = self.state.clone();
            tokio::spawn(async move {
                let _place = place;
                let answer = service_fn(move |request| {
                    let state = state.clone();
                    async move { Ok::<_, Infallible>(state.answer(&request)) }
                });
                // How an admin client's connection ended concerns nobody.
                let _ = http1::Builder::new()
                    .timer(TokioTimer::new())
                    .header_read_timeout(HEAD_WITHIN)
                    .serve_connection(TokioIo::new(Taken::within(ANSWER_WITHIN, stream)), answer)
                    .await;
            });
        }
    }
}

impl State {
    fn answer(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        let path = request.uri().path();
        if let Some(refusal) = self.refusal(request) {
            return refusal;
        }
        match path {
            "/health" => text(StatusCode::OK, "ok\n"),
            "/ready" => match self.lifecycle.not_ready() {
                None => text(StatusCode::OK, "ready\n"),
                Some(why) => text(StatusCode::SERVICE_UNAVAILABLE, &format!("not ready: {why}\n")),
            },
            "/metrics" => {
                view::gauges(&self.runtime.pin());
                respond(StatusCode::OK, CONTENT_TYPE, self.metrics.render())
            }
            "/api/v1/clusters" => json(&view::clusters(&self.runtime.pin())),
            _ => {
                let name = path.strip_prefix("/api/v1/clusters/").and_then(percent_decoded);
                match name.and_then(|name| view::cluster(&self.runtime.pin(), &name)) {
                    Some(cluster) => json(&cluster),
                    None => text(
                        StatusCode::NOT_FOUND,
                        "not found; there are /metrics /health /ready /api/v1/clusters /api/v1/clusters/{name}\n",
                    ),
                }
            }
        }
    }

    fn refusal(&self, request: &Request<Incoming>) -> Option<Response<Full<Bytes>>> {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let mut refusal = text(StatusCode::METHOD_NOT_ALLOWED, "GET and HEAD only\n");
            refusal.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
            return Some(refusal);
        }
        let open = matches!(request.uri().path(), "/health" | "/ready");
        // A value that is no text is nobody's name.
        let header = |name| request.headers().get(name).map(|value| value.to_str().unwrap_or_default());
        let host = request.uri().authority().map(|target| target.as_str()).or_else(|| header(header::HOST));
        match &self.token {
            Some(token) if !open => {
                let sent = header(header::AUTHORIZATION).and_then(|value| value.strip_prefix("Bearer "));
                let same = sent.is_some_and(|sent| same(sent.as_bytes(), token.as_bytes()));
                if same {
                    return None;
                }
                let mut refusal = text(StatusCode::UNAUTHORIZED, "send the token as Authorization: Bearer …\n");
                refusal.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
                Some(refusal)
            }
            None if !open && !host.is_none_or(is_loopback) => {
                Some(text(StatusCode::FORBIDDEN, "the Host header must name this machine's loopback\n"))
            }
            _ => None,
        }
    }
}

/// Equal, in a time that does not tell where two tokens differ.
fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |differing, (a, b)| differing | (a ^ b)) == 0
}

/// A path segment with its `%XX` read; `None` when it then is no UTF-8.
fn percent_decoded(segment: &str) -> Option<String> {
    let mut decoded = Vec::new();
    let mut rest = segment.as_bytes();
    while let [first, after @ ..] = rest {
        let digit = |at: usize| char::from(*after.get(at)?).to_digit(16);
        match (first, digit(0), digit(1)) {
            (b'%', Some(high), Some(low)) => {
                decoded.push((high * 16 + low) as u8);
                rest = &after[2..];
            }
            _ => {
                decoded.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8(decoded).ok()
}

fn is_loopback(host: &str) -> bool {
    let name = crate::runtime::split_port(host).0;
    name.eq_ignore_ascii_case("localhost") || name.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

fn text(status: StatusCode, body: &str) -> Response<Full<Bytes>> {
    respond(status, "text/plain; charset=utf-8", body.to_string())
}

fn json(value: &serde_json::Value) -> Response<Full<Bytes>> {
    respond(StatusCode::OK, "application/json", format!("{value:#}\n"))
}

fn respond(status: StatusCode, kind: &'static str, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_hosts_when_asked_for_loopback_then_only_this_machines_own_names() {
        for host in ["localhost", "localhost:5390", "127.0.0.1:5390", "[::1]:5390", "LOCALHOST"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in ["evil.example", "127.0.0.1.evil.example", "localhost.evil:5390", "10.0.0.1", ""] {
            assert!(!is_loopback(host), "{host}");
        }
    }

    #[test]
    fn given_a_segment_when_decoded_then_each_escape_once_and_what_is_none_stays() {
        for (segment, decoded) in [
            ("odd%20name", Some("odd name")),
            ("a%2Fb", Some("a/b")),
            ("%2520", Some("%20")),
            ("%C3%BC", Some("ü")),
            ("%", Some("%")),
            ("%+1", Some("%+1")),
            ("%ff", None),
        ] {
            assert_eq!(percent_decoded(segment).as_deref(), decoded, "{segment}");
        }
    }

    #[test]
    fn given_tokens_when_compared_then_only_equal_ones_are_the_same() {
        assert!(same(b"secret", b"secret"));
        assert!(!same(b"secret", b"secreT"));
        assert!(!same(b"secret", b"secre"));
    }
}
