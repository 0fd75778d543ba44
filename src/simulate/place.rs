//! What a destination does with requests and probes, as the timeline has it by now.

use crate::config::{Does, Timeline, Turn};
use crate::model::{Dice, Outcome};
use std::time::Duration;

/// How long a probe takes, when it is answered at all.
const PROBE: Duration = Duration::from_millis(1);

/// A destination.
pub struct Place {
    turns: Vec<Turn>,
    /// How many of them were taken.
    taken: usize,
    does: Does,
    latency: Duration,
    /// The share of requests for which both hold; the others are answered well in `usual`.
    share: f64,
    usual: Duration,
    /// The share of probes whose path says no.
    sick: f64,
}

/// What comes of one request, and when.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fate {
    pub took: Duration,
    pub outcome: Outcome,
}

/// What a probe looks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Check {
    /// A connection.
    Tcp,
    /// An answer; what a good one is called, and a bad one.
    Answer(&'static str, &'static str),
}

impl Check {
    /// Of a kind by its name in the configuration.
    pub fn of(kind: &str) -> Self {
        match kind {
            "tcp" => Check::Tcp,
            "grpc" => Check::Answer("SERVING", "NOT_SERVING"),
            _ => Check::Answer("200", "503"),
        }
    }
}

/// What a probe finds, and when.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    pub took: Duration,
    pub passed: bool,
    pub cause: String,
}

impl Place {
    /// `turns` are by time.
    pub fn new(turns: Vec<Turn>) -> Self {
        let usual = Timeline::LATENCY;
        Place { turns, taken: 0, does: Does::Ok, latency: usual, share: 1.0, usual, sick: 0.0 }
    }

    /// When it changes.
    pub fn times(&self) -> impl Iterator<Item = Duration> {
        self.turns.iter().map(|turn| turn.at)
    }

    /// Takes the next turn; whether what is in progress breaks off by it.
    pub fn turn(&mut self) -> bool {
        let Some(turn) = self.turns.get(self.taken) else { return false };
        self.taken += 1;
        if let Some(healthy) = turn.healthy {
            // A share beside `do` is the requests'.
            self.sick = match (healthy, turn.does) {
                (true, _) => 0.0,
                (false, None) => turn.share,
                (false, Some(_)) => 1.0,
            };
        }
        let Some(does) = turn.does else { return false };
        self.latency = turn.latency.unwrap_or(self.usual);
        if does == Does::Ok {
            self.usual = self.latency;
        }
        (self.does, self.share) = (does, turn.share);
        does == Does::Refuse && turn.share >= 1.0
    }

    /// `patience` is the longest wait for a byte.
    pub fn attempt(&self, patience: Duration, dice: &mut Dice) -> Fate {
        let (does, latency) = if self.hits(dice) { (self.does, self.latency) } else { (Does::Ok, self.usual) };
        let outcome = match does {
            Does::Ok | Does::Delay => Outcome::Status(200),
            Does::Status(status) => Outcome::Status(status),
            Does::Reset => Outcome::Reset,
            Does::Refuse => return Fate { took: varied(latency, dice), outcome: Outcome::Refused },
            Does::Hang => return Fate { took: patience, outcome: Outcome::ReadTimeout },
        };
        match varied(latency, dice) {
            took if took < patience => Fate { took, outcome },
            _ => Fate { took: patience, outcome: Outcome::ReadTimeout },
        }
    }

    pub fn probe(&self, check: Check, timeout: Duration, dice: &mut Dice) -> Found {
        let does = if self.hits(dice) { self.does } else { Does::Ok };
        let took = varied(PROBE, dice).min(timeout);
        let found = |passed, cause: &str| Found { took, passed, cause: cause.to_string() };
        match (does, check) {
            (Does::Refuse, _) => found(false, "connection refused"),
            (_, Check::Tcp) => found(true, "connected"),
            (Does::Reset, _) => found(false, "connection closed or reset"),
            (Does::Hang, _) => Found { took: timeout, passed: false, cause: format!("timed out after {timeout:?}") },
            (_, Check::Answer(_, bad)) if dice.f64() < self.sick => found(false, bad),
            (_, Check::Answer(good, _)) => found(true, good),
        }
    }

    fn hits(&self, dice: &mut Dice) -> bool {
        self.share >= 1.0 || dice.f64() < self.share
    }
}

/// Up to half of it more or less.
fn varied(time: Duration, dice: &mut Dice) -> Duration {
    time.mul_f64(0.5 + dice.f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(1);

    fn at_once(does: Does) -> Turn {
        Turn { at: Duration::ZERO, does: Some(does), latency: None, healthy: None, share: 1.0 }
    }

    fn place(turn: Turn) -> Place {
        let mut place = Place::new(vec![turn]);
        place.turn();
        place
    }

    #[test]
    fn given_what_a_destination_does_when_asked_then_the_outcome_and_what_its_probes_say() {
        let (http, dice) = (Check::of("http"), &mut Dice::with_seed(1));
        for (does, outcome, by_http, by_tcp) in [
            (Does::Ok, Outcome::Status(200), "200", true),
            (Does::Status(500), Outcome::Status(500), "200", true),
            (Does::Refuse, Outcome::Refused, "connection refused", false),
            (Does::Reset, Outcome::Reset, "connection closed or reset", true),
            (Does::Hang, Outcome::ReadTimeout, "timed out after 2s", true),
        ] {
            let place = place(at_once(does));
            let fate = place.attempt(PATIENCE, dice);
            assert_eq!(fate.outcome, outcome, "{does:?}");
            assert_eq!(fate.took == PATIENCE, does == Does::Hang, "{does:?}");
            assert_eq!(place.probe(http, Duration::from_secs(2), dice).cause, by_http);
            assert_eq!(place.probe(Check::Tcp, Duration::from_secs(2), dice).passed, by_tcp);
        }
    }

    #[test]
    fn given_an_answer_that_takes_longer_than_the_wait_when_asked_then_it_is_given_up() {
        let late = Turn { latency: Some(Duration::from_secs(10)), ..at_once(Does::Delay) };
        let fate = place(late).attempt(PATIENCE, &mut Dice::with_seed(1));
        assert_eq!(fate, Fate { took: PATIENCE, outcome: Outcome::ReadTimeout });
    }

    #[test]
    fn given_a_share_when_asked_often_then_about_so_many_get_it_and_the_others_the_usual() {
        let slow = Turn { latency: Some(Duration::from_millis(100)), share: 0.3, ..at_once(Does::Delay) };
        let (place, dice) = (place(slow), &mut Dice::with_seed(1));
        let slow = (0..1000).filter(|_| place.attempt(PATIENCE, dice).took >= Duration::from_millis(50)).count();
        assert!((250..350).contains(&slow), "{slow}");
    }

    #[test]
    fn given_a_health_of_its_own_when_turned_then_requests_are_answered_as_before_and_probes_are_not() {
        let ill = Turn { does: None, healthy: Some(false), ..at_once(Does::Ok) };
        let (place, dice) = (place(ill), &mut Dice::with_seed(1));
        assert_eq!(place.attempt(PATIENCE, dice).outcome, Outcome::Status(200));
        let found = place.probe(Check::of("grpc"), PATIENCE, dice);
        assert_eq!((found.passed, found.cause.as_str()), (false, "NOT_SERVING"));
    }
}
