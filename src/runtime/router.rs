//! Which route a request takes: the most specific that matches, by order, then path, then method, then host, then the
//! file's order (YARP's rule). A trie of path segments for each host, so that cost grows with the length of the path,
//! not with the number of routes. Built once a snapshot; looking up allocates nothing but for a host with capitals.

use super::template::{Segment, Template, segments};
use crate::config;
use crate::model::RequestView;
use http::Method;
use std::borrow::Cow;
use std::collections::HashMap;

pub struct Router {
    /// Best first; the tries name rules by their rank here.
    rules: Vec<Rule>,
    /// Lower-case host → its routes.
    exact: HashMap<String, Node>,
    /// `example.com` for `*.example.com`.
    wildcard: HashMap<String, Node>,
    any: Node,
}

/// One host of one route.
struct Rule {
    route: usize,
    methods: Vec<Method>,
    port: Option<u16>,
}

/// What a rule is found by.
enum Host<'a> {
    Any,
    Wildcard(&'a str),
    Exact(&'a str),
}

impl Router {
    /// Routes by their position in `routes`; `templates` beside them.
    pub fn build<'a>(routes: impl Iterator<Item = (&'a config::Route, &'a Template)>) -> Self {
        let mut ranked = Vec::new();
        for (position, (route, template)) in routes.enumerate() {
            for (host, port) in hosts(&route.matches) {
                let no_methods = route.matches.methods.is_empty();
                let rank = (route.order, template.precedence(), no_methods, host.rank(), position);
                let methods = route.matches.methods.clone();
                ranked.push((rank, host, template, Rule { route: position, methods, port }));
            }
        }
        ranked.sort_by(|a, b| a.0.cmp(&b.0));
        let mut router = Router {
            rules: Vec::with_capacity(ranked.len()),
            exact: HashMap::new(),
            wildcard: HashMap::new(),
            any: Node::default(),
        };
        for (_, host, template, rule) in ranked {
            let trie = match host {
                Host::Any => &mut router.any,
                Host::Wildcard(suffix) => router.wildcard.entry(suffix.to_string()).or_default(),
                Host::Exact(host) => router.exact.entry(host.to_string()).or_default(),
            };
            trie.insert(template.segments(), router.rules.len());
            router.rules.push(rule);
        }
        router
    }

    /// The position of the best route.
    pub fn find(&self, request: &RequestView<'_>) -> Option<usize> {
        let mut search = Search { rules: &self.rules, request, best: None };
        let host = lower_case(request.host);
        if let Some(trie) = self.exact.get(host.as_ref()) {
            search.walk(trie, segments(request.path));
        }
        if !self.wildcard.is_empty() {
            let mut rest = host.as_ref();
            while let Some((_, suffix)) = rest.split_once('.') {
                if let Some(trie) = self.wildcard.get(suffix) {
                    search.walk(trie, segments(request.path));
                }
                rest = suffix;
            }
        }
        search.walk(&self.any, segments(request.path));
        search.best.map(|rank| self.rules[rank].route)
    }
}

fn lower_case(host: &str) -> Cow<'_, str> {
    if host.bytes().any(|b| b.is_ascii_uppercase()) {
        Cow::Owned(host.to_ascii_lowercase())
    } else {
        Cow::Borrowed(host)
    }
}

/// The hosts a route asks for, with their ports; one `Any` when it asks for none.
fn hosts(matches: &config::Match) -> Vec<(Host<'_>, Option<u16>)> {
    if matches.hosts.is_empty() {
        return vec![(Host::Any, None)];
    }
    let mut hosts = Vec::with_capacity(matches.hosts.len());
    for written in &matches.hosts {
        let (name, port) = split_port(&written.value);
        hosts.push(match name.strip_prefix("*.") {
            Some(suffix) => (Host::Wildcard(suffix), port),
            None => (Host::Exact(name), port),
        });
    }
    hosts
}

/// `example.com:8443` → name and port; an IPv6 literal keeps its brackets off.
pub fn split_port(authority: &str) -> (&str, Option<u16>) {
    let (name, port) = match authority.rsplit_once(':') {
        Some((name, port)) if !port.contains(']') && !name.ends_with(':') => match port.parse() {
            Ok(port) => (name, Some(port)),
            Err(_) => (authority, None),
        },
        _ => (authority, None),
    };
    (name.trim_start_matches('[').trim_end_matches(']'), port)
}

impl Host<'_> {
    /// Exact names before wildcards, the longer wildcard before the shorter, any host last.
    fn rank(&self) -> (u8, std::cmp::Reverse<usize>) {
        match self {
            Host::Exact(_) => (0, std::cmp::Reverse(0)),
            Host::Wildcard(suffix) => (1, std::cmp::Reverse(suffix.len())),
            Host::Any => (2, std::cmp::Reverse(0)),
        }
    }
}

/// A place in the path; lists of ranks are ascending.
#[derive(Default)]
struct Node {
    literal: HashMap<String, Node>,
    parameter: Option<Box<Node>>,
    ends_here: Vec<usize>,
    rest: Vec<usize>,
}

impl Node {
    fn insert(&mut self, segments: &[Segment], rank: usize) {
        match segments.split_first() {
            None => self.ends_here.push(rank),
            Some((Segment::Rest(_), _)) => self.rest.push(rank),
            Some((Segment::Literal(text), tail)) => {
                self.literal.entry(text.clone()).or_default().insert(tail, rank);
            }
            Some((Segment::Parameter(_), tail)) => {
                self.parameter.get_or_insert_default().insert(tail, rank);
            }
        }
    }
}

struct Search<'a> {
    rules: &'a [Rule],
    request: &'a RequestView<'a>,
    best: Option<usize>,
}

impl Search<'_> {
    /// Goes down every branch that the path fits. Depth is the templates', which the configuration wrote.
    fn walk<'p>(&mut self, node: &Node, mut path: impl Iterator<Item = &'p str> + Clone) {
        self.consider(&node.rest);
        let Some(segment) = path.next() else {
            return self.consider(&node.ends_here);
        };
        if let Some(next) = node.literal.get(segment) {
            self.walk(next, path.clone());
        }
        if let Some(next) = &node.parameter
            && !segment.is_empty()
        {
            self.walk(next, path);
        }
    }

    fn consider(&mut self, ranks: &[usize]) {
        let better = |rank: &&usize| self.best.is_none_or(|best| **rank < best);
        let found = ranks.iter().take_while(better).find(|&&rank| self.matches(&self.rules[rank]));
        if let Some(rank) = found {
            self.best = Some(*rank);
        }
    }

    fn matches(&self, rule: &Rule) -> bool {
        let port = rule.port.is_none_or(|port| self.request.port == Some(port));
        port && (rule.methods.is_empty() || rule.methods.contains(self.request.method))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Action, Located, Match, Spot};

    fn located(text: &str) -> Located<String> {
        let at = Spot { file: "f".into(), line: 1, column: 1, path: String::new() };
        Located { value: text.to_string(), at }
    }

    fn route(hosts: &[&str], path: &str, methods: &[Method], order: i32) -> config::Route {
        config::Route {
            name: located(path),
            matches: Match {
                hosts: hosts.iter().map(|host| located(host)).collect(),
                path: Some(located(path)),
                methods: methods.to_vec(),
            },
            order,
            action: Action::Cluster(located("c")),
            transforms: Vec::new(),
        }
    }

    fn find(routes: &[config::Route], method: Method, authority: &str, path: &str) -> Option<usize> {
        let template =
            |route: &config::Route| Template::parse(route.matches.path.as_ref().map_or("", |path| &path.value));
        let templates: Vec<Template> = routes.iter().map(template).collect();
        let router = Router::build(routes.iter().zip(&templates));
        let (host, port) = split_port(authority);
        let view = RequestView { method: &method, host, port, path, ..crate::model::testing::request() };
        router.find(&view)
    }

    #[test]
    fn given_overlapping_paths_when_matched_then_the_most_specific_wins() {
        let routes = [
            route(&[], "/{**all}", &[], 0),
            route(&[], "/books/{id}", &[], 0),
            route(&[], "/books/top", &[], 0),
            route(&[], "/books/{**rest}", &[], 0),
        ];
        for (path, expected) in [
            ("/books/top", 2),
            ("/books/top/", 2),
            ("/books/7", 1),
            ("/books/7/reviews", 3),
            ("/books", 3),
            ("/books//", 3),
            ("/BOOKS/7", 0),
            ("/", 0),
            ("", 0),
        ] {
            assert_eq!(find(&routes, Method::GET, "h", path), Some(expected), "{path}");
        }
    }

    #[test]
    fn given_hosts_when_matched_then_path_first_then_exact_then_longest_wildcard() {
        let routes = [
            route(&["*.example.com"], "/{**all}", &[], 0),
            route(&["shop.example.com"], "/{**all}", &[], 0),
            route(&["*.eu.example.com"], "/{**all}", &[], 0),
            route(&[], "/api/{**rest}", &[], 0),
        ];
        for (host, path, expected) in [
            ("SHOP.example.com", "/", Some(1)),
            ("shop.example.com:8080", "/", Some(1)),
            ("a.b.eu.example.com", "/", Some(2)),
            ("other.example.com", "/", Some(0)),
            ("shop.example.com", "/api/x", Some(3)),
            ("example.com", "/", None),
        ] {
            assert_eq!(find(&routes, Method::GET, host, path), expected, "{host}{path}");
        }
    }

    #[test]
    fn given_methods_ports_and_order_when_matched_then_all_must_agree_and_order_wins() {
        let routes = [
            route(&[], "/a", &[], 0),
            route(&[], "/a", &[Method::POST], 0),
            route(&["h:81"], "/a", &[], 0),
            route(&[], "/{**all}", &[Method::PUT], -1),
        ];
        assert_eq!(find(&routes, Method::GET, "h", "/a"), Some(0));
        assert_eq!(find(&routes, Method::POST, "h", "/a"), Some(1));
        assert_eq!(find(&routes, Method::GET, "h:81", "/a"), Some(2));
        assert_eq!(find(&routes, Method::PUT, "h", "/a"), Some(3));
    }

    #[test]
    fn given_a_route_for_another_method_when_it_does_not_match_then_the_next_one_does() {
        let routes = [route(&[], "/a", &[Method::POST], 0), route(&[], "/{**all}", &[], 0)];
        assert_eq!(find(&routes, Method::GET, "h", "/a"), Some(1));
    }

    #[test]
    fn given_authorities_when_split_then_name_and_port() {
        for (text, expected) in [
            ("a:80", ("a", Some(80))),
            ("a", ("a", None)),
            ("[::1]:80", ("::1", Some(80))),
            ("[::1]", ("::1", None)),
            ("a:x", ("a:x", None)),
            ("", ("", None)),
        ] {
            assert_eq!(split_port(text), expected, "{text}");
        }
    }
}
