use crate::config::Count;
use crate::model::Outcome;
use serde::{Deserialize, Serialize};

/// What an outcome is to a judge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Counted {
    Failure,
    Success,
    /// Says nothing of the destination.
    Neither,
}

/// What an outcome is by the configuration's `count`: a failure when it is [in](Outcome::is_in) it; a status that is not, a
/// success; all else, neither.
pub fn counted(outcome: Outcome, count: &Count) -> Counted {
    match outcome {
        outcome if outcome.is_in(count) => Counted::Failure,
        Outcome::Status(_) => Counted::Success,
        _ => Counted::Neither,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEFAULT: Count = Count { connect: true, timeout: true, reset: true, statuses: Vec::new() };

    #[test]
    fn given_the_default_when_asked_then_the_pinned_table() {
        use Counted::*;
        let table = [
            (Outcome::Dns, Failure),
            (Outcome::Refused, Failure),
            (Outcome::Unreachable, Failure),
            (Outcome::ConnectTimeout, Failure),
            (Outcome::Tls, Failure),
            (Outcome::ReadTimeout, Failure),
            (Outcome::Reset, Failure),
            (Outcome::Protocol, Failure),
            (Outcome::Status(200), Success),
            (Outcome::Status(404), Success),
            (Outcome::Status(500), Success),
            (Outcome::ClientAbort, Neither),
            (Outcome::RouteTimeout, Neither),
            (Outcome::Local, Neither),
            (Outcome::Overload, Neither),
        ];
        for (outcome, expected) in table {
            assert_eq!(counted(outcome, &DEFAULT), expected, "{outcome:?}");
        }
    }

    #[test]
    fn given_statuses_when_they_come_then_failures_and_what_is_not_counted_is_neither() {
        let only = Count { connect: false, timeout: false, reset: false, statuses: vec![500..=599, 429..=429] };
        assert_eq!(counted(Outcome::Status(503), &only), Counted::Failure);
        assert_eq!(counted(Outcome::Status(429), &only), Counted::Failure);
        assert_eq!(counted(Outcome::Status(428), &only), Counted::Success);
        assert_eq!(counted(Outcome::Refused, &only), Counted::Neither);
    }
}
