//! The copy of a request that is mirrored. It is made when the request is whole, from what is kept of its body anyway, and
//! handed over; nothing is waited for, and what fails fails the copy alone. Neither an upgrade nor a copy is copied.

use super::ctx::Ctx;
use super::headers::{self, MIRROR, has_meaningless_body, is_websocket};
use super::select::view;
use crate::config::Spoken;
use crate::model::Dice;
use crate::observe::Mirrored;
use crate::runtime::{Answer, Cluster, Comparison, Mirror};
use crate::service::{Copied, Head, Mirrors};
use http::Method;
use pingora_proxy::Session;
use std::sync::Arc;
use std::time::Instant;

/// What a request keeps of its copy.
#[derive(Default)]
pub struct Copying {
    /// It was whole, and asked whether it is copied: once, however many attempts it has.
    asked: bool,
    comparison: Option<Arc<Comparison>>,
    /// Of the client's answer so far.
    length: u64,
}

/// The client's request is whole, and a destination gets it.
pub fn whole(session: &Session, ctx: &mut Ctx, mirrors: &Mirrors) {
    let Some(cluster) = ctx.attempt.as_ref().map(|attempt| attempt.cluster.clone()) else { return };
    let Some(mirror) = &cluster.mirror else { return };
    if std::mem::replace(&mut ctx.copying.asked, true) {
        return;
    }
    let request = session.req_header();
    let once = is_websocket(request) || request.method == Method::CONNECT || request.headers.contains_key(&MIRROR);
    if once || !mirror.next() {
        return;
    }
    match copied(session, ctx, &cluster, mirror) {
        Ok(copy) => {
            ctx.copying.comparison = copy.comparison.clone();
            mirrors.send(copy);
        }
        Err(result) => mirror.metrics.ended(result),
    }
}

/// Its body is copied last, when there is a place for it.
fn copied(session: &Session, ctx: &mut Ctx, cluster: &Arc<Cluster>, mirror: &Mirror) -> Result<Copied, Mirrored> {
    let downstream = session.as_ref();
    if downstream.retry_buffer_truncated() || downstream.body_bytes_read() > mirror.max_body {
        return Err(Mirrored::DroppedBody);
    }
    let begun = Instant::now();
    let place = mirror.place(begun)?;
    let request = view(session, &ctx.client);
    let target = mirror.target(cluster, &ctx.snapshot, request, begun, &mut Dice::new())?;
    let body = downstream.get_retry_buffer().unwrap_or_default();
    let upstream = target.cluster.upstream(&target.member);
    let head = headers::to_mirror(session, ctx, upstream, body.len());
    let head = head.and_then(|head| Head::of(&head)).map_err(|_| Mirrored::Failed)?;
    let idle = target.member.live.idle.time(upstream.idle_timeout(), begun);
    let alone = upstream.spoken != Spoken::Http2 && has_meaningless_body(session.req_header());
    Ok(Copied {
        peer: if alone { upstream.fresh() } else { upstream.pooled(idle) },
        head,
        target,
        body,
        place,
        comparison: mirror.comparison(),
        metrics: mirror.metrics.clone(),
        timeout: mirror.timeout,
        begun,
    })
}

/// So many bytes of the answer's body go down.
pub fn answers(ctx: &mut Ctx, bytes: usize) {
    ctx.copying.length += bytes as u64;
}

/// The request is over, and its answer went down as a whole.
pub fn answered(ctx: &mut Ctx, status: u16) {
    if let Some(comparison) = ctx.copying.comparison.take() {
        comparison.tell(Answer { status, length: ctx.copying.length });
    }
}
