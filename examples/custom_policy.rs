//! A balancing policy of one's own in a proxy of one's own: equal paths go to the same destination, so that its cache
//! stays warm.
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

/// The policies that come with Derbent, and ours.
pub fn registry() -> Registry {
    Registry::builtin().with_balancer("SamePath", build)
}

/// Reads the policy's own keys. `segments` (1–16, default 1): how many of the path count. What is not asked for here is a
/// fault, told with its place.
fn build(params: &mut Section<'_>, _: &Site) -> Box<dyn Balancer> {
    let segments = params.integer("segments", 1..=16).unwrap_or(1) as usize;
    Box::new(SamePath { segments })
}

#[derive(Clone)]
struct SamePath {
    segments: usize,
}

impl Balancer for SamePath {
    /// Called each time the available set changes, off the request path: the place for tables, which this needs none of.
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

#[allow(dead_code, reason = "the tests take this file in as a module")]
fn main() -> ExitCode {
    let config = match std::env::args_os().nth(1) {
        Some(file) => Config::load(file.as_ref()),
        None => Config::parse("BOOKSTORE", BOOKSTORE),
    };
    let config = match config {
        Ok(config) => config,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    match Derbent::from_config(config).registry(registry()).run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
