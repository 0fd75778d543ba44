//! All that wakes up by itself: timers, signals, the admin listener. Everything that judges is called from here with the
//! time as an argument; nothing is judged here.

mod access_log;
pub mod admin;
mod lifecycle;
mod mirrors;
mod prober;
mod probing;
mod recovery;
mod reloader;
mod signals;

pub use access_log::AccessLog;
pub use lifecycle::Lifecycle;
pub use mirrors::{Copied, Mirrors};
pub use prober::Prober;
pub use recovery::Recovery;
pub use reloader::{Reloader, Sources};
pub use signals::Signals;
