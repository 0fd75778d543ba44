use super::Cluster;
use crate::balance::smooth_order;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A route's requests shared by clusters: of as many in a row as all weights come to, wherever they begin, each gets exactly its
/// weight, as evenly among the others' as can be.
pub struct Split {
    clusters: Vec<Arc<Cluster>>,
    weights: Vec<u32>,
    /// Positions of clusters in the order of their turns.
    order: Vec<u32>,
    /// Of all snapshots whose split is the same.
    turn: Arc<AtomicUsize>,
}

impl Split {
    /// Weights without a common divisor, one of them above 0. Goes on where one that shares `before` as this one does would.
    pub(super) fn new(clusters: Vec<Arc<Cluster>>, weights: Vec<u32>, before: Option<&Split>) -> Self {
        let order = smooth_order(&weights);
        let mut split = Split { clusters, weights, order, turn: Arc::default() };
        if let Some(before) = before.filter(|before| split.shares_as(before)) {
            split.turn = before.turn.clone();
        }
        split
    }

    pub fn clusters(&self) -> &[Arc<Cluster>] {
        &self.clusters
    }

    /// The cluster of one more request.
    pub fn next(&self) -> &Arc<Cluster> {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed) % self.order.len();
        &self.clusters[self.order[turn] as usize]
    }

    fn shares_as(&self, other: &Split) -> bool {
        let names = |split: &Split| split.clusters.iter().map(|cluster| cluster.name.clone()).collect::<Vec<_>>();
        self.weights == other.weights && names(self) == names(other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::discovery::SystemNames;
    use crate::model::Epoch;
    use crate::observe::Metrics;
    use crate::runtime::{Action, Registry, Scene, Snapshot, compile};
    use proptest::prelude::*;
    use std::thread;
    use std::time::{Instant, SystemTime};

    fn compiled(split: &str, serving: Option<&Snapshot>) -> Snapshot {
        let names = ["a", "b", "c"].map(|name| format!("{name}: {{ destinations: [\"http://127.0.0.1:1\"] }}"));
        let text = format!(
            "listeners: {{ web: \"127.0.0.1:9\" }}\nroutes: {{ all: {{ split: {split} }} }}\nclusters: {{ {} }}\n",
            names.join(", ")
        );
        let config = Config::parse("test", &text).unwrap_or_else(|faults| panic!("{faults}"));
        let epoch = Epoch { instant: Instant::now(), wall: SystemTime::UNIX_EPOCH };
        let (registry, metrics) = (&Registry::builtin(), &Metrics::new());
        let scene = Scene { registry, names: &SystemNames, metrics, epoch, serving };
        compile(&config, &scene, config.problems()).unwrap_or_else(|faults| panic!("{faults}"))
    }

    fn of(weights: &[u32]) -> String {
        let shares = ["a", "b", "c"].iter().zip(weights);
        let shares: Vec<_> = shares.map(|(name, weight)| format!("{{ cluster: {name}, weight: {weight} }}")).collect();
        format!("[{}]", shares.join(", "))
    }

    fn split(snapshot: &Snapshot) -> &Split {
        let Action::Split(split) = &snapshot.routes[0].action else { panic!("a split") };
        split
    }

    fn names(snapshot: &Snapshot, requests: usize) -> String {
        (0..requests).map(|_| split(snapshot).next().name.clone()).collect()
    }

    fn count(names: &str, name: char) -> usize {
        names.chars().filter(|&of| of == name).count()
    }

    #[test]
    fn given_95_to_5_when_a_thousand_requests_come_then_50_and_5_of_any_hundred() {
        let names = names(&compiled(&of(&[95, 5]), None), 1000);
        assert_eq!(count(&names, 'b'), 50);
        for begin in 0..=900 {
            assert_eq!(count(&names[begin..begin + 100], 'b'), 5, "from {begin}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn given_any_weights_when_their_sum_of_requests_is_counted_from_anywhere_then_it_is_exact_and_interleaved(
            weights in prop::array::uniform3(0_u32..40).prop_filter("one above 0", |weights| weights.iter().sum::<u32>() > 0)
        ) {
            let (snapshot, sum) = (compiled(&of(&weights), None), weights.iter().sum::<u32>() as usize);
            let names = names(&snapshot, 3 * sum);
            for begin in 0..=2 * sum {
                for (name, weight) in ['a', 'b', 'c'].into_iter().zip(weights) {
                    prop_assert_eq!(count(&names[begin..begin + sum], name), weight as usize);
                }
            }
            for length in 1..=sum {
                for (name, weight) in ['a', 'b', 'c'].into_iter().zip(weights) {
                    // Off by less than one request for each other cluster, however few are looked at.
                    let share = (length * weight as usize) as f64 / sum as f64;
                    let off = count(&names[..length], name) as f64 - share;
                    prop_assert!(off.abs() < 2.0, "{} of {} {}", off, length, name);
                }
            }
        }
    }

    #[test]
    fn given_many_threads_when_they_ask_at_once_then_it_is_exact() {
        let snapshot = &compiled(&of(&[950, 50]), None);
        let all: usize = thread::scope(|scope| {
            let each: Vec<_> = (0..8).map(|_| scope.spawn(|| count(&names(snapshot, 1250), 'b'))).collect();
            each.into_iter().map(|each| each.join().expect("no panic")).sum()
        });
        assert_eq!(all, 500);
    }

    #[test]
    fn given_a_reload_when_the_split_stays_then_its_turn_goes_on_and_else_it_begins_anew() {
        let first = compiled(&of(&[2, 1]), None);
        assert_eq!(names(&first, 2), "ab");
        let same = compiled(&of(&[20, 10]), Some(&first));
        assert_eq!(names(&same, 2), "aa");
        // Requests of the older snapshot take part.
        assert_eq!(names(&first, 1) + &names(&same, 1), "ba");
        let other = compiled(&of(&[1, 1]), Some(&same));
        assert_eq!(names(&other, 4), "abab");
    }
}
