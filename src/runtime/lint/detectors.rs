//! What the detectors of a configuration promise, as far as their parameters tell.

use crate::config::{Passive, Policy, Problems, Section};
use std::time::Duration;

/// One detector as written, its defaults filled in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detector {
    /// So many failures in a row fire it, whatever came before.
    InARow(u32),
    /// It looks at a share, of so many outcomes at least, within a window.
    Rate { window: Duration, minimum: u32 },
}

/// Those that are known; of one that a program added nothing is.
pub fn detectors(passive: &Passive) -> Vec<Detector> {
    passive.detectors.iter().filter_map(detector).collect()
}

fn detector(policy: &Policy) -> Option<Detector> {
    let mut problems = Problems::default();
    let mut params = policy.params(&mut problems);
    let number = |params: &mut Section<'_>, key, default| {
        params.integer(key, 0..=u64::MAX).and_then(|number| u32::try_from(number).ok()).unwrap_or(default)
    };
    match policy.name.value.as_str() {
        "ConsecutiveFailures" => Some(number(&mut params, "failures", 5)).filter(|n| *n > 0).map(Detector::InARow),
        "TransportFailureRate" => {
            let window = params.duration("window", Duration::ZERO..=Duration::MAX);
            let minimum = number(&mut params, "minimum_requests", 10);
            Some(Detector::Rate { window: window.unwrap_or(Duration::from_secs(60)), minimum })
        }
        _ => None,
    }
}

/// The longest window of all.
pub fn longest_window(passive: &Passive) -> Duration {
    let window = |detector| match detector {
        Detector::Rate { window, .. } => window,
        Detector::InARow(_) => Duration::ZERO,
    };
    detectors(passive).into_iter().map(window).max().unwrap_or_default()
}
