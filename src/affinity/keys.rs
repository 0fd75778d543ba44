//! Which destination a key names, prepared: one look-up, however many there are.

use super::{Recall, Scope};
use crate::config::Section;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

pub struct Keys(HashMap<Box<[u8]>, usize>);

impl Keys {
    /// `keys` are those of the scope's destinations. A fault where two have the same: both would be found as the first.
    pub fn new(keys: &[String], params: &mut Section<'_>, scope: &Scope<'_>) -> Self {
        let mut found = HashMap::with_capacity(keys.len());
        for (index, key) in keys.iter().enumerate() {
            match found.entry(key.as_bytes().into()) {
                Entry::Vacant(free) => drop(free.insert(index)),
                Entry::Occupied(taken) => {
                    let (one, other) = (&scope.ids[*taken.get()], &scope.ids[index]);
                    let at = params.at().clone();
                    params.problem(&at, format!("destinations {one:?} and {other:?} have the same key by this policy"));
                }
            }
        }
        Keys(found)
    }

    pub fn find(&self, key: &[u8]) -> Recall {
        self.0.get(key).map_or(Recall::Unknown, |index| Recall::Bound(*index))
    }
}
