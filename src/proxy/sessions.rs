//! A request's session on its way: the key is kept from destinations that are not to see it and written on the answer that
//! binds. An answer of our own binds nobody: it never comes by here.

use super::ctx::Ctx;
use crate::affinity::Answer;
use crate::observe::{Affinity, event};
use crate::runtime::{Cluster, Lost, Session};
use http::{StatusCode, header};
use pingora::Result;
use pingora::http::{RequestHeader, ResponseHeader};
use std::fmt;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

/// Of a request to a cluster that binds sessions.
pub struct Bound {
    cluster: Arc<Cluster>,
    session: Session,
    /// What became of it so far.
    result: Option<Affinity>,
}

impl Bound {
    /// What the first draw made of the key is told, where it leads nowhere; `goes_on`: there is another destination.
    pub fn new(cluster: &Arc<Cluster>, session: Session, goes_on: bool, now: Instant) -> Self {
        let result = match session {
            Session::Kept(_) => Some(Affinity::Hit),
            Session::Refused(lost) => {
                told(cluster, lost, cluster.refuses_by(), now);
                Some(Affinity::Refused)
            }
            Session::Lost(lost) => {
                if goes_on {
                    told(cluster, lost, "Redistribute", now);
                }
                None
            }
            Session::New => None,
        };
        Bound { cluster: cluster.clone(), session, result }
    }

    pub fn result(&self) -> Option<Affinity> {
        self.result
    }

    /// The request is not to leave its session's destination.
    pub fn stays(&self) -> bool {
        matches!(self.session, Session::Kept(_)) && self.cluster.binds_strictly()
    }

    /// Takes the key out of what a destination gets, unless it may see it.
    pub fn withhold(&self, request: &mut RequestHeader) -> Result<()> {
        let sessions = self.cluster.sessions.as_ref().filter(|sessions| !sessions.forward);
        match sessions.and_then(|sessions| sessions.policy.withhold(&request.headers)) {
            Some((name, Some(rest))) => request.insert_header(name, rest)?,
            Some((name, None)) => drop(request.remove_header(&name)),
            None => {}
        }
        Ok(())
    }

    /// The request is over.
    pub fn count(&self) {
        if let Some(result) = self.result {
            self.cluster.metrics.affinity(result);
        }
    }
}

fn told(cluster: &Cluster, lost: Lost, failure: &str, now: Instant) {
    let id = |index: usize| cluster.members.get(index).map_or("", |member| member.destination.id.as_str());
    let tell = |why: fmt::Arguments<'_>| event::session_lost(&cluster.metrics, why, failure, now);
    match lost {
        Lost::Unknown => tell(format_args!("it is none's")),
        Lost::Unreadable => tell(format_args!("it cannot be read")),
        Lost::Unavailable(index) => tell(format_args!("{} is not available", id(index))),
        Lost::Full(index) => tell(format_args!("{} is full", id(index))),
        Lost::Resting(index) => tell(format_args!("{} is a canary in its cool-down", id(index))),
    }
}

/// Writes the key of the destination that answered, unless the client has it.
pub fn bind(response: &mut ResponseHeader, ctx: &mut Ctx) -> Result<()> {
    let (Some(attempt), Some(bound)) = (&ctx.attempt, &mut ctx.bound) else { return Ok(()) };
    let Some(sessions) = &attempt.cluster.sessions else { return Ok(()) };
    if response.status.is_informational() && response.status != StatusCode::SWITCHING_PROTOCOLS {
        return Ok(());
    }
    let index = attempt.member.index;
    let stays = bound.session == Session::Kept(index);
    if stays && !sessions.sliding {
        return Ok(());
    }
    let answer = Answer { secure: ctx.client.secure, now: SystemTime::now() };
    let Some((name, value)) = sessions.policy.remember(index, &answer) else { return Ok(()) };
    if !stays {
        bound.result = Some(if bound.session == Session::New { Affinity::New } else { Affinity::Rebound });
    }
    match name == header::SET_COOKIE {
        // Beside the destination's own.
        true => response.append_header(name, value).map(drop),
        false => response.insert_header(name, value),
    }
}
