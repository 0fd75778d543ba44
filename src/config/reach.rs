//! How a probe gets to its destination, where that differs from how requests do: keys that several kinds of active check
//! have. The kinds ask for them; `runtime::upstream` makes connections of them, as of a cluster's own.

use super::address::host_name;
use super::cluster::UpstreamTls;
use super::{Located, Section};
use serde_json::json;

/// `port`, `host` and `tls` of an active check.
#[derive(Debug, Clone, Default)]
pub struct Reach {
    /// Instead of the address's, 1–65535.
    pub port: Option<u16>,
    /// Host header, and TLS name unless `tls` says another.
    pub host: Option<Located<String>>,
    pub tls: ReachTls,
}

#[derive(Debug, Clone, Default)]
pub enum ReachTls {
    /// Where the address says https, with the cluster's certificates. The default.
    #[default]
    AsRequests,
    /// `off`: cleartext, whatever the address says.
    Off,
    /// `on`: with the cluster's certificates, whatever the address says.
    On,
    /// A section: by this and nothing of the cluster's.
    Own(Box<UpstreamTls>),
}

impl Reach {
    pub fn read(section: &mut Section<'_>) -> Self {
        Reach { host: section.checked("host", host_name), tls: ReachTls::read(section), ..Reach::read_port(section) }
    }

    /// For kinds that connect and no more.
    pub fn read_port(section: &mut Section<'_>) -> Self {
        let port = section.integer("port", 1..=65_535).and_then(|port| u16::try_from(port).ok());
        Reach { port, ..Reach::default() }
    }
}

impl ReachTls {
    fn read(section: &mut Section<'_>) -> Self {
        if section.off("tls") {
            return ReachTls::Off;
        }
        section.note("tls", || json!({ "const": "on" }));
        if section.take("tls").is_some_and(|node| node.plain() == Some("on")) {
            return ReachTls::On;
        }
        let own = section.section("tls", UpstreamTls::read);
        own.map_or(ReachTls::AsRequests, |own| ReachTls::Own(Box::new(own)))
    }
}
