//! The process's own drain: how it goes, and the order for it.

use crate::service::lifecycle::Shown;
use serde_json::{Value, json};

pub fn view(shown: &Shown) -> Value {
    let leave = shown.leave.as_ref();
    json!({
        "phase": shown.phase.label(),
        "since": shown.since.to_string(),
        "why": leave.map(|leave| &leave.why),
        "begun": leave.map(|leave| leave.begun.to_string()),
        "listeners_close": leave.map(|leave| leave.closes_listeners.to_string()),
        "ends_by": leave.map(|leave| leave.ends.to_string()),
        "left": {
            "connections": shown.left.connections,
            "requests_in_flight": shown.left.requests,
            "tunnels": shown.left.tunnels,
        },
    })
}
