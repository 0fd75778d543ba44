//! Matchers of a route: what a header field, a query parameter or the client's address must be. Syntax only; the runtime
//! holds requests against them.

use super::{Located, Node, Problems, Section};
use http::{HeaderName, header};
use ipnet::IpNet;
use std::net::IpAddr;

/// One entry of `match.headers`. All entries of a route must match.
#[derive(Debug, Clone)]
pub struct HeaderMatch {
    pub name: HeaderName,
    pub test: ValueTest,
}

/// One entry of `match.query`. All entries of a route must match.
#[derive(Debug, Clone)]
pub struct QueryMatch {
    /// As it reads when decoded; compared without case.
    pub name: String,
    pub test: ValueTest,
}

/// What the values under a name must be.
#[derive(Debug, Clone)]
pub struct ValueTest {
    pub mode: MatchMode,
    /// One of them suffices. Empty for `Exists` and `NotExists`, and never otherwise.
    pub values: Vec<String>,
    /// Default `false`: ASCII letters are compared without case.
    pub case_sensitive: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MatchMode {
    Exact,
    Prefix,
    Contains,
    NotContains,
    Exists,
    /// Of headers only.
    NotExists,
}

const HEADER_MODES: [(&str, MatchMode); 6] = [
    ("Exact", MatchMode::Exact),
    ("Prefix", MatchMode::Prefix),
    ("Contains", MatchMode::Contains),
    ("NotContains", MatchMode::NotContains),
    ("Exists", MatchMode::Exists),
    ("NotExists", MatchMode::NotExists),
];

impl HeaderMatch {
    pub(super) fn read_all(section: &mut Section<'_>) -> Vec<Self> {
        let items = section.list("headers");
        items.iter().filter_map(|item| HeaderMatch::read(item, section.problems())).collect()
    }

    fn read(item: &Node, problems: &mut Problems) -> Option<Self> {
        let mut section = Section::of_map(item, problems);
        let read = HeaderMatch::of(&mut section);
        section.finish();
        read
    }

    pub(super) fn of(section: &mut Section<'_>) -> Option<Self> {
        section.require("name", "a header, such as X-Tenant");
        let name = section.checked("name", header_name);
        let test = ValueTest::read(section, &HEADER_MODES);
        Some(HeaderMatch { name: name?.value, test })
    }
}

impl QueryMatch {
    pub(super) fn read_all(section: &mut Section<'_>) -> Vec<Self> {
        let items = section.list("query");
        items.iter().filter_map(|item| QueryMatch::read(item, section.problems())).collect()
    }

    fn read(item: &Node, problems: &mut Problems) -> Option<Self> {
        let mut section = Section::of_map(item, problems);
        section.require("name", "a query parameter, such as preview");
        let name = section.text("name");
        // YARP has no NotExists of parameters.
        let test = ValueTest::read(&mut section, &HEADER_MODES[..5]);
        section.finish();
        Some(QueryMatch { name: name?.value, test })
    }
}

impl ValueTest {
    fn read(section: &mut Section<'_>, modes: &[(&'static str, MatchMode)]) -> Self {
        let mode = section.word("mode", modes);
        let wrong = section.has("mode") && mode.is_none();
        let mode = mode.unwrap_or(MatchMode::Exact);
        let values: Vec<String> = section.words("values").into_iter().map(|value| value.value).collect();
        match mode {
            MatchMode::Exists | MatchMode::NotExists if section.has("values") => {
                let message = format!("{mode:?} looks at no values; leave them out, or take another mode");
                section.problem(&section.spot_of("values"), message);
            }
            MatchMode::Exists | MatchMode::NotExists => {}
            // With an unknown mode nobody can tell whether values are needed.
            _ if wrong => {}
            _ => section.miss_empty("values", "`[acme]`"),
        }
        let case_sensitive = section.flag("case_sensitive").unwrap_or(false);
        ValueTest { mode, values, case_sensitive }
    }
}

/// Ranges such as 10.0.0.0/8, or single addresses.
pub(super) fn ranges(section: &mut Section<'_>, key: &'static str) -> Vec<IpNet> {
    let ranges = section.checked_words(key, range);
    ranges.into_iter().map(|Located { value, .. }| value).collect()
}

fn header_name(text: &str) -> Result<HeaderName, String> {
    match text.parse() {
        // HTTP/2 has it elsewhere.
        Ok(header::HOST) => Err("the host is no header of every request; write it under `hosts`".to_owned()),
        Ok(name) => Ok(name),
        Err(_) => Err("expected a header's name: letters, digits and `-`".to_owned()),
    }
}

/// A range is written by its first address, so that a slip in the length shows. IPv4 is written as IPv4, for so clients are
/// compared.
fn range(text: &str) -> Result<IpNet, String> {
    let expected = || "expected an address or a range such as 10.0.0.0/8 or 2001:db8::/32".to_owned();
    let range = match text.parse::<IpNet>() {
        Ok(range) => range,
        Err(_) => IpNet::from(text.parse::<IpAddr>().map_err(|_| expected())?),
    };
    if range.addr() != range.network() {
        return Err(format!("this range begins at {}; write {}", range.network(), range.trunc()));
    }
    match range {
        IpNet::V6(six) if six.prefix_len() >= 96 && six.addr().to_ipv4_mapped().is_some() => {
            Err("IPv4 inside IPv6: clients are compared as IPv4, write the range so".to_owned())
        }
        range => Ok(range),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_ranges_as_written_when_read_then_whole_ranges_or_what_is_wrong() {
        for (text, read) in [
            ("10.0.0.0/8", "10.0.0.0/8"),
            ("10.1.2.3", "10.1.2.3/32"),
            ("::1", "::1/128"),
            ("2001:db8::/32", "2001:db8::/32"),
            ("0.0.0.0/0", "0.0.0.0/0"),
        ] {
            assert_eq!(range(text).map(|range| range.to_string()).as_deref(), Ok(read), "{text}");
        }
        for (text, words) in [
            ("", "expected an address"),
            ("10.0.0/8", "expected an address"),
            ("10.0.0.0/33", "expected an address"),
            ("localhost", "expected an address"),
            ("10.1.0.0/8", "begins at 10.0.0.0; write 10.0.0.0/8"),
            ("::ffff:10.0.0.0/104", "write the range so"),
            ("::ffff:10.0.0.1", "write the range so"),
        ] {
            let fault = range(text).expect_err(text);
            assert!(fault.contains(words), "{text}: {fault}");
        }
    }
}
