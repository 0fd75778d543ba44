//! `derbent ctl upgrade`: the process starts its own successor, from the file that it was itself started from.

use super::{READY_WITHIN, Successors};
use crate::observe::{Metrics, event};
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

const LOOK: Duration = Duration::from_millis(20);
/// It writes its pid as its first deed, if it can at all.
const NAMED_WITHIN: Duration = Duration::from_secs(1);
const UPGRADE: &str = "--upgrade";

/// How this process was started.
#[derive(Debug, Clone)]
pub struct Launch {
    program: PathBuf,
    arguments: Vec<OsString>,
}

impl Launch {
    /// By the path it was called by, so that a symlink or a package that has changed since leads to the new one.
    pub fn of_this_process() -> Option<Self> {
        let mut arguments = std::env::args_os();
        let called = PathBuf::from(arguments.next()?);
        let program = match called.components().count() {
            1 => std::env::current_exe().ok()?,
            _ => std::path::absolute(called).ok()?,
        };
        Some(Launch { program, arguments: arguments.filter(|argument| argument != OsStr::new(UPGRADE)).collect() })
    }

    fn start(&self) -> std::io::Result<Child> {
        Command::new(&self.program).args(&self.arguments).arg(UPGRADE).stdin(Stdio::null()).spawn()
    }
}

pub struct Launcher {
    launch: Launch,
    successors: Arc<Successors>,
    metrics: Arc<Metrics>,
}

impl Launcher {
    pub fn new(launch: Launch, successors: Arc<Successors>, metrics: Arc<Metrics>) -> Arc<Self> {
        Arc::new(Launcher { launch, successors, metrics })
    }

    /// The id of the successor, which is ready; blocks until it is.
    ///
    /// # Errors
    /// In words: why there is none. This process serves on then.
    pub fn run(&self) -> Result<u32, String> {
        let failed = |why: String| {
            event::upgrade_failed(&self.metrics, &why);
            why
        };
        let program = self.launch.program.display();
        let mut child = self.launch.start().map_err(|error| failed(format!("cannot start {program}: {error}")))?;
        let (pid, deadline) = (child.id(), Instant::now() + READY_WITHIN);
        loop {
            if self.successors.has_taken_over(pid) {
                self.await_name(pid);
                // Should it end before this process does, it is not to stay as a zombie.
                std::thread::spawn(move || drop(child.wait()));
                return Ok(pid);
            }
            let ended = child.try_wait().ok().flatten();
            if ended.is_none() && Instant::now() < deadline {
                std::thread::sleep(LOOK);
                continue;
            }
            // Both may fail for a process that has just ended.
            let _ = child.kill().and_then(|()| child.wait());
            let why = match ended {
                Some(status) => format!("process {pid} ended before it was ready ({status}); its own lines say why"),
                None => format!("process {pid} was not ready within {READY_WITHIN:?}"),
            };
            // One that came for the sockets is told of where it came.
            return Err(if self.successors.has_greeted(pid) { why } else { failed(why) });
        }
    }

    /// Who is told that it has taken over may look for its pid.
    fn await_name(&self, pid: u32) {
        let deadline = Instant::now() + NAMED_WITHIN;
        while !self.successors.is_named(pid) && Instant::now() < deadline {
            std::thread::sleep(LOOK);
        }
    }
}
