//! Waiting, with an eye on the client: for a place while every destination is full, for a connection, and before another
//! attempt. A client that leaves meanwhile gives its place up at once.

use super::conclude;
use super::ctx::Ctx;
use super::recover;
use super::respond::{FailReason, client_left};
use super::select::{Begun, began, view};
use crate::config::Queue;
use crate::model::{Dice, Member, Waiting};
use crate::observe::QueueResult;
use crate::runtime::{self, Cluster, First, Lost, NoDestination, Trail};
use http::header;
use pingora::protocols::http::ServerSession;
use pingora::{Error, ErrorType, Result};
use pingora_proxy::Session;
use std::future::pending;
use std::sync::Arc;
use std::time::Instant;
use tokio::time::sleep_until;

/// A body up to this is taken in while its client waits: Pingora keeps as much, to send it again.
const TAKEN: u64 = 64 * 1024;

/// What a wait came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Waited {
    Turn,
    Long,
    ClientLeft,
}

/// The first draw again and again, of whoever serves by then, until there is a place. A session that only its own destination will
/// do for waits in the line of that one: in the others' it would keep back all who need not wait for it. `None`: a reload did away
/// with what it waited for.
pub async fn place(
    session: &mut Session,
    ctx: &mut Ctx,
    cluster: &Arc<Cluster>,
    First { session: bound, mut arm, .. }: First,
    queue: Queue,
) -> Result<Option<Begun>, FailReason> {
    let now = Instant::now();
    let own = own(cluster, bound);
    let line = own.map_or(cluster.line(), |member| &member.live.bound);
    let Some(mut waiting) = line.join(queue.max) else {
        cluster.metrics.queue_full();
        return Err(FailReason::Overload);
    };
    let queued = cluster.metrics.queued(now);
    let until = ctx.before_deadline(now + queue.deadline);
    loop {
        match turn(session, Some(&mut waiting), until).await {
            Waited::Turn => {}
            Waited::ClientLeft => return Err(FailReason::ClientLeft),
            Waited::Long => {
                queued.end(QueueResult::Deadline);
                let over = ctx.is_over(Instant::now());
                return Err(if over { FailReason::TimedOut } else { FailReason::Overload });
            }
        }
        let Some(serving) = cluster.serving() else {
            queued.end(QueueResult::NoDestination);
            return Ok(None);
        };
        // What was full then may not be now.
        ctx.trail = Trail::default();
        let (request, now) = (view(session, &ctx.client), Instant::now());
        let first = runtime::first(&serving, arm, request, &mut ctx.trail, now, &mut Dice::new());
        arm = first.arm;
        let result = match first.drawn {
            Ok(_) => QueueResult::Served,
            Err(NoDestination::NoneAvailable | NoDestination::SessionLost) => QueueResult::NoDestination,
            Err(NoDestination::AllFull) if is_there(own, &serving) => continue,
            Err(NoDestination::AllFull) => {
                queued.end(QueueResult::NoDestination);
                return Ok(None);
            }
        };
        queued.end(result);
        return began(ctx, &serving, first, now).map(Some);
    }
}

/// The destination that alone will do.
fn own(cluster: &Cluster, bound: Option<runtime::Session>) -> Option<&Arc<Member>> {
    match bound {
        Some(runtime::Session::Refused(Lost::Full(index))) => cluster.members.get(index),
        _ => None,
    }
}

/// Where a line is of one destination: it is not left alone there.
fn is_there(own: Option<&Arc<Member>>, serving: &Cluster) -> bool {
    own.is_none_or(|own| serving.members.iter().any(|member| Arc::ptr_eq(&member.live, &own.live)))
}

/// The pause before an attempt, and then a connection for it where their number is limited. An error ends the attempt, or
/// goes on to another.
pub async fn attempt(session: &mut Session, ctx: &mut Ctx) -> Result<()> {
    ctx.set_clock_for_route();
    if let Some(pause) = ctx.pause.take() {
        let waited = turn(session, None, ctx.before_deadline(pause.until)).await;
        goes_on(session, ctx, waited)?;
        recover::after_pause(session, ctx, pause)?;
    }
    goes_on(session, ctx, Waited::Turn)?;
    connection(session, ctx).await
}

async fn connection(session: &mut Session, ctx: &mut Ctx) -> Result<()> {
    let Some(attempt) = ctx.attempt.as_mut().filter(|attempt| attempt.connection.is_none()) else { return Ok(()) };
    if attempt.cluster.max_connections.is_none() {
        return Ok(());
    }
    let (cluster, member) = (attempt.cluster.clone(), attempt.member.clone());
    let connect = || cluster.most_connected(&member).and_then(|most| member.live.connect(most).ok());
    let line = &member.live.connecting;
    // Whoever waits came before.
    if line.length() == 0 {
        attempt.connection = connect();
    }
    if attempt.connection.is_some() {
        return Ok(());
    }
    let most = cluster.upstream(&member).connect_timeout();
    let most = attempt.time_to_head().map_or(most, |head| head.min(most));
    let until = ctx.before_deadline(Instant::now() + most);
    let Some(mut waiting) = line.join(u32::MAX) else { return Err(conclude::full(session, ctx)) };
    loop {
        let waited = turn(session, Some(&mut waiting), until).await;
        goes_on(session, ctx, waited)?;
        if waited == Waited::Long {
            return Err(conclude::full(session, ctx));
        }
        if let (Some(attempt), Some(connected)) = (&mut ctx.attempt, connect()) {
            attempt.connection = Some(connected);
            return Ok(());
        }
    }
}

/// Unless the client has left, or the route's time is over.
fn goes_on(session: &Session, ctx: &mut Ctx, waited: Waited) -> Result<()> {
    if ctx.is_over(Instant::now()) {
        return Err(conclude::over_before(session, ctx));
    }
    if waited == Waited::ClientLeft { Err(client_left()) } else { Ok(()) }
}

/// Waits for a turn, where there is something to wait for, up to `until`.
async fn turn(session: &mut Session, waiting: Option<&mut Waiting<'_>>, until: Instant) -> Waited {
    let turn = async {
        match waiting {
            Some(waiting) => waiting.turn().await,
            None => pending().await,
        }
    };
    tokio::select! {
        biased;
        () = sleep_until(until.into()) => Waited::Long,
        () = turn => Waited::Turn,
        _ = ended(session.as_downstream_mut(), || ()) => Waited::ClientLeft,
    }
}

/// Comes back when the client has gone. Of HTTP/1 that is seen only behind what it sends: a short body is taken in, and kept
/// as for another attempt; behind a longer one, or one of unknown length, nothing is seen. `whole` is told when nothing more of the
/// request is to come.
pub async fn ended(client: &mut ServerSession, whole: impl FnOnce()) -> Box<Error> {
    if matches!(client, ServerSession::H1(_)) && !client.is_body_done() {
        let length = client.req_header().headers.get(header::CONTENT_LENGTH);
        let length = length.and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
        if length.is_none_or(|length| length > TAKEN) {
            return pending().await;
        }
        client.enable_retry_buffering();
        while !client.is_body_done() {
            match client.read_request_body().await {
                // Told by whoever needs the body.
                Err(error) if error.etype() == &ErrorType::ReadTimedout => {}
                Err(error) => return error,
                Ok(_) => {}
            }
        }
    }
    whole();
    loop {
        if let Err(error) = client.read_body_or_idle(true).await {
            return error;
        }
    }
}
