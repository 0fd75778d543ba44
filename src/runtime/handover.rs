//! What survives an upgrade: one process writes what its clusters know of health, and its successor goes on with it. Of each
//! thing, what [`Standing::saved`](crate::health::Standing) and the canary's room say; the table of judges stands there.
//!
//! | of | stays while | else |
//! |---|---|---|
//! | a destination's marks, penalty, breaker, orders, slow start | cluster, id, address and role are unchanged | begins anew |
//! | a canary's cool-down and ordered share | the cluster's name is there, and it has a canary | begins anew |
//! | a panic, the places of ejections | by the marks that stay | |
//! | counts of attempts, balancing, budgets, turns, what detectors have counted, sessions' keys, metrics | | begin anew; keys in cookies bind on |
//!
//! The document has a version, [`VERSION`], which is to be another as soon as anything in it means something else; one of another
//! version is not read further, and one that is not exactly of this form changes nothing at all.

use super::canary::SavedCanary;
use super::{Cluster, Snapshot};
use crate::health::Saved;
use crate::model::{Destination, Member};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

pub const VERSION: u32 = 1;

/// What the clusters of one process know of health.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Handover {
    version: u32,
    clusters: Vec<SavedCluster>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SavedCluster {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    canary: Option<SavedCanary>,
    destinations: Vec<SavedDestination>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SavedDestination {
    id: String,
    address: String,
    socket: SocketAddr,
    role: String,
    health: Saved,
}

/// All that is asked of a document that may be of any version.
#[derive(Deserialize)]
struct Head {
    version: u32,
}

/// What became of a document, for people.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Resumed {
    pub destinations: usize,
    /// `cluster/destination (judges)` of those that are out.
    pub out: Vec<String>,
    /// Of the document, but not here.
    pub unknown: usize,
}

/// So many of those that are out are named.
const NAMED: usize = 20;

/// `12 destinations, 2 of them out: app/a (passive), app/b (operator); 1 is not here any more`
impl fmt::Display for Resumed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (known, out) = (self.destinations, self.out.len());
        write!(f, "{known} destination{}, {out} of them out", if known == 1 { "" } else { "s" })?;
        if out > 0 {
            write!(f, ": {}", self.out[..out.min(NAMED)].join(", "))?;
        }
        if out > NAMED {
            write!(f, " and {} more", out - NAMED)?;
        }
        match self.unknown {
            0 => Ok(()),
            1 => f.write_str("; 1 is not here any more"),
            more => write!(f, "; {more} are not here any more"),
        }
    }
}

impl Handover {
    pub(super) fn of(snapshot: &Snapshot, now: Instant) -> Self {
        let clusters = snapshot.clusters.iter().map(|cluster| SavedCluster {
            name: cluster.name.clone(),
            canary: cluster.saved_canary(now),
            destinations: cluster.members.iter().map(|member| SavedDestination::of(cluster, member, now)).collect(),
        });
        Handover { version: VERSION, clusters: clusters.collect() }
    }

    /// In at most so many bytes: without what only people read where it would be more otherwise.
    ///
    /// # Errors
    /// In words: it is more all the same.
    pub fn write(mut self, most: usize) -> Result<Vec<u8>, String> {
        let written = |handover: &Handover| serde_json::to_vec(handover).map_err(|fault| fault.to_string());
        let mut bytes = written(&self)?;
        if bytes.len() > most {
            let destinations = self.clusters.iter_mut().flat_map(|cluster| &mut cluster.destinations);
            destinations.for_each(|destination| destination.health.shorten());
            bytes = written(&self)?;
        }
        match bytes.len() {
            length if length > most => Err(format!("its {length} bytes are more than {most}")),
            _ => Ok(bytes),
        }
    }

    /// # Errors
    /// In words: it is of another version, or not of this form.
    pub fn read(bytes: &[u8]) -> Result<Self, String> {
        let unreadable = |fault: serde_json::Error| format!("it is unreadable: {fault}");
        match serde_json::from_slice(bytes).map_err(unreadable)? {
            Head { version: VERSION } => serde_json::from_slice(bytes).map_err(unreadable),
            Head { version } => Err(format!("it is of version {version}, and this process knows {VERSION}")),
        }
    }

    pub(super) fn resume(self, snapshot: &Snapshot, now: Instant) -> Resumed {
        let mut resumed = Resumed::default();
        for saved in self.clusters {
            let Some(cluster) = snapshot.cluster(&saved.name) else {
                resumed.unknown += saved.destinations.len();
                continue;
            };
            if let Some(canary) = &saved.canary {
                cluster.resume_canary(canary, now);
            }
            for (position, destination) in saved.destinations.into_iter().enumerate() {
                match destination.find(cluster, position) {
                    Some(member) => resumed.take(cluster, member, destination.health, now),
                    None => resumed.unknown += 1,
                }
            }
            cluster.republish();
        }
        resumed
    }
}

impl Resumed {
    fn take(&mut self, cluster: &Cluster, member: &Member, saved: Saved, now: Instant) {
        let around = cluster.around(member);
        let changes = cluster.standing(member).resume(saved, member.destination.enabled, &around, now);
        cluster.tell(member, &changes, now);
        self.destinations += 1;
        let judges: Vec<&str> = member.live.marks.reasons().map(|reason| reason.as_str()).collect();
        if !judges.is_empty() {
            self.out.push(format!("{}/{} ({})", cluster.name, member.destination.id, judges.join(", ")));
        }
    }
}

impl SavedDestination {
    fn of(cluster: &Cluster, member: &Member, now: Instant) -> Self {
        let Destination { id, endpoint, role, .. } = &*member.destination;
        let health = cluster.standing(member).saved(&member.live, now);
        SavedDestination {
            id: id.clone(),
            address: endpoint.to_string(),
            socket: endpoint.socket,
            role: role.as_str().to_string(),
            health,
        }
    }

    /// Where it was in the document it most likely is here.
    fn find<'a>(&self, cluster: &'a Cluster, position: usize) -> Option<&'a Arc<Member>> {
        let is = |member: &&Arc<Member>| {
            let Destination { id, endpoint, role, .. } = &*member.destination;
            *id == self.id
                && endpoint.socket == self.socket
                && endpoint.to_string() == self.address
                && role.as_str() == self.role
        };
        cluster.members.get(position).filter(is).or_else(|| cluster.members.iter().find(is))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health::{Attempted, Event, Order, Override};
    use crate::model::testing::request;
    use crate::model::{Dice, Outcome, Reason};
    use crate::observe::capture::lines;
    use crate::runtime::testing::compiled;
    use crate::runtime::{Arm, Runtime, Trail, draw};
    use log::LevelFilter;
    use proptest::prelude::*;
    use std::sync::LazyLock;
    use std::time::Duration;

    const FILE: &str = "listeners: { web: \"127.0.0.1:1\" }\nroutes: { all: { cluster: c } }\nclusters: { c: { destinations: { \
        a: \"http://127.0.0.1:7001\", b: \"http://127.0.0.1:7002\", n: { address: \"http://127.0.0.1:7003\", role: canary } }, \
        canary: { percent: 5%, cooldown: 10s }, health: { passive: { max_ejected: 2, detectors: [{ policy: \
        ConsecutiveFailures, failures: 1 }], reactivation: { period: 1h } } } } }\n";
    const MOST: usize = 1 << 20;

    fn runtime(text: &str) -> Runtime {
        Runtime::new(compiled(text).1)
    }

    fn cluster(runtime: &Runtime) -> Arc<Cluster> {
        runtime.pin().clusters[0].clone()
    }

    fn fail(cluster: &Cluster, index: usize, now: Instant) {
        let (member, route, latency) = (&cluster.members[index], &Arc::from("all"), Duration::from_millis(1));
        let ticket = member.live.lease(None).expect("no bound").ticket();
        let attempted = Attempted { outcome: Outcome::Refused, ticket, begun: now, route, attempt: 1, latency };
        cluster.judge(member, Event::Outcome(attempted), now);
    }

    fn order(cluster: &Cluster, index: usize, order: Order, now: Instant) {
        let by = "127.0.0.1:40312".to_string();
        cluster.judge(&cluster.members[index], Event::Operator { order, lasts: None, by }, now);
    }

    /// `a` ejected, `b` drained, the canary's share ordered; and its clock.
    fn troubled() -> (Runtime, Instant) {
        let (runtime, now) = (runtime(FILE), Instant::now());
        let cluster = cluster(&runtime);
        fail(&cluster, 0, now);
        order(&cluster, 1, Order::Override(Override::Drain), now);
        assert!(cluster.set_canary(Some(500)));
        (runtime, now)
    }

    fn document(runtime: &Runtime, now: Instant) -> String {
        String::from_utf8(runtime.hand_over(now).write(MOST).expect("small")).expect("text")
    }

    fn read(text: &str) -> Result<Handover, String> {
        Handover::read(text.as_bytes())
    }

    fn drawn(cluster: &Cluster, now: Instant) -> Vec<String> {
        let (mut trail, mut ids) = (Trail::default(), Vec::new());
        while let Ok(drawn) = draw(cluster, Arm::Primary, request(), &mut trail, now, &mut Dice::with_seed(1)) {
            trail.took(cluster, &drawn.member);
            ids.push(drawn.member.destination.id.clone());
        }
        ids
    }

    #[test]
    fn given_destinations_that_are_out_when_another_process_takes_over_then_they_stay_out_there_and_the_canary_goes_on()
    {
        let (before, now) = troubled();
        let later = now + Duration::from_secs(60);
        // A canary that failed rests.
        fail(&cluster(&before), 2, later - Duration::from_secs(4));
        before.pin().clusters[0].canary_fell(&cluster(&before).members[2], later - Duration::from_secs(4));
        let next = runtime(FILE);
        let taken = next.take_over(read(&document(&before, later)).expect("its own"), later);
        assert_eq!(taken.to_string(), "3 destinations, 3 of them out: c/a (passive), c/b (operator), c/n (passive)");
        let cluster = cluster(&next);
        assert_eq!(drawn(&cluster, later), ["a"], "a panic, which obeys the operator");
        order(&cluster, 1, Order::Ready, later);
        assert_eq!(drawn(&cluster, later), ["b"]);
        let canary = cluster.canary_view(later).expect("a canary");
        assert_eq!((canary.permille, canary.ordered, canary.rests), (500, true, Some(Duration::from_secs(6))));
        let due = |seconds| later + Duration::from_secs(seconds);
        let told = lines(LevelFilter::Info, || drop(cluster.due(due(6))));
        assert!(told.iter().any(|(_, line)| line.contains("canary")), "{told:?}");
        cluster.due(due(3_539));
        assert!(cluster.members[0].live.marks.has(Reason::Passive) && !cluster.members[0].live.marks.is_on_trial());
        cluster.due(due(3_540));
        assert!(cluster.members[0].live.marks.is_on_trial());
    }

    #[test]
    fn given_another_file_when_taken_over_then_only_the_same_destinations_go_on() {
        let (before, now) = troubled();
        let document = document(&before, now);
        let taken = |text: &str| {
            let next = runtime(text);
            let taken = next.take_over(read(&document).expect("its own"), now).to_string();
            (taken, next.pin().clusters[0].canary_view(now).map(|canary| canary.permille))
        };
        let moved =
            FILE.replace("7001", "7004").replace("canary: { percent", "load_balancing: Random, canary: { percent");
        assert_eq!(
            taken(&moved),
            ("2 destinations, 1 of them out: c/b (operator); 1 is not here any more".into(), Some(500))
        );
        let renamed = FILE.replace("cluster: c", "cluster: d").replace("{ c: {", "{ d: {");
        assert_eq!(taken(&renamed), ("0 destinations, 0 of them out; 3 are not here any more".into(), Some(50)));
        let turned = FILE.replace(
            "a: \"http://127.0.0.1:7001\", b: \"http://127.0.0.1:7002\"",
            "b: \"http://127.0.0.1:7002\", a: \"http://127.0.0.1:7001\"",
        );
        assert_eq!(taken(&turned).0, "3 destinations, 2 of them out: c/a (passive), c/b (operator)");
        let other_role =
            FILE.replace("b: \"http://127.0.0.1:7002\"", "b: { address: \"http://127.0.0.1:7002\", role: failover }");
        assert_eq!(taken(&other_role).0, "2 destinations, 1 of them out: c/a (passive); 1 is not here any more");
    }

    /// A document that was written by this version. When what it says is to be read otherwise, or a document of now looks
    /// otherwise, [`VERSION`] is another.
    const OF_VERSION_1: &str = include_str!("handover_v1.json");

    #[test]
    fn given_a_document_of_this_version_when_written_and_read_then_its_form_is_the_one_that_is_kept() {
        let (before, now) = troubled();
        let kept: serde_json::Value = serde_json::from_str(OF_VERSION_1).expect("JSON");
        let written: serde_json::Value = serde_json::from_str(&document(&before, now)).expect("JSON");
        // Times since 1970 come of when the test ran.
        assert_eq!(form(&written), form(&kept), "{written:#}");
        let next = runtime(FILE);
        let taken = next.take_over(read(OF_VERSION_1).expect("of this version"), now);
        assert_eq!(taken.to_string(), "3 destinations, 2 of them out: c/a (passive), c/b (operator)");
    }

    /// Without the values of numbers.
    fn form(value: &serde_json::Value) -> serde_json::Value {
        use serde_json::Value;
        match value {
            Value::Object(fields) => fields.iter().map(|(key, value)| (key.clone(), form(value))).collect(),
            Value::Array(values) => values.iter().map(form).collect(),
            Value::Number(_) => "a number".into(),
            other => other.clone(),
        }
    }

    #[test]
    fn given_a_document_that_is_not_exactly_of_this_version_when_read_then_it_is_refused_in_words() {
        let refused = |text: &str, why: &str| {
            let told = read(text).expect_err("refused");
            assert!(told.starts_with(why), "{told}");
        };
        let other = |from: &str, to: &str| {
            let text = OF_VERSION_1.replacen(from, to, 1);
            assert_ne!(text, OF_VERSION_1, "{from}");
            text
        };
        refused(&other("\"version\": 1", "\"version\": 2"), "it is of version 2, and this process knows 1");
        refused("{\"version\":7,\"anything\":[{}]}", "it is of version 7");
        refused("{\"clusters\":[]}", "it is unreadable: missing field `version`");
        refused("", "it is unreadable: EOF");
        refused(&OF_VERSION_1[..OF_VERSION_1.len() / 2], "it is unreadable: EOF");
        refused(&"[".repeat(100_000), "it is unreadable");
        refused(&other("\"unprobed\"", "\"unproven\""), "it is unreadable: unknown field `unproven`");
        refused(&other("\"ejected\"", "\"evicted\""), "it is unreadable: unknown variant `evicted`");
        refused(&other("\"penalty\": 1.0", "\"penalty\": 1e300"), "it is unreadable: ");
        refused(&other("\"penalty\": 1.0", "\"penalty\": 0.5"), "it is unreadable: 0.5 is no penalty");
        refused(
            &other("\"since\": 0", "\"since\": 18446744073709551615"),
            "it is unreadable: more than a hundred years",
        );
        refused(&other("\"known\": ", "\"known\": 1, \"was\": "), "it is unreadable: ");
    }

    #[test]
    fn given_many_destinations_when_written_then_within_bounds_or_refused_and_what_decides_is_never_left_out() {
        let (before, now) = troubled();
        let whole = document(&before, now).len();
        let short = before.hand_over(now).write(whole - 1).expect("less of it");
        assert!(short.len() < whole);
        let next = runtime(FILE);
        assert_eq!(next.take_over(Handover::read(&short).expect("its own"), now).out.len(), 2);
        let refused = before.hand_over(now).write(short.len() - 1);
        assert_eq!(refused, Err(format!("its {} bytes are more than {}", short.len(), short.len() - 1)));
    }

    #[test]
    fn given_a_great_many_that_are_out_when_told_then_some_are_named() {
        let out = (0..23).map(|n| format!("c/{n} (active)")).collect();
        let told = Resumed { destinations: 23, out, unknown: 0 }.to_string();
        assert!(told.ends_with(", c/19 (active) and 3 more"), "{told}");
    }

    proptest! {
        #[test]
        fn given_a_mangled_document_when_read_then_no_panic_whatever_it_says(
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
            cut in any::<prop::sample::Index>(),
            kind in 0u8..3,
        ) {
            static COMPACT: LazyLock<String> = LazyLock::new(|| {
                serde_json::from_str::<serde_json::Value>(OF_VERSION_1).expect("JSON").to_string()
            });
            let mut bytes = COMPACT.clone().into_bytes();
            for (at, byte) in changes {
                let at = at.index(bytes.len());
                match kind {
                    // Still text, and often still JSON: digits stay digits.
                    0 if bytes[at].is_ascii_digit() => bytes[at] = b'0' + byte % 10,
                    0 => {}
                    1 => bytes[at] = byte,
                    _ => bytes.truncate(cut.index(bytes.len())),
                }
                if bytes.is_empty() {
                    break;
                }
            }
            let (next, now) = (runtime(FILE), Instant::now());
            match Handover::read(&bytes) {
                Err(_) => prop_assert_eq!(drawn(&cluster(&next), now).len(), 2),
                Ok(read) => {
                    next.take_over(read, now);
                    let cluster = cluster(&next);
                    cluster.due(now + Duration::from_secs(4_000));
                    (0..3).for_each(|index| order(&cluster, index, Order::Ready, now));
                    (0..3).for_each(|index| fail(&cluster, index, now));
                    drawn(&cluster, now);
                    next.hand_over(now + Duration::from_secs(5_000)).write(MOST).expect("it can be written again");
                }
            }
        }
    }
}
