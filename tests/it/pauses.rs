//! The rest before another attempt: nobody's place is kept, who gets it is known when it is over, and a client that is gone, or out of
//! time, waits for nothing. And what is no end of recovery: an interim answer that was passed on.

use crate::support::{
    Answer, Client, DEADLINE, Edge, H2Client, Origin, Step, derbent, eventually, free_port, get, loopback,
};
use http::Request;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::time::Duration;

const IN_FLIGHT: &str = "derbent_http_requests_in_flight{listener=\"web\"}";

/// Before `a`, which is asked first, and `b`, which takes one request; with an access log and these keys of the route.
async fn before(a: &Origin, b: &Origin, route: &str, retry: &str) -> (Edge, SocketAddr) {
    let address = loopback(free_port());
    let edge = Edge::start(&format!(
        "listeners: {{ web: {{ address: \"{address}\", protocols: [http1, h2c] }} }}\n\
         access_log: {{ path: access }}\nroutes: {{ all: {{ cluster: app{route} }} }}\n\
         clusters: {{ app: {{ load_balancing: FirstAlphabetical, retry: {retry}, \
         destinations: {{ a: \"{}\", b: {{ address: \"{}\", max_requests: 1 }} }} }} }}\n",
        a.url(),
        b.url()
    ))
    .await;
    (edge, address)
}

async fn busy() -> Origin {
    Origin::start(|_| Answer::new(503, "", "a is busy")).await
}

/// The only line of the access log.
async fn line(edge: &Edge) -> Value {
    let mut text = String::new();
    eventually(DEADLINE, "the access log has its line", async || {
        text = std::fs::read_to_string(edge.directory().join("access")).unwrap_or_default();
        text.ends_with('\n')
    })
    .await;
    assert_eq!(text.lines().count(), 1, "{text}");
    serde_json::from_str(&text).expect("JSON")
}

/// Destination and outcome of each attempt of a line.
fn attempts(line: &Value) -> Vec<(&str, &Value)> {
    let attempts = line["attempts"].as_array().expect("attempts");
    attempts.iter().map(|attempt| (attempt["destination"].as_str().unwrap(), &attempt["outcome"])).collect()
}

async fn in_the_pause(edge: &Edge, a: &Origin) {
    eventually(DEADLINE, "a has answered", async || {
        a.hits("/") == 1 && edge.destination("app", "a").await["in_flight"] == 0
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_pause_when_another_comes_then_the_place_is_free_and_what_is_in_maintenance_by_then_gets_nothing() {
    let (a, b) = (busy().await, Origin::named("b").await);
    let (edge, web) = before(&a, &b, "", "{ on: 503, delay: 5s, repeat: false }").await;
    let waits = tokio::spawn({
        let mut client = Client::connect(web).await;
        async move { client.get("/", "").await.expect("an answer").status }
    });
    in_the_pause(&edge, &a).await;
    assert_eq!(edge.destination("app", "b").await["in_flight"], 0);
    let admin = edge.admin().to_string();
    let order = derbent(["ctl", "--admin", &admin, "maint", "app", "b"]).await;
    assert!(order.status.success() && !waits.is_finished(), "{order:?}");
    assert_eq!(waits.await.unwrap(), 502);
    assert_eq!((a.hits("/"), b.hits("/")), (1, 0));
    let line = line(&edge).await;
    assert_eq!(attempts(&line), [("a", &json!(503))], "{line}");
}

#[tokio::test(flavor = "multi_thread")]
async fn given_less_time_than_the_pause_when_a_status_would_be_tried_again_then_it_passes_at_once() {
    let (a, b) = (busy().await, Origin::named("b").await);
    let (edge, web) = before(&a, &b, ", timeout: 5s", "{ on: 503, delay: 10s }").await;
    let answer = get(web, "/").await.expect("an answer");
    assert_eq!((answer.status, answer.text().as_str()), (503, "a is busy"));
    let line = line(&edge).await;
    assert_eq!((attempts(&line), b.hits("/")), (vec![("a", &json!(503))], 0), "{line}");
    edge.counts("derbent_upstream_retries_denied_total{cluster=\"app\",reason=\"timeout\"}", 1.0).await;
    edge.counts("derbent_upstream_retries_total{cluster=\"app\",reason=\"status\"}", 0.0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_client_that_leaves_in_the_pause_when_told_of_then_no_attempt_is_that_was_not_made() {
    for h2 in [false, true] {
        let (a, b) = (busy().await, Origin::named("b").await);
        let (edge, web) = before(&a, &b, "", "{ on: 503, delay: 10s }").await;
        if h2 {
            let client = H2Client::connect(web).await;
            let (mut body, answer) = client.open(Request::get("http://h/").body(()).unwrap()).await;
            body.send_data(Default::default(), true).unwrap();
            in_the_pause(&edge, &a).await;
            drop((body, answer));
        } else {
            let mut client = Client::connect(web).await;
            client.send("GET / HTTP/1.1\r\nhost: h\r\n\r\n").await;
            in_the_pause(&edge, &a).await;
            client.reset();
        }
        edge.counts(IN_FLIGHT, 0.0).await;
        let line = line(&edge).await;
        assert_eq!((attempts(&line), &line["failed"]), (vec![("a", &json!(503))], &json!("client_abort")), "{line}");
        assert_eq!(b.hits("/"), 0);
        edge.counts("derbent_upstream_retries_total{cluster=\"app\",reason=\"status\"}", 0.0).await;
    }
}

/// What a PUT gets that waits for leave to send its body.
async fn put(web: SocketAddr) -> (Vec<u16>, String) {
    let mut client = Client::connect(web).await;
    client.send("PUT / HTTP/1.1\r\nhost: h\r\nexpect: 100-continue\r\ncontent-length: 4\r\n\r\n").await;
    let mut interim = Vec::new();
    loop {
        let answer = client.read_response().await.expect("an answer");
        if answer.status >= 200 {
            return ([interim, vec![answer.status]].concat(), answer.text());
        }
        if interim.is_empty() {
            client.send("body").await;
        }
        interim.push(answer.status);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn given_an_interim_answer_when_it_was_passed_on_then_what_follows_is_still_tried_again_or_told() {
    let interim = |code: u16| Step::send(format!("HTTP/1.1 {code} Interim\r\n\r\n"));
    let ends = |last: Step| [interim(100), Step::ReadBody, interim(103), last];
    let b = Origin::start(move |_| {
        Answer::script([interim(100), Step::ReadBody, Step::send("HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nb")])
    })
    .await;
    for last in [Step::Reset, Step::send("HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n")] {
        let script = ends(last);
        let a = Origin::start(move |_| Answer::script(script.clone())).await;
        let (edge, web) = before(&a, &b, "", "{ on: [reset, 503] }").await;
        let (statuses, text) = put(web).await;
        assert_eq!((statuses.first(), statuses.last(), text.as_str()), (Some(&100), Some(&200), "b"), "{statuses:?}");
        assert_eq!(line(&edge).await["status"], 200);
    }
    assert_eq!(b.requests().iter().map(|request| request.body.clone()).collect::<Vec<_>>(), [b"body", b"body"]);
    let script = ends(Step::Reset);
    let a = Origin::start(move |_| Answer::script(script.clone())).await;
    let (edge, web) = before(&a, &b, "", "off").await;
    assert_eq!(put(web).await.0, [100, 103, 502]);
    let line = line(&edge).await;
    assert_eq!((&line["status"], &line["failed"]), (&json!(502), &json!("destination_failed")), "{line}");
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_client_of_http2_that_leaves_when_told_of_then_it_left_and_sent_nothing_bad() {
    let head = "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf";
    let waits = vec![Step::ReadBody, Step::Pause(Duration::from_secs(600))];
    let streams = vec![Step::ReadBody, Step::send(head), Step::Pause(Duration::from_secs(600))];
    for (script, status) in [(waits, 499), (streams, 200)] {
        let a = Origin::start(move |_| Answer::script(script.clone())).await;
        let (edge, web) = before(&a, &a, "", "off").await;
        let client = H2Client::connect(web).await;
        let (mut body, answer) = client.open(Request::get("http://h/").body(()).unwrap()).await;
        body.send_data(Default::default(), true).unwrap();
        eventually(DEADLINE, "a is asked", async || a.hits("/") == 1).await;
        match status {
            200 => drop(answer.await.expect("a head")),
            _ => drop(answer),
        }
        drop(body);
        let line = line(&edge).await;
        assert_eq!((&line["status"], &line["failed"]), (&json!(status), &json!("client_abort")), "{line}");
        edge.counts(IN_FLIGHT, 0.0).await;
        assert!(!edge.metrics().await.contains("reason=\"bad_request\""));
    }
}
