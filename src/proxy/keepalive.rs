//! What attempts teach of the time for which a destination keeps idle connections. What follows from it is
//! [`IdleTime`](crate::model::IdleTime)'s to say.

use super::ctx::Attempt;
use crate::observe::event;
use http::{HeaderMap, HeaderName};
use pingora::http::ResponseHeader;
use std::time::Instant;

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");

/// An answer came, which may say it.
pub fn said(attempt: &Attempt, response: &ResponseHeader, now: Instant) {
    if let Some(seconds) = timeout(&response.headers) {
        let most = attempt.cluster.upstream(&attempt.member).idle_timeout();
        if let Some(times) = attempt.member.live.idle.said(seconds, most, now) {
            let destination = attempt.cluster.destination_metrics(&attempt.member);
            let why = format_args!("it says that it closes them after {seconds}s");
            event::idle_time(destination, attempt.member.destination.endpoint.authority(), times, why, now);
        }
    }
}

/// A connection from the pool was closed before a byte of the answer.
pub fn closed(attempt: &Attempt, now: Instant) {
    let most = attempt.cluster.upstream(&attempt.member).idle_timeout();
    if let Some(times) = attempt.member.live.idle.closed(attempt.idle, most, now) {
        let destination = attempt.cluster.destination_metrics(&attempt.member);
        let why = format_args!("it closed one as it was used again");
        event::idle_time(destination, attempt.member.destination.endpoint.authority(), times, why, now);
    }
}

/// The seconds of `Keep-Alive: timeout=5, max=100`.
fn timeout(headers: &HeaderMap) -> Option<u64> {
    let lines = headers.get_all(KEEP_ALIVE).iter().filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(',')).find_map(|parameter| {
        let (name, seconds) = parameter.split_once('=')?;
        name.trim().eq_ignore_ascii_case("timeout").then(|| seconds.trim().trim_matches('"').parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    #[test]
    fn given_a_keep_alive_header_when_read_then_its_timeout_or_nothing() {
        for (lines, seconds) in [
            (&["timeout=5"][..], Some(5)),
            (&["max=100, Timeout = 15"], Some(15)),
            (&["timeout=\"7\""], Some(7)),
            (&["max=3", "timeout=60"], Some(60)),
            (&["timeout=0"], Some(0)),
            (&["max=3"], None),
            (&["timeout"], None),
            (&["timeout=-1"], None),
            (&["timeout=99999999999999999999"], None),
            (&["\u{e9}"], None),
            (&[], None),
        ] {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append(KEEP_ALIVE, HeaderValue::from_bytes(line.as_bytes()).unwrap());
            }
            assert_eq!(timeout(&headers), seconds, "{lines:?}");
        }
    }
}
