//! The sole constructor of a [`Snapshot`]: `check`, `run` and the library all come through here, so what was checked is
//! what runs. Every fault is found before anything is returned; with one fault nothing is.

use super::canary::Canary;
use super::carry::Inherited;
use super::cluster::Kept;
use super::judges;
use super::mirror::Mirror;
use super::route::parts;
use super::router::Router;
use super::sessions::{Sessions, key_id};
use super::template::Template;
use super::upstream::Connecting;
use super::{
    AccessPlan, Action, AdminPlan, CheckPlan, Cluster, ListenerPlan, Pace, Redirect, Registry, Respond, Route,
    Snapshot, Split, tls,
};
use crate::balance::Site;
use crate::config::HttpAddress;
use crate::config::{self, AccessFormat, Config, Located, Problems, unknown};
use crate::discovery::{Discovery, Fixed, Names, Services};
use crate::filter::RemovePrefix;
use crate::health::{Standing, Thresholds};
use crate::model::{Destination, Endpoint, Epoch, Live, Member};
use crate::observe::Metrics;
use crate::observe::access_log::{Fault as LineFault, Format, Template as LineTemplate};
use arc_swap::ArcSwap;
use std::sync::{Arc, Mutex};

/// What a configuration is compiled in.
pub struct Scene<'a> {
    pub registry: &'a Registry,
    pub names: &'a dyn Names,
    pub metrics: &'a Metrics,
    /// What the wall clock says.
    pub epoch: Epoch,
    /// What serves now, whose state the new one shares.
    pub serving: Option<&'a Snapshot>,
}

/// Resolves, reads and builds all that the configuration names. `problems` are the faults known already, so that all come
/// in one report.
pub fn compile(config: &Config, scene: &Scene<'_>, mut problems: Problems) -> Result<Snapshot, Problems> {
    let compiler =
        Compiler { config, scene, site: Site { zone: config.server.zone.clone() }, services: services(config) };
    let listeners = compiler.listeners(&mut problems);
    let admin = config.admin.as_ref().and_then(|admin| admin_plan(admin, scene.serving, &mut problems));
    let access_log = access_plan(config, &mut problems);
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
        access_log,
        trusted_proxies: config.trusted_proxies.clone(),
        config_hash: config.fingerprint.clone(),
    })
}

struct Compiler<'a> {
    config: &'a Config,
    scene: &'a Scene<'a>,
    site: Site,
    services: Services,
}

fn admin_plan(admin: &config::Admin, serving: Option<&Snapshot>, problems: &mut Problems) -> Option<AdminPlan> {
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
    let serving = serving.and_then(|serving| serving.admin.as_ref()?.token.as_ref());
    if serving.is_some_and(|serving| *serving != token) {
        let message = "holds another token now, which needs a restart, or an upgrade: the process runs with the one it started with";
        problems.push(&file.at, format!("{} {message}", file.value.display()));
    }
    Some(AdminPlan { address: admin.address.value, token: Some(token) })
}

fn access_plan(config: &Config, problems: &mut Problems) -> Option<AccessPlan> {
    let log = config.access_log.as_ref()?;
    let format = match (&log.template, log.format) {
        (Some(template), _) => match LineTemplate::parse(&template.value) {
            Ok(parsed) => Format::Template(parsed),
            Err(fault) => {
                let message = match fault {
                    LineFault::Unknown(name) => unknown("field", name, LineTemplate::FIELDS),
                    LineFault::Open => {
                        "expected every `{` to be closed by a `}`; a brace itself is `{{` or `}}`".into()
                    }
                    LineFault::Control => "a line has no control characters".into(),
                };
                problems.push(&template.at, message);
                return None;
            }
        },
        (None, AccessFormat::Json) => Format::Json,
        (None, AccessFormat::Combined) => Format::Combined,
    };
    Some(AccessPlan { path: log.path.clone(), format })
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
            idle_timeout: listener.idle_timeout.value,
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
            config::Action::Split(shares) => {
                Action::Split(self.split(&route.name.value, shares, clusters, problems)?)
            }
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
            name: name.as_str().into(),
            action,
            timeout: route.timeout,
            filters: route.transforms.iter().map(filter).collect(),
            metrics: listeners.iter().map(|l| self.scene.metrics.route(&l.name.value, name)).collect(),
        })
    }

    fn split(
        &self,
        route: &str,
        shares: &[config::Share],
        clusters: &[Option<Arc<Cluster>>],
        problems: &mut Problems,
    ) -> Option<Split> {
        let found: Vec<_> = shares.iter().map(|share| self.named(&share.cluster, clusters, problems)).collect();
        let weights = shares.iter().map(|share| share.weight).collect();
        let before = self.scene.serving.and_then(|serving| {
            match &serving.routes.iter().find(|before| *before.name == *route)?.action {
                Action::Split(before) => Some(before),
                _ => None,
            }
        });
        Some(Split::new(found.into_iter().collect::<Option<_>>()?, weights, before))
    }

    /// A cluster by name; one that is there but faulty has been reported already.
    fn named(
        &self,
        name: &Located<String>,
        clusters: &[Option<Arc<Cluster>>],
        problems: &mut Problems,
    ) -> Option<Arc<Cluster>> {
        self.position(name, problems).and_then(|position| clusters[position].clone())
    }

    fn position(&self, name: &Located<String>, problems: &mut Problems) -> Option<usize> {
        let written = &self.config.clusters;
        let found = written.iter().position(|cluster| cluster.name.value == name.value);
        if found.is_none() {
            let names: Vec<&str> = written.iter().map(|c| c.name.value.as_str()).collect();
            problems.push(&name.at, unknown("cluster", &name.value, &names));
        }
        found
    }

    fn cluster(&self, cluster: &config::Cluster, problems: &mut Problems) -> Option<Arc<Cluster>> {
        let balancer = self.scene.registry.balancer(&cluster.load_balancing, &self.site, problems);
        let available = self.scene.registry.available(&cluster.health.available, problems);
        let check = self.check(cluster.health.active.as_ref(), problems);
        let reach = check.iter().flatten().map(|check| check.kind.reach()).next();
        let connecting = Connecting::new(cluster, reach, problems);
        let name = &cluster.name.value;
        let settings = judges::settings(cluster, self.scene.registry, problems);
        let before = Inherited(self.scene.serving.and_then(|serving| serving.cluster(name)));
        let kept = before.kept(self.scene.epoch.instant);
        let (mut members, mut upstreams, mut standings) = (Vec::new(), Vec::new(), Vec::new());
        let mut key_ids = Vec::new();
        for written in &cluster.destinations {
            for destination in self.destinations(cluster, written, problems) {
                let (live, standing) = before.destination(&destination).unwrap_or_else(|| {
                    let live = Arc::new(Live::within(&kept.crowd));
                    let standing = Standing::new(settings.clone(), self.scene.epoch, &live);
                    (live, Arc::new(Mutex::new(standing)))
                });
                let Some(upstream) = connecting.to(&destination, &live.sockets) else {
                    problems.push(&written.id.at, "the host cannot stand in a Host header");
                    continue;
                };
                upstreams.push(upstream);
                key_ids.push(key_id(cluster, written, &destination));
                standings.push(standing);
                members.push(Arc::new(Member { index: members.len(), destination: Arc::new(destination), live }));
            }
        }
        let mirror = self.mirror(cluster, &kept, problems);
        let sessions = Sessions::compile(cluster, &key_ids, self.scene.registry, problems);
        let check = check.map(|check| check.map(|check| check.signed(&upstreams)));
        let labels = members.iter().map(|member| member.destination.id.as_str());
        let built = Cluster {
            destination_metrics: labels.map(|id| self.scene.metrics.destination(name, id)).collect(),
            metrics: self.scene.metrics.cluster(name),
            unverified: !cluster.connection.tls.verify,
            activity_timeout: cluster.activity_timeout,
            retry: cluster.retry.clone(),
            queue: cluster.queue,
            max_connections: cluster.connection.max_connections,
            failover: cluster.failover,
            canary: cluster.canary.as_ref().map(|canary| Canary::new(canary, &cluster.health)),
            mirror,
            name: name.clone(),
            most_ejected: judges::most_ejected(cluster, &members),
            members,
            upstreams,
            standings,
            settings,
            kept,
            epoch: self.scene.epoch,
            check: check?,
            sessions: sessions?,
            balancer: balancer?,
            available: available?,
            published: ArcSwap::default(),
        };
        Some(Arc::new(built.begun()))
    }

    fn mirror(&self, cluster: &config::Cluster, kept: &Kept, problems: &mut Problems) -> Option<Mirror> {
        let mirror = cluster.mirror.as_ref()?;
        let position = match &mirror.cluster {
            Some(name) => Some((name.value.clone(), self.position(name, problems)?)),
            None => None,
        };
        Some(Mirror::new(mirror, position, self.scene.metrics.mirror(&cluster.name.value), kept.copies.clone()))
    }

    /// `Some(None)`: no check is configured. `None`: it was faulty.
    fn check(&self, check: Option<&config::ActiveCheck>, problems: &mut Problems) -> Option<Option<CheckPlan>> {
        let Some(check) = check else { return Some(None) };
        let kind = self.scene.registry.probe(&check.kind, problems)?;
        Some(Some(CheckPlan {
            kind,
            signatures: Vec::new(),
            pace: Pace {
                interval: check.interval,
                interval_when_unhealthy: check.interval_when_unhealthy,
                timeout: check.timeout,
                jitter: check.jitter,
            },
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
            role: written.role,
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
            config::Discovery::Fixed => Fixed.resolve(&parsed, self.scene.names),
            config::Discovery::Services => self.services.resolve(&parsed, self.scene.names),
        });
        found.unwrap_or_else(|message| {
            problems.push(&address.at, message);
            Vec::new()
        })
    }
}
