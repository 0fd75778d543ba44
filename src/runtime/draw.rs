//! The order of choice, one function: today a single row, the balancing policy over the published set. A destination at
//! `max_requests`, or marked since the set was published, is passed over and the policy asked again.

use super::Cluster;
use crate::balance::{Draw, Tried};
use crate::model::{Dice, Lease, Member, RequestView};
use std::sync::Arc;
use std::time::Instant;

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
/// | 2 | the same, when all were marked since then | unless it is at `max_requests`: what shall be done without any is the set's to say that is about to be published |
///
/// # Errors
/// [`NoDestination::NoneAvailable`] when the set is empty or all of it was tried, [`NoDestination::AllFull`] when only
/// `max_requests` stood in the way.
pub fn draw(
    cluster: &Cluster,
    request: RequestView<'_>,
    tried: &mut Tried,
    now: Instant,
    dice: &mut Dice,
) -> Result<Drawn, NoDestination> {
    let published = cluster.published();
    let Some(picker) = &published.picker else {
        return Err(NoDestination::NoneAvailable);
    };
    let mut full = false;
    let marks_count = !published.panic && published.set.iter().any(|member| member.is_unmarked());
    loop {
        let mut how = Draw { request, tried, now, dice };
        let Some(position) = picker.pick(&published.set, &mut how) else {
            return Err(if full { NoDestination::AllFull } else { NoDestination::NoneAvailable });
        };
        let member = &published.set[position];
        if !marks_count || member.is_unmarked() {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Reason;
    use crate::model::testing::request;
    use crate::runtime::testing::cluster;

    fn drawn(cluster: &Cluster) -> Result<String, NoDestination> {
        let mut tried = Tried::default();
        draw(cluster, request(), &mut tried, Instant::now(), &mut Dice::with_seed(1))
            .map(|drawn| drawn.member.destination.id.clone())
    }

    #[test]
    fn given_a_mark_that_is_not_published_yet_when_drawn_then_another_destination() {
        let cluster = cluster("RoundRobin", &["a", "b"]);
        cluster.members[0].live.marks.set(Reason::Active, true);
        assert!((0..10).all(|_| drawn(&cluster) == Ok("b".into())));
    }

    #[test]
    fn given_all_are_marked_and_nothing_is_published_yet_when_drawn_then_none_is_refused_for_that() {
        let cluster = cluster("RoundRobin", &["a", "b"]);
        for member in &cluster.members {
            member.live.marks.set(Reason::Active, true);
        }
        assert!(drawn(&cluster).is_ok());
    }

    #[test]
    fn given_limits_when_all_are_reached_then_full_and_not_unavailable() {
        let cluster = cluster("RoundRobin", &["a"]);
        let _lease = cluster.members[0].live.lease(None).expect("no bound");
        assert_eq!(drawn(&cluster), Ok("a".into()));
        let full =
            crate::runtime::testing::cluster_of("RoundRobin", &["{ address: http://127.0.0.1:1, max_requests: 1 }"]);
        let _lease = full.members[0].live.lease(None).expect("no bound");
        assert_eq!(drawn(&full), Err(NoDestination::AllFull));
    }
}
