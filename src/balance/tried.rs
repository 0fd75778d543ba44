/// The members a request must not get (again). Holds four in place, which covers a request's attempts; only a
/// cluster full of destinations at `max_requests` makes it allocate, and then a bit each.
#[derive(Debug, Clone, Default)]
pub struct Tried {
    few: [u32; 4],
    len: usize,
    many: Vec<u64>,
}

impl Tried {
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many were added.
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn contains(&self, index: usize) -> bool {
        if self.many.is_empty() {
            self.few[..self.len].iter().any(|&i| i as usize == index)
        } else {
            self.many.get(index / 64).is_some_and(|word| word & (1 << (index % 64)) != 0)
        }
    }

    pub fn insert(&mut self, index: usize) {
        if self.contains(index) {
            return;
        }
        if self.many.is_empty() && self.len < self.few.len() {
            self.few[self.len] = index as u32;
        } else {
            if self.many.is_empty() {
                for i in self.few {
                    self.set_bit(i as usize);
                }
            }
            self.set_bit(index);
        }
        self.len += 1;
    }

    fn set_bit(&mut self, index: usize) {
        if self.many.len() <= index / 64 {
            self.many.resize(index / 64 + 1, 0);
        }
        self.many[index / 64] |= 1 << (index % 64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    proptest! {
        #[test]
        fn given_any_members_when_inserted_then_exactly_those_are_contained(
            members in prop::collection::vec(0usize..300, 0..40)
        ) {
            let mut tried = Tried::default();
            let model: HashSet<usize> = members.iter().copied().collect();
            members.iter().for_each(|&m| tried.insert(m));
            prop_assert_eq!(tried.len(), model.len());
            (0..300).for_each(|m| assert_eq!(tried.contains(m), model.contains(&m)));
        }
    }
}
