//! Destinations on their leave: a reload removed or disabled them, or the operator drains them or has them in maintenance. They get
//! no new requests; that is [`super::draw()`]'s doing. Here is told what is left of them, and when nothing is in progress their idle
//! connections are ended: they need not wait for their idle time, and the destination sees that nobody will come.
//!
//! | a destination | leaves this list |
//! |---|---|
//! | that a reload removed, or gave another address or role | when nothing is left of it, nor a request that may still know it |
//! | that is disabled, drained or in maintenance | when it serves again |
//!
//! Time comes in, and so does what ends a connection.

use super::Snapshot;
use crate::model::Member;
use crate::observe::{Departure, Parting, event};
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A destination that its sessions may still ask is let go when none of them did for so long.
const QUIET: Duration = Duration::from_secs(5);

/// All that are on their leave.
#[derive(Default)]
pub(super) struct Leaving(Mutex<Vec<Leaver>>);

struct Leaver {
    cluster: String,
    member: Arc<Member>,
    why: Parting,
    since: Instant,
    /// Its sessions go on.
    asked: bool,
    /// Nothing has been in progress since.
    quiet: Option<Instant>,
    told: Told,
    /// The last look found it so.
    seen: bool,
}

/// What was told of it.
#[derive(PartialEq)]
enum Told {
    /// There was nothing left of it yet that one would have to wait for.
    Nothing,
    Leaves,
    HasLeft,
}

impl Leaving {
    /// A reload does away with it.
    pub fn removed(&self, cluster: &str, member: &Arc<Member>, now: Instant) {
        self.note(cluster, member, (Parting::Removed, false), now);
    }

    /// Lists who begins to leave, lets go of who may go, and tells both.
    pub fn look(&self, serving: &Snapshot, now: Instant, mut end: impl FnMut(RawFd)) {
        for cluster in &serving.clusters {
            for member in &cluster.members {
                if let Some(why) = parting(member) {
                    let asked = why == Parting::Drained && cluster.sessions.is_some();
                    self.note(&cluster.name, member, (why, asked), now);
                }
            }
        }
        self.lock().retain_mut(|leaver| leaver.goes_on(now, &mut end));
    }

    fn note(&self, cluster: &str, member: &Arc<Member>, (why, asked): (Parting, bool), now: Instant) {
        let mut all = self.lock();
        let known = all.iter_mut().find(|leaver| leaver.is(member));
        match known {
            // The snapshot that says something else is no longer the one that serves.
            Some(known) if known.why == Parting::Removed => {}
            Some(known) => {
                if known.why != why && known.told == Told::HasLeft {
                    // It may have served in between, unseen: it leaves once more.
                    (known.told, known.since, known.quiet) = (Told::Nothing, now, None);
                }
                (known.why, known.asked, known.seen) = (why, asked, true);
            }
            None => all.push(Leaver {
                cluster: cluster.to_owned(),
                member: member.clone(),
                why,
                since: now,
                asked,
                quiet: None,
                told: Told::Nothing,
                seen: true,
            }),
        }
    }

    /// Those of whom something is left, and who did not come back since the last look.
    pub fn shown(&self, serving: &Snapshot) -> Vec<Departure> {
        let parts = |leaver: &Leaver| {
            let mut members = serving.clusters.iter().flat_map(|cluster| &cluster.members);
            members.any(|member| leaver.is(member) && parting(member).is_some())
        };
        let shown = |leaver: &&Leaver| leaver.is_busy() && (leaver.why == Parting::Removed || parts(leaver));
        self.lock().iter().filter(shown).map(Leaver::departure).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Leaver>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why a destination that is there is on its leave.
fn parting(member: &Member) -> Option<Parting> {
    match () {
        () if !member.destination.enabled => Some(Parting::Disabled),
        () if member.live.in_maintenance() => Some(Parting::Maintenance),
        () if member.live.is_draining() => Some(Parting::Drained),
        () => None,
    }
}

impl Leaver {
    fn is(&self, member: &Member) -> bool {
        Arc::ptr_eq(&self.member.live, &member.live)
    }

    /// Whether it stays on the list.
    fn goes_on(&mut self, now: Instant, end: impl FnMut(RawFd)) -> bool {
        let removed = self.why == Parting::Removed;
        if !removed && !std::mem::take(&mut self.seen) {
            if self.told == Told::Leaves {
                event::stays(&self.departure());
            }
            return false;
        }
        if self.told == Told::Nothing && self.is_busy() {
            self.told = Told::Leaves;
            event::leaves(&self.departure());
        }
        self.let_go(now, end);
        if self.told == Told::Leaves && !self.is_busy() {
            self.told = Told::HasLeft;
            event::has_left(&self.departure(), now.saturating_duration_since(self.since));
        }
        !removed || self.is_busy() || self.is_known()
    }

    fn let_go(&mut self, now: Instant, end: impl FnMut(RawFd)) {
        let live = &self.member.live;
        if live.in_use() > 0 {
            self.quiet = None;
        } else if live.sockets.count() > 0 {
            let quiet = now.saturating_duration_since(*self.quiet.get_or_insert(now));
            if !self.asked || quiet >= QUIET {
                live.end_idle_connections(end);
            }
        }
    }

    fn is_busy(&self) -> bool {
        self.member.live.in_use() > 0 || self.member.live.sockets.count() > 0
    }

    /// By a snapshot, of which a request may still draw it.
    fn is_known(&self) -> bool {
        Arc::strong_count(&self.member) > 1 || Arc::strong_count(&self.member.live) > 1
    }

    fn departure(&self) -> Departure {
        let Member { destination, live, .. } = &*self.member;
        Departure {
            cluster: self.cluster.clone(),
            destination: destination.id.clone(),
            address: destination.endpoint.authority(),
            why: self.why,
            since: self.since,
            requests: live.in_use(),
            connections: live.sockets.count(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::discovery::SystemNames;
    use crate::health::{Event, Order, Override};
    use crate::model::Epoch;
    use crate::observe::Metrics;
    use crate::observe::capture::lines;
    use crate::runtime::{Registry, Runtime, Scene, compile};
    use log::LevelFilter;
    use std::time::SystemTime;

    const AB: &str = "destinations: { a: \"http://127.0.0.1:7001\", b: \"http://127.0.0.1:7002\" }";

    fn snapshot(cluster: &str, serving: Option<&Snapshot>, now: Instant) -> Snapshot {
        let text = format!(
            "listeners: {{ web: \"127.0.0.1:1\" }}\nroutes: {{ all: {{ cluster: c }} }}\nclusters: {{ c: {{ {cluster} }} }}\n"
        );
        let config = Config::parse("test", &text).unwrap_or_else(|faults| panic!("{faults}"));
        let epoch = Epoch { instant: now, wall: SystemTime::UNIX_EPOCH };
        let scene =
            Scene { registry: &Registry::builtin(), names: &SystemNames, metrics: &Metrics::new(), epoch, serving };
        compile(&config, &scene, config.problems()).unwrap_or_else(|faults| panic!("{faults}"))
    }

    fn reload(runtime: &Runtime, cluster: &str, now: Instant) {
        runtime.reload(|old| Ok::<_, ()>(snapshot(cluster, Some(old), now)), || now).expect("no faults");
    }

    /// What a look ends, and says.
    fn look(runtime: &Runtime, now: Instant) -> (Vec<RawFd>, Vec<String>) {
        let mut ended = Vec::new();
        let said = lines(LevelFilter::Info, || runtime.let_go(now, |socket| ended.push(socket)));
        (ended, said.into_iter().map(|(_, line)| line).collect())
    }

    fn order(runtime: &Runtime, order: Order, now: Instant) {
        let cluster = &runtime.pin().clusters[0];
        cluster.judge(&cluster.members[0], Event::Operator { order, lasts: None, by: "test".into() }, now);
    }

    #[test]
    fn given_a_removed_destination_when_looked_at_then_it_is_let_go_once_and_listed_while_a_request_may_know_it() {
        let now = Instant::now();
        let runtime = Runtime::new(snapshot(AB, None, now));
        let pinned = runtime.pin();
        let live = &pinned.clusters[0].members[0].live;
        let lease = live.lease(None).expect("no bound");
        live.sockets.opened(7);
        reload(&runtime, "destinations: { b: \"http://127.0.0.1:7002\" }", now);
        let leaves = "a[127.0.0.1:7001] of cluster c leaves (removed); left are 1 request in flight, 1 connection";
        assert_eq!(look(&runtime, now), (vec![], vec![leaves.to_owned()]));
        let second = now + Duration::from_secs(1);
        assert_eq!((look(&runtime, second), runtime.leaving()[0].requests), ((vec![], vec![]), 1));
        drop(lease);
        assert_eq!(look(&runtime, second), (vec![7], vec![]));
        live.sockets.closing(7);
        let left = "a[127.0.0.1:7001] of cluster c has left (removed) after 1.0s";
        assert_eq!(look(&runtime, second), (vec![], vec![left.to_owned()]));
        // One that was pinned before the reload draws it all the same.
        live.sockets.opened(8);
        assert_eq!((runtime.leaving().len(), look(&runtime, second)), (1, (vec![8], vec![])));
        live.sockets.closing(8);
        let kept = Arc::downgrade(live);
        drop(pinned);
        look(&runtime, second);
        assert!(kept.upgrade().is_none() && runtime.leaving().is_empty());
    }

    #[test]
    fn given_one_that_had_left_when_it_serves_between_two_looks_and_is_removed_then_it_leaves_once_more() {
        let now = Instant::now();
        let runtime = Runtime::new(snapshot(AB, None, now));
        let live = runtime.pin().clusters[0].members[0].live.clone();
        let told =
            |(_, said): (Vec<RawFd>, Vec<String>)| said.join("; ").replace("a[127.0.0.1:7001] of cluster c ", "");
        live.sockets.opened(7);
        order(&runtime, Order::Override(Override::Drain), now);
        let leaves = |why: &str| format!("leaves ({why}); left are 0 requests in flight, 1 connection");
        assert_eq!(told(look(&runtime, now)), leaves("drained"));
        live.sockets.closing(7);
        assert_eq!(told(look(&runtime, now)), "has left (drained) after 0.0ns");
        order(&runtime, Order::Ready, now);
        live.sockets.opened(8);
        reload(&runtime, "destinations: { b: \"http://127.0.0.1:7002\" }", now);
        assert_eq!(told(look(&runtime, now)), leaves("removed"));
        live.sockets.closing(8);
        assert_eq!(told(look(&runtime, now)), "has left (removed) after 0.0ns");
    }

    #[test]
    fn given_orders_and_settings_when_they_end_then_so_does_the_leave_and_sessions_put_it_off() {
        let now = Instant::now();
        let bound = format!("{AB}, session_affinity: {{ policy: HashCookie, key_name: k }}");
        let runtime = Runtime::new(snapshot(&bound, None, now));
        let live = runtime.pin().clusters[0].members[0].live.clone();
        live.sockets.opened(7);
        order(&runtime, Order::Override(Override::Drain), now);
        let after = |seconds| now + Duration::from_secs(seconds);
        assert_eq!((look(&runtime, now).1.len(), look(&runtime, after(4)).0), (1, vec![]));
        let lease = live.lease(None).expect("no bound");
        assert!(look(&runtime, after(5)).0.is_empty());
        drop(lease);
        assert_eq!((look(&runtime, after(6)).0, look(&runtime, after(10)).0), (vec![], vec![]), "a session asked");
        assert_eq!(look(&runtime, after(11)).0, [7]);
        order(&runtime, Order::Override(Override::Maint), after(11));
        assert_eq!((look(&runtime, after(11)).0, runtime.leaving()[0].why), (vec![7], Parting::Maintenance));
        order(&runtime, Order::Ready, after(12));
        assert_eq!(runtime.leaving().len(), 0, "it serves again");
        let stays = "a[127.0.0.1:7001] of cluster c stays; there were 0 requests in flight, 1 connection left";
        assert_eq!(look(&runtime, after(12)), (vec![], vec![stays.to_owned()]));
        reload(
            &runtime,
            &bound.replace("a: \"http://127.0.0.1:7001\"", "a: { address: \"http://127.0.0.1:7001\", enabled: false }"),
            now,
        );
        assert_eq!(look(&runtime, after(13)).0, [7], "its sessions went with it");
        reload(&runtime, "destinations: { b: \"http://127.0.0.1:7002\" }", now);
        assert_eq!(runtime.leaving()[0].why, Parting::Removed);
    }
}
