//! All that wakes up by itself: timers, signals, the admin listener. Everything that judges is called from here with the
//! time as an argument; nothing is judged here.

mod access_log;
pub mod admin;
pub(crate) mod lifecycle;
mod mirror_connections;
mod mirror_head;
mod mirrors;
mod notify;
mod prober;
mod probing;
mod recovery;
mod reloader;
mod signals;
mod upgrade;

pub use access_log::AccessLog;
pub use lifecycle::Lifecycle;
pub use mirror_head::Head;
pub use mirrors::{Copied, Mirrors};
pub use notify::Notify;
pub use prober::Prober;
pub use recovery::Recovery;
pub use reloader::{Refused, Reloader, Sources};
pub use signals::Signals;
pub use upgrade::{Before, Gate, Handed, Launch, Launcher, Predecessor, Seat, Successors, Upgrade, listen};
