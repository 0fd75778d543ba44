use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

/// How long ago something was, or what is left of a time: what an instant is to another process, whose clock is another. Up to a
/// hundred years, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u64")]
pub struct Span(u64);

const MOST: u64 = 100 * 365 * 86_400 * 1_000_000_000;

impl Span {
    /// None is left of what is not before `to`.
    pub fn between(from: Instant, to: Instant) -> Self {
        let passed = to.saturating_duration_since(from).as_nanos();
        Span(u64::try_from(passed).unwrap_or(MOST).min(MOST))
    }

    pub fn ago(self, now: Instant) -> Instant {
        now.checked_sub(self.duration()).unwrap_or(now)
    }

    pub fn ahead(self, now: Instant) -> Instant {
        now.checked_add(self.duration()).unwrap_or(now)
    }

    pub fn duration(self) -> Duration {
        Duration::from_nanos(self.0)
    }
}

impl TryFrom<u64> for Span {
    type Error = &'static str;

    fn try_from(nanoseconds: u64) -> Result<Self, Self::Error> {
        if nanoseconds > MOST { Err("more than a hundred years") } else { Ok(Span(nanoseconds)) }
    }
}

impl From<Span> for u64 {
    fn from(span: Span) -> u64 {
        span.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_instants_when_told_to_another_clock_then_as_long_ago_or_ahead_there_and_never_more_than_can_be() {
        let (here, there, second) = (Instant::now(), Instant::now() + Duration::from_secs(900), Duration::from_secs(1));
        assert_eq!(Span::between(here - second, here).ago(there), there - second);
        assert_eq!(Span::between(here, here + second).ahead(there), there + second);
        assert_eq!(Span::between(here + second, here).duration(), Duration::ZERO);
        let read = |text: &str| serde_json::from_str::<Span>(text).ok().map(Span::duration);
        assert_eq!((read("1000000000"), read("-1"), read("1.5")), (Some(second), None, None));
        assert_eq!((read(&MOST.to_string()).is_some(), read(&(MOST + 1).to_string())), (true, None));
    }
}
