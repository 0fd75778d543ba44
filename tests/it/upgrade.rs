//! One process takes another's place: nothing is lost between them, and nothing changes when it fails.

use crate::support::{
    Answer, Client, DEADLINE, Edge, Gate, Origin, Step, derbent, eventually, free_port, get, in_time, loopback,
    one_destination,
};
use serde_json::json;
use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;
use tempfile::TempDir;

const SERVER: &str = "server: { upgrade_socket: up.sock, pid_file: pid, reload: { watch: false }, drain: { close_listeners: 1s, end: 8s, kill: 9s } }\n";
/// Of a successor that this test plays.
const HELLO: &str = "{\"derbent\": 1, \"pid\": 4194304}";
const SUCCESS: &str = "derbent_upgrades_total{result=\"success\"}";
const FAILED: &str = "derbent_upgrades_total{result=\"failed\"}";

async fn edge(origin: &Origin) -> Edge {
    Edge::start(&yaml(origin)).await
}

fn yaml(origin: &Origin) -> String {
    SERVER.to_owned() + &one_destination(&origin.url(), "health: { active: { type: tcp, interval: 1s } }")
}

/// With a drain that no machine is too slow for: whoever drains does not close its listeners before the test is over.
fn patient(yaml: &str) -> String {
    let patient = yaml.replace("close_listeners: 1s, end: 8s, kill: 9s", "close_listeners: 10m, end: 11m, kill: 12m");
    assert_ne!(patient, yaml);
    patient
}

/// Of the process that serves.
pub fn pid(edge: &Edge) -> u32 {
    let written = std::fs::read_to_string(edge.directory().join("pid")).expect("the pid file");
    written.trim().parse().expect("a number")
}

pub async fn ctl_upgrade(edge: &Edge) -> (Option<i32>, String) {
    let output = derbent(["ctl", "upgrade", "--admin", &edge.admin().to_string()]).await;
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (output.status.code(), text(output.stdout) + &text(output.stderr))
}

/// Ends a successor, which is no child of the test's, when the test does.
pub struct Successor(pub u32);

impl Successor {
    pub fn kill(&self, signal: &str) {
        let _ = Command::new("kill").args([signal, &self.0.to_string()]).status();
    }

    pub fn is_gone(&self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.0)).unwrap_or_default();
        stat.is_empty() || stat.contains(") Z ")
    }
}

impl Drop for Successor {
    fn drop(&mut self) {
        self.kill("-KILL");
    }
}

/// Clients that never ask twice, until told to stop.
struct Load {
    stop: Arc<AtomicBool>,
    asked: Arc<AtomicUsize>,
    clients: Vec<tokio::task::JoinHandle<()>>,
}

impl Load {
    fn on(address: SocketAddr) -> Load {
        let (stop, asked) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let clients = (0..12)
            .map(|n| {
                let (stop, asked) = (stop.clone(), asked.clone());
                tokio::spawn(async move {
                    while !stop.load(Ordering::SeqCst) {
                        connection(address, n % 3, &stop, &asked).await;
                    }
                })
            })
            .collect();
        Load { stop, asked, clients }
    }

    async fn stop(self) -> usize {
        self.stop.store(true, Ordering::SeqCst);
        for client in self.clients {
            client.await.expect("nothing was lost");
        }
        self.asked.load(Ordering::SeqCst)
    }
}

/// One connection: kept until it is told to close, kept with bodies and time to think, or for one request that comes late.
async fn connection(address: SocketAddr, kind: usize, stop: &AtomicBool, asked: &AtomicUsize) {
    let mut client = Client::try_connect(address).await.expect("the port is never dead");
    while !stop.load(Ordering::SeqCst) {
        if kind > 0 {
            tokio::time::sleep(Duration::from_millis(fastrand::u64(0..30))).await;
        }
        let body = if kind == 1 { "content-length: 5\r\n\r\nhello" } else { "\r\n" };
        let method = if kind == 1 { "POST" } else { "GET" };
        client.try_send(format!("{method} / HTTP/1.1\r\nhost: h\r\n{body}").as_bytes()).await.expect("sent");
        let answer = client.read_response().await.expect("answered");
        assert_eq!((answer.status, answer.text().as_str()), (200, "one"));
        asked.fetch_add(1, Ordering::SeqCst);
        if kind == 2 || answer.header("connection") == Some("close") {
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn given_load_when_the_process_is_upgraded_again_and_again_then_no_request_is_lost() {
    let origin = Origin::named("one").await;
    let mut edge = edge(&origin).await;
    assert_eq!(pid(&edge), edge.pid());
    let load = Load::on(edge.address());
    eventually(DEADLINE, "requests are coming", async || origin.hits("/") > 100).await;
    let (mut before, mut successors) = (edge.pid(), Vec::<Successor>::new());
    for _ in 0..3 {
        let (code, out) = ctl_upgrade(&edge).await;
        assert_eq!(code, Some(0), "{out}");
        let next = pid(&edge);
        assert_ne!(next, before, "the pid file is the successor's when that is told");
        assert!(
            out.starts_with(&format!("process {next} is ready and has taken over; process {before} drains")),
            "{out}"
        );
        let ready = get(edge.admin(), "/ready").await.expect("the admin listener is the successor's when that is told");
        assert_eq!(ready.status, 200);
        assert_eq!(edge.metric(SUCCESS).await, Some(1.0), "told by who took over");
        successors.push(Successor(next));
        before = next;
    }
    // All but the last, whose listeners stay open.
    assert_eq!(edge.ended().await.code(), Some(0));
    for old in &successors[..2] {
        eventually(DEADLINE, "the one before ends", async || old.is_gone()).await;
    }
    let asked = load.stop().await;
    assert!(asked > 500, "{asked} requests");
    let lines = edge.stderr();
    let count = |words: &str| lines.iter().filter(|line| line.contains(words)).count();
    assert_eq!((count("took over from process "), count("no request was cut")), (3, 3), "{lines:#?}");
    successors[2].kill("-TERM");
    eventually(DEADLINE, "the last one ends", async || successors[2].is_gone()).await;
    assert!(!edge.directory().join("pid").exists() && !edge.directory().join("up.sock").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_successor_that_cannot_start_when_upgraded_then_the_process_serves_on_and_the_next_attempt_works() {
    let origin = Origin::named("one").await;
    let mut edge = edge(&origin).await;
    edge.write("routes: { all: { cluster: nowhere } }\n");
    let (code, out) = ctl_upgrade(&edge).await;
    assert_eq!(code, Some(1), "{out}");
    assert!(out.contains("ended before it was ready (exit status: 1)") && out.contains("serves on"), "{out}");
    edge.logged(&["ERROR", "upgrade failed: process ", "this process serves on"]).await;
    assert_eq!((edge.get("/").await.text().as_str(), pid(&edge)), ("one", edge.pid()));
    assert_eq!((edge.metric(FAILED).await, edge.admin_get("/ready").await.status), (Some(1.0), 200));
    edge.write(&yaml(&origin));
    let (code, out) = ctl_upgrade(&edge).await;
    assert_eq!(code, Some(0), "{out}");
    assert_eq!(edge.ended().await.code(), Some(0));
    let successor = Successor(pid(&edge));
    assert_eq!(edge.get("/").await.text(), "one");
    drop(successor);
}

#[tokio::test(flavor = "multi_thread")]
async fn given_load_when_a_successor_is_told_to_end_or_killed_before_it_is_ready_then_no_request_is_lost() {
    let (hangs, never) = (Arc::<AtomicBool>::default(), Gate::closed());
    let (probes_hang, held) = (hangs.clone(), never.clone());
    let origin = Origin::start(move |request| match request.target().as_str() {
        "/health" if probes_hang.load(Ordering::SeqCst) => Answer::script([Step::Wait(held.clone())]),
        _ => Answer::ok("one"),
    })
    .await;
    let probes = "health: { active: { type: http, path: /health, interval: 60s, timeout: 60s } }";
    let edge = Edge::start(&(SERVER.to_owned() + &one_destination(&origin.url(), probes))).await;
    let load = Load::on(edge.address());
    hangs.store(true, Ordering::SeqCst);
    for (signal, failed) in [("-TERM", 1.0), ("-KILL", 2.0)] {
        let (mut child, candidate, _) = candidate(&edge).await;
        let before = edge.metric(FAILED).await.unwrap();
        candidate.kill(signal);
        edge.logged(&["ERROR", &format!("upgrade failed: process {} ended before it was ready", candidate.0)]).await;
        edge.counts(FAILED, before + 1.0).await;
        assert_eq!(before + 1.0, failed);
        eventually(DEADLINE, "it ends", async || child.try_wait().expect("our child").is_some()).await;
    }
    assert_eq!((pid(&edge), edge.admin_get("/ready").await.status), (edge.pid(), 200));
    assert!(load.stop().await > 0);
}

/// A successor that just begins.
fn taking_over(file: &Path, stderr: Stdio) -> Child {
    Command::new(env!("CARGO_BIN_EXE_derbent"))
        .args(["run".as_ref(), "--upgrade".as_ref(), "-c".as_ref(), file.as_os_str()])
        .stderr(stderr)
        .spawn()
        .expect("starting derbent")
}

/// A successor that has the sockets, and every line it logs.
async fn candidate(edge: &Edge) -> (Child, Successor, mpsc::Receiver<String>) {
    let file = edge.directory().join("derbent.yaml");
    let mut child = taking_over(&file, Stdio::piped());
    let candidate = Successor(child.id());
    let lines = BufReader::new(child.stderr.take().expect("piped above")).lines();
    let (says, told) = mpsc::channel();
    // Ends with the child. Nobody needs to hear all of it.
    std::thread::spawn(move || lines.map_while(Result::ok).for_each(|line| drop(says.send(line))));
    // It tells of its listeners once it has their sockets.
    let told = line_with("listener web", told).await;
    (child, candidate, told)
}

/// Waits for it.
async fn line_with(words: &'static str, told: mpsc::Receiver<String>) -> mpsc::Receiver<String> {
    let found = tokio::task::spawn_blocking(move || (told.iter().any(|line| line.contains(words)), told));
    let (is_there, told) = in_time(words, found).await.expect("no panic");
    assert!(is_there, "{words}");
    told
}

/// Says what a successor says, line by line, and hears as many.
fn successor(edge: &Edge, says: &[&str]) -> (UnixStream, Vec<String>) {
    converse(&edge.directory().join("up.sock"), says)
}

fn converse(socket: &Path, says: &[&str]) -> (UnixStream, Vec<String>) {
    let mut stream = UnixStream::connect(socket).expect("somebody listens");
    stream.set_read_timeout(Some(DEADLINE)).expect("a time limit");
    let mut hear = |says: &str| {
        stream.write_all(format!("{says}\n").as_bytes()).expect("said");
        let mut heard = Vec::new();
        while !heard.ends_with(b"\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).expect("an answer");
            heard.extend(byte);
        }
        String::from_utf8_lossy(&heard).into_owned()
    };
    let heard = says.iter().map(|says| hear(says)).collect();
    (stream, heard)
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_successor_that_is_lost_when_it_had_the_sockets_or_the_place_then_the_process_is_back() {
    let origin = Origin::named("one").await;
    let edge = Edge::start(&patient(&yaml(&origin))).await;
    let (stream, heard) = successor(&edge, &[HELLO]);
    assert!(heard[0].starts_with(".{") && heard[0].contains(&edge.address().to_string()), "{heard:?}");
    let second = successor(&edge, &[HELLO]).1;
    assert!(second[0].contains("another successor is on its way"), "{second:?}");
    drop(stream);
    edge.logged(&["ERROR", "process 4194304 ended before it was ready"]).await;
    edge.counts(FAILED, 1.0).await;
    assert_eq!(edge.admin_get("/ready").await.status, 200);
    let other = successor(&edge, &["{\"derbent\": 2, \"pid\": 4194304}"]).1;
    assert!(other[0].contains("another version"), "{other:?}");
    let (stream, heard) = successor(&edge, &[HELLO, "\"ready\""]);
    assert_eq!(heard[1], "\"yours\"\n");
    edge.logged(&["INFO", "draining: process 4194304 takes over"]).await;
    drop(stream);
    edge.logged(&["WARN", "no longer draining: the successor is gone"]).await;
    eventually(DEADLINE, "it has its admin listener back", async || {
        get(edge.admin(), "/ready").await.is_ok_and(|ready| ready.status == 200)
    })
    .await;
    let mut client = edge.connect().await;
    for _ in 0..2 {
        let answer = client.get("/", "").await.unwrap();
        assert_eq!((answer.text().as_str(), answer.header("connection")), ("one", Some("keep-alive")));
    }
    edge.counts(FAILED, 2.0).await;
    let socket = edge.directory().join("up.sock");
    eventually(DEADLINE, "somebody listens again", async || UnixStream::connect(&socket).is_ok()).await;
    eventually(DEADLINE, "the next one is welcome", async || successor(&edge, &[HELLO]).1[0].starts_with(".{")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_successor_that_is_killed_when_it_had_taken_over_then_the_port_stays_and_the_next_one_takes_over() {
    let origin = Origin::named("one").await;
    let edge = Edge::start(&patient(&yaml(&origin))).await;
    let (address, stop) = (edge.address(), Arc::<AtomicBool>::default());
    let stopped = stop.clone();
    // Fresh connections only: those that the successor has are lost with it, which is seen; a closed port is a panic.
    let asking = tokio::spawn(async move {
        let (mut answered, mut lost) = (0, 0);
        while !stopped.load(Ordering::SeqCst) {
            let mut client = Client::try_connect(address).await.expect("the port is never dead");
            let sent = client.try_send(b"GET / HTTP/1.1\r\nhost: h\r\n\r\n").await;
            let answer = match sent {
                Ok(()) => client.read_response().await,
                Err(error) => Err(error),
            };
            match answer {
                Ok(answer) => answered += usize::from(answer.status == 200),
                Err(_) => lost += 1,
            }
        }
        (answered, lost)
    });
    for killed in 1..=2 {
        let (code, out) = ctl_upgrade(&edge).await;
        assert_eq!(code, Some(0), "{out}");
        let next = out.split_whitespace().nth(1).and_then(|pid| pid.parse().ok());
        drop(Successor(next.expect("process PID is ready")));
        edge.logged(&["WARN", "no longer draining: the successor is gone"]).await;
        eventually(DEADLINE, "the one before is back", async || {
            let ready = get(edge.admin(), "/ready").await.is_ok_and(|ready| ready.status == 200);
            ready && pid(&edge) == edge.pid() && edge.metric(FAILED).await == Some(f64::from(killed))
        })
        .await;
    }
    let (code, out) = ctl_upgrade(&edge).await;
    assert_eq!(code, Some(0), "{out}");
    edge.counts(SUCCESS, 1.0).await;
    stop.store(true, Ordering::SeqCst);
    let (answered, lost) = asking.await.expect("the port is never dead");
    // One at a time is asked for, so that each end of a successor costs one at most.
    assert!(answered > 100 && lost <= 2, "{answered} answered, {lost} lost");
    drop(Successor(pid(&edge)));
}

#[tokio::test(flavor = "multi_thread")]
async fn given_nobody_to_take_over_from_when_started_so_then_it_says_so_and_ends() {
    let origin = Origin::named("one").await;
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("derbent.yaml");
    let run = async |yaml: String| {
        std::fs::write(&file, format!("admin: off\nlisteners: {{ web: \"127.0.0.1:1\" }}\n{yaml}")).unwrap();
        let output = derbent(["run".as_ref(), "--upgrade".as_ref(), "-c".as_ref(), file.as_os_str()]).await;
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, told) = run(yaml(&origin)).await;
    assert!(code == Some(3) && told.contains("cannot take over: ") && told.contains("up.sock: No such file"), "{told}");
    let (code, told) = run(one_destination(&origin.url(), "")).await;
    assert!(code == Some(3) && told.contains("cannot take over: server.upgrade_socket is not set"), "{told}");
    let plain = Edge::before(&origin).await;
    let (code, told) = ctl_upgrade(&plain).await;
    assert!(code == Some(1) && told.contains("server.upgrade_socket is not set, or"), "{told}");
}

/// What the explanation says of when and why, in both processes alike.
async fn since_and_why(edge: &Edge, id: &str) -> (Stamp, serde_json::Value) {
    let told = edge.admin_get(&format!("/api/v1/explain/app/{id}?format=json")).await.json();
    let since = told["since"].as_str().expect("it was something else").parse().expect("a time");
    let why = json!([told["why"], told["state"], told["penalty"], told["overrides"][0]["by"], told["marks"]]);
    (since, why)
}

type Stamp = jiff::Timestamp;

#[tokio::test(flavor = "multi_thread")]
async fn given_destinations_that_are_out_when_the_process_is_upgraded_under_load_then_its_successor_asks_none_of_them()
{
    let (mut a, b) = (Origin::named("ejected").await, Origin::named("drained").await);
    let (c, n) = (Origin::named("one").await, Origin::named("one").await);
    let destinations = format!(
        "a: \"{}\", b: \"{}\", c: \"{}\", n: {{ address: \"{}\", role: canary }}",
        a.url(),
        b.url(),
        c.url(),
        n.url()
    );
    let health = "passive: { detectors: [{ policy: ConsecutiveFailures, failures: 1 }], reactivation: { period: 1h } }";
    let mut edge = Edge::start(&format!(
        "{SERVER}routes: {{ all: {{ cluster: app }} }}\nclusters: {{ app: {{ load_balancing: RoundRobin, destinations: {{ {destinations} }}, \
         canary: {{ percent: 5% }}, health: {{ {health} }} }} }}\n"
    ))
    .await;
    a.stop().await;
    let ejected = "derbent_destination_ejected{cluster=\"app\",destination=\"a\"}";
    eventually(DEADLINE, "a is ejected", async || {
        edge.get("/").await;
        edge.metric(ejected).await == Some(1.0)
    })
    .await;
    a.restart().await;
    let admin = edge.admin().to_string();
    for order in [&["drain", "app", "b", "--for", "10m"][..], &["canary", "app", "50%"]] {
        assert!(derbent([&["ctl", "--admin", &admin][..], order].concat()).await.status.success());
    }
    let (before, hits) =
        ([since_and_why(&edge, "a").await, since_and_why(&edge, "b").await], (a.hits("/"), b.hits("/")));
    // Who is asked and should not be answers otherwise, which these clients notice.
    let load = Load::on(edge.address());
    let (code, out) = ctl_upgrade(&edge).await;
    assert_eq!(code, Some(0), "{out}");
    let _successor = Successor(pid(&edge));
    assert_eq!(edge.ended().await.code(), Some(0));
    assert!(load.stop().await > 0);
    edge.logged(&["INFO", "health taken over: 4 destinations, 2 of them out: app/a (passive), app/b (operator)"]).await;
    for (id, (since, why)) in ["a", "b"].into_iter().zip(before) {
        let after = since_and_why(&edge, id).await;
        assert_eq!(after.1, why);
        let moved = after.0.duration_since(since).as_secs_f64();
        assert!((-1.0..=DEADLINE.as_secs_f64()).contains(&moved), "{id}: {moved} s");
    }
    let explained = edge.admin_get("/api/v1/explain/app/a").await.text();
    assert!(
        explained.contains("failures in a row 1 ≥ 1") && explained.contains("next     half-open in 59m"),
        "{explained}"
    );
    assert_eq!((edge.metric(ejected).await, (a.hits("/"), b.hits("/"))), (Some(1.0), hits));
    edge.counts("derbent_health_taken_over_total{result=\"success\"}", 1.0).await;
    edge.counts("derbent_canary_share{cluster=\"app\"}", 0.5).await;
    assert!(derbent(["ctl", "--admin", &admin, "ready", "app", "b"]).await.status.success());
    eventually(DEADLINE, "b serves again", async || edge.get("/").await.text() == "drained").await;
}

/// What it heard up to `ready`, and what it hears from then on.
type Heard = (Vec<String>, Lines<BufReader<UnixStream>>);

/// A process that hands over no sockets, and says `answer` of health.
fn predecessor(socket: UnixListener, tells: &str, answer: &'static [u8]) -> std::thread::JoinHandle<Heard> {
    let listeners = format!("{{\"listeners\": [], \"pid\": 4194304{tells}}}\n");
    std::thread::spawn(move || {
        let (mut stream, _) = socket.accept().expect("a successor");
        stream.set_read_timeout(Some(DEADLINE)).expect("a time limit");
        let mut lines = BufReader::new(stream.try_clone().expect("a copy")).lines();
        let mut heard = Vec::new();
        while !heard.ends_with(&["\"ready\"".to_owned()]) {
            heard.push(lines.next().expect("more").expect("a line"));
            let says = match heard.last().map(String::as_str) {
                Some("\"health\"") => answer,
                Some("\"ready\"") => b"\"yours\"\n",
                _ => listeners.as_bytes(),
            };
            stream.write_all(says).expect("said");
        }
        (heard, lines)
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn given_health_that_cannot_be_taken_over_when_upgraded_then_it_is_found_out_anew_and_the_upgrade_goes_on() {
    let origin = Origin::named("one").await;
    for (tells, answer, why) in [
        (
            ", \"health\": true",
            &b"{\"bytes\": 15}\n{\"version\": 99}"[..],
            "it is of version 99, and this process knows 1",
        ),
        (", \"health\": true", b"{\"bytes\": 5}\nhello", "it is unreadable: "),
        (", \"health\": true", b"{\"refused\": \"too much\"}\n", "too much"),
        ("", b"", "it knows of no such thing"),
    ] {
        let directory = TempDir::new().unwrap();
        let before = predecessor(UnixListener::bind(directory.path().join("up.sock")).expect("bound"), tells, answer);
        let (file, port) = (directory.path().join("derbent.yaml"), free_port());
        let listens = format!("admin: off\nlisteners: {{ web: \"127.0.0.1:{port}\" }}\n");
        std::fs::write(&file, listens + &yaml(&origin)).unwrap();
        let mut child = taking_over(&file, Stdio::piped());
        let _successor = Successor(child.id());
        let told = BufReader::new(child.stderr.take().expect("piped above"));
        let told = tokio::task::spawn_blocking(move || {
            let mut lines = Vec::new();
            told.lines().map_while(Result::ok).find(|line| {
                lines.push(line.clone());
                line.contains("took over from process 4194304")
            });
            lines
        });
        let lines = in_time("it takes over", told).await.expect("no panic");
        let ignored = format!("health is found out anew, that of the process before is ignored: {why}");
        assert!(lines.iter().any(|line| line.contains("WARN") && line.contains(&ignored)), "{why} in\n{lines:#?}");
        assert_eq!(before.join().expect("no panic").0.len(), if tells.is_empty() { 2 } else { 3 });
        assert_eq!(get(loopback(port), "/").await.expect("an answer").text(), "one");
        child.kill().and_then(|()| child.wait()).expect("it ends");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_successor_that_said_that_it_leaves_when_it_is_gone_then_the_process_before_drains_on() {
    let origin = Origin::named("one").await;
    let short = yaml(&origin).replace("close_listeners: 1s, end: 8s", "close_listeners: 2s, end: 3s");
    for (says, is_back) in [
        (&["\"leaving\""][..], false),
        (&["\"leaving\"", "\"a word of a later release\"", "{\"x\": [\"leaving\"]}"], false),
        (&["\"leaving\"", "\"back\"", "\"leaving\""], false),
        (&["\"leaving\"", "\"back\""], true),
        (&["\"a word of a later release\""], true),
    ] {
        let mut edge = Edge::start(&if is_back { patient(&yaml(&origin)) } else { short.clone() }).await;
        let (mut stream, heard) = successor(&edge, &[HELLO, "\"ready\""]);
        assert_eq!(heard[1], "\"yours\"\n");
        for says in says {
            stream.write_all(format!("{says}\n").as_bytes()).expect("said");
        }
        drop(stream);
        if is_back {
            edge.logged(&["WARN", "no longer draining: the successor is gone"]).await;
            continue;
        }
        assert_eq!(edge.ended().await.code(), Some(0), "{says:?}");
        let lines = edge.stderr();
        assert!(!lines.iter().any(|line| line.contains("no longer draining")), "{says:?}: {lines:#?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_process_that_took_over_when_it_hands_on_or_drains_then_the_one_before_hears_of_it_before_anyone() {
    let origin = Origin::named("one").await;
    for signals in [&["-TERM", "-KILL"][..], &["-TERM", "-TERM"], &["-KILL"]] {
        let directory = TempDir::new().unwrap();
        let socket = directory.path().join("up.sock");
        let before = predecessor(UnixListener::bind(&socket).expect("bound"), "", b"");
        let file = directory.path().join("derbent.yaml");
        let listens = format!("admin: off\nlisteners: {{ web: \"127.0.0.1:{}\" }}\n", free_port());
        std::fs::write(&file, listens + &patient(&yaml(&origin))).unwrap();
        let mut child = taking_over(&file, Stdio::null());
        let process = Successor(child.id());
        let join = tokio::task::spawn_blocking(|| before.join().expect("no panic"));
        let (_, mut hears) = in_time("it takes over", join).await.expect("no panic");
        let pid = directory.path().join("pid");
        eventually(DEADLINE, "it has the place", async || pid.exists() && UnixStream::connect(&socket).is_ok()).await;
        let (next, heard) = converse(&socket, &[HELLO, "\"ready\""]);
        assert_eq!(heard[1], "\"yours\"\n");
        // It is there by now, or this waits for good.
        assert_eq!(hears.next().expect("a line").expect("in time"), "\"leaving\"");
        drop(next);
        assert_eq!(hears.next().expect("a line").expect("in time"), "\"back\"");
        process.kill(signals[0]);
        if let Some(second) = signals.get(1) {
            assert_eq!(hears.next().expect("a line").expect("in time"), "\"leaving\"");
            process.kill(second);
        }
        // Its stream ends with it, and before that the end by a second signal says so again.
        let last: Vec<String> = hears.map_while(Result::ok).collect();
        assert!(
            last.iter().all(|said| said == "\"leaving\"") && (signals.len() > 1 || last.is_empty()),
            "{signals:?}: {last:?}"
        );
        eventually(DEADLINE, "it ends", async || child.try_wait().expect("our child").is_some()).await;
    }
}

/// Its probes wait behind the gate from then on.
async fn hangs_when(hangs: &Arc<AtomicBool>, never: &Gate) -> Origin {
    let (hangs, never) = (hangs.clone(), never.clone());
    Origin::start(move |request| match request.target().as_str() {
        "/health" if hangs.load(Ordering::SeqCst) => Answer::ok("one").after([Step::Wait(never.clone())]),
        _ => Answer::ok("one"),
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_process_that_is_lost_when_a_successor_has_its_sockets_then_that_takes_over_from_the_one_that_is_back()
{
    let (hangs, never) = (Arc::<AtomicBool>::default(), Gate::closed());
    let origin = hangs_when(&hangs, &never).await;
    let probes = "health: { active: { type: http, path: /health, interval: 60s, timeout: 60s } }";
    let edge = Edge::start(&patient(&(SERVER.to_owned() + &one_destination(&origin.url(), probes)))).await;
    let (code, out) = ctl_upgrade(&edge).await;
    assert_eq!(code, Some(0), "{out}");
    let lost = Successor(pid(&edge));
    hangs.store(true, Ordering::SeqCst);
    let (_child, candidate, told) = candidate(&edge).await;
    drop(lost);
    edge.logged(&["WARN", "no longer draining: the successor is gone"]).await;
    never.open();
    line_with("took over from process ", told).await;
    edge.logged(&["INFO", &format!("draining: process {} takes over", candidate.0)]).await;
    eventually(DEADLINE, "the place is its own", async || pid(&edge) == candidate.0).await;
    assert_eq!(edge.get("/").await.text(), "one");
}

#[tokio::test(flavor = "multi_thread")]
async fn given_two_upgrades_in_a_row_when_the_one_in_the_middle_ends_first_then_only_the_last_one_serves() {
    let origin = Origin::named("one").await;
    let drains = |drain: &str| yaml(&origin).replace("close_listeners: 1s, end: 8s", drain);
    for is_killed in [false, true] {
        let mut edge = Edge::start(&drains("close_listeners: 6s, end: 7s")).await;
        edge.write(&drains("close_listeners: 0s, end: 500ms"));
        let mut processes = Vec::new();
        for _ in 0..2 {
            let (code, out) = ctl_upgrade(&edge).await;
            assert_eq!(code, Some(0), "{out}");
            processes.push(Successor(pid(&edge)));
        }
        if is_killed {
            processes[0].kill("-KILL");
        }
        eventually(DEADLINE, "the one in the middle is gone", async || processes[0].is_gone()).await;
        assert_eq!(edge.ended().await.code(), Some(0));
        let lines = edge.stderr();
        assert!(!lines.iter().any(|line| line.contains("no longer draining")), "{lines:#?}");
        assert_eq!((pid(&edge), edge.get("/").await.text().as_str()), (processes[1].0, "one"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn given_upgrades_in_a_row_when_processes_are_lost_then_one_is_back_when_all_after_it_are_gone_and_not_before() {
    let origin = Origin::named("one").await;
    let edge = Edge::start(&patient(&yaml(&origin))).await;
    let first = edge.pid();
    let upgrade = async || {
        let before = pid(&edge);
        let (code, out) = ctl_upgrade(&edge).await;
        let next = pid(&edge);
        let said = format!("process {next} is ready and has taken over; process {before} drains");
        assert!(code == Some(0) && out.starts_with(&said), "{out}");
        Successor(next)
    };
    let lose = async |lost: &Successor| {
        lost.kill("-KILL");
        eventually(DEADLINE, "it is gone", async || lost.is_gone()).await;
    };
    let withdrawn = |pid: u32| {
        edge.stderr().iter().filter(|line| line.contains(&format!("[{pid}] derbent no longer draining"))).count()
    };
    let back = async |who: u32, times: usize| {
        eventually(DEADLINE, "it is back", async || {
            withdrawn(who) == times
                && pid(&edge) == who
                && get(edge.admin(), "/ready").await.is_ok_and(|it| it.status == 200)
        })
        .await;
        assert_eq!(edge.get("/").await.text(), "one");
    };
    // From the oldest to the latest.
    let (second, third) = (upgrade().await, upgrade().await);
    lose(&second).await;
    let fourth = upgrade().await;
    lose(&third).await;
    assert_eq!(withdrawn(first), 0, "{:#?}", edge.stderr());
    lose(&fourth).await;
    back(first, 1).await;
    // From the latest to the oldest.
    let (second, third) = (upgrade().await, upgrade().await);
    lose(&third).await;
    back(second.0, 1).await;
    assert_eq!(withdrawn(first), 1, "{:#?}", edge.stderr());
    lose(&second).await;
    back(first, 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn given_upgrades_in_a_row_when_the_last_process_drains_then_it_says_so_to_all_before_it() {
    let origin = Origin::named("one").await;
    let directory = TempDir::new().unwrap();
    let (socket, file) = (directory.path().join("up.sock"), directory.path().join("derbent.yaml"));
    let before = predecessor(UnixListener::bind(&socket).expect("bound"), "", b"");
    let listens = format!("admin: off\nlisteners: {{ web: \"127.0.0.1:{}\" }}\n", free_port());
    std::fs::write(&file, listens + &patient(&yaml(&origin))).unwrap();
    let written = || std::fs::read_to_string(directory.path().join("pid")).unwrap_or_default();
    let mut processes = Vec::new();
    for _ in 0..2 {
        let mut child = taking_over(&file, Stdio::null());
        processes.push((Successor(child.id()), std::thread::spawn(move || child.wait())));
        let name = format!("{}\n", processes.last().expect("pushed above").0.0);
        eventually(DEADLINE, "it has the place", async || written() == name && UnixStream::connect(&socket).is_ok())
            .await;
    }
    let (_, mut hears) = before.join().expect("no panic");
    processes[1].0.kill("-TERM");
    assert_eq!(hears.next().expect("a line").expect("in time"), "\"leaving\"");
    processes.iter().for_each(|(process, _)| process.kill("-KILL"));
    assert!(hears.next().is_none_or(|said| said.is_err()), "the last word");
    processes.into_iter().for_each(|(_, ended)| drop(ended.join()));
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_directory_that_is_away_when_a_successor_takes_over_then_it_has_what_belongs_to_the_place_later() {
    let (hangs, never) = (Arc::<AtomicBool>::default(), Gate::closed());
    let origin = hangs_when(&hangs, &never).await;
    let directory = TempDir::new().unwrap();
    let (run, away) = (directory.path().join("run"), directory.path().join("away"));
    std::fs::create_dir(&run).unwrap();
    let (socket, pid_file) = (run.join("up.sock"), run.join("pid"));
    let server = SERVER.replace("up.sock", &socket.display().to_string());
    let server = server.replace("pid_file: pid", &format!("pid_file: {}", pid_file.display()));
    let probes = "health: { active: { type: http, path: /health, interval: 60s, timeout: 60s } }";
    let edge = Edge::start(&patient(&(server + &one_destination(&origin.url(), probes)))).await;
    hangs.store(true, Ordering::SeqCst);
    let (_child, candidate, told) = candidate(&edge).await;
    std::fs::rename(&run, &away).unwrap();
    never.open();
    let told = line_with("pid: No such file or directory (os error 2); it is tried again", told).await;
    let told = line_with("up.sock: No such file or directory (os error 2); it is tried again", told).await;
    assert_eq!(edge.get("/").await.text(), "one");
    std::fs::rename(&away, &run).unwrap();
    line_with("it could be had at last", line_with("it could be had at last", told).await).await;
    assert_eq!(std::fs::read_to_string(&pid_file).unwrap(), format!("{}\n", candidate.0));
    assert!(converse(&socket, &[HELLO]).1[0].starts_with(".{"));
}
