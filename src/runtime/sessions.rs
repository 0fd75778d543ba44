//! Session affinity of one cluster: its policy, and what is to follow from what that finds.

use super::Registry;
use crate::affinity::{Affinity, Scope};
use crate::config::{self, AffinityFailure, HttpAddress, IdForm, Problems};
use crate::model::Destination;

pub struct Sessions {
    pub policy: Box<dyn Affinity>,
    pub failure: AffinityFailure,
    /// A request that began at its session's destination is tried at no other.
    pub strict: bool,
    /// Destinations see the key.
    pub forward: bool,
    /// Each answer carries the key anew.
    pub sliding: bool,
}

impl Sessions {
    /// `ids` are [`key_id`]s by index. `Some(None)`: there is none; `None`: it was faulty.
    pub(super) fn compile(
        cluster: &config::Cluster,
        ids: &[String],
        registry: &Registry,
        problems: &mut Problems,
    ) -> Option<Option<Self>> {
        let Some(written) = &cluster.session_affinity else { return Some(None) };
        let scope = Scope { key_name: &written.key_name, ids };
        Some(Some(Sessions {
            policy: registry.affinity(&written.policy, &scope, problems)?,
            failure: written.failure,
            strict: written.strict,
            forward: written.forward,
            sliding: written.sliding,
        }))
    }
}

/// What `destination`, which `written` became, is called in keys.
pub(super) fn key_id(cluster: &config::Cluster, written: &config::Destination, destination: &Destination) -> String {
    match cluster.session_affinity.as_ref().map(|affinity| affinity.id_form) {
        Some(IdForm::Resolved) => format!("{}[{}]", written.id.value, authority(written, destination)),
        Some(IdForm::Name) | None => destination.id.clone(),
    }
}

/// As the file has it, unless it was a logical name: then as the service has it.
fn authority(written: &config::Destination, destination: &Destination) -> String {
    let text = &written.address.value;
    let found = destination.endpoint.authority();
    match HttpAddress::parse(text) {
        Ok(address) if address.authority() == found => {
            let rest = text.split_once("://").map_or(text.as_str(), |(_, rest)| rest);
            rest.split('/').next().unwrap_or(rest).to_owned()
        }
        _ => found,
    }
}

#[cfg(test)]
mod tests {
    use crate::affinity::Recall;
    use crate::model::RequestView;
    use crate::model::testing::request;
    use crate::runtime::testing::compiled;
    use http::{HeaderMap, HeaderValue, header};

    /// Which destination's key `value` is, in a cluster of these settings and destinations.
    fn recalled(settings: &str, destinations: &str, value: &str) -> Option<String> {
        let text = format!(
            "listeners: {{ web: \"127.0.0.1:1\" }}\nroutes: {{ all: {{ cluster: c }} }}\nservices: {{ catalog: {{ http: \
             [\"localhost:5301\", \"127.0.0.1:5311\"] }} }}\nclusters: {{ c: {{ destinations: {destinations}, \
             session_affinity: {{ key_name: k, {settings} }}, discovery: {{ type: services }} }} }}"
        );
        let cluster = compiled(&text).1.clusters[0].clone();
        let field = HeaderValue::try_from(format!("k={value}")).expect("a value");
        let headers: HeaderMap = std::iter::once((header::COOKIE, field)).collect();
        let sessions = cluster.sessions.as_ref().expect("is configured");
        match sessions.policy.recall(&RequestView { headers: &headers, ..request() }) {
            Recall::Bound(index) => Some(cluster.members[index].destination.id.clone()),
            _ => None,
        }
    }

    #[test]
    fn given_the_form_of_yarp_behind_a_resolver_when_compiled_then_its_cookies_lead_to_the_destinations() {
        let catalogs =
            "{ catalog-1: \"http://localhost:5301/\", catalog-2: \"http://localhost:5311\", a: \"http://127.0.0.1\" }";
        let resolved = |value| recalled("id_form: resolved", catalogs, value);
        assert_eq!(resolved("e76da95c600cb57c").as_deref(), Some("catalog-1"));
        assert_eq!(resolved("d673564b930708ae").as_deref(), Some("catalog-2"));
        assert_eq!(resolved("97f64c126aa7b24d"), None);
        // The port stands there only where it is written.
        let catalog = "{ catalog: \"http://127.0.0.1\" }";
        assert_eq!(recalled("id_form: resolved", catalog, "b268fce7757d84ec").as_deref(), Some("catalog"));
        let named = |value| recalled("strict: true", catalogs, value);
        assert_eq!(named("97f64c126aa7b24d").as_deref(), Some("catalog-1"));
        assert_eq!(named("e76da95c600cb57c"), None);
    }

    #[test]
    fn given_a_logical_name_with_a_resolved_form_when_compiled_then_the_services_addresses_stand_in_the_keys() {
        let found = |value| recalled("id_form: resolved", "{ catalog-1: \"http://catalog\" }", value);
        assert_eq!(found("e76da95c600cb57c").as_deref(), Some("catalog-1[localhost:5301]"));
    }

    #[test]
    fn given_another_port_or_a_resolver_when_compiled_then_the_keys_of_names_stay() {
        for destinations in ["{ catalog-1: \"http://localhost:1\" }", "{ catalog-1: \"http://127.0.0.1:5301\" }"] {
            assert_eq!(recalled("", destinations, "97f64c126aa7b24d").as_deref(), Some("catalog-1"), "{destinations}");
        }
    }
}
