//! Answers and ends, one row a case: what a destination says is passed on strict or not at all, and who ends what is seen.

use crate::support::{Answer, DEADLINE, Edge, Gate, Origin, Step, eventually};

struct Row {
    name: &'static str,
    method: &'static str,
    /// What the destination sends.
    sent: &'static str,
    /// What comes of it at the client, interim answers first.
    statuses: &'static [u16],
    body: &'static str,
    /// Fields that the answer must not have.
    without: &'static [&'static str],
    /// The destination's connection is used again.
    reused: bool,
}

const fn row(name: &'static str, sent: &'static str, statuses: &'static [u16], body: &'static str) -> Row {
    Row { name, method: "GET", sent, statuses, body, without: &[], reused: true }
}

const fn broken(name: &'static str, sent: &'static str) -> Row {
    Row { reused: false, ..row(name, sent, &[502], "") }
}

const FRAMING: &[&str] = &["content-length", "transfer-encoding"];

const ROWS: [Row; 27] = [
    row(
        "1xx",
        "HTTP/1.1 103 Hints\r\nlink: </a>\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
        &[103, 200],
        "ok",
    ),
    row(
        "100 unasked",
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
        &[100, 200],
        "ok",
    ),
    Row { method: "HEAD", ..row("HEAD", "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n", &[200], "") },
    Row {
        method: "HEAD",
        reused: false,
        ..row("HEAD with a body", "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok", &[200], "")
    },
    Row { without: FRAMING, ..row("204", "HTTP/1.1 204 No\r\n\r\n", &[204], "") },
    Row {
        without: FRAMING,
        ..row("204 with a length of 0", "HTTP/1.1 204 No\r\ncontent-length: 0\r\n\r\n", &[204], "")
    },
    Row {
        without: FRAMING,
        reused: false,
        ..row("204 with a body", "HTTP/1.1 204 No\r\ncontent-length: 2\r\n\r\nok", &[204], "")
    },
    Row {
        without: FRAMING,
        reused: false,
        ..row("204 in chunks", "HTTP/1.1 204 No\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", &[204], "")
    },
    Row { without: FRAMING, ..row("304", "HTTP/1.1 304 Same\r\netag: \"a\"\r\n\r\n", &[304], "") },
    Row { without: FRAMING, ..row("304 with a length", "HTTP/1.1 304 Same\r\ncontent-length: 9\r\n\r\n", &[304], "") },
    row("an early answer", "HTTP/1.1 413 Much\r\ncontent-length: 2\r\n\r\nno", &[413], "no"),
    row("bare LF", "HTTP/1.1 200 OK\ncontent-length: 2\n\nok", &[200], "ok"),
    Row { reused: false, ..row("HTTP/1.0 to its end", "HTTP/1.0 200 OK\r\n\r\nok", &[200], "ok") },
    Row {
        reused: false,
        ..row(
            "more than its length",
            "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nokHTTP/1.1 200 OK\r\n\r\n",
            &[200],
            "ok",
        )
    },
    Row {
        without: &["content-length"],
        ..row(
            "CL and TE",
            "HTTP/1.1 200 OK\r\ncontent-length: 9\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
            &[200],
            "ok",
        )
    },
    row(
        "chunks with trailers",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nx: 1\r\n\r\n",
        &[200],
        "ok",
    ),
    broken("two lengths", "HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\nok"),
    broken("one length twice", "HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 2\r\n\r\nok"),
    broken("one length twice in a list", "HTTP/1.1 200 OK\r\ncontent-length: 2, 2\r\n\r\nok"),
    broken("another coding", "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"),
    broken("another coding alone", "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip\r\n\r\nok"),
    row("a folded line", "HTTP/1.1 200 OK\r\nx: 1\r\n 2\r\ncontent-length: 2\r\n\r\nok", &[200], "ok"),
    row("space before the colon", "HTTP/1.1 200 OK\r\ncontent-length : 2\r\n\r\nok", &[200], "ok"),
    broken("a bare CR", "HTTP/1.1 200 OK\r\nx: 1\r2\r\ncontent-length: 2\r\n\r\nok"),
    broken("no status", "HTTP/1.1 OK\r\ncontent-length: 2\r\n\r\nok"),
    broken("no HTTP", "SSH-2.0-OpenSSH_9.2\r\n\r\n"),
    broken("101 unasked", "HTTP/1.1 101 Switching\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n"),
];

#[tokio::test(flavor = "multi_thread")]
async fn given_answers_of_all_kinds_when_passed_on_then_they_are_strict_or_502_and_poison_nobody() {
    let mut wrong = Vec::new();
    for row in ROWS {
        let origin = Origin::start(move |request| match request.target().as_str() {
            "/next" => Answer::ok("next"),
            // Where the end of the connection is the end of the body, it ends.
            _ if row.sent.starts_with("HTTP/1.0") => Answer::script([Step::send(row.sent), Step::Close]),
            _ => Answer::script([Step::ReadBody, Step::send(row.sent)]),
        })
        .await;
        let edge = Edge::before(&origin).await;
        let fault = exchange(&edge, &origin, &row).await.err();
        wrong.extend(fault.map(|fault| format!("{}: {fault}", row.name)));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

async fn exchange(edge: &Edge, origin: &Origin, row: &Row) -> Result<(), String> {
    let mut client = edge.connect().await;
    client.send(format!("{} / HTTP/1.1\r\nhost: h\r\n\r\n", row.method)).await;
    for (at, status) in row.statuses.iter().enumerate() {
        let head = client.read_head().await.map_err(|error| error.to_string())?;
        if head.status != *status {
            return Err(format!("{} in place of {status}", head.status));
        }
        if let Some(name) = row.without.iter().find(|name| head.header(name).is_some()) {
            return Err(format!("has {name}"));
        }
        let last = at + 1 == row.statuses.len();
        if !last || row.method == "HEAD" || matches!(*status, 204 | 304 | 502) {
            continue;
        }
        let mut body = Vec::new();
        match head.header("content-length").and_then(|length| length.parse().ok()) {
            Some(length) => body = client.read_exact(length).await.map_err(|error| error.to_string())?,
            None => while client.read_chunk(&mut body).await.map_err(|error| error.to_string())? {},
        }
        if body != row.body.as_bytes() {
            return Err(format!("body {:?}", String::from_utf8_lossy(&body)));
        }
    }
    // Pingora's connections come back to the pool after the answer is out.
    for _ in 0..3 {
        let next = edge.get("/next").await;
        if (next.status, next.text().as_str()) != (200, "next") {
            return Err(format!("the next request got {} {:?}", next.status, next.text()));
        }
    }
    let numbers: Vec<usize> = origin.requests().iter().map(|request| request.connection).collect();
    if !row.reused && numbers[1..].contains(&numbers[0]) {
        return Err("the destination's connection was used again".to_owned());
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_client_that_ends_its_side_after_its_request_when_the_answer_comes_then_it_gets_it_whole() {
    let gate = Gate::closed();
    let held = gate.clone();
    let origin = Origin::start(move |_| Answer::ok("late").after([Step::Wait(held.clone())])).await;
    let edge = Edge::before(&origin).await;
    let mut clients = Vec::new();
    for request in [
        "GET / HTTP/1.1\r\nhost: h\r\n\r\n",
        "POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 2\r\n\r\nab",
        "POST / HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n",
        "GET / HTTP/1.0\r\nhost: h\r\n\r\n",
    ] {
        let mut client = edge.connect().await;
        client.send(request).await;
        client.finish().await;
        clients.push((request, client));
    }
    eventually(DEADLINE, "all requests arrive", async || origin.requests().len() == 4).await;
    // Long enough for a proxy that takes the end for a leave to have noticed.
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    gate.open();
    for (request, mut client) in clients {
        assert_eq!(client.read_response().await.unwrap().text(), "late", "{request:?}");
        assert_eq!(client.read_to_end().await.unwrap(), b"", "{request:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_client_that_ended_its_side_when_it_takes_a_long_answer_then_it_is_not_cut() {
    let beats = || (0..7).flat_map(|_| [Step::Pause(std::time::Duration::from_secs(1)), Step::send("1\r\n!\r\n")]);
    let origin = Origin::start(move |_| {
        let head = Step::send("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n");
        Answer::script([head].into_iter().chain(beats()).chain([Step::send("0\r\n\r\n")]))
    })
    .await;
    let edge = Edge::before(&origin).await;
    let mut client = edge.connect().await;
    client.send("GET / HTTP/1.1\r\nhost: h\r\n\r\n").await;
    client.finish().await;
    assert_eq!(client.read_response().await.unwrap().text(), "!!!!!!!");
}
