//! What the operator sees: metrics and log lines. Higher floors call it with plain words and numbers; it names no other
//! room of the crate.
//!
//! [`metrics`] is the one table of every metric, [`handles`] are the counters with their labels resolved once,
//! [`event`] has one function a fact, log line and metric together, [`log`] sets the log up, [`access_log`] words a line a
//! request, [`Recent`] keeps the last of those that went wrong.
//!
//! Deliberately not here: the access log's file and its queue, and any judgement. What is healthy, available or too much is decided
//! elsewhere and told. Nothing here fails towards its caller: a metric that cannot be written is a bug that a test
//! finds, a log line that cannot be written is lost.

pub mod access_log;
pub mod event;
pub mod handles;
pub mod log;
pub mod metrics;

mod escape;
mod page;
mod recent;
mod shelf;
mod throttle;

#[cfg(test)]
pub(crate) mod capture;

pub use escape::Escaped;
pub use handles::{
    AdminState, Affinity, BreakerState, ClusterMetrics, Compared, Departure, DestinationMetrics, Destinations,
    InFlight, Left, ListenerMetrics, MirrorMetrics, Mirrored, Parting, Phase, ProbeResult, QueueResult, Queued,
    Rejected, RouteMetrics,
};
pub use metrics::Metrics;
pub use recent::Recent;
