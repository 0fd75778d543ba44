use crate::config::RetryBudget;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The share of requests counts over so long.
const RECENT: Duration = Duration::from_secs(10);
/// Requests are looked at once in so long, at least.
const STEP: Duration = Duration::from_secs(1);
/// Of what five times a fifth may lack of one.
const ROUNDING: f64 = 1e-6;

/// How many retries a cluster may make: each request adds a share of one, and each second the floor. It holds no more than one
/// second's floor and the share of the last ten seconds' requests.
///
/// A request costs one count. Only retries, and [`Budget::look`], take a lock.
#[derive(Debug, Default)]
pub struct Budget {
    requests: AtomicU64,
    ledger: Mutex<Ledger>,
}

#[derive(Debug, Default)]
struct Ledger {
    retries: f64,
    /// When it was last looked at, and the requests by then.
    looked: Option<(Instant, u64)>,
    /// Likewise, about once in [`STEP`], of the last [`RECENT`]; the oldest first.
    recent: VecDeque<(Instant, u64)>,
}

impl Budget {
    /// A request came, whatever comes of it.
    pub fn request(&self) {
        self.requests.fetch_add(1, Relaxed);
    }

    /// Takes a retry out, if one is there.
    pub fn take(&self, rule: &RetryBudget, now: Instant) -> bool {
        self.with(|ledger| {
            ledger.look(self.requests.load(Relaxed), rule, now);
            let enough = ledger.retries + ROUNDING >= 1.0;
            if enough {
                ledger.retries -= 1.0;
            }
            enough
        })
    }

    /// One that was taken and not made.
    pub fn give_back(&self) {
        self.with(|ledger| ledger.retries += 1.0);
    }

    /// Notes when requests came, without which it would not know the recent ones from others: wants to be called once a second.
    pub fn look(&self, rule: &RetryBudget, now: Instant) {
        self.with(|ledger| ledger.look(self.requests.load(Relaxed), rule, now));
    }

    fn with<R>(&self, act: impl FnOnce(&mut Ledger) -> R) -> R {
        act(&mut self.ledger.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Ledger {
    fn look(&mut self, requests: u64, rule: &RetryBudget, now: Instant) {
        let floor = f64::from(rule.floor);
        let (since, counted) = *self.looked.get_or_insert_with(|| {
            self.retries = floor;
            self.recent.push_back((now, 0));
            (now, 0)
        });
        let gained = rule.percent * requests.saturating_sub(counted) as f64
            + floor * now.saturating_duration_since(since).as_secs_f64();
        self.looked = Some((since.max(now), requests));
        while self.recent.front().is_some_and(|(at, _)| now.saturating_duration_since(*at) > RECENT) {
            self.recent.pop_front();
        }
        if self.recent.back().is_none_or(|(at, _)| now.saturating_duration_since(*at) >= STEP) {
            self.recent.push_back((now, requests));
        }
        let before = self.recent.front().map_or(requests, |(_, before)| *before);
        let most = floor + rule.percent * requests.saturating_sub(before) as f64;
        self.retries = (self.retries + gained).min(most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const DEFAULT: RetryBudget = RetryBudget { percent: 0.2, floor: 10 };

    fn taken(budget: &Budget, rule: &RetryBudget, now: Instant) -> usize {
        (0..100_000).take_while(|_| budget.take(rule, now)).count()
    }

    #[test]
    fn given_a_new_cluster_when_retried_then_the_floor_of_a_second_and_again_a_second_later() {
        let (budget, now) = (Budget::default(), Instant::now());
        assert_eq!(taken(&budget, &DEFAULT, now), 10);
        assert_eq!(taken(&budget, &DEFAULT, now), 0);
        assert_eq!(taken(&budget, &DEFAULT, now + Duration::from_millis(500)), 5);
        assert_eq!(taken(&budget, &DEFAULT, now + Duration::from_secs(60)), 10);
    }

    #[test]
    fn given_requests_when_retried_then_a_fifth_of_those_of_the_last_ten_seconds() {
        let (budget, start) = (Budget::default(), Instant::now());
        let second = |second: u64| start + Duration::from_secs(second);
        for n in 0..60 {
            budget.look(&DEFAULT, second(n));
            (0..100).for_each(|_| budget.request());
        }
        assert_eq!(taken(&budget, &DEFAULT, second(59) + Duration::from_millis(500)), 210);
        for n in 60..80 {
            budget.look(&DEFAULT, second(n));
        }
        assert_eq!(taken(&budget, &DEFAULT, second(80)), 10);
    }

    #[test]
    fn given_neither_share_nor_floor_when_retried_then_never() {
        let (budget, now) = (Budget::default(), Instant::now());
        (0..1_000).for_each(|_| budget.request());
        assert!(!budget.take(&RetryBudget { percent: 0.0, floor: 0 }, now));
    }

    #[test]
    fn given_one_given_back_when_retried_then_it_is_there_again() {
        let (budget, now) = (Budget::default(), Instant::now());
        assert_eq!(taken(&budget, &DEFAULT, now), 10);
        budget.give_back();
        assert_eq!(taken(&budget, &DEFAULT, now), 1);
    }

    #[derive(Debug, Clone)]
    enum Step {
        Requests(u64),
        Retries(u64),
        Pass(u64),
        Look,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            (0u64..200).prop_map(Step::Requests),
            (0u64..200).prop_map(Step::Retries),
            (0u64..4_000).prop_map(Step::Pass),
            Just(Step::Look),
        ];
        prop::collection::vec(step, 0..60)
    }

    proptest! {
        /// Over any window, what is taken is at most what it could hold before and what came in since.
        #[test]
        fn given_any_traffic_when_looked_at_any_window_then_no_more_than_held_and_earned(
            steps in steps(), percent in 0.0f64..=1.0, floor in 0u32..50,
        ) {
            let (rule, budget, start) = (RetryBudget { percent, floor }, Budget::default(), Instant::now());
            budget.look(&rule, start);
            // Time in ms, requests and retries, after each step.
            let (mut now, mut requests, mut retries) = (0u64, 0u64, 0u64);
            let mut seen = vec![(0, 0, 0)];
            for step in steps {
                let at = start + Duration::from_millis(now);
                match step {
                    Step::Requests(number) => {
                        requests += number;
                        (0..number).for_each(|_| budget.request());
                    }
                    Step::Retries(number) => retries += (0..number).filter(|_| budget.take(&rule, at)).count() as u64,
                    Step::Pass(millis) => now += millis,
                    Step::Look => budget.look(&rule, at),
                }
                seen.push((now, requests, retries));
            }
            for (index, &(from, before, taken)) in seen.iter().enumerate() {
                let lately = seen[..=index].iter().rev().take_while(|(at, ..)| from - at <= 10_000).last();
                let lately = before - lately.map_or(before, |&(_, requests, _)| requests);
                for &(to, after, then) in &seen[index..] {
                    let held = f64::from(floor) + percent * lately as f64;
                    // What came before the window may be looked at in it.
                    let earned = percent * (after - before) as f64 + f64::from(floor) * (to - from) as f64 / 1_000.0;
                    let most = held + earned + percent * unlooked(&seen[..=index]) + 1e-3;
                    prop_assert!((then - taken) as f64 <= most, "{} in {from}..{to}, at most {most}", then - taken);
                }
            }
        }
    }

    /// Requests that came at the very time at which the ten seconds begin.
    fn unlooked(seen: &[(u64, u64, u64)]) -> f64 {
        let Some(&(now, ..)) = seen.last() else { return 0.0 };
        let inside = seen.iter().position(|(at, ..)| now - at <= 10_000).unwrap_or_default();
        let before = inside.checked_sub(1).map_or(0, |before| seen[before].1);
        (seen[inside].1 - before) as f64
    }
}
