//! The composition root: a configuration becomes a running proxy. The binary comes through [`Derbent`], the very door
//! that users of the library have.

use crate::config::{Config, Drain, Problems};
use crate::discovery::SystemNames;
use crate::edge::{self, Bound, Edge, Sockets};
use crate::model::Epoch;
use crate::observe::{Metrics, Recent, event};
use crate::proxy::{Listener, Proxy};
use crate::retry::ROUNDS;
use crate::runtime::{AdminPlan, ListenerPlan, Registry, Runtime, Scene, Snapshot, compile};
use crate::service::admin::{self, Admin};
use crate::service::{AccessLog, Lifecycle, Mirrors, Prober, Recovery, Reloader, Signals, Sources};
use pingora::listeners::{L4BufferSettings, ListenerConfig};
use pingora::server::configuration::ServerConf;
use pingora::server::{RunArgs, Server};
use pingora::services::background::background_service;
use pingora::services::listening::Service;
use pingora_proxy::HttpProxy;
use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

/// The version of Pingora that is built in.
pub(crate) const PINGORA: &str = "0.9.1";

/// A proxy about to be.
///
/// ```no_run
/// use derbent::{Config, Derbent, Registry};
///
/// let config = Config::load("derbent.yaml".as_ref()).unwrap();
/// Derbent::from_config(config).registry(Registry::builtin()).run().unwrap();
/// ```
pub struct Derbent {
    config: Config,
    /// Faults known before compiling.
    problems: Problems,
    registry: Registry,
    /// What it was configured by, as the log says.
    source: String,
    /// What SIGHUP makes it read.
    file: Option<PathBuf>,
    at_end: fn(),
}

/// Why a proxy did not start.
#[derive(Debug)]
pub enum StartError {
    /// Faults of the configuration, all of them.
    Faults(Problems),
    /// An address could not be listened on.
    Bind { listener: String, address: SocketAddr, source: io::Error },
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::Faults(problems) => problems.fmt(f),
            StartError::Bind { listener, address, source } => {
                write!(f, "cannot listen on {address} ({listener}): {source}")
            }
        }
    }
}

impl std::error::Error for StartError {}

impl Derbent {
    pub fn from_config(config: Config) -> Self {
        let problems = config.problems();
        Derbent::from_draft(config, problems)
    }

    /// A configuration read as far as it could be, with its faults so far: [`Self::check`] adds its own to them.
    pub fn from_draft(config: Config, problems: Problems) -> Self {
        let source = "the library".to_string();
        Derbent { config, problems, registry: Registry::builtin(), source, file: None, at_end: || {} }
    }

    /// The policies that the configuration may name; default [`Registry::builtin`].
    pub fn registry(mut self, registry: Registry) -> Self {
        self.registry = registry;
        self
    }

    /// What the log shall say that it was configured by.
    pub fn source(mut self, source: impl Into<String>) -> Self {
        self.source = source.into();
        self
    }

    /// The file that it was made of: SIGHUP makes [`Self::run`] read it again. Default none, and SIGHUP changes nothing.
    pub fn reloads_from(mut self, file: impl Into<PathBuf>) -> Self {
        self.file = Some(file.into());
        self
    }

    /// Builds all that [`Self::run`] would run, resolves every name and reads every file, and says what is wrong.
    pub fn check(&self) -> Result<Snapshot, Problems> {
        self.compile(&Metrics::new(), now())
    }

    fn compile(&self, metrics: &Metrics, epoch: Epoch) -> Result<Snapshot, Problems> {
        let scene = Scene { registry: &self.registry, names: &SystemNames, metrics, epoch, serving: None };
        compile(&self.config, &scene, self.problems.clone())
    }

    /// What shall be done when a drain has nothing left to wait for; default nothing, and then [`Self::run`] comes back when
    /// `server.drain.end` is over, however little there was to do. A program that is only a proxy ends itself here.
    pub fn at_end(mut self, at_end: fn()) -> Self {
        self.at_end = at_end;
        self
    }

    /// Runs until a signal ends it. Reads no arguments and no log settings; a second one in the same process is fine.
    pub fn run(self) -> Result<(), StartError> {
        let metrics = Arc::new(Metrics::new());
        let epoch = now();
        let snapshot = self.compile(&metrics, epoch).map_err(StartError::Faults)?;
        let listeners = listeners(&snapshot, &metrics);
        let bound = bind(&snapshot.listeners)?;
        let admin = bind_admin(snapshot.admin.as_ref())?;
        tell(&snapshot, &metrics, &self.source);

        let tls = tls_endpoints(&snapshot.listeners);
        let access_log = snapshot.access_log.as_ref().map(|plan| AccessLog::start(plan, metrics.clone()));
        let runtime = Arc::new(Runtime::new(snapshot));
        let counted = listeners.iter().map(|(_, listener)| listener.metrics.clone()).collect();
        let lifecycle = Arc::new(Lifecycle::new(self.config.server.drain, metrics.clone(), counted, epoch));
        let conf = server_conf(&self.config);
        let mut server = Server::new_with_opt_and_conf(None, conf);

        let recent = Arc::new(Recent::new(self.config.server.name.clone()));
        let (mirrors, mirroring) = Mirrors::new();
        let proxy = Proxy::new(runtime.clone(), access_log.clone(), recent.clone(), mirrors);
        let mut proxy = HttpProxy::new(proxy, server.configuration.clone());
        proxy.handle_init_modules();
        let edge = Edge::new(proxy, listeners, lifecycle.clone());
        let mut listening = Service::new("edge".to_string(), edge);
        tls.into_iter().for_each(|endpoint| listening.add_listener(endpoint));
        let sockets = server.add_service(Sockets::new(bound));
        server.add_service(listening).add_dependency(&sockets);
        let Derbent { registry, config: started, file, .. } = self;
        let sources = Sources { runtime: runtime.clone(), metrics: metrics.clone(), registry, started, file };
        let reloader = server.add_service(background_service("reloader", Reloader::new(sources)));
        let prober = background_service("prober", Prober::new(runtime.clone(), lifecycle.clone()));
        // Who is ready is not ended by a SIGHUP.
        server.add_service(prober).add_dependency(&reloader);
        server.add_service(background_service("mirrors", mirroring));
        server.add_service(background_service("recovery", Recovery::new(runtime.clone())));
        if let Some((socket, token)) = admin {
            let sources = admin::Sources { runtime, lifecycle: lifecycle.clone(), metrics: metrics.clone(), recent };
            let admin = Admin::new(socket, sources, token);
            server.add_service(background_service("admin", admin));
        }
        let signals = Signals::new(lifecycle, access_log, self.at_end);
        server.run(RunArgs { shutdown_signal: Box::new(signals) });
        Ok(())
    }
}

fn now() -> Epoch {
    Epoch { instant: Instant::now(), wall: SystemTime::now() }
}

fn bind_admin(admin: Option<&AdminPlan>) -> Result<Option<(TcpListener, Option<String>)>, StartError> {
    let Some(AdminPlan { address, token }) = admin else { return Ok(None) };
    let bound = edge::bind(*address).map_err(|source| StartError::Bind {
        listener: "admin".to_string(),
        address: *address,
        source,
    })?;
    Ok(Some((bound.socket, token.clone())))
}

fn listeners(snapshot: &Snapshot, metrics: &Metrics) -> Vec<(SocketAddr, Arc<Listener>)> {
    let listener = |(index, plan): (usize, &ListenerPlan)| {
        let listener = Listener {
            index,
            tls: !plan.certificates.is_empty(),
            protocols: plan.protocols,
            metrics: metrics.listener(&plan.name),
            unrouted: metrics.route(&plan.name, "none"),
        };
        (plan.address, Arc::new(listener))
    };
    snapshot.listeners.iter().enumerate().map(listener).collect()
}

fn bind(plans: &[ListenerPlan]) -> Result<Vec<Bound>, StartError> {
    let bind = |plan: &ListenerPlan| {
        edge::bind(plan.address).map_err(|source| StartError::Bind {
            listener: plan.name.clone(),
            address: plan.address,
            source,
        })
    };
    plans.iter().map(bind).collect()
}

fn tls_endpoints(plans: &[ListenerPlan]) -> Vec<ListenerConfig> {
    let endpoint = |plan: &ListenerPlan| {
        // Requests are parsed out of a buffer of their own; Pingora's 64 KiB for each connection would stay idle. What is
        // written is put together at the edge.
        let buffer = L4BufferSettings::unbuffered();
        let endpoint = ListenerConfig::tcp(plan.address.to_string()).l4_buffer(buffer);
        if plan.certificates.is_empty() {
            return endpoint;
        }
        match edge::settings(plan.certificates.clone(), plan.protocols) {
            Ok(settings) => endpoint.tls(settings),
            Err(_) => endpoint,
        }
    };
    plans.iter().map(endpoint).collect()
}

fn server_conf(config: &Config) -> ServerConf {
    let Drain { close_listeners, end, .. } = config.server.drain;
    ServerConf {
        threads: config.server.threads,
        // Pingora multiplies the pool by the threads.
        upstream_keepalive_pool_size: config.server.keepalive_pool.div_ceil(config.server.threads),
        // Tunnels break right after the 101 when tasks move between threads.
        work_stealing: false,
        // Rounds at most; we say when there is another.
        max_retries: ROUNDS,
        // From the closing of the listeners to the end; `Signals` knows when there is nothing to wait for.
        grace_period_seconds: Some((end - close_listeners).as_secs_f64().ceil() as u64),
        graceful_shutdown_timeout_seconds: Some(1),
        ..Default::default()
    }
}

fn tell(snapshot: &Snapshot, metrics: &Metrics, source: &str) {
    metrics.set_build(env!("CARGO_PKG_VERSION"), option_env!("DERBENT_REVISION").unwrap_or("unknown"), PINGORA);
    event::started(metrics, env!("CARGO_PKG_VERSION"), source, &snapshot.config_hash, SystemTime::now());
    for plan in &snapshot.listeners {
        let scheme = if plan.certificates.is_empty() { "http" } else { "https" };
        event::listening(&plan.name, plan.address, format_args!("{scheme}: {}", plan.protocols));
    }
    for cluster in snapshot.clusters.iter().filter(|cluster| cluster.unverified) {
        event::certificate_not_verified(&cluster.name);
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn given_the_lock_file_when_read_then_it_holds_the_version_of_pingora_that_is_told() {
        let locked = format!("name = \"pingora\"\nversion = \"{}\"\n", super::PINGORA);
        assert!(include_str!("../Cargo.lock").contains(&locked));
    }
}
