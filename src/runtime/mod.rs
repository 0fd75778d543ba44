//! What serves: the configuration compiled into one immutable [`Snapshot`], and the doors to it. [`Runtime::pin`] gives a
//! request the snapshot it keeps to its end; [`draw`] chooses a destination; [`Cluster::report`] takes what came of an
//! attempt; [`Cluster::judge`] takes a finding about health and publishes what follows.
//!
//! No IO but reading files and names while compiling, no clock, no spawning. A request takes no lock here.

mod cluster;
mod compile;
mod draw;
pub mod lint;
mod matcher;
mod registry;
mod route;
mod router;
mod snapshot;
mod template;
#[cfg(test)]
mod testing;
mod tls;
mod upstream;

pub use cluster::{CheckPlan, Cluster, Published};
pub use compile::compile;
pub use draw::{Drawn, NoDestination, draw};
pub use registry::Registry;
pub use route::{Action, Redirect, Respond, Route};
pub use router::{Router, split_port};
pub use snapshot::{AdminPlan, ListenerPlan, Snapshot};
pub use tls::Served;
pub use upstream::Upstream;

use arc_swap::ArcSwap;
use std::sync::Arc;

/// The current snapshot, swapped whole.
pub struct Runtime {
    snapshot: ArcSwap<Snapshot>,
}

impl Runtime {
    pub fn new(snapshot: Snapshot) -> Self {
        Runtime { snapshot: ArcSwap::from_pointee(snapshot) }
    }

    /// The snapshot of now; whoever holds it sees this one to its end.
    pub fn pin(&self) -> Arc<Snapshot> {
        self.snapshot.load_full()
    }
}
