//! Section `session_affinity` of a cluster: requests of one session go to one destination. How a session is known by its
//! requests is the named policy's business, and so are the keys `cookie` and `key_file`, which policies read with what is here.

use super::units::{DAY, ms};
use super::{Cluster, Located, Node, Policy, Problems, Section};
use std::path::PathBuf;
use std::time::Duration;

/// `clusters.*.session_affinity`
#[derive(Debug, Clone)]
pub struct SessionAffinity {
    /// Default HashCookie.
    pub policy: Policy,
    /// Of the cookie or header; no other cluster has it, in whatever letters.
    pub key_name: Located<String>,
    pub failure: AffinityFailure,
    /// A request that began at its session's destination is tried at no other. Default `false`.
    pub strict: bool,
    /// The destination sees the key. Default `true`.
    pub forward: bool,
    /// Each answer carries the key anew. Default `false`: only one that binds its session.
    pub sliding: bool,
    pub id_form: IdForm,
}

/// What becomes of a request whose key leads to no destination that may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AffinityFailure {
    /// The default: as one without a key, and bound anew.
    Redistribute,
    Return503Error,
}

/// What destinations are called in keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdForm {
    /// The default: by their ids.
    Name,
    /// `id[host:port]`, the address as it is written: what YARP calls them behind a resolver.
    Resolved,
}

/// Section `cookie` of a policy that binds by one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CookieAttributes {
    /// Default `/`.
    pub path: String,
    pub domain: Option<String>,
    /// Default `true`.
    pub http_only: bool,
    pub secure: Secure,
    pub same_site: SameSite,
    /// From the answer on. 1s–3650d.
    pub max_age: Option<Duration>,
    /// Likewise, as a date.
    pub expiration: Option<Duration>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Secure {
    /// The default.
    None,
    Always,
    /// Where the client speaks TLS.
    SameAsRequest,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SameSite {
    /// The default: the attribute is left out.
    Unspecified,
    None,
    Lax,
    Strict,
}

impl SessionAffinity {
    /// `None` where no policy can be read, which is a fault.
    pub(super) fn read(node: &Node, problems: &mut Problems) -> Option<Self> {
        let mut section = Section::of_map(node, problems);
        section.require("key_name", "the name of the cookie or header");
        let at = section.spot_of("key_name");
        // Without a name its other keys are judged all the same.
        let key_name = section.text("key_name").unwrap_or(Located { value: String::new(), at });
        let failures =
            [("Redistribute", AffinityFailure::Redistribute), ("Return503Error", AffinityFailure::Return503Error)];
        let failure = section.word("failure", &failures).unwrap_or(AffinityFailure::Redistribute);
        let strict = section.flag("strict").unwrap_or(false);
        let forward = section.flag("forward").unwrap_or(true);
        let sliding = section.flag("sliding").unwrap_or(false);
        let forms = [("name", IdForm::Name), ("resolved", IdForm::Resolved)];
        let id_form = section.word("id_form", &forms).unwrap_or(IdForm::Name);
        let policy = Policy::among(section, "policy", "HashCookie")?;
        Some(SessionAffinity { policy, key_name, failure, strict, forward, sliding, id_form })
    }

    /// A key of one cluster must not be taken for another's.
    pub(super) fn check_names(clusters: &[Cluster], problems: &mut Problems) {
        for (index, cluster) in clusters.iter().enumerate() {
            let name = match &cluster.session_affinity {
                Some(own) if !own.key_name.value.is_empty() => &own.key_name,
                _ => continue,
            };
            let same = |other: &&Cluster| {
                let other = other.session_affinity.as_ref().map(|other| &other.key_name.value);
                other.is_some_and(|other| other.eq_ignore_ascii_case(&name.value))
            };
            if let Some(other) = clusters[..index].iter().find(same) {
                let other = &other.name.value;
                problems.push(&name.at, format!("cluster {other} has this key name; each cluster needs its own"));
            }
        }
    }
}

impl CookieAttributes {
    const LONGEST: Duration = DAY.saturating_mul(3650);

    /// Below the key `cookie` of `params`.
    pub fn read(params: &mut Section<'_>) -> Self {
        params.defaulted("cookie", |cookie| {
            let path = cookie.checked("path", path).map_or_else(|| "/".to_owned(), |path| path.value);
            let domain = cookie.checked("domain", domain).map(|domain| domain.value);
            let http_only = cookie.flag("http_only").unwrap_or(true);
            let secures =
                [("None", Secure::None), ("Always", Secure::Always), ("SameAsRequest", Secure::SameAsRequest)];
            let secure = cookie.word("secure", &secures).unwrap_or(Secure::None);
            let sites = [
                ("Unspecified", SameSite::Unspecified),
                ("None", SameSite::None),
                ("Lax", SameSite::Lax),
                ("Strict", SameSite::Strict),
            ];
            let same_site = cookie.word("same_site", &sites).unwrap_or(SameSite::Unspecified);
            if same_site == SameSite::None && secure == Secure::None {
                let at = cookie.spot_of("same_site");
                cookie.problem(
                    &at,
                    "clients take `same_site: None` only with `secure: Always` or `SameAsRequest` beside it",
                );
            }
            let max_age = cookie.duration("max_age", ms(1_000)..=Self::LONGEST);
            let expiration = cookie.duration("expiration", ms(1_000)..=Self::LONGEST);
            CookieAttributes { path, domain, http_only, secure, same_site, max_age, expiration }
        })
    }
}

/// The file below `key_file` of `params`, relative to the directory of the file that names it. A fault without one.
pub fn key_file(params: &mut Section<'_>) -> Option<Located<PathBuf>> {
    params.require("key_file", "a file of keys, each 32 random bytes on a line of its own (openssl rand -base64 32)");
    params.path("key_file")
}

fn path(text: &str) -> Result<String, String> {
    let good = |byte: u8| (0x20..0x7f).contains(&byte) && byte != b';';
    match text.starts_with('/') && text.bytes().all(good) {
        true => Ok(text.to_owned()),
        false => Err("expected a path that starts with `/` and has no `;`".to_owned()),
    }
}

/// A leading dot is let through: browsers pass over it.
fn domain(text: &str) -> Result<String, String> {
    super::address::server_name(text.strip_prefix('.').unwrap_or(text)).map(|_| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, LoadError};

    fn config(clusters: &str) -> Result<Config, LoadError> {
        let lines = ["listeners: { web: 0.0.0.0:1 }", "routes: { r: { cluster: c } }"];
        Config::parse("t.yaml", &format!("{}\nclusters: {{ {clusters} }}\n", lines.join("\n")))
    }

    fn one(affinity: &str) -> Result<Config, LoadError> {
        config(&format!("c: {{ destinations: [\"http://a\"], {affinity} }}"))
    }

    fn read(affinity: &str) -> Option<SessionAffinity> {
        one(affinity).unwrap_or_else(|error| panic!("{error}")).clusters.remove(0).session_affinity
    }

    fn cookie(written: &str) -> CookieAttributes {
        let read = read(&format!("session_affinity: {{ key_name: k, {written} }}")).expect("is there");
        let mut problems = Problems::default();
        let mut params = read.policy.params(&mut problems);
        let cookie = CookieAttributes::read(&mut params);
        params.finish();
        assert!(problems.is_empty(), "{problems}");
        cookie
    }

    #[test]
    fn given_nothing_or_off_when_read_then_none_and_with_a_name_alone_the_defaults() {
        assert!(read("slow_start: 0s").is_none());
        assert!(read("session_affinity: off").is_none());
        let read = read("session_affinity: { key_name: .Bookstore.Catalog.Affinity }").expect("is there");
        assert_eq!(
            (read.policy.name.value.as_str(), read.key_name.value.as_str()),
            ("HashCookie", ".Bookstore.Catalog.Affinity")
        );
        assert_eq!((read.failure, read.id_form), (AffinityFailure::Redistribute, IdForm::Name));
        assert_eq!((read.strict, read.forward, read.sliding), (false, true, false));
        let defaults = CookieAttributes {
            path: "/".into(),
            domain: None,
            http_only: true,
            secure: Secure::None,
            same_site: SameSite::Unspecified,
            max_age: None,
            expiration: None,
        };
        assert_eq!(cookie(""), defaults);
    }

    #[test]
    fn given_every_key_when_read_then_every_value_arrives() {
        let written = "session_affinity: { policy: ArrCookie, key_name: k, failure: Return503Error, strict: true, forward: false, \
                       sliding: true, id_form: resolved }";
        let read = read(written).expect("is there");
        assert_eq!(read.policy.name.value, "ArrCookie");
        assert_eq!((read.failure, read.id_form), (AffinityFailure::Return503Error, IdForm::Resolved));
        assert_eq!((read.strict, read.forward, read.sliding), (true, false, true));
        let expected = CookieAttributes {
            path: "/some".into(),
            domain: Some("mydomain.my".into()),
            http_only: false,
            secure: Secure::SameAsRequest,
            same_site: SameSite::Lax,
            max_age: Some(Duration::from_secs(3_600)),
            expiration: Some(Duration::from_secs(86_400)),
        };
        let written = "cookie: { path: /some, domain: mydomain.my, http_only: false, secure: SameAsRequest, same_site: Lax, \
                       max_age: 1h, expiration: \"24:00:00\" }";
        assert_eq!(cookie(written), expected);
    }

    fn told(config: Result<Config, LoadError>) -> Vec<String> {
        let Err(LoadError::Faults(faults)) = config else { panic!("no fault") };
        faults.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn given_a_wrong_value_when_read_then_one_fault_at_its_path() {
        for (written, fault) in [
            ("on", "session_affinity: expected a section of keys; found \"on\""),
            ("{ policy: HashCookie }", "session_affinity: needs `key_name`: the name of the cookie or header"),
            ("{ key_name: '' }", "session_affinity.key_name: expected text"),
            (
                "{ key_name: k, failure: Redistrbute }",
                "session_affinity.failure: unknown failure \"Redistrbute\"; did you mean",
            ),
            ("{ key_name: k, strict: 1 }", "session_affinity.strict: expected true or false"),
            (
                "{ key_name: k, id_form: names }",
                "session_affinity.id_form: unknown id_form \"names\"; did you mean \"name\"?",
            ),
        ] {
            let found = told(one(&format!("session_affinity: {written}")));
            assert!(found.len() == 1 && found[0].contains(&format!(": clusters.c.{fault}")), "{written}\n{found:?}");
        }
    }

    #[test]
    fn given_a_wrong_attribute_when_the_policy_reads_it_then_one_fault_at_its_path() {
        for (written, fault) in [
            ("path: shop", "path: expected a path that starts with `/` and has no `;`; found \"shop\""),
            ("path: \"/;a\"", "path: expected a path"),
            ("domain: \"a b\"", "domain: expected a host name"),
            ("secure: always", "secure: unknown secure \"always\"; did you mean \"Always\"?"),
            ("same_site: lax", "same_site: unknown same_site \"lax\"; did you mean \"Lax\"?"),
            ("same_site: None", "same_site: clients take `same_site: None` only with"),
            ("max_age: 0s", "max_age: expected a duration from 1s to 87600h; found \"0s\""),
            ("expiration: 0s", "expiration: expected a duration from 1s"),
            ("is_essential: true", "is_essential: unknown key \"is_essential\""),
        ] {
            let read =
                read(&format!("session_affinity: {{ key_name: k, cookie: {{ {written} }} }}")).expect("is there");
            let mut problems = Problems::default();
            CookieAttributes::read(&mut read.policy.params(&mut problems));
            let found: Vec<String> = problems.iter().map(ToString::to_string).collect();
            let expected = format!(": clusters.c.session_affinity.cookie.{fault}");
            assert!(found.len() == 1 && found[0].contains(&expected), "{written}\n{found:?}");
        }
    }

    #[test]
    fn given_two_clusters_with_one_key_name_when_read_then_a_fault_at_the_second() {
        let cluster = |name: &str, key: &str| {
            format!("{name}: {{ destinations: [\"http://a\"], session_affinity: {{ key_name: {key} }} }}")
        };
        let found = told(config(&[cluster("c", "Sticky"), cluster("d", "sticky")].join(", ")));
        let fault = ": clusters.d.session_affinity.key_name: cluster c has this key name; each cluster needs its own";
        assert!(found.len() == 1 && found[0].ends_with(fault), "{found:?}");
        assert!(config(&[cluster("c", "one"), cluster("d", "two")].join(", ")).is_ok());
    }
}
