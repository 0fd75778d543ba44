use super::load;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Debug, clap::Args)]
pub struct RunArgs {
    /// The configuration file
    #[arg(short, long, value_name = "FILE", env = "DERBENT_CONFIG")]
    config: PathBuf,
}

pub fn run(args: RunArgs) -> ExitCode {
    match load::load(&args.config) {
        Ok((config, derbent)) => load::serve(&config, derbent),
        Err(error) => load::report(&error),
    }
}
