//! Where a destination's host leads. One source a file. A source that finds nothing says why; it never guesses.

mod fixed;
mod services;

pub use fixed::Fixed;
pub use services::Services;

use crate::config::HttpAddress;
use crate::model::Endpoint;
use std::io;
use std::net::SocketAddr;

/// Turns an address into the endpoints behind it, one or more.
pub trait Discovery: Send + Sync {
    fn resolve(&self, address: &HttpAddress, names: &dyn Names) -> Result<Vec<Endpoint>, String>;
}

/// The system's names: passed in, so that resolving is tested without a network.
pub trait Names {
    fn lookup(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>>;
}

/// getaddrinfo, blocking: for start and reload, never for requests.
pub struct SystemNames;

impl Names for SystemNames {
    fn lookup(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        use std::net::ToSocketAddrs;
        (host, port).to_socket_addrs().map(Iterator::collect)
    }
}
