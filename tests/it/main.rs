//! The integration tests: one binary, one file a behaviour. They need nothing but loopback.

mod access_log;
mod admin;
mod alerts;
mod balancing;
mod beaten;
mod bodies;
mod broken_config;
mod commands;
mod connections;
mod ctl;
mod errors;
mod every_file_loads;
mod explain;
mod floors;
mod forwarding;
mod health;
mod http2;
mod image;
mod library;
mod metrics;
mod operator;
mod probes;
mod readme;
mod reload;
mod routing;
mod schema;
mod simulate;
mod strict;
mod strict_answers;
#[allow(dead_code, unused_imports, reason = "a toolbox: which tools are in use changes with the tests")]
mod support;
mod tls;
mod tools;
mod warnings;
mod websocket;
mod yarp_cases;
