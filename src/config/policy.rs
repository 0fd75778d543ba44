//! The open slot of a section: whatever policy the operator names. Neither the name nor the parameters are judged here.

use super::{Located, Node, Problems, Section};

/// The open slot: a name, and parameters that only the named policy can read. `runtime::registry` finds the
/// policy; its `build` takes the parameters out of [`Policy::params`], and unknown ones are faults with a place.
#[derive(Debug, Clone)]
pub struct Policy {
    pub name: Located<String>,
    params: Node,
    /// The section's other keys, to be suggested where one of them was meant.
    beside: Vec<&'static str>,
}

impl Policy {
    /// A policy by name alone, as the short form writes it.
    pub fn named(name: Located<String>) -> Self {
        let params = Node::empty_map(name.at.clone());
        Policy { name, params, beside: Vec::new() }
    }

    /// `params` is a map node without the key that named the policy.
    pub(super) fn new(name: Located<String>, params: Node) -> Self {
        Policy { name, params, beside: Vec::new() }
    }

    /// These keys stand beside the policy's own.
    pub(super) fn beside(mut self, keys: Vec<&'static str>) -> Self {
        self.beside.extend(keys);
        self
    }

    pub fn params<'a>(&'a self, problems: &'a mut Problems) -> Section<'a> {
        Section::of_map(&self.params, problems).knowing(&self.beside)
    }

    /// What is written below `key`, in either form, else the policy `default` without parameters.
    pub(super) fn slot(section: &mut Section<'_>, key: &'static str, default: &str) -> Self {
        let at = section.spot_of(key);
        let written = section.take(key).and_then(|node| Policy::read(node, "policy", section.problems()));
        written.unwrap_or_else(|| Policy::named(Located { value: default.to_owned(), at }))
    }

    /// Of a section whose other keys, but for those asked for already, are the policy's; `default` where `key` is absent.
    pub(super) fn among(mut section: Section<'_>, key: &'static str, default: &str) -> Option<Self> {
        let at = section.at().clone();
        if let Some(outline) = section.problems().outline(&at.path, "") {
            outline.set_slot(key);
        }
        let name = match section.has(key) {
            true => section.text(key)?,
            false => Located { value: default.to_owned(), at: section.spot_of(key) },
        };
        let beside = section.asked().to_vec();
        Some(Policy::new(name, section.rest()).beside(beside))
    }

    /// The short form, a name alone, or a section whose `key` is the name and whose other keys are parameters.
    pub(super) fn read(node: &Node, key: &'static str, problems: &mut Problems) -> Option<Self> {
        if let Some(outline) = problems.outline(&node.at.path, "") {
            outline.set_slot(key);
        }
        if let Some(name) = node.scalar().filter(|name| !name.is_empty()) {
            return Some(Policy::named(Located { value: name.to_owned(), at: node.at.clone() }));
        }
        let mut section = Section::of_map(node, problems);
        section.require(key, "the name of the one wanted");
        let name = section.text(key)?;
        let beside = section.asked().to_vec();
        Some(Policy::new(name, section.rest()).beside(beside))
    }
}
