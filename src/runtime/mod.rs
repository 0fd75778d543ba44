//! What serves: the configuration compiled into one immutable [`Snapshot`], and the doors to it. [`Runtime::pin`] gives a
//! request the snapshot it keeps to its end; [`draw`] chooses a destination; [`Cluster::report`] takes what came of an
//! attempt; [`Cluster::judge`] takes a finding about health and publishes what follows.
//!
//! No IO but reading files and names while compiling, and the connections that Pingora asks for; no clock, no spawning. A request
//! takes no lock here, but one that opens a connection: its destination's, for a moment.

mod canary;
mod carry;
mod check;
mod cluster;
mod compile;
mod dial;
mod draw;
mod handover;
mod judges;
mod leaving;
pub mod lint;
mod matcher;
mod mirror;
mod registry;
mod route;
mod router;
mod sessions;
mod snapshot;
mod split;
#[cfg(test)]
mod stress;
mod telling;
mod template;
#[cfg(test)]
pub(crate) mod testing;
mod tiers;
mod tls;
mod upstream;

pub use canary::{Arm, CanaryView};
pub use carry::Carried;
pub use check::{CheckPlan, Pace};
pub use cluster::{Cluster, Report};
pub use compile::{Scene, compile};
pub use draw::{Drawn, NoDestination, Trail, draw, draw_again, fail_over};
pub use handover::{Handover, Resumed};
pub use mirror::{Answer, Comparison, Mirror, Place, Target};
pub use registry::Registry;
pub use route::{Action, Redirect, Respond, Route};
pub use router::{Router, split_port};
pub use sessions::{First, Lost, Session, Sessions, first};
pub use snapshot::{AccessPlan, AdminPlan, ListenerPlan, Snapshot};
pub use split::Split;
pub use tiers::{Published, Tier};
pub use tls::Served;
pub use upstream::Upstream;

use crate::observe::Departure;
use arc_swap::ArcSwap;
use leaving::Leaving;
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// The current snapshot, swapped whole.
pub struct Runtime {
    snapshot: ArcSwap<Snapshot>,
    publishing: Mutex<()>,
    leaving: Leaving,
}

impl Runtime {
    pub fn new(snapshot: Snapshot) -> Self {
        carry::publish(&snapshot);
        Runtime { snapshot: ArcSwap::from_pointee(snapshot), publishing: Mutex::new(()), leaving: Leaving::default() }
    }

    /// The snapshot of now; whoever holds it sees this one to its end.
    pub fn pin(&self) -> Arc<Snapshot> {
        self.snapshot.load_full()
    }

    /// Compiles the next snapshot out of this one and swaps it in; on any fault this one stays as it is. One at a time. `now` is
    /// asked when it is compiled, for that may take long.
    ///
    /// # Errors
    /// What `compile` says.
    pub fn reload<E>(
        &self,
        compile: impl FnOnce(&Snapshot) -> Result<Snapshot, E>,
        now: impl FnOnce() -> Instant,
    ) -> Result<Carried, E> {
        let _turn = self.publishing.lock().unwrap_or_else(PoisonError::into_inner);
        let old = self.pin();
        let new = compile(&old)?;
        let now = now();
        let carried = carry::succeed(&old, &new, now);
        carry::gone(&old, &new).for_each(|(cluster, member)| self.leaving.removed(&cluster.name, member, now));
        carry::publish(&new);
        self.snapshot.store(Arc::new(new));
        carry::dismiss(&old, &self.pin());
        Ok(carried)
    }

    /// What the clusters know of health, for another process.
    pub fn hand_over(&self, now: Instant) -> Handover {
        Handover::of(&self.pin(), now)
    }

    /// Goes on with what another process knew. To be called before the first request.
    pub fn take_over(&self, handover: Handover, now: Instant) -> Resumed {
        let _turn = self.publishing.lock().unwrap_or_else(PoisonError::into_inner);
        handover.resume(&self.pin(), now)
    }

    /// Tells of the destinations that are on their leave, and `end`s the connections of those that may go.
    pub fn let_go(&self, now: Instant, end: impl FnMut(RawFd)) {
        self.leaving.look(&self.pin(), now, end);
    }

    /// The destinations that are on their leave with something left of them, those included that a reload removed.
    pub fn leaving(&self) -> Vec<Departure> {
        self.leaving.shown(&self.pin())
    }
}
