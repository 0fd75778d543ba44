//! Which requests are copied, to whom, and how many at a time. An exact share of those that came whole; a copy that finds no
//! place is not made. What comes of one counts here and nowhere else: no health hears of it, no policy learns from it. But
//! where nobody answers, asking each time would cost the requests' own processor time: after [`FAILURES`] in a row the
//! mirror rests for [`REST`].

use super::tiers::Tier;
use super::{Cluster, Snapshot};
use crate::balance::{Draw, Tried};
use crate::config;
use crate::model::{Copying, Dice, Lease, Member, RequestView, Split};
use crate::observe::{Compared, MirrorMetrics, Mirrored};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Section `mirror`, ready for requests.
pub struct Mirror {
    permille: u32,
    /// Its name and its position in the snapshot; `None`: the cluster's own destinations of role `mirror`.
    cluster: Option<(String, usize)>,
    /// From the whole request to the end of the mirror's answer.
    pub timeout: Duration,
    max_in_flight: u32,
    /// In bytes.
    pub max_body: usize,
    compare: bool,
    pub metrics: MirrorMetrics,
    kept: Arc<Copies>,
}

/// What outlives a snapshot.
pub(super) struct Copies {
    split: Split,
    in_flight: AtomicU32,
    /// In a row.
    failures: AtomicU32,
    /// What `rests_until` is counted from.
    begun: Instant,
    /// In nanoseconds.
    rests_until: AtomicU64,
}

const FAILURES: u32 = 5;
const REST: Duration = Duration::from_secs(1);

impl Copies {
    pub fn new(now: Instant) -> Self {
        Copies {
            split: Split::default(),
            in_flight: AtomicU32::new(0),
            failures: AtomicU32::new(0),
            begun: now,
            rests_until: AtomicU64::new(0),
        }
    }

    fn nanos(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.begun).as_nanos()).unwrap_or(u64::MAX)
    }
}

/// Whom a copy goes to.
pub struct Target {
    /// The one that the destination is of.
    pub cluster: Arc<Cluster>,
    pub member: Arc<Member>,
    /// Of another cluster's destination, which may have a bound.
    _lease: Option<Lease>,
    /// Of the cluster's own, which has none.
    _copying: Option<Copying>,
}

/// The room of one copy; it is free again when this is dropped.
pub struct Place {
    kept: Arc<Copies>,
    metrics: MirrorMetrics,
}

/// An answer, as far as it is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    /// Of its body, in bytes.
    pub length: u64,
}

/// Where the client's answer and the mirror's meet, each told once it is whole; the second is compared with the first.
pub struct Comparison {
    first: Mutex<Option<Answer>>,
    metrics: MirrorMetrics,
}

impl Mirror {
    pub(super) fn new(
        written: &config::Mirror,
        cluster: Option<(String, usize)>,
        metrics: MirrorMetrics,
        kept: Arc<Copies>,
    ) -> Self {
        Mirror {
            permille: written.permille,
            cluster,
            timeout: written.timeout,
            max_in_flight: written.max_in_flight,
            max_body: usize::try_from(written.max_body).unwrap_or(usize::MAX),
            compare: written.compare,
            metrics,
            kept,
        }
    }

    /// Counts one more request: whether it is to be copied.
    pub fn next(&self) -> bool {
        self.kept.split.next(self.permille)
    }

    /// Room for a copy.
    ///
    /// # Errors
    /// [`Mirrored::DroppedFull`] when there are as many as there may be, [`Mirrored::Failed`] while the mirror rests.
    pub fn place(&self, now: Instant) -> Result<Place, Mirrored> {
        if self.kept.nanos(now) < self.kept.rests_until.load(Relaxed) {
            return Err(Mirrored::Failed);
        }
        let room = |count: u32| (count < self.max_in_flight).then_some(count + 1);
        self.kept.in_flight.fetch_update(Relaxed, Relaxed, room).map_err(|_| Mirrored::DroppedFull)?;
        self.metrics.entered();
        Ok(Place { kept: self.kept.clone(), metrics: self.metrics.clone() })
    }

    /// Where the two answers of a request meet, when they are to be compared.
    pub fn comparison(&self) -> Option<Arc<Comparison>> {
        let made = || Arc::new(Comparison { first: Mutex::new(None), metrics: self.metrics.clone() });
        self.compare.then(made)
    }

    /// Draws whom a copy of a request to `own` goes to, of those that serve; on trial there is nobody, for nobody would hear
    /// of it.
    ///
    /// # Errors
    /// [`Mirrored::Failed`] when there is none, [`Mirrored::DroppedFull`] when all are at `max_requests`.
    pub fn target(
        &self,
        own: &Arc<Cluster>,
        snapshot: &Snapshot,
        request: RequestView<'_>,
        now: Instant,
        dice: &mut Dice,
    ) -> Result<Target, Mirrored> {
        match &self.cluster {
            None => {
                let published = own.published();
                pick(&published.mirrors, request, now, dice, |member| {
                    let copying = Some(member.live.copy());
                    Some(Target { cluster: own.clone(), member: member.clone(), _lease: None, _copying: copying })
                })
            }
            Some((name, position)) => {
                // Who waited in a queue may be of an older snapshot than the cluster that it found.
                let at = snapshot.clusters.get(*position).filter(|cluster| cluster.name == *name);
                let cluster = at.or_else(|| snapshot.cluster(name)).ok_or(Mirrored::Failed)?;
                let published = cluster.published();
                pick(&published.primaries, request, now, dice, |member| {
                    let lease = member.live.lease(member.destination.max_requests).ok()?;
                    let (cluster, member) = (cluster.clone(), member.clone());
                    Some(Target { cluster, member, _lease: Some(lease), _copying: None })
                })
            }
        }
    }
}

fn pick(
    tier: &Tier,
    request: RequestView<'_>,
    now: Instant,
    dice: &mut Dice,
    take: impl Fn(&Arc<Member>) -> Option<Target>,
) -> Result<Target, Mirrored> {
    let picker = tier.picker.as_ref().ok_or(Mirrored::Failed)?;
    let mut tried = Tried::default();
    // Each turn one more is tried.
    for _ in &tier.set {
        let mut how = Draw { request, tried: &tried, now, dice };
        let Some(position) = picker.pick(&tier.set, &mut how) else { break };
        let member = &tier.set[position];
        if let Some(target) = take(member) {
            return Ok(target);
        }
        tried.insert(member.index);
    }
    Err(Mirrored::DroppedFull)
}

impl Place {
    /// A whole answer came, whatever its status.
    pub fn answered(&self) {
        self.kept.failures.store(0, Relaxed);
    }

    /// There was no connection, or no whole answer.
    pub fn failed(&self, now: Instant) {
        if self.kept.failures.fetch_add(1, Relaxed) + 1 >= FAILURES {
            self.kept.failures.store(FAILURES, Relaxed);
            self.kept.rests_until.fetch_max(self.kept.nanos(now + REST), Relaxed);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.kept.in_flight.fetch_sub(1, Relaxed);
        self.metrics.left();
    }
}

impl Comparison {
    pub fn tell(&self, answer: Answer) {
        let mut first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(first) = first.replace(answer) {
            self.metrics.compared(if first.status != answer.status {
                Compared::Status
            } else if first.length != answer.length {
                Compared::Length
            } else {
                Compared::Same
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Reason;
    use crate::model::testing::request;
    use crate::runtime::testing::compiled;
    use crate::runtime::{Arm, Runtime, Trail, draw};

    const OWN: &str = "c: { destinations: { p: \"http://127.0.0.1:7001\", m: { address: \"http://127.0.0.1:7002\", role: mirror }, \
                       n: { address: \"http://127.0.0.1:7003\", role: mirror } }";
    const OTHER: &str = "c: { destinations: [\"http://127.0.0.1:7001\"]";

    /// Cluster `c` of these keys, and others.
    fn snapshot(clusters: &str) -> Arc<Snapshot> {
        let text = format!(
            "listeners: {{ web: \"127.0.0.1:1\" }}\nroutes: {{ all: {{ cluster: c }} }}\nclusters: {{ {clusters} }}\n"
        );
        let snapshot = compiled(&text).1;
        Runtime::new(snapshot).pin()
    }

    fn mirror(snapshot: &Snapshot) -> &Mirror {
        snapshot.cluster("c").and_then(|cluster| cluster.mirror.as_ref()).expect("a mirror")
    }

    fn target(snapshot: &Snapshot) -> Result<Target, Mirrored> {
        let own = snapshot.cluster("c").expect("it is written");
        mirror(snapshot).target(own, snapshot, request(), Instant::now(), &mut Dice::with_seed(1))
    }

    fn drawn(snapshot: &Snapshot) -> Result<String, Mirrored> {
        target(snapshot).map(|target| target.member.destination.id.clone())
    }

    #[test]
    fn given_5_percent_when_ten_thousand_requests_come_then_exactly_500_are_copied() {
        let snapshot = snapshot(&format!("{OWN}, mirror: {{ percent: 5% }} }}"));
        assert_eq!((0..10_000).filter(|_| mirror(&snapshot).next()).count(), 500);
    }

    #[test]
    fn given_as_many_copies_as_may_be_when_another_is_wanted_then_there_is_no_place_until_one_ends() {
        let snapshot = snapshot(&format!("{OWN}, mirror: {{ percent: 100%, max_in_flight: 2 }} }}"));
        let place = || mirror(&snapshot).place(Instant::now());
        let mut places: Vec<_> = (0..2).map(|_| place().expect("a place")).collect();
        assert_eq!(place().err(), Some(Mirrored::DroppedFull));
        places.pop();
        assert!(place().is_ok());
    }

    #[test]
    fn given_failures_in_a_row_when_another_copy_is_wanted_then_none_is_made_for_a_second_and_an_answer_ends_the_row() {
        let snapshot = snapshot(&format!("{OWN}, mirror: {{ percent: 100% }} }}"));
        let (now, ms) = (Instant::now(), Duration::from_millis);
        let place = |at| mirror(&snapshot).place(at);
        let fail = |at| place(at).expect("a place").failed(at);
        (0..4).for_each(|_| fail(now));
        place(now).expect("a place").answered();
        (0..4).for_each(|_| fail(now));
        assert!(place(now).is_ok());
        fail(now);
        assert_eq!(place(now + ms(999)).err(), Some(Mirrored::Failed));
        // Whoever still fails, rests again.
        fail(now + ms(1000));
        assert_eq!(place(now + ms(1999)).err(), Some(Mirrored::Failed));
        place(now + ms(2000)).expect("a place").answered();
        fail(now + ms(2000));
        assert!(place(now + ms(2000)).is_ok());
    }

    #[test]
    fn given_destinations_of_the_role_when_drawn_then_those_that_serve_and_they_hold_no_lease() {
        let snapshot = snapshot(&format!("{OWN}, load_balancing: RoundRobin, mirror: {{ percent: 100% }} }}"));
        let mut ids: Vec<_> = (0..4).map(|_| drawn(&snapshot).expect("a mirror")).collect();
        ids.sort_unstable();
        assert_eq!(ids, ["m", "m", "n", "n"]);
        let cluster = snapshot.cluster("c").expect("it is written");
        let held = target(&snapshot);
        assert!(held.is_ok() && cluster.members.iter().all(|member| member.live.in_flight() == 0));
        assert!((0..9).all(|_| {
            let drawn =
                draw(cluster, Arm::Primary, request(), &mut Trail::default(), Instant::now(), &mut Dice::with_seed(1));
            drawn.is_ok_and(|drawn| drawn.member.destination.id == "p")
        }));
        for member in &cluster.members[1..] {
            member.live.marks.set(Reason::Active, true);
        }
        cluster.republish();
        assert_eq!(drawn(&snapshot), Err(Mirrored::Failed));
    }

    #[test]
    fn given_another_cluster_when_drawn_then_by_its_policy_and_within_the_bounds_of_its_destinations() {
        let bounded = "d: { destinations: { x: { address: \"http://127.0.0.1:7004\", max_requests: 1 } } }";
        let snapshot = snapshot(&format!("{OTHER}, mirror: {{ percent: 100%, cluster: d }} }}, {bounded}"));
        let first = target(&snapshot).expect("a place");
        assert_eq!((first.cluster.name.as_str(), first.member.destination.id.as_str()), ("d", "x"));
        assert_eq!(drawn(&snapshot), Err(Mirrored::DroppedFull));
        drop(first);
        assert_eq!(drawn(&snapshot), Ok("x".into()));
    }

    #[test]
    fn given_two_answers_when_both_are_told_then_they_are_compared_whichever_was_first() {
        let cases = [((200, 5), "same"), ((500, 5), "status"), ((200, 6), "length")];
        for ((status, length), result) in cases {
            for mirror_first in [false, true] {
                let metrics = crate::observe::Metrics::new();
                let comparison = Comparison { first: Mutex::new(None), metrics: metrics.mirror("c") };
                let mut answers = [Answer { status: 200, length: 5 }, Answer { status, length }];
                if mirror_first {
                    answers.reverse();
                }
                comparison.tell(answers[0]);
                let line = format!("derbent_mirror_compared_total{{cluster=\"c\",result=\"{result}\"}} ");
                assert!(metrics.render().contains(&format!("{line}0\n")));
                comparison.tell(answers[1]);
                assert!(metrics.render().contains(&format!("{line}1\n")), "{result}");
            }
        }
    }
}
