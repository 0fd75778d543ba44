use super::super::escape::is_unsafe;
use super::{Attempt, Ended, Entry, millis, protocol, rfc3339, text};
use serde::Serialize;
use serde_json::Serializer;
use serde_json::ser::Formatter;
use std::borrow::Cow;
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};

pub(super) fn write(entry: &Entry<'_>, line: &mut Vec<u8>) {
    let attempts = entry.attempts.iter().map(Tried::of).collect();
    let object = Object {
        time: rfc3339(entry.time),
        server: entry.server,
        listener: entry.listener,
        client: entry.client,
        method: entry.method,
        host: entry.host.map(text),
        path: text(entry.path),
        protocol: protocol(entry.protocol),
        status: entry.status,
        bytes_in: entry.bytes_in,
        bytes_out: entry.bytes_out,
        duration_ms: millis(entry.duration),
        route: entry.route,
        cluster: entry.cluster,
        request_id: text(entry.request_id),
        user_agent: entry.user_agent.map(text),
        referer: entry.referer.map(text),
        attempts,
        affinity: entry.affinity,
        failed: entry.failed,
    };
    // Text and numbers into memory: neither can fail.
    let _ = object.serialize(&mut Serializer::with_formatter(line, OneLine));
}

#[derive(Serialize)]
struct Object<'a> {
    time: String,
    server: &'a str,
    listener: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    client: Option<IpAddr>,
    method: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<Cow<'a, str>>,
    path: Cow<'a, str>,
    protocol: &'static str,
    status: u16,
    bytes_in: u64,
    bytes_out: u64,
    duration_ms: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    route: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cluster: Option<&'a str>,
    request_id: Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    user_agent: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    referer: Option<Cow<'a, str>>,
    attempts: Vec<Tried<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    affinity: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    failed: Option<&'static str>,
}

#[derive(Serialize)]
struct Tried<'a> {
    destination: &'a str,
    address: SocketAddr,
    outcome: Outcome,
    #[serde(skip_serializing_if = "Option::is_none")]
    connect_ms: Option<f64>,
    waited_ms: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    reused: Option<bool>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Outcome {
    Status(u16),
    Word(&'static str),
}

impl<'a> Tried<'a> {
    fn of(attempt: &Attempt<'a>) -> Self {
        Tried {
            destination: attempt.destination,
            address: attempt.address,
            outcome: match attempt.outcome {
                Ended::Status(status) => Outcome::Status(status),
                Ended::Word(word) => Outcome::Word(word),
            },
            connect_ms: attempt.connect.map(millis),
            waited_ms: millis(attempt.waited),
            reused: attempt.reused,
        }
    }
}

/// JSON may hold what a terminal obeys and what some readers take for the end of a line.
struct OneLine;

impl Formatter for OneLine {
    fn write_string_fragment<W: ?Sized + Write>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()> {
        let mut rest = fragment;
        while let Some(at) = rest.find(is_unsafe) {
            writer.write_all(&rest.as_bytes()[..at])?;
            let mut chars = rest[at..].chars();
            if let Some(c) = chars.next() {
                // Every one of them is in the basic plane.
                write!(writer, "\\u{:04x}", u32::from(c))?;
            }
            rest = chars.as_str();
        }
        writer.write_all(rest.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::entry;
    use super::*;

    #[test]
    fn given_a_request_when_written_then_its_keys_and_nothing_that_is_not_known() {
        let mut line = Vec::new();
        write(&entry(), &mut line);
        let expected = r#"{"time":"2026-11-30T01:15:00.123Z","server":"gw-1","listener":"web","client":"127.0.0.1","method":"GET","host":"shop.example.com","path":"/api/v1/books?q=1","protocol":"HTTP/1.1","status":200,"bytes_in":0,"bytes_out":2326,"duration_ms":12.345,"route":"books","cluster":"catalog","request_id":"0123","user_agent":"curl/8","attempts":[{"destination":"catalog-1","address":"127.0.0.1:5301","outcome":"refused","waited_ms":0.0},{"destination":"catalog-2","address":"127.0.0.1:5311","outcome":200,"connect_ms":0.25,"waited_ms":9.5,"reused":false}]}"#;
        assert_eq!(String::from_utf8(line).expect("UTF-8"), expected);
    }

    #[test]
    fn given_no_route_when_written_then_why_and_an_empty_list() {
        let mut line = Vec::new();
        let none =
            Entry { route: None, cluster: None, host: None, attempts: Vec::new(), failed: Some("no_route"), ..entry() };
        write(&none, &mut line);
        let line = String::from_utf8(line).expect("UTF-8");
        assert!(line.ends_with(r#","attempts":[],"failed":"no_route"}"#) && !line.contains("route\":null"), "{line}");
    }
}
