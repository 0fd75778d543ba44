//! Active checks: their thresholds, their patience, their ports.

use super::{Case, Found, Judge, Rule};
use crate::config::{ActiveCheck, HttpAddress, Problems, show_duration};

pub const EQUAL_THRESHOLDS: Rule = Rule {
    id: "equal-thresholds",
    what: "`unhealthy_after` and `healthy_after` are equal",
    judge: Judge::Cluster(|case| {
        let places = &case.written.places;
        let (unhealthy, healthy) = ("health.active.unhealthy_after", "health.active.healthy_after");
        let meant = places.written(unhealthy).is_some() && places.written(healthy).is_some();
        let equal = case.written.health.active.as_ref().map(|check| (check.unhealthy_after, check.healthy_after));
        let equal = equal.filter(|(out, back)| out == back && (meant || *out > 1));
        let found = |(n, _)| Found {
            at: places.spot_of(if places.written(healthy).is_some() { healthy } else { unhealthy }),
            message: format!(
                "{n} in a row take a destination out and {n} bring it back: one on the edge goes in and out"
            ),
            fix: "different numbers, as the defaults are: `unhealthy_after: 2` and `healthy_after: 1`".to_owned(),
        };
        equal.map(found).into_iter().collect()
    }),
};

pub const IMPATIENT_REQUESTS: Rule = Rule {
    id: "impatient-requests",
    what: "`activity_timeout` is under the timeout of the active check, and a `timeout` counts as a failure",
    judge: Judge::Cluster(|case| {
        let health = &case.written.health;
        let by_passive = case.ejecting().is_some_and(|passive| passive.count.timeout);
        let by_breaker = health.breaker.as_ref().is_some_and(|breaker| breaker.count.timeout);
        let patience = case.written.activity_timeout;
        let check = health.active.as_ref().filter(|check| patience < check.timeout && (by_passive || by_breaker));
        let found = |check: &ActiveCheck| {
            let places = &case.written.places;
            let (own, probes) = ("request.activity_timeout", "health.active.timeout");
            let (patience, timeout) = (show_duration(patience), show_duration(check.timeout));
            Found {
                at: places.written(own).cloned().unwrap_or_else(|| places.spot_of(probes)),
                message: format!(
                    "requests give up after {patience} and count that as a failure, probes wait for {timeout}: what the \
                     probes find well is taken out by requests"
                ),
                fix: format!("an active check's `timeout` of at most {patience}, or no `timeout` in `count`"),
            }
        };
        check.map(found).into_iter().collect()
    }),
};

pub const SAME_PORT: Rule = Rule {
    id: "same-port",
    what: "a probe is sent to the port that it would go to anyway",
    judge: Judge::Cluster(|case| {
        let message =
            |port| format!("probes go to port {port} anyway: this says nothing, and is wrong as soon as that changes");
        let own = case.written.destinations.iter().filter_map(|destination| {
            let health = destination.health_address.as_ref()?;
            let [of, to] = [&destination.address, health].map(|url| HttpAddress::parse(&url.value).ok());
            let (of, to) = (of?, to?);
            let same =
                of.authority() == to.authority() && of.path.trim_end_matches('/') == to.path.trim_end_matches('/');
            let at = health.at.clone();
            (same && of.tls == to.tls).then(|| Found {
                at,
                message: message(to.port),
                fix: "leave `health_address` out".to_owned(),
            })
        });
        let port = probe_port(case).filter(|port| {
            let destinations = || case.built.members.iter().map(|member| &member.destination);
            let probed =
                |port: &u16| destinations().all(|it| it.health_endpoint.as_ref().unwrap_or(&it.endpoint).port == *port);
            probed(port)
        });
        let at = case.written.places.spot_of("health.active.port");
        own.chain(port.map(|port| Found { at, message: message(port), fix: "leave `port` out".to_owned() })).collect()
    }),
};

/// `port` of the kind's own keys.
fn probe_port(case: &Case<'_>) -> Option<u16> {
    let check = case.written.health.active.as_ref()?;
    let mut problems = Problems::default();
    let port = check.kind.params(&mut problems).integer("port", 1..=65_535)?;
    u16::try_from(port).ok()
}
