//! The access log: what a line tells, and that nothing that happens to its file happens to requests.

use crate::support::{
    Answer, DEADLINE, Edge, Gate, H2Client, Origin, Step, eventually, free_port, loopback, one_destination,
};
use serde_json::{Value, json};
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

const DROPPED: &str = "derbent_log_lines_dropped_total{log=\"access\"}";

/// Before one destination, with this `access_log`.
async fn edge(address: &str, access_log: &str) -> Edge {
    Edge::start(&format!("access_log: {access_log}\n{}", one_destination(address, ""))).await
}

/// The lines of a file, when there are so many.
async fn lines(file: &Path, count: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    eventually(DEADLINE, &format!("{count} lines in {}", file.display()), async || {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        lines = text.lines().map(str::to_owned).collect();
        lines.len() >= count
    })
    .await;
    assert_eq!(lines.len(), count, "{lines:#?}");
    lines
}

async fn objects(edge: &Edge, count: usize) -> Vec<Value> {
    let lines = lines(&edge.directory().join("access"), count).await;
    lines.iter().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error} in {line}"))).collect()
}

fn warnings(edge: &Edge) -> Vec<String> {
    edge.stderr().into_iter().filter(|line| line.contains("access log") && line.contains("WARN")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn given_json_when_requests_end_then_each_has_a_line_with_all_that_is_known() {
    let origin = Origin::start(|_| Answer::ok("hello")).await;
    let edge = edge(&origin.url(), "{ path: access }").await;
    let mut client = edge.connect().await;
    let headers = "x-request-id: abc-1\r\nuser-agent: a\"b\\\r\nreferer: http://r/\r\n";
    assert_eq!(client.get("/books?q=%0A1", headers).await.unwrap().status, 200);
    client.send("POST /orders HTTP/1.1\r\nhost: shop.example.com\r\ncontent-length: 4\r\n\r\nbody").await;
    assert_eq!(client.read_response().await.unwrap().status, 200);
    let seen = objects(&edge, 2).await;
    let first = &seen[0];
    let host = edge.address().to_string();
    for (key, value) in [
        ("listener", json!("web")),
        ("client", json!("127.0.0.1")),
        ("method", json!("GET")),
        ("host", json!(host)),
        ("path", json!("/books?q=%0A1")),
        ("protocol", json!("HTTP/1.1")),
        ("status", json!(200)),
        ("bytes_in", json!(0)),
        ("bytes_out", json!(5)),
        ("route", json!("all")),
        ("cluster", json!("app")),
        ("request_id", json!("abc-1")),
        ("user_agent", json!("a\"b\\")),
        ("referer", json!("http://r/")),
        ("failed", Value::Null),
    ] {
        assert_eq!(first[key], value, "{key} in {first}");
    }
    let time = first["time"].as_str().unwrap();
    assert!(time.len() == "2026-11-30T01:15:00.123Z".len() && time.ends_with('Z'), "{time}");
    let attempt = &first["attempts"][0];
    assert_eq!(attempt["destination"], "one");
    assert_eq!(attempt["address"], json!(origin.address().to_string()));
    assert_eq!((&attempt["outcome"], &attempt["reused"]), (&json!(200), &json!(false)));
    assert!(attempt["connect_ms"].as_f64() > Some(0.0), "{attempt}");
    assert!(first["duration_ms"].as_f64() >= attempt["waited_ms"].as_f64(), "{first}");
    let second = &seen[1];
    assert_eq!((&second["bytes_in"], &second["host"]), (&json!(4), &json!("shop.example.com")));
    assert_eq!(second["attempts"][0]["reused"], true, "{second}");
    assert_eq!(second["attempts"][0]["connect_ms"], Value::Null, "{second}");
}

#[tokio::test(flavor = "multi_thread")]
async fn given_failures_when_the_proxy_answers_itself_then_why_and_what_came_of_each_attempt() {
    let edge = edge(&format!("http://{}", loopback(free_port())), "{ path: access }").await;
    assert_eq!(edge.get("/refused").await.status, 502);
    let mut client = edge.connect().await;
    client.send("GET / HTTP/1.1\r\n\r\n").await;
    assert_eq!(client.read_response().await.unwrap().status, 400);
    let seen = objects(&edge, 2).await;
    assert_eq!((&seen[0]["status"], &seen[0]["failed"]), (&json!(502), &json!("destination_failed")));
    assert_eq!(seen[0]["attempts"].as_array().unwrap().len(), 3, "{}", seen[0]);
    assert_eq!(seen[0]["attempts"][0]["outcome"], "refused");
    assert_eq!(seen[0]["attempts"][0]["reused"], Value::Null);
    assert_eq!((&seen[1]["failed"], &seen[1]["attempts"]), (&json!("bad_request"), &json!([])));
    assert_eq!((&seen[1]["route"], &seen[1]["cluster"]), (&Value::Null, &Value::Null));
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_client_that_leaves_when_nothing_was_answered_then_499_and_when_half_was_then_the_status_and_why() {
    let origin = Origin::start(|request| match request.target().as_str() {
        "/silent" => Answer::script([Step::Wait(Gate::closed())]),
        _ => Answer::script([
            Step::send("HTTP/1.1 200 OK\r\ncontent-length: 50000000\r\n\r\n"),
            Step::send(vec![b'x'; 1_000_000]),
            Step::Wait(Gate::closed()),
        ]),
    })
    .await;
    let edge = edge(&origin.url(), "{ path: access }").await;
    let mut client = edge.connect().await;
    client.send("GET /silent HTTP/1.1\r\nhost: h\r\n\r\n").await;
    eventually(DEADLINE, "the request arrives", async || origin.requests().len() == 1).await;
    client.reset();
    let first = &objects(&edge, 1).await[0];
    assert_eq!((&first["status"], &first["failed"]), (&json!(499), &json!("client_abort")));
    assert_eq!(first["attempts"][0]["outcome"], "client_abort", "{first}");
    let mut client = edge.connect().await;
    client.send("GET /half HTTP/1.1\r\nhost: h\r\n\r\n").await;
    client.read_exact(1000).await.unwrap();
    client.reset();
    let second = &objects(&edge, 2).await[1];
    assert_eq!((&second["status"], &second["failed"]), (&json!(200), &json!("client_abort")), "{second}");
    assert_eq!(second["attempts"][0]["outcome"], 200, "{second}");
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_destination_that_dies_in_its_answer_when_logged_then_the_status_and_that_it_failed() {
    let origin = Origin::start(|_| {
        Answer::script([Step::ReadBody, Step::send("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf"), Step::Reset])
    })
    .await;
    let edge = edge(&origin.url(), "{ path: access }").await;
    let mut client = edge.connect().await;
    assert!(client.get("/", "").await.is_err());
    let seen = &objects(&edge, 1).await[0];
    assert_eq!((&seen["status"], &seen["failed"]), (&json!(200), &json!("destination_failed")), "{seen}");
    assert_eq!(seen["attempts"][0]["outcome"], "reset", "{seen}");
}

#[tokio::test(flavor = "multi_thread")]
async fn given_answers_of_the_proxy_and_http2_when_logged_then_no_attempt_and_the_protocol() {
    let address = loopback(free_port());
    let file = format!(
        "access_log: {{ path: access }}\nlisteners: {{ web: {{ address: \"{address}\", protocols: [http1, h2c] }} }}\n\
         routes: {{ fixed: {{ match: {{ path: /fixed }}, respond: {{ body: hello }} }}, old: {{ redirect: {{ to: /new }} }} }}\n",
    );
    let edge = Edge::start(&file).await;
    let client = H2Client::connect(address).await;
    assert_eq!(client.get(&format!("http://{address}/fixed")).await.unwrap().status, 200);
    assert_eq!(client.get(&format!("http://{address}/x?y")).await.unwrap().status, 308);
    let seen = objects(&edge, 2).await;
    for (line, route, path, status, bytes) in [(&seen[0], "fixed", "/fixed", 200, 5), (&seen[1], "old", "/x?y", 308, 0)]
    {
        assert_eq!((&line["route"], &line["path"], &line["status"]), (&json!(route), &json!(path), &json!(status)));
        assert_eq!((&line["protocol"], &line["bytes_out"]), (&json!("HTTP/2.0"), &json!(bytes)), "{line}");
        assert_eq!((&line["attempts"], &line["cluster"]), (&json!([]), &Value::Null), "{line}");
        assert_eq!((&line["host"], &line["failed"]), (&json!(address.to_string()), &Value::Null), "{line}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_tunnel_when_it_ends_then_one_line_with_101() {
    let origin = Origin::start(|_| Answer::upgrade("websocket")).await;
    let edge = edge(&origin.url(), "{ path: access }").await;
    let mut client = edge.connect().await;
    client.send("GET / HTTP/1.1\r\nhost: h\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n").await;
    assert_eq!(client.read_head().await.unwrap().status, 101);
    client.send("hello").await;
    assert_eq!(client.read_exact(5).await.unwrap(), b"hello");
    client.finish().await;
    client.read_to_end().await.unwrap();
    let line = &objects(&edge, 1).await[0];
    assert_eq!((&line["status"], &line["attempts"][0]["outcome"]), (&json!(101), &json!(101)), "{line}");
    assert_eq!((&line["bytes_in"], &line["bytes_out"]), (&json!(5), &json!(5)), "{line}");
    assert_eq!(line["failed"], Value::Null, "{line}");
}

#[tokio::test(flavor = "multi_thread")]
async fn given_combined_when_a_peer_sends_quotes_then_the_line_is_ncsas_and_no_field_ends_early() {
    let origin = Origin::start(|_| Answer::ok("hello")).await;
    let edge = edge(&origin.url(), "{ path: access, format: combined }").await;
    let mut client = edge.connect().await;
    client.send(b"GET /a?b HTTP/1.1\r\nhost: h\r\nuser-agent: x\" \xff\r\n\r\n").await;
    assert_eq!(client.read_response().await.unwrap().status, 200);
    let line = lines(&edge.directory().join("access"), 1).await.remove(0);
    assert!(line.starts_with("127.0.0.1 - - ["), "{line}");
    assert!(line.ends_with(r#" +0000] "GET /a?b HTTP/1.1" 200 5 "-" "x\x22 \xFF""#), "{line}");
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_template_and_standard_output_when_requests_end_then_its_lines_are_there_when_the_process_has_ended() {
    let origin = Origin::start(|_| Answer::ok("hello")).await;
    let template = "'{method} {path} {status} {attempts} {{{server}}}'";
    let mut edge = edge(&origin.url(), &format!("{{ template: {template} }}\nserver: {{ name: gw }}")).await;
    let lines_wanted: Vec<String> = (0..50).map(|n| format!("GET /{n} 200 one=200 {{gw}}")).collect();
    let mut client = edge.connect().await;
    for n in 0..50 {
        assert_eq!(client.get(&format!("/{n}"), "").await.unwrap().status, 200);
    }
    drop(client);
    edge.signal("TERM");
    assert!(edge.ended().await.success());
    assert_eq!(lines(&edge.directory().join("stdout"), 50).await, lines_wanted);
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_file_that_is_moved_away_when_looked_at_then_lines_go_on_under_its_name() {
    let origin = Origin::start(|_| Answer::ok("hello")).await;
    let edge = edge(&origin.url(), "{ path: access }").await;
    let (file, moved) = (edge.directory().join("access"), edge.directory().join("access.1"));
    edge.get("/before").await;
    lines(&file, 1).await;
    std::fs::rename(&file, &moved).unwrap();
    let mut sent = 1;
    eventually(DEADLINE, "a new file", async || {
        edge.get("/after").await;
        sent += 1;
        std::fs::read_to_string(&file).is_ok_and(|text| text.ends_with('\n'))
    })
    .await;
    let all = async || [&file, &moved].map(|file| std::fs::read_to_string(file).unwrap().lines().count());
    eventually(DEADLINE, "every line is in one of the two", async || all().await.iter().sum::<usize>() == sent).await;
    assert_eq!(edge.metric(DROPPED).await, Some(0.0));
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_full_disk_when_requests_come_then_they_are_served_the_lines_counted_and_it_is_told_once() {
    let origin = Origin::start(|_| Answer::ok("hello")).await;
    let edge = edge(&origin.url(), "{ path: /dev/full }").await;
    for sent in 1..=3 {
        assert_eq!(edge.get("/").await.status, 200);
        edge.counts(DROPPED, f64::from(sent)).await;
    }
    let told = warnings(&edge);
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(
        told[0]
            .ends_with("access log /dev/full: lines are dropped and counted (No space left on device (os error 28))")
    );
}

fn fifo() -> (TempDir, std::path::PathBuf) {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("access");
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    (directory, path)
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_pipe_that_nobody_reads_when_the_queue_is_full_then_serving_goes_on_and_the_rest_is_counted() {
    let (_directory, path) = fifo();
    // Open for both, so that the writer finds a reader; it never reads.
    let _held = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let origin = Origin::start(|_| Answer::ok("hello")).await;
    let mut edge = edge(&origin.url(), &format!("{{ path: {} }}", path.display())).await;
    let mut client = edge.connect().await;
    let agent = format!("user-agent: {}\r\n", "x".repeat(30_000));
    let mut sent = 0;
    eventually(DEADLINE, "lines are dropped", async || {
        for _ in 0..50 {
            assert_eq!(client.get("/", &agent).await.unwrap().status, 200);
        }
        sent += 50;
        edge.metric(DROPPED).await > Some(0.0)
    })
    .await;
    // What waits is bounded: the queue's bytes, a batch, and the pipe's own.
    assert!(sent < 600, "{sent}");
    assert_eq!(client.get("/", &agent).await.unwrap().status, 200);
    assert_eq!(warnings(&edge).len(), 1, "{:?}", warnings(&edge));
    drop(client);
    edge.signal("TERM");
    assert!(edge.ended().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_pipe_whose_reader_leaves_when_another_comes_then_lines_are_written_again() {
    let (_directory, path) = fifo();
    let origin = Origin::start(|_| Answer::ok("hello")).await;
    let edge = edge(&origin.url(), &format!("{{ path: {}, template: \"{{path}}\" }}", path.display())).await;
    let read_one = async || {
        let path = path.clone();
        let read = tokio::task::spawn_blocking(move || {
            // Waits for the writer to open.
            let mut line = String::new();
            BufReader::new(File::open(path).unwrap()).read_line(&mut line).unwrap();
            line
        });
        edge.get("/line").await;
        read.await.unwrap()
    };
    assert_eq!(read_one().await, "/line\n");
    // Its pipe is broken now; the line finds that out.
    edge.get("/lost").await;
    edge.counts(DROPPED, 1.0).await;
    assert!(warnings(&edge)[0].contains("Broken pipe"), "{:?}", warnings(&edge));
    let again = read_one().await;
    assert_eq!(again, "/line\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn given_no_access_log_when_requests_end_then_nothing_is_printed() {
    let origin = Origin::start(|_| Answer::ok("hello")).await;
    let mut edge = edge(&origin.url(), "off").await;
    edge.get("/").await;
    edge.signal("TERM");
    assert!(edge.ended().await.success());
    lines(&edge.directory().join("stdout"), 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn given_retries_when_a_destination_refuses_or_answers_503_then_every_attempt_stands_in_the_line() {
    let good = Origin::start(|_| Answer::ok("hello")).await;
    let ill = Origin::start(|_| Answer::new(503, "", "")).await;
    let file = format!(
        "access_log: {{ path: access }}\nroutes: {{ all: {{ cluster: app }} }}\n\
         clusters: {{ app: {{ load_balancing: FirstAlphabetical, retry: {{ on: [connect, \"503\"] }}, destinations: {{ \
         a: {{ address: \"http://{}\" }}, b: {{ address: \"{}\" }}, c: {{ address: \"{}\" }} }} }} }}\n",
        loopback(free_port()),
        ill.url(),
        good.url()
    );
    let edge = Edge::start(&file).await;
    assert_eq!(edge.get("/").await.status, 200);
    let line = &objects(&edge, 1).await[0];
    let tried: Vec<_> =
        line["attempts"].as_array().unwrap().iter().map(|it| (&it["destination"], &it["outcome"])).collect();
    assert_eq!(
        tried,
        [(&json!("a"), &json!("refused")), (&json!("b"), &json!(503)), (&json!("c"), &json!(200))],
        "{line}"
    );
    assert_eq!(line["failed"], Value::Null, "{line}");
}
