use std::sync::atomic::{AtomicU64, Ordering};

/// Which of the requests that come one after the other are of a share, exactly: so many of each thousand in a row, wherever
/// it begins, and as evenly among them as whole requests can be. Of whole percents so many of each hundred.
#[derive(Debug, Default)]
pub struct Split(AtomicU64);

impl Split {
    const WHOLE: u64 = 1000;

    /// Counts one more request: whether it is of the share of `permille`, 0–1000.
    pub fn next(&self, permille: u32) -> bool {
        let (share, before) = (u64::from(permille), self.0.fetch_add(1, Ordering::Relaxed) % Self::WHOLE);
        (before + 1) * share / Self::WHOLE > before * share / Self::WHOLE
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    fn taken(split: &Split, permille: u32, requests: usize) -> Vec<bool> {
        (0..requests).map(|_| split.next(permille)).collect()
    }

    fn count(taken: &[bool]) -> usize {
        taken.iter().filter(|taken| **taken).count()
    }

    #[test]
    fn given_any_share_when_any_thousand_in_a_row_are_counted_then_it_is_exact() {
        for permille in 0..=1000 {
            let taken = taken(&Split::default(), permille, 3000);
            assert_eq!(taken[..2000], taken[1000..]);
            for begin in (0..1000).step_by(37) {
                assert_eq!(count(&taken[begin..begin + 1000]), permille as usize, "{permille} from {begin}");
            }
        }
    }

    #[test]
    fn given_a_share_when_counted_then_it_is_spread_evenly() {
        for percent in 1..=100_usize {
            let taken = taken(&Split::default(), percent as u32 * 10, 1000);
            assert!(taken.windows(100).all(|hundred| count(hundred) == percent), "{percent}");
            let least = 100 / percent;
            assert!(taken.windows(least).all(|few| count(few) <= 1), "{percent}");
            assert!(taken.windows(100_usize.div_ceil(percent)).all(|many| count(many) >= 1), "{percent}");
        }
    }

    #[test]
    fn given_ten_thousand_requests_of_many_threads_when_5_percent_are_taken_then_500_are() {
        let split = Split::default();
        let all: usize = thread::scope(|scope| {
            let each: Vec<_> = (0..8).map(|_| scope.spawn(|| count(&taken(&split, 50, 1250)))).collect();
            each.into_iter().map(|each| each.join().expect("no panic")).sum()
        });
        assert_eq!(all, 500);
    }

    #[test]
    fn given_a_count_at_its_end_when_it_begins_anew_then_nothing_breaks() {
        let split = Split(AtomicU64::new(u64::MAX - 1));
        assert_eq!(count(&taken(&split, 1000, 4)), 4);
    }
}
