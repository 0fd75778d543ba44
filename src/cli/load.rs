//! A configuration file on its way to the proxy, with exit codes.

use super::{FAULTS, IO};
use crate::app::{Derbent, StartError};
use crate::config::{Config, LoadError, LogFormat};
use crate::observe::log;
use std::path::Path;
use std::process::ExitCode;

/// Reads a file as far as it can be read; what is wrong with it comes out of `check` and `run`, in one report.
pub fn load(path: &Path) -> Result<(Config, Derbent), LoadError> {
    let environment = |name: &str| std::env::var(name).ok();
    let (config, problems) = Config::draft(path, &environment)?;
    let derbent = Derbent::from_draft(config.clone(), problems)
        .source(path.display().to_string())
        .reloads_from(path)
        .succeeded_by_itself();
    Ok((config, derbent))
}

/// Runs to the end of the process's life.
pub fn serve(config: &Config, derbent: Derbent) -> ExitCode {
    log::init(config.log.level, config.log.format == LogFormat::Json, &config.server.name);
    match derbent.at_end(|| std::process::exit(0)).run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(StartError::Faults(problems)) => {
            eprintln!("{problems}");
            ExitCode::from(FAULTS)
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(IO)
        }
    }
}

/// Tells why nothing was loaded.
pub fn report(error: &LoadError) -> ExitCode {
    eprintln!("{error}");
    ExitCode::from(match error {
        LoadError::Io { .. } => IO,
        LoadError::Faults(_) => FAULTS,
    })
}
