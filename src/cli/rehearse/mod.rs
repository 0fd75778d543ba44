//! `derbent rehearse`: clients that never try a lost request again, while whatever shall be rehearsed is done to the server: a
//! deploy, a reload, a drain. They behave as clients do (kept connections, new ones, HTTP/2, WebSockets) and obey what the server
//! says of its connections; so what they lose, users would.
//!
//! Deliberately not here: rates (each client waits for its answer), redirects, proxies, and the deploy itself. Exit codes: 0 nothing was lost,
//! 1 something was, 2 usage.

mod http1;
mod http2;
mod ledger;
mod loss;
mod mix;
mod websocket;
mod wire;

use super::duration::positive;
use super::print;
use super::target::Target;
use ledger::{Count, Ledger};
use loss::Loss;
use mix::{Kind, Mix};
use serde_json::json;
use std::fs::File;
use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, interval, sleep};
use wire::{Server, Trust};

const USAGE: u8 = 2;
/// After a loss a client waits, or a closed port would be asked thousands of times a second.
const AFTER_LOSS_MS: std::ops::RangeInclusive<u64> = 50..=100;
/// Clients of HTTP/2 that share a connection.
const STREAMS: u32 = 8;
/// How often it is looked whether it may end.
const LOOK: Duration = Duration::from_millis(50);

/// Put clients that never retry on a server while it is deployed, and count what they lose
#[derive(Debug, Clone, clap::Args)]
#[command(
    after_help = "Each loss is counted by its kind: refused (ECONNREFUSED), reset (ECONNRESET), eof_fresh and eof_reused (the end of a
connection that had carried no answer yet, or some), truncated, timeout, status (not 2xx), protocol, local.
No loss: a kept connection that was closed before a request was written on it (closed idle), and a stream of HTTP/2 that was
refused unprocessed, which goes over a new connection (sent again). SIGINT or SIGTERM ends --for early, a second one --at-least
too."
)]
pub struct RehearseArgs {
    /// http://HOST[:PORT][/PATH] or https://…; each has all clients of the mix
    #[arg(required = true, value_parser = Target::of_either)]
    pub urls: Vec<Target>,
    /// How long new requests are begun
    #[arg(long = "for", value_name = "DURATION", default_value = "20s", value_parser = positive)]
    pub length: Duration,
    /// Go on until so many requests have ended, however long that takes
    #[arg(long, value_name = "REQUESTS", default_value_t = 0)]
    pub at_least: u64,
    /// Clients of each kind, for each URL. reuse: kept connections, request after request; think: 50-500 ms between them; fresh: a
    /// connection for each request, which comes up to 40 ms later; h2: streams, eight to a connection; post; websocket: five frames and
    /// the close; held: a WebSocket until the end, each echo a request
    #[arg(long, value_name = "KIND=CLIENTS,…", default_value = "reuse=8,think=24,fresh=8,h2=8,post=4,websocket=4")]
    pub mix: Mix,
    /// Where POSTs of up to 16 KiB go; without it nobody posts
    #[arg(long, value_name = "PATH")]
    pub post: Option<String>,
    /// A WebSocket that echoes; without it nobody opens one
    #[arg(long, value_name = "PATH")]
    pub websocket: Option<String>,
    /// How long a request may take, connecting included; a WebSocket as a whole
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = positive)]
    pub timeout: Duration,
    /// For https://, PEM: whoever signed the server's certificate
    #[arg(long, value_name = "FILE")]
    pub ca: Option<PathBuf>,
    /// For https://: take any certificate
    #[arg(long, conflicts_with = "ca")]
    pub insecure: bool,
    /// Of the dice by which clients wait
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// A line of JSON for each loss: when, whose, its kind, and the client's address, where it had a connection
    #[arg(long, value_name = "FILE")]
    pub losses: Option<PathBuf>,
    /// Print one JSON object instead of the table
    #[arg(long)]
    pub json: bool,
}

pub fn run(args: RehearseArgs) -> ExitCode {
    let clients = match clients(&args) {
        Ok(clients) => clients,
        Err(fault) => {
            eprintln!("{fault}");
            return ExitCode::from(USAGE);
        }
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(fault) => {
            eprintln!("no runtime: {fault}");
            return ExitCode::FAILURE;
        }
    };
    let losses = match args.losses.as_deref().map(File::create).transpose() {
        Ok(losses) => losses,
        Err(fault) => {
            eprintln!("--losses: {fault}");
            return ExitCode::from(USAGE);
        }
    };
    let (ledger, took) = runtime.block_on(rehearse(&args, clients, losses));
    match args.json {
        true => print(format_args!("{}\n", ledger.json(took))),
        false => print(format_args!(
            "{} requests in {:.1} s, {} lost\n{ledger}",
            ledger.requests(),
            took.as_secs_f64(),
            ledger.lost()
        )),
    }
    if ledger.lost() == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// One who asks.
pub struct Client {
    kind: Kind,
    server: Server,
    dice: fastrand::Rng,
    /// This side of its last connection.
    from: Option<SocketAddr>,
    /// For streams of HTTP/2.
    shared: Arc<http2::Shared>,
}

fn clients(args: &RehearseArgs) -> Result<Vec<Client>, String> {
    let trust = match &args.ca {
        Some(file) => Some(Trust::roots(file)?),
        None => args.insecure.then_some(Trust::Any),
    };
    let mut clients = Vec::new();
    for url in &args.urls {
        for (kind, count) in args.mix.iter() {
            let target = match kind {
                Kind::Post => args.post.as_deref().map(|path| url.at(path)),
                Kind::WebSocket | Kind::Held => args.websocket.as_deref().map(|path| url.at(path)),
                _ => Some(Ok(url.clone())),
            };
            let Some(target) = target else { continue };
            let protocol: &[u8] = if kind == Kind::Http2 { b"h2" } else { b"http/1.1" };
            let server = Server::new(target?, trust.as_ref(), protocol)?;
            let mut shared: Arc<http2::Shared> = Arc::default();
            for at in 0..count {
                if at % STREAMS == 0 {
                    shared = Arc::default();
                }
                let dice = fastrand::Rng::with_seed(args.seed.wrapping_add(clients.len() as u64));
                clients.push(Client { kind, server: server.clone(), dice, from: None, shared: shared.clone() });
            }
        }
    }
    match clients.is_empty() {
        true => Err("the mix has clients only for --post or --websocket, which is not given".to_owned()),
        false => Ok(clients),
    }
}

/// What the clients share.
pub struct Rehearsal {
    timeout: Duration,
    over: watch::Receiver<bool>,
    ledger: Mutex<Ledger>,
    losses: Option<File>,
}

impl Rehearsal {
    fn goes_on(&self) -> bool {
        !*self.over.borrow()
    }

    /// Shorter when it is over.
    async fn pause(&self, pause: Duration) {
        let mut over = self.over.clone();
        tokio::select! {
            () = sleep(pause) => {}
            // An error means that it is over as well.
            _ = over.wait_for(|over| *over) => {}
        }
    }

    async fn ended(&self, client: &Client, outcome: Result<(), Loss>, took: Duration) {
        self.count(client.kind, |count| count.ended(outcome, took));
        if let Err(loss) = outcome {
            self.tell(client, loss);
            self.pause(Duration::from_millis(fastrand::u64(AFTER_LOSS_MS))).await;
        }
    }

    fn tell(&self, client: &Client, loss: Loss) {
        let Some(mut file) = self.losses.as_ref() else { return };
        let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64;
        let from = client.from.map(|from| from.to_string());
        let line = json!({ "at_ms": at, "client": client.kind.name(), "loss": loss.to_string(), "from": from });
        // One write, so that lines stay whole. What cannot be written is in the count all the same.
        let _ = file.write_all(format!("{line}\n").as_bytes());
    }

    fn count(&self, kind: Kind, add: impl FnOnce(&mut Count)) {
        add(self.ledger().of(kind));
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn rehearse(args: &RehearseArgs, clients: Vec<Client>, losses: Option<File>) -> (Ledger, Duration) {
    let (over, watched) = watch::channel(false);
    let rehearsal = Rehearsal { timeout: args.timeout, over: watched, ledger: Mutex::default(), losses };
    let rehearsal = Arc::new(rehearsal);
    let begun = Instant::now();
    let mut asking = JoinSet::new();
    for mut client in clients {
        let rehearsal = rehearsal.clone();
        asking.spawn(async move {
            match client.kind {
                Kind::Http2 => http2::ask(&rehearsal, &mut client).await,
                Kind::WebSocket => websocket::ask(&rehearsal, &mut client).await,
                Kind::Held => websocket::hold(&rehearsal, &mut client).await,
                _ => http1::ask(&rehearsal, &mut client).await,
            }
        });
    }
    until_over(args, &rehearsal, begun).await;
    over.send_replace(true);
    // Each ends with its request, which the timeout bounds.
    while asking.join_next().await.is_some() {}
    let ledger = std::mem::take(&mut *rehearsal.ledger());
    (ledger, begun.elapsed())
}

async fn until_over(args: &RehearseArgs, rehearsal: &Rehearsal, begun: Instant) {
    let [mut interrupts, mut terms] = [SignalKind::interrupt(), SignalKind::terminate()].map(|kind| signal(kind).ok());
    let (mut look, mut told) = (interval(LOOK), 0);
    loop {
        tokio::select! {
            () = heard(&mut interrupts) => told += 1,
            () = heard(&mut terms) => told += 1,
            _ = look.tick() => {}
        }
        let long_enough = told > 0 || begun.elapsed() >= args.length;
        if told > 1 || (long_enough && rehearsal.ledger().requests() >= args.at_least) {
            return;
        }
    }
}

async fn heard(signal: &mut Option<tokio::signal::unix::Signal>) {
    let heard = match signal {
        Some(signal) => signal.recv().await,
        None => None,
    };
    if heard.is_none() {
        std::future::pending::<()>().await;
    }
}
