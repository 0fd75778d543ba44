use std::collections::VecDeque;
use std::time::Instant;

/// Causes kept for the reason; more in a row are only counted.
const CAUSES_KEPT: usize = 5;

/// Equal findings of probes in a row.
#[derive(Debug, Default)]
pub(super) struct Streak {
    passed: bool,
    length: u32,
    causes: VecDeque<String>,
    /// When the last one was over.
    at: Option<Instant>,
}

impl Streak {
    /// One that goes on. `causes` are the last ones.
    pub fn resumed(passed: bool, length: u32, mut causes: Vec<String>, at: Instant) -> Self {
        let causes = causes.split_off(causes.len().saturating_sub(CAUSES_KEPT)).into();
        Streak { passed, length, causes, at: Some(at) }
    }

    pub fn add(&mut self, passed: bool, cause: String, at: Instant) {
        if self.passed != passed {
            self.length = 0;
            self.causes.clear();
        }
        self.passed = passed;
        self.at = Some(at);
        self.length = self.length.saturating_add(1);
        if self.causes.len() == CAUSES_KEPT {
            self.causes.pop_front();
        }
        self.causes.push_back(cause);
    }

    pub fn passed(&self) -> bool {
        self.passed
    }

    /// `None`: there was none yet.
    pub fn at(&self) -> Option<Instant> {
        self.at
    }

    pub fn length(&self) -> u32 {
        self.length
    }

    /// Oldest first, after `…` when there were more.
    pub fn causes(&self) -> Vec<String> {
        let more = (self.length as usize > self.causes.len()).then(|| "…".to_string());
        more.into_iter().chain(self.causes.iter().cloned()).collect()
    }

    /// As many of the last as are kept, oldest first.
    pub fn last_causes(&self) -> impl Iterator<Item = &String> {
        self.causes.iter()
    }

    pub fn last_cause(&self) -> Option<&str> {
        self.causes.back().map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_a_long_outage_when_it_goes_on_then_memory_stays_bounded() {
        let (mut streak, now) = (Streak::default(), Instant::now());
        for n in 0..10_000 {
            streak.add(false, n.to_string(), now);
        }
        assert_eq!(streak.length(), 10_000);
        assert_eq!(streak.causes(), ["…", "9995", "9996", "9997", "9998", "9999"]);
        streak.add(true, "200".to_string(), now);
        assert_eq!((streak.length(), streak.causes()), (1, vec!["200".to_string()]));
    }
}
