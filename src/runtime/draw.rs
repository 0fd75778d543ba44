//! The order of choice, one function: today a single row, the balancing policy over the published set. A destination at
//! `max_requests`, or marked since the set was published, is passed over and the policy asked again.

use super::Cluster;
use crate::balance::{Draw, Tried};
use crate::model::{Dice, Lease, Member, RequestView};
use std::sync::Arc;

/// A destination, and the place on it.
pub struct Drawn {
    pub member: Arc<Member>,
    pub lease: Lease,
    /// How many the policy could choose from.
    pub available: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoDestination {
    /// Nothing may be drawn.
    NoneAvailable,
    /// All that may be drawn are at `max_requests`.
    AllFull,
}

/// Draws a destination for a request. `tried` gains what was passed over.
///
/// | order | asked | its answer stands |
/// |---|---|---|
/// | 1 | the balancing policy, over the published set | unless it was marked since then (in panic marks do not count), or is at `max_requests`: then the policy is asked again without it |
///
/// # Errors
/// [`NoDestination::NoneAvailable`] when the set is empty or all of it was tried, [`NoDestination::AllFull`] when only
/// `max_requests` stood in the way.
pub fn draw(
    cluster: &Cluster,
    request: RequestView<'_>,
    tried: &mut Tried,
    dice: &mut Dice,
) -> Result<Drawn, NoDestination> {
    let published = cluster.published();
    let Some(picker) = &published.picker else {
        return Err(NoDestination::NoneAvailable);
    };
    let mut full = false;
    loop {
        let mut how = Draw { request, tried, dice };
        let Some(position) = picker.pick(&published.set, &mut how) else {
            return Err(if full { NoDestination::AllFull } else { NoDestination::NoneAvailable });
        };
        let member = &published.set[position];
        if published.panic || member.is_unmarked() {
            match member.live.lease(member.destination.max_requests) {
                Ok(lease) => {
                    let available = published.set.len();
                    return Ok(Drawn { member: member.clone(), lease, available });
                }
                Err(_) => full = true,
            }
        }
        tried.insert(member.index);
    }
}
