use std::sync::atomic::{AtomicU32, Ordering};

/// How many destinations of a tier passive detectors may have out at a time.
#[derive(Debug, Default)]
pub struct Cap {
    limit: AtomicU32,
    taken: AtomicU32,
}

impl Cap {
    /// Those out already stay out, also when the new limit is below their number.
    pub fn set_limit(&self, limit: u32) {
        self.limit.store(limit, Ordering::Release);
    }

    pub fn limit(&self) -> u32 {
        self.limit.load(Ordering::Acquire)
    }

    /// How many are out.
    pub fn taken(&self) -> u32 {
        self.taken.load(Ordering::Acquire)
    }

    /// One more, unless the limit is reached.
    pub fn take(&self) -> bool {
        let one_more = |taken: u32| (taken < self.limit()).then_some(taken + 1);
        self.taken.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more).is_ok()
    }

    /// One that was out already, whatever the limit.
    pub fn keep(&self) {
        self.taken.fetch_add(1, Ordering::AcqRel);
    }

    pub fn give_back(&self) {
        let _ = self.taken.fetch_update(Ordering::AcqRel, Ordering::Acquire, |taken| taken.checked_sub(1));
    }
}

/// A share of `members` as a number: max(1, floor(members × share)), and none when there is none or the share is zero.
///
/// | members | 1 | 2 | 3 | 4 | 5 | 6 | 10 |
/// |---|---|---|---|---|---|---|---|
/// | 50 % | 1 | 1 | 1 | 2 | 2 | 3 | 5 |
/// | 10 % | 1 | 1 | 1 | 1 | 1 | 1 | 1 |
/// | 100 % | 1 | 2 | 3 | 4 | 5 | 6 | 10 |
pub fn share_of(members: u32, share: f64) -> u32 {
    if share <= 0.0 || members == 0 {
        return 0;
    }
    // 29 % of 100 is 28.999999999999996.
    ((f64::from(members) * share + 1e-9).floor() as u32).clamp(1, members)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_every_share_and_size_to_64_when_rounded_then_the_written_rule() {
        for members in 1..=64u32 {
            for percent in 1..=100u32 {
                let most = share_of(members, f64::from(percent) / 100.0);
                assert_eq!(most, (members * percent / 100).max(1), "{percent} % of {members}");
            }
            assert_eq!(share_of(members, 0.0), 0);
        }
        assert_eq!([1, 2, 3, 4].map(|n| share_of(n, 0.5)), [1, 1, 1, 2]);
        assert_eq!(share_of(0, 0.5), 0);
    }

    #[test]
    fn given_every_limit_when_all_want_out_then_never_more_than_it() {
        for members in 1..=64u32 {
            for limit in 0..=members {
                let cap = Cap::default();
                cap.set_limit(limit);
                let out = (0..members).filter(|_| cap.take()).count() as u32;
                assert_eq!((out, cap.taken()), (limit, limit));
                cap.give_back();
                assert_eq!(cap.take(), limit > 0);
            }
        }
    }
}
