use super::canary::{Canary, Course};
use super::mirror::{Copies, Mirror};
use super::tiers::{Caps, Published};
use super::{CheckPlan, Sessions, Upstream, telling};
use crate::balance::Balancer;
use crate::config::{Failover, Queue, Retry, Role};
use crate::health::available::AvailablePolicy;
use crate::health::{Around, Attempted, Cap, Change, Event, Settings, Standing, State};
use crate::model::{Crowd, Dice, Epoch, Line, Member, Outcome, Reason, Ticket};
use crate::observe::{ClusterMetrics, DestinationMetrics, Destinations, event};
use crate::retry::{Budget, Ended, Plan, Verdict};
use arc_swap::ArcSwap;
use http::Method;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

/// Named destinations and their policies. Immutable but for what health publishes.
pub struct Cluster {
    pub name: String,
    /// In the configuration's order; [`Member::index`] is the position here and in the lists beside it.
    pub members: Vec<Arc<Member>>,
    pub(super) upstreams: Vec<Upstream>,
    pub(super) standings: Vec<SharedStanding>,
    pub(super) destination_metrics: Vec<DestinationMetrics>,
    pub metrics: ClusterMetrics,
    pub check: Option<CheckPlan>,
    /// `connection.tls.verify: false`
    pub unverified: bool,
    /// `request.activity_timeout`
    pub activity_timeout: Duration,
    /// `None` is `retry: off`.
    pub retry: Option<Retry>,
    /// `None`: who finds no place is turned away.
    pub queue: Option<Queue>,
    /// `connection.max_connections`
    pub max_connections: Option<u32>,
    /// `None`: requests are bound to no destination.
    pub sessions: Option<Sessions>,
    /// `None`: nobody fails over.
    pub failover: Option<Failover>,
    pub(super) canary: Option<Canary>,
    pub mirror: Option<Mirror>,
    /// By what its destinations are judged.
    pub settings: Arc<Settings>,
    /// `max_ejected` as a number, for each role.
    pub(super) most_ejected: [u32; Role::ALL.len()],
    pub(super) balancer: Box<dyn Balancer>,
    pub(super) available: Box<dyn AvailablePolicy>,
    pub(super) published: ArcSwap<Published>,
    pub(super) kept: Arc<Kept>,
    pub(super) epoch: Epoch,
}

/// The standing of a destination, which its successor in the next snapshot goes on with.
pub(super) type SharedStanding = Arc<Mutex<Standing>>;

/// What a cluster hands on to its successor in the next snapshot.
pub(super) struct Kept {
    /// The one of the snapshot that serves: whoever still holds an older one publishes here.
    pub current: ArcSwap<Weak<Cluster>>,
    pub caps: Caps,
    pub budget: Budget,
    pub crowd: Arc<Crowd>,
    pub course: Course,
    pub copies: Arc<Copies>,
    panics: AtomicBool,
    publishing: Mutex<()>,
    /// What the times below are counted from, whichever snapshot counts.
    pub begun: Instant,
    /// When time alone changes something next, in nanoseconds; [`NEVER`].
    due: AtomicU64,
    /// When a panic's shares are looked at next, likewise.
    graded: AtomicU64,
    /// When the requests are looked at next for the budget of retries, likewise.
    counted: AtomicU64,
}

const NEVER: u64 = u64::MAX;
const SECOND: u64 = 1_000_000_000;

impl Kept {
    pub fn new(now: Instant) -> Self {
        Kept {
            current: ArcSwap::from_pointee(Weak::new()),
            caps: Caps::default(),
            budget: Budget::default(),
            crowd: Arc::default(),
            course: Course::default(),
            copies: Arc::new(Copies::new(now)),
            panics: AtomicBool::new(false),
            publishing: Mutex::new(()),
            begun: now,
            due: AtomicU64::new(NEVER),
            graded: AtomicU64::new(0),
            counted: AtomicU64::new(0),
        }
    }

    /// The places for ejections of a member's tier.
    pub fn cap(&self, member: &Member) -> &Cap {
        self.caps.of(member.destination.role)
    }
}

/// What came of one attempt.
pub struct Report<'a> {
    pub outcome: Outcome,
    pub ticket: Ticket,
    pub begun: Instant,
    pub route: &'a Arc<str>,
    /// From 1.
    pub attempt: u8,
    /// What people read of a failure.
    pub detail: &'a str,
    /// The destination's time to the head or, without one, to the end.
    pub waited: Duration,
}

impl Cluster {
    /// Publishes its first set, unless it follows another: then `carry::publish` does.
    pub(super) fn begun(self) -> Self {
        // One that follows another shares its live state, which is not its own before it serves.
        if self.serving().is_none() {
            self.kept.caps.set_limits(self.most_ejected);
            self.republish();
        }
        self
    }

    pub fn published(&self) -> arc_swap::Guard<Arc<Published>> {
        self.published.load()
    }

    /// The requests that wait while all destinations are full.
    pub fn line(&self) -> &Line {
        &self.kept.crowd.line
    }

    /// How many attempts may be in progress at a destination by `max_connections`, as far as it is known to share connections.
    pub fn most_connected(&self, member: &Member) -> Option<u32> {
        let streams = if member.live.shares_connections() { Upstream::STREAMS } else { 1 };
        self.max_connections.map(|most| most.saturating_mul(streams))
    }

    /// Connecting failed: what comes next may be another that shares none. Unless many attempts are on connections: they do.
    pub fn not_connected(&self, member: &Member) {
        if self.max_connections.is_some_and(|most| member.live.connected() <= most) {
            member.live.set_shares_connections(false);
        }
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

    /// What came of an attempt; exactly once for each, after [`Cluster::answered`] where there was a response head. Returns
    /// the steps of health that followed, which were told and published.
    pub fn report(&self, member: &Member, report: &Report<'_>, now: Instant) -> Vec<Change> {
        self.tally(member, report, now);
        self.judge_attempt(member, report, now)
    }

    /// What an attempt amounts to that is not over yet; at its end, unless it then fails, it is only to be counted.
    pub fn judge_attempt(&self, member: &Member, report: &Report<'_>, now: Instant) -> Vec<Change> {
        let &Report { outcome, ticket, begun, route, attempt, waited: latency, .. } = report;
        self.canary_answered(member, report, now);
        self.judge(member, Event::Outcome(Attempted { outcome, ticket, begun, route, attempt, latency }), now)
    }

    /// [`Cluster::report`] without a judgement.
    pub fn tally(&self, member: &Member, report: &Report<'_>, now: Instant) {
        let metrics = self.destination_metrics(member);
        match (report.outcome, report.outcome.index()) {
            (Outcome::Status(status), _) => metrics.answered(status),
            (_, Some(reason)) => {
                self.balancer.learn(member, report.outcome, report.waited, now);
                let endpoint = member.destination.endpoint.authority();
                event::forward_error(metrics, endpoint, reason, report.detail, now);
            }
            (_, None) => {}
        }
    }

    /// Takes a finding about a member's health; when something followed, the new set is published before anyone is told.
    pub fn judge(&self, member: &Member, event: Event<'_>, now: Instant) -> Vec<Change> {
        let ramp = member.live.ramp();
        let changes = self.standing(member).apply(event, &self.around(member), now);
        if !changes.is_empty() || ramp != member.live.ramp() {
            self.follow(member, &changes, now);
            self.canary_fell(member, now);
        }
        changes
    }

    /// What time alone changed, by now.
    pub fn due(&self, now: Instant) -> Vec<(Arc<Member>, Change)> {
        let elapsed = self.nanos(now);
        self.count(elapsed, now);
        self.canary_due(now);
        if elapsed < self.kept.due.load(Ordering::Acquire) {
            self.grade(elapsed);
            return Vec::new();
        }
        let mut changes = Vec::new();
        for member in &self.members {
            changes.extend(self.judge(member, Event::Due, now).into_iter().map(|change| (member.clone(), change)));
        }
        self.republish();
        changes
    }

    /// The budget of retries goes by the requests of late.
    fn count(&self, elapsed: u64, now: Instant) {
        if let Some(rule) = &self.retry
            && elapsed >= self.kept.counted.load(Ordering::Relaxed)
        {
            self.kept.counted.store(elapsed.saturating_add(SECOND), Ordering::Relaxed);
            self.kept.budget.look(&rule.budget, now);
        }
    }

    /// In a panic shares follow what was lately served.
    fn grade(&self, elapsed: u64) {
        if self.kept.panics.load(Ordering::Acquire) && elapsed >= self.kept.graded.load(Ordering::Relaxed) {
            self.kept.graded.store(elapsed.saturating_add(SECOND), Ordering::Relaxed);
            self.republish();
        }
    }

    /// A request is about to be sent here for the first time, to this member.
    pub fn begin(&self, method: &Method, upgrade: bool, member: &Member) -> Plan {
        self.kept.budget.request();
        if self.canary.is_some() {
            self.metrics.canary_request(member.is(Role::Canary));
        }
        let mut plan = Plan::new(self.retry.as_ref(), self.failover.is_some(), method, upgrade);
        if member.is(Role::Failover) {
            self.failed_over(&mut plan);
        }
        plan
    }

    /// Requests do not leave the destinations of their sessions.
    pub fn binds_strictly(&self) -> bool {
        self.sessions.as_ref().is_some_and(|sessions| sessions.strict)
    }

    /// The next attempt is at a failover.
    pub fn failed_over(&self, plan: &mut Plan) {
        if plan.failed_over() {
            self.metrics.failed_over();
        }
    }

    /// What follows the end of an attempt, by the request's plan.
    pub fn concluded(&self, plan: &mut Plan, ended: &Ended, now: Instant, dice: &mut Dice) -> Verdict {
        plan.concluded(ended, self.retry.as_ref(), &self.kept.budget, now, dice)
    }

    /// An attempt that [`Cluster::concluded`] allowed finds no destination.
    pub fn not_made(&self) {
        self.kept.budget.give_back();
    }

    /// What tells the probe of a member from others; equal ones are one probe. `None` without an active check.
    pub fn probe_signature(&self, member: &Member) -> Option<&Arc<str>> {
        self.check.as_ref().map(|check| &check.signatures[member.index])
    }

    /// Whether the active check shall look at a destination.
    pub fn wants_probes(&self, member: &Member) -> bool {
        self.check.is_some() && member.destination.enabled && !member.live.in_maintenance()
    }

    pub fn state(&self, member: &Member) -> State {
        if !member.destination.enabled {
            return State::Disabled;
        }
        self.standing(member).state(&member.live)
    }

    /// Whether a panic is on, for its gauge, and how the canary stands. Events set it as well, but a beginning and an end at once
    /// may be told in either order.
    pub fn gauge(&self, now: Instant) {
        self.metrics.set_panic(self.kept.panics.load(Ordering::Acquire));
        if let Some(canary) = self.canary_view(now) {
            self.metrics.set_canary(canary.permille, canary.rests.is_some());
        }
        if self.sessions.is_some() {
            self.metrics.binds_sessions();
        }
    }

    /// Sets the gauges of a destination's health to what holds now. Events set them as well, but those of two steps at once may
    /// come in either order.
    pub fn gauges(&self, member: &Member) {
        telling::standing(self.destination_metrics(member), member, &self.standing(member));
    }

    /// What the last probe of a member saw.
    pub fn last_cause(&self, member: &Member) -> Option<String> {
        self.standing(member).last_cause().map(str::to_string)
    }

    /// The standing as it is, for those who show it.
    pub fn standing(&self, member: &Member) -> MutexGuard<'_, Standing> {
        self.standings[member.index].lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn around<'a>(&'a self, member: &'a Member) -> Around<'a> {
        Around { live: &member.live, cap: self.kept.cap(member) }
    }

    fn follow(&self, member: &Member, changes: &[Change], now: Instant) {
        let panic = self.publish();
        self.tell(member, changes, now);
        if let Some(panic) = panic {
            telling::panic(self, panic);
        }
    }

    pub(super) fn tell(&self, member: &Member, changes: &[Change], now: Instant) {
        changes.iter().for_each(|change| telling::step(self, member, change, self.epoch.wall(now)));
    }

    /// Publishes, and tells when a panic began or ended by it.
    pub(super) fn republish(&self) {
        if let Some(panic) = self.publish() {
            telling::panic(self, panic);
        }
    }

    /// The cluster of this name in the snapshot that serves; `None` when a reload did away with it.
    pub fn serving(&self) -> Option<Arc<Cluster>> {
        loop {
            let seen = self.kept.current.load();
            let current = seen.upgrade();
            // It may have gone between the two, when another followed it.
            if current.is_some() || Arc::ptr_eq(&seen, &self.kept.current.load()) {
                return current;
            }
        }
    }

    /// As [`Cluster::serving`], or else this one.
    fn current(&self) -> Current<'_> {
        self.serving().map_or(Current::This(self), Current::Other)
    }

    /// Derives the available set of the snapshot that serves from the marks as they are and swaps it in with its picker. One at a
    /// time, and each reads the marks, and which snapshot serves, after it got its turn, so the last one published has seen every
    /// mark set before. `Some` when a panic began or ended by it.
    fn publish(&self) -> Option<Panic> {
        let _turn = self.kept.publishing.lock().unwrap_or_else(PoisonError::into_inner);
        let current = self.current();
        let panic = current.publish_now();
        current.wake();
        panic
    }

    /// From here on it is the one that serves, by its name, and its set is there when the first looks: who waits in a queue does
    /// at any time.
    pub(super) fn serve(self: &Arc<Self>) {
        let panic = {
            let _turn = self.kept.publishing.lock().unwrap_or_else(PoisonError::into_inner);
            let panic = self.publish_now();
            self.kept.current.store(Arc::new(Arc::downgrade(self)));
            self.wake();
            panic
        };
        if let Some(panic) = panic {
            telling::panic(self, panic);
        }
    }

    /// Whoever waits looks again.
    fn wake(&self) {
        self.line().freed();
        self.members.iter().for_each(|member| member.live.bound.freed());
    }

    fn publish_now(&self) -> Option<Panic> {
        let failover = self.failover.is_some();
        let published = Published::derive(&self.members, &*self.balancer, &*self.available, failover);
        let (serving, panics) = (published.primaries.set.len(), published.primaries.panic);
        self.published.store(Arc::new(published));
        self.count_destinations(failover);
        let due = self.members.iter().filter_map(|member| {
            let standing = self.standing(member);
            telling::standing(self.destination_metrics(member), member, &standing);
            standing.next_due(&member.live)
        });
        self.kept.due.store(due.min().map_or(NEVER, |due| self.nanos(due)), Ordering::Release);
        let primaries = || self.members.iter().filter(|member| member.is(Role::Primary) && member.takes_new_requests());
        let (enabled, available) = (primaries().count(), primaries().filter(|member| member.is_unmarked()).count());
        match (self.kept.panics.swap(panics, Ordering::AcqRel), panics) {
            (false, true) => Some(Panic::Entered { available, enabled, serving }),
            (true, false) => Some(Panic::Left { available, enabled }),
            _ => None,
        }
    }

    /// Canaries and mirrors are in no count: the others are who serves.
    fn count_destinations(&self, failover: bool) {
        let serves = |member: &&Arc<Member>| member.is(Role::Primary) || (failover && member.is(Role::Failover));
        let tiers: Vec<&Arc<Member>> = self.members.iter().filter(serves).collect();
        let count = |is: &dyn Fn(&Member) -> bool| tiers.iter().filter(|member| is(member)).count();
        let has = |reason| move |member: &Member| member.live.marks.has(reason);
        self.metrics.set_destinations(Destinations {
            configured: tiers.len(),
            healthy: count(&Member::is_unmarked),
            available: count(&|member| member.takes_new_requests() && member.is_unmarked()),
            draining: count(&has(Reason::Operator)),
            ejected: count(&has(Reason::Passive)),
        });
    }

    pub(super) fn nanos(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.kept.begun).as_nanos()).unwrap_or(NEVER - 1)
    }
}

/// What a publication changed, with how many of the destinations that take requests have no mark, and how many get traffic.
pub(super) enum Panic {
    Entered { available: usize, enabled: usize, serving: usize },
    Left { available: usize, enabled: usize },
}

enum Current<'a> {
    This(&'a Cluster),
    Other(Arc<Cluster>),
}

impl std::ops::Deref for Current<'_> {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        match self {
            Current::This(cluster) => cluster,
            Current::Other(cluster) => cluster,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::testing::request;
    use crate::observe::handles::{RETRIES_DENIED, TRANSITION_REASONS, UPSTREAM_ERRORS};
    use crate::retry::Why;
    use crate::runtime::testing::cluster;
    use crate::runtime::{Arm, Trail, draw};

    fn reported(cluster: &Cluster, member: &Arc<Member>, outcome: Outcome, now: Instant) -> Vec<Change> {
        let lease = member.live.lease(None).expect("no bound");
        let (route, ticket, waited) = (&Arc::from("all"), lease.ticket(), Duration::from_secs(9));
        cluster.report(member, &Report { outcome, ticket, begun: now, route, attempt: 1, detail: "", waited }, now)
    }

    fn probed(cluster: &Cluster, member: &Arc<Member>, passed: bool, now: Instant) {
        cluster.judge(member, Event::Probe { passed, cause: "".into(), begun: now }, now);
    }

    fn drawn(cluster: &Cluster, now: Instant) -> Option<usize> {
        let drawn = draw(cluster, Arm::Primary, request(), &mut Trail::default(), now, &mut Dice::with_seed(1));
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
        reported(&cluster, a, Outcome::Status(200), now);
        assert_eq!(drawn(&cluster, now), Some(0));
        (0..5).for_each(|_| drop(reported(&cluster, a, Outcome::Refused, now)));
        assert_eq!(drawn(&cluster, now), Some(1));
    }

    #[test]
    fn given_a_destination_that_was_out_when_it_is_back_then_what_was_known_of_it_is_forgotten() {
        let checked = "PeakEwma\n    health: { active: { type: tcp, unhealthy_after: 1 } }";
        let (cluster, now) = (cluster(checked, &["a", "b"]), Instant::now());
        let [a, b] = &cluster.members[..] else { panic!("two") };
        cluster.answered(b, 200, Duration::from_millis(5), now);
        cluster.answered(a, 200, Duration::from_secs(30), now);
        probed(&cluster, a, false, now);
        assert_eq!(drawn(&cluster, now), Some(1));
        probed(&cluster, a, true, now);
        assert_eq!(drawn(&cluster, now), Some(0));
    }

    #[test]
    fn given_words_that_two_floors_know_by_index_when_compared_then_they_are_the_same() {
        assert_eq!(Outcome::WORDS.as_slice(), UPSTREAM_ERRORS);
        assert_eq!(Why::WORDS.as_slice(), RETRIES_DENIED);
        assert_eq!(Reason::ALL.map(Reason::as_str).as_slice(), TRANSITION_REASONS);
    }
}
