//! What is known of a destination's health and who may serve.
//!
//! [`Standing`] is the only composer: every judge's finding goes through [`Standing::apply`], which alone sets marks.
//! [`available`] says which members of a cluster may be drawn, given the marks. [`active`] holds the probes; apart from
//! those nothing here does IO, reads a clock or logs.

pub mod active;
pub mod available;
mod standing;

pub use standing::{Change, Event, Standing, State, Thresholds};
