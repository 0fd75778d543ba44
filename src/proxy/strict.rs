//! Which heads are ambiguous: two readers of such a head may see two requests, or another request than we route. They are
//! refused before anything else looks at them, and no destination sees a byte. What Pingora's parser refuses by itself never
//! comes here (two hosts, two lengths that differ, obs-fold, a bare CR, …). Which methods there are is the routes' business.
//!
//! Deliberately not here: the path's meaning (`..`, `//`, `%2F` go on as they came), bodies, and of HTTP/2 what its library
//! has refused already.

use crate::model::is_token;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Version, header};
use pingora::http::{RequestHeader, ResponseHeader};

/// The longest request target, in bytes.
pub const TARGET_MOST: usize = 16 << 10;
/// The largest head after its request line, in bytes. Pingora's own limit of 1 MiB is for the memory, and not to be set.
pub const HEADERS_MOST: usize = 64 << 10;

/// What is wrong with a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    pub status: u16,
    /// For programs.
    pub word: &'static str,
    /// For people.
    pub what: &'static str,
    /// Where this request ends, or what it asks for, is not certain: its connection cannot take another.
    pub closes: bool,
}

const fn bad(what: &'static str) -> Fault {
    Fault { status: 400, word: "bad_request", what, closes: false }
}

const fn unframed(what: &'static str) -> Fault {
    Fault { closes: true, ..bad(what) }
}

const TARGET_LONG: Fault =
    Fault { status: 414, word: "uri_too_long", what: "the request target is longer than 16 KiB", closes: false };
const HEADERS_LARGE: Fault =
    Fault { status: 431, word: "header_too_large", what: "the header fields are larger than 64 KiB", closes: false };
const TRACE: Fault = Fault { status: 405, word: "method_not_allowed", what: "TRACE is not passed on", closes: false };
const CODING: Fault =
    Fault { status: 501, word: "not_implemented", what: "no transfer coding but chunked is understood", closes: true };
/// What `Connection` may not take out.
const KEPT_NAMES: [&str; 4] = ["host", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto"];
/// Names in `Connection`: one less than Pingora has room for.
const NOMINATED_MOST: usize = 9;
const REWRITTEN: Fault = unframed("the request target has a space or a control character");

/// A head as it was read.
pub struct Head<'a> {
    pub request: &'a RequestHeader,
    /// Its bytes, where it came as HTTP/1.
    pub raw: Option<&'a [u8]>,
    /// Pingora's parser percent-encoded the target before it understood it.
    pub rewritten: bool,
}

impl Head<'_> {
    pub fn judge(&self) -> Result<(), Fault> {
        let (line, fields) = self.raw.map_or((&b""[..], &b""[..]), split_line);
        let written = line.split(|&byte| byte == b' ').nth(1);
        let target = written.unwrap_or(self.request.raw_path());
        if self.rewritten {
            return Err(REWRITTEN);
        }
        if target.len() > TARGET_MOST {
            return Err(TARGET_LONG);
        }
        if fields.len() > HEADERS_MOST {
            return Err(HEADERS_LARGE);
        }
        if self.request.method.as_str().eq_ignore_ascii_case("TRACE") {
            return Err(TRACE);
        }
        self.framing(fields)?;
        judge_target(target, &self.request.method)?;
        self.host()?;
        self.nominated()?;
        self.values()
    }

    /// What `Connection` names is taken out before we add anything. Pingora refuses these, but late and for no said reason.
    fn nominated(&self) -> Result<(), Fault> {
        let values = self.request.headers.get_all(header::CONNECTION).iter();
        let names = values.flat_map(|value| value.as_bytes().split(|&byte| byte == b',')).map(trim);
        for (named, name) in names.filter(|name| !name.is_empty()).enumerate() {
            if named == NOMINATED_MOST {
                return Err(bad("Connection names more than 9 fields"));
            }
            if !is_token(name) {
                return Err(bad("Connection names what is no field"));
            }
            if KEPT_NAMES.iter().any(|kept| name.eq_ignore_ascii_case(kept.as_bytes())) {
                return Err(bad("Connection names Host, X-Forwarded-For, -Host or -Proto, which go on"));
            }
        }
        Ok(())
    }

    /// In HTTP/1 the space around a value is not part of it; in HTTP/2 it is, and no field has such a value.
    fn values(&self) -> Result<(), Fault> {
        let space = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
        let spaced = |value: &HeaderValue| space(value.as_bytes().first()) || space(value.as_bytes().last());
        if self.request.version == Version::HTTP_2 && self.request.headers.values().any(spaced) {
            return Err(bad("a field's value begins or ends with a space"));
        }
        Ok(())
    }

    fn framing(&self, fields: &[u8]) -> Result<(), Fault> {
        let headers = &self.request.headers;
        let coded = headers.contains_key(header::TRANSFER_ENCODING);
        // Pingora has taken it out where there was a coding, too.
        if coded && (headers.contains_key(header::CONTENT_LENGTH) || has_field(fields, b"content-length")) {
            return Err(unframed("Content-Length stands beside Transfer-Encoding"));
        }
        match codings(headers) {
            Codings::None | Codings::Chunked => {}
            Codings::Other => return Err(CODING),
            Codings::Unclear => return Err(unframed("Transfer-Encoding is not `chunked` and nothing else")),
        }
        if headers.keys().any(is_framing_disguised) {
            return Err(unframed("a field's name is Content-Length or Transfer-Encoding but for its hyphen"));
        }
        if !one_length(headers) {
            return Err(unframed("there is more than one Content-Length"));
        }
        Ok(())
    }

    fn host(&self) -> Result<(), Fault> {
        let mut hosts = self.request.headers.get_all(header::HOST).iter();
        match (hosts.next(), hosts.next()) {
            (Some(host), None) if is_host(host.as_bytes()) => Ok(()),
            (Some(_), None) => Err(bad("Host is no host name with an optional port")),
            (Some(_), Some(_)) => Err(unframed("there is more than one Host")),
            (None, _) if self.request.version == Version::HTTP_11 => Err(bad("the request has no Host")),
            (None, _) => Ok(()),
        }
    }
}

/// Whether a destination's answer has one certain end, and says so.
pub fn is_framed(response: &ResponseHeader) -> bool {
    let codings = codings(&response.headers);
    let length = response.headers.contains_key(header::CONTENT_LENGTH);
    match codings {
        Codings::None => one_length(&response.headers),
        Codings::Chunked => !length,
        Codings::Other | Codings::Unclear => false,
    }
}

/// The first line that is not empty, and what follows it.
fn split_line(raw: &[u8]) -> (&[u8], &[u8]) {
    let start = raw.iter().position(|byte| !matches!(byte, b'\r' | b'\n')).unwrap_or(raw.len());
    let raw = &raw[start..];
    let end = raw.iter().position(|&byte| byte == b'\n').map_or(raw.len(), |at| at + 1);
    raw.split_at(end)
}

/// A path, a URL that has one, or `*` of OPTIONS. `GET secret` Pingora would route as `/` and send on as it is.
fn judge_target(target: &[u8], method: &Method) -> Result<(), Fault> {
    if target.iter().any(|byte| *byte <= b' ' || *byte == 0x7f) {
        return Err(REWRITTEN);
    }
    if !target.is_ascii() {
        return Err(bad("the request target has bytes beyond ASCII, which a URL percent-encodes"));
    }
    if target.contains(&b'#') {
        return Err(bad("the request target has a fragment"));
    }
    let begins = |scheme: &[u8]| target.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme));
    let known = target.starts_with(b"/") || begins(b"http://") || begins(b"https://");
    if !known && (target != b"*" || method != Method::OPTIONS) {
        return Err(bad("the request target is neither a path nor a URL"));
    }
    Ok(())
}

/// `name`, `1.2.3.4` or `[::1]`, then perhaps `:port`.
fn is_host(host: &[u8]) -> bool {
    let bracketed = host.strip_prefix(b"[").and_then(|rest| {
        let end = rest.iter().position(|&byte| byte == b']')?;
        Some((&rest[..end], &rest[end + 1..]))
    });
    let (named, rest) = match bracketed {
        Some((address, rest)) => (std::str::from_utf8(address).is_ok_and(is_ipv6), rest),
        None => {
            let end = host.iter().position(|&byte| byte == b':').unwrap_or(host.len());
            (end > 0 && host[..end].iter().all(|&byte| is_name_byte(byte)), &host[end..])
        }
    };
    named && is_port(rest)
}

fn is_ipv6(address: &str) -> bool {
    address.parse::<std::net::Ipv6Addr>().is_ok()
}

/// RFC 3986's `reg-name`.
fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~%!$&'()*+,;=".contains(&byte)
}

/// Nothing, or a colon and a port, which may be empty.
fn is_port(rest: &[u8]) -> bool {
    let Some(digits) = rest.strip_prefix(b":") else { return rest.is_empty() };
    let port = std::str::from_utf8(digits).ok().filter(|port| port.bytes().all(|digit| digit.is_ascii_digit()));
    port.is_some_and(|port| port.is_empty() || port.parse::<u16>().is_ok())
}

enum Codings {
    None,
    Chunked,
    Other,
    /// Chunked twice, or an empty element.
    Unclear,
}

fn codings(headers: &HeaderMap<HeaderValue>) -> Codings {
    let mut found = Codings::None;
    let values = headers.get_all(header::TRANSFER_ENCODING).iter();
    for coding in values.flat_map(|value| value.as_bytes().split(|&byte| byte == b',')) {
        let coding = trim(coding);
        found = match found {
            Codings::None if coding.eq_ignore_ascii_case(b"chunked") => Codings::Chunked,
            _ if coding.is_empty() || coding.eq_ignore_ascii_case(b"chunked") => return Codings::Unclear,
            _ => return Codings::Other,
        };
    }
    found
}

/// `Transfer_Encoding`: to servers that know fields by the names of variables it is the real one.
fn is_framing_disguised(name: &HeaderName) -> bool {
    let letters = || name.as_str().bytes().filter(u8::is_ascii_alphanumeric);
    let disguised = |real: &HeaderName, bare: &[u8]| {
        name.as_str().len() >= bare.len() && name != real && letters().eq(bare.iter().copied())
    };
    disguised(&header::TRANSFER_ENCODING, b"transferencoding") || disguised(&header::CONTENT_LENGTH, b"contentlength")
}

/// At most one length, once: Pingora takes equal ones for one, others may not.
fn one_length(headers: &HeaderMap<HeaderValue>) -> bool {
    let mut lengths = headers.get_all(header::CONTENT_LENGTH).iter();
    let Some(length) = lengths.next() else { return true };
    lengths.next().is_none() && length.as_bytes().iter().all(u8::is_ascii_digit)
}

/// Whether a field of that lower-case name is among these lines.
fn has_field(lines: &[u8], name: &[u8]) -> bool {
    let names = lines.split(|&byte| byte == b'\n').filter_map(|line| line.split(|&byte| byte == b':').next());
    names.into_iter().any(|field| trim(field).eq_ignore_ascii_case(name))
}

/// Without the white space that HTTP knows; any other is a part of the word.
fn trim(bytes: &[u8]) -> &[u8] {
    let inner = |byte: &u8| !matches!(byte, b' ' | b'\t');
    let start = bytes.iter().position(inner).unwrap_or(bytes.len());
    let end = bytes.iter().rposition(inner).map_or(start, |at| at + 1);
    &bytes[start..end]
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::StatusCode;
    use proptest::prelude::*;

    /// As Pingora gives it to us: a length beside a coding is gone.
    fn judged(raw: &str) -> Result<(), Fault> {
        let (line, fields) = split_line(raw.as_bytes());
        let line = String::from_utf8_lossy(line).into_owned();
        let words: Vec<&str> = line.trim_end().split(' ').collect();
        let mut request = RequestHeader::build(words[0], words[1].as_bytes(), None).expect("a request");
        request.set_version(if words[2] == "HTTP/1.0" { Version::HTTP_10 } else { Version::HTTP_11 });
        for field in fields.split(|&byte| byte == b'\n') {
            let Some(colon) = field.iter().position(|&byte| byte == b':') else { continue };
            let name = String::from_utf8_lossy(&field[..colon]).into_owned();
            let value = HeaderValue::from_bytes(trim(field[colon + 1..].trim_ascii_end())).expect("a value");
            request.append_header(name, value).expect("a field");
        }
        if request.headers.contains_key(header::TRANSFER_ENCODING) {
            request.remove_header(&header::CONTENT_LENGTH);
        }
        Head { request: &request, raw: Some(raw.as_bytes()), rewritten: false }.judge()
    }

    fn status(raw: &str) -> u16 {
        judged(raw).map_or_else(|fault| fault.status, |()| 200)
    }

    #[test]
    fn given_hosts_when_judged_then_names_addresses_and_ports_pass() {
        for host in ["h", "shop.example", "a_b", "1.2.3.4", "[::1]", "h:80", "[2001:db8::1]:8080", "h:", "a%20b", "*"] {
            assert_eq!(status(&format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n")), 200, "{host}");
        }
        for host in
            ["", "a b", "a/b", "h:x", "h:99999", "h:1:2", "[::1", "[x]", "::1", "a\"b", "[::1]x", "h\\", "h?", ":80"]
        {
            assert_eq!(status(&format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n")), 400, "{host}");
        }
        assert_eq!(status("GET / HTTP/1.1\r\n\r\n"), 400);
        assert_eq!(status("GET http://h/ HTTP/1.1\r\n\r\n"), 400);
        assert_eq!(status("GET / HTTP/1.0\r\n\r\n"), 200);
    }

    #[test]
    fn given_framings_when_judged_then_one_that_two_readers_read_alike_passes() {
        let cases = [
            ("Content-Length: 5\r\n", 200),
            ("Transfer-Encoding: chunked\r\n", 200),
            ("transfer-encoding:\t Chunked \r\n", 200),
            ("Content-Length: 5\r\nContent-Length: 5\r\n", 400),
            ("Content-Length: 5, 5\r\n", 400),
            ("Content_Length: 5\r\n", 400),
            ("Transfer--Encoding: chunked\r\n", 400),
            ("TransferEncoding: chunked\r\n", 400),
            ("X-Transfer-Encoding: chunked\r\nContent-Length-X: 5\r\n", 200),
            ("Content-Length: +5\r\n", 400),
            ("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", 400),
            ("CONTENT-LENGTH: 5\r\nTransfer-Encoding: chunked\r\n", 400),
            ("content-length: 5\nTransfer-Encoding: chunked\n", 400),
            ("Transfer-Encoding: chunked, chunked\r\n", 400),
            ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", 400),
            ("Transfer-Encoding: , chunked\r\n", 400),
            ("Transfer-Encoding:\r\n", 400),
            ("Transfer-Encoding: gzip, chunked\r\n", 501),
            ("Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n", 501),
        ];
        for (fields, expected) in cases {
            let raw = format!("POST / HTTP/1.1\r\nHost: h\r\n{fields}\r\n");
            assert_eq!(status(&raw), expected, "{fields:?}");
            assert!(judged(&raw).err().is_none_or(|fault| fault.closes), "{fields:?}");
        }
    }

    #[test]
    fn given_what_connection_names_when_judged_then_that_is_refused_in_words_which_would_be_refused_without() {
        let nine = ["a"; 9].join(",");
        for (value, word) in [
            ("", None),
            ("close", None),
            ("Keep-Alive, x-private ,, Upgrade", None),
            (&nine, None),
            (&format!("{nine}, b"), Some("more than 9")),
            ("X-Forwarded-For", Some("X-Forwarded-For")),
            ("close, x-forwarded-proto", Some("X-Forwarded-For")),
            ("x-forwarded-host", Some("X-Forwarded-For")),
            ("HOST", Some("names Host")),
            ("\"x-forwarded-for\"", Some("no field")),
            (":authority", Some("no field")),
            ("a b", Some("no field")),
            (&"a".repeat(60_000), None),
        ] {
            let fault = judged(&format!("GET / HTTP/1.1\r\nHost: h\r\nConnection: {value}\r\n\r\n")).err();
            assert_eq!(fault.is_some(), word.is_some(), "{value}");
            assert!(fault.zip(word).is_none_or(|(fault, word)| fault.status == 400 && fault.what.contains(word)));
        }
        let two = "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\nConnection: x-forwarded-for\r\n\r\n";
        assert_eq!(status(two), 400);
    }

    #[test]
    fn given_targets_when_judged_then_paths_and_urls_pass() {
        for (method, target, expected) in [
            ("GET", "/", 200),
            ("GET", "/a/../b//c%2F;d?e=f?g&", 200),
            ("GET", "http://h/a", 200),
            ("GET", "HTTPS://h", 200),
            ("OPTIONS", "*", 200),
            ("GET", "*", 400),
            ("GET", "secret", 400),
            ("GET", "ftp://h/a", 400),
            ("GET", "/a#b", 400),
            ("GET", "/caf\u{e9}", 400),
            ("GET", "/a\u{7f}", 400),
            ("GET", "/a\tb", 400),
            ("TRACE", "/", 405),
            ("trace", "/", 405),
            ("BREW", "/", 200),
        ] {
            let mut request = RequestHeader::build(method, b"/", None).expect("a request");
            request.insert_header(header::HOST, "h").expect("a host");
            let raw = format!("{method} {target} HTTP/1.1\r\nHost: h\r\n\r\n");
            let head = Head { request: &request, raw: Some(raw.as_bytes()), rewritten: false };
            assert_eq!(head.judge().map_or_else(|fault| fault.status, |()| 200), expected, "{method} {target}");
        }
        let request = RequestHeader::build("GET", b"/a%20b", None).expect("a request");
        assert_eq!(Head { request: &request, raw: None, rewritten: true }.judge(), Err(REWRITTEN));
    }

    #[test]
    fn given_values_with_space_around_them_when_judged_then_in_http_2_alone_they_are_faults() {
        for (value, expected) in [("a", 200), ("a b", 200), ("", 200), (" a", 400), ("a\t", 400)] {
            let mut request = RequestHeader::build("GET", b"/", None).expect("a request");
            request.append_header("x", value).expect("a field");
            request.set_version(Version::HTTP_2);
            let judged = Head { request: &request, raw: None, rewritten: false }.judge();
            assert_eq!(judged.map_or_else(|fault| fault.status, |()| 200), expected, "{value:?}");
        }
    }

    #[test]
    fn given_sizes_at_and_above_the_limits_when_judged_then_only_those_above_are_refused() {
        let target = |length: usize| format!("GET /{} HTTP/1.1\r\nHost: h\r\n\r\n", "a".repeat(length - 1));
        assert_eq!([status(&target(TARGET_MOST)), status(&target(TARGET_MOST + 1))], [200, 414]);
        let frame = "Host: h\r\nx: \r\n\r\n".len();
        let fields = |length: usize| format!("GET / HTTP/1.1\r\nHost: h\r\nx: {}\r\n\r\n", "a".repeat(length - frame));
        assert_eq!([status(&fields(HEADERS_MOST)), status(&fields(HEADERS_MOST + 1))], [200, 431]);
    }

    #[test]
    fn given_answers_when_judged_then_those_with_one_certain_end_pass() {
        let framed = |fields: &[(&'static str, &'static str)]| {
            let mut response = ResponseHeader::build(StatusCode::OK, None).expect("a response");
            fields.iter().for_each(|(name, value)| drop(response.append_header(*name, *value)));
            is_framed(&response)
        };
        assert!(framed(&[]) && framed(&[("content-length", "5")]) && framed(&[("transfer-encoding", "Chunked")]));
        assert!(!framed(&[("content-length", "5"), ("content-length", "5")]));
        assert!(!framed(&[("content-length", "5, 5")]));
        assert!(!framed(&[("transfer-encoding", "gzip")]));
        assert!(!framed(&[("transfer-encoding", "gzip, chunked")]));
        assert!(!framed(&[("transfer-encoding", "chunked"), ("content-length", "5")]));
    }

    proptest! {
        #[test]
        fn given_any_bytes_when_judged_then_there_is_an_answer(raw: Vec<u8>, rewritten: bool) {
            let request = RequestHeader::build("GET", b"/", None).expect("a request");
            let _ = Head { request: &request, raw: Some(&raw), rewritten }.judge();
        }
    }
}
