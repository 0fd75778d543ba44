use crate::config::Delay;
use crate::model::Dice;
use std::time::Duration;

/// What a destination asks for with `Retry-After`, up to this, is waited for before it is asked again.
pub const ASKED_FOR: Duration = Duration::from_secs(1);

/// How long the `retry`-th retry of a request waits, from 1.
pub fn wait(delay: &Delay, retry: u8, dice: &mut Dice) -> Duration {
    let longest = longest_wait(delay, retry);
    match delay {
        Delay::Backoff { jitter: true, .. } => longest.mul_f64(dice.f64()),
        _ => longest,
    }
}

/// As [`wait`] at most.
pub fn longest_wait(delay: &Delay, retry: u8) -> Duration {
    match *delay {
        Delay::Fixed(delay) => delay,
        Delay::Backoff { .. } if retry < 2 => Duration::ZERO,
        Delay::Backoff { initial, multiplier, max, .. } => {
            let grown = initial.as_secs_f64() * multiplier.powi(i32::from(retry) - 2);
            Duration::from_secs_f64(max.as_secs_f64().min(grown))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn given_a_backoff_when_retried_then_at_once_and_then_ever_longer_up_to_the_maximum() {
        let delay = |jitter| Delay::Backoff { initial: ms(25), multiplier: 2.0, max: ms(90), jitter };
        let mut dice = Dice::with_seed(1);
        let waits = [1, 2, 3, 4, 9].map(|retry| wait(&delay(false), retry, &mut dice));
        assert_eq!(waits, [0, 25, 50, 90, 90].map(ms));
        let drawn: Vec<Duration> = (0..1_000).map(|_| wait(&delay(true), 3, &mut dice)).collect();
        assert!(drawn.iter().all(|&wait| wait < ms(50)));
        assert!(drawn.iter().any(|&wait| wait < ms(5)) && drawn.iter().any(|&wait| wait > ms(45)));
        assert_eq!(wait(&delay(true), 1, &mut dice), Duration::ZERO);
    }

    #[test]
    fn given_a_fixed_delay_when_retried_then_each_waits_for_it() {
        assert_eq!([1, 2, 9].map(|retry| wait(&Delay::Fixed(ms(50)), retry, &mut Dice::with_seed(1))), [ms(50); 3]);
    }
}
