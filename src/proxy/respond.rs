//! Answers in the proxy's own name. One table says what each reason is to the client; the body is a short text, or JSON
//! where the client asks for it, and names the request's id, never a destination.

use super::conclude::CLIENT_CLOSED_REQUEST;
use super::ctx::Ctx;
use super::grpc;
use super::headers::{REQUEST_ID, request_id};
use super::http10;
use super::strict::Fault;
use crate::model::Outcome;
use crate::observe::{Rejected, event};
use crate::runtime::{Redirect, Respond};
use bytes::Bytes;
use http::{HeaderName, StatusCode, Version, header};
use pingora::http::ResponseHeader;
use pingora::protocols::http::ServerSession;
use pingora::{Error, ErrorSource, ErrorType, Result};
use pingora_proxy::{FailToProxy, Session};
use std::time::{Duration, Instant};

/// A body that nobody wants is taken in for this long.
const DRAINED_WITHIN: Duration = Duration::from_secs(5);

/// What `Allow` says where TRACE is refused; which of these a route takes is another matter.
const ALLOWED: &str = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";

/// Why there is no destination's answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailReason {
    /// The head is not passed on.
    Refused(Fault),
    /// The body is not what the head said.
    BadRequest,
    ClientTimedOut,
    /// There is nobody to answer.
    ClientLeft,
    /// The process ends.
    Drained,
    LengthRequired,
    NoRoute,
    NoUpgrade,
    NoDestination,
    /// Its session's destination may not be used, and no other is to have it.
    SessionLost,
    Overload,
    Failed,
    TimedOut,
    Internal,
}

struct Row {
    status: u16,
    word: &'static str,
    message: &'static str,
    header: Option<(HeaderName, &'static str)>,
    rejected: Option<Rejected>,
}

impl FailReason {
    /// What an attempt's end is to the client.
    pub fn of(outcome: Outcome) -> Self {
        match outcome {
            Outcome::ConnectTimeout | Outcome::ReadTimeout | Outcome::RouteTimeout => FailReason::TimedOut,
            Outcome::Overload => FailReason::Overload,
            Outcome::Local => FailReason::Internal,
            _ => FailReason::Failed,
        }
    }

    /// For programs.
    pub fn word(self) -> &'static str {
        self.row().word
    }

    /// Neither the client's doing nor its leave.
    pub fn is_ours(self) -> bool {
        self.row().status >= 500
    }

    fn row(self) -> Row {
        let row = |status, word, message| Row { status, word, message, header: None, rejected: None };
        let turned_away = |row: Row, rejected| Row { rejected: Some(rejected), ..row };
        let later = |row: Row| Row { header: Some((header::RETRY_AFTER, "1")), ..row };
        match self {
            FailReason::Refused(fault) => {
                let allow = (fault.status == 405).then_some((header::ALLOW, ALLOWED));
                let row = Row { header: allow, ..row(fault.status, fault.word, fault.what) };
                turned_away(row, Rejected::BadRequest)
            }
            FailReason::BadRequest => {
                turned_away(row(400, "bad_request", "the request's body is malformed"), Rejected::BadRequest)
            }
            FailReason::ClientTimedOut => turned_away(
                row(408, "request_timeout", "the rest of the request did not come in time"),
                Rejected::BadRequest,
            ),
            FailReason::ClientLeft => row(CLIENT_CLOSED_REQUEST, "client_abort", "the client left"),
            FailReason::Drained => row(503, "drain_ended", "the proxy has to go"),
            FailReason::LengthRequired => turned_away(
                row(411, "length_required", "the destination takes no body of unknown length"),
                Rejected::BadRequest,
            ),
            FailReason::NoUpgrade => {
                row(502, "no_upgrade", "the destination is spoken to in a version without upgrades")
            }
            FailReason::NoRoute => {
                turned_away(row(404, "no_route", "no route matches this request"), Rejected::NoRoute)
            }
            // Counted where it is told.
            FailReason::NoDestination => later(row(503, "no_destination", "no destination is available")),
            FailReason::SessionLost => later(turned_away(
                row(503, "session_lost", "the destination of this session is not available"),
                Rejected::NoDestination,
            )),
            FailReason::Overload => later(turned_away(
                row(503, "overload", "every destination that may take it is at its limit"),
                Rejected::Overload,
            )),
            FailReason::Failed => row(502, "destination_failed", "the destination could not be reached or broke off"),
            FailReason::TimedOut => row(504, "timed_out", "the destination did not answer in time"),
            FailReason::Internal => row(500, "internal", "the proxy could not handle this request"),
        }
    }
}

/// Turns a request away from a filter, where the client keeps its connection.
pub async fn refuse(session: &mut Session, ctx: &mut Ctx, reason: FailReason) -> Result<bool> {
    if matches!(reason, FailReason::Refused(fault) if fault.closes) {
        session.set_keepalive(None);
    }
    ctx.failed = Some(reason);
    if reason == FailReason::ClientLeft {
        return Err(client_left());
    }
    // It may have waited for long.
    ctx.connection.set_last(session);
    let row = reason.row();
    count(ctx, &row);
    write(session, ctx, &row).await?;
    Ok(true)
}

/// Of the answer that the client has, or has a part of.
pub fn answer(session: &Session) -> Option<StatusCode> {
    session.response_written().map(|response| response.status).filter(|status| !is_interim(*status))
}

/// Not yet the answer.
pub fn is_interim(status: StatusCode) -> bool {
    status.is_informational() && status != StatusCode::SWITCHING_PROTOCOLS
}

/// For [`failed`], from where nobody reads but us.
pub fn client_left() -> Box<Error> {
    Error::explain(ErrorType::ReadError, "the client left while it waited").into_down()
}

/// The last word on a request that failed. Pingora closes the client's connection after it.
pub async fn failed(session: &mut Session, error: &Error, ctx: &mut Ctx) -> FailToProxy {
    if ctx.connection.is_cut() {
        // Its connection takes nothing any more.
        http10::broke_off(session, &ctx.connection);
        ctx.failed = Some(FailReason::Drained);
        return FailToProxy { error_code: 0, can_reuse_downstream: false };
    }
    let reason = ctx.failed.unwrap_or_else(|| unexplained(error));
    ctx.failed = Some(reason);
    let row = reason.row();
    let client_is_gone =
        reason == FailReason::ClientLeft || error.esource() == &ErrorSource::Downstream && is_gone(session, ctx, error);
    if client_is_gone {
        ctx.failed = Some(FailReason::ClientLeft);
        return FailToProxy { error_code: 0, can_reuse_downstream: false };
    }
    if reason.is_ours() {
        http10::broke_off(session, &ctx.connection);
    }
    if answer(session).is_none() {
        count(ctx, &row);
        session.set_keepalive(None);
        // A client that cannot be told has left: there is no one to tell that either.
        let _ = write(session, ctx, &row).await;
    }
    FailToProxy { error_code: row.status, can_reuse_downstream: false }
}

/// Whether the client cannot be told of `error`, which is its own. One that ended its side in the middle of its body may still be;
/// streams of HTTP/2 end otherwise.
pub fn is_gone(session: &Session, ctx: &Ctx, error: &Error) -> bool {
    match error.etype() {
        // A stream of HTTP/2 that its client ends is such an error.
        ErrorType::WriteError | ErrorType::ReadError | ErrorType::H2Error => true,
        ErrorType::ConnectionClosed => {
            ctx.connection.wire.is_whole() || session.req_header().version > Version::HTTP_11
        }
        _ => false,
    }
}

fn unexplained(error: &Error) -> FailReason {
    match error.esource() {
        ErrorSource::Downstream => FailReason::BadRequest,
        ErrorSource::Upstream => FailReason::Failed,
        _ => FailReason::Internal,
    }
}

fn count(ctx: &Ctx, row: &Row) {
    let Some(rejected) = row.rejected else { return };
    let listener = &ctx.connection.listener;
    let metrics = ctx.route.as_ref().map_or(&listener.unrouted, |route| &route.metrics[listener.index]);
    match rejected {
        Rejected::BadRequest => event::refused(&listener.metrics, metrics, row.message, Instant::now()),
        rejected => metrics.rejected(rejected),
    }
}

pub async fn fixed(session: &mut Session, answer: &Respond) -> Result<bool> {
    let mut response = head(answer.status, answer.body.len(), "text/plain; charset=utf-8")?;
    if answer.body.is_empty() {
        response.remove_header(&header::CONTENT_TYPE);
    }
    send(session, response, Bytes::from(answer.body.clone())).await
}

pub async fn redirect(session: &mut Session, redirect: &Redirect) -> Result<bool> {
    let uri = &session.req_header().uri;
    let location = redirect.location(uri.path(), uri.query());
    let mut response = head(redirect.status, 0, "text/plain")?;
    response.remove_header(&header::CONTENT_TYPE);
    response.insert_header(header::LOCATION, location)?;
    send(session, response, Bytes::new()).await
}

async fn write(session: &mut Session, ctx: &mut Ctx, row: &Row) -> Result<bool> {
    ctx.stop_clock();
    let id = request_id(session, ctx);
    if grpc::is_grpc(session.req_header()) {
        return send(session, grpc::head(row.status, row.message, id)?, Bytes::new()).await;
    }
    let shown = id.to_str().unwrap_or("-");
    let accept = session.req_header().headers.get(header::ACCEPT);
    let json = accept.and_then(|accept| accept.to_str().ok()).is_some_and(|accept| accept.contains("json"));
    let (body, kind) = if json {
        let body = serde_json::json!({
            "status": row.status, "error": row.word, "message": row.message, "request_id": shown,
        });
        (format!("{body}\n"), "application/json")
    } else {
        (format!("{} {} (request {shown})\n", row.status, row.message), "text/plain; charset=utf-8")
    };
    let mut response = head(row.status, body.len(), kind)?;
    response.insert_header(header::CACHE_CONTROL, "no-store")?;
    response.insert_header(REQUEST_ID, id)?;
    if let Some((name, value)) = &row.header {
        response.insert_header(name, *value)?;
    }
    send(session, response, Bytes::from(body)).await
}

fn head(status: u16, length: usize, kind: &'static str) -> Result<ResponseHeader> {
    let mut response = ResponseHeader::build(status, Some(6))?;
    response.insert_header(header::CONTENT_TYPE, kind)?;
    if !matches!(status, 204 | 304) {
        response.insert_header(header::CONTENT_LENGTH, length)?;
    }
    Ok(response)
}

/// Writes an answer of our own, and takes in what the client still sends: closing on it would reset the connection,
/// and the answer with it. Whoever asked whether to send it has the answer to that; HTTP/2 closes the stream alone.
async fn send(session: &mut Session, response: ResponseHeader, body: Bytes) -> Result<bool> {
    let request = session.req_header();
    let drained = request.version < Version::HTTP_2 && !request.headers.contains_key(header::EXPECT);
    if drained {
        session.set_close_on_response_before_downstream_finish(false);
        session.set_total_drain_timeout(Some(DRAINED_WITHIN));
    }
    let silent = session.req_header().method == http::Method::HEAD
        || body.is_empty()
        || matches!(response.status.as_u16(), 204 | 304);
    write_head(session, response, silent).await?;
    if !silent {
        session.write_response_body(Some(body), true).await?;
    }
    if drained && session.as_downstream_mut().drain_request_body().await.is_err() {
        session.set_keepalive(None);
    }
    Ok(true)
}

/// Pingora's session loses `end`, without which a stream of HTTP/2 is not whole.
async fn write_head(session: &mut Session, response: ResponseHeader, end: bool) -> Result<()> {
    let response = Box::new(response);
    match session.as_downstream_mut() {
        ServerSession::H2(stream) if end => stream.write_response_header(response, true),
        ServerSession::Custom(stream) if end => stream.write_response_header(response, true).await,
        _ => session.write_response_header(response, end).await,
    }
}
