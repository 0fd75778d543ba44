use super::Located;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Section `server`.
#[derive(Debug, Clone)]
pub struct Server {
    /// Stands in log lines and metrics; default the host name.
    pub name: String,
    /// Worker threads of the proxy service; `auto` = the cores this process may use.
    pub threads: usize,
    /// Where this instance runs; PreferSameZone reads it.
    pub zone: Option<String>,
    /// Idle upstream connections kept, over all destinations and threads. Default 1024.
    pub keepalive_pool: usize,
}

/// Section `admin`; `off` turns the listener off.
#[derive(Debug, Clone)]
pub struct Admin {
    /// Default 127.0.0.1:5390. Another than a loopback address needs a token.
    pub address: Located<SocketAddr>,
    pub token_file: Option<Located<PathBuf>>,
}

/// Section `log`. RUST_LOG wins over it.
#[derive(Debug, Clone)]
pub struct Log {
    pub level: log::LevelFilter,
    pub format: LogFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    Text,
    Json,
}

/// One name of section `services`: scheme → addresses (`host:port`).
#[derive(Debug, Clone)]
pub struct Service {
    pub name: Located<String>,
    pub endpoints: Vec<(String, Vec<Located<String>>)>,
}
