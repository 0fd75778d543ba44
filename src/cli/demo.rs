//! `derbent demo`: the Bookstore's services and, before them, the gateway by a real file.

use super::demo_balancer::{self, DemoBalancerArgs};
use super::demo_catalog::{self, DemoCatalogArgs};
use super::{IO, load, print};
use crate::demo::{Bookstore, CONFIG, Ports};
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use tokio::runtime::Runtime;

#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct DemoArgs {
    /// A file of your own for the gateway; without it one is written and its path printed
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(subcommand)]
    part: Option<Part>,
}

#[derive(Debug, clap::Subcommand)]
enum Part {
    /// Only the services and their switches, without the gateway
    Bookstore,
    /// One catalog as a process of its own
    Catalog(DemoCatalogArgs),
    /// A balancer of TCP connections that obeys /ready, for rehearsals
    Balancer(DemoBalancerArgs),
}

pub fn run(args: DemoArgs) -> ExitCode {
    let done = match args.part {
        Some(Part::Catalog(args)) => return demo_catalog::run(args),
        Some(Part::Balancer(args)) => return demo_balancer::run(args),
        Some(Part::Bookstore) => bookstore_alone(),
        None => with_gateway(args.config),
    };
    done.unwrap_or_else(|error| {
        eprintln!("the demo cannot start: {error}");
        ExitCode::from(IO)
    })
}

fn bookstore_alone() -> io::Result<ExitCode> {
    let (runtime, bookstore) = bookstore()?;
    print(bookstore.try_next() + "\n");
    runtime.block_on(std::future::pending::<()>());
    Ok(ExitCode::SUCCESS)
}

fn with_gateway(config: Option<PathBuf>) -> io::Result<ExitCode> {
    let path = config.map_or_else(write_config, Ok)?;
    let (config, derbent) = match load::load(&path) {
        Ok(loaded) => loaded,
        Err(error) => return Ok(load::report(&error)),
    };
    let (_runtime, bookstore) = bookstore()?;
    print(format_args!(
        "The gateway's file: {}\nIts admin address: 127.0.0.1:5390\n\n{}\n",
        path.display(),
        bookstore.try_next()
    ));
    Ok(load::serve(&config, derbent))
}

/// The services run on threads of their own for as long as the runtime lives.
fn bookstore() -> io::Result<(Runtime, Bookstore)> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let bookstore = runtime.block_on(Bookstore::start(Ports::default()))?;
    Ok((runtime, bookstore))
}

/// Into a directory of this process alone.
fn write_config() -> io::Result<PathBuf> {
    let directory = std::env::temp_dir().join(format!("derbent-demo-{}", std::process::id()));
    std::fs::create_dir_all(&directory)?;
    let path = directory.join("derbent.yaml");
    std::fs::write(&path, CONFIG)?;
    Ok(path)
}
