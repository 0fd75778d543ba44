//! Derbent, a programmable HTTP edge proxy on Pingora.

mod app;
pub mod balance;
pub mod cli;
pub mod config;
pub mod demo;
pub mod discovery;
mod edge;
mod filter;
pub mod health;
pub mod model;
pub mod observe;
mod proxy;
pub mod runtime;
mod service;

pub use app::{Derbent, StartError};
pub use config::{Config, Problems};
pub use runtime::Registry;
