//! What is known of a destination's health and who may serve.
//!
//! [`Standing`] is the only composer: every judge's finding goes through [`Standing::apply`], which alone sets marks, and
//! explains each step so that [`replay`] makes the same decision again. Its parts are pure machines that do not see each other:
//! [`passive`] detectors, [`Reactivation`], [`Breaker`], the streak of probes. [`available`] says which members of a cluster may
//! be drawn, given the marks. [`active`] holds the probes; apart from those nothing here does IO, reads a clock or logs.

pub mod active;
pub mod available;
mod breaker;
mod cap;
mod evidence;
mod explanation;
pub mod passive;
mod reactivation;
mod standing;
mod streak;

pub use breaker::{Breaker, Breaking, Circuit, Threshold};
pub use cap::{Cap, share_of};
pub use evidence::{By, Evidence};
pub use explanation::{Ahead, Decision, END_OF, Explanation, Next, Rule, Step, replay};
pub use passive::Counted;
pub use reactivation::{Phase, Reactivating, Reactivation};
pub use standing::{
    Around, Attempted, Change, Event, Held, Marked, Order, Override, Passive, Saved, Settings, Standing, State,
    Thresholds,
};
