//! The sole constructor of a [`Snapshot`]: `check`, `run` and the library all come through here, so what was checked is
//! what runs. Every fault is found before anything is returned; with one fault nothing is.

use super::cluster::Parts;
use super::route::parts;
use super::router::Router;
use super::template::Template;
use super::upstream::Connecting;
use super::{Action, AdminPlan, CheckPlan, Cluster, ListenerPlan, Redirect, Registry, Respond, Route, Snapshot, tls};
use crate::balance::Site;
use crate::config::HttpAddress;
use crate::config::{self, Config, Located, Problems, unknown};
use crate::discovery::{Discovery, Fixed, Names, Services};
use crate::filter::RemovePrefix;
use crate::health::Thresholds;
use crate::model::{Destination, Endpoint, Live, Member};
use crate::observe::Metrics;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

/// Resolves, reads and builds all that the configuration names. `problems` are the faults known already, so that all come
/// in one report.
pub fn compile(
    config: &Config,
    registry: &Registry,
    names: &dyn Names,
    metrics: &Metrics,
    mut problems: Problems,
) -> Result<Snapshot, Problems> {
    let compiler = Compiler {
        config,
        registry,
        names,
        metrics,
        site: Site { zone: config.server.zone.clone() },
        services: services(config),
    };
    let listeners = compiler.listeners(&mut problems);
    let admin = config.admin.as_ref().and_then(|admin| admin_plan(admin, &mut problems));
    let clusters: Vec<Option<Arc<Cluster>>> =
        config.clusters.iter().map(|cluster| compiler.cluster(cluster, &mut problems)).collect();
    let routes: Vec<Option<Route>> =
        config.routes.iter().map(|route| compiler.route(route, &clusters, &mut problems)).collect();
    if !problems.is_empty() {
        return Err(problems);
    }
    Ok(Snapshot {
        router: Router::new(&config.routes),
        routes: routes.into_iter().flatten().map(Arc::new).collect(),
        clusters: clusters.into_iter().flatten().collect(),
        listeners,
        admin,
        config_hash: config.fingerprint.clone(),
    })
}

struct Compiler<'a> {
    config: &'a Config,
    registry: &'a Registry,
    names: &'a dyn Names,
    metrics: &'a Metrics,
    site: Site,
    services: Services,
}

fn admin_plan(admin: &config::Admin, problems: &mut Problems) -> Option<AdminPlan> {
    let Some(file) = &admin.token_file else {
        return Some(AdminPlan { address: admin.address.value, token: None });
    };
    let token = match config::read_file(&file.value) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).trim().to_string(),
        Err(error) => {
            problems.push(&file.at, format!("cannot read {}: {error}", file.value.display()));
            return None;
        }
    };
    if token.is_empty() {
        problems.push(&file.at, format!("{} is empty: expected the token", file.value.display()));
        return None;
    }
    Some(AdminPlan { address: admin.address.value, token: Some(token) })
}

fn services(config: &Config) -> Services {
    let mut services = Services::default();
    for service in &config.services {
        for (scheme, addresses) in &service.endpoints {
            let addresses = addresses.iter().map(|address| address.value.clone()).collect();
            services.0.insert((service.name.value.clone(), scheme == "https"), addresses);
        }
    }
    services
}

impl Compiler<'_> {
    fn listeners(&self, problems: &mut Problems) -> Vec<ListenerPlan> {
        let plan = |listener: &config::Listener, problems: &mut Problems| ListenerPlan {
            name: listener.name.value.clone(),
            address: listener.address.value,
            protocols: listener.protocols,
            certificates: listener.tls.as_ref().map_or_else(Vec::new, |of| tls::served(&of.certificates, problems)),
        };
        self.config.listeners.iter().map(|listener| plan(listener, problems)).collect()
    }

    fn route(
        &self,
        route: &config::Route,
        clusters: &[Option<Arc<Cluster>>],
        problems: &mut Problems,
    ) -> Option<Route> {
        let action = match &route.action {
            config::Action::Cluster(name) => Action::Forward(self.named(name, clusters, problems)?),
            config::Action::Redirect { to, status } => {
                let to = parts(&to.value);
                Action::Redirect(Redirect { status: *status, template: Template::of(route), to })
            }
            config::Action::Respond { status, body } => {
                Action::Respond(Respond { status: *status, body: body.clone() })
            }
        };
        let filter = |transform: &config::Transform| match transform {
            config::Transform::PathRemovePrefix(prefix) => RemovePrefix::new(prefix),
        };
        let listeners = &self.config.listeners;
        let name = &route.name.value;
        Some(Route {
            name: name.clone(),
            action,
            filters: route.transforms.iter().map(filter).collect(),
            metrics: listeners.iter().map(|l| self.metrics.route(&l.name.value, name)).collect(),
        })
    }

    /// A cluster by name; one that is there but faulty has been reported already.
    fn named(
        &self,
        name: &Located<String>,
        clusters: &[Option<Arc<Cluster>>],
        problems: &mut Problems,
    ) -> Option<Arc<Cluster>> {
        let written = &self.config.clusters;
        match written.iter().position(|cluster| cluster.name.value == name.value) {
            Some(position) => clusters[position].clone(),
            None => {
                let names: Vec<&str> = written.iter().map(|c| c.name.value.as_str()).collect();
                problems.push(&name.at, unknown("cluster", &name.value, &names));
                None
            }
        }
    }

    fn cluster(&self, cluster: &config::Cluster, problems: &mut Problems) -> Option<Arc<Cluster>> {
        let balancer = self.registry.balancer(&cluster.load_balancing, &self.site, problems);
        let available = self.registry.available(&cluster.health.available, problems);
        let check = self.check(cluster.health.active.as_ref(), problems);
        let connecting = Connecting::new(cluster, problems);
        let name = &cluster.name.value;
        let in_flight = Arc::new(AtomicU32::new(0));
        let mut members = Vec::new();
        let mut upstreams = Vec::new();
        for written in &cluster.destinations {
            for destination in self.destinations(cluster, written, problems) {
                let Some(upstream) = connecting.to(&destination) else {
                    problems.push(&written.id.at, "the host cannot stand in a Host header");
                    continue;
                };
                upstreams.push(upstream);
                members.push(Arc::new(Member {
                    index: members.len(),
                    destination: Arc::new(destination),
                    live: Arc::new(Live::within(&in_flight)),
                }));
            }
        }
        let labels = members.iter().map(|member| member.destination.id.as_str());
        Some(Arc::new(Cluster::new(Parts {
            destination_metrics: labels.map(|id| self.metrics.destination(name, id)).collect(),
            metrics: self.metrics.cluster(name),
            unverified: !cluster.connection.tls.verify,
            activity_timeout: cluster.activity_timeout,
            name: name.clone(),
            members,
            upstreams,
            check: check?,
            balancer: balancer?,
            available: available?,
        })))
    }

    /// `Some(None)`: no check is configured. `None`: it was faulty.
    fn check(&self, check: Option<&config::ActiveCheck>, problems: &mut Problems) -> Option<Option<CheckPlan>> {
        let Some(check) = check else { return Some(None) };
        let kind = self.registry.probe(&check.kind, problems)?;
        Some(Some(CheckPlan {
            kind,
            interval: check.interval,
            timeout: check.timeout,
            jitter: check.jitter,
            thresholds: Thresholds { healthy_after: check.healthy_after, unhealthy_after: check.unhealthy_after },
        }))
    }

    /// What a written destination became: one, or one for each address of its logical name.
    fn destinations(
        &self,
        cluster: &config::Cluster,
        written: &config::Destination,
        problems: &mut Problems,
    ) -> Vec<Destination> {
        let found = self.endpoints(cluster, &written.address, problems);
        let probed = written.health_address.as_ref();
        let probed = probed.map(|address| self.endpoints(cluster, address, problems));
        let many = found.len() > 1;
        let destination = |(i, endpoint): (usize, Endpoint)| Destination {
            id: if many { format!("{}[{}]", written.id.value, endpoint.authority()) } else { written.id.value.clone() },
            health_endpoint: probed.as_ref().and_then(|probed| probed.get(i).or(probed.first()).cloned()),
            endpoint,
            host: written.host.as_ref().map(|host| host.value.clone()),
            weight: written.weight,
            max_requests: written.max_requests,
            enabled: written.enabled,
            metadata: written.metadata.clone(),
        };
        found.into_iter().enumerate().map(destination).collect()
    }

    fn endpoints(
        &self,
        cluster: &config::Cluster,
        address: &Located<String>,
        problems: &mut Problems,
    ) -> Vec<Endpoint> {
        let found = HttpAddress::parse(&address.value).and_then(|parsed| match cluster.discovery {
            config::Discovery::Fixed => Fixed.resolve(&parsed, self.names),
            config::Discovery::Services => self.services.resolve(&parsed, self.names),
        });
        found.unwrap_or_else(|message| {
            problems.push(&address.at, message);
            Vec::new()
        })
    }
}
