//! The integration tests: one binary, one file a behaviour. They need nothing but loopback.

mod bodies;
mod floors;
mod forwarding;
mod image;
mod readme;
#[allow(dead_code, unused_imports, reason = "a toolbox: which tools are in use changes with the tests")]
mod support;
mod tools;
mod websocket;
