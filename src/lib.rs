//! Derbent, a programmable HTTP edge proxy on Pingora.

pub mod config;
