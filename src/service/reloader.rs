//! SIGHUP means: read the file again. It is read, judged and compiled beside what serves, and then swapped in whole; with one fault
//! everything stays as it was. One reading at a time; who asks during one gets another after it, whose file is the last.

use crate::config::{Config, LoadError, Problems};
use crate::discovery::SystemNames;
use crate::model::Epoch;
use crate::observe::{Metrics, event};
use crate::runtime::{Registry, Runtime, Scene, Snapshot, compile};
use async_trait::async_trait;
use pingora::server::ShutdownWatch;
use pingora::services::ServiceReadyNotifier;
use pingora::services::background::BackgroundService;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Instant, SystemTime};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::spawn_blocking;

/// Told of one rejected file; `derbent check` tells the rest.
const FAULTS: usize = 100;

pub struct Reloader(Arc<Sources>);

/// What the process is made of, to make it again.
pub struct Sources {
    pub runtime: Arc<Runtime>,
    pub metrics: Arc<Metrics>,
    pub registry: Registry,
    /// By what the process was started; some of it stays to its end.
    pub started: Config,
    /// `None`: it was not started by a file.
    pub file: Option<PathBuf>,
}

impl Reloader {
    pub fn new(sources: Sources) -> Self {
        Reloader(Arc::new(sources))
    }
}

#[async_trait]
impl BackgroundService for Reloader {
    /// Ready when a SIGHUP no longer ends the process.
    async fn start_with_ready_notifier(&self, mut shutdown: ShutdownWatch, ready: ServiceReadyNotifier) {
        let hangups = signal(SignalKind::hangup());
        ready.notify_ready();
        let Ok(mut hangups) = hangups else { return };
        loop {
            tokio::select! {
                Some(()) = hangups.recv() => {}
                _ = shutdown.changed() => return,
            }
            let sources = self.0.clone();
            // Reads files and looks names up.
            if let Err(panic) = spawn_blocking(move || sources.reload()).await {
                event::reload_rejected(&self.0.metrics, panic);
            }
        }
    }
}

impl Sources {
    fn reload(&self) {
        let Some(file) = &self.file else { return event::nothing_to_reload() };
        match self.runtime.reload(|serving| self.compile(file, serving), Instant::now) {
            Ok(carried) => {
                let snapshot = self.runtime.pin();
                event::reloaded(&self.metrics, &snapshot.config_hash, carried, SystemTime::now());
                for cluster in snapshot.clusters.iter().filter(|cluster| cluster.unverified) {
                    event::certificate_not_verified(&cluster.name);
                }
            }
            Err(LoadError::Faults(faults)) => event::reload_rejected(&self.metrics, InOneLine(&faults)),
            Err(error) => event::reload_rejected(&self.metrics, error),
        }
    }

    fn compile(&self, file: &Path, serving: &Snapshot) -> Result<Snapshot, LoadError> {
        let environment = |name: &str| std::env::var(name).ok();
        let (mut config, mut problems) = Config::draft(file, &environment)?;
        config.follow(&self.started, &mut problems);
        let epoch = Epoch { instant: Instant::now(), wall: SystemTime::now() };
        let (registry, metrics) = (&self.registry, &*self.metrics);
        let scene = Scene { registry, names: &SystemNames, metrics, epoch, serving: Some(serving) };
        compile(&config, &scene, problems).map_err(LoadError::Faults)
    }
}

/// Faults without their source lines.
struct InOneLine<'a>(&'a Problems);

impl fmt::Display for InOneLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.0.len();
        write!(f, "{count} {}", if count == 1 { "fault" } else { "faults" })?;
        for (index, fault) in self.0.iter().take(FAULTS).enumerate() {
            write!(f, "{} {fault}", if index == 0 { ':' } else { ';' })?;
        }
        if count > FAULTS { write!(f, "; and {} more", count - FAULTS) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_one_line(text: &str) -> String {
        match Config::parse("t.yaml", text) {
            Err(LoadError::Faults(faults)) => InOneLine(&faults).to_string(),
            _ => panic!("a file with faults"),
        }
    }

    #[test]
    fn given_faults_when_told_in_one_line_then_each_with_its_place_and_a_flood_is_bounded() {
        let rest = "listeners: { web: \"127.0.0.1:1\" }\nroutes: { all: { respond: {} } }\n";
        let one = in_one_line(&format!("logg: {{}}\n{rest}"));
        assert!(one.starts_with("1 fault: t.yaml:1:1: logg: unknown key \"logg\"") && !one.contains('\n'), "{one}");
        let two = in_one_line(&format!("logg: {{}}\nadmim: off\n{rest}"));
        assert!(two.starts_with("2 faults: t.yaml:1:1: ") && two.contains("; t.yaml:2:1: admim: "), "{two}");
        let flood = in_one_line(&format!("{rest}{}", "log: {}\n".repeat(3_000)));
        assert_eq!(flood.matches("duplicate key").count(), FAULTS);
        assert!(flood.ends_with("; and 2899 more"), "{flood}");
    }
}
