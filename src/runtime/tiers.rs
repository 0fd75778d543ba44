//! What may be drawn of a cluster, derived when health changes and swapped whole. The tiers do not know the request; in which
//! order it asks them is [`super::draw()`]'s.

use crate::balance::{Balancer, Draw, Picker};
use crate::config::Role;
use crate::health::Cap;
use crate::health::available::AvailablePolicy;
use crate::model::{Member, WHOLE};
use std::sync::Arc;

/// What may be drawn and how. Mirrors never are, but for copies.
#[derive(Default)]
pub struct Published {
    pub primaries: Tier,
    /// Picked in the configuration's order; empty while `failover` is off.
    pub failovers: Tier,
    pub canaries: Tier,
    pub mirrors: Tier,
}

/// Destinations of one role.
#[derive(Default)]
pub struct Tier {
    pub set: Vec<Arc<Member>>,
    /// `None` when the set is empty.
    pub picker: Option<Box<dyn Picker>>,
    /// Those that take requests on trial.
    pub trials: Vec<Arc<Member>>,
    /// Marked ones serve for want of better ones; of primaries only.
    pub panic: bool,
}

/// For each role, how many destinations may be ejected.
#[derive(Default)]
pub(super) struct Caps([Cap; Role::ALL.len()]);

impl Caps {
    pub fn of(&self, role: Role) -> &Cap {
        &self.0[role as usize]
    }

    pub fn set_limits(&self, limits: [u32; Role::ALL.len()]) {
        self.0.iter().zip(limits).for_each(|(cap, limit)| cap.set_limit(limit));
    }
}

impl Published {
    /// Sets the shares of the members as well.
    pub(super) fn derive(
        members: &[Arc<Member>],
        balancer: &dyn Balancer,
        available: &dyn AvailablePolicy,
        failover: bool,
    ) -> Self {
        let of = |role| members.iter().filter(|member| member.is(role)).cloned().collect::<Vec<_>>();
        let failovers = Tier::of_unmarked(&if failover { of(Role::Failover) } else { Vec::new() }, &InOrder);
        let primaries = of(Role::Primary);
        let chosen = available.choose(&primaries, !failovers.set.is_empty());
        ramp(&primaries);
        for candidate in chosen.members.iter().filter(|candidate| candidate.share < WHOLE) {
            candidate.member.live.set_share(candidate.share);
        }
        let set = chosen.members.into_iter().map(|candidate| candidate.member).collect();
        Published {
            primaries: Tier { panic: chosen.panic, ..Tier::of(set, &primaries, balancer) },
            failovers,
            canaries: Tier::of_unmarked(&of(Role::Canary), balancer),
            mirrors: Tier::of_unmarked(&of(Role::Mirror), balancer),
        }
    }

    /// Whether it is of what gets traffic.
    pub fn has(&self, member: &Member) -> bool {
        let tiers = [&self.primaries, &self.failovers, &self.canaries];
        tiers.iter().any(|tier| tier.set.iter().any(|other| other.index == member.index))
    }
}

impl Tier {
    fn of(set: Vec<Arc<Member>>, members: &[Arc<Member>], balancer: &dyn Balancer) -> Self {
        let picker = (!set.is_empty()).then(|| balancer.prepare(&set));
        let on_trial = |member: &&Arc<Member>| member.takes_new_requests() && member.live.marks.is_on_trial();
        Tier { set, picker, trials: members.iter().filter(on_trial).cloned().collect(), panic: false }
    }

    fn of_unmarked(members: &[Arc<Member>], balancer: &dyn Balancer) -> Self {
        ramp(members);
        let serves = |member: &&Arc<Member>| member.takes_new_requests() && member.is_unmarked();
        Tier::of(members.iter().filter(serves).cloned().collect(), members, balancer)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.set.is_empty() && self.trials.is_empty()
    }
}

/// A ramp spares one destination the load that others carry; when most of them ramp there are no others.
fn ramp(members: &[Arc<Member>]) {
    let enabled = || members.iter().filter(|member| member.takes_new_requests());
    let ramping = enabled().filter(|member| member.live.ramp() < WHOLE).count();
    let ramps = ramping * 2 <= enabled().count();
    for member in members {
        member.live.set_share(if ramps { member.live.ramp() } else { WHOLE });
    }
}

/// How failovers are picked.
struct InOrder;

impl Balancer for InOrder {
    fn prepare(&self, _: &[Arc<Member>]) -> Box<dyn Picker> {
        Box::new(InOrder)
    }
}

impl Picker for InOrder {
    fn pick(&self, set: &[Arc<Member>], draw: &mut Draw<'_>) -> Option<usize> {
        set.iter().position(|member| !draw.tried.contains(member.index))
    }
}
