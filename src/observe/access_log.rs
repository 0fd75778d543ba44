//! The access log's lines: one request, one line, in one of three [`Format`]s. Pure: bytes out, no queue and no file; those
//! are the service's.
//!
//! Whatever bytes a peer chose, a line stays one line and the value stays where it belongs: JSON escapes by its own rules
//! (and, beyond them, what a terminal or a line reader would obey), the other two as `\xHH`. Nothing is cut short.

mod combined;
mod json;
mod template;

pub use template::{Fault, Template};

use http::Version;
use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, SystemTime};

/// How a line is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Format {
    /// One object, its keys as in [`Entry`]; what is not known is left out.
    Json,
    /// NCSA's, with referer and user agent.
    Combined,
    Template(Template),
}

/// A request that is over. What a peer chose is bytes.
#[derive(Debug, Clone)]
pub struct Entry<'a> {
    /// When its head was read.
    pub time: SystemTime,
    /// The instance's name.
    pub server: &'a str,
    pub listener: &'a str,
    pub client: Option<IpAddr>,
    pub method: &'a str,
    pub host: Option<&'a [u8]>,
    /// The request target as it came, with its query.
    pub path: &'a [u8],
    pub protocol: Version,
    /// 499: the client left before there was one.
    pub status: u16,
    /// Of bodies.
    pub bytes_in: u64,
    pub bytes_out: u64,
    pub duration: Duration,
    pub route: Option<&'a str>,
    pub cluster: Option<&'a str>,
    pub request_id: &'a [u8],
    pub user_agent: Option<&'a [u8]>,
    pub referer: Option<&'a [u8]>,
    /// In the order made.
    pub attempts: Vec<Attempt<'a>>,
    /// What became of its session; `None`: it has none, or none was bound.
    pub affinity: Option<&'static str>,
    /// Why there is no destination's answer, or not all of it.
    pub failed: Option<&'static str>,
}

/// One try at one destination.
#[derive(Debug, Clone)]
pub struct Attempt<'a> {
    pub destination: &'a str,
    pub address: SocketAddr,
    pub outcome: Ended,
    /// Setting up a new connection, TLS included.
    pub connect: Option<Duration>,
    /// From the whole request to the answer's head, or to the end without one.
    pub waited: Duration,
    /// Whether its connection came from the pool; `None`: there was no connection.
    pub reused: Option<bool>,
}

/// What came of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    Status(u16),
    /// A word of `upstream_errors_total`.
    Word(&'static str),
}

impl Format {
    /// One line, its newline included.
    pub fn line(&self, entry: &Entry<'_>) -> Vec<u8> {
        let mut line = Vec::with_capacity(USUAL);
        match self {
            Format::Json => json::write(entry, &mut line),
            Format::Combined => combined::write(entry, &mut line),
            Format::Template(template) => template.write(entry, &mut line),
        }
        line.push(b'\n');
        line
    }
}

/// Most lines are shorter.
const USUAL: usize = 768;

/// RFC 3339 in UTC, to the millisecond.
fn rfc3339(time: SystemTime) -> String {
    format!("{:.3}", timestamp(time))
}

fn timestamp(time: SystemTime) -> jiff::Timestamp {
    jiff::Timestamp::try_from(time).unwrap_or_default()
}

/// `HTTP/1.1`, `HTTP/2.0`.
fn protocol(version: Version) -> &'static str {
    match version {
        Version::HTTP_09 => "HTTP/0.9",
        Version::HTTP_10 => "HTTP/1.0",
        Version::HTTP_2 => "HTTP/2.0",
        Version::HTTP_3 => "HTTP/3.0",
        _ => "HTTP/1.1",
    }
}

/// Milliseconds, exact to the microsecond.
fn millis(duration: Duration) -> f64 {
    duration.as_micros() as f64 / 1000.0
}

fn text(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

/// As nginx does it: a quote, a backslash and all that is no printable ASCII.
fn push_escaped(bytes: &[u8], line: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    for &byte in bytes {
        match byte {
            b'"' | b'\\' | ..=0x1f | 0x7f.. => {
                line.extend([b'\\', b'x', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
            }
            byte => line.push(byte),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::UNIX_EPOCH;

    pub fn entry<'a>() -> Entry<'a> {
        Entry {
            time: UNIX_EPOCH + Duration::from_millis(1_796_001_300_123),
            server: "gw-1",
            listener: "web",
            client: Some(IpAddr::from([127, 0, 0, 1])),
            method: "GET",
            host: Some(b"shop.example.com"),
            path: b"/api/v1/books?q=1",
            protocol: Version::HTTP_11,
            status: 200,
            bytes_in: 0,
            bytes_out: 2326,
            duration: Duration::from_micros(12_345),
            route: Some("books"),
            cluster: Some("catalog"),
            request_id: b"0123",
            user_agent: Some(b"curl/8"),
            referer: None,
            attempts: vec![
                Attempt {
                    destination: "catalog-1",
                    address: SocketAddr::from(([127, 0, 0, 1], 5301)),
                    outcome: Ended::Word("refused"),
                    connect: None,
                    waited: Duration::ZERO,
                    reused: None,
                },
                Attempt {
                    destination: "catalog-2",
                    address: SocketAddr::from(([127, 0, 0, 1], 5311)),
                    outcome: Ended::Status(200),
                    connect: Some(Duration::from_micros(250)),
                    waited: Duration::from_micros(9_500),
                    reused: Some(false),
                },
            ],
            affinity: None,
            failed: None,
        }
    }

    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        // What breaks lines, quotes and terminals, more often than chance would have it.
        const AWKWARD: &[&[u8]] = &[
            b"\n",
            b"\r\n",
            b"\"",
            b"\\",
            b"\0",
            b"\x1b[2J",
            "\u{2028}".as_bytes(),
            "\u{85}".as_bytes(),
            b"\xff",
            b"{",
        ];
        let piece = prop_oneof![
            prop::sample::select(AWKWARD).prop_map(<[u8]>::to_vec),
            prop::collection::vec(any::<u8>(), 0..8),
            "[ -~]{0,8}".prop_map(String::into_bytes),
        ];
        prop::collection::vec(piece, 0..6).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn given_any_bytes_of_a_peer_when_written_then_each_format_is_one_line_that_reads_back(
            host in prop::option::of(bytes()), path in bytes(), id in bytes(),
            agent in prop::option::of(bytes()), referer in prop::option::of(bytes()), name in any::<String>(),
        ) {
            let mut entry = Entry { path: &path, request_id: &id, route: Some(&name), ..entry() };
            entry.attempts[0].destination = &name;
            (entry.host, entry.user_agent, entry.referer) = (host.as_deref(), agent.as_deref(), referer.as_deref());
            for format in [
                Format::Json,
                Format::Combined,
                Format::Template(Template::parse("{route} {host} \"{path}\" {request_id} {user_agent} {referer} {attempts}")
                    .expect("all known")),
            ] {
                let line = String::from_utf8(format.line(&entry)).expect("UTF-8");
                let (body, end) = line.split_at(line.len() - 1);
                prop_assert_eq!(end, "\n");
                prop_assert!(!body.contains(|c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}')), "{:?}", body);
                if format == Format::Json {
                    let object: serde_json::Value = serde_json::from_str(body).expect("JSON");
                    let fields = [("path", Some(&path)), ("host", host.as_ref()), ("user_agent", agent.as_ref())];
                    for (key, sent) in fields {
                        let sent = sent.map(|bytes| text(bytes).into_owned());
                        prop_assert_eq!(object[key].as_str(), sent.as_deref());
                    }
                    prop_assert_eq!(object["attempts"][0]["destination"].as_str(), Some(&*name));
                } else {
                    prop_assert!(body.is_ascii());
                }
                if format == Format::Combined {
                    // Nobody's bytes open or close a field.
                    prop_assert_eq!(body.matches('"').count(), 6);
                }
            }
        }
    }
}
