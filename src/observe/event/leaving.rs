//! Destinations on their leave.

use super::super::handles::Departure;
use super::{Place, TARGET};
use log::info;
use std::fmt::{self, Display};
use std::time::Duration;

/// It gets no new requests, and this is left of it.
pub fn leaves(of: &Departure) {
    let (place, cluster, why) = (of.place(), &of.cluster, of.why.label());
    info!(target: TARGET, "{place} of cluster {cluster} leaves ({why}); left are {of}");
}

/// The last request is over, and the last connection closed.
pub fn has_left(of: &Departure, after: Duration) {
    let (place, cluster, why) = (of.place(), &of.cluster, of.why.label());
    info!(target: TARGET, "{place} of cluster {cluster} has left ({why}) after {after:.1?}");
}

/// It serves again before it has left.
pub fn stays(of: &Departure) {
    let (place, cluster) = (of.place(), &of.cluster);
    info!(target: TARGET, "{place} of cluster {cluster} stays; there were {of} left");
}

impl Departure {
    fn place(&self) -> Place<'_, &str> {
        Place(&self.destination, &self.address)
    }
}

/// `1 request in flight, 3 connections`
impl Display for Departure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = |one: bool| if one { "" } else { "s" };
        let Departure { requests, connections, .. } = self;
        write!(f, "{requests} request{} in flight, {connections} connection{}", s(*requests == 1), s(*connections == 1))
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::capture::lines;
    use super::super::super::handles::Parting;
    use super::*;
    use log::{Level, LevelFilter};
    use std::time::Instant;

    #[test]
    fn given_a_leave_when_told_then_its_lines_say_why_and_what_is_left() {
        let of = |requests, connections| Departure {
            cluster: "app".into(),
            destination: "a".into(),
            address: "127.0.0.1:1".into(),
            why: Parting::Removed,
            since: Instant::now(),
            requests,
            connections,
        };
        let seen = lines(LevelFilter::Info, || {
            leaves(&of(1, 3));
            has_left(&of(0, 0), Duration::from_millis(1_240));
            stays(&of(0, 1));
        });
        let expected = [
            "a[127.0.0.1:1] of cluster app leaves (removed); left are 1 request in flight, 3 connections",
            "a[127.0.0.1:1] of cluster app has left (removed) after 1.2s",
            "a[127.0.0.1:1] of cluster app stays; there were 0 requests in flight, 1 connection left",
        ];
        assert_eq!(seen, expected.map(|text| (Level::Info, text.to_owned())));
    }
}
