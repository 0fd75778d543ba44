use super::{Connection, respond::FailReason};
use crate::balance::Tried;
use crate::model::{Lease, Member, Outcome};
use crate::observe::InFlight;
use crate::runtime::{Cluster, Drawn, Report, Route, Snapshot};
use http::HeaderValue;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often one request may be sent, first try included.
pub const ROUNDS: u8 = 3;

/// One request, from its head to its end.
pub struct Ctx {
    pub connection: Arc<Connection>,
    /// The snapshot that the request sees to its end.
    pub snapshot: Arc<Snapshot>,
    pub begun: Instant,
    pub route: Option<Arc<Route>>,
    /// The client's, or ours.
    pub request_id: Option<HeaderValue>,
    pub attempt: Option<Attempt>,
    pub tried: Tried,
    /// What came of its attempts so far; `None`: nobody asks.
    pub seen: Option<Vec<Seen>>,
    /// Why the proxy answers itself, or the answer is not whole.
    pub failed: Option<FailReason>,
    _in_flight: InFlight,
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
    /// Needs a connection of its own, which nothing follows on.
    pub fresh: bool,
    /// Which round it is, from 1.
    round: u8,
    pub outcome: Option<Outcome>,
    /// What people read of a failure.
    pub detail: String,
    route: Arc<str>,
    lease: Lease,
}

impl Ctx {
    /// `told`: what comes of its attempts is kept.
    pub fn new(connection: Arc<Connection>, snapshot: Arc<Snapshot>, told: bool) -> Self {
        Ctx {
            _in_flight: connection.listener.metrics.request_started(),
            connection,
            snapshot,
            begun: Instant::now(),
            route: None,
            request_id: None,
            attempt: None,
            tried: Tried::default(),
            seen: told.then(Vec::new),
            failed: None,
        }
    }

    /// The attempt is over; whoever asks for attempts sees it.
    pub fn end(&mut self, attempt: Attempt) {
        let Some(seen) = &mut self.seen else { return };
        seen.push(Seen {
            member: attempt.member.clone(),
            outcome: attempt.came_of(),
            connect: attempt.connect,
            waited: attempt.waited(Instant::now()),
            reused: attempt.reused,
        });
    }
}

impl Attempt {
    pub fn new(route: &Route, cluster: &Arc<Cluster>, drawn: Drawn, begun: Instant) -> Self {
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
            fresh: false,
            round: 1,
            outcome: None,
            detail: String::new(),
            route: route.name.clone(),
            lease,
        }
    }

    /// How long this destination has been waited for, not counting what the client took to send its request.
    pub fn wait(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.sent.map_or(self.begun, |sent| sent.max(self.begun)))
    }

    /// The wait of an attempt that is over. While the client still sends, the wait is its own.
    fn waited(&self, now: Instant) -> Duration {
        self.waited.or(self.sent.map(|_| self.wait(now))).unwrap_or_default()
    }

    fn came_of(&self) -> Outcome {
        self.outcome.unwrap_or(Outcome::ClientAbort)
    }

    /// Another round at the same destination, when there is one left. The last has a connection of its own, which nobody
    /// else's requests can wear out; so has any other that is to be `fresh`.
    pub fn again(&mut self, fresh: bool) -> bool {
        if self.round == ROUNDS {
            return false;
        }
        self.round += 1;
        self.fresh |= fresh || self.round == ROUNDS;
        self.begun = Instant::now();
        (self.reused, self.connect) = (None, None);
        true
    }

    /// The same, and it is the last.
    pub fn once_more(&mut self) -> bool {
        self.round = self.round.max(ROUNDS - 1);
        self.again(true)
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        let now = Instant::now();
        let report = Report {
            outcome: self.came_of(),
            ticket: self.lease.ticket(),
            begun: self.begun,
            route: &self.route,
            attempt: 1,
            detail: &self.detail,
            waited: self.waited(now),
        };
        self.cluster.report(&self.member, &report, now);
    }
}
