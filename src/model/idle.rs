use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long a destination's idle connections are kept: the configuration's time, less where the destination closes them sooner.
/// A request that comes over one as it is being closed is lost, and may not always be sent again.
///
/// | what is learned | keeps connections for | until |
/// |---|---|---|
/// | the destination says that it closes after N s | N − 1 s; half a second of one; none of 0 | not said for ten minutes; less said meanwhile counts at once |
/// | it closed one as it was used again | half, not below 1 s | twice as long after each ten minutes without another |
///
/// The least of all holds. Without locks.
#[derive(Debug, Default)]
pub struct IdleTime {
    /// What times are counted from: when anything was first learned.
    origin: OnceLock<Instant>,
    said: Learned,
    halved: Learned,
}

/// What was learned holds for so long.
const HOLDS: Duration = Duration::from_secs(600);
/// Closed connections alone make it no shorter.
const LEAST: Duration = Duration::from_secs(1);
/// The answer to a request is to be on its way before the destination closes.
const AHEAD: Duration = Duration::from_secs(1);

impl IdleTime {
    /// What holds now, where the configuration says `most`.
    pub fn time(&self, most: Duration, now: Instant) -> Duration {
        let Some(origin) = self.origin.get() else { return most };
        let second = second(*origin, now);
        let said = self.said.get().filter(|kept| kept.age(second) < HOLDS).map(|kept| kept.time);
        let halved = self.halved.get().map(|kept| kept.doubled(second));
        said.into_iter().chain(halved).fold(most, Duration::min)
    }

    /// The destination says that it closes what is idle for so many seconds. The times before and after, when that is less.
    pub fn said(&self, seconds: u64, most: Duration, now: Instant) -> Option<(Duration, Duration)> {
        let closes = Duration::from_secs(seconds);
        let time = if closes <= AHEAD { closes / 2 } else { closes - AHEAD };
        let second = self.second(now);
        let before = self.time(most, now);
        self.said.update(|kept| {
            let holds = kept.filter(|kept| kept.age(second) < HOLDS);
            (holds.is_none_or(|kept| time <= kept.time)).then_some(Kept { time, second })
        });
        self.shorter(before, most, now)
    }

    /// A connection was closed as it was used again, of those kept for `under`. The times before and after, when that is less:
    /// one that was kept for longer than is right by now tells nothing new, as when many are closed at once.
    pub fn closed(&self, under: Duration, most: Duration, now: Instant) -> Option<(Duration, Duration)> {
        let second = self.second(now);
        let before = self.time(most, now);
        if under <= before {
            let half = Kept { time: (under / 2).max(LEAST), second };
            self.halved.update(|kept| kept.is_none_or(|kept| under <= kept.doubled(second)).then_some(half));
        }
        self.shorter(before, most, now)
    }

    fn shorter(&self, before: Duration, most: Duration, now: Instant) -> Option<(Duration, Duration)> {
        let after = self.time(most, now);
        (after < before).then_some((before, after))
    }

    fn second(&self, now: Instant) -> u32 {
        second(*self.origin.get_or_init(|| now), now)
    }
}

fn second(origin: Instant, now: Instant) -> u32 {
    u32::try_from(now.saturating_duration_since(origin).as_secs()).unwrap_or(u32::MAX)
}

/// A time, and the second in which it was last learned.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Kept {
    time: Duration,
    second: u32,
}

impl Kept {
    fn age(self, second: u32) -> Duration {
        Duration::from_secs(second.saturating_sub(self.second).into())
    }

    fn doubled(self, second: u32) -> Duration {
        let times = self.age(second).as_secs() / HOLDS.as_secs();
        self.time.saturating_mul(1 << times.min(31))
    }
}

/// Both in one word, the milliseconds of the time plus one above; 0 is nothing.
#[derive(Debug, Default)]
struct Learned(AtomicU64);

impl Learned {
    fn get(&self) -> Option<Kept> {
        unpacked(self.0.load(Ordering::Relaxed))
    }

    /// `next` is what takes the place of what was learned before, if anything does. Most often it is the same.
    fn update(&self, next: impl Fn(Option<Kept>) -> Option<Kept>) {
        let changed = |word| {
            let before = unpacked(word);
            next(before).filter(|kept| Some(*kept) != before).map(packed)
        };
        // `Err`: there was nothing to change.
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, changed);
    }
}

fn packed(kept: Kept) -> u64 {
    let millis = u32::try_from(kept.time.as_millis()).unwrap_or(u32::MAX - 1).saturating_add(1);
    u64::from(millis) << 32 | u64::from(kept.second)
}

fn unpacked(word: u64) -> Option<Kept> {
    let millis = (word >> 32).checked_sub(1)?;
    Some(Kept { time: Duration::from_millis(millis), second: word as u32 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MINUTE: Duration = Duration::from_secs(60);

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn given_a_time_that_is_said_when_kept_then_a_second_less_and_never_more_than_configured() {
        for (said, kept) in [
            (5, s(4)),
            (2, s(1)),
            (1, Duration::from_millis(500)),
            (0, Duration::ZERO),
            (61, MINUTE),
            (90, MINUTE),
            (u64::MAX, MINUTE),
        ] {
            let (idle, now) = (IdleTime::default(), Instant::now());
            assert_eq!(idle.time(MINUTE, now), MINUTE);
            let told = idle.said(said, MINUTE, now);
            assert_eq!(told, (kept < MINUTE).then_some((MINUTE, kept)), "{said}");
            assert_eq!(idle.time(MINUTE, now), kept, "{said}");
        }
    }

    #[test]
    fn given_several_times_that_are_said_when_kept_then_the_least_of_ten_minutes() {
        let (idle, start) = (IdleTime::default(), Instant::now());
        idle.said(10, MINUTE, start);
        assert_eq!(idle.said(10, MINUTE, start + s(300)), None);
        assert_eq!(idle.said(30, MINUTE, start + s(899)), None);
        assert_eq!(idle.time(MINUTE, start + s(899)), s(9));
        assert_eq!(idle.time(MINUTE, start + s(900)), MINUTE);
        assert_eq!(idle.said(30, MINUTE, start + s(900)), Some((MINUTE, s(29))));
        assert_eq!(idle.said(5, MINUTE, start + s(901)), Some((s(29), s(4))));
    }

    #[test]
    fn given_connections_that_are_closed_when_kept_then_half_each_time_down_to_a_second_and_back_after_ten_minutes() {
        let (idle, start) = (IdleTime::default(), Instant::now());
        let mut seen = Vec::new();
        for _ in 0..8 {
            seen.push(idle.time(MINUTE, start));
            idle.closed(idle.time(MINUTE, start), MINUTE, start);
        }
        assert_eq!(seen[..4], [s(60), s(30), s(15), Duration::from_millis(7_500)]);
        assert_eq!(seen[6..], [s(1), s(1)]);
        let later = [599, 600, 1_199, 1_200, 3_599, 3_600, 1_000_000].map(|at| idle.time(MINUTE, start + s(at)));
        assert_eq!(later, [s(1), s(2), s(2), s(4), s(32), s(60), s(60)]);
    }

    #[test]
    fn given_another_closed_connection_when_on_the_way_back_then_the_ten_minutes_begin_anew() {
        let (idle, start) = (IdleTime::default(), Instant::now());
        idle.closed(s(2), s(2), start);
        assert_eq!(idle.time(s(2), start + s(599)), s(1));
        assert_eq!(idle.closed(s(1), s(2), start + s(599)), None);
        assert_eq!(idle.time(s(2), start + s(1_198)), s(1));
        assert_eq!(idle.time(s(2), start + s(1_199)), s(2));
    }

    #[test]
    fn given_many_closed_at_once_when_they_were_kept_under_an_older_time_then_they_count_as_one() {
        let (idle, now) = (IdleTime::default(), Instant::now());
        let told: Vec<_> = (0..5).filter_map(|_| idle.closed(MINUTE, MINUTE, now)).collect();
        assert_eq!(told, [(MINUTE, s(30))]);
        assert_eq!(idle.closed(s(30), MINUTE, now), Some((s(30), s(15))));
    }

    #[test]
    fn given_a_destination_that_says_less_than_a_second_when_one_is_closed_then_no_more_is_kept() {
        let (idle, now) = (IdleTime::default(), Instant::now());
        idle.said(1, MINUTE, now);
        assert_eq!(idle.closed(Duration::from_millis(500), MINUTE, now), None);
        assert_eq!(idle.time(MINUTE, now), Duration::from_millis(500));
    }

    #[derive(Debug, Clone)]
    enum Step {
        Pass(u64),
        Said(u64),
        Closed(u64),
    }

    proptest! {
        #[test]
        fn given_anything_at_all_when_learned_then_never_more_than_configured_and_it_comes_back(
            most in 100u64..86_400_000,
            steps in prop::collection::vec(prop_oneof![
                (0u64..2_000).prop_map(Step::Pass), (0u64..100_000).prop_map(Step::Said), (0u64..90_000_000).prop_map(Step::Closed),
            ], 0..60),
        ) {
            let (idle, mut now, most) = (IdleTime::default(), Instant::now(), Duration::from_millis(most));
            for step in steps {
                let before = idle.time(most, now);
                let told = match step {
                    Step::Pass(seconds) => { now += s(seconds); continue; }
                    Step::Said(seconds) => idle.said(seconds, most, now),
                    Step::Closed(under) => idle.closed(Duration::from_millis(under), most, now),
                };
                let after = idle.time(most, now);
                prop_assert!(after <= most);
                prop_assert_eq!(told, (after < before).then_some((before, after)));
            }
            prop_assert_eq!(idle.time(most, now + HOLDS * 32), most);
        }
    }
}
