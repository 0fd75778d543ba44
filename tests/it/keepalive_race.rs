//! The race for a connection: a destination closes each at exactly its keep-alive time, and clients think for about that long.
//! What hangs on no chance is in `keepalive`; here chance has many goes at the rest. `scripts/keepalive-race` runs the long one.

use crate::support::{Client, DEADLINE, Edge, free_port, loopback, one_destination};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

/// No later than this after its time it closes without a look.
const LATE: Duration = Duration::from_millis(20);

const METHODS: [&str; 3] = ["GET", "PUT", "POST"];

#[derive(Debug, Clone, Copy)]
struct Race {
    requests: usize,
    clients: usize,
    keep_alive: Duration,
    /// In the header `Keep-Alive`.
    says: Option<u64>,
}

/// What came of one.
#[derive(Debug, Default)]
struct Seen {
    /// By [`METHODS`].
    asked: [usize; 3],
    bad_gateway: [usize; 3],
    others: usize,
    posts_that_arrived_twice: usize,
    /// Requests that the destination had taken when it closed.
    lost: usize,
    new_connections: usize,
}

impl Seen {
    fn told(&self) -> Value {
        let by_method = |counts: &[usize; 3]| json!({ "GET": counts[0], "PUT": counts[1], "POST": counts[2] });
        json!({
            "requests": by_method(&self.asked),
            "502": by_method(&self.bad_gateway),
            "other_failures": self.others,
            "posts_twice": self.posts_that_arrived_twice,
            "lost_at_destination": self.lost,
            "connections": self.new_connections,
        })
    }

    /// Neither safe to repeat nor repeated.
    fn assert_safe(&self) {
        assert_eq!((self.bad_gateway[0], self.bad_gateway[1]), (0, 0), "GET and PUT: {self:?}");
        assert_eq!((self.others, self.posts_that_arrived_twice), (0, 0), "{self:?}");
    }
}

/// Answers 200 to all, and closes what is idle for `keep_alive`, at once. What has come by then is taken and not answered.
struct Destination {
    address: SocketAddr,
    /// By the number of the request.
    arrivals: Arc<Vec<AtomicU8>>,
    connections: Arc<AtomicUsize>,
    lost: Arc<AtomicUsize>,
}

impl Destination {
    async fn start(race: Race) -> Self {
        let listener = TcpListener::bind(loopback(free_port())).await.unwrap();
        let destination = Destination {
            address: listener.local_addr().unwrap(),
            arrivals: Arc::new((0..race.requests).map(|_| AtomicU8::new(0)).collect()),
            connections: Arc::default(),
            lost: Arc::default(),
        };
        let says = race.says.map_or(String::new(), |seconds| format!("keep-alive: timeout={seconds}\r\n"));
        let answer: Arc<str> = format!("HTTP/1.1 200 OK\r\n{says}content-length: 0\r\n\r\n").into();
        let (arrivals, connections, lost) =
            (destination.arrivals.clone(), destination.connections.clone(), destination.lost.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                connections.fetch_add(1, SeqCst);
                let (answer, arrivals, lost) = (answer.clone(), arrivals.clone(), lost.clone());
                tokio::spawn(async move {
                    let mut kept = Kept { stream, arrivals, unread: Vec::new() };
                    if kept.serve(race.keep_alive, &answer).await.is_some() && kept.take() {
                        lost.fetch_add(1, SeqCst);
                    }
                });
            }
        });
        destination
    }
}

struct Kept {
    stream: TcpStream,
    arrivals: Arc<Vec<AtomicU8>>,
    unread: Vec<u8>,
}

impl Kept {
    /// Some when the time is over, none when the other side closed. As with any server, it is for requests after the first.
    async fn serve(&mut self, keep_alive: Duration, answer: &str) -> Option<()> {
        let mut patience = DEADLINE;
        loop {
            let closes = Instant::now() + patience;
            loop {
                let over = tokio::select! {
                    biased;
                    () = sleep_until(closes) => true,
                    readable = self.stream.readable() => readable.is_err(),
                };
                // One that comes late, for want of a processor, looks first at what came meanwhile.
                if over && Instant::now() < closes + LATE {
                    return Some(());
                }
                match self.stream.try_read_buf(&mut self.unread) {
                    Ok(0) => return None,
                    Err(_) if over => return Some(()),
                    Err(error) if error.kind() != std::io::ErrorKind::WouldBlock => return None,
                    _ if self.take() => break,
                    _ => {}
                }
            }
            self.stream.write_all(answer.as_bytes()).await.ok()?;
            patience = keep_alive;
        }
    }

    /// Takes a whole request, also one that came while nobody looked.
    fn take(&mut self) -> bool {
        let _ = self.stream.try_read_buf(&mut self.unread);
        let Some(head) = self.unread.windows(4).position(|end| end == b"\r\n\r\n") else { return false };
        let length = if self.unread.starts_with(b"GET") { 0 } else { 4 };
        if self.unread.len() < head + 4 + length {
            return false;
        }
        let number = self.unread.split(|byte| b"/ ".contains(byte)).nth(2).map(String::from_utf8_lossy);
        let number: usize = number.and_then(|number| number.parse().ok()).expect("the number of a request");
        self.arrivals[number].fetch_add(1, SeqCst);
        self.unread.clear();
        true
    }
}

/// All clients ask at once, think for about the keep-alive time, and ask again.
async fn run(race: Race) -> Seen {
    let destination = Destination::start(race).await;
    let edge = Edge::start(&format!(
        "log: {{ level: warn }}\naccess_log: {{ format: json }}\n{}",
        one_destination(&format!("http://{}", destination.address), "health: { passive: off }")
    ))
    .await;
    let (mut seen, mut clients) = (Seen::default(), Vec::new());
    for _ in 0..race.clients {
        clients.push(edge.connect().await);
    }
    for round in 0..race.requests / race.clients {
        let mut asked = JoinSet::new();
        for (index, client) in clients.drain(..).enumerate() {
            let number = round * race.clients + index;
            asked.spawn(ask(client, edge.address(), METHODS[number % 3], number));
        }
        for (client, method, status) in asked.join_all().await {
            let method = METHODS.iter().position(|known| *known == method).unwrap();
            seen.asked[method] += 1;
            match status {
                200 => {}
                502 => seen.bad_gateway[method] += 1,
                _ => seen.others += 1,
            }
            clients.push(client);
        }
        // From 4 ms before to 4 ms after, as answers take some of it.
        sleep(race.keep_alive.saturating_sub(Duration::from_millis(4)) + Duration::from_millis(round as u64 % 9)).await;
    }
    let posts = destination.arrivals.iter().skip(2).step_by(3);
    seen.posts_that_arrived_twice = posts.filter(|times| times.load(SeqCst) > 1).count();
    seen.lost = destination.lost.load(SeqCst);
    if seen.bad_gateway[0] + seen.bad_gateway[1] > 0 {
        let lines = std::fs::read_to_string(edge.directory().join("stdout")).unwrap_or_default();
        lines
            .lines()
            .filter(|line| line.contains("502") && !line.contains("POST"))
            .for_each(|line| eprintln!("{line}"));
    }
    seen.new_connections = destination.connections.load(SeqCst);
    seen
}

async fn ask(mut client: Client, edge: SocketAddr, method: &'static str, number: usize) -> (Client, &'static str, u16) {
    let body = if method == "GET" { "\r\n" } else { "content-length: 4\r\n\r\nbody" };
    client.send(format!("{method} /{number} HTTP/1.1\r\nhost: h\r\n{body}")).await;
    let status = client.read_response().await.expect("an answer").status;
    if status != 200 {
        client = Client::connect(edge).await;
    }
    (client, method, status)
}

const SILENT: Race = Race { requests: 3_000, clients: 60, keep_alive: Duration::from_millis(50), says: None };

#[tokio::test(flavor = "multi_thread")]
async fn given_a_destination_that_closes_at_its_time_when_asked_about_then_gets_and_puts_pass_and_no_post_arrives_twice()
 {
    run(SILENT).await.assert_safe();
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_destination_that_says_its_time_when_asked_about_it_then_posts_pass_too() {
    let announced = Race { requests: 180, clients: 60, keep_alive: Duration::from_secs(2), says: Some(2) };
    let seen = run(announced).await;
    seen.assert_safe();
    assert_eq!((seen.bad_gateway[2], seen.lost), (0, 0), "{seen:?}");
}

/// `KEEPALIVE_RACE_REQUESTS` in all, of which the last fifth is announced; what came of them goes to `KEEPALIVE_RACE_REPORT`.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "minutes: scripts/keepalive-race"]
async fn whole() {
    let requests: usize = std::env::var("KEEPALIVE_RACE_REQUESTS").map_or(100_000, |it| it.parse().expect("a number"));
    let silent = Race { requests: requests * 4 / 5, clients: 200, keep_alive: Duration::from_millis(100), says: None };
    let announced = Race { requests: requests / 5, clients: 400, keep_alive: Duration::from_secs(2), says: Some(2) };
    let (silent, announced) = (run(silent).await, run(announced).await);
    if let Ok(report) = std::env::var("KEEPALIVE_RACE_REPORT") {
        let told = json!({ "silent": silent.told(), "announced": announced.told() });
        std::fs::write(report, format!("{told:#}\n")).expect("writing the report");
    }
    silent.assert_safe();
    announced.assert_safe();
    assert!(silent.bad_gateway[2] > 0, "the race was never met, so that nothing is shown: {silent:?}");
    assert_eq!((announced.bad_gateway[2], announced.lost), (0, 0), "{announced:?}");
}
