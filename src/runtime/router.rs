//! Which route a request takes: the most specific that matches, by order, then path, then method, then host, then the
//! number of header matchers, then that of query matchers (YARP's rule), then whether it asks for the client's address,
//! then the file's order. A trie of path segments for each host, so that cost grows with the length of the path, not with
//! the number of routes; only routes that share host and path are looked at one after another. Built once a snapshot;
//! looking up allocates nothing but for a host with capitals.

use super::matcher::Matchers;
use super::template::{Segment, Template, segments};
use crate::config;
use crate::model::RequestView;
use http::Method;
use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::HashMap;

pub struct Router {
    /// Best first; the tries name rules by their rank here.
    rules: Vec<Rule>,
    /// Of each route, by its position.
    matchers: Vec<Matchers>,
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
    pub fn new(routes: &[config::Route]) -> Self {
        let templates: Vec<Template> = routes.iter().map(Template::of).collect();
        let mut ranked = Vec::new();
        for (position, (route, template)) in routes.iter().zip(&templates).enumerate() {
            for (host, port) in hosts(&route.matches) {
                let matches = &route.matches;
                let fewer =
                    (Reverse(matches.headers.len()), Reverse(matches.query.len()), matches.client_ip.is_empty());
                let no_methods = matches.methods.is_empty();
                let rank = (route.order, template.precedence(), no_methods, host.rank(), fewer, position);
                let methods = matches.methods.clone();
                ranked.push((rank, host, template, Rule { route: position, methods, port }));
            }
        }
        ranked.sort_by(|a, b| a.0.cmp(&b.0));
        let mut router = Router {
            rules: Vec::with_capacity(ranked.len()),
            matchers: routes.iter().map(|route| Matchers::new(&route.matches)).collect(),
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

    /// The position of the best route among those it was built of.
    pub fn find(&self, request: &RequestView<'_>) -> Option<usize> {
        let mut search = Search { router: self, request, best: None };
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
    fn rank(&self) -> (u8, Reverse<usize>) {
        match self {
            Host::Exact(_) => (0, Reverse(0)),
            Host::Wildcard(suffix) => (1, Reverse(suffix.len())),
            Host::Any => (2, Reverse(0)),
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
    router: &'a Router,
    request: &'a RequestView<'a>,
    best: Option<usize>,
}

impl Search<'_> {
    /// Goes down every branch that the path fits, as a rule the best first, so that the others are not looked into.
    /// Depth is the templates', which the configuration wrote.
    fn walk<'p>(&mut self, node: &Node, mut path: impl Iterator<Item = &'p str> + Clone) {
        match path.next() {
            None => self.consider(&node.ends_here),
            Some(segment) => {
                if let Some(next) = node.literal.get(segment) {
                    self.walk(next, path.clone());
                }
                if let Some(next) = &node.parameter
                    && !segment.is_empty()
                {
                    self.walk(next, path);
                }
            }
        }
        self.consider(&node.rest);
    }

    fn consider(&mut self, ranks: &[usize]) {
        let better = |rank: &&usize| self.best.is_none_or(|best| **rank < best);
        let found = ranks.iter().take_while(better).find(|&&rank| self.matches(&self.router.rules[rank]));
        if let Some(rank) = found {
            self.best = Some(*rank);
        }
    }

    fn matches(&self, rule: &Rule) -> bool {
        let port = rule.port.is_none_or(|port| self.request.port == Some(port));
        let method = rule.methods.is_empty() || rule.methods.contains(self.request.method);
        port && method && self.router.matchers[rule.route].admit(self.request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Action, HeaderMatch, Located, Match, MatchMode, QueryMatch, Spot, ValueTest};
    use http::{HeaderMap, HeaderName, HeaderValue};

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
                ..Match::default()
            },
            order,
            action: Action::Cluster(located("c")),
            timeout: None,
            transforms: Vec::new(),
        }
    }

    fn find(routes: &[config::Route], method: Method, authority: &str, path: &str) -> Option<usize> {
        let (host, port) = split_port(authority);
        let request = RequestView { method: &method, host, port, path, ..crate::model::testing::request() };
        Router::new(routes).find(&request)
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
    fn given_matchers_when_several_routes_match_then_more_headers_then_more_parameters_then_an_address_win() {
        let exists = || ValueTest { mode: MatchMode::Exists, values: Vec::new(), case_sensitive: false };
        let asking = |headers: &[&str], query: &[&str], client: &[&str]| {
            let mut route = route(&[], "/a", &[], 0);
            let header = |name: &&str| HeaderMatch { name: name.parse().unwrap(), test: exists() };
            let parameter = |name: &&str| QueryMatch { name: name.to_string(), test: exists() };
            route.matches.headers = headers.iter().map(header).collect();
            route.matches.query = query.iter().map(parameter).collect();
            route.matches.client_ip = client.iter().map(|range| range.parse().unwrap()).collect();
            route
        };
        let routes = [
            asking(&[], &[], &[]),
            asking(&[], &[], &["10.0.0.0/8"]),
            asking(&[], &["p"], &[]),
            asking(&[], &["p", "q"], &[]),
            asking(&["x-a"], &[], &[]),
            asking(&["x-a", "x-b"], &[], &[]),
        ];
        let router = Router::new(&routes);
        for (names, query, client, expected) in [
            (&[][..], None, "11.0.0.1", 0),
            (&[], None, "10.0.0.1", 1),
            (&[], Some("p=1"), "10.0.0.1", 2),
            (&[], Some("q=1&p=1"), "10.0.0.1", 3),
            (&["x-a"], Some("q=1&p=1"), "10.0.0.1", 4),
            (&["x-b", "x-a"], Some("q=1&p=1"), "10.0.0.1", 5),
            (&["x-b"], None, "11.0.0.1", 0),
        ] {
            let one = |name: &&str| (name.parse::<HeaderName>().unwrap(), HeaderValue::from_static("1"));
            let headers = &names.iter().map(one).collect::<HeaderMap>();
            let (method, client_ip) = (&Method::GET, client.parse().ok());
            let request = RequestView { method, host: "h", port: None, path: "/a", query, headers, client_ip };
            assert_eq!(router.find(&request), Some(expected), "{names:?} {query:?} {client}");
        }
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
