use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// What the wall clock said at one instant, so that whoever is told instants can tell people times without reading a
/// clock.
#[derive(Debug, Clone, Copy)]
pub struct Epoch {
    pub instant: Instant,
    pub wall: SystemTime,
}

/// Milliseconds since 1970 by the wall clock; in a simulation, since its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Stamp(pub u64);

impl Epoch {
    pub fn wall(&self, at: Instant) -> SystemTime {
        match at.checked_duration_since(self.instant) {
            Some(later) => self.wall + later,
            None => self.wall.checked_sub(self.instant.saturating_duration_since(at)).unwrap_or(UNIX_EPOCH),
        }
    }

    pub fn stamp(&self, at: Instant) -> Stamp {
        let since = self.wall(at).duration_since(UNIX_EPOCH).unwrap_or_default();
        Stamp(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }
}

impl Stamp {
    pub fn since(self, earlier: Stamp) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }

    /// The time of its day, in UTC: `03:12:04Z`.
    pub fn of_day(self) -> String {
        let seconds = self.0 / 1_000 % 86_400;
        format!("{:02}:{:02}:{:02}Z", seconds / 3_600, seconds / 60 % 60, seconds % 60)
    }
}

/// As RFC 3339 writes it, in UTC.
impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = i64::try_from(self.0).ok().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
        match at {
            Some(at) => write!(f, "{at:.3}"),
            None => write!(f, "{} ms since 1970", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_instants_before_and_after_when_stamped_then_the_wall_clocks_times() {
        let instant = Instant::now() + Duration::from_secs(60);
        let epoch = Epoch { instant, wall: UNIX_EPOCH + Duration::from_secs(100) };
        assert_eq!(epoch.stamp(instant + Duration::from_millis(1500)), Stamp(101_500));
        assert_eq!(epoch.stamp(instant - Duration::from_millis(500)), Stamp(99_500));
        assert_eq!(Stamp(1_796_004_900_250).to_string(), "2026-11-30T02:15:00.250Z");
        assert_eq!(Stamp(1_796_004_900_250).of_day(), "02:15:00Z");
    }
}
