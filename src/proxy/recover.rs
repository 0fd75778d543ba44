//! What follows the end of an attempt: the plan is asked, the next destination drawn, and either counted. Nothing is decided
//! here but how far the attempt came, which Pingora's errors tell.

use super::ctx::{Attempt, Ctx};
use super::respond::{FailReason, answer};
use super::{grpc, select};
use crate::health::active::{is_left_out, is_refused, is_unsent};
use crate::model::{Dice, Outcome};
use crate::retry::{ASKED_FOR, Ended, Plan, Sent, Verdict, Why};
use crate::runtime::{Cluster, Drawn};
use http::StatusCode;
use pingora::http::ResponseHeader;
use pingora::{Error, ErrorType};
use pingora_proxy::Session;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A status that another attempt is made for, on its way to Pingora's retry.
const STATUS: ErrorType = ErrorType::new("StatusTriedAgain");

/// How far an attempt came that broke on a connection, `reused` from the pool or not.
pub fn sent(session: &Session, attempt: &Attempt, error: &Error, outcome: Outcome, reused: bool) -> Sent {
    let is_write = matches!(error.etype(), ErrorType::WriteError | ErrorType::WriteTimedout);
    if attempt.outcome.is_some() || answer(session).is_some() {
        Sent::Answered
    } else if is_left_out(error) {
        Sent::LeftOut
    } else if is_refused(error) {
        Sent::Refused
    } else if !attempt.head_sent && (is_write || is_unsent(error)) {
        // The whole head goes out before anything else is written.
        if reused && !attempt.fresh { Sent::LeftOut } else { Sent::Nothing }
    } else if reused && !attempt.fresh && outcome == Outcome::Reset && !has_begun(error) {
        Sent::Closed
    } else {
        Sent::Head
    }
}

/// Whether bytes of an answer came, though no whole head: Pingora tells it in words alone.
fn has_begun(error: &Error) -> bool {
    const READ: &str = "bytes already read: ";
    let read = error.context.as_ref().and_then(|words| words.as_str().split_once(READ));
    read.is_some_and(|(_, bytes)| bytes != "0")
}

/// The rest before an attempt. Nobody's place is kept meanwhile, and who is to get it is drawn when it is over, by what is known
/// then; but the place that the request held anyway is its own, where there is no other.
pub struct Pause {
    pub until: Instant,
    cluster: Arc<Cluster>,
    plan: Plan,
    /// At a failover.
    over: bool,
    fresh: bool,
    own: Option<Drawn>,
    /// Of the attempt before.
    outcome: Outcome,
}

/// What follows an attempt.
enum Next {
    Now(Attempt),
    Later(Pause),
}

/// Whether the request goes on after an attempt that failed; then with the attempt of the context, or after its pause. `conclude`
/// ends one that does not go on itself.
pub fn after_failure(
    session: &mut Session,
    ctx: &mut Ctx,
    mut attempt: Attempt,
    (outcome, sent): (Outcome, Sent),
    conclude: impl FnOnce(&Session, &mut Ctx, Attempt),
) -> bool {
    let (now, mut dice) = (Instant::now(), Dice::new());
    let ended = Ended { outcome, sent, kept: kept(session) };
    let cluster = attempt.cluster.clone();
    let verdict = cluster.concluded(&mut attempt.plan, &ended, now, &mut dice);
    if let Verdict::Renew { fresh } = verdict {
        attempt.renew(fresh, now);
        ctx.attempt = Some(attempt);
        return true;
    }
    let before = Before { plan: attempt.plan.clone(), index: attempt.member.index, asks: Duration::ZERO, outcome };
    // Its place is free and its failure known before the next is drawn.
    conclude(session, ctx, attempt);
    match following(session, ctx, &cluster, before, verdict, &mut dice) {
        Ok(next) => {
            go_on(ctx, next);
            true
        }
        Err(why) => {
            denied(&cluster, why);
            false
        }
    }
}

/// What an attempt leaves to the next.
struct Before {
    plan: Plan,
    /// Its destination.
    index: usize,
    /// Before that one is asked again.
    asks: Duration,
    outcome: Outcome,
}

/// What follows by a verdict; `Err`: why nothing does.
fn following(
    session: &mut Session,
    ctx: &mut Ctx,
    cluster: &Arc<Cluster>,
    Before { plan, index, asks, outcome }: Before,
    verdict: Verdict,
    dice: &mut Dice,
) -> Result<Next, Why> {
    let (wait, fresh, over, why) = match verdict {
        Verdict::Stop(why) => return Err(why),
        Verdict::Renew { fresh } => (Duration::ZERO, fresh, false, Why::NoDestination),
        Verdict::Again { wait, fresh } => (wait, fresh, false, Why::NoDestination),
        Verdict::FailOver { wait, fresh, why } => (wait, fresh, true, why),
    };
    let passed_over = ctx.trail.clone();
    let (drawn, over) = drawn(session, ctx, cluster, (&plan, over), dice).ok_or(why)?;
    let same = drawn.member.index == index;
    // A failover that was not tried yet has nothing to rest from.
    let wait = match (same, over) {
        (true, _) => wait.max(asks),
        (false, true) => Duration::ZERO,
        (false, false) => wait,
    };
    if wait.is_zero() {
        let next = made(session, ctx, cluster, (drawn, over), plan, fresh).ok_or(Why::NoDestination)?;
        cluster.metrics.retried(outcome.index());
        return Ok(Next::Now(next));
    }
    let until = Instant::now() + wait;
    if ctx.is_over(until) {
        if !over {
            cluster.not_made();
        }
        return Err(Why::Timeout);
    }
    ctx.trail = passed_over;
    let own = same.then_some(drawn);
    Ok(Next::Later(Pause { until, cluster: cluster.clone(), plan, over, fresh, own, outcome }))
}

/// Who is to get another attempt, a failover where it is so said or no primary can be drawn, and whether it is one.
fn drawn(
    session: &mut Session,
    ctx: &mut Ctx,
    cluster: &Arc<Cluster>,
    (plan, over): (&Plan, bool),
    dice: &mut Dice,
) -> Option<(Drawn, bool)> {
    let drawn = select::again(session, ctx, cluster, over, dice);
    if drawn.is_some() || over {
        return drawn.map(|drawn| (drawn, over));
    }
    cluster.not_made();
    if !plan.fails_over() {
        return None;
    }
    select::again(session, ctx, cluster, true, dice).map(|drawn| (drawn, true))
}

fn made(
    session: &mut Session,
    ctx: &mut Ctx,
    cluster: &Arc<Cluster>,
    (drawn, over): (Drawn, bool),
    mut plan: Plan,
    fresh: bool,
) -> Option<Attempt> {
    if over {
        cluster.failed_over(&mut plan);
    }
    let mut attempt = select::attempt_at(session, ctx, cluster, drawn, plan)?;
    attempt.fresh |= fresh;
    Some(attempt)
}

/// The attempt before is over.
fn go_on(ctx: &mut Ctx, next: Next) {
    let before = match next {
        Next::Now(attempt) => ctx.attempt.replace(attempt),
        Next::Later(pause) => {
            ctx.pause = Some(pause);
            ctx.attempt.take()
        }
    };
    if let Some(before) = before {
        ctx.end(before);
    }
}

/// After the pause; `Err`: nobody is left to ask by then.
pub fn after_pause(session: &mut Session, ctx: &mut Ctx, pause: Pause) -> Result<(), Box<Error>> {
    let Pause { cluster, plan, over, fresh, own, outcome, .. } = pause;
    let found = match own {
        Some(own) => Some((own, over)),
        None => drawn(session, ctx, &cluster, (&plan, over), &mut Dice::new()),
    };
    match found.and_then(|found| made(session, ctx, &cluster, found, plan, fresh)) {
        Some(attempt) => {
            ctx.attempt = Some(attempt);
            cluster.metrics.retried(outcome.index());
            Ok(())
        }
        None => {
            denied(&cluster, Why::NoDestination);
            ctx.failed = Some(FailReason::of(outcome));
            Err(Error::explain(ErrorType::InternalError, "no destination is left for another attempt").into_in())
        }
    }
}

/// `Some` when the response is not passed on, for another attempt is made for its status; to be returned to Pingora.
pub fn after_status(session: &mut Session, response: &ResponseHeader, ctx: &mut Ctx) -> Option<Box<Error>> {
    let attempt = ctx.attempt.as_mut()?;
    let outcome = Outcome::Status(response.status.as_u16());
    let rule = attempt.cluster.retry.as_ref()?;
    let declined = || grpc::status(session.req_header(), response).is_some_and(|status| rule.on_grpc.contains(&status));
    let sent = match () {
        () if answer(session).is_some() => Sent::Answered,
        () if declined() => Sent::Declined,
        () if outcome.is_in(&rule.on) => Sent::Head,
        () => return None,
    };
    let (now, mut dice) = (Instant::now(), Dice::new());
    let ended = Ended { outcome, sent, kept: kept(session) };
    let cluster = attempt.cluster.clone();
    let verdict = cluster.concluded(&mut attempt.plan, &ended, now, &mut dice);
    let (plan, index) = (attempt.plan.clone(), attempt.member.index);
    let before = Before { plan, index, asks: asked_for(response), outcome };
    // Without another destination the response passes, so the attempt goes on until there is one.
    ctx.trail.at = Some(index);
    let next = following(session, ctx, &cluster, before, verdict, &mut dice);
    ctx.trail.at = None;
    let next = match next {
        Ok(next) => next,
        Err(why) => {
            denied(&cluster, why);
            return None;
        }
    };
    go_on(ctx, next);
    let mut error = Error::new_up(STATUS);
    error.set_retry(true);
    Some(error)
}

/// Whether it is [`after_status`]'s own.
pub fn is_status(error: &Error) -> bool {
    error.etype() == &STATUS
}

/// Bytes of the body that came so far, when all of them are kept.
fn kept(session: &Session) -> Option<u64> {
    let downstream = session.as_ref();
    (!downstream.retry_buffer_truncated()).then(|| downstream.get_retry_buffer().map_or(0, |kept| kept.len() as u64))
}

/// The seconds of `Retry-After`, when they are few.
fn asked_for(response: &ResponseHeader) -> Duration {
    let asks = matches!(response.status, StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS);
    let written = response.headers.get(http::header::RETRY_AFTER).filter(|_| asks);
    let seconds = written.and_then(|seconds| seconds.to_str().ok()?.trim().parse().ok()).map(Duration::from_secs);
    seconds.filter(|&seconds| seconds <= ASKED_FOR).unwrap_or_default()
}

fn denied(cluster: &Cluster, why: Why) {
    if let Some(reason) = why.index() {
        cluster.metrics.retry_denied(reason);
    }
}
