//! ConsecutiveFailures (Apigee's MaxFailures): so many failures in a row. A success ends the row, with one exception: of
//! requests side by side, one that was sent before the row began and answers after it says what the destination was,
//! not what it is. Such late successes are passed over, up to twice the limit, so that a destination that
//! dies is out at exactly its n-th failure however many answers were under way; more of them than that do end the row, for then
//! it fails one in three at most, which is the failure rate's matter.

use super::{Entry, Measure, PassivePolicy, Sample, Tracker};
use crate::config::Section;
use std::time::Instant;

pub const ENTRY: Entry = Entry { name: "ConsecutiveFailures", build };

/// Keys: `failures` (0–1,000, default 5; 0 = never).
fn build(params: &mut Section<'_>) -> Box<dyn PassivePolicy> {
    let failures = params.integer("failures", 0..=1_000).unwrap_or(5);
    Box::new(ConsecutiveFailures { failures: failures as u32 })
}

#[derive(Debug, Clone, Copy)]
pub struct ConsecutiveFailures {
    /// 0 = never.
    pub failures: u32,
}

impl PassivePolicy for ConsecutiveFailures {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn parameters(&self) -> String {
        format!("failures {}", self.failures)
    }

    fn bound(&self) -> Option<u32> {
        (self.failures > 0).then_some(self.failures)
    }

    fn track(&self) -> Box<dyn Tracker> {
        Box::new(Row { limit: self.failures, failures: 0, since: None, late: 0 })
    }
}

struct Row {
    limit: u32,
    failures: u32,
    /// When the first failure of the row came.
    since: Option<Instant>,
    /// Successes of attempts begun before that.
    late: u32,
}

impl Tracker for Row {
    fn record(&mut self, sample: Sample, now: Instant) -> bool {
        if sample.failed {
            self.since.get_or_insert(now);
            self.failures = self.failures.saturating_add(1);
        } else if self.since.is_some_and(|since| sample.begun < since) && self.late < self.limit.saturating_mul(2) {
            self.late += 1;
        } else {
            self.clear();
        }
        self.limit > 0 && self.failures >= self.limit
    }

    fn measures(&self) -> Vec<Measure> {
        vec![Measure::new("failures in a row", self.failures.into(), self.limit.into())]
    }

    fn clear(&mut self) {
        (self.failures, self.since, self.late) = (0, None, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// `F` fails, `S` succeeds, each begun when the one before was over; `l` is a success begun before all.
    fn fires(failures: u32, outcomes: &str) -> Vec<bool> {
        let start = Instant::now();
        let mut row = ConsecutiveFailures { failures }.track();
        let sample = |(i, outcome): (usize, char)| {
            let now = start + Duration::from_millis(10 * (i as u64 + 1));
            let begun = if outcome == 'l' { start } else { now - Duration::from_millis(5) };
            row.record(Sample { failed: outcome == 'F', begun }, now)
        };
        outcomes.chars().enumerate().map(sample).collect()
    }

    #[test]
    fn given_failures_in_a_row_when_the_limit_is_reached_then_it_fires() {
        assert_eq!(fires(3, "FFSFFFF"), [false, false, false, false, false, true, true]);
        assert!(fires(0, &"F".repeat(2_000)).iter().all(|fired| !fired));
    }

    #[test]
    fn given_answers_under_way_when_it_dies_then_out_at_the_limit_all_the_same() {
        assert_eq!(fires(5, "FllFlFFF"), [false, false, false, false, false, false, false, true]);
    }

    #[test]
    fn given_more_late_answers_than_twice_the_limit_when_it_fails_now_and_then_then_the_row_ends() {
        let outcomes = format!("F{}FF", "l".repeat(7));
        assert!(fires(3, &outcomes).iter().all(|fired| !fired));
    }
}
