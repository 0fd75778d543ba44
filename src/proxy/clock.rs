//! How long a request and its attempts may take: the route's `timeout` and `retry.attempt_timeout`. Both are one
//! [`Alarm`](super::Alarm), set at each step to the next of their hours; without either there is none.
//!
//! The alarm is not heard while nobody reads from the client: while TLS is agreed on, or Pingora waits for a destination to take
//! more of a body, or for the client to take more of its answer. There Pingora's own timeouts are cut to what is left.
//! Not heard either is it by a client of HTTP/1 that has sent its next request already.

use super::ctx::{Attempt, Ctx};
use super::timed::timed;
use crate::runtime::{Cluster, Route};
use pingora::protocols::http::ServerSession;
use pingora::upstreams::peer::PeerOptions;
use pingora_proxy::Session;
use std::time::{Duration, Instant};

impl Ctx {
    /// The route's time is over.
    pub fn is_over(&self, now: Instant) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= now)
    }

    /// Whichever comes first.
    pub fn before_deadline(&self, until: Instant) -> Instant {
        self.deadline.map_or(until, |deadline| deadline.min(until))
    }

    /// No hour counts any more.
    pub fn stop_clock(&mut self) {
        self.deadline = None;
        if let Some(alarm) = &self.alarm {
            alarm.set(None);
        }
    }

    /// Before an attempt only the route's hour counts.
    pub fn set_clock_for_route(&self) {
        if let Some(alarm) = &self.alarm {
            alarm.set(self.deadline);
        }
    }

    /// From here the attempt's hour counts too.
    pub fn set_clock(&self) {
        if let Some(alarm) = &self.alarm {
            let head_due = self.attempt.as_ref().and_then(Attempt::head_due);
            alarm.set(head_due.into_iter().chain(self.deadline).min());
        }
    }
}

/// When the route's time is over.
pub fn start(ctx: &mut Ctx, route: &Route) {
    ctx.deadline = route.timeout.map(|timeout| ctx.begun + timeout);
}

/// Where time is limited, an alarm that Pingora hears.
pub fn wind(session: &mut Session, ctx: &mut Ctx, cluster: &Cluster) {
    let limits_attempts = cluster.retry.as_ref().is_some_and(|retry| retry.attempt_timeout.is_some());
    if ctx.deadline.is_some() || limits_attempts {
        let session = session.as_downstream_mut();
        ctx.alarm = match session {
            ServerSession::H1(_) => Some(ctx.connection.wire.alarm.clone()),
            _ => timed(session),
        };
    }
}

/// Pingora's timeouts of one attempt, cut to what is left.
pub fn limit(options: &mut PeerOptions, ctx: &Ctx, upgrade: bool, now: Instant) {
    // None may be zero.
    let left = ctx.deadline.map(|deadline| deadline.saturating_duration_since(now).max(Duration::from_millis(1)));
    let cut = |timeout: &mut Option<Duration>, limit: Option<Duration>| {
        *timeout = timeout.iter().copied().chain(limit).min();
    };
    let connecting = left.into_iter().chain(ctx.attempt.as_ref().and_then(Attempt::time_to_head)).min();
    cut(&mut options.connection_timeout, connecting);
    cut(&mut options.total_connection_timeout, connecting);
    if !upgrade {
        // They would go on in a tunnel.
        cut(&mut options.read_timeout, left);
        cut(&mut options.write_timeout, left);
    }
}
