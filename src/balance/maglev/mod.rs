//! Maglev: what has the same key goes to the same destination, and one that comes or goes moves hardly any keys but its
//! own (Eisenbud et al., "Maglev: A Fast and Reliable Software Network Load Balancer", 2016). Everything is hashed
//! with XXH64, so all proxies with the same destinations agree, in any order of the file and after any restart. A request
//! without the key, or with an empty one, is placed by two choices.
//!
//! `bound` (default 1.25; Mirrokni et al., "Consistent Hashing with Bounded Loads", 2018) keeps a popular key from drowning
//! its destination: one that would get beyond `bound` times its share of the cluster's requests in flight, rounded up, is
//! passed over for the next in the table. With few requests in flight that is one for each destination, so even two of
//! the same key at the same time are parted; `bound: off` never parts them.
//!
//! The cost is flat. Preparing fills a table of 65,537 slots; destinations beyond that number would have none.

mod key;

use self::key::Key;
use super::power_of_two_choices::TwoChoices;
use super::{Balancer, Draw, Entry, Picker, Site};
use crate::config::Section;
use crate::model::Member;
use std::sync::Arc;
use xxhash_rust::xxh64::xxh64;

pub const ENTRY: Entry = Entry { name: "Maglev", build };

fn build(params: &mut Section<'_>, _: &Site) -> Box<dyn Balancer> {
    let key = Key::read(params);
    let bound = if params.off("bound") { None } else { Some(params.number("bound", 1.01..=100.0).unwrap_or(1.25)) };
    Box::new(Maglev { key, bound })
}

/// A prime, as the paper asks for: then each step walks through all slots.
const SLOTS: usize = 65_537;
const FREE: u32 = u32::MAX;
/// Slots that a pick looks at before it leaves the table. With every load within its bound at most 80 % of the table is at
/// the default one, so that 64 looks miss the rest once in a million times.
const LOOKS: usize = 64;

struct Maglev {
    key: Key,
    bound: Option<f64>,
}

impl Balancer for Maglev {
    fn prepare(&self, set: &[Arc<Member>]) -> Box<dyn Picker> {
        let total: f64 = set.iter().map(|member| f64::from(member.weight())).sum();
        let allowed =
            |bound: f64| set.iter().map(move |member| bound * f64::from(member.weight()) / total).collect::<Vec<f64>>();
        Box::new(Prepared {
            key: self.key.clone(),
            slots: table(set),
            allowed: self.bound.map(allowed),
            others: TwoChoices::over(set),
        })
    }
}

struct Prepared {
    key: Key,
    /// Slot → position.
    slots: Vec<u32>,
    /// Of the cluster's requests in flight, by position.
    allowed: Option<Vec<f64>>,
    others: TwoChoices,
}

impl Picker for Prepared {
    fn pick(&self, set: &[Arc<Member>], draw: &mut Draw<'_>) -> Option<usize> {
        let hash = self.key.hash(&draw.request);
        let placed = hash.and_then(|hash| {
            let start = (hash % SLOTS as u64) as usize;
            let looks = (start..start + LOOKS).map(|slot| self.slots[slot % SLOTS] as usize);
            let usable = |&i: &usize| !draw.tried.contains(set[i].index) && self.has_room(i, &set[i]);
            looks.into_iter().find(usable)
        });
        placed.or_else(|| self.others.pick(set, draw))
    }
}

impl Prepared {
    /// Whether one request more stays within the bound, rounded up.
    fn has_room(&self, position: usize, member: &Member) -> bool {
        let Some(allowed) = &self.allowed else { return true };
        let (mine, all) = (f64::from(member.live.in_flight()), f64::from(member.live.cluster_in_flight()));
        mine < (allowed[position] * (all + 1.0)).ceil()
    }
}

/// One destination while the table is filled.
struct Filling {
    position: u32,
    weight: u64,
    /// Its turn comes when `round × weight` reaches this.
    due: u64,
    next: usize,
    step: usize,
}

/// Each destination goes through the slots in an order of its own and takes the next free one when it is its turn: the
/// heaviest in every round, the others as often as their weight is of that.
fn table(set: &[Arc<Member>]) -> Vec<u32> {
    let mut order: Vec<usize> = (0..set.len()).collect();
    order.sort_by_key(|&i| &set[i].destination.id);
    let filling = |position: usize| {
        let id = set[position].destination.id.as_bytes();
        Filling {
            position: position as u32,
            weight: set[position].weight().into(),
            due: 0,
            next: (xxh64(id, 0) % SLOTS as u64) as usize,
            step: (xxh64(id, 1) % (SLOTS as u64 - 1)) as usize + 1,
        }
    };
    let mut order: Vec<Filling> = order.into_iter().map(filling).collect();
    let heaviest = order.iter().map(|one| one.weight).max().unwrap_or(1);
    let mut slots = vec![FREE; SLOTS];
    let mut free = SLOTS;
    for round in 1..=SLOTS as u64 {
        for one in &mut order {
            if round * one.weight < one.due {
                continue;
            }
            if free == 0 {
                return slots;
            }
            one.due += heaviest;
            one.take(&mut slots);
            free -= 1;
        }
    }
    slots
}

impl Filling {
    fn take(&mut self, slots: &mut [u32]) {
        while slots[self.next] != FREE {
            self.next = (self.next + self.step) % SLOTS;
        }
        slots[self.next] = self.position;
    }
}

#[cfg(test)]
mod tests {
    use super::super::Tried;
    use super::super::testing::{load, members, request};
    use super::*;
    use crate::model::{Dice, Lease, RequestView};
    use std::time::Instant;

    fn named(count: usize) -> Vec<Arc<Member>> {
        let ids: Vec<String> = (0..count).map(|i| format!("d{i}")).collect();
        members(&ids.iter().map(|id| (id.as_str(), 1, "")).collect::<Vec<_>>())
    }

    fn by_path(bound: Option<f64>) -> Maglev {
        Maglev { key: Key::Path, bound }
    }

    /// Where a request for each path goes, by id.
    fn placed(picker: &dyn Picker, set: &[Arc<Member>], paths: &[String], tried: &Tried) -> Vec<String> {
        let (mut dice, now) = (Dice::with_seed(1), Instant::now());
        let mut place = |path: &String| {
            let request = RequestView { path, ..request() };
            let picked = picker.pick(set, &mut Draw { request, tried, now, dice: &mut dice });
            set[picked.expect("one is left")].destination.id.clone()
        };
        paths.iter().map(&mut place).collect()
    }

    fn paths(count: usize) -> Vec<String> {
        (0..count).map(|i| format!("/{i}")).collect()
    }

    /// How many slots each position has.
    fn owned(set: &[Arc<Member>]) -> Vec<usize> {
        let mut owned = vec![0; set.len()];
        table(set).into_iter().for_each(|position| owned[position as usize] += 1);
        owned
    }

    /// The share of slots that lead to another id in `after` than in `before`.
    fn moved(before: &[Arc<Member>], after: &[Arc<Member>]) -> f64 {
        let (old, new) = (table(before), table(after));
        let differs =
            |slot: &usize| before[old[*slot] as usize].destination.id != after[new[*slot] as usize].destination.id;
        (0..SLOTS).filter(differs).count() as f64 / SLOTS as f64
    }

    #[test]
    fn given_equal_weights_when_the_table_is_filled_then_no_share_differs_by_more_than_one_slot() {
        for count in [1, 2, 3, 7, 100, 3_000] {
            let owned = owned(&named(count));
            let (least, most) = (owned.iter().min().unwrap(), owned.iter().max().unwrap());
            assert!(most - least <= 1, "{count}: {least} to {most}");
        }
    }

    #[test]
    fn given_weights_when_the_table_is_filled_then_slots_are_in_their_proportion() {
        let owned = owned(&members(&[("a", 5, ""), ("b", 3, ""), ("c", 2, "")]));
        for (slots, share) in owned.iter().zip([0.5, 0.3, 0.2]) {
            assert!((*slots as f64 / SLOTS as f64 - share).abs() < 0.001, "{owned:?}");
        }
    }

    #[test]
    fn given_one_of_n_leaves_or_comes_when_filled_anew_then_hardly_more_than_its_own_keys_move() {
        for count in [3, 10, 100] {
            let set = named(count);
            let share = 1.0 / count as f64;
            for gone in [0, count / 2, count - 1] {
                let mut rest = set.clone();
                rest.remove(gone);
                for moved in [moved(&set, &rest), moved(&rest, &set)] {
                    assert!(moved >= share * 0.99 && moved <= 2.0 * share, "{gone} of {count}: {moved}");
                }
            }
        }
    }

    #[test]
    fn given_weights_when_one_leaves_then_hardly_more_than_its_own_keys_move() {
        let set = members(&[("a", 10, ""), ("b", 5, ""), ("c", 5, ""), ("d", 3, ""), ("e", 2, ""), ("f", 1, "")]);
        for gone in 0..set.len() {
            let mut rest = set.clone();
            let share = f64::from(rest.remove(gone).destination.weight) / 26.0;
            let moved = moved(&set, &rest);
            assert!(moved >= share * 0.99 && moved <= 2.0 * share, "{gone}: {moved} of {share}");
        }
    }

    #[test]
    fn given_one_was_tried_when_picked_then_only_its_own_keys_go_elsewhere() {
        let (set, paths) = (named(5), paths(500));
        let picker = by_path(Some(1.25)).prepare(&set);
        let before = placed(&*picker, &set, &paths, &Tried::default());
        let mut tried = Tried::default();
        tried.insert(2);
        let after = placed(&*picker, &set, &paths, &tried);
        for (before, after) in before.iter().zip(&after) {
            assert!(if before == "d2" { after != "d2" } else { before == after });
        }
        assert!(before.iter().any(|id| id == "d2"));
    }

    #[test]
    fn given_another_order_of_the_file_when_filled_then_the_same_keys_go_to_the_same_ids() {
        let (set, paths) = (named(7), paths(200));
        let mut turned = set.clone();
        turned.reverse();
        let place = |set: &[Arc<Member>]| placed(&*by_path(None).prepare(set), set, &paths, &Tried::default());
        assert_eq!(place(&set), place(&turned));
    }

    /// What is pinned here must not change in any release: proxies of different releases serve side by side.
    #[test]
    fn given_known_keys_when_placed_then_where_they_have_always_been() {
        let set = members(&[("catalog-1", 1, ""), ("catalog-2", 1, ""), ("catalog-3", 2, "")]);
        let paths = paths(24);
        let seen = placed(&*by_path(None).prepare(&set), &set, &paths, &Tried::default());
        let seen: String = seen.iter().map(|id| &id["catalog-".len()..]).collect();
        assert_eq!(seen, "321231231112331231112333");
        assert_eq!(
            table(&set).iter().fold(0, |hash, &position| xxh64(&position.to_le_bytes(), hash)),
            0xc8c6_2e4c_1840_4cc0
        );
        assert_eq!((xxh64(b"", 0), xxh64(b"abc", 0)), (0xef46_db37_51d8_e999, 0x44bc_2cf5_ad77_0999));
    }

    #[test]
    fn given_a_popular_key_when_its_destination_is_at_the_bound_then_the_rest_goes_to_the_next_and_returns() {
        let set = named(4);
        let picker = by_path(Some(1.25)).prepare(&set);
        let popular = paths(1);
        let place = || placed(&*picker, &set, &popular, &Tried::default()).remove(0);
        let home = place();
        let mut leases: Vec<Lease> = Vec::new();
        for taken in 1..=40u32 {
            let id = place();
            leases.extend(set.iter().filter(|member| member.destination.id == id).flat_map(|member| load(member, 1)));
            for member in &set {
                let bound = (1.25 * f64::from(taken) / 4.0).ceil();
                assert!(f64::from(member.live.in_flight()) <= bound, "{taken}: {}", member.live.in_flight());
            }
        }
        let at_home = set.iter().find(|member| member.destination.id == home).expect("it is there");
        assert_eq!(at_home.live.in_flight(), 13);
        drop(leases);
        assert_eq!(place(), home);
    }

    #[test]
    fn given_no_bound_when_one_key_is_all_that_is_asked_then_it_stays_with_one_destination() {
        let set = named(4);
        let picker = by_path(None).prepare(&set);
        let home = placed(&*picker, &set, &paths(1), &Tried::default());
        let _busy: Vec<Lease> = set.iter().filter(|m| m.destination.id == home[0]).flat_map(|m| load(m, 500)).collect();
        assert_eq!(placed(&*picker, &set, &paths(1), &Tried::default()), home);
    }

    #[test]
    fn given_no_key_when_picked_then_by_two_choices() {
        let set = named(3);
        let picker = Maglev { key: Key::ClientIp, bound: Some(1.25) }.prepare(&set);
        let _busy = load(&set[1], 1);
        let seen = placed(&*picker, &set, &paths(300), &Tried::default());
        assert!(seen.iter().all(|id| id != "d1") && ["d0", "d2"].iter().all(|id| seen.iter().any(|s| s == id)));
    }
}
