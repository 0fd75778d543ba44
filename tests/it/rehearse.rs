//! `derbent rehearse`: what its clients lose is told by its kind, what is no loss is told apart, and the demo's services can be
//! rehearsed on.

use crate::support::{
    Answer, Client, DEADLINE, Gate, GoAway, H2Origin, Origin, Step, derbent, eventually, free_port, get, loopback,
};
use serde_json::Value;
use std::process::{Child, Command, Stdio};

/// Exit code and the JSON of a short rehearsal of one kind of client.
async fn rehearse(url: &str, kind: &str, more: &[&str]) -> (Option<i32>, Value) {
    let mix = format!("{kind}=2");
    let mut arguments = vec!["rehearse", url, "--mix", &mix, "--for", "1ms", "--at-least", "6", "--json"];
    arguments.extend(more);
    let output = derbent(arguments).await;
    let told = serde_json::from_slice(&output.stdout);
    (output.status.code(), told.unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr))))
}

/// All that is told as lost is of this kind, and something is.
fn all_lost_by(kind: &str, (code, told): &(Option<i32>, Value)) {
    let lost = told["lost"].as_u64().unwrap();
    assert!(*code == Some(1) && lost > 0 && told["losses"][kind] == lost, "{kind}: {code:?} {told}");
}

fn nothing_lost((code, told): &(Option<i32>, Value)) {
    assert!(*code == Some(0) && told["lost"] == 0 && told["answered"].as_u64() >= Some(6), "{code:?} {told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_server_that_answers_when_rehearsed_then_kept_connections_are_kept_and_new_ones_are_new() {
    let origin = Origin::named("fine").await;
    let kept = rehearse(&origin.url(), "reuse", &[]).await;
    nothing_lost(&kept);
    assert_eq!((origin.accepted(), &kept.1["connections"]), (2, &2.into()));
    let fresh = rehearse(&origin.url(), "fresh", &[]).await;
    nothing_lost(&fresh);
    assert_eq!(fresh.1["connections"], fresh.1["answered"]);
    let posted = rehearse(&origin.url(), "post", &["--post", "/here"]).await;
    nothing_lost(&posted);
    assert!(origin.hits("/here") >= 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_server_that_fails_when_rehearsed_then_each_loss_has_its_kind() {
    let refusing = format!("http://{}/", loopback(free_port()));
    all_lost_by("refused", &rehearse(&refusing, "reuse", &[]).await);
    let half = "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf";
    let origin = Origin::named("").await;
    let cases = [
        ("eof_fresh", "reuse", Answer::script([Step::Close])),
        ("eof_fresh", "fresh", Answer::script([Step::Close])),
        ("reset", "reuse", Answer::script([Step::Reset])),
        ("truncated", "reuse", Answer::script([Step::send(half), Step::Close])),
        ("truncated", "fresh", Answer::script([Step::send(half), Step::Reset])),
        ("status", "think", Answer::new(503, "", "no")),
        ("timeout", "reuse", Answer::ok("late").after([Step::Wait(Gate::closed())])),
        ("protocol", "reuse", Answer::script([Step::send("no HTTP at all\r\n\r\n"), Step::Close])),
    ];
    for (kind, clients, answer) in cases {
        origin.answer_by(move |_| answer.clone());
        all_lost_by(kind, &rehearse(&origin.url(), clients, &["--timeout", "500ms"]).await);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_kept_connection_when_its_second_request_is_not_answered_then_that_is_told_from_a_new_one() {
    let origin = Origin::start(|_| Answer::ok("first").then(Step::ReadBody)).await;
    let seen = std::sync::Mutex::new(std::collections::BTreeSet::new());
    origin.answer_by(move |request| match seen.lock().unwrap().insert(request.connection) {
        true => Answer::ok("first"),
        false => Answer::script([Step::Close]),
    });
    let (code, told) = rehearse(&origin.url(), "reuse", &[]).await;
    assert_eq!((code, &told["losses"]["eof_fresh"]), (Some(1), &0.into()), "{told}");
    assert!(told["losses"]["eof_reused"].as_u64() >= Some(2) && told["answered"].as_u64() >= Some(2), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn given_connections_that_close_between_requests_when_rehearsed_then_nothing_is_lost() {
    let origin = Origin::start(|_| Answer::new(200, "connection: close\r\n", "last").then(Step::Close)).await;
    let told = rehearse(&origin.url(), "reuse", &[]).await;
    nothing_lost(&told);
    assert_eq!(told.1["told_to_close"], told.1["answered"], "{}", told.1);
    // Closed without a word, long before the next request.
    origin.answer_by(|_| Answer::ok("fine").then(Step::Close));
    let told = rehearse(&origin.url(), "think", &[]).await;
    nothing_lost(&told);
    assert!(told.1["closed_idle"].as_u64() >= Some(4), "{}", told.1);
}

#[tokio::test(flavor = "multi_thread")]
async fn given_streams_refused_unprocessed_when_rehearsed_then_they_are_sent_again_and_not_lost() {
    // Six answers want at least this many streams, however slow all is.
    let origin = H2Origin::refusing(|stream| stream == 3).await;
    let refused = rehearse(&format!("http://{}/", origin.address()), "h2", &[]).await;
    nothing_lost(&refused);
    assert_eq!(refused.1["sent_again"], 1, "{}", refused.1);
    let origin = GoAway::after(2).await;
    let gone = rehearse(&format!("http://{}/", origin.address()), "h2", &[]).await;
    nothing_lost(&gone);
    assert!(gone.1["connections"].as_u64() >= Some(2), "{}", gone.1);
    let closing = Origin::start(|_| Answer::script([Step::Close])).await;
    assert_eq!(rehearse(&closing.url(), "h2", &[]).await.0, Some(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn given_wrong_arguments_when_rehearsed_then_usage() {
    for arguments in [
        &["http://a/", "--mix", "post=1"][..],
        &["https://a/"],
        &["https://a/", "--ca", "/nowhere.pem"],
        &["http://a/", "--post", "books", "--for", "1ms"],
        &["http://a/", "--mix", "reuse"],
        &[],
    ] {
        let output = derbent([&["rehearse"], arguments].concat()).await;
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(!output.stderr.is_empty() && output.stdout.is_empty(), "{arguments:?}");
    }
}

/// A part of the demo as its own process; killed when dropped.
struct Part(Child, u16);

impl Part {
    fn start(part: &str, more: &[&str]) -> Part {
        let port = free_port();
        let mut command = Command::new(env!("CARGO_BIN_EXE_derbent"));
        command.args(["demo", part, "--port", &port.to_string()]).args(more);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Part(command.spawn().expect("starting derbent"), port)
    }

    async fn catalog(more: &[&str]) -> Part {
        Part::named_catalog("catalog-1", more).await
    }

    async fn named_catalog(name: &str, more: &[&str]) -> Part {
        let part = Part::start("catalog", &[&["--name", name], more].concat());
        eventually(DEADLINE, "the catalog is ready", async || part.status("/ready").await == Some(200)).await;
        part
    }

    async fn status(&self, path: &str) -> Option<u16> {
        get(loopback(self.1), path).await.ok().map(|answer| answer.status)
    }

    fn end(&self) {
        let pid = self.0.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().expect("kill").success());
    }

    /// Open ones of the process.
    fn sockets(&self) -> usize {
        let descriptors = std::fs::read_dir(format!("/proc/{}/fd", self.0.id())).expect("a process that runs");
        let targets = descriptors.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
        targets.filter(|target| target.to_string_lossy().starts_with("socket:")).count()
    }

    fn url(&self) -> String {
        format!("http://{}/books", loopback(self.1))
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // Both fail only when it has ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_catalog_when_rehearsed_then_posts_and_websockets_have_their_echo() {
    let catalog = Part::catalog(&[]).await;
    let more = ["--post", "/books/echo", "--websocket", "/books/echo"];
    for kind in ["post", "websocket", "think"] {
        nothing_lost(&rehearse(&catalog.url(), kind, &more).await);
    }
    all_lost_by("status", &rehearse(&catalog.url(), "websocket", &["--websocket", "/books"]).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn given_websockets_that_are_held_when_the_server_stays_then_each_is_opened_once_and_else_each_loss_has_its_line()
{
    let mut catalog = Part::catalog(&[]).await;
    let held = rehearse(&catalog.url(), "held", &["--websocket", "/books/echo"]).await;
    nothing_lost(&held);
    assert_eq!(held.1["connections"], 2, "{}", held.1);
    let directory = tempfile::tempdir().unwrap();
    let (file, address) = (directory.path().join("losses"), loopback(catalog.1));
    let mut load = Command::new(env!("CARGO_BIN_EXE_derbent"));
    load.args(["rehearse", &catalog.url(), "--mix", "held=1", "--for", "1h", "--websocket", "/books/echo", "--losses"]);
    load.arg(&file).stdout(Stdio::null());
    let load = Part(load.spawn().expect("starting derbent"), 0);
    // Its one connection, as both ends see it.
    let mut held = None;
    eventually(DEADLINE, "it is open", async || {
        held = peers_of(address).pop();
        held.is_some()
    })
    .await;
    catalog.0.kill().unwrap();
    let read = || std::fs::read_to_string(&file).unwrap();
    eventually(DEADLINE, "it is lost, and nobody listens", async || read().lines().count() > 1).await;
    drop(load);
    let lines: Vec<Value> = read().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&lines[0]["client"], &lines[0]["loss"]), (&"held".into(), &"truncated".into()), "{lines:?}");
    assert_eq!(lines[0]["from"], held.unwrap().to_string(), "{lines:?}");
    assert_eq!((&lines[1]["loss"], &lines[1]["from"]), (&"refused".into(), &Value::Null), "{lines:?}");
}

/// Who is connected with this address of 127.0.0.1, by what the kernel says.
fn peers_of(address: std::net::SocketAddr) -> Vec<std::net::SocketAddr> {
    let table = std::fs::read_to_string("/proc/net/tcp").expect("Linux");
    let port = |end: &str| u16::from_str_radix(end.rsplit_once(':')?.1, 16).ok();
    let peers = table.lines().filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let established = *words.get(3)? == "01" && port(words[1])? == address.port();
        established.then(|| port(words[2]).map(loopback)).flatten()
    });
    peers.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_catalog_told_to_end_when_asked_then_not_ready_first_and_told_to_close_and_gone_last() {
    let mut catalog = Part::catalog(&[]).await;
    let mut kept = Client::connect(loopback(catalog.1)).await;
    assert_eq!(kept.get("/books", "").await.unwrap().header("connection"), None);
    catalog.end();
    eventually(DEADLINE, "not ready", async || {
        let answer = kept.get("/ready", "").await.unwrap();
        if answer.header("connection") == Some("close") {
            kept = Client::connect(loopback(catalog.1)).await;
        }
        answer.status == 503
    })
    .await;
    assert_eq!((catalog.status("/health").await, catalog.status("/books").await), (Some(200), Some(200)));
    eventually(DEADLINE, "the catalog ends", async || catalog.0.try_wait().unwrap().is_some()).await;
    assert!(catalog.0.wait().unwrap().success());
}

#[tokio::test(flavor = "multi_thread")]
async fn given_two_catalogs_behind_the_balancer_when_one_takes_its_leave_then_nothing_is_lost_unless_it_is_naive() {
    // What a naive one surely loses is what is under way when it cuts: requests that follow each other at once, and take a while.
    let cases = [(&[][..], "reuse=8,think=8,fresh=4", true), (&["--naive"][..], "reuse=16", false)];
    for (manner, mix, lossless) in cases {
        let mut going = Part::named_catalog("going", &[&["--delay", "500ms"], manner].concat()).await;
        let staying = Part::named_catalog("staying", &[]).await;
        let to = |part: &Part| format!("{0}=http://{0}/ready", loopback(part.1));
        let balancer = Part::start("balancer", &["--to", &to(&going), "--to", &to(&staying), "--every", "50ms"]);
        eventually(DEADLINE, "both are balanced to", async || {
            let mut names = Vec::new();
            for _ in 0..4 {
                names.push(match get(loopback(balancer.1), "/books").await {
                    Ok(answer) if answer.status == 200 => answer.header("x-catalog-instance").map(str::to_owned),
                    _ => None,
                });
            }
            let of = |name: &str| names.iter().filter(|named| named.as_deref() == Some(name)).count();
            (of("going"), of("staying")) == (2, 2)
        })
        .await;
        let mut command = Command::new(env!("CARGO_BIN_EXE_derbent"));
        command.args(["rehearse", &balancer.url(), "--mix", mix, "--for", "1h", "--json"]);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut load = Part(command.spawn().expect("starting derbent"), 0);
        eventually(DEADLINE, "both have clients", async || {
            [&going, &staying].iter().all(|part| peers_of(loopback(part.1)).len() >= 4) && load.sockets() >= 16
        })
        .await;
        going.end();
        eventually(DEADLINE, "it is gone", async || going.0.try_wait().unwrap().is_some()).await;
        load.end();
        let mut told = String::new();
        std::io::Read::read_to_string(load.0.stdout.as_mut().unwrap(), &mut told).unwrap();
        let told: Value = serde_json::from_str(&told).unwrap();
        assert_eq!(told["lost"] == 0, lossless, "{manner:?}: {told}");
        assert!(told["answered"].as_u64() > Some(50), "{told}");
    }
}
