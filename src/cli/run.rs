use super::load;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Debug, clap::Args)]
pub struct RunArgs {
    /// The configuration file
    #[arg(short, long, value_name = "FILE", env = "DERBENT_CONFIG")]
    config: PathBuf,
    /// Take over from the process that serves by this file: its listening sockets first, its place once this one is ready
    #[arg(long)]
    upgrade: bool,
}

pub fn run(args: RunArgs) -> ExitCode {
    match load::load(&args.config) {
        Ok((config, derbent)) => load::serve(&config, derbent.takes_over(args.upgrade)),
        Err(error) => load::report(&error),
    }
}
