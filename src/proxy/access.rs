//! What the access log says of a request: gathered when it is over, and only where there is such a log.

use super::ctx::{Ctx, Seen};
use super::headers::request_id;
use crate::model::Outcome;
use crate::observe::access_log::{Attempt, Ended, Entry};
use crate::service::AccessLog;
use http::{HeaderName, header};
use pingora_proxy::Session;
use std::time::SystemTime;

pub fn tell(session: &Session, status: u16, ctx: &mut Ctx, log: &AccessLog) {
    let id = request_id(session, ctx);
    let request = session.req_header();
    let field = |name: HeaderName| request.headers.get(name).map(|value| value.as_bytes());
    let authority = request.uri.authority().map(|authority| authority.as_str().as_bytes());
    let duration = ctx.begun.elapsed();
    let now = SystemTime::now();
    log.tell(&Entry {
        time: now.checked_sub(duration).unwrap_or(now),
        server: log.server(),
        listener: ctx.connection.listener.metrics.name(),
        client: ctx.connection.client_ip,
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
        attempts: ctx.seen.iter().flatten().map(attempt).collect(),
        failed: ctx.failed.map(|reason| reason.word()),
    });
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
