//! One short name for what a configuration amounts to: equal for two instances that run the same, whatever their files'
//! comments, layout and place.

use super::Node;
use super::node::Kind;
use sha2::{Digest, Sha256};

/// The first 12 hex digits of the SHA-256 over the merged tree, environment filled in, positions left out.
pub(super) fn of(root: &Node) -> String {
    let mut hash = Sha256::new();
    add(root, &mut hash);
    hash.finalize().iter().take(6).map(|byte| format!("{byte:02x}")).collect()
}

/// Every node is written with its kind and length, so that no two trees write the same bytes.
fn add(node: &Node, hash: &mut Sha256) {
    match &node.kind {
        Kind::Null => hash.update(b"n"),
        Kind::Scalar { text, .. } => add_text(text, hash),
        Kind::List(items) => {
            hash.update(format!("l{}:", items.len()));
            items.iter().for_each(|item| add(item, hash));
        }
        Kind::Map(entries) => {
            hash.update(format!("m{}:", entries.len()));
            for (key, value) in entries {
                add_text(&key.value, hash);
                add(value, hash);
            }
        }
    }
}

fn add_text(text: &str, hash: &mut Sha256) {
    hash.update(format!("s{}:{text}", text.len()));
}
