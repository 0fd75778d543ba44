//! What survives a reload. A new snapshot is compiled beside the one that serves and shares with it, from the start, what
//! stays; nothing of that changes until [`succeed`] makes it the one that serves.
//!
//! | of | stays while | else |
//! |---|---|---|
//! | a cluster's panic, places for ejections, count of attempts | its name is there | begins anew |
//! | a destination's marks, penalty, breaker, orders, evidence, latency, attempts in progress | cluster, id and address are unchanged | begins anew |
//! | a detector's history | its parameters are unchanged | begins anew |
//! | the breaker's window | its length is unchanged | begins anew |
//! | an ejection's end, a circuit's | the judge is there | the mark is lifted |
//! | a probe's time | address and check are unchanged | the first probe is due at once |
//! | metrics | the names are there | leave the page |

use super::cluster::{Kept, SharedStanding};
use super::{Cluster, Snapshot};
use crate::model::{Destination, Live, Member};
use std::sync::{Arc, PoisonError};
use std::time::Instant;

/// What became of a snapshot's destinations in the next: `cluster/destination` each, in the files' order.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Carried {
    pub kept: Vec<String>,
    /// The same name at another address.
    pub reset: Vec<String>,
    pub added: Vec<String>,
    pub dropped: Vec<String>,
}

/// What a new cluster takes over from the one of its name.
pub(super) struct Inherited<'a>(pub Option<&'a Arc<Cluster>>);

impl Inherited<'_> {
    pub fn kept(&self) -> Arc<Kept> {
        self.0.map_or_else(Arc::default, |old| old.kept.clone())
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
        other.destination.id == destination.id && other.destination.endpoint == destination.endpoint
    };
    cluster.members.iter().find(is)
}

/// Makes `new` ready to follow `old`: settings are adopted, and who left gives its place back. To be called right before it is
/// swapped in; [`publish`] right after.
pub(super) fn succeed(old: &Snapshot, new: &Snapshot, now: Instant) -> Carried {
    let mut carried = Carried::default();
    for cluster in &new.clusters {
        let before = old.cluster(&cluster.name);
        cluster.kept.cap.set_limit(cluster.most_ejected);
        for member in &cluster.members {
            let name = format!("{}/{}", cluster.name, member.destination.id);
            let found = before.and_then(|before| same(before, &member.destination));
            let mut standing = cluster.standing(member);
            match found {
                Some(_) => {
                    let changes = standing.adopt(cluster.settings.clone(), &cluster.around(member), now);
                    drop(standing);
                    cluster.tell(member, &changes, now);
                    carried.kept.push(name);
                }
                None => {
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
    for cluster in &old.clusters {
        let after = new.cluster(&cluster.name);
        for member in &cluster.members {
            if after.is_some_and(|after| same(after, &member.destination).is_some()) {
                continue;
            }
            let standing = &cluster.standings[member.index];
            standing.lock().unwrap_or_else(PoisonError::into_inner).retire(&cluster.kept.cap);
            let stays = |after: &Arc<Cluster>| after.members.iter().any(|m| m.destination.id == member.destination.id);
            if !after.is_some_and(stays) {
                carried.dropped.push(format!("{}/{}", cluster.name, member.destination.id));
            }
        }
    }
    carried
}

/// Derives every available set anew: what was marked while the new snapshot was made is seen here at the latest.
pub(super) fn publish(new: &Snapshot) {
    for cluster in &new.clusters {
        cluster.kept.current.store(Arc::new(Arc::downgrade(cluster)));
        cluster.republish();
    }
}
