//! Members for the tests of every room.

use super::{Crowd, Destination, Endpoint, Lease, Live, Member, RequestView, Scheme};
use crate::config::Role;
use http::{HeaderMap, Method};
use std::sync::{Arc, LazyLock};

/// Destinations `(id, weight, zone)`.
pub fn members(of: &[(&str, u32, &str)]) -> Vec<Arc<Member>> {
    let in_flight = Arc::new(Crowd::default());
    of.iter()
        .enumerate()
        .map(|(index, (id, weight, zone))| {
            Arc::new(Member {
                index,
                destination: Arc::new(Destination {
                    id: id.to_string(),
                    endpoint: Endpoint {
                        scheme: Scheme::Http,
                        host: "127.0.0.1".into(),
                        port: 1,
                        path: String::new(),
                        socket: ([127, 0, 0, 1], 1).into(),
                    },
                    health_endpoint: None,
                    host: None,
                    weight: *weight,
                    max_requests: None,
                    enabled: true,
                    role: Role::Primary,
                    metadata: [("Zone".to_string(), zone.to_string())].into(),
                }),
                live: Arc::new(Live::within(&in_flight)),
            })
        })
        .collect()
}

pub fn equal(ids: &[&str]) -> Vec<Arc<Member>> {
    members(&ids.iter().map(|id| (*id, 1, "")).collect::<Vec<_>>())
}

/// Takes `count` leases on one member.
pub fn load(member: &Member, count: usize) -> Vec<Lease> {
    (0..count).map(|_| member.live.lease(None).expect("no bound")).collect()
}

pub fn request() -> RequestView<'static> {
    static HEADERS: LazyLock<HeaderMap> = LazyLock::new(HeaderMap::new);
    RequestView {
        method: &Method::GET,
        host: "test",
        port: None,
        path: "/",
        query: None,
        headers: &HEADERS,
        client_ip: None,
    }
}
