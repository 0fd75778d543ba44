//! What is told of a request: gathered when it is over, where there is an access log or the request went wrong.

use super::ctx::{Ctx, Seen};
use super::headers::request_id;
use crate::model::Outcome;
use crate::observe::Recent;
use crate::observe::access_log::{Attempt, Ended, Entry};
use crate::service::AccessLog;
use http::{HeaderName, header};
use pingora_proxy::Session;
use std::time::SystemTime;

/// Whom it concerns is told.
pub fn tell(session: &Session, status: u16, ctx: &mut Ctx, log: Option<&AccessLog>, recent: &Recent) {
    let went_wrong = ctx.went_wrong();
    if log.is_none() && !went_wrong {
        return;
    }
    let id = request_id(session, ctx);
    let request = session.req_header();
    let field = |name: HeaderName| request.headers.get(name).map(|value| value.as_bytes());
    let authority = request.uri.authority().map(|authority| authority.as_str().as_bytes());
    let duration = ctx.begun.elapsed();
    let now = SystemTime::now();
    let entry = Entry {
        time: now.checked_sub(duration).unwrap_or(now),
        server: recent.server(),
        listener: ctx.connection.listener.metrics.name(),
        client: ctx.client.ip,
        method: request.method.as_str(),
        host: authority.or_else(|| field(header::HOST)),
        path: request.raw_path(),
        protocol: request.version,
        status,
        bytes_in: session.body_bytes_read() as u64,
        bytes_out: session.body_bytes_sent() as u64,
        duration,
        route: ctx.route.as_ref().map(|route| &*route.name),
        cluster: ctx.cluster.as_ref().map(|cluster| &*cluster.name),
        request_id: id.as_bytes(),
        user_agent: field(header::USER_AGENT),
        referer: field(header::REFERER),
        attempts: ctx.seen.iter().map(attempt).collect(),
        affinity: ctx.bound.as_ref().and_then(|bound| bound.result()).map(|result| result.as_str()),
        failed: ctx.failed.map(|reason| reason.word()),
    };
    if let Some(log) = log {
        log.tell(&entry);
    }
    if went_wrong {
        recent.keep(&entry);
    }
}

fn attempt(seen: &Seen) -> Attempt<'_> {
    let destination = &seen.member.destination;
    Attempt {
        destination: &destination.id,
        address: destination.endpoint.socket,
        outcome: match seen.outcome {
            Outcome::Status(status) => Ended::Status(status),
            outcome => Ended::Word(outcome.as_str()),
        },
        connect: seen.connect,
        waited: seen.waited,
        reused: seen.reused,
    }
}
