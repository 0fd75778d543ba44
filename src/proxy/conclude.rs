//! What came of an attempt, and of the request: Pingora's errors translated, counted and told, exactly once each.

use super::ctx::{Attempt, Ctx};
use super::dial::{self, Came};
use super::headers::request_id;
use super::keepalive;
use super::recover;
use super::respond::{FailReason, answer, is_gone, is_interim};
use crate::health::active::{outcome_of, words_of};
use crate::model::Outcome;
use crate::observe::event;
use crate::retry::Sent;
use http::StatusCode;
use pingora::http::ResponseHeader;
use pingora::protocols::Digest;
use pingora::{Error, ErrorSource, ErrorType};
use pingora_proxy::Session;
use std::time::{Duration, Instant};

/// nginx's word for a client that left before it was answered; seen in metrics and logs only.
pub const CLIENT_CLOSED_REQUEST: u16 = 499;

pub fn connected(reused: bool, digest: Option<&Digest>, ctx: &mut Ctx) {
    let Some(attempt) = &mut ctx.attempt else { return };
    let metrics = &attempt.cluster.metrics;
    attempt.reused = Some(reused);
    if reused {
        metrics.reused();
        return ctx.set_clock();
    }
    let layers = digest.map_or(&[][..], |digest| &digest.timing_digest);
    let took: Duration = layers.iter().flatten().filter_map(|layer| layer.establishment_duration).sum();
    metrics.connected(took.as_secs_f64());
    attempt.connect = Some(took);
    ctx.set_clock();
}

/// The head is out, and some of the body is to follow, or its `end`: then the client's request was whole.
pub fn sending(ctx: &mut Ctx, end: bool) {
    if let Some(attempt) = &mut ctx.attempt {
        attempt.head_sent = true;
        if end {
            attempt.sent.get_or_insert_with(Instant::now);
            ctx.set_clock();
        }
    }
}

/// A response head came.
pub fn answered(session: &Session, response: &ResponseHeader, ctx: &mut Ctx) {
    let status = response.status;
    if is_interim(status) {
        return;
    }
    if status == StatusCode::SWITCHING_PROTOCOLS {
        // What the client says in a tunnel ends with its side.
        ctx.connection.wire.set_whole(false);
        ctx.stop_clock();
        ctx.tunnel = Some(ctx.connection.listener.metrics.tunnel_opened());
    }
    let (Some(attempt), Some(route)) = (&mut ctx.attempt, &ctx.route) else { return };
    attempt.outcome = Some(Outcome::Status(status.as_u16()));
    let now = Instant::now();
    attempt.cluster.metrics.header(now.saturating_duration_since(attempt.begun).as_secs_f64());
    let waited = attempt.wait(now);
    attempt.waited = Some(waited);
    keepalive::said(attempt, response, now);
    attempt.piece = Some(now);
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
    ctx.set_clock();
}

/// A piece of the answer's body came.
pub fn goes_on(ctx: &mut Ctx) {
    if let Some(attempt) = &mut ctx.attempt {
        attempt.goes_on();
        if ctx.deadline.is_some() {
            attempt.piece = Some(Instant::now());
        }
    }
}

/// Connecting failed: nothing was sent. A pooled HTTP/2 connection that takes no stream any more is left for another.
pub fn not_connected(session: &mut Session, ctx: &mut Ctx, mut error: Box<Error>) -> Box<Error> {
    let client_ended = match dial::failed(session, ctx, &error) {
        Came::Again => {
            error.set_retry(true);
            return error;
        }
        Came::ClientEnded(ended) => Some(ended),
        Came::Failed => None,
    };
    let sent = if error.etype() == &ErrorType::H2Error { Sent::LeftOut } else { Sent::Nothing };
    error.set_retry(false);
    let Some(attempt) = ctx.attempt.take() else { return error };
    if let Some(ended) = client_ended.filter(|_| !ctx.is_over(Instant::now())) {
        // Pingora takes every error of this place for the destination's.
        let gone = is_gone(session, ctx, &ended);
        ctx.failed = Some(if gone { FailReason::ClientLeft } else { FailReason::BadRequest });
        ctx.end(attempt);
        return error;
    }
    attempt.cluster.not_connected(&attempt.member);
    if ctx.is_over(Instant::now()) {
        return over(session, ctx, attempt);
    }
    let again = ended(session, ctx, attempt, (outcome_of(&error), sent), &words_of(&error));
    error.set_retry(again);
    error
}

/// The attempt broke after it was connected.
pub fn broken(session: &mut Session, ctx: &mut Ctx, mut error: Box<Error>, reused: bool) -> Box<Error> {
    if recover::is_status(&error) {
        return error;
    }
    error.set_retry(false);
    let Some(mut attempt) = ctx.attempt.take() else { return error };
    let now = Instant::now();
    let from_client = error.esource() == &ErrorSource::Downstream;
    if ctx.is_over(now) {
        let client_is_slow = from_client && matches!(error.etype(), ErrorType::WriteError | ErrorType::WriteTimedout);
        attempt.to_blame = attempt.sent.is_some() && !client_is_slow && attempt.is_silent(now);
        return over(session, ctx, attempt);
    }
    if from_client && attempt.head_due().is_some_and(|due| due <= now) {
        let words = "no head of an answer in time";
        let mut error = Error::explain(ErrorType::ReadTimedout, words).into_up();
        let again = ended(session, ctx, attempt, (Outcome::ReadTimeout, Sent::Head), words);
        error.set_retry(again);
        return error;
    }
    // Both sides' clocks run while a body is awaited, and the destination's may be the first to ring.
    let stalled = error.etype() == &ErrorType::ReadTimedout && !session.as_downstream_mut().is_body_done();
    if stalled || from_client {
        // The client's doing. A status that was seen stays what came of the attempt.
        ctx.failed = Some(if stalled { FailReason::ClientTimedOut } else { FailReason::BadRequest });
        ctx.end(attempt);
        return error;
    }
    let outcome = outcome_of(&error);
    let sent = recover::sent(session, &attempt, &error, outcome, reused);
    if reused && outcome == Outcome::Reset && matches!(sent, Sent::Closed | Sent::LeftOut) {
        keepalive::closed(&attempt, Instant::now());
    }
    let again = ended(session, ctx, attempt, (outcome, sent), &words_of(&error));
    error.set_retry(again);
    error
}

/// The route's time is over. Whatever the attempt died of then is not looked at.
fn over(session: &Session, ctx: &mut Ctx, attempt: Attempt) -> Box<Error> {
    let words = "the route's timeout is over";
    failed(session, ctx, attempt, Outcome::RouteTimeout, words);
    ctx.failed = Some(FailReason::TimedOut);
    Error::explain(ErrorType::InternalError, words).into_in()
}

/// As [`over`], before the attempt was sent anywhere, or in the pause before it: nobody's failure.
pub fn over_before(session: &Session, ctx: &mut Ctx) -> Box<Error> {
    match ctx.attempt.take() {
        Some(attempt) => over(session, ctx, attempt),
        None => {
            ctx.failed = Some(FailReason::TimedOut);
            Error::explain(ErrorType::InternalError, "the route's timeout is over").into_in()
        }
    }
}

/// The attempt found no connection that it may use.
pub fn full(session: &mut Session, ctx: &mut Ctx) -> Box<Error> {
    let words = "max_connections are in use";
    let mut error = Error::explain(ErrorType::InternalError, words).into_in();
    let attempt = ctx.attempt.take();
    let end = (Outcome::Overload, Sent::Nothing);
    let again = attempt.is_some_and(|attempt| ended(session, ctx, attempt, end, words));
    error.set_retry(again);
    error
}

/// Whether the request goes on after an attempt that failed.
fn ended(session: &mut Session, ctx: &mut Ctx, attempt: Attempt, end: (Outcome, Sent), words: &str) -> bool {
    let again = recover::after_failure(session, ctx, attempt, end, |session, ctx, attempt| {
        failed(session, ctx, attempt, end.0, words);
    });
    ctx.failed = (!again).then(|| FailReason::of(end.0));
    again
}

/// Of a path, what a log line shows.
const SHOWN: usize = 100;

/// The attempt's end, with what leads from the log to the client's answer and back.
fn failed(session: &Session, ctx: &mut Ctx, mut attempt: Attempt, outcome: Outcome, words: &str) {
    let id = request_id(session, ctx);
    let request = session.req_header();
    let path: String = request.uri.path().chars().take(SHOWN).collect();
    let route = ctx.route.as_ref().map_or("none", |route| &*route.name);
    attempt.outcome = Some(outcome);
    attempt.detail =
        format!("{words} (route {route}, {} {path}, request {})", request.method, id.to_str().unwrap_or("-"));
    ctx.end(attempt);
}

/// The request is over, by this status.
pub fn finished(session: &Session, error: Option<&Error>, ctx: &mut Ctx) -> Option<u16> {
    if let Some(attempt) = ctx.attempt.take() {
        ctx.finish(attempt);
    }
    ctx.stop_clock();
    let status = match answer(session) {
        Some(status) => status.as_u16(),
        None if error.is_some() => CLIENT_CLOSED_REQUEST,
        None => return None,
    };
    if let Some(bound) = &ctx.bound {
        bound.count();
    }
    let listener = &ctx.connection.listener;
    let metrics = ctx.route.as_ref().map_or(&listener.unrouted, |route| &route.metrics[listener.index]);
    metrics.request(
        &session.req_header().method,
        status,
        ctx.begun.elapsed().as_secs_f64(),
        session.body_bytes_read() as u64,
        session.body_bytes_sent() as u64,
    );
    Some(status)
}
