//! What a route asks of a request beside host, path, port and method: header fields, query parameters, the client's
//! address. The rules are YARP's, its quirks included; nothing is allocated and nothing fails, whatever a client sends.
//!
//! - Of several lines or parameters of one name, one that fits suffices. None, or one that is empty, is as good as absent.
//!   Absent, only `NotExists` and `NotContains` match.
//! - `Exact` and `Prefix` take header lines apart at `,` (`Cookie`: at `;`), not inside quotes, and look at each piece: spaces
//!   in front are dropped, those behind stay, and one pair of quotes around all of it is taken off.
//! - `Contains` and `NotContains` look at whole lines, quotes and all.
//! - Parameters are compared decoded: `+` is a space, `%XX` a byte, anything else itself. Their values are whole.
//! - Without `case_sensitive` ASCII letters are compared without case. Names always are.

use crate::config::{self, HeaderMatch, MatchMode, QueryMatch, ValueTest};
use crate::model::RequestView;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use ipnet::IpNet;
use std::net::IpAddr;

/// All of one route.
pub struct Matchers {
    client_ip: Vec<IpNet>,
    headers: Vec<HeaderMatcher>,
    query: Vec<QueryMatcher>,
}

pub(super) struct HeaderMatcher {
    name: HeaderName,
    separator: u8,
    test: Test,
}

struct QueryMatcher {
    name: String,
    test: Test,
}

struct Test {
    mode: MatchMode,
    /// In small letters where case does not count.
    wanted: Vec<Vec<u8>>,
    fold: bool,
}

impl Matchers {
    pub fn new(matches: &config::Match) -> Self {
        Matchers {
            client_ip: matches.client_ip.clone(),
            headers: matches.headers.iter().map(HeaderMatcher::new).collect(),
            query: matches.query.iter().map(QueryMatcher::new).collect(),
        }
    }

    pub fn admit(&self, request: &RequestView<'_>) -> bool {
        self.admits_client(request.client_ip)
            && self.headers.iter().all(|matcher| matcher.admits(request.headers))
            && self.query.iter().all(|matcher| matcher.admits(request.query.unwrap_or_default()))
    }

    /// Whose address is not known is in no range.
    fn admits_client(&self, client: Option<IpAddr>) -> bool {
        self.client_ip.is_empty() || client.is_some_and(|ip| self.client_ip.iter().any(|range| range.contains(&ip)))
    }
}

impl HeaderMatcher {
    pub fn new(written: &HeaderMatch) -> Self {
        let separator = if written.name == header::COOKIE { b';' } else { b',' };
        HeaderMatcher { name: written.name.clone(), separator, test: Test::new(&written.test) }
    }

    pub fn admits(&self, headers: &HeaderMap) -> bool {
        let lines = || headers.get_all(&self.name).into_iter().map(HeaderValue::as_bytes);
        let absent = absent(lines().map(bytes));
        match self.test.mode {
            MatchMode::Exact | MatchMode::Prefix => {
                let pieces = lines().flat_map(|line| Pieces { rest: line, separator: self.separator });
                self.test.passes(absent, pieces.map(bytes))
            }
            _ => self.test.passes(absent, lines().map(bytes)),
        }
    }
}

impl QueryMatcher {
    fn new(written: &QueryMatch) -> Self {
        QueryMatcher { name: written.name.to_ascii_lowercase(), test: Test::new(&written.test) }
    }

    fn admits(&self, query: &str) -> bool {
        let named =
            |(name, value)| begins_and_ends(Decoded(name), self.name.as_bytes(), true).then_some(Decoded(value));
        let values = parameters(query).filter_map(named);
        self.test.passes(absent(values.clone()), values)
    }
}

impl Test {
    fn new(written: &ValueTest) -> Self {
        let fold = !written.case_sensitive;
        let wanted = |value: &String| if fold { value.to_ascii_lowercase() } else { value.clone() }.into_bytes();
        Test { mode: written.mode, wanted: written.values.iter().map(wanted).collect(), fold }
    }

    fn passes<T: Iterator<Item = u8> + Clone>(&self, absent: bool, mut texts: impl Iterator<Item = T>) -> bool {
        match self.mode {
            MatchMode::Exists => !absent,
            MatchMode::NotExists => absent,
            MatchMode::NotContains => absent || !texts.any(|text| self.finds(text)),
            MatchMode::Exact | MatchMode::Prefix | MatchMode::Contains => !absent && texts.any(|text| self.finds(text)),
        }
    }

    fn finds<T: Iterator<Item = u8> + Clone>(&self, text: T) -> bool {
        self.wanted.iter().any(|wanted| match self.mode {
            MatchMode::Exact => begins_and_ends(text.clone(), wanted, self.fold),
            MatchMode::Prefix => begins(&mut text.clone(), wanted, self.fold),
            _ => contains(text.clone(), wanted, self.fold),
        })
    }
}

fn absent<T: Iterator<Item = u8>>(mut texts: impl Iterator<Item = T>) -> bool {
    match (texts.next(), texts.next()) {
        (None, _) => true,
        (Some(mut only), None) => only.next().is_none(),
        (Some(_), Some(_)) => false,
    }
}

/// Whether `text` begins with `wanted`; it is read that far. With `fold`, `wanted` is in small letters.
fn begins(text: &mut impl Iterator<Item = u8>, wanted: &[u8], fold: bool) -> bool {
    wanted.iter().all(|&wanted| {
        text.next().is_some_and(|byte| if fold { byte.to_ascii_lowercase() == wanted } else { byte == wanted })
    })
}

fn begins_and_ends(mut text: impl Iterator<Item = u8>, wanted: &[u8], fold: bool) -> bool {
    begins(&mut text, wanted, fold) && text.next().is_none()
}

fn contains(mut text: impl Iterator<Item = u8> + Clone, wanted: &[u8], fold: bool) -> bool {
    loop {
        if begins(&mut text.clone(), wanted, fold) {
            return true;
        }
        if text.next().is_none() {
            return false;
        }
    }
}

fn bytes(text: &[u8]) -> impl Iterator<Item = u8> + Clone {
    text.iter().copied()
}

/// The pieces of a header line between separators, those inside quotes left alone.
#[derive(Clone)]
struct Pieces<'a> {
    rest: &'a [u8],
    separator: u8,
}

impl<'a> Iterator for Pieces<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        if self.rest.is_empty() {
            return None;
        }
        let spaces = self.rest.iter().take_while(|byte| **byte == b' ').count();
        let (piece, rest) = self.split(&self.rest[spaces..]);
        self.rest = rest;
        Some(match piece {
            [b'"', inside @ .., b'"'] => inside,
            piece => piece,
        })
    }
}

impl<'a> Pieces<'a> {
    /// Up to the next separator, and what is behind it. A quote that is never closed takes all that is left.
    fn split(&self, text: &'a [u8]) -> (&'a [u8], &'a [u8]) {
        let mut quoted = false;
        for (at, &byte) in text.iter().enumerate() {
            match byte {
                b'"' => quoted = !quoted,
                byte if byte == self.separator && !quoted => return (&text[..at], &text[at + 1..]),
                _ => {}
            }
        }
        (text, &[])
    }
}

/// Names and values as they are written, in the order of the query; `a` is `a=`.
fn parameters(query: &str) -> impl Iterator<Item = (&[u8], &[u8])> + Clone {
    query.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        (name.as_bytes(), value.as_bytes())
    })
}

/// A part of a query, decoded as it is read.
#[derive(Clone)]
struct Decoded<'a>(&'a [u8]);

impl Iterator for Decoded<'_> {
    type Item = u8;

    fn next(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        if let (b'%', [high, low, after @ ..]) = (first, rest)
            && let (Some(high), Some(low)) = (hex(*high), hex(*low))
        {
            self.0 = after;
            return Some(high << 4 | low);
        }
        self.0 = rest;
        Some(if first == b'+' { b' ' } else { first })
    }
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Method;
    use proptest::prelude::*;

    fn test(mode: MatchMode, values: &[&str], case_sensitive: bool) -> ValueTest {
        ValueTest { mode, values: values.iter().map(|value| (*value).to_owned()).collect(), case_sensitive }
    }

    fn header(name: &str, mode: MatchMode, values: &[&str], lines: &[&str]) -> bool {
        let name: HeaderName = name.parse().unwrap();
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(name.clone(), HeaderValue::from_bytes(line.as_bytes()).unwrap());
        }
        HeaderMatcher::new(&HeaderMatch { name, test: test(mode, values, false) }).admits(&headers)
    }

    fn query(name: &str, mode: MatchMode, values: &[&str], query: &str) -> bool {
        QueryMatcher::new(&QueryMatch { name: name.into(), test: test(mode, values, false) }).admits(query)
    }

    #[test]
    fn given_header_lines_when_matched_exactly_then_each_piece_counts_with_its_quotes_and_spaces() {
        use MatchMode::{Exact, Prefix};
        for (mode, wanted, lines, expected) in [
            (Exact, "abc", &["abc"][..], true),
            (Exact, "abc", &["ABC"], true),
            (Exact, "abc", &["abcd"], false),
            (Exact, "abc", &["x,abc"], true),
            (Exact, "abc", &["x,   abc"], true),
            (Exact, "abc", &["x", "abc"], true),
            (Exact, "abc", &["abc ,x"], false),
            (Exact, "abc", &["x,\tabc"], false),
            (Exact, "abc", &["\"abc\""], true),
            (Exact, "abc", &["\"abc\" ,x"], false),
            (Exact, "abc", &["\"\"abc\"\""], false),
            (Exact, "\"abc\"", &["\"\"abc\"\""], true),
            (Exact, "a,b", &["a,b"], false),
            (Exact, "a,b", &["x,\"a,b\""], true),
            (Exact, "a\"b,c\"d", &["x,a\"b,c\"d,y"], true),
            (Exact, "a\"b,c", &["a\"b,c"], true),
            (Exact, "\"", &["\""], true),
            (Exact, "abc", &[], false),
            (Exact, "abc", &[""], false),
            (Prefix, "abc", &["x, ABCd"], true),
            (Prefix, "abc", &["\"abcd\""], true),
            (Prefix, "abc", &["xabc"], false),
            (Prefix, "abc", &["ab"], false),
        ] {
            assert_eq!(header("x-a", mode, &[wanted], lines), expected, "{mode:?} {wanted} {lines:?}");
        }
    }

    #[test]
    fn given_cookies_when_matched_then_apart_at_semicolons_and_not_at_commas() {
        assert!(header("cookie", MatchMode::Exact, &["b=2,3"], &["a=1; b=2,3"]));
        assert!(!header("cookie", MatchMode::Exact, &["b=2"], &["a=1,b=2"]));
        assert!(!header("x-cookie", MatchMode::Exact, &["b=2"], &["a=1;b=2"]));
    }

    #[test]
    fn given_header_lines_when_searched_then_whole_lines_and_nothing_passes_not_contains() {
        use MatchMode::{Contains, NotContains};
        for (mode, wanted, lines, expected) in [
            (Contains, "b,c", &["a,B,C,d"][..], true),
            (Contains, "aab", &["aaab"], true),
            (Contains, "b", &["a", "xbx"], true),
            (Contains, "b", &["a"], false),
            (Contains, "b", &[], false),
            (Contains, "b", &[""], false),
            (NotContains, "b", &["a"], true),
            (NotContains, "b", &["a", "xBx"], false),
            (NotContains, "b", &[], true),
            (NotContains, "b", &[""], true),
            (NotContains, "b", &["", ""], true),
        ] {
            assert_eq!(header("x-a", mode, &[wanted], lines), expected, "{mode:?} {wanted} {lines:?}");
        }
    }

    #[test]
    fn given_a_header_when_asked_whether_it_exists_then_one_empty_line_is_none() {
        for (lines, exists) in [(&[][..], false), (&[""], false), (&["", ""], true), (&["x"], true)] {
            assert_eq!(header("x-a", MatchMode::Exists, &[], lines), exists, "{lines:?}");
            assert_eq!(header("x-a", MatchMode::NotExists, &[], lines), !exists, "{lines:?}");
        }
    }

    #[test]
    fn given_a_query_when_matched_then_names_without_case_and_values_whole_and_decoded() {
        use MatchMode::{Contains, Exact, Exists, NotContains, Prefix};
        for (mode, wanted, text, expected) in [
            (Exact, "a b", "x=1&p=a+b", true),
            (Exact, "a b", "P=A%20b", true),
            (Exact, "a b", "%70=a%20b", true),
            (Exact, "a+b", "p=a%2Bb", true),
            (Exact, "a", "p=a,b", false),
            (Exact, "a", "p=%22a%22", false),
            (Exact, "é", "p=%c3%A9", true),
            (Exact, "%zz%4", "p=%zz%4", true),
            (Exact, "a=b", "p=a=b", true),
            (Exact, "b", "p=a&p=b", true),
            (Exact, "a", "pp=a&=a&a", false),
            (Exact, "a", "", false),
            (Prefix, "a b", "p=a%20bc", true),
            (Prefix, "b", "p=ab", false),
            (Contains, "b&c", "p=ab%26cd", true),
            (Contains, "b", "p=a", false),
            (NotContains, "b", "p=a&p=xb", false),
            (NotContains, "b", "q=b", true),
            (NotContains, "b", "p", true),
            (Exists, "", "p=1", true),
            (Exists, "", "p", false),
            (Exists, "", "p=", false),
            (Exists, "", "p&p", true),
            (Exists, "", "q=p", false),
        ] {
            let values: &[&str] = if mode == Exists { &[] } else { &[wanted] };
            assert_eq!(query("p", mode, values, text), expected, "{mode:?} {wanted} {text}");
        }
    }

    #[test]
    fn given_case_sensitive_when_matched_then_letters_count_and_names_do_not() {
        let test = || test(MatchMode::Exact, &["Abc"], true);
        let matcher = QueryMatcher::new(&QueryMatch { name: "Name".into(), test: test() });
        assert!(matcher.admits("nAME=Abc") && !matcher.admits("name=abc"));
        let matcher = HeaderMatcher::new(&HeaderMatch { name: header::ACCEPT, test: test() });
        let headers = |value: &'static str| HeaderMap::from_iter([(header::ACCEPT, HeaderValue::from_static(value))]);
        assert!(matcher.admits(&headers("x,Abc")) && !matcher.admits(&headers("abc")));
    }

    #[test]
    fn given_a_client_when_matched_then_by_its_range_and_an_unknown_one_by_none() {
        let client_ip = vec!["10.0.0.0/8".parse().unwrap(), "2001:db8::/32".parse().unwrap()];
        let matchers = Matchers::new(&config::Match { client_ip, ..config::Match::default() });
        let headers = HeaderMap::new();
        let (method, host) = (&Method::GET, "h");
        for (client, expected) in [
            (Some("10.255.0.1"), true),
            (Some("11.0.0.1"), false),
            (Some("2001:db8:1::1"), true),
            (Some("::1"), false),
            (None, false),
        ] {
            let client_ip = client.map(|ip| ip.parse().unwrap());
            let request =
                RequestView { method, host, port: None, path: "/", query: None, headers: &headers, client_ip };
            assert_eq!(matchers.admit(&request), expected, "{client:?}");
        }
    }

    proptest! {
        #[test]
        fn given_any_line_when_taken_apart_then_pieces_of_it_and_an_end(line: Vec<u8>, separator in "[,;]") {
            let pieces: Vec<&[u8]> = Pieces { rest: &line, separator: separator.as_bytes()[0] }.collect();
            prop_assert!(pieces.len() <= line.len());
            prop_assert!(pieces.iter().map(|piece| piece.len()).sum::<usize>() <= line.len());
        }

        #[test]
        fn given_any_text_when_encoded_and_decoded_then_it_is_the_same(text: Vec<u8>) {
            let encoded: String = text.iter().map(|byte| format!("%{byte:02x}")).collect();
            prop_assert_eq!(Decoded(encoded.as_bytes()).collect::<Vec<u8>>(), text);
        }
    }
}
