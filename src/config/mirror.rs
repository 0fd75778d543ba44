//! Section `mirror` of a cluster: copies of its requests for destinations whose answers nobody waits for. Where they go is
//! one of two: another cluster, or the destinations of role `mirror`.

use super::units::ms;
use super::{Destination, Located, Role, Section};
use std::time::Duration;

/// What Pingora keeps of a body.
const MAX_BODY: u64 = 64 * 1024;

/// `clusters.*.mirror`
#[derive(Debug, Clone)]
pub struct Mirror {
    /// Of the requests, in tenths of a percent. 0–1000; it must be written.
    pub permille: u32,
    /// `None`: to the destinations of role `mirror`.
    pub cluster: Option<Located<String>>,
    /// From the whole request to the end of the mirror's answer. Default 5s, 1ms–1m.
    pub timeout: Duration,
    /// Copies at a time. Default 64, 1–10,000.
    pub max_in_flight: u32,
    /// Requests with larger bodies are not copied. Default 64KiB, which is the most; in bytes.
    pub max_body: u64,
    /// The mirror's status and length are compared with the client's. Default `false`.
    pub compare: bool,
}

impl Mirror {
    pub(super) fn of(cluster: &mut Section<'_>, name: &str, destinations: &[Destination]) -> Option<Self> {
        let mirrors = || destinations.iter().filter(|destination| destination.role == Role::Mirror);
        for mirror in mirrors().filter(|mirror| mirror.max_requests.is_some()) {
            cluster.problem(&mirror.id.at, "a mirror has no `max_requests`: `mirror.max_in_flight` bounds it");
        }
        let (written, at) = (cluster.has("mirror"), cluster.spot_of("mirror"));
        if cluster.off("mirror") {
            return None;
        }
        let read = cluster.section("mirror", Mirror::read);
        let to = read.as_ref().and_then(|mirror| mirror.cluster.as_ref());
        match (mirrors().next(), to) {
            (Some(_), Some(to)) => {
                cluster.problem(&to.at, "one or the other: there are destinations of `role: mirror` here");
            }
            (None, Some(to)) if to.value == name => cluster.problem(&to.at, "a cluster is no mirror of itself"),
            (None, None) if written && !destinations.is_empty() => {
                cluster.problem(&at, "needs `cluster`, or a destination with `role: mirror`");
            }
            (Some(mirror), None) if !written => cluster.problem(
                &mirror.id.at,
                "a mirror gets nothing without section `mirror` of its cluster, such as `mirror: { percent: 10% }`",
            ),
            _ => {}
        }
        read
    }

    fn read(section: &mut Section<'_>) -> Self {
        section.require("percent", "the share of the requests, such as 10%");
        let count = section.integer("max_in_flight", 1..=10_000).and_then(|count| u32::try_from(count).ok());
        Mirror {
            permille: section.permille("percent").unwrap_or(0),
            cluster: section.text("cluster"),
            timeout: section.duration("timeout", ms(1)..=ms(60_000)).unwrap_or(Duration::from_secs(5)),
            max_in_flight: count.unwrap_or(64),
            max_body: section.size("max_body", 0..=MAX_BODY).unwrap_or(MAX_BODY),
            compare: section.flag("compare").unwrap_or(false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, LoadError};

    fn config(destinations: &str, rest: &str) -> Result<Config, LoadError> {
        let text = format!(
            "listeners: {{ web: 0.0.0.0:1 }}\nroutes: {{ r: {{ cluster: c }} }}\nclusters:\n  c:\n    destinations: {destinations}\n    {rest}\n"
        );
        Config::parse("t.yaml", &text)
    }

    const ONE: &str = "[\"http://a\"]";
    const TWO: &str = "{ p: \"http://a\", m: { address: \"http://b\", role: mirror } }";

    fn mirror(destinations: &str, rest: &str) -> Option<Mirror> {
        config(destinations, rest).unwrap_or_else(|error| panic!("{error}")).clusters.remove(0).mirror
    }

    #[test]
    fn given_a_mirror_when_read_then_the_defaults_or_every_value() {
        let read = mirror(TWO, "mirror: { percent: 10% }").expect("a mirror");
        assert_eq!((read.permille, read.timeout, read.max_in_flight), (100, Duration::from_secs(5), 64));
        assert_eq!((read.max_body, read.compare, read.cluster.is_none()), (65_536, false, true));
        let all =
            "mirror: { percent: 0.3%, cluster: other, timeout: 1s, max_in_flight: 2, max_body: 1KiB, compare: true }";
        let read = mirror(ONE, all).expect("a mirror");
        assert_eq!((read.permille, read.timeout, read.max_in_flight), (3, Duration::from_secs(1), 2));
        assert_eq!((read.max_body, read.compare), (1024, true));
        assert_eq!(read.cluster.map(|cluster| cluster.value).as_deref(), Some("other"));
        assert!(mirror(TWO, "mirror: off").is_none() && mirror(ONE, "").is_none());
    }

    #[test]
    fn given_faults_when_read_then_each_has_its_place() {
        let bounded = "{ p: \"http://a\", m: { address: \"http://b\", role: mirror, max_requests: 9 } }";
        for (destinations, rest, place, said) in [
            (ONE, "mirror: { percent: 5% }", "6:13", "c.mirror: needs `cluster`, or a destination with `role: mirror`"),
            (TWO, "mirror: { percent: 5%, cluster: o }", "6:37", "c.mirror.cluster: one or the other"),
            (ONE, "mirror: { percent: 5%, cluster: c }", "6:37", "c.mirror.cluster: a cluster is no mirror of itself"),
            (TWO, "slow_start: 1s", "5:36", "a mirror gets nothing without section `mirror`"),
            (TWO, "mirror: {}", "6:13", "needs `percent`"),
            (TWO, "mirror: { percent: 0.25% }", "6:24", "tenths of a percent"),
            (TWO, "mirror: { percent: 1%, max_body: 65KiB }", "6:38", "expected a size from 0 bytes to 64KiB"),
            (TWO, "mirror: { percent: 1%, max_in_flight: 0 }", "6:43", "from 1 to 10000"),
            (TWO, "mirror: { percent: 1%, comapre: true }", "6:28", "did you mean \"compare\"?"),
            (bounded, "mirror: { percent: 1% }", "5:36", "`mirror.max_in_flight` bounds it"),
        ] {
            let error = config(destinations, rest).expect_err(rest).to_string();
            assert!(error.contains(&format!("t.yaml:{place}: ")) && error.contains(said), "{rest}\n{error}");
        }
    }
}
