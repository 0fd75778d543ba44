//! `derbent demo balancer`: connections of one port to those of several that say they are ready, in turn. It stands before two
//! instances where a deploy is rehearsed, as the balancer of a platform does. It never tries another instance for a connection: what one
//! refuses is lost, so an instance that goes before it was noticed is seen.

use super::duration::positive;
use super::get::ask;
use super::target::Target;
use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::Full;
use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep};

const CANNOT_LISTEN: u8 = 3;
/// An answer that takes longer is none.
const PATIENCE: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(50);

/// Spread TCP connections over the instances whose /ready says 200
#[derive(Debug, Clone, clap::Args)]
pub struct DemoBalancerArgs {
    /// Of 127.0.0.1; 0 takes any free one
    #[arg(long)]
    pub port: u16,
    /// An instance and where it says whether it is ready: 127.0.0.1:8080=http://127.0.0.1:5390/ready
    #[arg(long = "to", value_name = "ADDRESS=URL", required = true)]
    pub instances: Vec<Instance>,
    /// How often each is asked
    #[arg(long, value_name = "DURATION", default_value = "200ms", value_parser = positive)]
    pub every: Duration,
}

#[derive(Debug, Clone)]
pub struct Instance {
    address: SocketAddr,
    asked: Target,
}

impl FromStr for Instance {
    type Err = String;

    fn from_str(text: &str) -> Result<Instance, String> {
        let (address, url) = text.split_once('=').ok_or("expected ADDRESS=URL")?;
        let address = address.parse().map_err(|_| format!("expected IP:PORT, not {address:?}"))?;
        Ok(Instance { address, asked: url.parse()? })
    }
}

/// Returns only when it cannot listen; a signal ends it by its default action.
pub fn run(args: DemoBalancerArgs) -> ExitCode {
    let port = args.port;
    let served = tokio::runtime::Builder::new_multi_thread().enable_all().build().and_then(|runtime| {
        runtime.block_on(async {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
            let line = format!("the balancer listens on {}\n", listener.local_addr()?);
            io::stdout().write_all(line.as_bytes())?;
            balance(listener, args).await;
            Ok(())
        })
    });
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => {
            eprintln!("127.0.0.1:{port}: {fault}");
            ExitCode::from(CANNOT_LISTEN)
        }
    }
}

/// An instance, and what it last said.
struct Watched {
    address: SocketAddr,
    ready: AtomicBool,
}

async fn balance(listener: TcpListener, args: DemoBalancerArgs) {
    let mut instances = Vec::new();
    for Instance { address, asked } in args.instances {
        let watched = Arc::new(Watched { address, ready: AtomicBool::new(false) });
        instances.push(watched.clone());
        tokio::spawn(watch(watched, asked, args.every));
    }
    let turn = AtomicUsize::new(0);
    loop {
        match listener.accept().await {
            Ok((client, _)) => {
                // Where none is ready the connection ends here.
                if let Some(to) = next(&instances, &turn) {
                    tokio::spawn(pass(client, to));
                }
            }
            // Out of file descriptors, most likely: a connection that ends gives one back.
            Err(_) => sleep(PAUSE).await,
        }
    }
}

async fn watch(watched: Arc<Watched>, asked: Target, every: Duration) {
    loop {
        let answer = ask(&asked, Request::new(Full::<Bytes>::default()), Instant::now() + PATIENCE).await;
        let ready = answer.is_ok_and(|(status, _)| status == StatusCode::OK);
        watched.ready.store(ready, Ordering::Relaxed);
        sleep(every).await;
    }
}

fn next(instances: &[Arc<Watched>], turn: &AtomicUsize) -> Option<SocketAddr> {
    let first = turn.fetch_add(1, Ordering::Relaxed);
    let mut places = (0..instances.len()).map(|at| &instances[(first.wrapping_add(at)) % instances.len()]);
    places.find(|watched| watched.ready.load(Ordering::Relaxed)).map(|watched| watched.address)
}

/// A reset on one side is one on the other.
async fn pass(mut client: TcpStream, to: SocketAddr) {
    let Ok(mut server) = TcpStream::connect(to).await else { return };
    let nodelay = client.set_nodelay(true).and(server.set_nodelay(true));
    let passed = copy_bidirectional(&mut client, &mut server).await;
    if nodelay.is_err() || passed.is_err() {
        // Where a socket is gone already there is nothing left to reset.
        let _ = client.set_zero_linger();
        let _ = server.set_zero_linger();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watched(port: u16, ready: bool) -> Arc<Watched> {
        Arc::new(Watched { address: SocketAddr::from(([127, 0, 0, 1], port)), ready: AtomicBool::new(ready) })
    }

    #[test]
    fn given_instances_when_one_is_not_ready_then_the_others_have_its_connections_in_turn() {
        let instances = [watched(1, true), watched(2, false), watched(3, true)];
        let turn = AtomicUsize::new(usize::MAX - 2);
        let ports = || (0..300).filter_map(|_| next(&instances, &turn)).map(|to| to.port()).collect::<Vec<_>>();
        let taken = ports();
        assert_eq!(taken.len(), 300);
        assert!(!taken.contains(&2) && taken.iter().filter(|port| **port == 1).count() >= 100);
        instances.iter().for_each(|watched| watched.ready.store(false, Ordering::Relaxed));
        assert!(ports().is_empty());
    }

    #[test]
    fn given_an_instance_when_read_then_both_parts_must_be_good() {
        assert!("127.0.0.1:80=http://127.0.0.1:5390/ready".parse::<Instance>().is_ok());
        for text in ["127.0.0.1:80", "localhost:80=http://a/", "127.0.0.1:80=a", "=http://a/"] {
            assert!(text.parse::<Instance>().is_err(), "{text}");
        }
    }
}
