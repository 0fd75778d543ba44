//! The order of choice, one function for requests that no session binds: the arm, the tier, a half-open destination with a free place, the balancing policy over
//! the published set. A destination at `max_requests`, or marked since the set was published, is passed over and the policy
//! asked again.

use super::sessions::Lost;
use super::tiers::{Published, Tier};
use super::{Arm, Cluster};
use crate::balance::{Draw, Tried};
use crate::config::Role;
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
    /// The request's session is bound to none that may be drawn, and it is not to be bound anew.
    SessionLost,
}

/// Where a request has been.
#[derive(Debug, Clone, Default)]
pub struct Trail {
    /// What it must not get again.
    tried: Tried,
    /// The failover it got last, and how often.
    failover: Option<(usize, u8)>,
    /// Where its attempt still holds a place, which it gives back for the next: another attempt there takes none away.
    pub at: Option<usize>,
}

impl Trail {
    /// It was sent, or is about to be. A failover is done with after so many attempts as the cluster grants each.
    pub fn took(&mut self, cluster: &Cluster, member: &Member) {
        if let Some(failover) = cluster.failover.filter(|_| member.is(Role::Failover)) {
            let before = self.failover.filter(|(index, _)| *index == member.index);
            let attempts = before.map_or(0, |(_, attempts)| attempts) + 1;
            self.failover = Some((member.index, attempts));
            if attempts < failover.attempts_per_destination {
                return;
            }
        }
        self.tried.insert(member.index);
    }
}

/// A body up to this can be sent again elsewhere.
const REPLAYABLE: u64 = 64 * 1024;

/// Draws a destination for a request that no session binds ([`super::first`] asks that first). Its trail gains what was passed over.
///
/// | order | asked | its answer stands |
/// |---|---|---|
/// | 1 | the canaries, when [`Cluster::arm`] says so | when one may be drawn |
/// | 2 | the primaries | unless none is available, or on trial with a free place |
/// | 3 | the failovers | |
///
/// and of each of these tiers
///
/// | order | asked | its answer stands |
/// |---|---|---|
/// | 1 | the half-open destinations, in the configuration's order | when one has a free place, and the request can be sent again should the trial fail (an idempotent method, a short body), or nothing else is available, or it has waited for such a request for a reactivation period |
/// | 2 | the balancing policy, over the published set; for failovers the configuration's order | unless it was marked since then (in panic only marks that a panic does not override count), or is at `max_requests`: then the policy is asked again without it |
/// | 3 | the same, when all were marked since then | unless it is at `max_requests`: what shall be done without any is the set's to say that is about to be published |
///
/// # Errors
/// [`NoDestination::NoneAvailable`] when the sets are empty or all of them was tried, [`NoDestination::AllFull`] when only
/// `max_requests` stood in the way.
pub fn draw(
    cluster: &Cluster,
    arm: Arm,
    request: RequestView<'_>,
    trail: &mut Trail,
    now: Instant,
    dice: &mut Dice,
) -> Result<Drawn, NoDestination> {
    let published = cluster.published();
    let mut asking = Asking::new(request, trail, now, dice);
    if arm == Arm::Canary
        && let Ok(drawn) = asking.of(&published.canaries)
    {
        return Ok(drawn);
    }
    asking.spare = !published.failovers.set.is_empty();
    match asking.of(&published.primaries) {
        Err(NoDestination::NoneAvailable) if !published.failovers.is_empty() => {
            asking.spare = false;
            asking.of(&published.failovers)
        }
        other => other,
    }
}

/// As [`draw`], for another attempt of the same request, and of the primaries only: when none is left that was not tried, all are
/// open again, unless the cluster's `repeat` is off.
pub fn draw_again(
    cluster: &Cluster,
    request: RequestView<'_>,
    trail: &mut Trail,
    now: Instant,
    dice: &mut Dice,
) -> Result<Drawn, NoDestination> {
    let published = cluster.published();
    let mut asking = Asking::new(request, trail, now, dice);
    asking.spare = !published.failovers.set.is_empty();
    let left = asking.of(&published.primaries);
    if left.is_ok() || !cluster.retry.as_ref().is_some_and(|retry| retry.repeat) {
        return left;
    }
    *asking.tried = Tried::default();
    asking.of(&published.primaries)
}

/// As [`draw_again`], of the failovers only.
pub fn fail_over(
    cluster: &Cluster,
    request: RequestView<'_>,
    trail: &mut Trail,
    now: Instant,
    dice: &mut Dice,
) -> Result<Drawn, NoDestination> {
    Asking::new(request, trail, now, dice).of(&cluster.published().failovers)
}

/// The destination at `index`, to which the request's session is bound.
pub(super) fn bound(cluster: &Cluster, index: usize, request: &RequestView<'_>, now: Instant) -> Result<Drawn, Lost> {
    let published = cluster.published();
    let lost = Lost::Unavailable(index);
    let member = cluster.members.get(index).filter(|member| member.destination.enabled).ok_or(lost)?;
    let tier = match member.destination.role {
        Role::Canary if cluster.canary_rests(now) => return Err(Lost::Resting(index)),
        Role::Failover if cluster.failover.is_none() => return Err(lost),
        Role::Mirror => return Err(lost),
        _ => tier_of(&published, member.destination.role),
    };
    let lease = || member.live.lease(member.destination.max_requests).map_err(|_| Lost::Full(index));
    let lease = if member.is_unmarked() || member.keeps_sessions() {
        lease()?
    } else if member.live.marks.is_on_trial() {
        let any = tier.panic || tier.set.is_empty() || member.live.takes_any_trial();
        if !any && !can_be_sent_again(request) {
            return Err(lost);
        }
        member.live.lease_on_trial(member.destination.max_requests).ok_or(lost)?
    } else if serves_marked(tier, member) {
        lease()?.in_panic()
    } else {
        return Err(lost);
    };
    Ok(Drawn { member: member.clone(), lease, available: tier.set.len() })
}

fn tier_of(published: &Published, role: Role) -> &Tier {
    match role {
        Role::Canary => &published.canaries,
        Role::Failover => &published.failovers,
        Role::Primary | Role::Mirror => &published.primaries,
    }
}

struct Asking<'a, 'r> {
    request: RequestView<'r>,
    tried: &'a mut Tried,
    at: Option<usize>,
    now: Instant,
    dice: &'a mut Dice,
    /// Who gets no trial of this tier is served by another.
    spare: bool,
}

impl<'a, 'r> Asking<'a, 'r> {
    fn new(request: RequestView<'r>, trail: &'a mut Trail, now: Instant, dice: &'a mut Dice) -> Self {
        Asking { request, tried: &mut trail.tried, at: trail.at, now, dice, spare: false }
    }

    /// How many may be in flight there when it gets a place.
    fn most(&self, member: &Member) -> Option<u32> {
        let own = u32::from(self.at == Some(member.index));
        member.destination.max_requests.map(|most| most.saturating_add(own))
    }

    fn of(&mut self, tier: &Tier) -> Result<Drawn, NoDestination> {
        if !tier.trials.is_empty()
            && let Some(drawn) = self.on_trial(tier)
        {
            return Ok(drawn);
        }
        let Some(picker) = &tier.picker else {
            return Err(NoDestination::NoneAvailable);
        };
        let mut full = false;
        let marks_count = tier.set.iter().any(|member| may_serve(tier, member));
        loop {
            let mut how = Draw { request: self.request, tried: self.tried, now: self.now, dice: self.dice };
            let Some(position) = picker.pick(&tier.set, &mut how) else {
                return Err(if full { NoDestination::AllFull } else { NoDestination::NoneAvailable });
            };
            let member = &tier.set[position];
            if !marks_count || may_serve(tier, member) {
                match member.live.lease(self.most(member)) {
                    Ok(lease) => {
                        let lease = if member.is_unmarked() { lease } else { lease.in_panic() };
                        return Ok(Drawn { member: member.clone(), lease, available: tier.set.len() });
                    }
                    Err(_) => full = true,
                }
            }
            self.tried.insert(member.index);
        }
    }

    fn on_trial(&self, tier: &Tier) -> Option<Drawn> {
        let alone = tier.set.is_empty() && !self.spare;
        let any = alone || tier.panic || can_be_sent_again(&self.request);
        let free = |member: &&Arc<Member>| {
            (any || member.live.takes_any_trial())
                && member.live.marks.is_on_trial()
                && !self.tried.contains(member.index)
        };
        tier.trials.iter().filter(free).find_map(|member| {
            let lease = member.live.lease_on_trial(self.most(member))?;
            Some(Drawn { member: member.clone(), lease, available: tier.set.len() })
        })
    }
}

fn may_serve(tier: &Tier, member: &Member) -> bool {
    member.is_unmarked() || (tier.panic && member.live.marks.is_overridable())
}

/// In a panic, or, as long as nothing else is published, when all of the set were marked.
fn serves_marked(tier: &Tier, member: &Member) -> bool {
    may_serve(tier, member)
        || (tier.set.iter().any(|other| other.index == member.index)
            && !tier.set.iter().any(|other| may_serve(tier, other)))
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
        draw(cluster, Arm::Primary, request(), &mut Trail::default(), Instant::now(), &mut Dice::with_seed(1))
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
            let (mut trail, mut dice, now) = (Trail::default(), Dice::with_seed(seed), Instant::now());
            let mut drawn = Vec::new();
            for _ in 0..well {
                let next = draw_again(&cluster, request(), &mut trail, now, &mut dice).map(|next| next.member.index);
                let Ok(next) = next else { panic!("{policy}: one is left") };
                prop_assert!(!marked[next] && !drawn.contains(&next), "{policy}: {next} after {drawn:?}");
                drawn.push(next);
                trail.took(&cluster, &cluster.members[next]);
            }
            if well > 0 {
                let next = draw_again(&cluster, request(), &mut trail, now, &mut dice);
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

    /// Two primaries and two failovers, and more keys.
    fn tiers(more: &str) -> Arc<Cluster> {
        let over = |port| format!("{{ address: \"http://127.0.0.1:{port}\", role: failover }}");
        let text = format!(
            "listeners: {{ web: \"127.0.0.1:1\" }}\nroutes: {{ all: {{ cluster: c }} }}\nclusters: {{ c: {{ destinations: {{ \
             f1: {}, p1: \"http://127.0.0.1:1\", f2: {}, p2: \"http://127.0.0.1:2\" }}, {more} }} }}",
            over(3),
            over(4)
        );
        crate::runtime::testing::compiled(&text).1.clusters[0].clone()
    }

    fn mark(cluster: &Cluster, id: &str, marked: bool) {
        let member = cluster.members.iter().find(|member| member.destination.id == id).expect("a destination");
        let (passed, now) = (!marked, Instant::now());
        cluster.judge(member, crate::health::Event::Probe { passed, cause: "".into(), begun: now }, now);
    }

    #[test]
    fn given_failovers_when_a_primary_is_available_then_they_get_nothing_and_else_the_first_in_order_and_there_is_no_panic()
     {
        let cluster = tiers("health: { active: { type: tcp, unhealthy_after: 1 } }");
        let all = |cluster: &Cluster| (0..8).map(|_| drawn(cluster)).collect::<Vec<_>>();
        assert!(all(&cluster).iter().all(|id| id.as_ref().is_ok_and(|id| id.starts_with('p'))));
        mark(&cluster, "p1", true);
        assert_eq!(all(&cluster), vec![Ok("p2".into()); 8]);
        mark(&cluster, "p2", true);
        assert_eq!(all(&cluster), vec![Ok("f1".into()); 8]);
        mark(&cluster, "f1", true);
        assert_eq!(all(&cluster), vec![Ok("f2".into()); 8]);
        mark(&cluster, "f2", true);
        assert!(
            all(&cluster).iter().all(|id| id.as_ref().is_ok_and(|id| id.starts_with('p'))),
            "panic is of primaries"
        );
        mark(&cluster, "p1", false);
        assert_eq!(all(&cluster), vec![Ok("p1".into()); 8]);
        let cluster =
            tiers("failover: off, health: { active: { type: tcp, unhealthy_after: 1 }, available: HealthyAndUnknown }");
        mark(&cluster, "p1", true);
        mark(&cluster, "p2", true);
        assert_eq!(drawn(&cluster), Err(NoDestination::NoneAvailable));
    }

    #[test]
    fn given_attempts_per_destination_when_failed_over_then_each_in_order_so_often_and_then_none() {
        let cluster = tiers("failover: { attempts_per_destination: 2 }");
        let (mut trail, mut dice, now) = (Trail::default(), Dice::with_seed(1), Instant::now());
        let mut ids = Vec::new();
        while let Ok(drawn) = fail_over(&cluster, request(), &mut trail, now, &mut dice) {
            trail.took(&cluster, &drawn.member);
            ids.push(drawn.member.destination.id.clone());
        }
        assert_eq!(ids, ["f1", "f1", "f2", "f2"]);
    }

    #[test]
    fn given_a_half_open_primary_when_failovers_serve_then_requests_that_can_be_sent_again_are_its_trials() {
        let passive = "passive: { detectors: [{ policy: ConsecutiveFailures, failures: 1 }], max_ejected: 100% }";
        let (cluster, now) = (tiers(&format!("health: {{ {passive} }}")), Instant::now());
        for member in cluster.members.iter().filter(|member| member.is(Role::Primary)) {
            let ticket = member.live.lease(None).expect("no bound").ticket();
            let (outcome, waited, route) =
                (crate::model::Outcome::Refused, std::time::Duration::ZERO, &Arc::from("all"));
            let report = crate::runtime::Report { outcome, ticket, begun: now, route, attempt: 1, detail: "", waited };
            cluster.report(member, &report, now);
        }
        assert_eq!(drawn(&cluster), Ok("f1".into()));
        cluster.due(now + std::time::Duration::from_secs(10));
        let post = RequestView { method: &http::Method::POST, ..request() };
        let to = |request| {
            let drawn = draw(&cluster, Arm::Primary, request, &mut Trail::default(), now, &mut Dice::with_seed(1));
            drawn.ok().map(|drawn| drawn.member.destination.id.clone())
        };
        assert_eq!((to(post), to(request())), (Some("f1".into()), Some("p1".into())));
    }

    #[test]
    fn given_a_request_at_a_full_destination_when_drawn_again_then_its_own_place_does_not_stand_in_its_way() {
        let full =
            || crate::runtime::testing::cluster_of("RoundRobin", &["{ address: http://127.0.0.1:1, max_requests: 1 }"]);
        let again = |cluster: &Cluster, trail: &mut Trail| {
            draw_again(cluster, request(), trail, Instant::now(), &mut Dice::with_seed(1)).map(|drawn| drawn.lease)
        };
        let (cluster, mut trail) = (full(), Trail::default());
        let own = again(&cluster, &mut trail).expect("a place");
        assert_eq!(again(&cluster, &mut Trail::default()).err(), Some(NoDestination::AllFull));
        trail.at = Some(0);
        let next = again(&cluster, &mut trail).expect("its own place");
        assert_eq!(again(&cluster, &mut Trail::default()).err(), Some(NoDestination::AllFull));
        drop(own);
        assert_eq!(again(&cluster, &mut Trail::default()).err(), Some(NoDestination::AllFull));
        drop(next);
        assert!(again(&cluster, &mut Trail::default()).is_ok());
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
            let drawn = draw(cluster, Arm::Primary, request, &mut Trail::default(), now, &mut Dice::with_seed(1));
            drawn.ok().map(|drawn| drawn.member.destination.id.clone())
        };
        cluster.due(at(10));
        assert!((0..10).all(|_| post(&cluster, at(10)) == Some("b".into())));
        cluster.due(at(20));
        assert_eq!(post(&cluster, at(20)), Some("a".into()));
    }
}
