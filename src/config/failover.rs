//! Sections `failover` and `canary` of a cluster: what its destinations of those roles are for. Whether there are such is
//! judged here as well, since neither says anything without the other.

use super::units::{HOUR, ms};
use super::{Destination, HeaderMatch, MatchMode, Role, Section, ValueTest};
use http::header;
use std::time::Duration;

/// `clusters.*.failover`; on by default where a destination has the role.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failover {
    /// Attempts of a request at each of them. Default 1, 1–10.
    pub attempts_per_destination: u8,
}

/// `clusters.*.canary`
#[derive(Debug, Clone)]
pub struct Canary {
    /// Of the new requests that nothing else sends somewhere, in tenths of a percent. Default 0, 0–1000.
    pub permille: u32,
    /// All goes to the primaries for so long after a failure of a canary. Default 300s, 1s–1h.
    pub cooldown: Duration,
    /// Requests that always go to a canary: one of these suffices.
    pub matches: Vec<HeaderMatch>,
}

impl Failover {
    /// `None` when nobody is to fail over to.
    pub(super) fn of(cluster: &mut Section<'_>, destinations: &[Destination]) -> Option<Self> {
        let any = destinations.iter().any(|destination| destination.role == Role::Failover);
        let written = cluster.has("failover");
        let off = cluster.off("failover");
        let read = match off {
            true => None,
            false => cluster.defaulted("failover", |failover| {
                let enabled = failover.flag("enabled").unwrap_or(true);
                let attempts = failover.integer("attempts_per_destination", 1..=10);
                let attempts_per_destination = attempts.and_then(|n| u8::try_from(n).ok()).unwrap_or(1);
                enabled.then_some(Failover { attempts_per_destination })
            }),
        };
        if written && !off && !any && !destinations.is_empty() {
            cluster.problem(&cluster.spot_of("failover"), "no destination has `role: failover`");
        }
        read.filter(|_| any)
    }
}

impl Canary {
    pub(super) fn of(cluster: &mut Section<'_>, destinations: &[Destination]) -> Option<Self> {
        let canaries: Vec<&Destination> = destinations.iter().filter(|of| of.role == Role::Canary).collect();
        let written = cluster.has("canary");
        let off = cluster.off("canary");
        let read = if off { None } else { cluster.section("canary", Canary::read) };
        match canaries.first() {
            None if written && !off && !destinations.is_empty() => {
                cluster.problem(&cluster.spot_of("canary"), "no destination has `role: canary`");
            }
            Some(canary) if !written => cluster.problem(
                &canary.id.at,
                "a canary gets nothing without section `canary` of its cluster, such as `canary: { percent: 5% }`",
            ),
            _ => {}
        }
        read.filter(|_| !canaries.is_empty())
    }

    fn read(section: &mut Section<'_>) -> Self {
        Canary {
            permille: section.permille("percent").unwrap_or(0),
            cooldown: section.duration("cooldown", ms(1_000)..=HOUR).unwrap_or(Duration::from_secs(300)),
            matches: section.section("match", matches).unwrap_or_default(),
        }
    }
}

/// `match`: a header, a cookie, or either.
fn matches(section: &mut Section<'_>) -> Vec<HeaderMatch> {
    if !section.has("header") && !section.has("cookie") {
        section.lacks("needs `header` or `cookie`: `{ header: { name: X-Canary, values: [\"1\"] } }`");
    }
    let header = section.section("header", HeaderMatch::of).flatten();
    let cookie = section.section("cookie", cookie).flatten();
    header.into_iter().chain(cookie).collect()
}

/// A cookie is a piece of its header. Values byte for byte; none: whatever it is.
fn cookie(section: &mut Section<'_>) -> Option<HeaderMatch> {
    section.require("name", "a cookie, such as canary");
    let name = section.checked("name", cookie_name);
    let values = section.words("values");
    let name = name?.value;
    let (mode, values) = match values.is_empty() {
        true => (MatchMode::Prefix, vec![format!("{name}=")]),
        false => (MatchMode::Exact, values.iter().map(|value| format!("{name}={}", value.value)).collect()),
    };
    Some(HeaderMatch { name: header::COOKIE, test: ValueTest { mode, values, case_sensitive: true } })
}

fn cookie_name(written: &str) -> Result<String, String> {
    let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    match !written.is_empty() && written.bytes().all(token) {
        true => Ok(written.to_owned()),
        false => Err("expected a cookie's name: letters, digits and !#$%&'*+-.^_`|~".to_owned()),
    }
}

/// A cluster serves by its primaries; the other roles are beside them.
pub(super) fn has_primary(cluster: &mut Section<'_>, destinations: &[Destination]) {
    if !destinations.is_empty() && !destinations.iter().any(|destination| destination.role == Role::Primary) {
        let at = cluster.spot_of("destinations");
        cluster.problem(&at, "no destination has `role: primary`, which is the default");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, LoadError};

    fn config(rest: &str) -> Result<Config, LoadError> {
        let text =
            format!("listeners: {{ web: 0.0.0.0:1 }}\nroutes: {{ r: {{ cluster: c }} }}\nclusters:\n  c:\n{rest}\n");
        Config::parse("t.yaml", &text)
    }

    const ROLES: &str = "    destinations: { p: \"http://a\", f: { address: \"http://b\", role: failover }, c: { address: \"http://c\", role: canary } }\n";

    fn read(rest: &str) -> (Option<Failover>, Option<Canary>) {
        let config = config(&format!("{ROLES}{rest}")).unwrap_or_else(|error| panic!("{error}"));
        let cluster = &config.clusters[0];
        (cluster.failover, cluster.canary.clone())
    }

    #[test]
    fn given_roles_when_read_then_failover_is_on_by_default_and_a_canary_as_written() {
        let (failover, canary) = read("    canary: { percent: 5% }");
        let canary = canary.expect("a canary");
        assert_eq!(failover, Some(Failover { attempts_per_destination: 1 }));
        assert_eq!((canary.permille, canary.cooldown), (50, Duration::from_secs(300)));
        assert!(canary.matches.is_empty());
        let (failover, canary) = read(
            "    failover: { attempts_per_destination: 2 }\n    canary: { percent: \"0.3%\", cooldown: 10s, match: { header: { name: X-Canary, values: [\"1\"] }, cookie: { name: canary } } }",
        );
        let canary = canary.expect("a canary");
        assert_eq!(failover, Some(Failover { attempts_per_destination: 2 }));
        assert_eq!((canary.permille, canary.cooldown), (3, Duration::from_secs(10)));
        let matches: Vec<_> = canary.matches.iter().map(|of| (of.name.as_str(), &of.test.values[0][..])).collect();
        assert_eq!(matches, [("x-canary", "1"), ("cookie", "canary=")]);
        for off in ["failover: off", "failover: { enabled: false }"] {
            assert_eq!(read(&format!("    {off}\n    canary: {{ percent: 1% }}")).0, None);
        }
    }

    #[test]
    fn given_faults_when_read_then_each_has_its_place() {
        let plain = "    destinations: [\"http://a\"]\n";
        let beside = |role: &str| {
            format!("    destinations: {{ p: \"http://a\", x: {{ address: \"http://b\", role: {role} }} }}\n")
        };
        for (rest, place, said) in [
            (format!("{plain}    failover: {{ enabled: true }}"), "t.yaml:6:15", "no destination has `role: failover`"),
            (format!("{plain}    canary: {{ percent: 5% }}"), "t.yaml:6:13", "no destination has `role: canary`"),
            (beside("canary"), "t.yaml:5:36", "a canary gets nothing without section `canary`"),
            (
                "    destinations: { x: { address: \"http://b\", role: failover } }".into(),
                "t.yaml:5:19",
                "no destination has `role: primary`",
            ),
            (
                format!("{}    failover: {{ attempts_per_destination: 11 }}", beside("failover")),
                "t.yaml:6:43",
                "from 1 to 10",
            ),
            (format!("{}    canary: {{ percent: \"0.25%\" }}", beside("canary")), "t.yaml:6:24", "tenths of a percent"),
            (format!("{}    canary: {{ match: {{}} }}", beside("canary")), "t.yaml:6:22", "needs `header` or `cookie`"),
            (
                format!("{}    canary: {{ match: {{ cookie: {{ name: \"a b\" }} }} }}", beside("canary")),
                "t.yaml:6:40",
                "expected a cookie's name",
            ),
        ] {
            let error = config(&rest).expect_err(&rest).to_string();
            assert!(error.contains(place) && error.contains(said), "{rest}\n{error}");
        }
    }
}
