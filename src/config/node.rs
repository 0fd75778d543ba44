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

/// One node of a parsed file.
#[derive(Debug, Clone)]
pub struct Node {
    pub at: Spot,
    pub(super) kind: Kind,
}

#[derive(Debug, Clone)]
pub(super) enum Kind {
    Null,
    /// A scalar as its text; `quoted` ones are text only, plain ones may be read as numbers and flags.
    Scalar { text: String, quoted: bool },
    List(Vec<Node>),
    Map(Vec<(Located<String>, Node)>),
}

impl Node {
    pub fn empty_map(at: Spot) -> Self {
        Node { at, kind: Kind::Map(Vec::new()) }
    }
}
