use super::{FAULTS, load};
use crate::config::{LoadError, Problems};
use crate::runtime::Snapshot;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(Debug, clap::Args)]
pub struct CheckArgs {
    /// The configuration file
    #[arg(short, long, value_name = "FILE", env = "DERBENT_CONFIG")]
    config: PathBuf,
    /// Print the faults as a JSON list on standard output
    #[arg(long)]
    json: bool,
}

pub fn run(args: CheckArgs) -> ExitCode {
    let checked = match load::load(&args.config) {
        Ok((_, derbent)) => derbent.check(),
        Err(LoadError::Faults(problems)) => Err(problems),
        Err(error) => return load::report(&error),
    };
    match checked {
        Ok(snapshot) => fine(&args.config, &snapshot, args.json),
        Err(problems) => faults(&problems, args.json),
    }
}

fn fine(path: &Path, snapshot: &Snapshot, json: bool) -> ExitCode {
    if json {
        super::print("[]\n");
    } else {
        let destinations: usize = snapshot.clusters.iter().map(|cluster| cluster.members.len()).sum();
        super::print(format_args!(
            "{} is fine: {}, {}, {}, {}\n",
            path.display(),
            count(snapshot.listeners.len(), "listener"),
            count(snapshot.routes.len(), "route"),
            count(snapshot.clusters.len(), "cluster"),
            count(destinations, "destination"),
        ));
    }
    ExitCode::SUCCESS
}

fn count(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

fn faults(problems: &Problems, json: bool) -> ExitCode {
    if json {
        super::print(format_args!("{:#}\n", problems.to_json()));
    } else {
        eprintln!("{problems}");
    }
    ExitCode::from(FAULTS)
}
