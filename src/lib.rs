//! Derbent, a programmable HTTP edge proxy on Pingora.

pub mod cli;
pub mod demo;
pub mod observe;
