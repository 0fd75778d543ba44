//! The admin listener: our own, outside the sockets that Pingora knows. `/metrics`, `/health`, `/ready` at the root,
//! everything else below `/api/v1`. With a token every path but `/health` and `/ready` wants it as
//! `Authorization: Bearer …`; without one only a loopback address is allowed, which the configuration made sure of, and
//! only loopback names in `Host`, so that no web page can reach it by a name of its own. Orders are guarded once more: [`guard`].

mod drain;
mod explain;
mod guard;
mod order;
mod page;
mod requests;
mod taken;
mod told;
mod view;

use self::order::Ordered;
use self::page::{Page, Place};
use self::taken::Taken;
use super::Lifecycle;
use super::lifecycle::Word;
use crate::config::unknown;
use crate::health::Event;
use crate::model::Member;
use crate::observe::{Metrics, Recent, event, metrics::CONTENT_TYPE};
use crate::runtime::{Cluster, Runtime};
use async_trait::async_trait;
use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use pingora::server::ShutdownWatch;
use pingora::services::background::BackgroundService;
use std::convert::Infallible;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// Connections at a time; more wait to be accepted.
const MOST_CONNECTIONS: usize = 256;
const HEAD_WITHIN: Duration = Duration::from_secs(10);
/// A client that takes nothing of its answer for so long gives its place to others.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// An order's body.
const BODY_WITHIN: Duration = Duration::from_secs(10);
const MOST_BODY: usize = 64 << 10;

type Answer = Response<Full<Bytes>>;

/// Why there is no other answer, in one message.
struct Refusal(StatusCode, String);

pub struct Admin {
    socket: Mutex<Option<TcpListener>>,
    state: Arc<State>,
}

/// Of all that is shown.
pub struct Sources {
    pub runtime: Arc<Runtime>,
    pub lifecycle: Arc<Lifecycle>,
    pub metrics: Arc<Metrics>,
    pub recent: Arc<Recent>,
}

struct State {
    runtime: Arc<Runtime>,
    lifecycle: Arc<Lifecycle>,
    metrics: Arc<Metrics>,
    recent: Arc<Recent>,
    token: Option<String>,
}

impl Admin {
    /// `socket` is bound and non-blocking.
    pub fn new(socket: TcpListener, sources: Sources, token: Option<String>) -> Self {
        let Sources { runtime, lifecycle, metrics, recent } = sources;
        let state = Arc::new(State { runtime, lifecycle, metrics, recent, token });
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
            let Ok((stream, peer)) = listener.accept().await else {
                // Out of descriptors, most likely: give others time to free some.
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            };
            let state = self.state.clone();
            tokio::spawn(async move {
                let _place = place;
                let answer = service_fn(move |request| {
                    let state = state.clone();
                    async move { Ok::<_, Infallible>(state.answer(request, peer).await) }
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
    async fn answer(&self, request: Request<Incoming>, peer: SocketAddr) -> Answer {
        let page = Page::of(request.uri().path());
        if let Some(refusal) = guard::refusal(&request, page.as_ref(), self.token.as_deref()) {
            return refusal;
        }
        let now = Instant::now();
        match page {
            Some(Page::Health) => text(StatusCode::OK, "ok\n"),
            Some(Page::Ready) => match self.lifecycle.not_ready() {
                None => text(StatusCode::OK, "ready\n"),
                Some(why) => text(StatusCode::SERVICE_UNAVAILABLE, &format!("not ready: {why}\n")),
            },
            Some(Page::Metrics) => {
                view::gauges(&self.runtime.pin(), now);
                respond(StatusCode::OK, CONTENT_TYPE, self.metrics.render())
            }
            Some(Page::Drain) => self.drain(request, peer, now).await,
            Some(Page::Requests) => json(&requests::requests(&self.recent)),
            Some(Page::Clusters) => json(&view::clusters(&self.runtime.pin(), now)),
            Some(Page::Cluster(name)) => {
                answered(self.cluster(&name).map(|cluster| json(&view::cluster(&cluster, now))))
            }
            Some(Page::Explain(place)) => {
                answered(self.find(&place).and_then(|found| explained(&request, &found, now)))
            }
            Some(Page::State(place)) => self.order(place, request, order::state, peer).await,
            Some(Page::Weight(place)) => self.order(place, request, order::weight, peer).await,
            Some(Page::Canary(name)) => self.canary(&name, request, peer).await,
            None => text(StatusCode::NOT_FOUND, &format!("not found; there are {}\n", page::ALL)),
        }
    }

    async fn order(
        &self,
        place: Place,
        request: Request<Incoming>,
        read: fn(&[u8]) -> Result<Ordered, String>,
        peer: SocketAddr,
    ) -> Answer {
        answered(body(request).await.and_then(|body| {
            let (order, lasts) = read(&body).map_err(|fault| Refusal(StatusCode::BAD_REQUEST, fault))?;
            let (cluster, member) = self.find(&place)?;
            let now = Instant::now();
            cluster.judge(&member, Event::Operator { order, lasts, by: peer.to_string() }, now);
            Ok(json(&view::destination(&cluster, &member, now)))
        }))
    }

    async fn canary(&self, name: &str, request: Request<Incoming>, peer: SocketAddr) -> Answer {
        answered(body(request).await.and_then(|body| {
            let permille = order::percent(&body).map_err(|fault| Refusal(StatusCode::BAD_REQUEST, fault))?;
            let cluster = self.cluster(name)?;
            if !cluster.set_canary(permille) {
                return Err(Refusal(StatusCode::CONFLICT, format!("cluster {name} has no canary")));
            }
            event::canary_ordered(&cluster.metrics, permille, peer);
            Ok(json(&view::cluster(&cluster, Instant::now())))
        }))
    }

    async fn drain(&self, request: Request<Incoming>, peer: SocketAddr, now: Instant) -> Answer {
        if request.method() == Method::POST {
            let order = body(request)
                .await
                .and_then(|body| order::nothing(&body).map_err(|fault| Refusal(StatusCode::BAD_REQUEST, fault)));
            if let Err(refusal) = order {
                return answered(Err(refusal));
            }
            self.lifecycle.hear(Word::Ordered { by: peer.to_string() }, now);
        }
        json(&drain::view(&self.lifecycle.shown()))
    }

    fn cluster(&self, name: &str) -> Result<Arc<Cluster>, Refusal> {
        let snapshot = self.runtime.pin();
        snapshot.cluster(name).cloned().ok_or_else(|| {
            let known: Vec<&str> = snapshot.clusters.iter().map(|cluster| cluster.name.as_str()).collect();
            missing(unknown("cluster", name, &known))
        })
    }

    fn find(&self, place: &Place) -> Result<(Arc<Cluster>, Arc<Member>), Refusal> {
        let cluster = self.cluster(&place.cluster)?;
        let found = cluster.members.iter().find(|member| member.destination.id == place.destination).cloned();
        let member = found.ok_or_else(|| {
            let known: Vec<&str> = cluster.members.iter().map(|member| member.destination.id.as_str()).collect();
            let unknown = unknown("destination", &place.destination, &known);
            missing(format!("cluster {}: {unknown}", cluster.name))
        })?;
        Ok((cluster, member))
    }
}

fn missing(what: String) -> Refusal {
    Refusal(StatusCode::NOT_FOUND, what + "\nsee /api/v1/clusters")
}

/// As text, unless JSON is asked for by `?format=json` or, without that, by Accept.
fn explained<B>(
    request: &Request<B>,
    (cluster, member): &(Arc<Cluster>, Arc<Member>),
    now: Instant,
) -> Result<Answer, Refusal> {
    let formats = request.uri().query().into_iter().flat_map(|query| query.split('&'));
    let asked = formats.filter_map(|pair| pair.strip_prefix("format=")).next_back();
    let accepts = request.headers().get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let accepts_json =
        || accepts.flat_map(|value| value.split([',', ';'])).any(|kind| kind.trim() == "application/json");
    let as_json = match asked {
        Some("json") => true,
        Some("text") => false,
        Some(other) => {
            return Err(Refusal(StatusCode::BAD_REQUEST, unknown("format", other, &["text", "json"])));
        }
        None => accepts_json(),
    };
    let report = explain::Report::of(cluster, member, now);
    Ok(if as_json { json(&report.json()) } else { text(StatusCode::OK, &report.text()) })
}

/// The whole body, when it is small and comes in time.
async fn body(request: Request<Incoming>) -> Result<Bytes, Refusal> {
    let collected = timeout(BODY_WITHIN, Limited::new(request.into_body(), MOST_BODY).collect()).await;
    let refused = |status, why: &str| Err(Refusal(status, why.to_string()));
    match collected {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(fault)) if fault.is::<LengthLimitError>() => {
            refused(StatusCode::PAYLOAD_TOO_LARGE, "an order has at most 64 KiB")
        }
        Ok(Err(_)) => refused(StatusCode::BAD_REQUEST, "the body did not come whole"),
        Err(_) => refused(StatusCode::REQUEST_TIMEOUT, "the body did not come in time"),
    }
}

fn answered(answer: Result<Answer, Refusal>) -> Answer {
    answer.unwrap_or_else(|Refusal(status, why)| text(status, &format!("{why}\n")))
}

fn text(status: StatusCode, body: &str) -> Answer {
    respond(status, "text/plain; charset=utf-8", body.to_string())
}

fn json(value: &serde_json::Value) -> Answer {
    respond(StatusCode::OK, "application/json", format!("{value:#}\n"))
}

fn respond(status: StatusCode, kind: &'static str, body: String) -> Answer {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
