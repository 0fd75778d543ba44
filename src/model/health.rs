use std::sync::atomic::{AtomicU8, Ordering};

/// Who says that a destination should be out. Each judge owns one mark and writes only that one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reason {
    Active,
    Passive,
    Breaker,
    Operator,
    Unprobed,
}

impl Reason {
    pub const ALL: [Reason; 5] = [Reason::Active, Reason::Passive, Reason::Breaker, Reason::Operator, Reason::Unprobed];

    /// The word that metrics, log and explanations use.
    pub fn as_str(self) -> &'static str {
        match self {
            Reason::Active => "active",
            Reason::Passive => "passive",
            Reason::Breaker => "breaker",
            Reason::Operator => "operator",
            Reason::Unprobed => "unprobed",
        }
    }

    /// Position in [`Reason::ALL`].
    pub fn index(self) -> usize {
        self as usize
    }

    fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// An *effective* change of health: the first mark set, or the last one lifted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transition {
    pub to_healthy: bool,
    pub reason: Reason,
}

/// The marks against one destination, one bit a judge. None = it may be drawn.
#[derive(Debug, Default)]
pub struct Marks(AtomicU8);

impl Marks {
    pub fn is_empty(&self) -> bool {
        self.0.load(Ordering::Acquire) == 0
    }

    pub fn has(&self, reason: Reason) -> bool {
        self.0.load(Ordering::Acquire) & reason.bit() != 0
    }

    /// Sets or lifts one judge's mark. `Some` only when that took the destination out or brought it back.
    pub fn set(&self, reason: Reason, out: bool) -> Option<Transition> {
        let bit = reason.bit();
        let before =
            if out { self.0.fetch_or(bit, Ordering::AcqRel) } else { self.0.fetch_and(!bit, Ordering::AcqRel) };
        let after = if out { before | bit } else { before & !bit };
        ((before == 0) != (after == 0)).then_some(Transition { to_healthy: after == 0, reason })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_two_judges_when_one_lifts_its_mark_then_the_destination_stays_out() {
        let marks = Marks::default();
        assert_eq!(marks.set(Reason::Active, true), Some(Transition { to_healthy: false, reason: Reason::Active }));
        assert_eq!(marks.set(Reason::Passive, true), None);
        assert_eq!(marks.set(Reason::Active, false), None);
        assert!(!marks.is_empty());
        assert_eq!(marks.set(Reason::Passive, false), Some(Transition { to_healthy: true, reason: Reason::Passive }));
    }

    #[test]
    fn given_a_mark_when_it_is_set_again_then_nothing_changed() {
        let marks = Marks::default();
        assert_eq!(marks.set(Reason::Breaker, false), None);
        marks.set(Reason::Breaker, true);
        assert_eq!(marks.set(Reason::Breaker, true), None);
    }
}
