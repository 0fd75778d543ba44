//! A proxy with a balancing policy of its own: equal paths go to the same destination, so that its cache stays warm.
//!
//! With `derbent demo bookstore` running:
//!
//! ```sh
//! cargo run --example custom_policy &
//! for book in 1 2 3 4; do curl -si localhost:5300/books/$book | grep -i x-catalog-instance; done
//! ```
//!
//! The same book always comes from the same catalog. A file of yours stands in for the one below when it is named as
//! the argument.

use derbent::balance::{Balancer, Draw, Picker, Site};
use derbent::config::Section;
use derbent::model::Member;
use derbent::{Config, Derbent, Registry};
use std::error::Error;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::process::ExitCode;
use std::sync::Arc;

const BOOKSTORE: &str = r#"
listeners: { web: "127.0.0.1:5300" }
routes: { books: { match: { path: "/books/{**rest}" }, cluster: catalog } }
clusters:
  catalog:
    load_balancing: { policy: SamePath, segments: 2 }
    destinations:
      catalog-1: "http://localhost:5301"
      catalog-2: "http://localhost:5311"
      catalog-3: "http://localhost:5312"
    health: { active: { type: http, path: /health, interval: 5s } }
"#;

/// How many segments of a path count.
#[derive(Clone)]
struct SamePath {
    segments: usize,
}

/// `load_balancing: { policy: SamePath, segments: 2 }`. Keys not asked for here are faults, told with their place.
fn build(params: &mut Section<'_>, _: &Site) -> Box<dyn Balancer> {
    let segments = params.integer("segments", 1..=16).unwrap_or(1) as usize;
    Box::new(SamePath { segments })
}

impl Balancer for SamePath {
    fn prepare(&self, _: &[Arc<Member>]) -> Box<dyn Picker> {
        Box::new(self.clone())
    }
}

impl Picker for SamePath {
    /// Each destination's rank for the path is a hash of both, so that one that leaves moves no path but its own.
    fn pick(&self, set: &[Arc<Member>], draw: &mut Draw<'_>) -> Option<usize> {
        let path = draw.request.path;
        let end = path.match_indices('/').nth(self.segments).map_or(path.len(), |(at, _)| at);
        let rank = |id: &str| {
            let mut hash = DefaultHasher::new();
            (&path[..end], id).hash(&mut hash);
            hash.finish()
        };
        let untried = (0..set.len()).filter(|&i| !draw.tried.contains(set[i].index));
        untried.max_by_key(|&i| rank(&set[i].destination.id))
    }
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let config = match std::env::args_os().nth(1) {
        Some(file) => Config::load(file.as_ref())?,
        None => Config::parse("BOOKSTORE", BOOKSTORE)?,
    };
    let registry = Registry::builtin().with_balancer("SamePath", build);
    Derbent::from_config(config).registry(registry).run()?;
    Ok(())
}
