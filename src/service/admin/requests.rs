//! What the admin listener shows of requests.

use crate::observe::Recent;
use serde_json::{Value, json};

/// The last that did not go as they should, the newest first.
pub fn requests(recent: &Recent) -> Value {
    let lines = recent.newest();
    let requests: Vec<Value> = lines.iter().filter_map(|line| serde_json::from_slice(line).ok()).collect();
    json!({ "dropped": recent.dropped(), "requests": requests })
}
