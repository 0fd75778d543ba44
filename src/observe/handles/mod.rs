//! Counters with their labels resolved once: a handle is got by names when a snapshot is built, and counts by number from
//! then on. On the request path it allocates nothing but for a status code never seen before on its route and method,
//! takes no lock and looks nothing up by string. Handles are cheap to clone; clones, and handles got by the same names,
//! count into the same series, which is on the page while one of them lives.
//!
//! Destinations and clusters show all their series from the start, at 0, because alerts watch them for a first
//! increment. Routes show what has occurred, because there can be ten thousand of them.

mod cluster;
mod destination;
mod health;
mod leaving;
mod life;
mod listener;
mod mirror;
mod route;

pub use cluster::{Affinity, ClusterMetrics, Destinations, QueueResult, Queued, RETRIES_DENIED};
pub use destination::{DestinationMetrics, ProbeResult, UPSTREAM_ERRORS};
pub use health::{AdminState, BreakerState, EJECTION_REASONS, TRANSITION_REASONS, TRIAL};
pub use leaving::{Departure, Parting};
pub use life::{Left, Phase};
pub use listener::{InFlight, ListenerMetrics};
pub use mirror::{Compared, MirrorMetrics, Mirrored};
pub use route::{NO_ROUTE, Rejected, RouteMetrics};

pub(super) use cluster::Cluster;
pub(super) use destination::Destination;
pub(super) use leaving::Departures;
pub(super) use listener::Listener;
pub(super) use mirror::Mirror;
pub(super) use route::{ListenerRoute, Route};

use std::sync::atomic::AtomicU64;

/// Values of label `code_class`.
const CODE_CLASSES: [&str; 6] = ["1xx", "2xx", "3xx", "4xx", "5xx", OTHER];

/// Stands for every value outside a closed set.
const OTHER: &str = "other";

/// Index into [`CODE_CLASSES`].
fn code_class(status: u16) -> usize {
    match status {
        100..=599 => usize::from(status / 100) - 1,
        _ => CODE_CLASSES.len() - 1,
    }
}

fn zeros<const N: usize>() -> [AtomicU64; N] {
    std::array::from_fn(|_| AtomicU64::new(0))
}
