//! What a faultless configuration says and had better not: rules that know the antipatterns, one file a family, one row in
//! [`RULES`] each. A warning changes nothing; `check` tells it, and `check --strict` fails on it. Beside them what
//! can be told beforehand of how the configuration will act: [`outlook`].
//!
//! Only what is certain is a warning: a rule that would have to guess what the operator meant stays silent.

mod balancing;
mod keepalive;
mod outlook;
mod probes;
mod recovery;
mod retrying;
mod worst;

pub use outlook::outlook;

use super::{Cluster, Snapshot};
use crate::config::{self, Config, Limit, Passive, Spot};
use std::fmt;

/// A rule that was broken.
#[derive(Debug, Clone)]
pub struct Warning {
    /// One of [`RULES`].
    pub id: &'static str,
    pub at: Spot,
    /// What stands there, and what comes of it.
    pub message: String,
    pub fix: String,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Warning { id, message, fix, .. } = self;
        write!(f, "warning[{id}]: {message}; fix: {fix}")
    }
}

/// A row of the table of rules.
pub struct Rule {
    pub id: &'static str,
    /// What it warns of.
    pub what: &'static str,
    judge: Judge,
}

/// By what it looks at.
enum Judge {
    Cluster(fn(&Case<'_>) -> Vec<Found>),
    File(fn(&Config) -> Vec<Found>),
}

pub const RULES: &[Rule] = &[
    recovery::NO_JUDGE,
    recovery::NO_RECOVERY,
    recovery::NO_REACTIVATION,
    recovery::PASSIVE_WITHOUT_ACTIVE,
    recovery::PERIOD_UNDER_WINDOW,
    probes::EQUAL_THRESHOLDS,
    probes::IMPATIENT_REQUESTS,
    probes::SAME_PORT,
    retrying::UNSAFE_METHODS,
    retrying::NO_BUDGET,
    retrying::TIMEOUTS_ADD_UP,
    retrying::LATE_RETRIES,
    balancing::SLOW_START_IGNORED,
    keepalive::LONG_IDLE,
    keepalive::BALANCER_CLOSES_LATER,
];

/// What is wrong, in the order of the file; `snapshot` is what `config` was compiled into.
pub fn lint(config: &Config, snapshot: &Snapshot) -> Vec<Warning> {
    let cases: Vec<Case<'_>> =
        config.clusters.iter().filter_map(|written| Case::of(config, snapshot, written)).collect();
    let judged = |rule: &Rule| -> Vec<Warning> {
        let found: Vec<Found> = match rule.judge {
            Judge::Cluster(judge) => cases.iter().flat_map(judge).collect(),
            Judge::File(judge) => judge(config),
        };
        found.into_iter().map(|Found { at, message, fix }| Warning { id: rule.id, at, message, fix }).collect()
    };
    let mut warnings: Vec<Warning> = RULES.iter().flat_map(judged).collect();
    warnings.sort_by(|a, b| (&a.at.file, a.at.line, a.at.column).cmp(&(&b.at.file, b.at.line, b.at.column)));
    warnings
}

/// What a rule looks at: a cluster as written, what was built of it, and who leads there.
struct Case<'a> {
    written: &'a config::Cluster,
    built: &'a Cluster,
    routes: Vec<&'a config::Route>,
}

fn routes_to<'a>(config: &'a Config, cluster: &'a config::Cluster) -> impl Iterator<Item = &'a config::Route> {
    config.routes.iter().filter(|route| route.action.leads_to(&cluster.name.value))
}

struct Found {
    at: Spot,
    message: String,
    fix: String,
}

impl<'a> Case<'a> {
    fn of(config: &'a Config, snapshot: &'a Snapshot, written: &'a config::Cluster) -> Option<Self> {
        let built = snapshot.cluster(&written.name.value)?;
        Some(Case { written, built, routes: routes_to(config, written).collect() })
    }

    fn enabled(&self) -> usize {
        self.built.members.iter().filter(|member| member.destination.enabled).count()
    }

    /// Detectors that fire at no number of failures in a row.
    fn silent_detectors(&self) -> usize {
        let detectors = self.built.settings.passive.iter().flat_map(|passive| &passive.detectors);
        detectors.filter(|detector| detector.window().is_zero() && detector.bound().is_none()).count()
    }

    /// The passive judge, where it can eject anything.
    fn ejecting(&self) -> Option<&'a Passive> {
        ejecting(self.written)
    }
}

fn ejecting(cluster: &config::Cluster) -> Option<&Passive> {
    cluster.health.passive.as_ref().filter(|passive| passive.max_ejected != Limit::Number(0))
}

#[cfg(test)]
mod tests;
