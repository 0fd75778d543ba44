//! Random: each request to any destination, in proportion to weight. Knows no load; it needs no state either.

use super::{Balancer, Draw, Entry, Picker, Shares};
use crate::model::Member;
use std::sync::Arc;

pub const ENTRY: Entry = Entry { name: "Random", build: |_, _| Box::new(Random) };

struct Random;

impl Balancer for Random {
    fn prepare(&self, set: &[Arc<Member>]) -> Box<dyn Picker> {
        Box::new(Prepared(Shares::of(set)))
    }
}

struct Prepared(Shares);

impl Picker for Prepared {
    fn pick(&self, set: &[Arc<Member>], draw: &mut Draw<'_>) -> Option<usize> {
        let drawn = self.0.draw(draw.dice);
        untried_from(drawn, set, draw)
    }
}

/// `start`, or the next position after it that was not tried.
pub(super) fn untried_from(start: usize, set: &[Arc<Member>], draw: &Draw<'_>) -> Option<usize> {
    (start..set.len()).chain(0..start).find(|&i| !draw.tried.contains(set[i].index))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{members, picks};
    use super::*;

    #[test]
    fn given_weights_when_picked_then_shares_follow_them_within_five_sigma() {
        let set = members(&[("a", 1, ""), ("b", 3, "")]);
        let seen = picks(&Random, &set, &[], 11, 10_000);
        let b = seen.iter().flatten().filter(|id| *id == "b").count() as f64;
        assert!((b - 7_500.0).abs() < 5.0 * (10_000.0f64 * 0.75 * 0.25).sqrt(), "{b}");
    }
}
