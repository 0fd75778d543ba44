//! Routes and paths of any kind: the route found is the one that comes first when every route is tried in turn by a matcher
//! that knows no trie.
#![no_main]

use derbent::config::{Action, Located, Match, Route, Segment, Spot, segments};
use derbent::model::RequestView;
use derbent::runtime::{Router, split_port};
use http::{HeaderMap, Method};
use libfuzzer_sys::fuzz_target;

// Lines: templates, each with a host behind a space where it has one; the last line is a host and a path.
fuzz_target!(|text: &str| {
    let mut lines: Vec<&str> = text.lines().take(32).collect();
    let Some(request) = lines.pop() else { return };
    let routes: Vec<Route> = lines.iter().filter_map(|line| route(line)).collect();
    let (authority, path) = request.split_once(' ').unwrap_or(("h", request));
    let (host, port) = split_port(authority);
    let view = RequestView {
        method: &Method::GET,
        host,
        port,
        path,
        query: None,
        headers: &HeaderMap::new(),
        client_ip: None,
    };
    let found = Router::new(&routes).find(&view);
    let best = (0..routes.len()).filter(|&n| fits(&routes[n], &view)).min_by_key(|&n| (rank(&routes[n]), n));
    assert_eq!(found, best, "{routes:?}");
});

fn located(text: &str) -> Located<String> {
    let at = Spot { file: "f".into(), line: 1, column: 1, path: String::new() };
    Located { value: text.to_owned(), at }
}

fn route(line: &str) -> Option<Route> {
    let (path, host) = line.split_once(' ').map_or((line, None), |(path, host)| (path, Some(host)));
    segments(path).ok()?;
    // Hosts are checked by the reader; these are the ones it lets through.
    let name = host.map(|host| host.strip_prefix("*.").unwrap_or(host));
    let good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
    if name.is_some_and(|name| name.is_empty() || !name.chars().all(good)) {
        return None;
    }
    Some(Route {
        name: located("r"),
        matches: Match {
            hosts: host.map(located).into_iter().collect(),
            path: Some(located(path)),
            ..Match::default()
        },
        order: 0,
        action: Action::Cluster(located("c")),
        timeout: None,
        transforms: Vec::new(),
    })
}

/// The segments without the closing slash that does not count.
fn parts(route: &Route) -> Vec<Segment<'_>> {
    let path = route.matches.path.as_ref().map_or("/", |path| &path.value);
    let mut parts = segments(path).unwrap_or_default();
    parts.pop_if(|last| *last == Segment::Literal(""));
    parts
}

fn fits(route: &Route, request: &RequestView<'_>) -> bool {
    let host = request.host.to_ascii_lowercase();
    let host_fits = route.matches.hosts.first().is_none_or(|wanted| match wanted.value.strip_prefix('*') {
        Some(suffix) => host.ends_with(suffix),
        None => host == wanted.value,
    });
    let path = request.path.strip_prefix('/').unwrap_or(request.path);
    let path = path.strip_suffix('/').unwrap_or(path);
    let given: Vec<&str> = if path.is_empty() { Vec::new() } else { path.split('/').collect() };
    host_fits && path_fits(&parts(route), &given)
}

fn path_fits(template: &[Segment<'_>], given: &[&str]) -> bool {
    match (template, given) {
        ([], []) | ([Segment::Rest(_)], _) => true,
        ([Segment::Literal(wanted), more @ ..], [first, rest @ ..]) => wanted == first && path_fits(more, rest),
        ([Segment::Parameter(_), more @ ..], [first, rest @ ..]) => !first.is_empty() && path_fits(more, rest),
        _ => false,
    }
}

fn rank(route: &Route) -> (Vec<u8>, u8, std::cmp::Reverse<usize>) {
    let digits = parts(route).into_iter().map(|part| match part {
        Segment::Literal(_) => 0,
        Segment::Parameter(_) => 1,
        Segment::Rest(_) => 2,
    });
    let (kind, length) = match route.matches.hosts.first() {
        Some(host) if host.value.starts_with("*.") => (1, host.value.len()),
        Some(_) => (0, 0),
        None => (2, 0),
    };
    (digits.collect(), kind, std::cmp::Reverse(length))
}
