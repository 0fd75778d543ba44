use http::{HeaderMap, Method};
use std::net::IpAddr;

/// What routing and picking may look at, borrowed from the client's request.
#[derive(Debug, Clone, Copy)]
pub struct RequestView<'a> {
    pub method: &'a Method,
    /// The host asked for, without its port; in the client's own letters.
    pub host: &'a str,
    /// The port written with the host.
    pub port: Option<u16>,
    /// The path byte for byte, without the query.
    pub path: &'a str,
    /// What stands behind the `?`, byte for byte.
    pub query: Option<&'a str>,
    pub headers: &'a HeaderMap,
    /// The address of the client's connection; IPv4 inside IPv6 is IPv4.
    pub client_ip: Option<IpAddr>,
}
