//! Trying again, seen from both sides: what clients get, and what arrives where, how often.

use crate::support::{Answer, Client, DEADLINE, Edge, Gate, Origin, Response, Step, eventually, free_port, loopback};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Before destinations `a`, `b` …; `more` are further keys of the cluster, in flow style.
async fn before(urls: &[String], more: &str) -> Edge {
    let destinations: Vec<String> =
        ["a", "b", "c"].iter().zip(urls).map(|(id, url)| format!("{id}: \"{url}\"")).collect();
    let destinations = destinations.join(", ");
    Edge::start(&format!(
        "routes: {{ all: {{ cluster: app }} }}\nclusters: {{ app: {{ destinations: {{ {destinations} }}, {more} }} }}\n"
    ))
    .await
}

/// The first of the names comes first, as long as it may.
const IN_ORDER: &str = "load_balancing: FirstAlphabetical";

fn urls(origins: &[Origin]) -> Vec<String> {
    origins.iter().map(Origin::url).collect()
}

fn retries(reason: &str) -> String {
    format!("derbent_upstream_retries_total{{cluster=\"app\",reason=\"{reason}\"}}")
}

fn denied(reason: &str) -> String {
    format!("derbent_upstream_retries_denied_total{{cluster=\"app\",reason=\"{reason}\"}}")
}

async fn ask(edge: &Edge, method: &str, path: &str, body: &str) -> Response {
    let mut client = edge.connect().await;
    let length = body.len();
    client.send(format!("{method} {path} HTTP/1.1\r\nhost: h\r\ncontent-length: {length}\r\n\r\n{body}")).await;
    client.read_response().await.expect("an answer")
}

/// How often each target arrived, of those that begin with `prefix`.
fn arrivals(origins: &[Origin], prefix: &str) -> HashMap<String, usize> {
    let mut arrivals = HashMap::new();
    let targets = origins.iter().flat_map(Origin::requests).map(|request| request.target());
    targets.filter(|target| target.starts_with(prefix)).for_each(|target| *arrivals.entry(target).or_default() += 1);
    arrivals
}

/// Twenty clients, every second of which posts, until `stop`; each request has a path of its own.
struct Load {
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicUsize>,
    clients: Vec<tokio::task::JoinHandle<Vec<(&'static str, u16)>>>,
}

impl Load {
    fn on(edge: &Edge) -> Load {
        let (stop, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let clients = (0..20).map(|client| {
            let (address, stop, answered) = (edge.address(), stop.clone(), answered.clone());
            tokio::spawn(async move {
                let method = if client % 2 == 0 { "GET" } else { "POST" };
                let (mut failed, mut number) = (Vec::new(), 0);
                let mut connection = Client::connect(address).await;
                while !stop.load(Ordering::SeqCst) {
                    number += 1;
                    let target = format!("/{method}/{client}-{number}");
                    let length = if method == "POST" { "content-length: 4\r\n\r\nbody" } else { "\r\n" };
                    connection.send(format!("{method} {target} HTTP/1.1\r\nhost: h\r\n{length}")).await;
                    let status = connection.read_response().await.expect("an answer").status;
                    if status != 200 {
                        failed.push((method, status));
                        connection = Client::connect(address).await;
                    }
                    answered.fetch_add(1, Ordering::SeqCst);
                }
                failed
            })
        });
        Load { clients: clients.collect(), stop, answered }
    }

    async fn answered(&self, more: usize) {
        let before = self.answered.load(Ordering::SeqCst);
        eventually(DEADLINE, "requests are answered", async || self.answered.load(Ordering::SeqCst) >= before + more)
            .await;
    }

    /// What was not answered with 200.
    async fn end(self) -> Vec<(&'static str, u16)> {
        self.stop.store(true, Ordering::SeqCst);
        let mut failed = Vec::new();
        for client in self.clients {
            failed.extend(client.await.expect("a client"));
        }
        failed
    }
}

async fn one_of_three_is_killed(warm: bool, more: &str) {
    let mut origins = [Origin::named("a").await, Origin::named("b").await, Origin::named("c").await];
    let edge = before(&urls(&origins), more).await;
    if !warm {
        origins[0].stop().await;
    }
    let load = Load::on(&edge);
    load.answered(500).await;
    if warm {
        origins[0].stop().await;
    }
    load.answered(500).await;
    let failed = load.end().await;
    let posts = failed.iter().filter(|(method, _)| *method == "POST").count();
    assert_eq!(failed.len() - posts, 0, "{failed:?}");
    // A post that the dead one may have taken is not sent again; each of ten clients had one under way at most.
    assert!(posts <= if warm { 10 } else { 0 }, "{failed:?}");
    for (target, times) in arrivals(&origins, "/POST/") {
        assert_eq!(times, 1, "{target}");
    }
    if !warm {
        assert!(edge.metric(&retries("refused")).await > Some(0.0));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn row_1_given_three_when_one_is_killed_under_load_then_no_get_fails_and_no_post_arrives_twice() {
    one_of_three_is_killed(true, "health: {}").await;
    one_of_three_is_killed(true, "health: { active: { type: tcp, interval: 100ms } }").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn given_three_when_one_is_dead_from_the_start_then_nothing_fails() {
    one_of_three_is_killed(false, "health: {}").await;
    one_of_three_is_killed(false, "health: { active: { type: tcp, interval: 100ms } }").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn given_one_that_resets_what_it_accepted_when_asked_then_only_what_may_be_sent_twice_is() {
    let origins = [Origin::start(|_| Answer::script([Step::Reset])).await, Origin::named("b").await];
    // Half of all is tried again here: more than the default budget holds.
    let more = "load_balancing: RoundRobin, health: { passive: off }, retry: { budget: { percent: 100% } }";
    let edge = before(&urls(&origins), more).await;
    for number in 0..6 {
        for (method, body) in [("GET", ""), ("HEAD", ""), ("OPTIONS", ""), ("PUT", "body"), ("DELETE", "")] {
            let mut client = edge.connect().await;
            let length = body.len();
            let path = format!("/again/{number}");
            client.send(format!("{method} {path} HTTP/1.1\r\nhost: h\r\ncontent-length: {length}\r\n\r\n{body}")).await;
            assert_eq!(client.read_head().await.unwrap().status, 200, "{method}");
        }
        for method in ["POST", "PATCH"] {
            ask(&edge, method, &format!("/once/{method}-{number}"), "body").await;
        }
    }
    assert!(origins[0].hits("/again/") > 0 && origins[0].hits("/once/") > 0, "it is asked");
    for (target, times) in arrivals(&origins, "/once/") {
        assert_eq!(times, 1, "{target}");
    }
    edge.counts(&denied("method"), origins[0].hits("/once/") as f64).await;
    edge.counts(&retries("reset"), origins[0].hits("/again/") as f64).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn given_statuses_in_on_when_answered_then_another_is_asked_and_the_last_answer_passes_unchanged() {
    let busy = |who| Origin::start(move |_| Answer::new(503, "x-own: yes\r\n", who));
    let origins = [busy("a").await, Origin::named("b").await];
    let on = format!("{IN_ORDER}, retry: {{ on: [\"503\"] }}");
    let edge = before(&urls(&origins), &on).await;
    for _ in 0..8 {
        assert_eq!(edge.get("/").await.text(), "b");
    }
    assert_eq!(origins[0].hits("/"), 8);
    let put = ask(&edge, "PUT", "/put", "body").await;
    assert_eq!((put.text().as_str(), origins[1].requests().last().unwrap().body.as_slice()), ("b", &b"body"[..]));
    let post = ask(&edge, "POST", "/post", "body").await;
    assert_eq!((post.status, post.header("x-own"), post.text().as_str()), (503, Some("yes"), "a"));
    edge.counts(&retries("status"), 9.0).await;
    edge.counts(&denied("method"), 1.0).await;

    let origins = [busy("a").await, busy("b").await, busy("c").await];
    let edge = before(&urls(&origins), &on).await;
    let answer = edge.get("/").await;
    assert_eq!((answer.status, answer.header("x-own"), answer.text().as_str()), (503, Some("yes"), "c"));
    assert_eq!(origins.each_ref().map(|origin| origin.hits("/")), [1, 1, 1]);
    edge.counts(&denied("limit"), 1.0).await;
    for id in ["a", "b", "c"] {
        let series =
            format!("derbent_upstream_requests_total{{cluster=\"app\",destination=\"{id}\",code_class=\"5xx\"}}");
        edge.counts(&series, 1.0).await;
    }
}

/// The head and `first` bytes of the body are sent, the first destination dies, and then the rest is sent.
async fn dying_mid_body(size: usize, first: usize) -> (Edge, [Origin; 2], Response, Vec<u8>) {
    let (gate, body) = (Gate::closed(), (0..size).map(|at| (at * 7 % 251) as u8).collect::<Vec<u8>>());
    let dies = gate.clone();
    let script = move |_: &_| Answer::script([Step::Wait(dies.clone()), Step::Reset]);
    let origins = [Origin::start(script).await, Origin::named("b").await];
    let edge = before(&urls(&origins), IN_ORDER).await;
    let mut client = edge.connect().await;
    client.send(format!("PUT /put HTTP/1.1\r\nhost: h\r\ncontent-length: {size}\r\n\r\n")).await;
    client.send(&body[..first]).await;
    eventually(DEADLINE, "the first is asked", async || origins[0].hits("/put") == 1).await;
    gate.open();
    // Not a fact of the test's: an answer may be there before the rest is sent.
    let _ = client.try_send(&body[first..]).await;
    let answer = client.read_response().await.expect("an answer");
    (edge, origins, answer, body)
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_body_up_to_64_kib_when_its_destination_dies_in_it_then_it_arrives_whole_at_the_second() {
    for size in [1, 2, 1_000, 16_384, 65_535, 65_536] {
        for first in [0, size / 2, size] {
            let (_edge, origins, answer, body) = dying_mid_body(size, first).await;
            assert_eq!((answer.status, answer.text().as_str()), (200, "b"), "{first} of {size}");
            let arrived = origins[1].requests();
            assert!(arrived.len() == 1 && arrived[0].complete && arrived[0].body == body, "{first} of {size}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_larger_body_when_its_destination_dies_in_it_then_it_is_sent_once_and_counted() {
    let gate = Gate::closed();
    let dies = gate.clone();
    let script = move |_: &_| Answer::script([Step::ReadBody, Step::Wait(dies.clone()), Step::Reset]);
    let origins = [Origin::start(script).await, Origin::named("b").await];
    let edge = before(&urls(&origins), IN_ORDER).await;
    let mut client = edge.connect().await;
    let body = "x".repeat(65_537);
    client.send(format!("PUT /put HTTP/1.1\r\nhost: h\r\ncontent-length: {}\r\n\r\n{body}", body.len())).await;
    eventually(DEADLINE, "it is there", async || origins[0].requests().first().is_some_and(|it| it.complete)).await;
    gate.open();
    assert_eq!(client.read_response().await.unwrap().status, 502);
    assert_eq!(origins[1].requests().len(), 0);
    edge.counts(&denied("body_sent"), 1.0).await;

    // What was never sent is sent elsewhere, whatever its size.
    let edge = before(&[format!("http://{}", loopback(free_port())), origins[1].url()], IN_ORDER).await;
    let body = "x".repeat(1_000_000);
    assert_eq!(ask(&edge, "POST", "/post", &body).await.text(), "b");
    assert!(origins[1].requests()[0].body == body.as_bytes());
}

#[tokio::test(flavor = "multi_thread")]
async fn given_all_are_down_when_asked_by_many_then_attempts_stay_within_the_budget_and_all_are_answered() {
    let dead: Vec<String> = (0..3).map(|_| format!("http://{}", loopback(free_port()))).collect();
    let began = Instant::now();
    let edge = before(&dead, "health: { passive: off }").await;
    let mut clients = Vec::new();
    for _ in 0..10 {
        let address = edge.address();
        clients.push(tokio::spawn(async move {
            for _ in 0..100 {
                let mut client = Client::connect(address).await;
                assert_eq!(client.get("/", "").await.expect("an answer").status, 502);
            }
        }));
    }
    for client in clients {
        client.await.expect("each is answered");
    }
    let elapsed = began.elapsed().as_secs_f64();
    let mut attempts = 0.0;
    for id in ["a", "b", "c"] {
        let series =
            format!("derbent_upstream_errors_total{{cluster=\"app\",destination=\"{id}\",reason=\"refused\"}}");
        attempts += edge.metric(&series).await.unwrap();
    }
    let (made, missed) = (edge.metric(&retries("refused")).await, edge.metric(&denied("budget")).await);
    assert_eq!(made, Some(attempts - 1_000.0));
    assert!(attempts <= 1.2 * 1_000.0 + 10.0 * (elapsed + 1.0), "{attempts} in {elapsed} s");
    assert!(missed > Some(0.0), "{attempts} in {elapsed} s");
}

#[tokio::test(flavor = "multi_thread")]
async fn given_no_other_left_when_it_fails_then_again_or_with_repeat_off_not_at_all() {
    let dead = [format!("http://{}", loopback(free_port())), format!("http://{}", loopback(free_port()))];
    for (keys, attempts, reason) in
        [("attempts: 5", 5.0, "limit"), ("attempts: 5, repeat: false", 2.0, "no_destination")]
    {
        let edge = before(&dead, &format!("{IN_ORDER}, retry: {{ {keys} }}")).await;
        assert_eq!(edge.get("/").await.status, 502);
        edge.counts(&retries("refused"), attempts - 1.0).await;
        edge.counts(&denied(reason), 1.0).await;
    }
    let edge = before(&dead, "retry: off").await;
    assert_eq!(edge.get("/").await.status, 502);
    edge.counts(&retries("refused"), 0.0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn given_transforms_when_tried_again_then_each_attempt_starts_from_the_clients_request() {
    let origins = [Origin::start(|_| Answer::script([Step::ReadBody, Step::Reset])).await, Origin::named("b").await];
    let edge = Edge::start(&format!(
        "routes: {{ all: {{ cluster: app, transforms: [{{ path_remove_prefix: /api }}] }} }}\n\
         clusters: {{ app: {{ {IN_ORDER}, destinations: {{ a: \"{}/one\", b: \"{}/two\" }} }} }}\n",
        origins[0].url(),
        origins[1].url()
    ))
    .await;
    assert_eq!(ask(&edge, "PUT", "/api/x?y", "body").await.text(), "b");
    let [first, second] = origins.each_ref().map(|origin| origin.requests().remove(0));
    assert_eq!((first.target().as_str(), second.target().as_str()), ("/one/x?y", "/two/x?y"));
    let names = |it: &[(String, String)]| it.iter().map(|(name, _)| name.to_ascii_lowercase()).collect::<Vec<_>>();
    assert_eq!(names(&first.headers()), names(&second.headers()));
    assert_eq!(first.header("x-request-id"), second.header("x-request-id"));
    assert_eq!(second.header("host"), Some(origins[1].address().to_string()));
    assert_eq!((first.body, second.body), (b"body".to_vec(), b"body".to_vec()));
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_delay_or_a_short_retry_after_when_tried_again_then_it_waits_for_so_long() {
    let number = AtomicUsize::new(0);
    let once = Origin::start(move |_| match number.fetch_add(1, Ordering::SeqCst) % 2 {
        0 => Answer::new(503, "retry-after: 1\r\n", ""),
        _ => Answer::ok("fine"),
    })
    .await;
    let other = Origin::named("other").await;
    for (urls, keys, least) in [
        (vec![once.url()], "on: [\"503\"]", Duration::from_secs(1)),
        (vec![once.url(), other.url()], "on: [\"503\"], delay: 300ms", Duration::from_millis(300)),
    ] {
        let edge = before(&urls, &format!("{IN_ORDER}, retry: {{ {keys} }}")).await;
        let began = Instant::now();
        assert_eq!(edge.get("/").await.status, 200);
        assert!(began.elapsed() >= least, "{keys}: {:?}", began.elapsed());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_place_for_one_request_when_a_status_is_tried_again_at_the_same_destination_then_its_own_place_serves()
{
    let number = AtomicUsize::new(0);
    let third = Origin::start(move |_| match number.fetch_add(1, Ordering::SeqCst) % 3 {
        2 => Answer::ok("fine"),
        _ => Answer::new(503, "", ""),
    })
    .await;
    let over = Origin::named("over").await;
    for (spare, queue) in [("", ""), ("", "queue: { max: 9, deadline: 9s }, "), ("over", "")] {
        let spare = match spare {
            "" => String::new(),
            _ => format!(", over: {{ address: \"{}\", role: failover }}", over.url()),
        };
        let edge = Edge::start(&format!(
            "routes: {{ all: {{ cluster: app }} }}\nclusters: {{ app: {{ {queue}destinations: {{ a: {{ address: \"{}\", \
             max_requests: 1 }}{spare} }}, retry: {{ on: 503, budget: {{ percent: 100% }} }} }} }}\n",
            third.url()
        ))
        .await;
        let answer = edge.get("/").await;
        assert_eq!((answer.status, answer.text().as_str()), (200, "fine"), "{queue}{spare}");
        edge.counts(&retries("status"), 2.0).await;
    }
    assert_eq!((third.hits("/"), over.hits("/")), (9, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_retry_after_when_another_destination_is_left_then_nobody_waits_for_it() {
    let busy = Origin::start(|_| Answer::new(503, "retry-after: 1\r\n", "")).await;
    let other = Origin::named("b").await;
    let more = format!("{IN_ORDER}, retry: {{ on: 503, budget: {{ percent: 100% }} }}");
    let edge = before(&[busy.url(), other.url()], &more).await;
    let began = Instant::now();
    for _ in 0..30 {
        assert_eq!(edge.get("/").await.text(), "b");
    }
    assert_eq!(busy.hits("/"), 30);
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn given_an_upgrade_when_it_fails_then_again_only_while_nothing_was_sent() {
    const UPGRADE: &str = "GET /ws HTTP/1.1\r\nhost: h\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n";
    let tunnel = Origin::start(|_| Answer::upgrade("websocket")).await;
    let edge = before(&[format!("http://{}", loopback(free_port())), tunnel.url()], IN_ORDER).await;
    let mut client = edge.connect().await;
    client.send(UPGRADE).await;
    assert_eq!(client.read_head().await.unwrap().status, 101);
    client.send("hello").await;
    assert_eq!(client.read_exact(5).await.unwrap(), b"hello");

    let resets = Origin::start(|_| Answer::script([Step::Reset])).await;
    let edge = before(&[resets.url(), tunnel.url()], IN_ORDER).await;
    let mut client = edge.connect().await;
    client.send(UPGRADE).await;
    assert_eq!(client.read_head().await.unwrap().status, 502);
    assert_eq!(tunnel.hits("/ws"), 1);
    edge.counts(&denied("method"), 1.0).await;
}
