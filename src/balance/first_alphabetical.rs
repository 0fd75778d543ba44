//! FirstAlphabetical: always the destination whose id sorts first, so a plain active/standby pair. Order is YARP's:
//! ordinal over upper-cased UTF-16 units, so `node10` comes before `node2`, and `nodeA` before `node_1`.

use super::{Balancer, Draw, Entry, Picker};
use crate::model::Member;
use std::sync::Arc;

pub const ENTRY: Entry = Entry { name: "FirstAlphabetical", build: |_, _| Box::new(FirstAlphabetical) };

struct FirstAlphabetical;

impl Balancer for FirstAlphabetical {
    fn prepare(&self, set: &[Arc<Member>]) -> Box<dyn Picker> {
        let mut order: Vec<usize> = (0..set.len()).collect();
        order.sort_by_cached_key(|&i| sort_key(&set[i].destination.id));
        Box::new(Prepared(order))
    }
}

fn sort_key(id: &str) -> Vec<u16> {
    id.to_uppercase().encode_utf16().collect()
}

/// Positions, first id first.
struct Prepared(Vec<usize>);

impl Picker for Prepared {
    fn pick(&self, set: &[Arc<Member>], draw: &mut Draw<'_>) -> Option<usize> {
        self.0.iter().copied().find(|&i| !draw.tried.contains(set[i].index))
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{equal, picks};
    use super::*;

    #[test]
    fn given_ids_in_any_order_when_picked_then_the_first_alphabetical_one() {
        for (ids, first) in [
            (vec!["destination2", "destination1"], "destination1"),
            (vec!["node2", "node10"], "node10"),
            (vec!["node_1", "nodeA"], "nodeA"),
            (vec!["b", "A", "c"], "A"),
        ] {
            let seen = picks(&FirstAlphabetical, &equal(&ids), &[], 1, 10);
            assert!(seen.iter().all(|id| id.as_deref() == Some(first)), "{seen:?}");
        }
    }
}
