//! The order of choice, one function: a half-open destination with a free place first, then the balancing policy over the
//! published set. A destination at `max_requests`, or marked since the set was published, is passed over and the policy asked
//! again.

use super::{Cluster, Published};
use crate::balance::{Draw, Tried};
use crate::model::{Dice, Lease, Member, RequestView};
use http::header;
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

/// A body up to this can be sent again elsewhere.
const REPLAYABLE: u64 = 64 * 1024;

/// Draws a destination for a request. `tried` gains what was passed over.
///
/// | order | asked | its answer stands |
/// |---|---|---|
/// | 1 | the half-open destinations, in the configuration's order | when one has a free place, and the request can be sent again should the trial fail (an idempotent method, a short body), or nothing else is available, or it has waited for such a request for a reactivation period |
/// | 2 | the balancing policy, over the published set | unless it was marked since then (in panic only marks that a panic does not override count), or is at `max_requests`: then the policy is asked again without it |
/// | 3 | the same, when all were marked since then | unless it is at `max_requests`: what shall be done without any is the set's to say that is about to be published |
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
    if !published.trials.is_empty()
        && let Some(drawn) = on_trial(&published, &request, tried)
    {
        return Ok(drawn);
    }
    let Some(picker) = &published.picker else {
        return Err(NoDestination::NoneAvailable);
    };
    let mut full = false;
    let marks_count = published.set.iter().any(|member| may_serve(&published, member));
    loop {
        let mut how = Draw { request, tried, now, dice };
        let Some(position) = picker.pick(&published.set, &mut how) else {
            return Err(if full { NoDestination::AllFull } else { NoDestination::NoneAvailable });
        };
        let member = &published.set[position];
        if !marks_count || may_serve(&published, member) {
            match member.live.lease(member.destination.max_requests) {
                Ok(lease) => {
                    let lease = if member.is_unmarked() { lease } else { lease.in_panic() };
                    return Ok(Drawn { member: member.clone(), lease, available: published.set.len() });
                }
                Err(_) => full = true,
            }
        }
        tried.insert(member.index);
    }
}

/// As [`draw`], for another attempt of the same request: when none is left that was not `tried`, all are open again, unless
/// the cluster's `repeat` is off.
pub fn draw_again(
    cluster: &Cluster,
    request: RequestView<'_>,
    tried: &mut Tried,
    now: Instant,
    dice: &mut Dice,
) -> Result<Drawn, NoDestination> {
    let left = draw(cluster, request, tried, now, dice);
    if left.is_ok() || !cluster.retry.as_ref().is_some_and(|retry| retry.repeat) {
        return left;
    }
    *tried = Tried::default();
    draw(cluster, request, tried, now, dice)
}

fn may_serve(published: &Published, member: &Member) -> bool {
    member.is_unmarked() || (published.panic && member.live.marks.is_overridable())
}

fn on_trial(published: &Published, request: &RequestView<'_>, tried: &Tried) -> Option<Drawn> {
    let any = published.set.is_empty() || published.panic || can_be_sent_again(request);
    let free = |member: &&Arc<Member>| {
        (any || member.live.takes_any_trial()) && member.live.marks.is_on_trial() && !tried.contains(member.index)
    };
    published.trials.iter().filter(free).find_map(|member| {
        let lease = member.live.lease(member.destination.max_requests).ok()?.on_trial()?;
        Some(Drawn { member: member.clone(), lease, available: published.set.len() })
    })
}

fn can_be_sent_again(request: &RequestView<'_>) -> bool {
    let length = || match request.headers.get(header::CONTENT_LENGTH) {
        Some(length) => length.to_str().ok().and_then(|length| length.parse::<u64>().ok()),
        None => (!request.headers.contains_key(header::TRANSFER_ENCODING)).then_some(0),
    };
    request.method.is_idempotent() && length().is_some_and(|length| length <= REPLAYABLE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Reason;
    use crate::model::testing::request;
    use crate::runtime::testing::cluster;
    use proptest::prelude::*;

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

    proptest! {
        /// Each policy, whatever is marked or full.
        #[test]
        fn given_attempts_when_drawn_again_then_none_is_tried_twice_while_another_is_left(
            policy in prop::sample::select(vec!["RoundRobin", "Random", "PowerOfTwoChoices", "LeastRequests",
                "FirstAlphabetical", "LeastRecentlyUsed", "PeakEwma", "Maglev"]),
            marked in prop::collection::vec(any::<bool>(), 5),
            repeat in any::<bool>(),
            seed in any::<u64>(),
        ) {
            let cluster = cluster(policy, &["a", "b", "c", "d", "e"]);
            let cluster = if repeat { cluster } else { without_repeat(policy) };
            for (member, _) in cluster.members.iter().zip(&marked).filter(|(_, marked)| **marked) {
                member.live.marks.set(Reason::Operator, true);
            }
            let well = marked.iter().filter(|marked| !**marked).count();
            let (mut tried, mut dice, now) = (Tried::default(), Dice::with_seed(seed), Instant::now());
            let mut drawn = Vec::new();
            for _ in 0..well {
                let next = draw_again(&cluster, request(), &mut tried, now, &mut dice).map(|next| next.member.index);
                let Ok(next) = next else { panic!("{policy}: one is left") };
                prop_assert!(!marked[next] && !drawn.contains(&next), "{policy}: {next} after {drawn:?}");
                drawn.push(next);
                tried.insert(next);
            }
            if well > 0 {
                let next = draw_again(&cluster, request(), &mut tried, now, &mut dice);
                prop_assert_eq!(next.is_ok(), repeat, "{}", policy);
            }
        }
    }

    fn without_repeat(policy: &str) -> Arc<Cluster> {
        let text = format!(
            "listeners: {{ web: \"127.0.0.1:1\" }}\nroutes: {{ all: {{ cluster: c }} }}\nclusters: {{ c: {{ \
             load_balancing: {policy}, retry: {{ repeat: false }}, destinations: {{ a: \"http://127.0.0.1:1\", \
             b: \"http://127.0.0.1:2\", c: \"http://127.0.0.1:3\", d: \"http://127.0.0.1:4\", \
             e: \"http://127.0.0.1:5\" }} }} }}"
        );
        crate::runtime::testing::compiled(&text).1.clusters[0].clone()
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

    #[test]
    fn given_a_half_open_destination_when_only_posts_come_then_the_others_serve_them_until_it_takes_any() {
        let cluster = cluster("RoundRobin", &["a", "b"]);
        let a = &cluster.members[0];
        let now = Instant::now();
        let route = Arc::from("all");
        for _ in 0..5 {
            let ticket = a.live.lease(None).expect("no bound").ticket();
            let (outcome, waited) = (crate::model::Outcome::Refused, std::time::Duration::ZERO);
            let report =
                crate::runtime::Report { outcome, ticket, begun: now, route: &route, attempt: 1, detail: "", waited };
            cluster.report(a, &report, now);
        }
        let at = |seconds| now + std::time::Duration::from_secs(seconds);
        let post = |cluster: &Cluster, now| {
            let request = RequestView { method: &http::Method::POST, ..request() };
            let drawn = draw(cluster, request, &mut Tried::default(), now, &mut Dice::with_seed(1));
            drawn.ok().map(|drawn| drawn.member.destination.id.clone())
        };
        cluster.due(at(10));
        assert!((0..10).all(|_| post(&cluster, at(10)) == Some("b".into())));
        cluster.due(at(20));
        assert_eq!(post(&cluster, at(20)), Some("a".into()));
    }
}
