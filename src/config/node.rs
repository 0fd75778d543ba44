//! The tree a file is parsed into: scalars as written, each value and key with its place. It knows nothing of what
//! the keys mean, and cannot fail; [`super::Section`] asks it questions and words the faults.

use std::fmt;
use std::sync::Arc;

/// Where a value stands: file, line and column (from 1), and its key path (`clusters.catalog.health.active.path`).
#[derive(Clone, PartialEq, Eq)]
pub struct Spot {
    pub file: Arc<str>,
    pub line: u32,
    pub column: u32,
    pub path: String,
}

impl Spot {
    /// The same place, with `key` added to the path: for a key that should be there and is not.
    pub fn under(&self, key: &str) -> Spot {
        Spot { path: join(&self.path, key), ..self.clone() }
    }
}

impl fmt::Debug for Spot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{} {}", self.file, self.line, self.column, self.path)
    }
}

/// A value and its place, for what can only be judged later.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Located<T> {
    pub value: T,
    pub at: Spot,
}

impl<T> Located<T> {
    pub(super) fn map<U>(self, f: impl FnOnce(T) -> U) -> Located<U> {
        Located { value: f(self.value), at: self.at }
    }
}

/// Where the keys of a section stand, those further in too; for what is judged long after it was read.
#[derive(Debug, Clone)]
pub struct Places {
    at: Spot,
    written: Vec<Spot>,
}

impl Places {
    /// Of a map, but for what is below its key `without`.
    pub(super) fn of(node: &Node, without: &str) -> Self {
        let mut written = Vec::new();
        let mut rest: Vec<&Node> = node.below().filter(|(key, _)| *key != without).map(|(_, value)| value).collect();
        while let Some(node) = rest.pop() {
            written.push(node.at.clone());
            rest.extend(node.below().map(|(_, value)| value));
        }
        Places { at: node.at.clone(), written }
    }

    /// Of the value at a key path below the section, such as `health.active.timeout`, when it is written.
    pub fn written(&self, path: &str) -> Option<&Spot> {
        let path = join(&self.at.path, path);
        self.written.iter().find(|spot| spot.path == path)
    }

    /// As [`Places::written`], else the place of the nearest section above it, with the path the key would have.
    pub fn spot_of(&self, path: &str) -> Spot {
        let mut above = path;
        loop {
            if let Some(spot) = self.written(above) {
                return Spot { path: join(&self.at.path, path), ..spot.clone() };
            }
            match above.rsplit_once('.') {
                Some((section, _)) => above = section,
                None => return self.at.under(path),
            }
        }
    }
}

/// One node of a parsed file.
#[derive(Debug, Clone)]
pub struct Node {
    pub at: Spot,
    pub(super) kind: Kind,
}

/// The entries of a map, in the order of the file.
pub(super) type Entries = Vec<(Located<String>, Node)>;

#[derive(Debug, Clone)]
pub(super) enum Kind {
    Null,
    /// A scalar as its text; `quoted` ones are text only, plain ones may be read as numbers and flags.
    Scalar {
        text: String,
        quoted: bool,
    },
    List(Vec<Node>),
    Map(Entries),
}

impl Kind {
    /// What a scalar without quotes stands for.
    pub(super) fn plain(text: String) -> Kind {
        match text.as_str() {
            "" | "~" | "null" | "Null" | "NULL" => Kind::Null,
            _ => Kind::Scalar { text, quoted: false },
        }
    }
}

impl Node {
    pub fn empty_map(at: Spot) -> Self {
        Node { at, kind: Kind::Map(Vec::new()) }
    }

    /// The text of a scalar, quoted or not.
    pub(super) fn scalar(&self) -> Option<&str> {
        match &self.kind {
            Kind::Scalar { text, .. } => Some(text),
            _ => None,
        }
    }

    /// The text of a scalar without quotes.
    pub(super) fn plain(&self) -> Option<&str> {
        match &self.kind {
            Kind::Scalar { text, quoted: false } => Some(text),
            _ => None,
        }
    }

    /// The items of a list.
    pub(super) fn items(&self) -> Option<&[Node]> {
        match &self.kind {
            Kind::List(items) => Some(items),
            _ => None,
        }
    }

    /// The entries of a map; of anything else none.
    pub(super) fn below(&self) -> impl Iterator<Item = (&str, &Node)> {
        let entries = match &self.kind {
            Kind::Map(entries) => entries.as_slice(),
            _ => &[],
        };
        entries.iter().map(|(key, value)| (key.value.as_str(), value))
    }

    pub(super) fn is_off(&self) -> bool {
        self.plain() == Some("off")
    }

    /// "found …", the end of a message.
    pub(super) fn found(&self) -> String {
        match &self.kind {
            Kind::Null => "found nothing".to_owned(),
            Kind::Scalar { text, .. } => format!("found {}", quote(text)),
            Kind::List(_) => "found a list".to_owned(),
            Kind::Map(_) => "found a section of keys".to_owned(),
        }
    }
}

/// A path one key longer.
pub(super) fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

/// What was written, as a message shows it: in quotes, escaped, and never longer than a line bears.
pub(super) fn quote(text: &str) -> String {
    const SHOWN: usize = 60;
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{:?}", format!("{}…", &text[..end])),
        None => format!("{text:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_long_or_strange_text_when_quoted_then_it_stays_one_short_line() {
        assert_eq!(quote("a\nb"), r#""a\nb""#);
        assert_eq!(quote(&"é".repeat(500)).chars().count(), 63);
    }
}
