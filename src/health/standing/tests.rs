//! One destination on scripted time. YARP's own cases (its tests, retold) go through `mode: full`.

mod active;
mod beaten;
mod breaker;
mod half_open;
mod handed_over;
mod laws;
mod operator;
mod reload;
mod shown;
mod yarp;

use super::*;
use crate::config::Count;
use crate::health::passive::{ConsecutiveFailures, TransportFailureRate};
use crate::health::{Breaking, Reactivating, Threshold, replay};
use std::time::SystemTime;

pub(super) const COUNT: Count = Count { connect: true, timeout: true, reset: true, statuses: Vec::new() };

/// A destination, its clock, and all that was told.
pub(super) struct Case {
    standing: Standing,
    pub live: Arc<Live>,
    pub cap: Cap,
    pub now: Instant,
    start: Instant,
    route: Arc<str>,
    pub told: Vec<Change>,
}

pub(super) const HOW: Reactivating = Reactivating {
    period: Duration::from_secs(10),
    full: false,
    trial_requests: 1,
    multiplier: 2.0,
    max: Duration::from_secs(300),
    lifted_by_probe: true,
};

pub(super) fn passive(detectors: Vec<Arc<dyn PassivePolicy>>, how: Reactivating) -> Settings {
    let passive = Passive { count: COUNT, detectors, reactivation: Some(how) };
    Settings { passive: Some(passive), ..Settings::default() }
}

pub(super) fn rate(seconds: u64, minimum_requests: u32, failure_rate: f64) -> Arc<dyn PassivePolicy> {
    Arc::new(TransportFailureRate { window: Duration::from_secs(seconds), minimum_requests, failure_rate })
}

pub(super) fn in_a_row(failures: u32) -> Arc<dyn PassivePolicy> {
    Arc::new(ConsecutiveFailures { failures })
}

fn checked(healthy_after: u32, unhealthy_after: u32) -> Settings {
    Settings { active: Some(Thresholds { healthy_after, unhealthy_after }), ..Settings::default() }
}

fn breaking(threshold: Threshold) -> Breaking {
    let (window, sleep) = (Duration::from_secs(10), Duration::from_secs(5));
    Breaking { window, threshold, minimum_requests: 4, sleep, trial_requests: 1 }
}

impl Case {
    pub fn new(settings: Settings) -> Self {
        let (now, live, cap) = (Instant::now(), Arc::new(Live::default()), Cap::default());
        cap.set_limit(1);
        let epoch = Epoch { instant: now, wall: SystemTime::UNIX_EPOCH };
        let standing = Standing::new(Arc::new(settings), epoch, &live);
        Case { standing, live, cap, now, start: now, route: "all".into(), told: Vec::new() }
    }

    pub fn apply(&mut self, event: Event<'_>) -> Vec<Step> {
        let changes = self.standing.apply(event, &Around { live: &self.live, cap: &self.cap }, self.now);
        for change in &changes {
            let explanation = change.explanation.as_deref();
            if let Some(explanation) = explanation {
                assert_eq!(replay(explanation), Some(explanation.decision), "{explanation:?}");
            }
        }
        let steps = changes.iter().map(|change| change.step).collect();
        self.told.extend(changes);
        steps
    }

    /// An attempt begun and over now.
    pub fn attempt(&mut self, outcome: Outcome) -> Vec<Step> {
        let ticket = Ticket { epoch: self.live.epoch(), trial: false, panic: false };
        self.conclude(outcome, ticket)
    }

    pub fn conclude(&mut self, outcome: Outcome, ticket: Ticket) -> Vec<Step> {
        let (begun, route, latency) = (self.now, self.route.clone(), Duration::from_millis(1));
        self.apply(Event::Outcome(Attempted { outcome, ticket, begun, route: &route, attempt: 1, latency }))
    }

    /// A request on trial.
    fn trial(&mut self, outcome: Outcome) -> Vec<Step> {
        let lease = self.live.lease_on_trial(None).expect("a place");
        self.conclude(outcome, lease.ticket())
    }

    pub fn probe(&mut self, passed: bool) -> Vec<Step> {
        let cause = if passed { "200" } else { "503" }.to_string();
        self.apply(Event::Probe { passed, cause, begun: self.now })
    }

    pub fn order(&mut self, order: Order, seconds: Option<u64>) -> Vec<Step> {
        let lasts = seconds.map(Duration::from_secs);
        self.apply(Event::Operator { order, lasts, by: "127.0.0.1".into() })
    }

    pub fn wait(&mut self, ms: u64) -> Vec<Step> {
        self.now += Duration::from_millis(ms);
        self.apply(Event::Due)
    }

    pub fn state(&self) -> State {
        self.standing.state(&self.live)
    }

    pub fn out(&self) -> bool {
        !self.live.marks.is_empty()
    }

    fn due(&self) -> Option<u64> {
        self.standing.next_due(&self.live).map(|due| (due - self.start).as_secs())
    }

    pub fn last(&self) -> &Explanation {
        self.told.last().and_then(|change| change.explanation.as_deref()).expect("an explanation")
    }
}

const OK: Outcome = Outcome::Status(200);
const BAD: Outcome = Outcome::Refused;
