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

/// What an outcome is by the configuration's `count`.
///
/// | outcome | is |
/// |---|---|
/// | dns, refused, unreachable, connect_timeout, tls | a failure with `connect`, else neither |
/// | read_timeout | a failure with `timeout`, else neither |
/// | reset, protocol | a failure with `reset`, else neither |
/// | a status | a failure when it is in `statuses`, else a success |
/// | client_abort, route_timeout, local, overload | neither, always |
pub fn counted(outcome: Outcome, count: &Count) -> Counted {
    let failure = match outcome {
        Outcome::Dns | Outcome::Refused | Outcome::Unreachable | Outcome::ConnectTimeout | Outcome::Tls => {
            count.connect
        }
        Outcome::ReadTimeout => count.timeout,
        Outcome::Reset | Outcome::Protocol => count.reset,
        Outcome::Status(status) if count.statuses.iter().any(|range| range.contains(&status)) => true,
        Outcome::Status(_) => return Counted::Success,
        Outcome::ClientAbort | Outcome::RouteTimeout | Outcome::Local | Outcome::Overload => false,
    };
    if failure { Counted::Failure } else { Counted::Neither }
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
