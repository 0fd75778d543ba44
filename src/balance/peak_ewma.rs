//! PeakEwma, after Finagle and Linkerd: two choices as PowerOfTwoChoices draws them, and the one with the lower expected
//! wait gets the request: latency × (in flight + 1) / weight. Latency is the time from the whole request to the response head, as a moving average
//! that slow answers raise at once and time brings down (`decay`, default 10s); see [`Latency`].
//! Two looks whatever the size of the cluster.
//!
//! A destination that fails fast must not look fast: failures add a penalty that grows while they come in a row; 502, 503
//! and 504 are failures here, other statuses are answers. A client that leaves says only that the answer took no less. What
//! nothing is known of gets one request at once, and until that is answered is taken for slow (1 s).

use super::power_of_two_choices::TwoChoices;
use super::{Balancer, Draw, Entry, Picker, Site};
use crate::config::Section;
use crate::model::{Latency, Member, Outcome};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub const ENTRY: Entry = Entry { name: "PeakEwma", build };

fn build(params: &mut Section<'_>, _: &Site) -> Box<dyn Balancer> {
    let range = Duration::from_secs(1)..=Duration::from_secs(3_600);
    Box::new(PeakEwma { decay: params.duration("decay", range).unwrap_or(Duration::from_secs(10)) })
}

struct PeakEwma {
    decay: Duration,
}

impl Balancer for PeakEwma {
    fn prepare(&self, set: &[Arc<Member>]) -> Box<dyn Picker> {
        Box::new(Prepared { choices: TwoChoices::over(set), decay: self.decay })
    }

    fn learn(&self, member: &Member, outcome: Outcome, waited: Duration, now: Instant) {
        let latency = &member.live.latency;
        match outcome {
            Outcome::Status(502..=504) => latency.failed(waited, now, self.decay),
            Outcome::Status(_) => latency.answered(waited, now, self.decay),
            Outcome::Dns
            | Outcome::Refused
            | Outcome::Unreachable
            | Outcome::ConnectTimeout
            | Outcome::Tls
            | Outcome::ReadTimeout
            | Outcome::Reset
            | Outcome::Protocol => latency.failed(waited, now, self.decay),
            Outcome::ClientAbort | Outcome::RouteTimeout => latency.at_least(waited, now, self.decay),
            Outcome::Local | Outcome::Overload => {}
        }
    }
}

struct Prepared {
    choices: TwoChoices,
    decay: Duration,
}

impl Prepared {
    fn cost(&self, member: &Member, now: Instant) -> f32 {
        let in_flight = member.live.in_flight();
        let unknown = if in_flight == 0 { 0.0 } else { Latency::UNKNOWN };
        let latency = member.live.latency.estimate(now, self.decay).unwrap_or(unknown);
        latency * (in_flight as f32 + 1.0) / member.effective_weight() as f32
    }
}

impl Picker for Prepared {
    fn pick(&self, set: &[Arc<Member>], draw: &mut Draw<'_>) -> Option<usize> {
        let (first, second) = self.choices.sample(set, draw)?;
        let cheaper = self.cost(&set[second], draw.now) < self.cost(&set[first], draw.now);
        Some(if cheaper { second } else { first })
    }
}

#[cfg(test)]
mod tests {
    use super::super::Tried;
    use super::super::testing::{equal, load, members, request};
    use super::*;
    use crate::model::Dice;

    const POLICY: PeakEwma = PeakEwma { decay: Duration::from_secs(10) };

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// How many of 1,000 picks each gets, all at one time.
    fn shares(set: &[Arc<Member>], now: Instant) -> Vec<usize> {
        let (picker, mut dice, tried) = (POLICY.prepare(set), Dice::with_seed(5), Tried::default());
        let mut shares = vec![0; set.len()];
        for _ in 0..1_000 {
            let picked = picker.pick(set, &mut Draw { request: request(), tried: &tried, now, dice: &mut dice });
            shares[picked.expect("none was tried")] += 1;
        }
        shares
    }

    #[test]
    fn given_a_slow_and_a_fast_destination_when_both_are_idle_then_always_the_fast_one() {
        let (set, now) = (equal(&["slow", "fast"]), Instant::now());
        POLICY.learn(&set[0], Outcome::Status(200), ms(50), now);
        POLICY.learn(&set[1], Outcome::Status(200), ms(5), now);
        assert_eq!(shares(&set, now), [0, 1_000]);
    }

    #[test]
    fn given_latency_and_load_when_picked_then_their_product_over_weight_decides() {
        let (set, now) = (members(&[("slow", 1, ""), ("fast", 1, "")]), Instant::now());
        POLICY.learn(&set[0], Outcome::Status(200), ms(50), now);
        POLICY.learn(&set[1], Outcome::Status(200), ms(6), now);
        let _eight = load(&set[1], 7);
        assert_eq!(shares(&set, now), [0, 1_000]);
        let _nine = load(&set[1], 1);
        assert_eq!(shares(&set, now), [1_000, 0]);
        let weighed = members(&[("slow", 9, ""), ("fast", 1, "")]);
        POLICY.learn(&weighed[0], Outcome::Status(200), ms(50), now);
        POLICY.learn(&weighed[1], Outcome::Status(200), ms(6), now);
        assert_eq!(shares(&weighed, now), [1_000, 0]);
    }

    #[test]
    fn given_a_destination_that_fails_fast_when_picked_then_it_draws_nothing_until_that_has_faded() {
        for outcome in [Outcome::Refused, Outcome::Reset, Outcome::Status(503)] {
            let (set, now) = (equal(&["good", "failing"]), Instant::now());
            set.iter().for_each(|member| POLICY.learn(member, Outcome::Status(200), ms(20), now));
            POLICY.learn(&set[1], outcome, Duration::ZERO, now);
            assert_eq!(shares(&set, now), [1_000, 0], "{outcome:?}");
            let later = now + ms(60_000);
            POLICY.learn(&set[0], Outcome::Status(200), ms(20), later);
            assert_eq!(shares(&set, later), [0, 1_000], "{outcome:?}");
        }
    }

    #[test]
    fn given_an_error_page_when_it_is_no_sign_of_an_outage_then_it_is_an_answer() {
        let (set, now) = (equal(&["slow", "fast"]), Instant::now());
        POLICY.learn(&set[0], Outcome::Status(200), ms(50), now);
        POLICY.learn(&set[1], Outcome::Status(500), ms(5), now);
        POLICY.learn(&set[1], Outcome::Overload, Duration::ZERO, now);
        POLICY.learn(&set[1], Outcome::Local, ms(900), now);
        assert_eq!(shares(&set, now), [0, 1_000]);
    }

    #[test]
    fn given_clients_that_leave_when_the_wait_was_long_then_that_is_held_against_the_destination() {
        let (set, now) = (equal(&["hangs", "good"]), Instant::now());
        set.iter().for_each(|member| POLICY.learn(member, Outcome::Status(200), ms(20), now));
        POLICY.learn(&set[0], Outcome::ClientAbort, ms(5_000), now);
        assert_eq!(shares(&set, now), [0, 1_000]);
    }

    #[test]
    fn given_an_unknown_destination_when_idle_then_it_is_next_and_when_asked_already_then_the_known_one() {
        let (set, now) = (equal(&["known", "new"]), Instant::now());
        POLICY.learn(&set[0], Outcome::Status(200), ms(5), now);
        assert_eq!(shares(&set, now), [0, 1_000]);
        let _asked = load(&set[1], 1);
        assert_eq!(shares(&set, now), [1_000, 0]);
    }

    #[test]
    fn given_nothing_is_known_when_all_are_idle_then_shares_follow_weights() {
        let set = members(&[("a", 3, ""), ("b", 1, "")]);
        let shares = shares(&set, Instant::now());
        assert!((700..=800).contains(&shares[0]), "{shares:?}");
    }

    /// Ten clients, each asking again as soon as it is answered, in virtual time.
    #[test]
    fn given_one_of_three_is_twenty_times_slower_when_clients_keep_asking_then_few_of_their_requests_wait_for_it() {
        let set = equal(&["a", "b", "slow"]);
        let picker = POLICY.prepare(&set);
        let (mut dice, tried, start) = (Dice::with_seed(5), Tried::default(), Instant::now());
        let mut open: Vec<(Duration, Duration, usize, Vec<crate::model::Lease>)> = Vec::new();
        let mut seen = [0; 3];
        let mut clock = Duration::ZERO;
        for request_no in 0..5_000 {
            if request_no >= 10 {
                open.sort_by_key(|one| std::cmp::Reverse(one.0));
                let (ends, took, at, _lease) = open.pop().expect("ten are open");
                clock = ends;
                POLICY.learn(&set[at], Outcome::Status(200), took, start + clock);
            }
            let now = start + clock;
            let mut draw = Draw { request: request(), tried: &tried, now, dice: &mut dice };
            let at = picker.pick(&set, &mut draw).expect("none was tried");
            let took = if at == 2 { ms(200) } else { ms(10) };
            seen[at] += 1;
            open.push((clock + took, took, at, load(&set[at], 1)));
        }
        assert!(seen[2] < 100 && seen[0] > 2_000 && seen[1] > 2_000, "{seen:?}");
    }
}
