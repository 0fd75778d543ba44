use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long a destination takes to answer, as a peak-sensitive moving average in seconds (Finagle's Peak EWMA): a slower
/// answer counts at once and whole, faster ones bring it down with time, and it fades while nothing is heard, so that a
/// destination is not shunned for ever. Failures are a sum of their own on top, which fades likewise.
///
/// Without locks. `decay` is the time in which a value falls to 37 %.
#[derive(Debug, Default)]
pub struct Latency {
    /// What times are counted from: when anything was first heard.
    origin: OnceLock<Instant>,
    answers: Fading,
    penalty: Fading,
    /// Failures since the last answer.
    failures: AtomicU32,
}

/// Failures alone make no more than this, in seconds.
const MOST_PENALTY: f32 = 60.0;

impl Latency {
    /// In seconds: how slow something is taken to be that was asked and has never answered.
    pub const UNKNOWN: f32 = 1.0;

    pub fn answered(&self, took: Duration, now: Instant, decay: Duration) {
        self.failures.store(0, Ordering::Relaxed);
        let sample = seconds(took);
        self.answers.update(self.tick(now), decay, |kept, left| {
            Some(if sample >= kept { sample } else { sample + (kept - sample) * left })
        });
    }

    /// A failure costs what an answer costs, the second in a row three times that, the third seven times, up to a minute;
    /// or the time it took, where that is more. So a destination that fails fast draws nothing, and one failure among
    /// many answers does little.
    pub fn failed(&self, took: Duration, now: Instant, decay: Duration) {
        let before = self.failures.fetch_add(1, Ordering::Relaxed).min(16);
        let typical = Some(self.answers.kept()).filter(|kept| *kept > 0.0).unwrap_or(Self::UNKNOWN);
        let due = (typical * ((2u32 << before) - 1) as f32).min(MOST_PENALTY).max(seconds(took));
        self.penalty.update(self.tick(now), decay, |kept, left| Some(due.max(kept * left)));
    }

    /// No answer after `took`, for reasons that are not the destination's: only tells when that is slower than what is known.
    pub fn at_least(&self, took: Duration, now: Instant, decay: Duration) {
        let sample = seconds(took);
        self.answers.update(self.tick(now), decay, |kept, left| (kept > 0.0 && sample > kept * left).then_some(sample));
    }

    /// What an attempt is expected to cost in seconds; `None` when nothing was heard yet.
    pub fn estimate(&self, now: Instant, decay: Duration) -> Option<f32> {
        let now = tick(*self.origin.get()?, now);
        let estimate = self.answers.at(now, decay) + self.penalty.at(now, decay);
        (estimate > 0.0).then_some(estimate)
    }

    /// As if nothing had been heard: what was true before an outage says nothing of the time after it.
    pub fn forget(&self) {
        self.answers.clear();
        self.penalty.clear();
        self.failures.store(0, Ordering::Relaxed);
    }

    fn tick(&self, now: Instant) -> u32 {
        tick(*self.origin.get_or_init(|| now), now)
    }
}

/// Of the clock that values keep. It goes round after 497 days, so a value may be 248 days old.
const TICK: Duration = Duration::from_millis(10);

fn tick(origin: Instant, now: Instant) -> u32 {
    (now.saturating_duration_since(origin).as_millis() / TICK.as_millis()) as u32
}

/// Above 0, which stands for no value.
fn seconds(took: Duration) -> f32 {
    took.as_secs_f32().max(1e-6)
}

/// A value and when it was so, in one word: the value's bits above, its tick below.
#[derive(Debug, Default)]
struct Fading(AtomicU64);

impl Fading {
    /// The value as it was left; 0 when there is none.
    fn kept(&self) -> f32 {
        unpacked(self.0.load(Ordering::Relaxed)).0
    }

    fn at(&self, now: u32, decay: Duration) -> f32 {
        let (kept, then) = unpacked(self.0.load(Ordering::Relaxed));
        if kept > 0.0 { kept * share(then, now, decay) } else { 0.0 }
    }

    /// `next` makes the new value from the one kept and the share of it that is left by now.
    fn update(&self, now: u32, decay: Duration, next: impl Fn(f32, f32) -> Option<f32>) {
        let updated = |word| {
            let (kept, then) = unpacked(word);
            let value = next(kept, share(then, now, decay))?;
            // What is told late does not turn the clock back.
            let then = if since(then, now).is_some() || kept == 0.0 { now } else { then };
            Some(u64::from(value.to_bits()) << 32 | u64::from(then))
        };
        // `Err`: there was nothing to change.
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, updated);
    }

    fn clear(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

fn unpacked(word: u64) -> (f32, u32) {
    (f32::from_bits((word >> 32) as u32), word as u32)
}

fn share(then: u32, now: u32, decay: Duration) -> f32 {
    match since(then, now) {
        Some(0) | None => 1.0,
        Some(ticks) => (-(ticks as f32) * TICK.as_secs_f32() / decay.as_secs_f32()).exp(),
    }
}

/// `None` when `then` is after `now`.
fn since(then: u32, now: u32) -> Option<u32> {
    let ticks = now.wrapping_sub(then);
    (ticks <= u32::MAX / 2).then_some(ticks)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const DECAY: Duration = Duration::from_secs(10);

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// In milliseconds, rounded; -1 for none.
    fn estimate(latency: &Latency, now: Instant) -> i64 {
        latency.estimate(now, DECAY).map_or(-1, |seconds| (seconds * 1_000.0).round() as i64)
    }

    #[test]
    fn given_a_slow_answer_when_told_then_it_counts_at_once_and_whole() {
        let (latency, start) = (Latency::default(), Instant::now());
        assert_eq!(estimate(&latency, start), -1);
        latency.answered(ms(5), start, DECAY);
        latency.answered(ms(900), start + ms(1), DECAY);
        latency.answered(ms(5), start + ms(2), DECAY);
        assert_eq!(estimate(&latency, start + ms(3)), 900);
    }

    #[test]
    fn given_fast_answers_when_decay_passes_then_37_percent_of_the_peak_is_left_and_the_rest_is_theirs() {
        let (latency, start) = (Latency::default(), Instant::now());
        latency.answered(ms(1_000), start, DECAY);
        // However many they are: it is time that brings it down.
        for step in 1..=10_000 {
            latency.answered(ms(100), start + ms(step), DECAY);
        }
        assert_eq!(estimate(&latency, start + DECAY), 100 + (900.0f64 / 1f64.exp()).round() as i64);
    }

    #[test]
    fn given_silence_when_time_passes_then_it_fades() {
        let (latency, start) = (Latency::default(), Instant::now());
        latency.answered(ms(1_000), start, DECAY);
        assert_eq!(estimate(&latency, start + DECAY), 368);
        assert_eq!(estimate(&latency, start + 10 * DECAY), 0);
    }

    #[test]
    fn given_failures_in_a_row_when_told_then_each_doubles_and_an_answer_ends_the_row() {
        let (latency, now) = (Latency::default(), Instant::now());
        latency.answered(ms(10), now, DECAY);
        let mut after = |_| {
            latency.failed(ms(0), now, DECAY);
            estimate(&latency, now)
        };
        assert_eq!([(); 3].map(&mut after), [20, 40, 80]);
        latency.answered(ms(10), now, DECAY);
        latency.failed(ms(0), now + 5 * DECAY, DECAY);
        assert!((10..=12).contains(&estimate(&latency, now + 5 * DECAY)), "{}", estimate(&latency, now + 5 * DECAY));
    }

    #[test]
    fn given_countless_failures_when_told_then_a_minute_at_most_unless_they_took_longer() {
        let (latency, now) = (Latency::default(), Instant::now());
        latency.failed(ms(1), now, DECAY);
        assert_eq!(estimate(&latency, now), 1_000);
        (0..100).for_each(|_| latency.failed(ms(1), now, DECAY));
        assert_eq!(estimate(&latency, now), 60_000);
        latency.failed(ms(100_000), now, DECAY);
        assert_eq!(estimate(&latency, now), 100_000);
        latency.forget();
        assert_eq!(estimate(&latency, now), -1);
    }

    #[test]
    fn given_a_client_that_left_when_told_then_only_a_longer_wait_than_known_counts() {
        let (latency, now) = (Latency::default(), Instant::now());
        latency.at_least(ms(700), now, DECAY);
        assert_eq!(estimate(&latency, now), -1);
        latency.answered(ms(50), now, DECAY);
        latency.at_least(ms(2), now, DECAY);
        assert_eq!(estimate(&latency, now), 50);
        latency.at_least(ms(700), now, DECAY);
        assert_eq!(estimate(&latency, now), 700);
    }

    #[test]
    fn given_many_threads_when_they_tell_at_once_then_the_peak_is_not_lost() {
        let (latency, now) = (Latency::default(), Instant::now());
        std::thread::scope(|scope| {
            for thread in 1..=4u64 {
                let latency = &latency;
                scope.spawn(move || (1..=1_000).for_each(|i| latency.answered(ms(thread * i), now, DECAY)));
            }
        });
        assert_eq!(estimate(&latency, now), 4_000);
    }

    proptest! {
        #[test]
        fn given_anything_told_in_any_order_when_asked_then_a_number_within_what_was_told(
            told in prop::collection::vec((0u8..3, 0u64..10_000_000, 0u64..100_000_000), 1..50),
            asked in 0u64..100_000_000,
        ) {
            let (latency, start) = (Latency::default(), Instant::now());
            for &(what, took, at) in &told {
                match what {
                    0 => latency.answered(ms(took), start + ms(at), DECAY),
                    1 => latency.failed(ms(took), start + ms(at), DECAY),
                    _ => latency.at_least(ms(took), start + ms(at), DECAY),
                }
            }
            let most = told.iter().map(|told| told.1).max().unwrap_or(0) as f32 / 1_000.0;
            if let Some(estimate) = latency.estimate(start + ms(asked), DECAY) {
                prop_assert!(estimate > 0.0 && estimate <= 2.0 * most.max(MOST_PENALTY), "{estimate}");
            }
        }
    }
}
