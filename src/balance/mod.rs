//! How one of several available destinations is picked. One policy a file, one row in [`BUILTIN`].
//!
//! A policy has two halves: [`Balancer::prepare`] runs off the request path each time the available set changes and may
//! build tables; [`Picker::pick`] runs for every request and neither allocates nor locks. Health is not known
//! here: the set holds only what may be drawn. A picker answers `None` when everything in the set was tried.
//!
//! PowerOfTwoChoices, RoundRobin, Random, LeastRecentlyUsed, PeakEwma and Maglev promise a pick whose cost does not grow with the
//! set, and PreferSameZone keeps it too; LeastRequests looks at every destination (`cargo bench --bench pick`).

#[cfg(test)]
mod contract;
mod first_alphabetical;
mod least_recently_used;
mod least_requests;
mod maglev;
mod peak_ewma;
mod power_of_two_choices;
mod prefer_same_zone;
mod random;
mod round_robin;
mod shares;
#[cfg(test)]
mod testing;
mod tried;

pub use round_robin::smooth_order;
pub use shares::Shares;
pub use tried::Tried;

use crate::config::Section;
use crate::model::{Dice, Member, Outcome, RequestView};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A policy with its parameters, one for each cluster.
pub trait Balancer: Send + Sync {
    /// `set` is what may be drawn, in the configuration's order, every weight above 0, never empty.
    fn prepare(&self, set: &[Arc<Member>]) -> Box<dyn Picker>;

    /// What came of an attempt, for policies that go by it: told once when the response head is there, and when the attempt
    /// fails, be it before or after that. `waited` is the time from the whole request to the head, or to the
    /// end where none came. On the request path: neither allocates nor locks.
    fn learn(&self, _member: &Member, _outcome: Outcome, _waited: Duration, _now: Instant) {}
}

/// A policy made ready for one set.
pub trait Picker: Send + Sync {
    /// A position in `set`, never one whose member is in `draw.tried`.
    fn pick(&self, set: &[Arc<Member>], draw: &mut Draw<'_>) -> Option<usize>;
}

/// What a pick may go by.
pub struct Draw<'a> {
    pub request: RequestView<'a>,
    /// Members ([`Member::index`]) that this request must not get.
    pub tried: &'a Tried,
    pub now: Instant,
    pub dice: &'a mut Dice,
}

/// Where this instance runs: facts of the `server` section that policies may need.
#[derive(Debug, Clone, Default)]
pub struct Site {
    pub zone: Option<String>,
}

/// A row of the table of policies.
#[derive(Clone, Copy)]
pub struct Entry {
    pub name: &'static str,
    /// Takes the policy's own keys from the section; faults go to the section, which then refuses keys not taken.
    pub build: fn(&mut Section<'_>, &Site) -> Box<dyn Balancer>,
}

pub const BUILTIN: &[Entry] = &[
    power_of_two_choices::ENTRY,
    least_requests::ENTRY,
    round_robin::ENTRY,
    random::ENTRY,
    first_alphabetical::ENTRY,
    prefer_same_zone::ENTRY,
    least_recently_used::ENTRY,
    peak_ewma::ENTRY,
    maglev::ENTRY,
];

/// Is `a` less loaded than `b`, by in_flight/weight? Cross-multiplied: no division, no rounding.
fn less_loaded(a: &Member, b: &Member) -> bool {
    let load = |m: &Member, other: &Member| u64::from(m.live.in_flight()) * u64::from(other.effective_weight());
    load(a, b) < load(b, a)
}
