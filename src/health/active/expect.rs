//! `expect` of `type: http`: `status` (default 200-299), `headers` and `body`, all of which an answer must have.

use super::Verdict;
use crate::config::{Located, Section};
use ::http::HeaderName;
use pingora::http::ResponseHeader;
use regex::bytes::{Regex, RegexBuilder};
use std::ops::RangeInclusive;

/// So much of a body is looked at, in bytes.
pub const BODY: usize = 16 * 1024;
/// An expression may become so big, in bytes.
const COMPILED: usize = 1024 * 1024;

#[derive(Debug, Clone)]
pub struct Expect {
    statuses: Vec<RangeInclusive<u16>>,
    headers: Vec<(HeaderName, String)>,
    body: Option<Regex>,
}

impl Expect {
    pub fn read(params: &mut Section<'_>) -> Self {
        let mut expect = Expect { statuses: Vec::new(), headers: Vec::new(), body: None };
        params.section("expect", |section| {
            expect.statuses = statuses(section);
            expect.headers = headers(section);
            expect.body = expression(section);
        });
        if expect.statuses.is_empty() {
            expect.statuses.push(200..=299);
        }
        expect
    }

    /// Whether the head alone decides.
    pub fn is_blind_to_bodies(&self) -> bool {
        self.body.is_none()
    }

    /// `Err` says what is wrong with it.
    pub fn head(&self, head: &ResponseHeader) -> Result<(), Verdict> {
        let status = head.status.as_u16();
        if !self.statuses.iter().any(|range| range.contains(&status)) {
            return Err(Verdict::Unwanted(status.to_string()));
        }
        for (name, wanted) in &self.headers {
            let values = head.headers.get_all(name);
            if values.iter().all(|value| value.as_bytes() != wanted.as_bytes()) {
                let is = if values.iter().next().is_some() { "is not as expected" } else { "is missing" };
                return Err(Verdict::Unwanted(format!("{status}, but header {name} {is}")));
            }
        }
        Ok(())
    }

    pub fn body(&self, status: u16, body: &[u8]) -> Verdict {
        match &self.body {
            Some(expression) if !expression.is_match(body) => {
                Verdict::Unwanted(format!("{status}, but the body does not match"))
            }
            _ => Verdict::Wanted(status.to_string()),
        }
    }
}

fn statuses(section: &mut Section<'_>) -> Vec<RangeInclusive<u16>> {
    let mut ranges = Vec::new();
    for status in section.words("status") {
        match status_range(&status) {
            Some(range) => ranges.push(range),
            None => section.problem(
                &status.at,
                format!("{:?} is no status: expected 100 to 599, like 204 or 200-299", status.value),
            ),
        }
    }
    ranges
}

fn status_range(word: &Located<String>) -> Option<RangeInclusive<u16>> {
    let number = |text: &str| text.trim().parse::<u16>().ok().filter(|status| (100..600).contains(status));
    let (first, last) = word.value.split_once('-').unwrap_or((&word.value, &word.value));
    let range = number(first)?..=number(last)?;
    (!range.is_empty()).then_some(range)
}

fn headers(section: &mut Section<'_>) -> Vec<(HeaderName, String)> {
    let mut headers = Vec::new();
    for (name, value) in section.texts("headers") {
        match name.value.parse() {
            Ok(known) => headers.push((known, value.value)),
            Err(_) => section.problem(&name.at, format!("{:?} is no name of a header", name.value)),
        }
    }
    headers
}

fn expression(section: &mut Section<'_>) -> Option<Regex> {
    let written = section.text("body")?;
    let built = RegexBuilder::new(&written.value).size_limit(COMPILED).dfa_size_limit(COMPILED).build();
    if let Err(error) = &built {
        let told = error.to_string();
        let why = told.lines().last().unwrap_or_default();
        let why = why.strip_prefix("error: ").unwrap_or(why);
        section.problem(&written.at, format!("expected a regular expression, such as '\"up\"': {why}"));
    }
    built.ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Spot;

    #[test]
    fn given_statuses_as_written_when_read_then_ranges_or_nothing() {
        let read = |text: &str| {
            let at = Spot { file: "f".into(), line: 1, column: 1, path: String::new() };
            status_range(&Located { value: text.to_string(), at })
        };
        assert_eq!(read("204"), Some(204..=204));
        assert_eq!(read("200-299"), Some(200..=299));
        for wrong in ["", "99", "600", "299-200", "2xx", "200-", "-200", "70000"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}
