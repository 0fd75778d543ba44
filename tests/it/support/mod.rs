//! What the integration tests stand on: a scripted [`Origin`], the real binary as an [`Edge`], and a raw [`Client`].
//! All of it on 127.0.0.1. Every wait polls a fact up to [`DEADLINE`]; none of them is a measurement.

mod client;
mod edge;
mod grpc;
mod h2;
mod held;
mod load;
mod origin;
pub mod source;

pub use client::{Client, Response, get};
pub use edge::{Edge, derbent, one_destination};
pub use grpc::{Call, GrpcHealth};
pub use h2::{GoAway, H2Client, H2Origin, H2Response, take};
pub use held::Held;
pub use load::Load;
pub use origin::{Answer, Gate, Origin, Request, Step};

use std::collections::BTreeSet;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// How long a fact may take to come true before the test fails: far above what a loaded machine needs.
pub const DEADLINE: Duration = Duration::from_secs(30);

/// Below Linux's ephemeral range (32768 on), so that no outgoing connection takes a port while it waits for its server.
const PORTS: std::ops::Range<u16> = 20_000..32_000;

/// A port of 127.0.0.1 that nobody listens on and that no other test of this process gets.
pub fn free_port() -> u16 {
    static TAKEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());
    let mut taken = TAKEN.lock().unwrap();
    let span = u32::from(PORTS.end - PORTS.start);
    // Two test processes at once start at different places.
    let start = std::process::id().wrapping_mul(97);
    // Asked, not bound: a process that another test starts just then would hold the socket for a moment longer.
    (0..span)
        .map(|step| PORTS.start + (start.wrapping_add(step) % span) as u16)
        .find(|&port| !taken.contains(&port) && TcpStream::connect(loopback(port)).is_err() && taken.insert(port))
        .expect("a free port between 20000 and 32000")
}

/// Every configuration of `conf/`; what is in these folders is for other readers.
pub fn shown_configurations() -> Vec<PathBuf> {
    const OTHERS: [&str; 2] = ["prometheus", "timelines"];
    let conf = Path::new(env!("CARGO_MANIFEST_DIR")).join("conf");
    let files = glob::glob(&format!("{}/**/*.yaml", conf.display())).unwrap().map(Result::unwrap);
    files.filter(|file| !OTHERS.iter().any(|folder| file.starts_with(conf.join(folder)))).collect()
}

pub fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

/// Waits until `condition` holds; fails the test by `what` when it does not within `deadline`.
pub async fn eventually(deadline: Duration, what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let began = Instant::now();
    while !condition().await {
        assert!(began.elapsed() < deadline, "not within {deadline:?}: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// The future's value; fails the test by `what` when it takes longer than [`DEADLINE`].
pub async fn in_time<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(DEADLINE, future).await {
        Ok(value) => value,
        Err(_) => panic!("not within {DEADLINE:?}: {what}"),
    }
}

/// Where the head that `bytes` begin with ends, the empty line included.
fn head_end(bytes: &[u8]) -> Option<usize> {
    bytes.windows(4).position(|window| window == b"\r\n\r\n").map(|at| at + 4)
}

/// The header lines of a head, names as they came.
fn header_lines(head: &[u8]) -> Vec<(String, String)> {
    String::from_utf8_lossy(head)
        .split("\r\n")
        .skip(1)
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
        .collect()
}

fn find_header<'a>(headers: &'a [(String, String)], name: &str) -> Option<&'a str> {
    headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
}

/// How a message's body ends, from its headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Framing {
    Length(usize),
    Chunked,
    Unsaid,
}

impl Framing {
    fn of(headers: &[(String, String)]) -> Framing {
        let chunked = find_header(headers, "transfer-encoding").is_some_and(|v| v.eq_ignore_ascii_case("chunked"));
        let length = find_header(headers, "content-length").and_then(|v| v.parse().ok());
        match (chunked, length) {
            (true, _) => Framing::Chunked,
            (false, Some(length)) => Framing::Length(length),
            (false, None) => Framing::Unsaid,
        }
    }
}
