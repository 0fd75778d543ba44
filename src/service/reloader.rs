//! SIGHUP, the admin API and a file that changes mean: read the file again. It is read, judged and compiled beside what serves, and then
//! swapped in whole; with one fault everything stays as it was. One reading at a time; who asks during one gets another
//! after it, whose file is the last.
//!
//! Files are looked at every [`LOOK`], their directories with them where a pattern includes what is there: that sees symlinks
//! swapped, files renamed into place and files written in pieces alike, on any file system. A change is followed when two
//! looks in a row see the same, and only when what the files hold is not what was read last, whatever came of that: so a
//! faulty file is told of once.
//!
//! All of it goes on until what is under way is cut: what a drain of hours leaves serves by the file of now, and lets go of the
//! destinations that the file no longer has.

use super::{Lifecycle, Notify};
use crate::config::{Config, Content, LoadError, Looks, Problems, Watched};
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
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval};

/// Told of one rejected file; `derbent check` tells the rest.
const FAULTS: usize = 100;
/// How often files are looked at.
const LOOK: Duration = Duration::from_millis(500);
/// Files that change at every look are read all the same after so many.
const MOST_UNREST: u32 = 20;

pub struct Reloader {
    sources: Arc<Sources>,
    lifecycle: Arc<Lifecycle>,
}

/// What the process is made of, to make it again.
pub struct Sources {
    runtime: Arc<Runtime>,
    metrics: Arc<Metrics>,
    registry: Registry,
    /// By what the process was started; some of it stays to its end.
    started: Config,
    /// `None`: it was not started by a file.
    file: Option<PathBuf>,
    notify: Notify,
    seen: Mutex<Seen>,
}

/// Of the last reading.
struct Seen {
    watched: Watched,
    content: Content,
    /// As the configuration in force says.
    watch: bool,
}

/// Why the configuration before stays in force.
pub enum Refused {
    NoFile,
    Rejected(LoadError),
}

impl Reloader {
    pub fn new(sources: Arc<Sources>, lifecycle: Arc<Lifecycle>) -> Self {
        Reloader { sources, lifecycle }
    }

    async fn run(&self, work: impl FnOnce(&Sources) + Send + 'static) {
        let sources = self.sources.clone();
        // Reads files and looks names up.
        if let Err(panic) = spawn_blocking(move || work(&sources)).await {
            event::reload_rejected(&self.sources.metrics, panic);
        }
    }
}

#[async_trait]
impl BackgroundService for Reloader {
    /// Ready when a SIGHUP no longer ends the process.
    async fn start_with_ready_notifier(&self, _: ShutdownWatch, ready: ServiceReadyNotifier) {
        let hangups = signal(SignalKind::hangup());
        ready.notify_ready();
        let Ok(mut hangups) = hangups else { return };
        let mut look = interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let unrest = Arc::new(Mutex::new(Unrest::new(self.sources.seen().watched.looks())));
        loop {
            tokio::select! {
                Some(()) = hangups.recv() => self.run(|sources| drop(sources.reload())).await,
                _ = look.tick() => {
                    let unrest = unrest.clone();
                    self.run(move |sources| sources.look(&mut lock(&unrest))).await;
                }
                () = self.lifecycle.over() => return,
            }
        }
    }
}

impl Sources {
    pub fn new(
        runtime: Arc<Runtime>,
        metrics: Arc<Metrics>,
        (registry, started, file): (Registry, Config, Option<PathBuf>),
        notify: Notify,
    ) -> Self {
        let watched = started.watched();
        let seen = Mutex::new(Seen { content: watched.content(), watch: started.server.watch, watched });
        Sources { runtime, metrics, registry, started, file, notify, seen }
    }

    /// Reads the file again. What came of it is told in the log and counted.
    ///
    /// # Errors
    /// See [`Refused`]; nothing changed then.
    pub fn reload(&self) -> Result<String, Refused> {
        let Some(file) = &self.file else {
            event::nothing_to_reload();
            return Err(Refused::NoFile);
        };
        let reload = || self.runtime.reload(|serving| self.compile(file, serving), Instant::now);
        let reloaded = self.notify.reloading(reload);
        let carried = reloaded.map_err(|error| {
            match &error {
                LoadError::Faults(faults) => event::reload_rejected(&self.metrics, InOneLine(faults)),
                error => event::reload_rejected(&self.metrics, error),
            }
            Refused::Rejected(error)
        })?;
        let snapshot = self.runtime.pin();
        let summary = format!("configuration reloaded ({}): {carried}", snapshot.config_hash);
        event::reloaded(&self.metrics, &snapshot.config_hash, carried, SystemTime::now());
        for cluster in snapshot.clusters.iter().filter(|cluster| cluster.unverified) {
            event::certificate_not_verified(&cluster.name);
        }
        Ok(summary)
    }

    fn compile(&self, file: &Path, serving: &Snapshot) -> Result<Snapshot, LoadError> {
        let environment = |name: &str| std::env::var(name).ok();
        let (mut config, mut problems) = Config::draft_again(file, &environment).inspect_err(|error| {
            let watched = error.watched();
            self.note(watched.content(), |seen| watched.and(seen.watched.clone()));
        })?;
        let watched = config.watched();
        // Before the files beside it are read once more: what changes between is then seen as a change.
        let content = watched.content();
        config.follow(&self.started, &mut problems);
        let epoch = Epoch { instant: Instant::now(), wall: SystemTime::now() };
        let (registry, metrics) = (&self.registry, &*self.metrics);
        let scene = Scene { registry, names: &SystemNames, metrics, epoch, serving: Some(serving) };
        let compiled = compile(&config, &scene, problems).map_err(LoadError::Faults);
        self.note(content, |seen| match compiled {
            Ok(_) => watched,
            Err(_) => watched.and(seen.watched.clone()),
        });
        if compiled.is_ok() {
            self.seen().watch = config.server.watch;
        }
        compiled
    }

    fn note(&self, content: Content, watched: impl FnOnce(&Seen) -> Watched) {
        let mut seen = self.seen();
        seen.watched = watched(&seen);
        seen.content = content;
    }

    /// Reads the file again when it, or what belongs to it, has changed and come to rest.
    fn look(&self, unrest: &mut Unrest) {
        let (watched, content) = {
            let seen = self.seen();
            if self.file.is_none() || !seen.watch {
                return;
            }
            (seen.watched.clone(), seen.content)
        };
        if !unrest.is_over(watched.looks()) {
            return;
        }
        let now = watched.content_now();
        if now == content || self.reload().is_ok() {
            return;
        }
        // Of a fault that ended the reading early less was noted than is there; it is told of once all the same.
        let mut seen = self.seen();
        if seen.watched.is_of_the_files_of(&watched) {
            seen.content = now;
        }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        lock(&self.seen)
    }
}

/// What files looked like, and for how many looks in a row they have changed.
struct Unrest {
    looks: Looks,
    lasts: u32,
}

impl Unrest {
    fn new(looks: Looks) -> Self {
        Unrest { looks, lasts: 0 }
    }

    /// They changed, and do no more.
    fn is_over(&mut self, looks: Looks) -> bool {
        if looks != self.looks {
            self.looks = looks;
            self.lasts += 1;
            if self.lasts < MOST_UNREST {
                return false;
            }
        }
        std::mem::take(&mut self.lasts) > 0
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::NoFile => f.write_str("no file started this process, so there is nothing to read again"),
            Refused::Rejected(error) => error.fmt(f),
        }
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
    fn given_files_when_they_change_then_they_are_read_once_they_rest_or_after_so_many_looks() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let file = directory.path().join("t.yaml");
        let text = |n: u32| {
            let more = "\n".repeat(n as usize);
            std::fs::write(
                &file,
                format!("listeners: {{ web: \"127.0.0.1:1\" }}\nroutes: {{ a: {{ respond: {{}} }} }}\n{more}"),
            )
        };
        text(0).expect("a temporary file");
        let watched = Config::load(&file).unwrap_or_else(|faults| panic!("{faults}")).watched();
        let mut unrest = Unrest::new(watched.looks());
        assert!(!unrest.is_over(watched.looks()), "nothing happened");
        for n in 1..3 {
            text(n).expect("a temporary file");
            assert!(!unrest.is_over(watched.looks()), "in the middle of it");
        }
        assert!(unrest.is_over(watched.looks()), "it rests");
        assert!(!unrest.is_over(watched.looks()), "once");
        let looks = (10..).take_while(|n| text(*n).is_ok() && !unrest.is_over(watched.looks()));
        assert_eq!(looks.count() as u32, MOST_UNREST - 1, "it never rests");
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
