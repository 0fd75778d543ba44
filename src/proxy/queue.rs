//! Waiting, with an eye on the client: for a place while every destination is full, for a connection, and before another
//! attempt. A client that leaves meanwhile gives its place up at once.

use super::clock;
use super::conclude;
use super::ctx::Ctx;
use super::respond::FailReason;
use super::select::view;
use crate::balance::Tried;
use crate::config::Queue;
use crate::model::{Connected, Dice, Live, Waiting};
use crate::observe::QueueResult;
use crate::runtime::{Cluster, Drawn, NoDestination, draw};
use http::header;
use pingora::protocols::http::ServerSession;
use pingora::{Error, ErrorType, Result};
use pingora_proxy::Session;
use std::future::pending;
use std::sync::Arc;
use std::time::{Duration, Instant};
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

/// The first draw again and again, until there is a place.
pub async fn place(
    session: &mut Session,
    ctx: &mut Ctx,
    cluster: &Cluster,
    queue: Queue,
) -> Result<Drawn, FailReason> {
    let now = Instant::now();
    let Some(mut waiting) = cluster.line().join(queue.max) else {
        cluster.metrics.queue_full();
        return Err(FailReason::Overload);
    };
    let queued = cluster.metrics.queued(now);
    let until = ctx.before_deadline(now + queue.deadline);
    loop {
        match turn(session, &mut waiting, until).await {
            Waited::Turn => {}
            Waited::ClientLeft => return Err(FailReason::ClientLeft),
            Waited::Long => {
                queued.end(QueueResult::Deadline);
                let over = ctx.is_over(Instant::now());
                return Err(if over { FailReason::TimedOut } else { FailReason::Overload });
            }
        }
        // What was full then may not be now.
        ctx.tried = Tried::default();
        let request = view(session, &ctx.connection);
        match draw(cluster, request, &mut ctx.tried, Instant::now(), &mut Dice::new()) {
            Ok(drawn) => {
                queued.end(QueueResult::Served);
                return Ok(drawn);
            }
            Err(NoDestination::NoneAvailable) => {
                queued.end(QueueResult::NoDestination);
                return Err(FailReason::NoDestination);
            }
            Err(NoDestination::AllFull) => {}
        }
    }
}

/// The pause before an attempt, and then a connection for it where their number is limited. An error ends the attempt, or
/// goes on to another.
pub async fn attempt(session: &mut Session, ctx: &mut Ctx) -> Result<()> {
    ctx.set_clock_for_route();
    let Some(attempt) = &ctx.attempt else { return Ok(()) };
    let (wait, now) = (attempt.wait, Instant::now());
    if !wait.is_zero() {
        let until = ctx.before_deadline(now + wait);
        if pause(session, until).await == Waited::ClientLeft && !ctx.is_over(Instant::now()) {
            return Err(left());
        }
        if let Some(attempt) = &mut ctx.attempt {
            attempt.begin(Instant::now());
        }
    }
    if ctx.is_over(Instant::now()) {
        return Err(conclude::over_before(session, ctx));
    }
    connection(session, ctx).await
}

async fn connection(session: &mut Session, ctx: &mut Ctx) -> Result<()> {
    let Some(attempt) = &mut ctx.attempt else { return Ok(()) };
    let (cluster, member) = (attempt.cluster.clone(), attempt.member.clone());
    let free = || Some(member.live.connect(cluster.most_connections(&member)?).ok());
    if attempt.connection.is_some() || cluster.max_connections.is_none() {
        return Ok(());
    }
    if member.live.connecting.length() == 0
        && let Some(Some(connected)) = free()
    {
        attempt.connection = Some(connected);
        return Ok(());
    }
    let most = cluster.upstream(&member).connect_timeout();
    let most = attempt.time_to_head().map_or(most, |head| head.min(most));
    let until = ctx.before_deadline(Instant::now() + most);
    let live: Arc<Live> = member.live.clone();
    let Some(mut waiting) = live.connecting.join(u32::MAX) else {
        return Err(conclude::full(session, ctx));
    };
    let connected: Connected = loop {
        match turn(session, &mut waiting, until).await {
            Waited::Turn => {}
            Waited::ClientLeft if !ctx.is_over(Instant::now()) => return Err(left()),
            _ if ctx.is_over(Instant::now()) => return Err(conclude::over_before(session, ctx)),
            _ => return Err(conclude::full(session, ctx)),
        }
        if let Some(Some(connected)) = free() {
            break connected;
        }
    };
    if let Some(attempt) = &mut ctx.attempt {
        attempt.connection = Some(connected);
    }
    Ok(())
}
