//! Picking in the policies' tests.

use super::{Balancer, Draw, Tried};
use crate::model::{Dice, Member};
use std::sync::Arc;
use std::time::Instant;

pub use crate::model::testing::{equal, load, members, request};

/// Picks `count` times with the given members tried; the ids that came out.
pub fn picks(
    balancer: &dyn Balancer,
    set: &[Arc<Member>],
    tried: &[usize],
    seed: u64,
    count: usize,
) -> Vec<Option<String>> {
    let picker = balancer.prepare(set);
    let mut dice = Dice::with_seed(seed);
    let mut not = Tried::default();
    tried.iter().for_each(|&index| not.insert(index));
    (0..count)
        .map(|_| {
            let mut draw = Draw { request: request(), tried: &not, now: Instant::now(), dice: &mut dice };
            picker.pick(set, &mut draw).map(|i| set[i].destination.id.clone())
        })
        .collect()
}
