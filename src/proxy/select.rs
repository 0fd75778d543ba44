//! Where a request goes: its route, its destination, its connection.

use super::clock;
use super::connection::Client;
use super::ctx::{Attempt, Ctx};
use super::dial::{self, Dial};
use super::headers::{has_meaningless_body, is_websocket};
use super::queue;
use super::respond::FailReason;
use super::sessions::Bound;
use super::strict::{Fault, Head};
use crate::config::Spoken;
use crate::model::{Dice, RequestView};
use crate::observe::event;
use crate::retry::Plan;
use crate::runtime::{self, Cluster, Drawn, First, NoDestination, Route, draw_again, fail_over, split_port};
use http::header;
use pingora::protocols::http::ServerSession;
use pingora::upstreams::peer::HttpPeer;
use pingora::{Error, ErrorType, Result};
use pingora_proxy::Session;
use std::sync::Arc;
use std::time::Instant;

/// Whether the head may be looked at further.
pub fn strict(session: &Session, ctx: &Ctx) -> Result<(), Fault> {
    let raw = match session.as_downstream() {
        ServerSession::H1(session) => Some(session.get_headers_raw_bytes()),
        _ => None,
    };
    let rewritten = raw.as_deref().is_some_and(|raw| ctx.connection.wire.was_rewritten(raw));
    Head { request: session.req_header(), raw: raw.as_deref(), rewritten }.judge()
}

/// Finds the route and keeps it.
pub fn route(session: &Session, ctx: &mut Ctx) -> Option<Arc<Route>> {
    ctx.route = ctx.snapshot.route(&view(session, &ctx.client)).cloned();
    ctx.route.clone()
}

/// The first draw, made where an answer does not cost the client its connection. `false`: a reload did away with what it waited for,
/// and it may begin anew.
pub async fn first(
    session: &mut Session,
    ctx: &mut Ctx,
    route: &Route,
    cluster: &Arc<Cluster>,
) -> Result<bool, FailReason> {
    clock::start(ctx, route);
    ctx.connection.set_stalled(session, cluster.activity_timeout);
    match drawn(session, ctx, cluster).await {
        Ok(None) => Ok(false),
        Ok(Some(Begun { cluster, drawn, now })) => {
            clock::wind(session, ctx, &cluster);
            let request = session.req_header();
            let plan = cluster.begin(&request.method, is_websocket(request), &drawn.member);
            let stays = ctx.bound.as_ref().is_some_and(Bound::stays);
            let plan = if stays { plan.stays() } else { plan };
            ctx.attempt = Some(attempt(session, ctx, route, &cluster, drawn, plan, now)?);
            Ok(true)
        }
        Err(FailReason::NoDestination) => {
            let metrics = &route.metrics[ctx.connection.listener.index];
            event::no_destination(&cluster.metrics, metrics, ctx.begun);
            Err(FailReason::NoDestination)
        }
        Err(reason) => Err(reason),
    }
}

/// What came of a first draw.
pub struct Begun {
    /// The one that served by then.
    cluster: Arc<Cluster>,
    drawn: Drawn,
    now: Instant,
}

/// At once, or when there is a place, where there is a queue for that.
async fn drawn(session: &mut Session, ctx: &mut Ctx, cluster: &Arc<Cluster>) -> Result<Option<Begun>, FailReason> {
    let now = Instant::now();
    let first = match cluster.queue {
        // Whoever waits came before.
        Some(_) if cluster.line().length() > 0 => {
            First { session: None, arm: None, drawn: Err(NoDestination::AllFull) }
        }
        _ => runtime::first(cluster, None, view(session, &ctx.client), &mut ctx.trail, now, &mut Dice::new()),
    };
    match (&first.drawn, cluster.queue) {
        (Err(NoDestination::AllFull), Some(queue)) => queue::place(session, ctx, cluster, first, queue).await,
        _ => began(ctx, cluster, first, now).map(Some),
    }
}

pub fn began(ctx: &mut Ctx, cluster: &Arc<Cluster>, first: First, now: Instant) -> Result<Begun, FailReason> {
    ctx.bound = first.session.map(|session| Bound::new(cluster, session, first.drawn.is_ok(), now));
    match first.drawn {
        Ok(drawn) => Ok(Begun { cluster: cluster.clone(), drawn, now }),
        Err(NoDestination::NoneAvailable) => Err(FailReason::NoDestination),
        Err(NoDestination::AllFull) => Err(FailReason::Overload),
        Err(NoDestination::SessionLost) => Err(FailReason::SessionLost),
    }
}

/// A destination for another attempt of a request, one that was not tried while there is one, or else `over`, a failover; `None`
/// when none can be drawn.
pub fn again(
    session: &mut Session,
    ctx: &mut Ctx,
    cluster: &Arc<Cluster>,
    over: bool,
    dice: &mut Dice,
) -> Option<Drawn> {
    let draw = if over { fail_over } else { draw_again };
    let drawn = draw(cluster, view(session, &ctx.client), &mut ctx.trail, Instant::now(), dice).ok()?;
    unfit(session, cluster.upstream(&drawn.member).spoken).is_none().then_some(drawn)
}

/// Another attempt of a request, at the destination drawn.
pub fn attempt_at(
    session: &mut Session,
    ctx: &mut Ctx,
    cluster: &Arc<Cluster>,
    drawn: Drawn,
    plan: Plan,
) -> Option<Attempt> {
    let route = ctx.route.clone()?;
    attempt(session, ctx, &route, cluster, drawn, plan, Instant::now()).ok()
}

fn attempt(
    session: &mut Session,
    ctx: &mut Ctx,
    route: &Route,
    cluster: &Arc<Cluster>,
    drawn: Drawn,
    plan: Plan,
    now: Instant,
) -> Result<Attempt, FailReason> {
    ctx.trail.took(cluster, &drawn.member);
    let spoken = cluster.upstream(&drawn.member).spoken;
    if let Some(reason) = unfit(session, spoken) {
        return Err(reason);
    }
    let mut attempt = Attempt::new(route, cluster, drawn, plan, now);
    attempt.fresh =
        is_websocket(session.req_header()) || (spoken != Spoken::Http2 && has_meaningless_body(session.req_header()));
    attempt.sent = session.as_downstream_mut().is_body_done().then_some(now);
    Ok(attempt)
}

/// Why the request cannot be said in what the destination is spoken to.
fn unfit(session: &mut Session, spoken: Spoken) -> Option<FailReason> {
    match spoken {
        Spoken::Http2 if is_websocket(session.req_header()) => Some(FailReason::NoUpgrade),
        Spoken::Http10 if !session.req_header().headers.contains_key(header::CONTENT_LENGTH) => {
            (!session.as_downstream_mut().is_body_empty()).then_some(FailReason::LengthRequired)
        }
        _ => None,
    }
}

/// The prepared peer of the destination drawn, after the pause before its attempt.
pub async fn peer(session: &mut Session, ctx: &mut Ctx) -> Result<Box<HttpPeer>> {
    if matches!(ctx.dial, Dial::Kept) {
        queue::attempt(session, ctx).await?;
    }
    if session.as_downstream_mut().is_body_done() {
        // What the body has to say, but there is none to every destination.
        ctx.connection.wire.set_whole(true);
    }
    let Some(attempt) = &mut ctx.attempt else {
        return Error::e_explain(ErrorType::InternalError, "no destination was drawn");
    };
    let upstream = attempt.cluster.upstream(&attempt.member);
    let upgrade = is_websocket(session.req_header());
    let mut peer = match attempt.fresh {
        true if upgrade => upstream.for_upgrade(),
        true => upstream.fresh(),
        false => {
            attempt.idle = attempt.member.live.idle.time(upstream.idle_timeout(), Instant::now());
            upstream.pooled(attempt.idle)
        }
    };
    if ctx.alarm.is_some() {
        clock::limit(&mut peer.options, ctx, upgrade, Instant::now());
    }
    dial::attend(session, ctx, &mut peer);
    Ok(peer)
}

/// What routing and policies may look at.
pub fn view<'a>(session: &'a Session, client: &Client) -> RequestView<'a> {
    let request = session.req_header();
    let written = request.headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let authority = request.uri.authority().map(|authority| authority.as_str());
    let (host, port) = split_port(authority.or(written).unwrap_or(""));
    RequestView {
        method: &request.method,
        host,
        port,
        path: path_of(request),
        query: request.uri.query(),
        headers: &request.headers,
        client_ip: client.ip,
    }
}

/// The path byte for byte, without the query.
pub fn path_of(request: &pingora::http::RequestHeader) -> &str {
    request.uri.path()
}
