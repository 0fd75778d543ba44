//! `derbent simulate`: a configuration and a timeline in, what health would do out. Exit codes: 0 whatever came of it, 1 faults in
//! one of the files, 3 one could not be read.

use super::{FAULTS, load};
use crate::config::{Config, LoadError, Problems, Timeline};
use crate::model::Epoch;
use crate::observe::Metrics;
use crate::runtime::{Registry, Scene, compile};
use crate::simulate::{Anywhere, Run, Scenario, Told};
use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Instant, UNIX_EPOCH};

#[derive(Debug, clap::Args)]
pub struct SimulateArgs {
    /// The configuration file
    #[arg(short, long, value_name = "FILE", env = "DERBENT_CONFIG")]
    config: PathBuf,
    /// What load comes, and what each destination does when
    #[arg(short, long, value_name = "FILE")]
    timeline: PathBuf,
    /// Of all chance; equal ones give equal output
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
    /// Tell the evidence of each step too
    #[arg(long)]
    explain: bool,
}

pub fn run(args: SimulateArgs) -> ExitCode {
    // What clusters tell goes to nobody here: the findings have it all.
    log::set_max_level(log::LevelFilter::Off);
    let start = Instant::now();
    let run = match prepare(&args.config, &args.timeline, args.seed, start) {
        Ok(run) => run,
        Err(LoadError::Faults(problems)) => {
            eprintln!("{problems}");
            return ExitCode::from(FAULTS);
        }
        Err(error) => return load::report(&error),
    };
    let bar = bar();
    let findings = run.finish(|done| bar.set_position((done * STEPS as f64) as u64));
    bar.finish_and_clear();
    match args.json {
        true => super::print(format_args!("{:#}\n", findings.json(args.explain))),
        false => super::print(Told { findings: &findings, explain: args.explain }),
    }
    ExitCode::SUCCESS
}

fn prepare(config: &Path, timeline: &Path, seed: u64, start: Instant) -> Result<Run, LoadError> {
    let environment = |name: &str| std::env::var(name).ok();
    let (config, problems) = Config::draft(config, &environment)?;
    let scene = Scene {
        registry: &Registry::builtin(),
        names: &Anywhere,
        metrics: &Metrics::new(),
        // Stamps are milliseconds since the start.
        epoch: Epoch { instant: start, wall: UNIX_EPOCH },
        serving: None,
    };
    let snapshot = compile(&config, &scene, problems).map_err(LoadError::Faults)?;
    let (timeline, mut problems): (Timeline, Problems) = Timeline::draft(timeline, &environment)?;
    match Scenario::new(timeline, &config, &snapshot, &mut problems) {
        Some(scenario) => Ok(Run::new(scenario, seed, start)),
        None => Err(LoadError::Faults(problems)),
    }
}

const STEPS: u64 = 1_000;

/// Shown on a terminal only.
fn bar() -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style =
        ProgressStyle::with_template("{wide_bar} {percent:>3}%").unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(STEPS).with_style(style)
}
