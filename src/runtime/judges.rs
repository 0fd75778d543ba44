//! What the configuration says of health, as the judges' settings.

use super::Registry;
use crate::config::{self, Initial, Limit, Mode, Problems, Role};
use crate::health::{Breaking, Passive, Reactivating, Settings, Threshold, Thresholds, share_of};
use crate::model::Member;
use std::sync::Arc;

pub(super) fn settings(cluster: &config::Cluster, registry: &Registry, problems: &mut Problems) -> Arc<Settings> {
    let health = &cluster.health;
    let thresholds = |check: &config::ActiveCheck| Thresholds {
        healthy_after: check.healthy_after,
        unhealthy_after: check.unhealthy_after,
    };
    Arc::new(Settings {
        active: health.active.as_ref().map(thresholds),
        probe_first: health.initial == Initial::ProbeFirst,
        passive: health.passive.as_ref().map(|passive| self::passive(passive, registry, problems)),
        breaker: health.breaker.as_ref().map(|breaker| (breaker.count.clone(), breaking(breaker))),
        slow_start: cluster.slow_start,
    })
}

/// For each role `max_ejected` of its enabled members; without detectors none.
pub(super) fn most_ejected(cluster: &config::Cluster, members: &[Arc<Member>]) -> [u32; Role::ALL.len()] {
    let enabled = |role| members.iter().filter(|member| member.destination.enabled && member.is(role)).count() as u32;
    Role::ALL.map(|role| match cluster.health.passive.as_ref().map(|passive| passive.max_ejected) {
        Some(Limit::Share(share)) => share_of(enabled(role), share),
        Some(Limit::Number(number)) => number,
        None => 0,
    })
}

fn passive(passive: &config::Passive, registry: &Registry, problems: &mut Problems) -> Passive {
    let detectors = passive.detectors.iter().filter_map(|policy| registry.detector(policy, problems));
    Passive {
        count: passive.count.clone(),
        detectors: detectors.map(Arc::from).collect(),
        reactivation: passive.reactivation.as_ref().map(|how| Reactivating {
            period: how.period,
            full: how.mode == Mode::Full,
            trial_requests: how.trial_requests,
            multiplier: how.multiplier,
            max: how.max,
            lifted_by_probe: how.lifted_by_probe,
        }),
    }
}

fn breaking(breaker: &config::Breaker) -> Breaking {
    Breaking {
        window: breaker.window,
        threshold: match breaker.threshold {
            Limit::Share(share) => Threshold::Share(share),
            Limit::Number(number) => Threshold::Number(number),
        },
        minimum_requests: breaker.minimum_requests,
        sleep: breaker.sleep,
        trial_requests: breaker.trial_requests,
    }
}
