//! Section `listeners`: where connections are accepted. Files are named, not opened.

use super::section::check_at;
use super::server::{exclude_each_other, socket_address};
use super::{Located, Node, Problems, Section, unknown};
use std::net::{Ipv4Addr, SocketAddr};
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

impl Listener {
    /// A fault without any, or with two that cannot both be bound.
    pub(super) fn read_all(root: &mut Section<'_>) -> Vec<Self> {
        root.require_some("listeners", "`web: 0.0.0.0:8080`");
        let entries = root.named("listeners");
        let mut listeners: Vec<Listener> = Vec::new();
        for (name, node) in entries {
            let Some(listener) = Listener::read(name, node, root.problems()) else {
                continue;
            };
            let address = listener.address.value;
            if let Some(other) = listeners.iter().find(|other| exclude_each_other(other.address.value, address)) {
                root.problem(&listener.address.at, format!("listener `{}` has this address already", other.name.value));
            }
            listeners.push(listener);
        }
        listeners
    }

    fn read(name: Located<String>, node: &Node, problems: &mut Problems) -> Option<Self> {
        if let Some(text) = node.scalar() {
            let address = check_at(text, &node.at, problems, socket_address)?;
            return Some(Listener { name, address, tls: None });
        }
        let mut section = Section::of_map(node, problems);
        section.require("address", "IP and port, such as 0.0.0.0:8080");
        let address = section.checked("address", socket_address);
        for protocol in section.words("protocols") {
            if protocol.value != "http1" {
                section.problem(&protocol.at, unknown("protocol", &protocol.value, &["http1"]));
            }
        }
        // With a wrong address it stays in the draft, so that its files are judged too.
        let address = address
            .unwrap_or_else(|| Located { value: (Ipv4Addr::UNSPECIFIED, 0).into(), at: section.spot_of("address") });
        let tls = section.section("tls", ListenerTls::read).flatten();
        section.finish();
        Some(Listener { name, address, tls })
    }
}

impl ListenerTls {
    fn read(section: &mut Section<'_>) -> Option<Self> {
        section.require("certificates", "a list of one `{ cert: …, key: … }`");
        let at = section.spot_of("certificates");
        let items = section.list("certificates");
        let [item] = items else {
            if section.has("certificates") {
                section.problem(&at, format!("expected exactly one certificate; found {}", items.len()));
            }
            return None;
        };
        let mut entry = Section::of_map(item, section.problems());
        let certificate = Certificate::read(&mut entry, "cert", "key");
        if certificate.is_none() && !entry.has("cert") && !entry.has("key") {
            entry.require("cert", "a certificate file, and `key` with its private key");
        }
        entry.finish();
        Some(ListenerTls { certificate: certificate? })
    }
}

impl Certificate {
    /// Two files or none; one without the other is a fault.
    pub(super) fn read(section: &mut Section<'_>, cert: &'static str, key: &'static str) -> Option<Self> {
        for (here, missing) in [(cert, key), (key, cert)] {
            if section.has(here) && !section.has(missing) {
                section.require(missing, &format!("`{here}` stands beside it"));
            }
        }
        let (cert, key) = (section.path(cert), section.path(key));
        Some(Certificate { cert: cert?, key: key? })
    }
}
