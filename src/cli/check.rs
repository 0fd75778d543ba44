use super::{FAULTS, load};
use crate::config::{Config, LoadError, Problems, Spot};
use crate::runtime::Snapshot;
use crate::runtime::lint::{Warning, lint, outlook};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

#[derive(Debug, clap::Args)]
pub struct CheckArgs {
    /// The configuration file
    #[arg(short, long, value_name = "FILE", env = "DERBENT_CONFIG")]
    config: PathBuf,
    /// Print the faults, or the warnings of a file without one, as a JSON list on standard output
    #[arg(long)]
    json: bool,
    /// Exit with 1 when there is a warning
    #[arg(long)]
    strict: bool,
}

pub fn run(args: CheckArgs) -> ExitCode {
    let (config, checked) = match load::load(&args.config) {
        Ok((config, derbent)) => (config, derbent.check()),
        Err(LoadError::Faults(problems)) => return faults(&problems, args.json),
        Err(error) => return load::report(&error),
    };
    let snapshot = match checked {
        Ok(snapshot) => snapshot,
        Err(problems) => return faults(&problems, args.json),
    };
    let warnings = lint(&config, &snapshot);
    if args.json {
        super::print(format_args!("{:#}\n", warnings.iter().map(as_json).collect::<Value>()));
    } else {
        super::print(verdict(&args.config, &config, &snapshot));
        warn(&warnings, config.problems());
    }
    if args.strict && !warnings.is_empty() { ExitCode::from(FAULTS) } else { ExitCode::SUCCESS }
}

fn verdict(path: &Path, config: &Config, snapshot: &Snapshot) -> String {
    let destinations: usize = snapshot.clusters.iter().map(|cluster| cluster.members.len()).sum();
    let counted = [
        count(snapshot.listeners.len(), "listener"),
        count(snapshot.routes.len(), "route"),
        count(snapshot.clusters.len(), "cluster"),
        count(destinations, "destination"),
    ];
    let lines = [format!("{} is fine: {}", path.display(), counted.join(", "))].into_iter();
    lines.chain(outlook(config, snapshot, Instant::now())).map(|line| line + "\n").collect()
}

fn count(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

/// As faults are shown; `places` knows the texts of the files.
fn warn(warnings: &[Warning], mut places: Problems) {
    if warnings.is_empty() {
        return;
    }
    for warning in warnings {
        places.push(&warning.at, warning.to_string());
    }
    eprintln!("{}", places.counted_as("warning"));
}

/// A fault's object, with the rule and what mends it.
fn as_json(Warning { id, at, message, fix }: &Warning) -> Value {
    let Spot { file, line, column, path } = at;
    json!({
        "file": &**file, "line": line, "column": column, "path": path, "message": message, "warning": id, "fix": fix,
    })
}

fn faults(problems: &Problems, json: bool) -> ExitCode {
    if json {
        super::print(format_args!("{:#}\n", problems.to_json()));
    } else {
        eprintln!("{problems}");
    }
    ExitCode::from(FAULTS)
}
