//! What is tried again, and for how long.

use super::worst::waits;
use super::{Case, Found, Judge, Rule};
use crate::config::{Retry, show_duration};
use std::time::Duration;

/// A client that waits longer than that is rare.
const PATIENCE: Duration = Duration::from_secs(60);

pub const UNSAFE_METHODS: Rule = Rule {
    id: "unsafe-retry",
    what: "a method in `retry.methods` that is not idempotent, such as POST",
    judge: Judge::Cluster(|case| {
        let Some(rule) = retrying(case) else { return Vec::new() };
        let found = |method: &http::Method| Found {
            at: case.written.places.spot_of("retry.methods"),
            message: format!("what a {method} does may be done twice: an attempt that failed may have arrived"),
            fix: format!("leave {method} out; what was never sent is tried again whatever its method"),
        };
        // gRPC knows no other method, whatever a call does.
        let is_probed = case.written.health.active.as_ref().is_some_and(|check| check.kind.name.value == "grpc");
        let is_grpc = is_probed || !rule.on_grpc.is_empty();
        let first = rule.methods.iter().find(|method| !method.is_idempotent());
        first.filter(|_| !is_grpc).map(found).into_iter().collect()
    }),
};

pub const NO_BUDGET: Rule = Rule {
    id: "no-retry-budget",
    what: "`retry.budget` of nothing: no request is tried again",
    judge: Judge::Cluster(|case| {
        let found = |_| Found {
            at: case.written.places.spot_of("retry.budget"),
            message: "a budget without percent and floor allows no retry".to_owned(),
            fix: "leave `budget` out, or say `retry: off`".to_owned(),
        };
        let spent = |rule: &&Retry| rule.budget.percent == 0.0 && rule.budget.floor == 0;
        retrying(case).filter(spent).map(found).into_iter().collect()
    }),
};

pub const TIMEOUTS_ADD_UP: Rule = Rule {
    id: "timeouts-add-up",
    what: "`timeout` in `retry.on` without `retry.attempt_timeout`: over a minute may pass before the last attempt begins",
    judge: Judge::Cluster(|case| {
        let found = |rule: &Retry| {
            let each = case.written.activity_timeout;
            let last = before_last(rule, each);
            (last > PATIENCE).then(|| Found {
                at: case.written.places.spot_of("retry.on"),
                message: format!(
                    "each attempt that times out lasts for {} (activity_timeout): the last may begin after {}",
                    show_duration(each),
                    show_duration(last)
                ),
                fix: "add `attempt_timeout: 5s`, or as much as a good answer takes at most".to_owned(),
            })
        };
        let unbounded = |rule: &&Retry| rule.on.timeout && rule.attempt_timeout.is_none();
        retrying(case).filter(unbounded).and_then(found).into_iter().collect()
    }),
};

pub const LATE_RETRIES: Rule = Rule {
    id: "late-retries",
    what: "the last attempt may begin when a minute, or the route's `timeout`, is over",
    judge: Judge::Cluster(|case| {
        let found = |rule: &Retry| {
            let connect = case.written.connection.connect_timeout;
            let each = match rule.attempt_timeout {
                Some(timeout) if rule.on.timeout => timeout,
                Some(timeout) => timeout.min(connect),
                None => connect,
            };
            let last = before_last(rule, each);
            let cuts = case.routes.iter().filter_map(|route| Some((route.timeout?, &route.name.value)));
            let why = match cuts.min().filter(|(timeout, _)| *timeout <= last && rule.attempt_timeout.is_some()) {
                Some((timeout, route)) => format!("route {route} ends after {}", show_duration(timeout)),
                None if last > PATIENCE => "few clients wait for that".to_owned(),
                None => return None,
            };
            Some(Found {
                at: case.written.places.spot_of("retry.attempts"),
                message: format!("the last attempt may begin only after {}: {why}", show_duration(last)),
                fix: "fewer attempts, or a shorter `attempt_timeout` or `connect_timeout`".to_owned(),
            })
        };
        retrying(case).filter(|rule| rule.on.connect || rule.on.timeout).and_then(found).into_iter().collect()
    }),
};

/// How it is tried again, where it is.
fn retrying<'a>(case: &Case<'a>) -> Option<&'a Retry> {
    case.written.retry.as_ref().filter(|rule| rule.attempts > 1)
}

/// When the last attempt begins, when each before lasts for `each`.
fn before_last(rule: &Retry, each: Duration) -> Duration {
    each * u32::from(rule.attempts - 1) + waits(rule, rule.attempts, (0, 1))
}
