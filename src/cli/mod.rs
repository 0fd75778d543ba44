//! The commands, one file each. Exit codes: 0 fine, 1 faults in the configuration, 2 wrong usage, 3 I/O. Data goes to
//! standard output, everything else to standard error.

mod check;
mod ctl;
mod ctl_requests;
mod ctl_status;
mod demo;
mod demo_balancer;
mod demo_catalog;
mod duration;
mod get;
mod healthcheck;
mod load;
mod loadprobe;
mod proxy;
mod rehearse;
mod run;
mod simulate;
mod tally;
mod target;

use crate::Registry;
use crate::app::PINGORA;
use clap::{CommandFactory, Parser, Subcommand};
use std::fmt::Display;
use std::io::Write;
use std::process::ExitCode;

/// The configuration has faults.
const FAULTS: u8 = 1;
/// A file could not be read, an address not be listened on.
const IO: u8 = 3;

#[derive(Parser)]
#[command(
    name = "derbent",
    version,
    about = "A programmable HTTP edge proxy that tells why a destination is out",
    after_help = "Examples:
  derbent demo                                              a bookstore to try things on
  derbent proxy --listen :8080 --to http://127.0.0.1:3000   no file needed
  derbent run -c conf/derbent.yaml                          the proxy by its file"
)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Run the proxy by a configuration file
    Run(run::RunArgs),
    /// Check a configuration file: builds all that `run` would, reports every fault at once
    Check(check::CheckArgs),
    /// Tell what a cluster's health would do under a made-up load, in virtual time
    Simulate(simulate::SimulateArgs),
    /// Run the proxy without a file
    Proxy(proxy::ProxyArgs),
    /// Run the Bookstore with the proxy in front of it
    Demo(demo::DemoArgs),
    /// Put a small load on a URL and tell which instance answered how often
    Loadprobe(loadprobe::LoadprobeArgs),
    /// Put clients that never retry on a server while it is deployed, and count what they lose
    Rehearse(rehearse::RehearseArgs),
    /// Ask a running proxy whether it is ready (exit 0) or not (1)
    Healthcheck(healthcheck::HealthcheckArgs),
    /// Ask a running proxy about its destinations, and give orders about them
    Ctl(ctl::CtlArgs),
    /// Print the JSON Schema of configuration files, for editors
    Schema,
    /// Print the version
    Version,
}

/// Runs the command that the process was started with.
pub fn run() -> ExitCode {
    match Cli::parse().command {
        Some(Command::Run(args)) => run::run(args),
        Some(Command::Check(args)) => check::run(args),
        Some(Command::Simulate(args)) => simulate::run(args),
        Some(Command::Proxy(args)) => proxy::run(args),
        Some(Command::Demo(args)) => demo::run(args),
        Some(Command::Loadprobe(args)) => loadprobe::run(args),
        Some(Command::Rehearse(args)) => rehearse::run(args),
        Some(Command::Healthcheck(args)) => healthcheck::run(args),
        Some(Command::Ctl(args)) => ctl::run(args),
        Some(Command::Schema) => schema(),
        Some(Command::Version) => version(),
        None => {
            // Nothing was asked for: that is no fault.
            let _ = Cli::command().print_help();
            ExitCode::SUCCESS
        }
    }
}

fn schema() -> ExitCode {
    print(format_args!("{:#}\n", Registry::builtin().schema()));
    ExitCode::SUCCESS
}

fn version() -> ExitCode {
    print(format_args!("derbent {} (pingora {PINGORA})\n", env!("CARGO_PKG_VERSION")));
    ExitCode::SUCCESS
}

/// To standard output. One that is closed, as `head` leaves it, is nobody's fault: the exit code is the answer.
fn print(text: impl Display) {
    let _ = write!(std::io::stdout(), "{text}");
}
