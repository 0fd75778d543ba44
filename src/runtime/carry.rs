//! What survives a reload. A new snapshot is compiled beside the one that serves and shares with it, from the start, what
//! stays; nothing of that changes until [`succeed`] makes it the one that serves. What survives an upgrade is
//! [`super::handover`]'s to say.
//!
//! | of | stays while | else |
//! |---|---|---|
//! | a cluster's panic, places for ejections, count of attempts, canary's turns, cool-down and ordered share | its name is there | begins anew |
//! | a destination's marks, penalty, breaker, orders, evidence, latency, attempts in progress | cluster, id, address and role are unchanged | begins anew |
//! | a detector's history | its parameters are unchanged | begins anew |
//! | the breaker's window | its length is unchanged | begins anew |
//! | an ejection's end, a circuit's | the judge is there, and of an ejection the destination enabled | the mark is lifted |
//! | a split's turn | the route's name, the clusters and their weights are unchanged | begins anew |
//! | a probe's time | address and check are unchanged | the first probe is due at once |
//! | metrics | the names are there | leave the page |

use super::cluster::{Kept, SharedStanding};
use super::{Cluster, Snapshot};
use crate::model::{Destination, Live, Member, Reason};
use crate::observe::AdminState;
use std::fmt;
use std::sync::{Arc, PoisonError};
use std::time::Instant;

/// What became of a snapshot's destinations in the next: `cluster/destination` each, in the files' order.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Carried {
    pub kept: Vec<String>,
    /// The same name at another address, or in another role.
    pub reset: Vec<String>,
    pub added: Vec<String>,
    pub dropped: Vec<String>,
}

/// So many of each list are named.
const NAMED: usize = 20;

/// `2 destinations kept (app/a, app/b), 1 reset (app/c), 0 added, 0 dropped`
impl fmt::Display for Carried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kept = if self.kept.len() == 1 { "destination kept" } else { "destinations kept" };
        let lists = [(kept, &self.kept), ("reset", &self.reset), ("added", &self.added), ("dropped", &self.dropped)];
        for (index, (what, names)) in lists.into_iter().enumerate() {
            write!(f, "{}{} {what}", if index == 0 { "" } else { ", " }, names.len())?;
            let named = names[..names.len().min(NAMED)].join(", ");
            match names.len().saturating_sub(NAMED) {
                _ if names.is_empty() => {}
                0 => write!(f, " ({named})")?,
                more => write!(f, " ({named} and {more} more)")?,
            }
        }
        Ok(())
    }
}

/// What a new cluster takes over from the one of its name.
pub(super) struct Inherited<'a>(pub Option<&'a Arc<Cluster>>);

impl Inherited<'_> {
    pub fn kept(&self, now: Instant) -> Arc<Kept> {
        self.0.map_or_else(|| Arc::new(Kept::new(now)), |old| old.kept.clone())
    }

    /// The live state and the standing of the very same destination.
    pub fn destination(&self, destination: &Destination) -> Option<(Arc<Live>, SharedStanding)> {
        let old = self.0?;
        let member = same(old, destination)?;
        Some((member.live.clone(), old.standings[member.index].clone()))
    }
}

fn same<'a>(cluster: &'a Cluster, destination: &Destination) -> Option<&'a Arc<Member>> {
    let is = |other: &&Arc<Member>| {
        other.destination.id == destination.id
            && other.destination.endpoint == destination.endpoint
            && other.destination.role == destination.role
    };
    cluster.members.iter().find(is)
}

/// Makes `new` ready to follow `old`: settings are adopted, and who left gives its place back. [`publish`] comes next, then it
/// is swapped in.
pub(super) fn succeed(old: &Snapshot, new: &Snapshot, now: Instant) -> Carried {
    let mut carried = Carried::default();
    for cluster in &new.clusters {
        let before = old.cluster(&cluster.name);
        cluster.kept.caps.set_limits(cluster.most_ejected);
        for member in &cluster.members {
            let name = format!("{}/{}", cluster.name, member.destination.id);
            let found = before.and_then(|before| same(before, &member.destination));
            let mut standing = cluster.standing(member);
            match found {
                Some(_) => {
                    let around = cluster.around(member);
                    let mut changes = standing.adopt(cluster.settings.clone(), &around, now);
                    if !member.destination.enabled {
                        changes.extend(standing.disable(&around, now));
                    }
                    drop(standing);
                    cluster.tell(member, &changes, now);
                    carried.kept.push(name);
                }
                None => {
                    let metrics = cluster.destination_metrics(member);
                    // Another of its name may have been there.
                    metrics.set_ejected(false);
                    metrics.set_admin_state(AdminState::Ready);
                    if before.is_some() {
                        standing.start_ramp(&member.live, now);
                    }
                    let known =
                        |old: &Arc<Cluster>| old.members.iter().any(|m| m.destination.id == member.destination.id);
                    let list = if before.is_some_and(known) { &mut carried.reset } else { &mut carried.added };
                    list.push(name);
                }
            }
        }
    }
    for (cluster, member) in gone(old, new) {
        let standing = &cluster.standings[member.index];
        standing.lock().unwrap_or_else(PoisonError::into_inner).retire(cluster.kept.cap(member));
        // Requests of the snapshots before pass it over while another is left to them.
        member.live.marks.set(Reason::Operator, true);
        let stays = |after: &Arc<Cluster>| after.members.iter().any(|m| m.destination.id == member.destination.id);
        if !new.cluster(&cluster.name).is_some_and(stays) {
            carried.dropped.push(format!("{}/{}", cluster.name, member.destination.id));
        }
    }
    carried
}

/// The destinations of `old` that are not in `new`, or at another address or in another role: with their live state.
pub(super) fn gone<'a>(
    old: &'a Snapshot,
    new: &'a Snapshot,
) -> impl Iterator<Item = (&'a Arc<Cluster>, &'a Arc<Member>)> {
    let stays = |cluster: &Cluster, member: &Member| {
        new.cluster(&cluster.name).is_some_and(|c| same(c, &member.destination).is_some())
    };
    let all = old.clusters.iter().flat_map(|cluster| cluster.members.iter().map(move |member| (cluster, member)));
    all.filter(move |(cluster, member)| !stays(cluster, member))
}

/// Now that `new` serves: who waits for a place of what is gone looks elsewhere.
pub(super) fn dismiss(old: &Snapshot, new: &Snapshot) {
    for cluster in old.clusters.iter().filter(|cluster| new.cluster(&cluster.name).is_none()) {
        cluster.kept.current.store(Arc::default());
        cluster.line().freed();
    }
    gone(old, new).for_each(|(_, member)| member.live.bound.freed());
}

/// Derives every available set: what was marked while the new snapshot was made is seen here, and what is marked from here on is
/// published in the new one.
pub(super) fn publish(new: &Snapshot) {
    for cluster in &new.clusters {
        cluster.serve();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Problems, Role};
    use crate::discovery::SystemNames;
    use crate::health::Event;
    use crate::model::testing::request;
    use crate::model::{Dice, Epoch, Lease, Outcome, WHOLE};
    use crate::observe::Metrics;
    use crate::runtime::{Arm, Registry, Report, Runtime, Scene, Trail, compile, draw};
    use std::time::{Duration, SystemTime};

    const AB: &str = "destinations: { a: \"http://127.0.0.1:1\", b: \"http://127.0.0.1:2\" }";
    /// Three failures in a row eject, for an hour.
    const IN_A_ROW: &str =
        "passive: { detectors: [{ policy: ConsecutiveFailures, failures: 3 }], reactivation: { period: 1h } }";

    /// A runtime whose time the test makes.
    struct Case {
        runtime: Runtime,
        metrics: Metrics,
        now: Instant,
    }

    impl Case {
        /// Cluster `c` of these keys.
        fn new(cluster: &str) -> Self {
            let (metrics, now) = (Metrics::new(), Instant::now());
            let snapshot = compiled(cluster, &metrics, now, None).expect("no faults");
            Case { runtime: Runtime::new(snapshot), metrics, now }
        }

        fn reload(&self, cluster: &str) -> Result<Carried, Problems> {
            let compile = |serving: &Snapshot| compiled(cluster, &self.metrics, self.now, Some(serving));
            self.runtime.reload(compile, || self.now)
        }

        fn reloaded(&self, cluster: &str) -> String {
            self.reload(cluster).unwrap_or_else(|faults| panic!("{faults}")).to_string()
        }

        fn cluster(&self) -> Arc<Cluster> {
            self.runtime.pin().clusters[0].clone()
        }

        fn probe(&self, id: &str, passed: bool) {
            let (cluster, begun) = (self.cluster(), self.now);
            cluster.judge(member(&cluster, id), Event::Probe { passed, cause: "".into(), begun }, self.now);
        }

        fn fail(&self, id: &str) {
            let cluster = self.cluster();
            let member = member(&cluster, id);
            let lease = member.live.lease(None).expect("no bound");
            concluded(&cluster, member, lease, Outcome::Refused, self.now);
        }

        /// Who may be drawn now.
        fn drawn(&self) -> String {
            let (cluster, mut trail) = (self.cluster(), Trail::default());
            let mut ids = String::new();
            while let Ok(drawn) = draw(&cluster, Arm::Primary, request(), &mut trail, self.now, &mut Dice::with_seed(1))
            {
                trail.took(&cluster, &drawn.member);
                ids += &drawn.member.destination.id;
            }
            let mut ids: Vec<char> = ids.chars().collect();
            ids.sort_unstable();
            ids.into_iter().collect()
        }

        fn has(&self, line: &str) -> bool {
            self.metrics.render().contains(&format!("\nderbent_{line}\n"))
        }
    }

    fn compiled(
        cluster: &str,
        metrics: &Metrics,
        now: Instant,
        serving: Option<&Snapshot>,
    ) -> Result<Snapshot, Problems> {
        let text = format!(
            "listeners: {{ web: \"127.0.0.1:9\" }}\nroutes: {{ all: {{ cluster: c }} }}\nclusters: {{ c: {{ {cluster} }} }}\n"
        );
        let config = Config::parse("test", &text).unwrap_or_else(|faults| panic!("{faults}"));
        let epoch = Epoch { instant: now, wall: SystemTime::UNIX_EPOCH };
        let scene = Scene { registry: &Registry::builtin(), names: &SystemNames, metrics, epoch, serving };
        compile(&config, &scene, config.problems())
    }

    fn member<'a>(cluster: &'a Cluster, id: &str) -> &'a Arc<Member> {
        cluster.members.iter().find(|member| member.destination.id == id).expect("a destination")
    }

    fn concluded(cluster: &Cluster, member: &Member, lease: Lease, outcome: Outcome, now: Instant) {
        let (route, ticket, waited) = (&Arc::from("all"), lease.ticket(), Duration::ZERO);
        cluster.report(member, &Report { outcome, ticket, begun: now, route, attempt: 1, detail: "", waited }, now);
    }

    #[test]
    fn given_destinations_when_reloaded_then_what_became_of_each_is_told() {
        let case = Case::new(
            "destinations: { a: \"http://127.0.0.1:1\", b: \"http://127.0.0.1:2\", c: \"http://127.0.0.1:3\" }",
        );
        let next = "destinations: { d: \"http://127.0.0.1:4\", b: \"http://127.0.0.1:20\", \
                    a: { address: \"http://127.0.0.1:1\", weight: 7 } }";
        assert_eq!(case.reloaded(next), "1 destination kept (c/a), 1 reset (c/b), 1 added (c/d), 1 dropped (c/c)");
        let many: Vec<String> = (0..30).map(|i| format!("d{i}: \"http://127.0.0.1:{}\"", 100 + i)).collect();
        let told = case.reloaded(&format!("destinations: {{ {} }}", many.join(", ")));
        assert!(told.starts_with("0 destinations kept, 0 reset, 30 added (c/d0, ") && told.len() < 300, "{told}");
        assert!(told.ends_with(", c/d19 and 10 more), 3 dropped (c/d, c/b, c/a)"), "{told}");
    }

    #[test]
    fn given_a_destination_that_is_out_when_all_else_changes_then_it_stays_out_and_at_another_address_it_begins_anew() {
        let with = |b: &str, more: &str| {
            format!(
                "destinations: {{ a: \"http://127.0.0.1:1\", b: {b} }}, health: {{ active: tcp, {IN_A_ROW} }}, {more}"
            )
        };
        let case = Case::new(&with("\"http://127.0.0.1:2\"", ""));
        (0..3).for_each(|_| case.fail("b"));
        (0..2).for_each(|_| case.probe("b", false));
        let ejected = |value| format!("destination_ejected{{cluster=\"c\",destination=\"b\"}} {value}");
        assert!(case.drawn() == "a" && case.has(&ejected(1)));
        let changed = with(
            "{ address: \"http://127.0.0.1:2\", weight: 3, metadata: { Zone: x } }",
            "load_balancing: Random, slow_start: 1m",
        );
        case.reloaded(&changed);
        assert!(case.drawn() == "a" && case.has(&ejected(1)));
        let reasons: Vec<Reason> = member(&case.cluster(), "b").live.marks.reasons().collect();
        assert_eq!(reasons, [Reason::Active, Reason::Passive]);
        let before = case.cluster();
        case.reloaded(&with("\"http://127.0.0.1:3\"", ""));
        assert_eq!((case.drawn().as_str(), case.cluster().kept.caps.of(Role::Primary).taken()), ("ab", 0));
        assert!(case.has(&ejected(0)));
        // What was begun at the old address says nothing of the new one.
        let old = member(&before, "b");
        (0..9).for_each(|_| {
            concluded(&before, old, old.live.lease(None).expect("no bound"), Outcome::Refused, case.now);
        });
        assert_eq!((case.drawn().as_str(), case.cluster().kept.caps.of(Role::Primary).taken()), ("ab", 0));
    }

    #[test]
    fn given_a_detector_when_its_settings_stay_then_its_history_does_and_else_it_begins_anew() {
        let with = |failures: u8, weight: u8| {
            format!(
                "{}, health: {{ {} }}",
                AB.replace(
                    "b: \"http://127.0.0.1:2\"",
                    &format!("b: {{ address: \"http://127.0.0.1:2\", weight: {weight} }}")
                ),
                IN_A_ROW.replace("failures: 3", &format!("failures: {failures}"))
            )
        };
        let case = Case::new(&with(3, 1));
        (0..2).for_each(|_| case.fail("b"));
        case.reloaded(&with(3, 2));
        assert_eq!(case.drawn(), "ab");
        case.fail("b");
        assert_eq!(case.drawn(), "a");
        let case = Case::new(&with(3, 1));
        (0..2).for_each(|_| case.fail("b"));
        case.reloaded(&with(2, 1));
        case.fail("b");
        assert_eq!(case.drawn(), "ab");
        case.fail("b");
        assert_eq!(case.drawn(), "a");
    }

    #[test]
    fn given_requests_of_an_older_snapshot_when_they_end_then_the_one_that_serves_follows_and_no_count_is_left() {
        let cluster = format!("{AB}, health: {{ {IN_A_ROW} }}");
        let case = Case::new(&cluster);
        let old = case.cluster();
        let leases: Vec<Lease> = (0..3).map(|_| member(&old, "b").live.lease(None).expect("no bound")).collect();
        case.reloaded(&cluster);
        let live = member(&case.cluster(), "b").live.clone();
        assert_eq!((live.in_flight(), live.cluster_in_flight()), (3, 3));
        for lease in leases {
            concluded(&old, member(&old, "b"), lease, Outcome::Refused, case.now);
        }
        assert_eq!(case.drawn(), "a");
        assert_eq!((live.in_flight(), live.cluster_in_flight()), (0, 0));
        assert!(case.has("cluster_destinations{cluster=\"c\",state=\"ejected\"} 1"));
    }

    #[test]
    fn given_reloads_when_the_last_request_of_a_snapshot_ended_then_nothing_of_it_is_left() {
        let case = Case::new(AB);
        let request = case.runtime.pin();
        let (snapshot, cluster) = (Arc::downgrade(&request), Arc::downgrade(&request.clusters[0]));
        for _ in 0..3 {
            case.reloaded(AB);
        }
        assert!(snapshot.upgrade().is_some());
        drop(request);
        assert!(snapshot.upgrade().is_none() && cluster.upgrade().is_none());
        let (between, name) = (Arc::downgrade(&case.runtime.pin()), "destination=\"b\"");
        assert!(case.metrics.render().contains(name));
        case.reloaded("destinations: { a: \"http://127.0.0.1:1\" }");
        assert!(between.upgrade().is_none() && !case.metrics.render().contains(name));
    }

    #[test]
    fn given_reloads_when_who_waits_looks_at_what_serves_at_any_time_then_its_set_is_there() {
        let many: Vec<String> = (0..300).map(|i| format!("d{i}: \"http://127.0.0.1:{}\"", 100 + i)).collect();
        let many = format!("destinations: {{ {} }}", many.join(", "));
        let case = Case::new(&many);
        let (waits, over) = (case.cluster(), std::sync::atomic::AtomicBool::new(false));
        std::thread::scope(|scope| {
            let looks = scope.spawn(|| {
                let is_over = || over.load(std::sync::atomic::Ordering::Relaxed);
                std::iter::from_fn(|| (!is_over()).then(|| waits.serving().expect("its name is there")))
                    .filter(|serving| serving.published().primaries.set.is_empty())
                    .count()
            });
            (0..100).for_each(|_| drop(case.reloaded(&many)));
            over.store(true, std::sync::atomic::Ordering::Relaxed);
            assert_eq!(looks.join().expect("a thread"), 0);
        });
    }

    #[test]
    fn given_a_faulty_file_when_reloaded_then_nothing_at_all_changed() {
        let more = "slow_start: 10s, health: { active: tcp }";
        let case = Case::new(&format!("{AB}, {more}"));
        (0..2).for_each(|_| case.probe("b", false));
        case.probe("b", true);
        let before = case.runtime.pin();
        let shares = || case.cluster().members.iter().map(|member| member.live.share()).collect::<Vec<_>>();
        assert_eq!(shares(), [WHOLE, 1]);
        let set = case.cluster().published().clone();
        // Alone, it would have its whole share; and its file is not there.
        let faulty = "destinations: { b: \"http://127.0.0.1:2\" }, connection: { tls: { ca: /nowhere/ca.pem } }";
        let faults = case.reload(&format!("{faulty}, {more}")).expect_err("a fault").to_string();
        assert!(faults.contains("cannot read /nowhere/ca.pem"), "{faults}");
        assert_eq!(shares(), [WHOLE, 1]);
        assert!(Arc::ptr_eq(&before, &case.runtime.pin()));
        assert!(Arc::ptr_eq(&set, &case.cluster().published()));
    }

    #[test]
    fn given_a_new_destination_when_it_joins_then_its_share_grows_and_those_that_stay_keep_theirs() {
        let mut case = Case::new(&format!("{AB}, slow_start: 10s"));
        case.reloaded("slow_start: 10s, destinations: { a: \"http://127.0.0.1:1\", b: \"http://127.0.0.1:2\", n: \"http://127.0.0.1:3\" }");
        let shares = |case: &Case| case.cluster().members.iter().map(|member| member.live.share()).collect::<Vec<_>>();
        assert_eq!(shares(&case), [WHOLE, WHOLE, 1]);
        case.now += Duration::from_secs(5);
        case.cluster().due(case.now);
        assert_eq!(shares(&case), [WHOLE, WHOLE, 5]);
        case.now += Duration::from_secs(5);
        case.cluster().due(case.now);
        assert_eq!(shares(&case), [WHOLE, WHOLE, WHOLE]);
    }

    #[test]
    fn given_an_ejected_destination_when_it_is_disabled_then_its_place_is_free_for_others() {
        let with = |a: &str| {
            format!(
                "destinations: {{ a: {{ address: \"http://127.0.0.1:1\", enabled: {a} }}, b: \"http://127.0.0.1:2\", c: \"http://127.0.0.1:3\" }}, health: {{ {IN_A_ROW} }}"
            )
        };
        let case = Case::new(&with("true"));
        (0..3).for_each(|_| case.fail("a"));
        assert_eq!((case.drawn().as_str(), case.cluster().kept.caps.of(Role::Primary).taken()), ("bc", 1));
        case.reloaded(&with("false"));
        assert_eq!((case.drawn().as_str(), case.cluster().kept.caps.of(Role::Primary).taken()), ("bc", 0));
        (0..3).for_each(|_| case.fail("b"));
        assert_eq!((case.drawn().as_str(), case.cluster().kept.caps.of(Role::Primary).taken()), ("c", 1));
        case.reloaded(&with("true"));
        assert_eq!(case.drawn(), "ac");
    }

    #[test]
    fn given_a_graded_panic_when_reloaded_after_a_long_time_then_shares_go_on_to_follow_what_is_served() {
        let graded = format!(
            "{AB}, health: {{ {}, available: {{ policy: Panic, enter_below: 100% }} }}",
            IN_A_ROW.replace("passive: {", "passive: { max_ejected: 2,")
        );
        let mut case = Case::new(&graded);
        (0..3).for_each(|_| case.fail("b"));
        let share = |case: &Case| member(&case.cluster(), "b").live.share();
        assert_eq!(share(&case), 1);
        case.now += Duration::from_secs(600);
        case.cluster().due(case.now);
        case.reloaded(&graded);
        member(&case.cluster(), "b").live.set_recent(7);
        case.now += Duration::from_secs(2);
        case.cluster().due(case.now);
        assert_eq!(share(&case), 7);
    }

    #[test]
    fn given_a_judge_that_is_gone_when_reloaded_then_whom_it_kept_out_serves_at_once() {
        let case = Case::new(&format!("{AB}, health: {{ active: tcp }}"));
        (0..2).for_each(|_| case.probe("b", false));
        assert_eq!(case.drawn(), "a");
        case.reloaded(AB);
        assert_eq!(case.drawn(), "ab");
    }
}
