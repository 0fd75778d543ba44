use super::Upstream;
use crate::balance::{Balancer, Picker};
use crate::health::active::ProbeKind;
use crate::health::available::AvailablePolicy;
use crate::health::{Event, Standing, State, Thresholds};
use crate::model::{Member, Outcome};
use crate::observe::{ClusterMetrics, DestinationMetrics, Destinations, event};
use arc_swap::ArcSwap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// Named destinations and their policies. Immutable but for what health publishes.
pub struct Cluster {
    pub name: String,
    /// In the configuration's order; [`Member::index`] is the position here and in the lists beside it.
    pub members: Vec<Arc<Member>>,
    upstreams: Vec<Upstream>,
    standings: Vec<Mutex<Standing>>,
    destination_metrics: Vec<DestinationMetrics>,
    pub metrics: ClusterMetrics,
    pub check: Option<CheckPlan>,
    /// `connection.tls.verify: false`
    pub unverified: bool,
    /// `request.activity_timeout`
    pub activity_timeout: Duration,
    balancer: Box<dyn Balancer>,
    available: Box<dyn AvailablePolicy>,
    published: ArcSwap<Published>,
    publishing: Mutex<()>,
}

/// The active check of a cluster.
pub struct CheckPlan {
    pub kind: Box<dyn ProbeKind>,
    pub interval: Duration,
    pub timeout: Duration,
    /// Share of the interval, 0–1, by which each pause varies either way.
    pub jitter: f64,
    pub thresholds: Thresholds,
}

/// What may be drawn and how: swapped whole when health changes.
pub struct Published {
    pub set: Vec<Arc<Member>>,
    /// `None` when the set is empty.
    pub picker: Option<Box<dyn Picker>>,
    pub panic: bool,
}

/// What a publication changed, with how many of the destinations that take requests have no mark, and how many get traffic.
enum Panic {
    Entered { available: usize, enabled: usize, serving: usize },
    Left { available: usize, enabled: usize },
}

/// What a cluster is made of; [`Cluster::new`] publishes the first set.
pub(super) struct Parts {
    pub name: String,
    pub members: Vec<Arc<Member>>,
    pub upstreams: Vec<Upstream>,
    pub destination_metrics: Vec<DestinationMetrics>,
    pub metrics: ClusterMetrics,
    pub check: Option<CheckPlan>,
    pub unverified: bool,
    pub activity_timeout: Duration,
    pub balancer: Box<dyn Balancer>,
    pub available: Box<dyn AvailablePolicy>,
}

impl Cluster {
    pub(super) fn new(parts: Parts) -> Self {
        let thresholds =
            parts.check.as_ref().map_or(Thresholds { healthy_after: 1, unhealthy_after: 1 }, |check| check.thresholds);
        let cluster = Cluster {
            standings: parts.members.iter().map(|_| Mutex::new(Standing::new(thresholds))).collect(),
            name: parts.name,
            members: parts.members,
            upstreams: parts.upstreams,
            destination_metrics: parts.destination_metrics,
            metrics: parts.metrics,
            check: parts.check,
            unverified: parts.unverified,
            activity_timeout: parts.activity_timeout,
            balancer: parts.balancer,
            available: parts.available,
            published: ArcSwap::from_pointee(Published { set: Vec::new(), picker: None, panic: false }),
            publishing: Mutex::new(()),
        };
        cluster.publish();
        cluster
    }

    pub fn published(&self) -> arc_swap::Guard<Arc<Published>> {
        self.published.load()
    }

    pub fn upstream(&self, member: &Member) -> &Upstream {
        &self.upstreams[member.index]
    }

    pub fn destination_metrics(&self, member: &Member) -> &DestinationMetrics {
        &self.destination_metrics[member.index]
    }

    /// A response head came, for which the destination was waited for so long. The policy hears of it here and not at the
    /// end: how long a body takes says nothing of the destination.
    pub fn answered(&self, member: &Member, status: u16, waited: Duration, now: Instant) {
        self.balancer.learn(member, Outcome::Status(status), waited, now);
    }

    /// What came of an attempt; exactly once for each, after [`Cluster::answered`] where there was a response head. `detail`
    /// is what people read of a failure; `waited` is the destination's time to the head or, without one, to the end.
    pub fn report(&self, member: &Member, outcome: Outcome, detail: &str, waited: Duration, now: Instant) {
        let metrics = self.destination_metrics(member);
        match (outcome, outcome.index()) {
            (Outcome::Status(status), _) => metrics.answered(status),
            (_, Some(reason)) => {
                self.balancer.learn(member, outcome, waited, now);
                let endpoint = member.destination.endpoint.authority();
                event::forward_error(metrics, endpoint, reason, detail, now);
            }
            (_, None) => {}
        }
    }

    /// Takes a finding about a member's health; when that takes it out or brings it back, the new set is published
    /// before anyone is told.
    pub fn judge(&self, member: &Member, event: Event, at: SystemTime) {
        let change = self.standing(member).apply(event, &member.live.marks);
        let Some(change) = change else { return };
        if change.transition.to_healthy {
            member.live.latency.forget();
        }
        let panic = self.publish();
        let endpoint = member.destination.endpoint.authority();
        event::health_changed(
            self.destination_metrics(member),
            endpoint,
            event::HealthChange {
                to_healthy: change.transition.to_healthy,
                reason: change.transition.reason.index(),
                detector: None,
                at,
                why: change.why,
                next: "",
            },
        );
        match panic {
            Some(Panic::Entered { available, enabled, serving }) => {
                event::panic_entered(&self.metrics, available, enabled, serving);
            }
            Some(Panic::Left { available, enabled }) => event::panic_left(&self.metrics, available, enabled),
            None => {}
        }
    }

    pub fn state(&self, member: &Member) -> State {
        if !member.destination.enabled {
            return State::Disabled;
        }
        self.standing(member).state(&member.live.marks)
    }

    /// What the last probe of a member saw.
    pub fn last_cause(&self, member: &Member) -> Option<String> {
        self.standing(member).last_cause().map(str::to_string)
    }

    fn standing(&self, member: &Member) -> MutexGuard<'_, Standing> {
        self.standings[member.index].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Derives the available set from the marks as they are and swaps it in with its picker. One at a time, and each
    /// reads the marks after it got its turn, so the last one published has seen every mark set before.
    fn publish(&self) -> Option<Panic> {
        let _turn = self.publishing.lock().unwrap_or_else(PoisonError::into_inner);
        let available = self.available.choose(&self.members);
        let picker = (!available.members.is_empty()).then(|| self.balancer.prepare(&available.members));
        let healthy = self.members.iter().filter(|m| m.is_unmarked()).count();
        let enabled = self.members.iter().filter(|m| m.takes_new_requests()).count();
        let unmarked = self.members.iter().filter(|m| m.takes_new_requests() && m.is_unmarked()).count();
        self.metrics.set_destinations(Destinations {
            configured: self.members.len(),
            healthy,
            available: unmarked,
            ..Destinations::default()
        });
        let serving = available.members.len();
        let was_panicking = self.published.load().panic;
        self.published.store(Arc::new(Published { set: available.members, picker, panic: available.panic }));
        match (was_panicking, available.panic) {
            (false, true) => Some(Panic::Entered { available: unmarked, enabled, serving }),
            (true, false) => Some(Panic::Left { available: unmarked, enabled }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::balance::Tried;
    use crate::model::testing::request;
    use crate::model::{Dice, Reason};
    use crate::observe::handles::{TRANSITION_REASONS, UPSTREAM_ERRORS};
    use crate::runtime::draw;
    use crate::runtime::testing::cluster;

    const NOW: SystemTime = SystemTime::UNIX_EPOCH;

    fn drawn(cluster: &Cluster, now: Instant) -> Option<usize> {
        let drawn = draw(cluster, request(), &mut Tried::default(), now, &mut Dice::with_seed(1));
        drawn.ok().map(|drawn| drawn.member.index)
    }

    #[test]
    fn given_what_came_of_attempts_when_told_then_the_policy_goes_by_it() {
        let (cluster, now) = (cluster("PeakEwma", &["a", "b"]), Instant::now());
        let [a, b] = &cluster.members[..] else { panic!("two") };
        cluster.answered(a, 200, Duration::from_millis(5), now);
        cluster.answered(b, 200, Duration::from_millis(50), now);
        assert_eq!(drawn(&cluster, now), Some(0));
        // The answer was told already: what its body took does not count.
        cluster.report(a, Outcome::Status(200), "", Duration::from_secs(9), now);
        assert_eq!(drawn(&cluster, now), Some(0));
        (0..5).for_each(|_| cluster.report(a, Outcome::Refused, "connection refused", Duration::ZERO, now));
        assert_eq!(drawn(&cluster, now), Some(1));
    }

    #[test]
    fn given_a_destination_that_was_out_when_it_is_back_then_what_was_known_of_it_is_forgotten() {
        let (cluster, now) = (cluster("PeakEwma", &["a", "b"]), Instant::now());
        let [a, b] = &cluster.members[..] else { panic!("two") };
        cluster.answered(b, 200, Duration::from_millis(5), now);
        cluster.answered(a, 200, Duration::from_secs(30), now);
        cluster.judge(a, Event::Probe { passed: false, cause: "".into() }, NOW);
        assert_eq!(drawn(&cluster, now), Some(1));
        cluster.judge(a, Event::Probe { passed: true, cause: "".into() }, NOW);
        assert_eq!(drawn(&cluster, now), Some(0));
    }

    #[test]
    fn given_words_that_two_floors_know_by_index_when_compared_then_they_are_the_same() {
        assert_eq!(Outcome::WORDS.as_slice(), UPSTREAM_ERRORS);
        assert_eq!(Reason::ALL.map(Reason::as_str).as_slice(), TRANSITION_REASONS);
    }
}
