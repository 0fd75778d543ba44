//! The destinations of a cluster, as a map by id or as a list of URLs.

use super::address::{HttpAddress, host_name};
use super::node::Kind;
use super::outline::text;
use super::section::check_at;
use super::{Located, Node, Problems, Section};
use serde_json::json;
use std::collections::{BTreeMap, HashSet};

#[derive(Debug, Clone)]
pub struct Destination {
    pub id: Located<String>,
    /// `http://host[:port][/path]` or `https://…`.
    pub address: Located<String>,
    /// Probes go here when given; same form.
    pub health_address: Option<Located<String>>,
    /// Host header and TLS name instead of the address's own.
    pub host: Option<Located<String>>,
    /// 0–1000, default 1. 0: no new requests.
    pub weight: u32,
    /// Requests in flight it may have, 1–1,000,000; `None` = no bound.
    pub max_requests: Option<u32>,
    /// Default `true`. `false`: no new requests, no probes, kept in view.
    pub enabled: bool,
    /// Default `primary`.
    pub role: Role,
    pub metadata: BTreeMap<String, String>,
}

/// What a destination is there for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// For the requests.
    Primary,
    /// For those that no primary served, in the order written.
    Failover,
    /// For the share of the requests that section `canary` says.
    Canary,
    /// For copies.
    Mirror,
}

impl Role {
    pub const ALL: [Role; 4] = [Role::Primary, Role::Failover, Role::Canary, Role::Mirror];

    pub fn as_str(self) -> &'static str {
        match self {
            Role::Primary => "primary",
            Role::Failover => "failover",
            Role::Canary => "canary",
            Role::Mirror => "mirror",
        }
    }
}

impl Destination {
    /// A fault without any, or with one written twice in a list.
    pub(super) fn read_all(cluster: &mut Section<'_>) -> Vec<Self> {
        cluster.require_some("destinations", "`[\"http://10.0.0.1:3000\"]`");
        cluster.note("destinations", || json!({ "type": "array", "items": text() }));
        let Some(Node { kind: Kind::List(items), .. }) = cluster.take("destinations") else {
            let entries = cluster.named("destinations");
            return entries
                .into_iter()
                .filter_map(|(id, node)| Destination::read(id, node, cluster.problems()))
                .collect();
        };
        let mut ids = HashSet::new();
        let mut destinations = Vec::new();
        for item in items {
            let Some(destination) = Destination::of_url(item, cluster.problems()) else {
                continue;
            };
            if !ids.insert(destination.id.value.clone()) {
                cluster.problem(&item.at, format!("destination {} is written twice", destination.id.value));
            }
            destinations.push(destination);
        }
        destinations
    }

    /// An item of a list; its id is its host and port.
    fn of_url(item: &Node, problems: &mut Problems) -> Option<Self> {
        let Some(text) = item.scalar() else {
            problems.push(
                &item.at,
                format!("expected a URL; for more, write a map by id: `id: {{ address: … }}`; {}", item.found()),
            );
            return None;
        };
        let address = check_at(text, &item.at, problems, url)?;
        let id = check_at(text, &item.at, problems, |text| HttpAddress::parse(text).map(|url| url.authority()))?;
        Some(Destination::plain(id, address))
    }

    fn read(id: Located<String>, node: &Node, problems: &mut Problems) -> Option<Self> {
        problems.note(&node.at.path, "", text);
        if let Some(text) = node.scalar() {
            return Some(Destination::plain(id, check_at(text, &node.at, problems, url)?));
        }
        let mut section = Section::of_map(node, problems);
        section.require("address", "a URL such as http://10.0.0.1:3000");
        let address = section.checked("address", url);
        let health_address = section.checked("health_address", url);
        let host = section.checked("host", host_name);
        let number = |value: u64| u32::try_from(value).ok();
        let weight = section.integer("weight", 0..=1000).and_then(number).unwrap_or(1);
        let max_requests = section.integer("max_requests", 1..=1_000_000).and_then(number);
        let role = section.word("role", &Role::ALL.map(|role| (role.as_str(), role))).unwrap_or(Role::Primary);
        let enabled = section.flag("enabled").unwrap_or(true);
        let metadata = section.text_map("metadata");
        section.finish();
        let plain = Destination::plain(id, address?);
        Some(Destination { health_address, host, weight, max_requests, enabled, role, metadata, ..plain })
    }

    fn plain(id: Located<String>, address: Located<String>) -> Self {
        Destination {
            id,
            address,
            health_address: None,
            host: None,
            weight: 1,
            max_requests: None,
            enabled: true,
            role: Role::Primary,
            metadata: BTreeMap::new(),
        }
    }
}

fn url(text: &str) -> Result<String, String> {
    HttpAddress::parse(text).map(|_| text.to_owned())
}
