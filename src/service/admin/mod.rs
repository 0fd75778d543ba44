//! The admin listener: our own, outside the sockets that Pingora knows. `/metrics`, `/health`, `/ready` at the root,
//! everything else below `/api/v1`. With a token every path but `/health` and `/ready` wants it as
//! `Authorization: Bearer …`; without one only a loopback address is allowed, which the configuration made sure of, and
//! only loopback names in `Host`, so that no web page can reach it by a name of its own. Orders are guarded once more: [`guard`].

mod bind;
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
use super::{Launcher, Refused, Seat, Sources};
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
use serde_json::json;
use std::convert::Infallible;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

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
    address: SocketAddr,
    socket: Mutex<Option<TcpListener>>,
    /// It listens while the process holds it.
    seat: Arc<Seat>,
    state: Arc<State>,
}

/// What the listener tells of, and gives orders to.
pub struct State {
    pub runtime: Arc<Runtime>,
    pub lifecycle: Arc<Lifecycle>,
    pub metrics: Arc<Metrics>,
    pub sources: Arc<Sources>,
    pub recent: Arc<Recent>,
    pub token: Option<String>,
    /// Starts a successor; `None`: there is no place for one to ask at.
    pub launcher: Option<Arc<Launcher>>,
}

impl Admin {
    /// `socket` is bound and non-blocking, where the process holds its place from the start.
    pub fn new(address: SocketAddr, socket: Option<TcpListener>, seat: Arc<Seat>, state: State) -> Self {
        Admin { address, socket: Mutex::new(socket), seat, state: Arc::new(state) }
    }

    async fn serve(&self, listener: tokio::net::TcpListener) {
        let places = Arc::new(Semaphore::new(MOST_CONNECTIONS));
        loop {
            let Ok(place) = places.clone().acquire_owned().await else { return };
            let Ok((stream, peer)) = listener.accept().await else {
                // Out of descriptors, most likely: give others time to free some.
                sleep(Duration::from_millis(100)).await;
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

#[async_trait]
impl BackgroundService for Admin {
    async fn start(&self, _shutdown: ShutdownWatch) {
        let mut held = self.seat.held();
        while held.wait_for(|held| *held).await.is_ok() {
            let socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner).take();
            let given = socket.and_then(|socket| tokio::net::TcpListener::from_std(socket).ok());
            let serving = async {
                let listener = match given {
                    Some(listener) => listener,
                    None => bind::patiently(self.address).await,
                };
                self.serve(listener).await;
            };
            tokio::select! {
                () = serving => {}
                _ = held.wait_for(|held| !*held) => {}
            }
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
                view::gauges(&self.runtime, &self.metrics, now);
                respond(StatusCode::OK, CONTENT_TYPE, self.metrics.render())
            }
            Some(Page::Drain) => answered(self.drain(request, peer, now).await),
            Some(Page::Upgrade) => answered(self.upgrade(request).await),
            Some(Page::Reload) => answered(self.reload(request).await),
            Some(Page::Requests) => json(&requests::requests(&self.recent)),
            Some(Page::Clusters) => json(&view::clusters(&self.runtime, now)),
            Some(Page::Cluster(name)) => answered(
                self.cluster(&name).map(|cluster| json(&view::cluster(&cluster, &self.runtime.leaving(), now))),
            ),
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
            Ok(json(&view::cluster(&cluster, &self.runtime.leaving(), Instant::now())))
        }))
    }

    async fn drain(&self, request: Request<Incoming>, peer: SocketAddr, now: Instant) -> Result<Answer, Refusal> {
        if request.method() == Method::POST {
            bare(request).await?;
            self.lifecycle.hear(Word::Ordered { by: peer.to_string() }, now);
        }
        Ok(json(&drain::view(&self.lifecycle.shown())))
    }

    async fn upgrade(&self, request: Request<Incoming>) -> Result<Answer, Refusal> {
        bare(request).await?;
        let Some(launcher) = self.launcher.clone() else {
            let why = "server.upgrade_socket is not set, or this process was started by no command line: no successor could be started";
            return Err(Refusal(StatusCode::CONFLICT, why.to_owned()));
        };
        let ready = spawn_blocking(move || launcher.run()).await;
        let ready = ready.map_err(|panic| Refusal(StatusCode::INTERNAL_SERVER_ERROR, panic.to_string()))?;
        let pid = ready.map_err(|why| Refusal(StatusCode::BAD_GATEWAY, format!("{why}; this process serves on")))?;
        let told = format!("process {pid} is ready and has taken over; process {} drains", std::process::id());
        Ok(json(&json!({ "pid": pid, "told": told })))
    }

    async fn reload(&self, request: Request<Incoming>) -> Result<Answer, Refusal> {
        bare(request).await?;
        let sources = self.sources.clone();
        // Reads files and looks names up.
        let reloaded = spawn_blocking(move || sources.reload()).await;
        let reloaded = reloaded.map_err(|panic| Refusal(StatusCode::INTERNAL_SERVER_ERROR, panic.to_string()))?;
        let told = reloaded.map_err(|refused| {
            let status = match refused {
                Refused::NoFile => StatusCode::CONFLICT,
                Refused::Rejected(_) => StatusCode::UNPROCESSABLE_ENTITY,
            };
            Refusal(status, refused.to_string())
        })?;
        Ok(json(&json!({ "config_hash": self.runtime.pin().config_hash, "told": told })))
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

/// An order whose address says all.
async fn bare(request: Request<Incoming>) -> Result<(), Refusal> {
    order::nothing(&body(request).await?).map_err(|fault| Refusal(StatusCode::BAD_REQUEST, fault))
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
