use super::Alarm;
use super::connection::{Client, Connection};
use super::dial::Dial;
use super::mirror::Copying;
use super::recover::Pause;
use super::respond::FailReason;
use super::sessions::Bound;
use crate::model::{Connected, Lease, Member, Outcome};
use crate::observe::InFlight;
use crate::retry::Plan;
use crate::runtime::{Cluster, Drawn, Report, Route, Snapshot, Trail};
use http::HeaderValue;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// One request, from its head to its end.
pub struct Ctx {
    pub connection: Arc<Connection>,
    /// The snapshot that the request sees to its end, unless a reload did away with what it waited for.
    pub snapshot: Arc<Snapshot>,
    pub begun: Instant,
    pub route: Option<Arc<Route>>,
    /// Where its route sends it.
    pub cluster: Option<Arc<Cluster>>,
    /// The client's, or ours.
    pub request_id: Option<HeaderValue>,
    /// Who asks, as far as it is believed.
    pub client: Client,
    /// `None`: its cluster binds no sessions.
    pub bound: Option<Bound>,
    /// When the route's time is over.
    pub deadline: Option<Instant>,
    /// Where time is limited.
    pub alarm: Option<Arc<Alarm>>,
    pub attempt: Option<Attempt>,
    /// Before the next attempt.
    pub pause: Option<Pause>,
    pub dial: Dial,
    pub trail: Trail,
    /// What came of its attempts so far, but for an only one that went well and that nobody asks about.
    pub seen: Vec<Seen>,
    /// Somebody asks about every attempt.
    told: bool,
    /// Why the proxy answers itself, or the answer is not whole.
    pub failed: Option<FailReason>,
    pub copying: Copying,
    _in_flight: InFlight,
    /// It is a tunnel.
    pub tunnel: Option<InFlight>,
}

/// An attempt that is over.
pub struct Seen {
    pub member: Arc<Member>,
    pub outcome: Outcome,
    /// Setting up a new connection.
    pub connect: Option<Duration>,
    pub waited: Duration,
    /// Whether its connection came from the pool; `None`: it had none.
    pub reused: Option<bool>,
}

/// One try of a request at one destination. What came of it is reported when it is dropped: without a conclusion the
/// client left, or the task was cancelled for it.
pub struct Attempt {
    pub cluster: Arc<Cluster>,
    pub member: Arc<Member>,
    /// How many the draw could choose from.
    pub available: usize,
    pub begun: Instant,
    /// When the client's request was whole.
    pub sent: Option<Instant>,
    /// How long the destination then took to the response head.
    pub waited: Option<Duration>,
    /// Whether its connection came from the pool, once it has one.
    pub reused: Option<bool>,
    /// How long a new one took to set up.
    pub connect: Option<Duration>,
    /// For how long its connection is kept for others, and was before.
    pub idle: Duration,
    /// Needs a connection of its own, which nothing follows on.
    pub fresh: bool,
    /// What the request may do after it.
    pub plan: Plan,
    /// Which attempt of the request it is, from 1.
    number: u8,
    /// Its head was written as a whole.
    pub head_sent: bool,
    pub outcome: Option<Outcome>,
    /// When a piece of the answer came last; kept where the route's time is limited.
    pub piece: Option<Instant>,
    /// The route's time ran out while this destination was waited for.
    pub to_blame: bool,
    /// What people read of a failure.
    pub detail: String,
    /// Its health was judged already, by the answer's head and what came of it so far.
    judged: bool,
    route: Arc<str>,
    /// Where their number is limited.
    pub connection: Option<Connected>,
    lease: Lease,
}

/// An answer on trial that still comes so long after its head is judged by its head: it may go on for hours.
const STREAMS: Duration = Duration::from_secs(1);

impl Ctx {
    /// `told`: what comes of its attempts is kept, also when it is what it should be.
    pub fn new(connection: Arc<Connection>, snapshot: Arc<Snapshot>, told: bool) -> Self {
        Ctx {
            tunnel: None,
            _in_flight: connection.listener.metrics.request_started(),
            client: Client::of(&connection),
            bound: None,
            connection,
            snapshot,
            begun: Instant::now(),
            route: None,
            cluster: None,
            request_id: None,
            deadline: None,
            alarm: None,
            attempt: None,
            pause: None,
            dial: Dial::default(),
            trail: Trail::default(),
            seen: Vec::new(),
            told,
            failed: None,
            copying: Copying::default(),
        }
    }

    /// By the snapshot that serves now, as if it had come just now.
    pub fn begin_anew(&mut self, snapshot: Arc<Snapshot>) {
        self.snapshot = snapshot;
        (self.route, self.cluster, self.bound) = (None, None, None);
        self.trail = Trail::default();
    }

    /// The attempt is over, and with it the request.
    pub fn finish(&mut self, attempt: Attempt) {
        if self.told || !self.seen.is_empty() || self.failed.is_some() {
            self.end(attempt);
        }
    }

    /// It took more than one attempt, or there is no destination's whole answer.
    pub fn went_wrong(&self) -> bool {
        self.seen.len() > 1 || self.failed.is_some_and(FailReason::is_ours)
    }

    /// The attempt is over; whoever asks for attempts sees it.
    pub fn end(&mut self, attempt: Attempt) {
        self.seen.push(Seen {
            member: attempt.member.clone(),
            outcome: attempt.came_of(),
            connect: attempt.connect,
            waited: attempt.waited(Instant::now()),
            reused: attempt.reused,
        });
    }
}

impl Attempt {
    pub fn new(route: &Route, cluster: &Arc<Cluster>, drawn: Drawn, plan: Plan, begun: Instant) -> Self {
        let Drawn { member, lease, available } = drawn;
        Attempt {
            cluster: cluster.clone(),
            member,
            available,
            begun,
            sent: None,
            waited: None,
            reused: None,
            connect: None,
            idle: Duration::ZERO,
            fresh: false,
            number: plan.attempt(),
            plan,
            head_sent: false,
            outcome: None,
            piece: None,
            to_blame: false,
            detail: String::new(),
            judged: false,
            route: route.name.clone(),
            connection: None,
            lease,
        }
    }

    /// A piece of the answer came. A trial that is a stream does not keep the destination, nor its own place, until it ends.
    pub fn goes_on(&mut self) {
        if self.lease.ticket().trial && !self.judged {
            let now = Instant::now();
            let head = self.sent.unwrap_or(self.begun) + self.waited.unwrap_or_default();
            if now.saturating_duration_since(head) >= STREAMS {
                self.conclude_trial(now);
            }
        }
    }

    /// A trial that got its answer, whatever else comes over it.
    pub fn conclude_trial(&mut self, now: Instant) {
        if self.lease.ticket().trial && !self.judged && self.outcome.is_some() {
            self.judged = true;
            self.cluster.judge_attempt(&self.member, &self.report(now), now);
        }
    }

    fn report(&self, now: Instant) -> Report<'_> {
        Report {
            outcome: self.came_of(),
            ticket: self.lease.ticket(),
            begun: self.begun,
            route: &self.route,
            attempt: self.number,
            detail: &self.detail,
            waited: self.waited(now),
        }
    }

    /// How long this destination has been waited for, not counting what the client took to send its request.
    pub fn wait(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.sent.map_or(self.begun, |sent| sent.max(self.begun)))
    }

    /// From its start to the response head, by the configuration.
    pub fn time_to_head(&self) -> Option<Duration> {
        self.cluster.retry.as_ref()?.attempt_timeout
    }

    /// When its time to the head is over; not before it is connected, nor while the client still sends.
    pub fn head_due(&self) -> Option<Instant> {
        let sent = self.sent.filter(|_| self.outcome.is_none() && self.reused.is_some())?;
        Some(sent.max(self.begun) + self.time_to_head()?)
    }

    /// Whether the destination has sent nothing, or nothing more, for a while.
    pub fn is_silent(&self, now: Instant) -> bool {
        self.piece.is_none_or(|piece| now.saturating_duration_since(piece) >= STREAMS)
    }

    /// The wait of an attempt that is over. While the client still sends, the wait is its own.
    fn waited(&self, now: Instant) -> Duration {
        self.waited.or(self.sent.map(|_| self.wait(now))).unwrap_or_default()
    }

    fn came_of(&self) -> Outcome {
        self.outcome.unwrap_or(Outcome::ClientAbort)
    }

    /// Goes on over another connection to the same destination, `fresh` or from the pool.
    pub fn renew(&mut self, fresh: bool, now: Instant) {
        self.fresh |= fresh;
        self.head_sent = false;
        self.begun = now;
        (self.reused, self.connect) = (None, None);
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        let now = Instant::now();
        let report = self.report(now);
        match report.outcome {
            Outcome::Status(_) if self.judged => self.cluster.tally(&self.member, &report, now),
            Outcome::RouteTimeout if self.to_blame => {
                self.cluster.tally(&self.member, &report, now);
                let report = Report { outcome: Outcome::ReadTimeout, ..report };
                self.cluster.judge_attempt(&self.member, &report, now);
            }
            _ => drop(self.cluster.report(&self.member, &report, now)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health::{Event, Phase};
    use crate::model::testing::request;
    use crate::model::{Dice, Ticket};
    use crate::runtime::testing::compiled;
    use crate::runtime::{Action, Arm, draw};
    use http::Method;

    /// A trial that began so long ago and got a 200 at once; its destination is the only one.
    fn trial(ago: Duration) -> (Arc<Cluster>, Attempt) {
        let text = "listeners: { web: \"127.0.0.1:1\" }\nroutes: { all: { cluster: c } }\nclusters: { c: { destinations: [\"http://127.0.0.1:7001\"], \
                    health: { passive: { detectors: [{ policy: ConsecutiveFailures, failures: 1 }], reactivation: { period: 100ms } } } } }\n";
        let snapshot = compiled(text).1;
        let route = snapshot.routes[0].clone();
        let Action::Forward(cluster) = &route.action else { panic!("a cluster") };
        let (member, now) = (cluster.members[0].clone(), Instant::now());
        let ticket = Ticket { epoch: member.live.epoch(), trial: false, panic: false };
        let (outcome, name) = (Outcome::Refused, Arc::from("all"));
        let failed =
            Report { outcome, ticket, begun: now, route: &name, attempt: 1, detail: "", waited: Duration::ZERO };
        cluster.report(&member, &failed, now);
        cluster.judge(&member, Event::Due, now + Duration::from_millis(100));
        let drawn = draw(cluster, Arm::Primary, request(), &mut Trail::default(), now, &mut Dice::with_seed(1));
        let mut attempt = Attempt::new(
            &route,
            cluster,
            drawn.expect("a trial"),
            Plan::new(None, false, &Method::GET, false),
            now - ago,
        );
        (attempt.outcome, attempt.waited) = (Some(Outcome::Status(200)), Some(Duration::ZERO));
        (cluster.clone(), attempt)
    }

    #[test]
    fn given_a_trial_whose_answer_goes_on_and_on_when_a_second_is_over_then_its_head_decides_and_once_only() {
        let phase = |cluster: &Cluster| cluster.standing(&cluster.members[0]).phase();
        let (cluster, mut short) = trial(Duration::ZERO);
        short.goes_on();
        assert_eq!(phase(&cluster), Phase::HalfOpen { passes: 0 });
        drop(short);
        assert_eq!(phase(&cluster), Phase::Serving);
        let (cluster, mut long) = trial(STREAMS);
        (0..3).for_each(|_| long.goes_on());
        assert_eq!(phase(&cluster), Phase::Serving);
        let seen = || cluster.standing(&cluster.members[0]).evidence().len();
        assert_eq!(seen(), 2);
        drop(long);
        assert_eq!((seen(), cluster.members[0].live.in_flight()), (2, 0));
    }
}
