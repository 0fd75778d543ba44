//! What only the built-in sections ask for: names of the operator's choosing, files, texts with a syntax of their own.

use super::{Section, entries_of};
use crate::config::node::{Entries, Kind, quote};
use crate::config::outline::described;
use crate::config::{Located, Node, Problems, Spot};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

impl<'a> Section<'a> {
    pub(in crate::config) fn problems(&mut self) -> &mut Problems {
        self.problems
    }

    /// The node below `key`, which counts as asked for.
    pub(in crate::config) fn take(&mut self, key: &'static str) -> Option<&'a Node> {
        if !self.asked.contains(&key) {
            self.asked.push(key);
        }
        // The key alone, in its place among the others.
        let _ = self.problems.outline(&self.at.path, key);
        self.find(key)
    }

    /// A fault of the section as a whole.
    pub(in crate::config) fn lacks(&mut self, message: impl Into<String>) {
        if !self.misfit {
            self.problems.push(self.at, message);
        }
    }

    /// A fault when `key` is absent or an empty list or map.
    pub(in crate::config) fn require_some(&mut self, key: &'static str, what: &str) {
        self.note_required(key);
        self.miss_empty(key, what);
    }

    /// As [`Section::require_some`], for a key that is needed only beside some values of others.
    pub(in crate::config) fn miss_empty(&mut self, key: &'static str, what: &str) {
        let empty = self.find(key).is_none_or(|node| match &node.kind {
            Kind::Null => true,
            Kind::Scalar { .. } => false,
            Kind::List(items) => items.is_empty(),
            Kind::Map(entries) => entries.is_empty(),
        });
        if empty && !self.misfit {
            let at = self.spot_of(key);
            self.problems.push(&at, format!("needs at least one, such as {what}"));
        }
    }

    /// As [`Section::section`], and an absent one reads as empty: the defaults stand in `read` alone.
    pub(in crate::config) fn defaulted<R>(&mut self, key: &'static str, read: impl FnOnce(&mut Section<'_>) -> R) -> R {
        let absent = Node::empty_map(self.at.under(key));
        let node = self.take(key).unwrap_or(&absent);
        let mut section = Section::of_map(node, self.problems);
        let result = read(&mut section);
        section.finish();
        result
    }

    /// A map by names of the operator's choosing, each 1–128 printable characters. Absent: empty.
    pub(in crate::config) fn named(&mut self, key: &'static str) -> Vec<(Located<String>, &'a Node)> {
        let Some(node) = self.take(key) else {
            return Vec::new();
        };
        let entries = entries_of(node, self.problems).unwrap_or_default();
        for (Located { value: name, at }, _) in entries {
            if name.is_empty() || name.chars().count() > 128 || name.chars().any(char::is_control) {
                let message = "a name has 1 to 128 printable characters";
                self.problems.push(at, format!("{message}; found {}", quote(name)));
            }
        }
        entries.iter().map(|(name, node)| (name.clone(), node)).collect()
    }

    /// A map of texts by names of the operator's choosing.
    pub(in crate::config) fn text_map(&mut self, key: &'static str) -> BTreeMap<String, String> {
        self.texts(key).into_iter().map(|(name, text)| (name.value, text.value)).collect()
    }

    /// The items below `key`; anything but a list is a fault. Absent: empty.
    pub(in crate::config) fn list(&mut self, key: &'static str) -> &'a [Node] {
        match self.take(key) {
            None => &[],
            Some(Node { kind: Kind::List(items), .. }) => items,
            Some(node) => {
                self.problems.push(&node.at, format!("expected a list; {}", node.found()));
                &[]
            }
        }
    }

    /// A file, relative to the directory of the file that names it.
    pub(in crate::config) fn path(&mut self, key: &'static str) -> Option<Located<PathBuf>> {
        self.text(key).map(Located::beside_its_file)
    }

    /// A scalar that `check` accepts or says what is wrong with.
    pub(in crate::config) fn checked<T>(
        &mut self,
        key: &'static str,
        check: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<Located<T>> {
        let Located { value, at } = self.text(key)?;
        check_at(&value, &at, self.problems, check)
    }

    /// [`Section::words`] that `check` accepts or says what is wrong with.
    pub(in crate::config) fn checked_words<T>(
        &mut self,
        key: &'static str,
        check: fn(&str) -> Result<T, String>,
    ) -> Vec<Located<T>> {
        let words = self.words(key);
        words.into_iter().filter_map(|word| check_at(&word.value, &word.at, self.problems, check)).collect()
    }

    /// A scalar that `read` understands; `expected` words the fault.
    pub(in crate::config) fn scalar<T>(
        &mut self,
        key: &'static str,
        expected: &str,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Option<Located<T>> {
        self.note(key, || described(expected));
        let node = self.take(key)?;
        match node.scalar().and_then(read) {
            Some(value) => Some(Located { value, at: node.at.clone() }),
            None => {
                self.problems.push(&node.at, format!("expected {expected}; {}", node.found()));
                None
            }
        }
    }

    /// A scalar without quotes that `read` understands.
    pub(in crate::config) fn plain<T>(
        &mut self,
        key: &'static str,
        expected: &str,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Option<T> {
        self.note(key, || described(expected));
        let node = self.take(key)?;
        if let Kind::Scalar { text, quoted: true } = &node.kind {
            let mut message = format!("expected {expected}; found the text {}", quote(text));
            if read(text).is_some() {
                message += ", take the quotes away";
            }
            self.problems.push(&node.at, message);
            return None;
        }
        Some(self.scalar(key, expected, read)?.value)
    }

    /// The keys asked for so far.
    pub(in crate::config) fn asked(&self) -> &[&'static str] {
        &self.asked
    }

    /// Counts these as asked for.
    pub(in crate::config) fn knowing(mut self, keys: &[&'static str]) -> Self {
        self.asked.extend(keys);
        self
    }

    /// What was not asked for, as a map of its own: the keys of a policy.
    pub(in crate::config) fn rest(self) -> Node {
        let entries: Entries =
            self.entries.iter().filter(|(key, _)| !self.asked.contains(&key.value.as_str())).cloned().collect();
        Node { at: self.at.clone(), kind: Kind::Map(entries) }
    }
}

impl Located<String> {
    /// As a path that starts from the directory of the file that names it.
    pub(in crate::config) fn beside_its_file(self) -> Located<PathBuf> {
        let directory = Path::new(&*self.at.file).parent().unwrap_or(Path::new("")).to_owned();
        self.map(|path| directory.join(path))
    }
}

/// `text` as `check` reads it, or its fault at `at`.
pub(in crate::config) fn check_at<T>(
    text: &str,
    at: &Spot,
    problems: &mut Problems,
    check: impl FnOnce(&str) -> Result<T, String>,
) -> Option<Located<T>> {
    match check(text) {
        Ok(value) => Some(Located { value, at: at.clone() }),
        Err(message) => {
            problems.push(at, format!("{message}; found {}", quote(text)));
            None
        }
    }
}
