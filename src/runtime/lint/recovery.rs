//! How what was ejected comes back, or does not.

use super::{Found, Judge, Rule};
use crate::config::{Mode, Passive, show_duration};

pub const NO_JUDGE: Rule = Rule {
    id: "no-judge",
    what: "no active check, no breaker, and detectors that eject nobody: a dead destination keeps its share",
    judge: Judge::Cluster(|case| {
        let fires = |passive: &Passive| passive.detectors.len() > case.silent_detectors();
        let health = &case.written.health;
        let judged = health.active.is_some() || health.breaker.is_some() || case.ejecting().is_some_and(fires);
        let found = || Found {
            at: case.written.places.spot_of("health.passive"),
            message: "nobody judges its destinations: one that is dead keeps its share of the requests".to_owned(),
            fix: "leave `passive` out, or add an active check".to_owned(),
        };
        (!judged).then(found).into_iter().collect()
    }),
};

pub const NO_RECOVERY: Rule = Rule {
    id: "no-recovery",
    what: "the only destination can be ejected and nothing brings it back: `reactivation: off` and no active check",
    judge: Judge::Cluster(|case| {
        let found = |_| Found {
            at: case.written.places.spot_of("health.passive.reactivation"),
            message: match case.written.health.available.name.value.as_str() {
                "HealthyAndUnknown" => "the only destination may be ejected and stays out: then all is 503, for ever",
                _ => "the only destination may be ejected and stays out: then it serves in panic at best, for ever",
            }
            .to_owned(),
            fix: "leave `reactivation` out, add an active check, or set `max_ejected: 0`".to_owned(),
        };
        case.ejecting()
            .filter(|passive| passive.reactivation.is_none() && case.written.health.active.is_none())
            .filter(|_| case.enabled() == 1)
            .map(found)
            .into_iter()
            .collect()
    }),
};

pub const NO_REACTIVATION: Rule = Rule {
    id: "no-reactivation",
    what: "`reactivation: off`: what was ejected stays out until a probe passes, or for good without an active check",
    judge: Judge::Cluster(|case| {
        let found = |_| Found {
            at: case.written.places.spot_of("health.passive.reactivation"),
            message: match case.written.health.active {
                None => "what was ejected stays out until somebody brings it back, and one after the other goes",
                Some(_) => "what was ejected stays out until a probe passes, whatever requests would prove",
            }
            .to_owned(),
            fix: "leave `reactivation` out".to_owned(),
        };
        case.ejecting()
            .filter(|passive| passive.reactivation.is_none())
            .filter(|_| case.enabled() != 1 || case.written.health.active.is_some())
            .map(found)
            .into_iter()
            .collect()
    }),
};

pub const PASSIVE_WITHOUT_ACTIVE: Rule = Rule {
    id: "passive-without-active",
    what: "`passive` is written and there is no active check",
    judge: Judge::Cluster(|case| {
        let found = |passive: &Passive| Found {
            at: passive.at.clone(),
            message: "whether an ejected destination is well again is tried with requests of users".to_owned(),
            fix: "add an active check, such as `active: { type: http, path: /health }`".to_owned(),
        };
        let tried = case.ejecting().filter(|passive| passive.written && passive.reactivation.is_some());
        tried.filter(|_| case.written.health.active.is_none()).map(found).into_iter().collect()
    }),
};

pub const PERIOD_UNDER_WINDOW: Rule = Rule {
    id: "period-under-window",
    what: "`mode: full` with a period under the longest window",
    judge: Judge::Cluster(|case| {
        let found = || {
            let passive = case.ejecting()?;
            let reactivation = passive.reactivation.as_ref().filter(|reactivation| reactivation.mode == Mode::Full)?;
            let (period, window) = (reactivation.period, case.built.settings.passive.as_ref()?.longest_window());
            (period < window).then(|| {
                let (period, window) = (show_duration(period), show_duration(window));
                Found {
                    at: case.written.places.spot_of("health.passive.reactivation.mode"),
                    message: format!(
                        "`full` waits until the longest window is over: the period of {period} is raised to {window}"
                    ),
                    fix: format!("`mode: half_open`, or `period: {window}`"),
                }
            })
        };
        found().into_iter().collect()
    }),
};
