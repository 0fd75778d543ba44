//! The commands, one file each, and what they share.

pub mod demo_catalog;
pub mod duration;
pub mod get;
pub mod healthcheck;
pub mod loadprobe;
pub mod tally;
pub mod target;
