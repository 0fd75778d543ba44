//! PreferSameZone: two choices among the destinations of this instance's own zone; all of them when the zone has none.
//! With `spill_over: N` a zone whose two sampled candidates both have N or more in flight lets the others join for
//! that request. `zone_key` names the metadata key (default `Zone`). Needs `server.zone`.

use super::power_of_two_choices::TwoChoices;
use super::{Balancer, Draw, Entry, Picker, Site, less_loaded};
use crate::config::Section;
use crate::model::Member;
use std::sync::Arc;

pub const ENTRY: Entry = Entry { name: "PreferSameZone", build };

fn build(params: &mut Section<'_>, site: &Site) -> Box<dyn Balancer> {
    let key = params.text("zone_key").map_or_else(|| "Zone".to_string(), |key| key.value);
    let spill_over = params.integer("spill_over", 1..=1_000_000).map(|n| n as u32);
    if site.zone.is_none() {
        let at = params.at().clone();
        params.problem(&at, "PreferSameZone needs to know where this instance runs: set server.zone");
    }
    Box::new(PreferSameZone { zone: site.zone.clone(), key, spill_over })
}

struct PreferSameZone {
    zone: Option<String>,
    key: String,
    spill_over: Option<u32>,
}

impl Balancer for PreferSameZone {
    fn prepare(&self, set: &[Arc<Member>]) -> Box<dyn Picker> {
        let is_local =
            |m: &Arc<Member>| self.zone.is_some() && m.destination.metadata.get(&self.key) == self.zone.as_ref();
        let positions: Vec<usize> = (0..set.len()).filter(|&i| is_local(&set[i])).collect();
        let members: Vec<Arc<Member>> = positions.iter().map(|&i| set[i].clone()).collect();
        let all = TwoChoices::over(set);
        if members.is_empty() {
            return Box::new(all);
        }
        let choices = TwoChoices::over(&members);
        Box::new(Prepared { positions, members, choices, all, spill_over: self.spill_over })
    }
}

struct Prepared {
    /// Of the zone's own members in the whole set.
    positions: Vec<usize>,
    members: Vec<Arc<Member>>,
    choices: TwoChoices,
    all: TwoChoices,
    spill_over: Option<u32>,
}

impl Picker for Prepared {
    fn pick(&self, set: &[Arc<Member>], draw: &mut Draw<'_>) -> Option<usize> {
        let Some((first, second)) = self.choices.sample(&self.members, draw) else {
            return self.all.pick(set, draw);
        };
        let (a, b) = (&self.members[first], &self.members[second]);
        let at_limit = |m: &Member| self.spill_over.is_some_and(|limit| m.live.in_flight() >= limit);
        if at_limit(a) && at_limit(b) {
            return self.all.pick(set, draw);
        }
        Some(self.positions[if less_loaded(b, a) { second } else { first }])
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{load, members, picks};
    use super::*;

    fn policy(zone: &str, spill_over: Option<u32>) -> PreferSameZone {
        PreferSameZone { zone: Some(zone.into()), key: "Zone".into(), spill_over }
    }

    fn catalog() -> Vec<Arc<Member>> {
        members(&[("1", 1, "zone-a"), ("2", 1, "zone-a"), ("3", 1, "zone-b")])
    }

    #[test]
    fn given_local_destinations_when_picked_then_none_goes_to_another_zone() {
        let seen = picks(&policy("zone-a", None), &catalog(), &[], 5, 600);
        let count = |id: &str| seen.iter().flatten().filter(|s| *s == id).count();
        assert_eq!(count("3"), 0);
        assert!(count("1") > 200 && count("2") > 200);
    }

    #[test]
    fn given_no_local_destination_when_picked_then_all_zones_serve() {
        let seen = picks(&policy("zone-z", None), &catalog(), &[], 5, 600);
        assert!(["1", "2", "3"].iter().all(|id| seen.contains(&Some(id.to_string()))));
    }

    #[test]
    fn given_a_limit_when_both_local_candidates_reach_it_then_the_others_join() {
        let set = catalog();
        let policy = policy("zone-a", Some(2));
        let _one = load(&set[0], 2);
        let below = load(&set[1], 1);
        assert!(!picks(&policy, &set, &[], 5, 100).contains(&Some("3".into())));
        let _at = load(&set[1], 1);
        assert!(picks(&policy, &set, &[], 5, 100).contains(&Some("3".into())));
        drop(below);
        assert!(!picks(&policy, &set, &[], 5, 100).contains(&Some("3".into())));
    }

    #[test]
    fn given_every_local_destination_was_tried_when_picked_then_another_zone_serves() {
        let seen = picks(&policy("zone-a", None), &catalog(), &[0, 1], 5, 10);
        assert!(seen.iter().all(|id| id.as_deref() == Some("3")));
    }
}
