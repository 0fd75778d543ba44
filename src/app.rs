//! The composition root: a configuration becomes a running proxy. The binary comes through [`Derbent`], the very door
//! that users of the library have.

use crate::config::{Config, Located, Problems};
use crate::discovery::SystemNames;
use crate::edge::{self, Bound, Edge, Listening, Sockets};
use crate::model::Epoch;
use crate::observe::{Metrics, Recent, event};
use crate::proxy::{self, Listener, Proxy};
use crate::retry::ROUNDS;
use crate::runtime::{AdminPlan, ListenerPlan, Registry, Runtime, Scene, Snapshot, compile};
use crate::service::admin::{Admin, State};
use crate::service::{
    AccessLog, Before, Gate, Handed, Launch, Launcher, Lifecycle, Mirrors, Notify, Predecessor, Prober, Recovery,
    Reloader, Seat, Signals, Sources, Successors, Upgrade, listen,
};
use pingora::listeners::{L4BufferSettings, ListenerConfig};
use pingora::server::configuration::ServerConf;
use pingora::server::{RunArgs, Server};
use pingora::services::background::background_service;
use pingora::services::listening::Service;
use pingora_proxy::HttpProxy;
use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
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
    takes_over: bool,
    launch: Option<Launch>,
}

/// Why a proxy did not start.
#[derive(Debug)]
pub enum StartError {
    /// Faults of the configuration, all of them.
    Faults(Problems),
    /// An address could not be listened on.
    Bind { listener: String, address: SocketAddr, source: io::Error },
    /// A successor found nobody at `server.upgrade_socket` whose place it could take.
    Predecessor { why: String },
    /// `server.upgrade_socket` could not be listened on.
    UpgradeSocket { path: PathBuf, source: io::Error },
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::Faults(problems) => problems.fmt(f),
            StartError::Bind { listener, address, source } => {
                write!(f, "cannot listen on {address} ({listener}): {source}")
            }
            StartError::Predecessor { why } => write!(f, "cannot take over: {why}"),
            StartError::UpgradeSocket { path, source } => {
                write!(f, "cannot listen on {} (server.upgrade_socket): {source}", path.display())
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
        let registry = Registry::builtin();
        Derbent { config, problems, registry, source, file: None, at_end: || {}, takes_over: false, launch: None }
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

    /// Whether [`Self::run`] takes over from the process that listens at `server.upgrade_socket`: its listening sockets first,
    /// its place once this one is ready. Default no.
    pub fn takes_over(mut self, takes_over: bool) -> Self {
        self.takes_over = takes_over;
        self
    }

    /// `derbent ctl upgrade` may start this program again, with its arguments and `--upgrade`, which must lead to
    /// [`Self::takes_over`]. Default no.
    pub fn succeeded_by_itself(mut self) -> Self {
        self.launch = Launch::of_this_process();
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

    /// What shall be done when a drain is over; default nothing. [`Self::run`] comes back when it was done, up to 1 s later. A program
    /// that is only a proxy ends itself here, and is then gone by `server.drain.kill`, whatever hangs.
    pub fn at_end(mut self, at_end: fn()) -> Self {
        self.at_end = at_end;
        self
    }

    /// Runs until a signal ends it. Reads no arguments and no log settings; a second one in the same process is fine.
    pub fn run(self) -> Result<(), StartError> {
        let (metrics, epoch) = (Arc::new(Metrics::new()), now());
        let snapshot = self.compile(&metrics, epoch).map_err(StartError::Faults)?;
        let (predecessor, handed) = self.predecessor()?.unzip();
        let is_first = predecessor.is_none();
        let predecessor: Before = Arc::new(Mutex::new(predecessor));
        let listeners = listeners(&snapshot, &metrics);
        let bound = bind(&snapshot.listeners, handed.unwrap_or_default())?;
        let admin = bind_admin(snapshot.admin.as_ref(), is_first)?;
        let (seat, upgrade_socket) = seat(&self.config, is_first)?;
        tell(&snapshot, &metrics, &self.source);

        let access_log = snapshot.access_log.as_ref().map(|plan| AccessLog::start(plan, metrics.clone()));
        let runtime = Arc::new(Runtime::new(snapshot));
        let counted = listeners.iter().map(|(_, listener)| listener.metrics.clone()).collect();
        let lifecycle = Arc::new(Lifecycle::new(self.config.server.drain, metrics.clone(), counted, epoch));
        let successors =
            Successors::new(lifecycle.clone(), seat.clone(), metrics.clone(), runtime.clone(), copies(&bound));
        let (successors, notify) = (Arc::new(successors), Notify::from_environment());
        let mut server = Server::new_with_opt_and_conf(None, server_conf(&self.config));

        let recent = Arc::new(Recent::new(self.config.server.name.clone()));
        let (mirrors, mirroring) = Mirrors::new();
        let proxy = Proxy::new(runtime.clone(), access_log.clone(), recent.clone(), mirrors);
        let mut proxy = HttpProxy::new(proxy, server.configuration.clone());
        proxy.handle_init_modules();
        let edge = Edge::new(proxy, listeners, runtime.clone(), lifecycle.clone());
        let mut listening = Service::new("edge".to_string(), edge);
        endpoints(&runtime).into_iter().for_each(|endpoint| listening.add_listener(endpoint));
        let sockets = server.add_service(Sockets::new(bound));
        let listening = server.add_service(Listening { service: listening, lifecycle: lifecycle.clone() });
        listening.add_dependency(&sockets);
        if !is_first {
            let (lifecycle, runtime, metrics) = (lifecycle.clone(), runtime.clone(), metrics.clone());
            let gate = Gate { lifecycle, runtime, metrics, predecessor: predecessor.clone() };
            listening.add_dependency(server.add_service(background_service("gate", gate)));
        }
        let Derbent { config, launch, at_end, .. } = self;
        let launcher = launch.filter(|_| config.server.upgrade_socket.is_some());
        let launcher = launcher.map(|launch| Launcher::new(launch, successors.clone(), metrics.clone()));
        let made = (self.registry, config, self.file);
        let sources = Arc::new(Sources::new(runtime.clone(), metrics.clone(), made, notify.clone()));
        let reloader =
            server.add_service(background_service("reloader", Reloader::new(sources.clone(), lifecycle.clone())));
        let prober = background_service("prober", Prober::new(runtime.clone(), lifecycle.clone()));
        // Who is ready is not ended by a SIGHUP.
        server.add_service(prober).add_dependency(&reloader);
        server.add_service(background_service("mirrors", mirroring));
        server.add_service(background_service("recovery", Recovery::new(runtime.clone(), lifecycle.clone())));
        let before = (predecessor, metrics.clone());
        let upgrade = Upgrade::new(lifecycle.clone(), seat.clone(), successors, before, upgrade_socket, notify);
        server.add_service(background_service("upgrade", upgrade)).add_dependency(&listening);
        if let Some((address, socket, token)) = admin {
            let state = State { runtime, lifecycle: lifecycle.clone(), metrics, sources, recent, token, launcher };
            server.add_service(background_service("admin", Admin::new(address, socket, seat.clone(), state)));
        }
        let signals = Signals::new(lifecycle, access_log, seat, at_end);
        server.run(RunArgs { shutdown_signal: Box::new(signals) });
        Ok(())
    }

    /// Whose place it takes, with what it got from it.
    fn predecessor(&self) -> Result<Option<(Predecessor, Handed)>, StartError> {
        if !self.takes_over {
            return Ok(None);
        }
        let unset = || StartError::Predecessor { why: "server.upgrade_socket is not set".to_owned() };
        let path = &self.config.server.upgrade_socket.as_ref().ok_or_else(unset)?.value;
        let told = |why: String| StartError::Predecessor { why: format!("{}: {why}", path.display()) };
        Predecessor::ask(path).map(Some).map_err(told)
    }
}

fn now() -> Epoch {
    Epoch { instant: Instant::now(), wall: SystemTime::now() }
}

type AdminParts = (SocketAddr, Option<TcpListener>, Option<String>);

/// Where there is no predecessor, which still has the address.
fn bind_admin(admin: Option<&AdminPlan>, is_first: bool) -> Result<Option<AdminParts>, StartError> {
    let Some(AdminPlan { address, token }) = admin else { return Ok(None) };
    let bind = || {
        edge::bind(*address).map_err(|source| StartError::Bind {
            listener: "admin".to_string(),
            address: *address,
            source,
        })
    };
    let bound = is_first.then(bind).transpose()?;
    Ok(Some((*address, bound.map(|bound| bound.socket), token.clone())))
}

/// What only one process holds, and the socket for successors of a process that holds it from the start.
fn seat(config: &Config, is_first: bool) -> Result<(Arc<Seat>, Option<UnixListener>), StartError> {
    let path = |file: &Option<Located<PathBuf>>| file.as_ref().map(|file| file.value.clone());
    let (socket, pid_file) = (path(&config.server.upgrade_socket), path(&config.server.pid_file));
    let listen =
        |path: &PathBuf| listen(path).map_err(|source| StartError::UpgradeSocket { path: path.clone(), source });
    let listener = socket.as_ref().filter(|_| is_first).map(listen).transpose()?;
    Ok((Arc::new(Seat::new(is_first, socket, pid_file)), listener))
}

/// For successors.
fn copies(bound: &[Bound]) -> Vec<(String, TcpListener)> {
    bound.iter().filter_map(|bound| Some((bound.name.clone(), bound.socket.try_clone().ok()?))).collect()
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

/// What the predecessor handed over is not bound anew; what nobody listens on here is closed.
fn bind(plans: &[ListenerPlan], mut handed: Handed) -> Result<Vec<Bound>, StartError> {
    let bind = |plan: &ListenerPlan| {
        if let Some(found) = handed.iter().position(|(address, _)| *address == plan.address) {
            let (address, socket) = handed.swap_remove(found);
            return Ok(Bound { name: address.to_string(), socket });
        }
        edge::bind(plan.address).map_err(|source| StartError::Bind {
            listener: plan.name.clone(),
            address: plan.address,
            source,
        })
    };
    plans.iter().map(bind).collect()
}

fn endpoints(runtime: &Arc<Runtime>) -> Vec<ListenerConfig> {
    let endpoint = |(index, plan): (usize, &ListenerPlan)| {
        // Requests are parsed out of a buffer of their own; Pingora's 64 KiB for each connection would stay idle. What is
        // written is put together at the edge.
        let buffer = L4BufferSettings::unbuffered();
        let endpoint = ListenerConfig::tcp(plan.address.to_string()).l4_buffer(buffer);
        if plan.certificates.is_empty() {
            return endpoint;
        }
        match edge::settings(runtime.clone(), index, plan.protocols) {
            Ok(settings) => endpoint.tls(settings),
            Err(_) => endpoint,
        }
    };
    runtime.pin().listeners.iter().enumerate().map(endpoint).collect()
}

fn server_conf(config: &Config) -> ServerConf {
    ServerConf {
        threads: config.server.threads,
        // Pingora multiplies the pool by the threads.
        upstream_keepalive_pool_size: config.server.keepalive_pool.div_ceil(config.server.threads),
        // Tunnels break right after the 101 when tasks move between threads.
        work_stealing: false,
        // Pingora's own timers are kept to their end, however soon what they limit was done: for each hundredth of a second of a
        // minute and more, in every thread. Tokio's go at once, at the same price. Those below a second stay Pingora's.
        fast_timeout_to_tokio_threshold_seconds: Some(0),
        // Rounds at most; we say when there is another.
        max_retries: ROUNDS * proxy::ROUNDS,
        // `Signals` has waited by then.
        grace_period_seconds: Some(0),
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
    use super::{Config, server_conf};
    use std::time::Duration;

    #[test]
    fn given_the_defaults_when_the_server_is_made_then_no_limit_of_requests_leaves_timers_behind() {
        let text = "listeners: { web: \"127.0.0.1:1\" }\nroutes: { all: { cluster: c } }\n\
                    clusters: { c: { destinations: [\"http://127.0.0.1:2\"] } }\n";
        let config = Config::parse("test", text).unwrap_or_else(|faults| panic!("{faults}"));
        let kept = server_conf(&config).fast_timeout_to_tokio_threshold_seconds.map(Duration::from_secs);
        let cluster = &config.clusters[0];
        let connection = &cluster.connection;
        let limits = [cluster.activity_timeout, connection.connect_timeout, connection.idle_timeout];
        for limit in limits.into_iter().chain([config.listeners[0].idle_timeout.value]) {
            assert!(kept.is_some_and(|kept| limit > kept), "{limit:?}");
        }
    }

    #[test]
    fn given_the_lock_file_when_read_then_it_holds_the_version_of_pingora_that_is_told() {
        let locked = format!("name = \"pingora\"\nversion = \"{}\"\n", super::PINGORA);
        assert!(include_str!("../Cargo.lock").contains(&locked));
    }
}
