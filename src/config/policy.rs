use super::{Located, Node, Problems, Section};

/// The open slot: a name, and parameters that only the named policy can read. `runtime::registry` finds the
/// policy; its `build` takes the parameters out of [`Policy::params`], and unknown ones are faults with a place.
#[derive(Debug, Clone)]
pub struct Policy {
    pub name: Located<String>,
    params: Node,
}

impl Policy {
    /// A policy by name alone, as the short form writes it.
    pub fn named(name: Located<String>) -> Self {
        let params = Node::empty_map(name.at.clone());
        Policy { name, params }
    }

    /// `params` is a map node without the key that named the policy.
    pub(super) fn new(name: Located<String>, params: Node) -> Self {
        Policy { name, params }
    }

    pub fn params<'a>(&'a self, problems: &'a mut Problems) -> Section<'a> {
        Section::of_map(&self.params, problems)
    }
}
