use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicU16, Ordering};

/// Who says that a destination should be out. Each judge owns one mark and writes only that one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
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

    fn bit(self) -> u16 {
        1 << self as u16
    }
}

/// An *effective* change of health: the first mark set, or the last one lifted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transition {
    pub to_healthy: bool,
    pub reason: Reason,
}

/// The marks against one destination, one bit a judge. None = it may be drawn. A judge whose mark stands may say that it
/// takes requests on trial (half-open).
#[derive(Debug, Default)]
pub struct Marks(AtomicU16);

const MARKS: u16 = 0xff;
/// Half-open bits stand this far above the marks.
const HALF_OPEN: u32 = 8;

impl Marks {
    pub fn is_empty(&self) -> bool {
        self.bits() & MARKS == 0
    }

    pub fn has(&self, reason: Reason) -> bool {
        self.bits() & reason.bit() != 0
    }

    /// Every mark set.
    pub fn reasons(&self) -> impl Iterator<Item = Reason> {
        let bits = self.bits();
        Reason::ALL.into_iter().filter(move |reason| bits & reason.bit() != 0)
    }

    /// Only a trial may be drawn: every judge whose mark stands is half-open.
    pub fn is_on_trial(&self) -> bool {
        let bits = self.bits();
        let marks = bits & MARKS;
        marks != 0 && marks & !(bits >> HALF_OPEN) == 0
    }

    /// A panic may override it: only active checks and passive detectors object.
    pub fn is_overridable(&self) -> bool {
        self.bits() & MARKS & !(Reason::Active.bit() | Reason::Passive.bit()) == 0
    }

    /// Sets or lifts one judge's mark, and with it what it said of trials. `Some` only when that took the destination out or
    /// brought it back.
    pub fn set(&self, reason: Reason, out: bool) -> Option<Transition> {
        let bit = reason.bit();
        let changed = |bits: u16| (if out { bits | bit } else { bits & !bit }) & !(bit << HALF_OPEN);
        let before = self.update(changed);
        let after = changed(before);
        let (was, is) = (before & MARKS == 0, after & MARKS == 0);
        (was != is).then_some(Transition { to_healthy: is, reason })
    }

    /// The judge whose mark stands takes requests on trial from now on.
    pub fn set_half_open(&self, reason: Reason) {
        self.update(|bits| bits | (reason.bit() << HALF_OPEN));
    }

    fn bits(&self) -> u16 {
        self.0.load(Ordering::Acquire)
    }

    fn update(&self, change: impl Fn(u16) -> u16) -> u16 {
        let updated = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, |bits| Some(change(bits)));
        updated.unwrap_or_else(|bits| bits)
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

    #[test]
    fn given_two_marks_when_only_one_judge_is_half_open_then_no_trial_until_both_are() {
        let marks = Marks::default();
        assert!(!marks.is_on_trial());
        marks.set(Reason::Passive, true);
        marks.set_half_open(Reason::Passive);
        assert!(marks.is_on_trial());
        marks.set(Reason::Breaker, true);
        assert!(!marks.is_on_trial());
        marks.set_half_open(Reason::Breaker);
        assert!(marks.is_on_trial());
        marks.set(Reason::Passive, true);
        assert!(!marks.is_on_trial(), "marked anew, it is no longer half-open");
    }

    #[test]
    fn given_marks_when_asked_for_panic_then_only_active_and_passive_are_overridden() {
        for reason in Reason::ALL {
            let marks = Marks::default();
            assert!(marks.is_overridable());
            marks.set(reason, true);
            assert_eq!(marks.is_overridable(), matches!(reason, Reason::Active | Reason::Passive), "{reason:?}");
            assert_eq!(marks.reasons().collect::<Vec<_>>(), [reason]);
        }
    }
}
