//! Derbent, a programmable HTTP edge proxy on Pingora: the page of its architecture. What it does for its operators is in
//! README.md.
//!
//! ```no_run
//! use derbent::{Config, Derbent, Registry};
//!
//! let config = Config::load("derbent.yaml".as_ref()).unwrap();
//! Derbent::from_config(config).registry(Registry::builtin()).run().unwrap();
//! ```
//!
//! The binary comes through this very door, so that what a program can do is what every run of it does.
//!
//! # Floors
//!
//! The folders are the architecture. `use` goes down only; what stands on one floor does not know its neighbours, but for
//! the drivers.
//!
//! | Floor | Rooms | |
//! |---|---|---|
//! | 5 | `main.rs` `app.rs` [`cli`] [`demo`] | The composition root and the commands: the only place that knows everyone. |
//! | 4 | `edge` `proxy` `service` | The drivers: connections, Pingora's phases, and all that wakes up by itself. |
//! | 3 | [`runtime`] [`simulate`] | The assembly: registry, compile, snapshot, router, draw; and the same under a made-up load. |
//! | 2 | [`balance`] [`affinity`] [`health`] [`retry`] [`discovery`] `filter` | The mechanisms: one trait each, one file a policy. |
//! | 1 | [`model`] | The atoms: destination, live state, marks, lease, outcome. |
//! | 0 | [`config`] [`observe`] | What the operator wrote, what the operator sees. Neither knows the other. |
//!
//! Mechanisms never log, count, spawn or read a clock: they take facts, time and chance as arguments and return facts. So
//! all that judges is tested without a socket. Probes and name look-ups are the two that do IO; a probe carries its own time
//! limit. ([`affinity`] seals keys: a file of them is read when it is built, and its chance is the system's.) Pingora's types stay on floors 4 and 5, in `health/active`, and in the two files of the runtime that prepare its
//! peers. `tests/it/floors.rs` reads the `use` lines and holds all this.
//!
//! # Rooms
//!
//! - [`config`]: a file and what it includes, read into a tree with positions; each section asks it for the keys it knows.
//!   Reading never stops at the first fault. What it asks for is its JSON Schema too: [`Outline`](config::Outline).
//! - [`observe`]: every metric in one table, one function a fact for log line and metric together.
//! - [`model`]: a [`Destination`](model::Destination) never changes; what it is doing now is [`Live`](model::Live).
//! - [`balance`]: [`Balancer`](balance::Balancer) prepares off the request path, [`Picker`](balance::Picker) picks on it; what came
//!   of attempts reaches policies by [`learn`](balance::Balancer::learn).
//! - [`affinity`]: [`Affinity`](affinity::Affinity) reads a session's key out of a request and writes it on an answer.
//! - [`health`]: [`Standing`](health::Standing) makes marks of findings (its page is the table of states) out of parts that do
//!   not see each other: [`passive`](health::passive) detectors, [`Reactivation`](health::Reactivation),
//!   [`Breaker`](health::Breaker). [`available`](health::available) says which of the marked may serve;
//!   [`active`](health::active) holds the probes. Each step has an [`Explanation`](explain::Explanation), from which
//!   [`replay`](explain::replay) makes the decision again.
//! - [`retry`]: [`Plan`](retry::Plan) says what one request may still do (its page is the table); the budget is the cluster's.
//! - [`discovery`]: where a destination's host leads. `filter`: what changes a request on its way.
//! - [`runtime`]: [`compile`](runtime::compile) is the sole constructor of a [`Snapshot`](runtime::Snapshot);
//!   [`draw`](runtime::draw) is the order of choice (its page is the table); [`Cluster`](runtime::Cluster) takes reports and
//!   findings and publishes what follows; [`let_go`](runtime::Runtime::let_go) ends what is left of destinations that went; [`lint`](runtime::lint::lint) warns of what a faultless file had better not say.
//! - [`simulate`]: a cluster of a compiled snapshot in virtual time; what the network would say is a
//!   [`Timeline`](config::Timeline)'s, all else is the code that serves.
//! - `edge`: sockets, TLS, and the app that serves each client connection. `proxy`: one request; a phase is a few lines that call
//!   the next file. `service`: probes, reloads, signals, the life of the process, its successor, the admin
//!   listener, the access log's file, the copies of mirrored requests.
//!
//! # Journeys
//!
//! **A file** is read by [`Config::draft`], judged on by [`compile`](runtime::compile), and its faults come in one report.
//! `check` and `run` go this same way:
//!
//! ```
//! use derbent::{Config, Derbent};
//!
//! let file = r#"
//! listeners: { web: "127.0.0.1:8080" }
//! routes: { all: { cluster: ap } }
//! clusters: { app: { destinations: ["http://127.0.0.1:3000"], load_balancing: RoundRobbin } }
//! "#;
//! let config = Config::parse("derbent.yaml", file).unwrap();
//! let faults = Derbent::from_config(config).check().err().unwrap();
//! let faults: Vec<String> = faults.iter().map(|fault| fault.to_string()).collect();
//! assert_eq!(faults[0], "derbent.yaml:3:27: routes.all.cluster: unknown cluster \"ap\"; did you mean \"app\"?");
//! assert!(faults[1].starts_with("derbent.yaml:4:77: clusters.app.load_balancing: unknown load balancing policy"));
//! ```
//!
//! **A request** enters each room once an attempt:
//!
//! ```text
//! edge/app        the connection is counted, its silence bounded; each request's stream goes to Pingora's proxy,
//!                 one after the other or, of HTTP/2 (edge/http2), side by side
//! proxy/strict    request_filter             an ambiguous head ends here: 400
//! proxy/mod                                  Runtime::pin → the snapshot it keeps to its end; router → route
//! proxy/select    first draw                 runtime::draw → destination and lease, else 503 here
//!                 upstream_peer              the peer prepared for that destination
//! proxy/queue     before a draw or an attempt  for a place, a pause, a connection; unless the client leaves
//! proxy/clock     each step                  its hour is set, cuts Pingora's timeouts, fails its reads when over
//! proxy/headers   upstream_request_filter    the head as the destination gets it
//!                 upstream_response_filter   the head as the client gets it
//! proxy/expect    upstream_request_filter    who tells the client to send its body, the destination or we
//! proxy/conclude  fail_to_connect | error_while_proxy | logging    outcome → Cluster::report, once an attempt
//! proxy/recover   after a failure or status  Cluster::concluded → the same again, the next draw, or the end
//! proxy/respond   fail_to_proxy              reason → status and body, one table
//! proxy/mirror    upstream_request_filter | request_body_filter    the whole request's copy, handed to service/mirrors
//! proxy/access    logging                    the access line, where there is such a log
//! ```
//!
//! **A transition** of health has one tail, whatever its head: a finding goes to [`Cluster::judge`](runtime::Cluster::judge);
//! [`Standing::apply`](health::Standing::apply) sets or lifts the judge's own mark; when that takes the destination out or brings
//! it back, the available set and its picker are derived anew and swapped in together; then it is told, with its rule and its
//! evidence. Requests never ask about health, but to look again at the one destination they drew:
//!
//! ```
//! use derbent::health::Event;
//! use derbent::model::{Dice, RequestView};
//! use derbent::runtime::{Arm, Trail};
//! use derbent::{Config, Derbent, runtime};
//! use std::time::Instant;
//!
//! let file = r#"
//! listeners: { web: "127.0.0.1:8080" }
//! routes: { all: { cluster: app } }
//! clusters:
//!   app:
//!     destinations: ["http://127.0.0.1:3000", "http://127.0.0.1:3001"]
//!     health: { active: { type: tcp, unhealthy_after: 2 } }
//! "#;
//! let snapshot = Derbent::from_config(Config::parse("derbent.yaml", file).unwrap()).check().ok().unwrap();
//! let app = snapshot.cluster("app").unwrap();
//! for _ in 0..2 {
//!     let now = Instant::now();
//!     let refused = Event::Probe { passed: false, cause: "connection refused".into(), begun: now };
//!     app.judge(&app.members[0], refused, now);
//! }
//! let (method, headers) = (&http::Method::GET, &http::HeaderMap::new());
//! let request =
//!     RequestView { method, host: "localhost", port: None, path: "/", query: None, headers, client_ip: None };
//! let drawn = runtime::draw(app, Arm::Primary, request, &mut Trail::default(), Instant::now(), &mut Dice::new()).ok().unwrap();
//! assert_eq!((drawn.member.destination.id.as_str(), drawn.available), ("127.0.0.1:3001", 1));
//! assert_eq!(app.members[1].live.in_flight(), 1);
//! drop(drawn); // and its lease
//! assert_eq!(app.members[1].live.in_flight(), 0);
//! ```
//!
//! **An upgrade** is two processes: what one hands to the other is the table of `service/upgrade`, and what of health goes on there
//! that of `runtime/handover`.
//!
//! **A reload** is the journey of a file, made beside the snapshot that serves: [`compile`](runtime::compile) shares with it what stays, and
//! [`Runtime::reload`](runtime::Runtime::reload) hands on and swaps, or leaves all as it was. What stays is the table of
//! `runtime/carry`; who is gone takes its leave by that of `runtime/leaving`; what cannot change in a running process is `config/fixed`'s to say.
//!
//! # Invariants
//!
//! - A request sees one snapshot, from its head to its end; but who waits in a queue looks for a place among those that serve by
//!   then, and begins anew when a reload did away with its cluster.
//! - What came of an attempt is reported exactly once; an attempt dropped without a conclusion reports that its client left.
//! - Counts fall by `Drop`, so a request that is cancelled or panics leaks none.
//! - A judge sets and lifts its own mark only. The set published last has seen every mark set before it.
//! - The request path spawns nothing, formats no label, looks no policy up by name, and allocates nothing to pick.
//! - Names of metrics and labels come from the configuration or from closed sets, never from a peer.
//! - Whatever a file, a peer or a probe sends, there is a fault or an outcome, and no panic.
//!
//! # Words
//!
//! *Downstream* and *upstream* are directions. A **route** is a match and where it leads; a **cluster**, named destinations and
//! their policies; a **destination**, one address of a cluster; **live**, what it is doing now. An **attempt** is one try of one
//! request; a **lease**, the place it holds on a destination; an **outcome**, what came of it. A **mark** is one judge's word
//! that a destination should be out; a **transition**, an effective change: the first mark set, or the last one lifted. A
//! **snapshot** is all that requests read. Policies bear the names of the field: PowerOfTwoChoices, HealthyOrPanic.

pub mod affinity;
mod app;
pub mod balance;
pub mod cli;
pub mod config;
pub mod demo;
pub mod discovery;
mod edge;
mod filter;
pub mod health;
pub mod model;
pub mod observe;
mod proxy;
pub mod retry;
pub mod runtime;
mod service;
pub mod simulate;

/// Why a destination's health changed, and the decision made again from it.
pub mod explain {
    pub use crate::health::{By, Decision, Evidence, Explanation, Next, Rule, Step, replay};
}

pub use app::{Derbent, StartError};
pub use config::{Config, Problems};
pub use runtime::Registry;

/// The Rust of README.md compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
