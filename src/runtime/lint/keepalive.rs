//! Idle connections: of two ends the one that sends requests must be the first to close. We send to destinations; a
//! balancer in front sends to us.

use super::{Case, Found, Judge, Rule};
use crate::config::{Spoken, show_duration};
use crate::model::Member;
use http::Method;
use std::sync::Arc;
use std::time::Duration;

/// As long as nearly all servers keep one at most, and as long as nearly all balancers do at least.
const MINUTE: Duration = Duration::from_secs(60);
/// The shortest time that is common: of Node, Apache and Uvicorn.
const SHORTEST: Duration = Duration::from_secs(5);

pub const LONG_IDLE: Rule = Rule {
    id: "long-idle",
    what: "`connection.idle_timeout` is over a minute, and what is not sent twice goes over HTTP/1: few servers keep an \
           idle connection for longer",
    judge: Judge::Cluster(|case| {
        let idle = case.written.connection.idle_timeout;
        let found = |method: Method| {
            Found {
            at: case.written.places.spot_of("connection.idle_timeout"),
            message: format!(
                "idle connections are kept for {}, few servers keep one for over a minute, and a {method} that meets one \
                 being closed is lost",
                show_duration(idle)
            ),
            fix: "less than the destinations' own keep-alive time: `idle_timeout: 4s` for the 5s of Node, 60s for the 75s \
                  of nginx"
                .to_owned(),
        }
        };
        case.lost_once().filter(|_| idle > MINUTE).map(found).into_iter().collect()
    }),
};

pub const BALANCER_CLOSES_LATER: Rule = Rule {
    id: "balancer-closes-later",
    what: "`limits.idle_timeout` of a listener is 60s or less, and `trusted_proxies` tells of a balancer in front, whose own \
           time is longer as a rule",
    judge: Judge::File(|config| {
        let listeners = config.listeners.iter().filter(|listener| {
            !config.trusted_proxies.is_empty() && listener.protocols.http1 && listener.idle_timeout.value <= MINUTE
        });
        let found = |idle: Duration| {
            format!(
                "a connection is closed after {} without a request, and balancers keep theirs for 60s and longer: what \
                 they send over one being closed is lost",
                show_duration(idle)
            )
        };
        let fix = "more than the balancer's: the default of 75s for the 60s of AWS's and of nginx, 620s for the 600s of \
                   Google's";
        listeners
            .map(|listener| Found {
                at: listener.idle_timeout.at.clone(),
                message: found(listener.idle_timeout.value),
                fix: fix.to_owned(),
            })
            .collect()
    }),
};

/// What the destinations of a cluster must do, where it matters.
pub fn told(case: &Case<'_>) -> Option<String> {
    let idle = case.written.connection.idle_timeout;
    let method = case.lost_once().filter(|_| idle >= SHORTEST)?;
    let idle = show_duration(idle);
    Some(format!("destinations must keep idle connections for longer than {idle}, or a {method} may be lost"))
}

impl Case<'_> {
    /// A method whose request is lost when the connection of HTTP/1 that it goes over is being closed; others are sent again.
    fn lost_once(&self) -> Option<Method> {
        let http1 = |member: &Arc<Member>| self.built.upstream(member).spoken == Spoken::Http11;
        if !self.built.members.iter().any(http1) {
            return None;
        }
        let rule = self.written.retry.as_ref().filter(|rule| rule.attempts > 1 && rule.on.reset);
        let again = |method: &Method| method.is_idempotent() || rule.is_some_and(|rule| rule.methods.contains(method));
        let any = [Method::POST, Method::PATCH];
        let mut methods = self.routes.iter().flat_map(|route| match &route.matches.methods[..] {
            [] => &any,
            written => written,
        });
        methods.find(|method| !again(method)).cloned()
    }
}
