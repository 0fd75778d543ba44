//! A cluster's future under a load, in virtual time and with seeded chance: the judges, the draw and the publishing are those
//! that serve, [`Cluster`] and [`draw`](crate::runtime::draw()) themselves. Only what the network would say is made up here, by a
//! [`Timeline`].
//!
//! One request is one attempt that is answered at once and whole. Probes are made as the prober makes them, and time alone is
//! asked as often as recovery does; so what comes out is what a process would do under that load. Equal seeds give equal
//! findings, to the byte. No clock, no sockets, no Pingora; what a timeline names and the configuration lacks is a fault.

mod agenda;
mod findings;
mod place;
mod run;

pub use findings::{Findings, Told};
pub use run::Run;

use crate::config::{Config, Located, Mixed, Phase, Problems, Timeline, unknown};
use crate::discovery::Names;
use crate::runtime::{Cluster, Route, Snapshot};
use http::{HeaderMap, HeaderValue, Method, header};
use place::{Check, Place};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// A timeline whose names are found.
pub struct Scenario {
    cluster: Arc<Cluster>,
    /// By which requests come to the cluster.
    route: Arc<str>,
    check: Check,
    length: Option<Duration>,
    phases: Vec<Phase>,
    asked: Vec<Asked>,
    abort: f64,
    /// By `Member::index`.
    places: Vec<Place>,
}

/// One kind of request.
struct Asked {
    method: Method,
    path: String,
    headers: HeaderMap,
    /// Of all requests this one and those before it.
    up_to: f64,
}

impl Scenario {
    /// `None` with faults. `snapshot` is compiled from `config`, with an epoch that begins at 1970: stamps are then
    /// milliseconds since the start.
    pub fn new(timeline: Timeline, config: &Config, snapshot: &Snapshot, problems: &mut Problems) -> Option<Scenario> {
        let cluster = cluster(timeline.cluster.as_ref(), snapshot, problems)?;
        let mut places: Vec<Option<Place>> = cluster.members.iter().map(|_| None).collect();
        for (name, turns) in timeline.destinations {
            let ids: Vec<&str> = cluster.members.iter().map(|member| member.destination.id.as_str()).collect();
            match ids.iter().position(|id| *id == name.value) {
                Some(index) => places[index] = Some(Place::new(turns)),
                None => problems.push(&name.at, unknown("destination", &name.value, &ids)),
            }
        }
        let written = config.clusters.iter().find(|written| written.name.value == cluster.name);
        let active = written.and_then(|written| written.health.active.as_ref());
        problems.is_empty().then(|| Scenario {
            route: route_to(&cluster, snapshot),
            check: Check::of(active.map_or("", |active| &active.kind.name.value)),
            length: timeline.length,
            phases: timeline.phases,
            asked: asked(&timeline.mix),
            abort: timeline.abort,
            places: places.into_iter().map(|place| place.unwrap_or_else(|| Place::new(Vec::new()))).collect(),
            cluster,
        })
    }
}

fn cluster(name: Option<&Located<String>>, snapshot: &Snapshot, problems: &mut Problems) -> Option<Arc<Cluster>> {
    let Some(name) = name else { return snapshot.clusters.first().cloned() };
    let found = snapshot.cluster(&name.value);
    if found.is_none() {
        let names: Vec<&str> = snapshot.clusters.iter().map(|cluster| cluster.name.as_str()).collect();
        problems.push(&name.at, unknown("cluster", &name.value, &names));
    }
    found.cloned()
}

fn route_to(cluster: &Arc<Cluster>, snapshot: &Snapshot) -> Arc<str> {
    let leads = |route: &&Arc<Route>| route.action.clusters().iter().any(|to| Arc::ptr_eq(to, cluster));
    let route = snapshot.routes.iter().find(leads);
    route.map_or_else(|| "none".into(), |route| route.name.clone())
}

fn asked(mix: &[Mixed]) -> Vec<Asked> {
    let all: f64 = mix.iter().map(|kind| kind.share).sum();
    let mut before = 0.0;
    let kind = |kind: &Mixed| {
        before += kind.share / all;
        let mut headers = HeaderMap::new();
        if kind.body > 0 {
            headers.insert(header::CONTENT_LENGTH, HeaderValue::from(kind.body));
        }
        Asked { method: kind.method.clone(), path: kind.path.clone(), headers, up_to: before }
    };
    mix.iter().map(kind).collect()
}

/// Every host is somewhere: what is simulated connects to nobody.
pub struct Anywhere;

impl Names for Anywhere {
    fn lookup(&self, _: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        Ok(vec![SocketAddr::from(([127, 0, 0, 1], port))])
    }
}
