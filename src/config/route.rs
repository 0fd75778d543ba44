//! Section `routes`: what a request must have, and where it leads. Names of clusters are not resolved here.

use super::address::host_pattern;
use super::matcher::ranges;
use super::split::shares;
use super::template::{Segment, references, segments};
use super::units::{DAY, ms};
use super::{HeaderMatch, Located, Node, Problems, QueryMatch, Section, Share, unknown};
use http::Method;
use ipnet::IpNet;
use std::time::Duration;

/// One entry of section `routes`.
#[derive(Debug, Clone)]
pub struct Route {
    pub name: Located<String>,
    pub matches: Match,
    /// Lower wins, before any specificity. Default 0.
    pub order: i32,
    pub action: Action,
    /// The whole request, from its head to the end of its answer. Default none, 1ms–24h; only with a cluster or a split.
    pub timeout: Option<Duration>,
    pub transforms: Vec<Transform>,
}

/// What a request must have; an empty list asks for nothing.
#[derive(Debug, Clone, Default)]
pub struct Match {
    /// Lower case; `*.` in front stands for one or more labels. A port, where written, must agree.
    pub hosts: Vec<Located<String>>,
    /// A template: `{name}` one segment, `{**name}` the rest. `None` = every path.
    pub path: Option<Located<String>>,
    pub methods: Vec<Method>,
    pub headers: Vec<HeaderMatch>,
    pub query: Vec<QueryMatch>,
    /// The client's address is in one of them.
    pub client_ip: Vec<IpNet>,
}

#[derive(Debug, Clone)]
pub enum Action {
    Cluster(Located<String>),
    /// At least one, with a weight above 0.
    Split(Vec<Share>),
    /// `to` may name the path template's `{parameters}`.
    Redirect {
        to: Located<String>,
        status: u16,
    },
    Respond {
        status: u16,
        body: String,
    },
}

#[derive(Debug, Clone)]
pub enum Transform {
    /// Segment-wise: `/api` takes `/api/x` to `/x`, and leaves `/apix` alone.
    PathRemovePrefix(String),
}

impl Route {
    /// A fault without any.
    pub(super) fn read_all(root: &mut Section<'_>) -> Vec<Self> {
        root.require_some("routes", "`all: { cluster: app }`");
        let entries = root.named("routes");
        entries.into_iter().filter_map(|(name, node)| Route::read(name, node, root.problems())).collect()
    }

    fn read(name: Located<String>, node: &Node, problems: &mut Problems) -> Option<Self> {
        let mut section = Section::of_map(node, problems);
        let matches = section.defaulted("match", Match::read);
        let order = section.plain("order", "a whole number such as -1 or 10", |text| text.parse().ok());
        let action = Action::read(&mut section, matches.as_ref());
        let timeout = Route::timeout(&mut section);
        let transforms = Transform::read_all(&mut section);
        section.finish();
        // With a wrong path it stays in the draft, so that its reference is judged too.
        Some(Route {
            name,
            matches: matches.unwrap_or_default(),
            order: order.unwrap_or(0),
            action: action?,
            timeout,
            transforms,
        })
    }

    /// What it bounds is the wait for a cluster, so elsewhere it is a fault.
    fn timeout(section: &mut Section<'_>) -> Option<Duration> {
        if section.has("timeout") && !Action::forwards(section) {
            section.problem(&section.spot_of("timeout"), "there is no cluster that is waited for");
        }
        section.duration("timeout", ms(1)..=DAY)
    }
}

impl Match {
    /// Nothing when the path is wrong, so that what refers to its parameters is not blamed as well.
    fn read(section: &mut Section<'_>) -> Option<Self> {
        let hosts = section.checked_words("hosts", host_pattern);
        let path = section.checked("path", |path| segments(path).map(|_| path.to_owned()));
        let methods = section.checked_words("methods", method);
        let methods = methods.into_iter().map(|method| method.value).collect();
        let headers = HeaderMatch::read_all(section);
        let query = QueryMatch::read_all(section);
        let client_ip = ranges(section, "client_ip");
        let known = path.is_some() || !section.has("path");
        known.then_some(Match { hosts, path, methods, headers, query, client_ip })
    }

    /// Names of the path template's parameters.
    fn parameters(&self) -> Vec<&str> {
        let template = self.path.as_ref().and_then(|path| segments(&path.value).ok());
        let name = |segment| match segment {
            Segment::Parameter(name) | Segment::Rest(name) => Some(name),
            Segment::Literal(_) => None,
        };
        template.unwrap_or_default().into_iter().filter_map(name).collect()
    }
}

impl Action {
    pub fn leads_to(&self, name: &str) -> bool {
        match self {
            Action::Cluster(cluster) => cluster.value == name,
            Action::Split(shares) => shares.iter().any(|share| share.cluster.value == name),
            Action::Redirect { .. } | Action::Respond { .. } => false,
        }
    }

    fn read(section: &mut Section<'_>, matches: Option<&Match>) -> Option<Self> {
        const KEYS: [&str; 4] = ["cluster", "split", "redirect", "respond"];
        let written: Vec<_> = KEYS.into_iter().filter(|key| section.has(key)).collect();
        let cluster = section.text("cluster").map(Action::Cluster);
        let split = shares(section).map(Action::Split);
        let redirect = section.section("redirect", |redirect| Action::redirect(redirect, matches)).flatten();
        let respond = section.section("respond", Action::respond);
        match written[..] {
            [_] => cluster.or(split).or(redirect).or(respond),
            [] => {
                section.lacks("needs one of `cluster`, `split`, `redirect` and `respond`");
                None
            }
            [first, second, ..] => {
                section.problem(&section.spot_of(second), format!("`{first}` is there too; a route has one of them"));
                None
            }
        }
    }

    /// Whether it leads to a cluster, or shall.
    fn forwards(section: &Section<'_>) -> bool {
        section.has("cluster") || section.has("split")
    }

    fn redirect(section: &mut Section<'_>, matches: Option<&Match>) -> Option<Self> {
        let statuses = [("301", 301), ("302", 302), ("303", 303), ("307", 307), ("308", 308)];
        section.require("to", "a URL or path, such as https://shop.example.com/{rest}");
        let to = section.checked("to", |to| target(to, matches.map(Match::parameters).as_deref()));
        let status = section.word("status", &statuses).unwrap_or(308);
        Some(Action::Redirect { to: to?, status })
    }

    fn respond(section: &mut Section<'_>) -> Self {
        let status = section.integer("status", 200..=599).and_then(|status| u16::try_from(status).ok());
        let body = section.scalar("body", "text", |text| Some(text.to_owned()));
        Action::Respond { status: status.unwrap_or(200), body: body.map(|body| body.value).unwrap_or_default() }
    }
}

impl Transform {
    /// What they would change is a request on its way to a cluster, so elsewhere they are a fault.
    fn read_all(section: &mut Section<'_>) -> Vec<Self> {
        if section.has("transforms") && !Action::forwards(section) {
            section.problem(
                &section.spot_of("transforms"),
                "transforms change what a cluster is sent, and there is no `cluster` or `split`",
            );
        }
        let items = section.list("transforms");
        items.iter().filter_map(|item| Transform::read(item, section.problems())).collect()
    }

    fn read(item: &Node, problems: &mut Problems) -> Option<Self> {
        let mut section = Section::of_map(item, problems);
        section.require("path_remove_prefix", "a path such as /api");
        let prefix = section.checked("path_remove_prefix", prefix);
        section.finish();
        Some(Transform::PathRemovePrefix(prefix?.value))
    }
}

pub(super) fn method(text: &str) -> Result<Method, String> {
    const KNOWN: [Method; 9] = [
        Method::GET,
        Method::HEAD,
        Method::POST,
        Method::PUT,
        Method::PATCH,
        Method::DELETE,
        Method::OPTIONS,
        Method::TRACE,
        Method::CONNECT,
    ];
    let upper = text.to_ascii_uppercase();
    match text.parse() {
        Ok(_) if KNOWN.iter().any(|known| *known == *upper && *known != *text) => {
            Err(format!("methods are written in capitals; did you mean \"{upper}\"?"))
        }
        Ok(method) => Ok(method),
        Err(_) => Err("expected a method such as GET or POST".to_owned()),
    }
}

/// `parameters` are those of the path; nothing when they are not known.
fn target(to: &str, parameters: Option<&[&str]>) -> Result<String, String> {
    if !to.starts_with('/') && !to.starts_with("http://") && !to.starts_with("https://") {
        return Err("expected http://, https:// or `/` in front".to_owned());
    }
    if !to.bytes().all(|b| b.is_ascii_graphic()) {
        return Err("expected URL characters; write others as %XX".to_owned());
    }
    let names = references(to)?;
    let known = parameters.unwrap_or(&names);
    match names.iter().find(|name| !known.contains(name)) {
        Some(name) => Err(unknown("path parameter", name, known)),
        None => Ok(to.to_owned()),
    }
}

fn prefix(text: &str) -> Result<String, String> {
    match segments(text)?.as_slice() {
        [] | [.., Segment::Literal("")] => {
            Err("expected a path of at least one segment and no `/` at its end".to_owned())
        }
        parts if parts.iter().all(|part| matches!(part, Segment::Literal(_))) => Ok(text.to_owned()),
        _ => Err("expected a fixed path, without `{parameters}`".to_owned()),
    }
}
