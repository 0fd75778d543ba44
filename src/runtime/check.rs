use super::Upstream;
use crate::health::Thresholds;
use crate::health::active::ProbeKind;
use crate::model::Dice;
use std::sync::Arc;
use std::time::Duration;

/// The active check of a cluster.
pub struct CheckPlan {
    pub kind: Box<dyn ProbeKind>,
    /// [`ProbeKind::signature`] of each member.
    pub(super) signatures: Vec<Arc<str>>,
    pub pace: Pace,
    pub thresholds: Thresholds,
}

impl CheckPlan {
    /// With the signatures of its probes.
    pub(super) fn signed(mut self, upstreams: &[Upstream]) -> Self {
        self.signatures = upstreams.iter().map(|upstream| self.kind.signature(&upstream.probed).into()).collect();
        self
    }
}

/// When to probe.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pace {
    pub interval: Duration,
    /// Instead of it, while a destination is out.
    pub interval_when_unhealthy: Duration,
    pub timeout: Duration,
    /// Share of the interval, 0–1, by which each pause varies either way.
    pub jitter: f64,
}

impl Pace {
    /// From the start of one probe to the start of the next, of a destination that is out or not.
    pub fn interval(&self, out: bool) -> Duration {
        if out { self.interval_when_unhealthy } else { self.interval }
    }

    /// An interval, up to the jitter's share of it more or less.
    pub fn varied(&self, interval: Duration, dice: &mut Dice) -> Duration {
        interval.mul_f64(1.0 + self.jitter * (2.0 * dice.f64() - 1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_a_jitter_when_an_interval_varies_then_within_its_share_and_not_always_the_same() {
        let (ten, mut dice) = (Duration::from_secs(10), Dice::with_seed(1));
        let pace = |jitter| Pace { interval: ten, interval_when_unhealthy: ten, timeout: ten, jitter };
        let varied: Vec<f64> = (0..1000).map(|_| pace(0.1).varied(ten, &mut dice).as_secs_f64()).collect();
        assert!(varied.iter().all(|varied| (9.0..=11.0).contains(varied)));
        assert!(varied.iter().any(|v| *v < 9.2) && varied.iter().any(|v| *v > 10.8));
        assert_eq!(pace(0.0).varied(ten, &mut dice), ten);
    }
}
