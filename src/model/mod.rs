//! The atoms: what a destination is, what it is doing now, what came of an attempt. No policy, no clock, no IO:
//! time and chance come in as arguments (`std::time::Instant`, [`Dice`]).

mod crowd;
mod destination;
mod epoch;
mod health;
mod idle;
mod latency;
mod lease;
mod line;
mod live;
mod outcome;
mod request;
mod sockets;
mod span;
mod split;
#[cfg(test)]
pub(crate) mod testing;
mod trials;

pub use crowd::Crowd;
pub use destination::{Destination, Endpoint, Member, Scheme};
pub use epoch::{Epoch, Stamp};
pub use health::{Marks, Reason, Transition};
pub use idle::IdleTime;
pub use latency::Latency;
pub use lease::{Connected, Copying, Lease, Refusal, Ticket};
pub use line::{Line, Waiting};
pub use live::{Live, WHOLE};
pub use outcome::Outcome;
pub use request::{RequestView, is_token};
pub use sockets::Sockets;
pub use span::Span;
pub use split::Split;
pub use trials::{Place, Trials};

/// Chance, passed in: seeded in tests and in the simulator.
pub type Dice = fastrand::Rng;
