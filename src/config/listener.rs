use super::Located;
use std::net::SocketAddr;
use std::path::PathBuf;

/// One entry of section `listeners`.
#[derive(Debug, Clone)]
pub struct Listener {
    pub name: Located<String>,
    pub address: Located<SocketAddr>,
    pub tls: Option<ListenerTls>,
}

#[derive(Debug, Clone)]
pub struct ListenerTls {
    pub certificate: Certificate,
}

#[derive(Debug, Clone)]
pub struct Certificate {
    pub cert: Located<PathBuf>,
    pub key: Located<PathBuf>,
}
