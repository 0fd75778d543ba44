//! `derbent demo catalog`: one catalog as a process of its own, so that `kill -9` and `kill -STOP` can be tried.

use super::duration::duration;
use crate::demo::{Instance, Manner};
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};

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
    /// Told to end, shut the port at once and say nothing on open connections, which are cut after 2 s. By default /ready is 503 and
    /// every answer says that its connection closes for 2 s, and the port is shut only then
    #[arg(long)]
    pub naive: bool,
}

/// Returns when it was told to end by SIGTERM or SIGINT and has taken its leave; a second one ends it at once.
pub fn run(args: DemoCatalogArgs) -> ExitCode {
    match serve(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => {
            eprintln!("{fault}");
            ExitCode::from(CANNOT_LISTEN)
        }
    }
}

fn serve(args: DemoCatalogArgs) -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let instance = Instance::start(&args.name, args.port, args.delay).await?;
        let line = format!("{} listens on http://localhost:{}/books\n", instance.name(), instance.port());
        let mut ends = [signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?];
        std::io::stdout().write_all(line.as_bytes())?;
        told(&mut ends).await;
        let manner = if args.naive { Manner::Naive } else { Manner::Announced };
        tokio::select! {
            () = instance.leave(manner) => {}
            () = told(&mut ends) => {}
        }
        Ok(())
    })
}

async fn told([term, interrupt]: &mut [Signal; 2]) {
    tokio::select! {
        _ = term.recv() => {}
        _ = interrupt.recv() => {}
    }
}
