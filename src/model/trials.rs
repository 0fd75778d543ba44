use std::sync::atomic::{AtomicU64, Ordering};

/// Places for requests on trial, while a judge is half-open. A place taken in one half-open phase cannot be given back to the
/// next.
#[derive(Debug, Default)]
pub struct Trials(AtomicU64);

/// A place taken; [`Trials::give_back`] wants it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place(u32);

impl Trials {
    /// A new phase, with so many places.
    pub fn open(&self, places: u32) {
        self.update(|phase, _| Some((phase.wrapping_add(1), places)));
    }

    /// The phase is over: no place is left, and those taken are not awaited.
    pub fn close(&self) {
        self.open(0);
    }

    pub fn take(&self) -> Option<Place> {
        let before = self.update(|phase, free| Some((phase, free.checked_sub(1)?)))?;
        Some(Place(before))
    }

    pub fn give_back(&self, place: Place) {
        self.update(|phase, free| (phase == place.0).then_some((phase, free.saturating_add(1))));
    }

    /// The phase in which the change was made; `None` when it was not.
    fn update(&self, change: impl Fn(u32, u32) -> Option<(u32, u32)>) -> Option<u32> {
        let split = |packed: u64| ((packed >> 32) as u32, packed as u32);
        let pack = |(phase, free): (u32, u32)| (u64::from(phase) << 32) | u64::from(free);
        let changed = |packed| {
            let (phase, free) = split(packed);
            change(phase, free).map(pack)
        };
        self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, changed).ok().map(|packed| split(packed).0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_two_places_when_taken_then_no_third_until_one_is_given_back() {
        let trials = Trials::default();
        assert_eq!(trials.take(), None);
        trials.open(2);
        let first = trials.take().expect("a place");
        assert!(trials.take().is_some());
        assert_eq!(trials.take(), None);
        trials.give_back(first);
        assert!(trials.take().is_some());
    }

    #[test]
    fn given_a_place_of_an_earlier_phase_when_given_back_then_the_later_has_no_more_for_it() {
        let trials = Trials::default();
        trials.open(1);
        let old = trials.take().expect("a place");
        trials.open(1);
        trials.give_back(old);
        assert!(trials.take().is_some());
        assert_eq!(trials.take(), None);
        trials.close();
        trials.give_back(old);
        assert_eq!(trials.take(), None);
    }
}
