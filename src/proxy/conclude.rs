//! What came of an attempt, and of the request: Pingora's errors translated, counted and told, exactly once each.

use super::ctx::{Attempt, Ctx};
use super::headers::request_id;
use super::respond::FailReason;
use crate::health::active::{is_unprocessed, outcome_of, words_of};
use crate::model::Outcome;
use crate::observe::event;
use http::StatusCode;
use pingora::http::ResponseHeader;
use pingora::protocols::Digest;
use pingora::{Error, ErrorSource, ErrorType};
use pingora_proxy::Session;
use std::time::{Duration, Instant};

/// nginx's word for a client that left before it was answered; seen in metrics and logs only.
const CLIENT_CLOSED_REQUEST: u16 = 499;

pub fn connected(reused: bool, digest: Option<&Digest>, ctx: &Ctx) {
    let Some(attempt) = &ctx.attempt else { return };
    let metrics = &attempt.cluster.metrics;
    if reused {
        return metrics.reused();
    }
    let layers = digest.map_or(&[][..], |digest| &digest.timing_digest);
    let took: Duration = layers.iter().flatten().filter_map(|layer| layer.establishment_duration).sum();
    metrics.connected(took.as_secs_f64());
}

/// The client's request was whole.
pub fn sent(ctx: &mut Ctx) {
    if let Some(attempt) = &mut ctx.attempt {
        attempt.sent.get_or_insert_with(Instant::now);
    }
}

/// A response head came; 1xx but 101 are not yet the answer.
pub fn answered(session: &Session, response: &ResponseHeader, ctx: &mut Ctx) {
    let status = response.status;
    if status.is_informational() && status != StatusCode::SWITCHING_PROTOCOLS {
        return;
    }
    if status == StatusCode::SWITCHING_PROTOCOLS {
        // What the client says in a tunnel ends with its side.
        ctx.connection.wire.set_whole(false);
    }
    let (Some(attempt), Some(route)) = (&mut ctx.attempt, &ctx.route) else { return };
    attempt.outcome = Some(Outcome::Status(status.as_u16()));
    let now = Instant::now();
    attempt.cluster.metrics.header(now.saturating_duration_since(attempt.begun).as_secs_f64());
    let waited = attempt.wait(now);
    attempt.waited = Some(waited);
    let member = &attempt.member;
    attempt.cluster.answered(member, status.as_u16(), waited, now);
    event::forwarding(event::Forwarding {
        route: &route.metrics[ctx.connection.listener.index],
        destination: attempt.cluster.destination_metrics(member),
        available: attempt.available,
        url: format_args!("{}{}", member.destination.endpoint, route.forwarded_path(session.req_header().uri.path())),
        asked: attempt.cluster.upstream(member).asked(),
        received: response.version,
    });
    if status == StatusCode::SWITCHING_PROTOCOLS {
        attempt.conclude_trial(now);
    }
}

/// A piece of the answer's body came.
pub fn goes_on(ctx: &mut Ctx) {
    if let Some(attempt) = &mut ctx.attempt {
        attempt.goes_on();
    }
}

/// Connecting failed: nothing was sent. A pooled HTTP/2 connection that takes no stream any more is left for another.
pub fn not_connected(session: &Session, ctx: &mut Ctx, mut error: Box<Error>) -> Box<Error> {
    error.set_retry(false);
    if let Some(mut attempt) = ctx.attempt.take() {
        if error.etype() == &ErrorType::H2Error && attempt.again(false) {
            ctx.attempt = Some(attempt);
            error.set_retry(true);
            return error;
        }
        let outcome = outcome_of(&error);
        ctx.failed = Some(FailReason::of(outcome));
        failed(session, ctx, attempt, outcome, &error);
    }
    error
}

/// The attempt broke after it was connected. Two ends are no failure of the request, and it has another round at the same
/// destination while nothing was answered: an HTTP/2 stream that the destination refused unprocessed, whatever the method,
/// and a pooled connection closed in the meantime, where the request may be repeated.
pub fn broken(session: &mut Session, ctx: &mut Ctx, mut error: Box<Error>, reused: bool) -> Box<Error> {
    let unprocessed = is_unprocessed(&error);
    error.set_retry(false);
    let Some(mut attempt) = ctx.attempt.take() else { return error };
    // Both sides' clocks run while a body is awaited, and the destination's may be the first to ring.
    let stalled = error.etype() == &ErrorType::ReadTimedout && !session.as_downstream_mut().is_body_done();
    if stalled || error.esource() == &ErrorSource::Downstream {
        // The client's doing. A status that was seen stays what came of the attempt.
        ctx.failed = Some(if stalled { FailReason::ClientTimedOut } else { FailReason::BadRequest });
        return error;
    }
    let outcome = outcome_of(&error);
    let unanswered = attempt.outcome.is_none() && session.response_written().is_none();
    if unanswered && !session.as_ref().retry_buffer_truncated() {
        let closed = reused && outcome == Outcome::Reset && session.req_header().method.is_idempotent();
        // Pingora replays a body before it listens, so that a second refusal would look like a failure.
        let replays = session.as_ref().get_retry_buffer().is_some();
        if (unprocessed && attempt.again(replays)) || (closed && !attempt.fresh && attempt.once_more()) {
            ctx.attempt = Some(attempt);
            error.set_retry(true);
            return error;
        }
    }
    ctx.failed = Some(FailReason::of(outcome));
    failed(session, ctx, attempt, outcome, &error);
    error
}

/// Of a path, what a log line shows.
const SHOWN: usize = 100;

/// The attempt's end, with what leads from the log to the client's answer and back.
fn failed(session: &Session, ctx: &mut Ctx, mut attempt: Attempt, outcome: Outcome, error: &Error) {
    let id = request_id(session, ctx);
    let request = session.req_header();
    let path: String = request.uri.path().chars().take(SHOWN).collect();
    let route = ctx.route.as_ref().map_or("none", |route| &*route.name);
    attempt.outcome = Some(outcome);
    attempt.detail = format!(
        "{} (route {route}, {} {path}, request {})",
        words_of(error),
        request.method,
        id.to_str().unwrap_or("-")
    );
}

/// The request is over.
pub fn finished(session: &Session, error: Option<&Error>, ctx: &mut Ctx) {
    ctx.attempt = None;
    let written = session.response_written().map(|response| response.status.as_u16());
    let status = match written {
        Some(status) => status,
        None if error.is_some() => CLIENT_CLOSED_REQUEST,
        None => return,
    };
    let listener = &ctx.connection.listener;
    let metrics = ctx.route.as_ref().map_or(&listener.unrouted, |route| &route.metrics[listener.index]);
    metrics.request(
        &session.req_header().method,
        status,
        ctx.begun.elapsed().as_secs_f64(),
        session.body_bytes_read() as u64,
        session.body_bytes_sent() as u64,
    );
}
