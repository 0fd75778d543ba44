//! Who asks, by what a trusted proxy says in front of us. It is believed as far back as trusted ones passed the request on: the
//! first address that is not theirs is the client's, and what stands before that is what the client made up. X-Forwarded-For
//! counts before Forwarded; of schemes and hosts the one that belongs to the same hop. A line of Forwarded that is not as RFC
//! 7239 has it is dropped whole, and all before it: where a quote is left open, nobody knows whose word what follows is. Two
//! liberties that many take hide nothing, and are taken: blanks around `;`, and addresses without quotes, which get theirs.

use crate::model::is_token;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use ipnet::IpNet;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

const FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
/// Hops that are looked at.
const MOST: usize = 64;

/// The client as a trusted proxy tells of it, and what is to be said of it further on.
#[derive(Debug, PartialEq, Eq)]
pub struct Forwarded {
    pub client: IpAddr,
    /// `None`: nothing was said of it.
    pub secure: Option<bool>,
    /// X-Forwarded-For: the client, and the proxies up to the one that is connected.
    pub chain: Option<HeaderValue>,
    /// X-Forwarded-Host.
    pub host: Option<HeaderValue>,
    /// What is left of Forwarded, but for hosts that are none, with the proxy that is connected.
    pub forwarded: Option<HeaderValue>,
}

/// Where one proxy got the request from.
struct Hop<'h> {
    from: Option<IpAddr>,
    /// An element of Forwarded.
    element: &'h str,
}

impl Forwarded {
    /// `None` where `peer`, which is connected, is not trusted, or says nothing.
    pub fn read(headers: &HeaderMap, peer: IpAddr, trusted: &[IpNet]) -> Option<Self> {
        let is_trusted = |ip: &IpAddr| trusted.iter().any(|range| range.contains(ip));
        let said = [&FOR, &PROTO, &HOST, &header::FORWARDED].iter().any(|name| headers.contains_key(*name));
        if !said || !is_trusted(&peer) {
            return None;
        }
        let by_elements = !headers.contains_key(FOR);
        let hops: Vec<Hop<'_>> = match by_elements {
            true => last(headers, &header::FORWARDED, elements).into_iter().map(Hop::of_element).collect(),
            false => {
                last(headers, &FOR, commas).into_iter().map(|from| Hop { from: address(from), element: "" }).collect()
            }
        };
        // From the nearest back to the client.
        let mut known = Vec::new();
        for hop in &hops {
            let Some(from) = hop.from else { break };
            known.push(from);
            if !is_trusted(&from) {
                break;
            }
        }
        let client = *known.last().unwrap_or(&peer);
        let nearest = known.len().max(1) - 1;
        let element = |name| hops.get(nearest).and_then(|hop| parameter(hop.element, name));
        let proto = element("proto").or_else(|| at(headers, &PROTO, nearest));
        let host = element("host").or_else(|| at(headers, &HOST, nearest));
        let chain: Vec<String> = known.iter().rev().chain([&peer]).map(IpAddr::to_string).collect();
        Some(Forwarded {
            client,
            secure: proto.and_then(|proto| is_secure(&proto)),
            chain: HeaderValue::try_from(chain.join(", ")).ok(),
            host: host.filter(|host| is_host(host)).and_then(|host| HeaderValue::try_from(host).ok()),
            forwarded: (by_elements && !known.is_empty()).then(|| left(&hops[..known.len()], peer)).flatten(),
        })
    }
}

impl<'h> Hop<'h> {
    fn of_element(element: &'h str) -> Self {
        Hop { from: parameter(element, "for").and_then(|from| address(&from)), element }
    }
}

fn left(hops: &[Hop<'_>], peer: IpAddr) -> Option<HeaderValue> {
    let own = match peer {
        IpAddr::V4(ip) => format!("for={ip}"),
        IpAddr::V6(ip) => format!("for=\"[{ip}]\""),
    };
    let elements: Vec<String> = hops.iter().rev().map(|hop| written(hop.element)).chain([own]).collect();
    HeaderValue::try_from(elements.join(", ")).ok()
}

/// An element as it goes on.
fn written(element: &str) -> String {
    let pairs = pairs(element).unwrap_or_default().into_iter();
    let told = pairs.filter(|pair| !pair.name.eq_ignore_ascii_case("host") || is_host(&pair.value()));
    let told = told.map(|Pair { name, raw }| match raw.starts_with('"') || is_token(raw.as_bytes()) {
        true => format!("{name}={raw}"),
        false => format!("{name}=\"{raw}\""),
    });
    told.collect::<Vec<_>>().join(";")
}

fn is_secure(proto: &str) -> Option<bool> {
    let is = |word: &str| proto.eq_ignore_ascii_case(word);
    (is("https") || is("wss")).then_some(true).or_else(|| (is("http") || is("ws")).then_some(false))
}

/// The item of a list that belongs to the hop so far back; a shorter list's first.
fn at(headers: &HeaderMap, name: &HeaderName, back: usize) -> Option<String> {
    let items = last(headers, name, commas);
    items.get(back).or(items.last()).map(|item| (*item).to_owned())
}

/// The items of a field's lines, the last one first, at most [`MOST`]. A line that is no text, or that `split` does not
/// understand, ends them.
fn last<'h>(
    headers: &'h HeaderMap,
    name: &HeaderName,
    split: impl Fn(&'h str) -> Option<Vec<&'h str>>,
) -> Vec<&'h str> {
    let mut items = Vec::new();
    for line in headers.get_all(name).iter().rev() {
        let Some(mut pieces) = line.to_str().ok().and_then(&split) else { break };
        pieces.reverse();
        items.extend(pieces.into_iter().map(str::trim).filter(|piece| !piece.is_empty()));
        if items.len() >= MOST {
            items.truncate(MOST);
            break;
        }
    }
    items
}

/// Of a list that knows no quotes.
fn commas(line: &str) -> Option<Vec<&str>> {
    Some(line.split(',').collect())
}

/// Of Forwarded; `None` where one of them is malformed.
fn elements(line: &str) -> Option<Vec<&str>> {
    unquoted(line, ',').filter(|elements| elements.iter().all(|element| pairs(element).is_some()))
}

/// The pieces between separators that stand outside of quotes; `None` where a quote is left open.
fn unquoted(text: &str, separator: char) -> Option<Vec<&str>> {
    let (mut quoted, mut escaped) = (false, false);
    let pieces = text.split(|c| {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = quoted,
            '"' => quoted = !quoted,
            _ => return c == separator && !quoted,
        }
        false
    });
    let pieces = pieces.collect();
    (!quoted).then_some(pieces)
}

/// `name=value` or `name="value"`.
struct Pair<'e> {
    name: &'e str,
    /// As it is written.
    raw: &'e str,
}

/// `None` where one is malformed, or a name stands twice.
fn pairs(element: &str) -> Option<Vec<Pair<'_>>> {
    let mut pairs: Vec<Pair<'_>> = Vec::new();
    for text in unquoted(element, ';')?.into_iter().map(str::trim).filter(|text| !text.is_empty()) {
        let (name, raw) = text.split_once('=')?;
        let twice = pairs.iter().any(|pair| pair.name.eq_ignore_ascii_case(name));
        if twice || !is_token(name.as_bytes()) || !(is_quoted(raw) || is_plain(raw)) {
            return None;
        }
        pairs.push(Pair { name, raw });
    }
    Some(pairs)
}

impl Pair<'_> {
    /// Without its quotes and what is escaped in them.
    fn value(&self) -> String {
        let Some(quoted) = self.raw.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) else {
            return self.raw.to_owned();
        };
        let mut escaped = false;
        let kept = |c: &char| {
            escaped = *c == '\\' && !escaped;
            !escaped
        };
        quoted.chars().filter(kept).collect()
    }
}

/// One quoted string and nothing after it.
fn is_quoted(raw: &str) -> bool {
    let Some(inner) = raw.strip_prefix('"') else { return false };
    let mut chars = inner.chars();
    loop {
        match chars.next() {
            Some('"') => return chars.as_str().is_empty(),
            Some('\\') if chars.next().is_some() => {}
            Some('\\') | None => return false,
            Some(_) => {}
        }
    }
}

/// A token, or an address that should be in quotes.
fn is_plain(text: &str) -> bool {
    is_token(text.replace([':', '[', ']'], "_").as_bytes())
}

/// Of an element of Forwarded.
fn parameter(element: &str, wanted: &str) -> Option<String> {
    let mut pairs = pairs(element)?.into_iter();
    pairs.find(|pair| pair.name.eq_ignore_ascii_case(wanted)).map(|pair| pair.value())
}

/// Whether it may go on as one: a name or an address, perhaps with a port. What RFC 3986 allows in names beyond that, `;` and `=`
/// among it, separates things elsewhere.
fn is_host(host: &str) -> bool {
    let is_name = |name: &str| {
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~%".contains(&byte))
    };
    let is_port =
        |port: &str| port.bytes().all(|byte| byte.is_ascii_digit()) && (port.is_empty() || port.parse::<u16>().is_ok());
    let (named, port) = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, port)) => (address.parse::<Ipv6Addr>().is_ok(), port),
        None => {
            let (name, port) = host.split_at(host.find(':').unwrap_or(host.len()));
            (is_name(name), port)
        }
    };
    named && (port.is_empty() || port.strip_prefix(':').is_some_and(is_port))
}

/// With or without a port, IPv6 with or without brackets; IPv4 inside IPv6 is IPv4.
fn address(text: &str) -> Option<IpAddr> {
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let socket = || text.parse::<SocketAddr>().ok().map(|socket| socket.ip());
    bare.parse().ok().or_else(socket).map(|ip: IpAddr| ip.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PEER: &str = "10.0.0.9";

    fn headers(lines: &[(&str, &str)]) -> HeaderMap {
        let line = |(name, value): &(&str, &str)| {
            (name.parse::<HeaderName>().expect("a name"), value.parse().expect("a value"))
        };
        lines.iter().map(line).collect()
    }

    fn read(peer: &str, lines: &[(&str, &str)]) -> Option<Forwarded> {
        let trusted = ["10.0.0.0/8", "2001:db8::/32"].map(|range| range.parse().expect("a range"));
        Forwarded::read(&headers(lines), peer.parse().expect("an address"), &trusted)
    }

    fn client(lines: &[(&str, &str)]) -> String {
        read(PEER, lines).expect("is trusted").client.to_string()
    }

    fn text(value: Option<HeaderValue>) -> String {
        value.map_or("-".into(), |value| value.to_str().expect("text").to_owned())
    }

    #[test]
    fn given_a_peer_that_is_not_trusted_or_says_nothing_when_read_then_nothing() {
        assert_eq!(read("192.0.2.1", &[("x-forwarded-for", "198.51.100.1"), ("x-forwarded-proto", "https")]), None);
        assert_eq!(read(PEER, &[("x-real-ip", "198.51.100.1"), ("host", "h")]), None);
    }

    #[test]
    fn given_a_chain_when_read_then_the_client_is_the_last_that_is_not_trusted() {
        for (chain, expected, on) in [
            ("198.51.100.1", "198.51.100.1", "198.51.100.1, 10.0.0.9"),
            ("6.6.6.6, 198.51.100.1", "198.51.100.1", "198.51.100.1, 10.0.0.9"),
            ("6.6.6.6,198.51.100.1 , 10.1.1.1", "198.51.100.1", "198.51.100.1, 10.1.1.1, 10.0.0.9"),
            ("10.2.2.2, 10.1.1.1", "10.2.2.2", "10.2.2.2, 10.1.1.1, 10.0.0.9"),
            ("198.51.100.1:4711", "198.51.100.1", "198.51.100.1, 10.0.0.9"),
            ("[2001:db9::1]:80", "2001:db9::1", "2001:db9::1, 10.0.0.9"),
            ("::ffff:198.51.100.1", "198.51.100.1", "198.51.100.1, 10.0.0.9"),
            ("2001:db9::7, 2001:db8::1", "2001:db9::7", "2001:db9::7, 2001:db8::1, 10.0.0.9"),
            ("6.6.6.6, unknown, 10.1.1.1", "10.1.1.1", "10.1.1.1, 10.0.0.9"),
            ("nonsense", "10.0.0.9", "10.0.0.9"),
            (",", "10.0.0.9", "10.0.0.9"),
        ] {
            let read = read(PEER, &[("x-forwarded-for", chain)]).expect("is trusted");
            assert_eq!((read.client.to_string().as_str(), text(read.chain).as_str()), (expected, on), "{chain}");
        }
        assert_eq!(
            client(&[("x-forwarded-for", "6.6.6.6, 198.51.100.1"), ("x-forwarded-for", "10.1.1.1")]),
            "198.51.100.1"
        );
    }

    #[test]
    fn given_schemes_and_hosts_when_read_then_those_of_the_clients_hop() {
        for (chain, protos, secure) in [
            ("198.51.100.1", "https", Some(true)),
            ("198.51.100.1, 10.1.1.1", "HTTPS, http", Some(true)),
            ("198.51.100.1, 10.1.1.1", "http, https", Some(false)),
            // The client wrote the first of them.
            ("198.51.100.1", "https, http", Some(false)),
            ("198.51.100.1, 10.1.1.1", "https", Some(true)),
            ("198.51.100.1", "wss", Some(true)),
            ("198.51.100.1", "gopher", None),
            ("198.51.100.1", "", None),
        ] {
            let lines = [
                ("x-forwarded-for", chain),
                ("x-forwarded-proto", protos),
                ("x-forwarded-host", "a.example, b.example"),
            ];
            let read = read(PEER, &lines).expect("is trusted");
            assert_eq!(read.secure, secure, "{chain} by {protos}");
            let host = if chain.contains(',') { "a.example" } else { "b.example" };
            assert_eq!(text(read.host), host, "{chain}");
        }
        let alone = read(PEER, &[("x-forwarded-proto", "https")]).expect("is trusted");
        assert_eq!((alone.client.to_string().as_str(), alone.secure, alone.host), (PEER, Some(true), None));
    }

    #[test]
    fn given_the_standard_field_when_read_then_as_the_others_which_count_before_it() {
        let elements = "for=6.6.6.6;proto=http, For=\"198.51.100.1:99\";proto=https;host=\"a.example\", for=10.1.1.1;proto=http;by=_x";
        let read = |lines: &[(&str, &str)]| read(PEER, lines).expect("is trusted");
        let by_it = read(&[("forwarded", elements)]);
        assert_eq!((by_it.client.to_string().as_str(), by_it.secure), ("198.51.100.1", Some(true)));
        assert_eq!(
            (text(by_it.host), text(by_it.chain)),
            ("a.example".into(), "198.51.100.1, 10.1.1.1, 10.0.0.9".into())
        );
        let left =
            "For=\"198.51.100.1:99\";proto=https;host=\"a.example\", for=10.1.1.1;proto=http;by=_x, for=10.0.0.9";
        assert_eq!(text(by_it.forwarded), left);
        let both = read(&[("forwarded", "for=6.6.6.6;proto=https"), ("x-forwarded-for", "198.51.100.1")]);
        assert_eq!((both.client.to_string().as_str(), both.secure, both.forwarded), ("198.51.100.1", None, None));
        assert_eq!(client(&[("forwarded", "for=\"[2001:db9::1]:80\"")]), "2001:db9::1");
        assert_eq!(client(&[("forwarded", "for=\"_a,b\", for=10.1.1.1")]), "10.1.1.1");
    }

    #[test]
    fn given_quotes_in_the_standard_field_when_read_then_as_they_are_meant_and_one_left_open_drops_it() {
        for (line, from, host, on) in [
            ("for=\"198.51.100.1\";host=\"a.example\"", "198.51.100.1", "a.example", true),
            ("for=\"198\\.51.100.1\"; Host=\"a\\.example\" ;", "198.51.100.1", "a.example", true),
            ("by=\"a, b; for=6.6.6.6\";for=198.51.100.1", "198.51.100.1", "-", true),
            ("by=\"\\\", for=6.6.6.6\";for=198.51.100.1", "198.51.100.1", "-", true),
            ("for=198.51.100.1;host=\"a\\\"b\"", "198.51.100.1", "-", true),
            ("for=198.51.100.1;host=\"a;for=10.0.0.1\"", "198.51.100.1", "-", true),
            ("for=198.51.100.1:80", "198.51.100.1", "-", true),
            ("for=198.51.100.1;host=a.example:80", "198.51.100.1", "a.example:80", true),
            ("for=[2001:db9::1]:80", "2001:db9::1", "-", true),
            ("for=198.51.100.1 ; host=[2001:db9::2]", "198.51.100.1", "[2001:db9::2]", true),
            (";, for=198.51.100.1;;", "198.51.100.1", "-", true),
            ("for=6.6.6.6;For=10.1.1.1, proto=https;for=198.51.100.1", PEER, "-", false),
            // Malformed.
            ("for=\"6.6.6.6, for=198.51.100.1", PEER, "-", false),
            ("for=6.6.6.6;by=\"_x\\\", for=198.51.100.1", PEER, "-", false),
            ("for=\"6.6.6.6\"x, for=198.51.100.1", PEER, "-", false),
            ("for=6.6\".6.\"6, for=198.51.100.1", PEER, "-", false),
            ("for=6.6.6.6\\, for=198.51.100.1", PEER, "-", false),
            ("6.6.6.6, for=198.51.100.1", PEER, "-", false),
            ("for =198.51.100.1", PEER, "-", false),
            ("for= 198.51.100.1", PEER, "-", false),
            ("for=198.51.100.1;host=a b", PEER, "-", false),
            ("for=198.51.100.1;host=", PEER, "-", false),
            ("for=198.51.100.1;=a", PEER, "-", false),
            ("for=198.51.100.1;\"host\"=a", PEER, "-", false),
            ("for=198.51.100.1;x=y;X=\"y\"", PEER, "-", false),
            ("for=198.51.100.1;by={a}", PEER, "-", false),
            ("for=\"198.51.100.1\" x", PEER, "-", false),
            ("for=198.51.100.1/24", PEER, "-", false),
        ] {
            let read = read(PEER, &[("forwarded", line)]).expect("is trusted");
            let goes_on = read.forwarded.is_some();
            assert_eq!(
                (read.client.to_string().as_str(), text(read.host).as_str(), goes_on),
                (from, host, on),
                "{line}"
            );
        }
        // Its lines are each one proxy's or several.
        let lines = [("forwarded", "for=\"6.6.6.6"), ("forwarded", "for=10.1.1.1")];
        let read = read(PEER, &lines).expect("is trusted");
        assert_eq!(
            (read.client.to_string().as_str(), text(read.forwarded)),
            ("10.1.1.1", "for=10.1.1.1, for=10.0.0.9".into())
        );
    }

    #[test]
    fn given_elements_that_go_on_when_written_then_hosts_that_are_none_are_not_there_and_addresses_have_their_quotes() {
        for (line, on) in [
            ("for=198.51.100.1;host=\"a;for=10.0.0.1\";proto=https", "for=198.51.100.1;proto=https"),
            ("Host=\"a, for=10.0.0.1\"; for=\"198.51.100.1\"", "for=\"198.51.100.1\""),
            ("for=198.51.100.1;host=\"\", for=10.1.1.1;host=\"a b\"", "for=198.51.100.1, for=10.1.1.1"),
            ("for=198.51.100.1:80 ; host=a.example:8", "for=\"198.51.100.1:80\";host=\"a.example:8\""),
            ("for=[2001:db9::1]", "for=\"[2001:db9::1]\""),
            ("for=198.51.100.1;host=\"a\\.example\";x=\"\\\"\"", "for=198.51.100.1;host=\"a\\.example\";x=\"\\\"\""),
        ] {
            let read = read(PEER, &[("forwarded", line)]).expect("is trusted");
            assert_eq!(text(read.forwarded), format!("{on}, for=10.0.0.9"), "{line}");
        }
    }

    #[test]
    fn given_hosts_when_judged_then_only_names_and_addresses_with_or_without_a_port_are_some() {
        for host in [
            "a",
            "a.example",
            "a:",
            "a_b-c.example:8443",
            "192.0.2.1",
            "192.0.2.1:80",
            "[2001:db9::1]",
            "[::1]:80",
            "xn--a%41~",
        ] {
            assert!(is_host(host), "{host}");
        }
        for host in [
            "",
            ":",
            ":80",
            "a:b",
            "a:+1",
            "a:65536",
            "a:80:80",
            "a b",
            "a;for=10.0.0.1",
            "a=b",
            "a,b",
            "a/b",
            "a@b",
            "a\"b",
            "a\\b",
            "[",
            "[a]",
            "[::1",
            "[::1]80",
            "[192.0.2.1]",
            "::1",
            "a?b",
            "a#b",
            "é",
        ] {
            assert!(!is_host(host), "{host}");
        }
    }

    #[test]
    fn given_quotes_in_the_other_fields_when_read_then_they_hide_nothing() {
        assert_eq!(client(&[("x-forwarded-for", "\"6.6.6.6, 198.51.100.1")]), "198.51.100.1");
        let lines = [("x-forwarded-for", "198.51.100.1"), ("x-forwarded-host", "\"b.example, a.example")];
        assert_eq!(text(read(PEER, &lines).expect("is trusted").host), "a.example");
        let lines = [("x-forwarded-for", "198.51.100.1"), ("x-forwarded-host", "a \"b\"")];
        assert_eq!(read(PEER, &lines).expect("is trusted").host, None);
    }

    #[test]
    fn given_a_chain_without_end_when_read_then_a_part_of_it() {
        let chain = vec!["10.1.1.1"; 10_000].join(",");
        let read = read(PEER, &[("x-forwarded-for", &chain)]).expect("is trusted");
        assert_eq!(text(read.chain).split(',').count(), MOST + 1);
    }

    proptest! {
        #[test]
        fn given_any_text_when_read_then_a_client_and_what_goes_on_names_it_first(
            chain in "[0-9a-f:.,\"\\[\\] ]{0,60}", forwarded in "[for=0-9a-f:.,;\"\\\\\\[\\] ]{0,60}", by in any::<bool>()
        ) {
            let lines = [("x-forwarded-for", chain.as_str()), ("forwarded", forwarded.as_str())];
            let read = read(PEER, &lines[usize::from(by)..]).expect("is trusted");
            prop_assert!(text(read.chain).starts_with(&read.client.to_string()));
            // What goes on is as the RFC has it, and says the same to who reads it next.
            if let Some(on) = read.forwarded.as_ref().and_then(|on| on.to_str().ok()) {
                let said = |hop: &&str| {
                    let pairs = pairs(hop).expect("well-formed");
                    pairs.iter().all(|pair| is_quoted(pair.raw) || is_token(pair.raw.as_bytes()))
                };
                prop_assert!(elements(on).expect("well-formed").iter().map(|hop| hop.trim()).all(|hop| said(&hop)), "{}", on);
                let again = Forwarded::read(&headers(&[("forwarded", on)]), PEER.parse().expect("an address"), &[
                    "10.0.0.0/8".parse().expect("a range"), "2001:db8::/32".parse().expect("a range"),
                ]);
                prop_assert_eq!(again.map(|again| again.client), Some(read.client));
            }
        }
    }
}
