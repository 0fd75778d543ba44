//! `derbent demo catalog`: one catalog as a process of its own, so that `kill -9` and `kill -STOP` can be tried.

use super::duration::duration;
use crate::demo::Instance;
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

const CANNOT_LISTEN: u8 = 3;

/// Run one catalog of the Bookstore in the foreground
#[derive(Debug, clap::Args)]
pub struct DemoCatalogArgs {
    /// Stands in X-Catalog-Instance
    #[arg(long)]
    pub name: String,
    /// Of localhost; 0 takes any free one
    #[arg(long)]
    pub port: u16,
    /// How long /books takes
    #[arg(long, value_name = "DURATION", default_value = "0ms", value_parser = duration)]
    pub delay: Duration,
}

/// Returns only when it cannot listen; a signal ends it by its default action.
pub fn run(args: DemoCatalogArgs) -> ExitCode {
    match serve(args) {
        Ok(never) => match never {},
        Err(fault) => {
            eprintln!("{fault}");
            ExitCode::from(CANNOT_LISTEN)
        }
    }
}

fn serve(args: DemoCatalogArgs) -> std::io::Result<std::convert::Infallible> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let instance = Instance::start(&args.name, args.port, args.delay).await?;
        let line = format!("{} listens on http://localhost:{}/books\n", instance.name(), instance.port());
        std::io::stdout().write_all(line.as_bytes())?;
        std::future::pending().await
    })
}
