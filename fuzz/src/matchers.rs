//! Header lines and queries of any kind against matchers of any value: no panic, and the modes agree with each other.
#![no_main]

use derbent::config::{Action, HeaderMatch, Located, Match, MatchMode, QueryMatch, Route, Spot, ValueTest};
use derbent::model::RequestView;
use derbent::runtime::Router;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use libfuzzer_sys::fuzz_target;

// The first line is the value looked for; the second is a query, and all that follow are header lines.
fuzz_target!(|text: &str| {
    let mut lines = text.split('\n');
    let (Some(wanted), Some(query)) = (lines.next().filter(|wanted| !wanted.is_empty()), lines.next()) else { return };
    let values: Vec<HeaderValue> = lines.filter_map(|line| HeaderValue::from_bytes(line.as_bytes()).ok()).collect();
    for name in [HeaderName::from_static("x-a"), http::header::COOKIE] {
        let headers: HeaderMap = values.iter().map(|value| (name.clone(), value.clone())).collect();
        for case_sensitive in [false, true] {
            let test = |mode| ValueTest { mode, values: values_of(mode, wanted), case_sensitive };
            let header = |mode| {
                let headers_wanted = vec![HeaderMatch { name: name.clone(), test: test(mode) }];
                admits(Match { headers: headers_wanted, ..Match::default() }, query, &headers)
            };
            let parameter = |mode| {
                let wanted = vec![QueryMatch { name: "p".into(), test: test(mode) }];
                admits(Match { query: wanted, ..Match::default() }, query, &headers)
            };
            agree(header);
            agree(parameter);
            assert_ne!(header(MatchMode::Exists), header(MatchMode::NotExists));
        }
    }
});

/// What holds between the modes, whatever was sent.
fn agree(admits: impl Fn(MatchMode) -> bool) {
    let [exact, prefix, contains] = [MatchMode::Exact, MatchMode::Prefix, MatchMode::Contains].map(&admits);
    assert!(!exact || prefix, "what equals begins so");
    assert!(!prefix || contains, "what begins so contains it");
    assert!(!contains || admits(MatchMode::Exists), "what is absent contains nothing");
    assert_ne!(contains, admits(MatchMode::NotContains));
}

fn values_of(mode: MatchMode, wanted: &str) -> Vec<String> {
    match mode {
        MatchMode::Exists | MatchMode::NotExists => Vec::new(),
        _ => vec![wanted.to_owned()],
    }
}

fn admits(matches: Match, query: &str, headers: &HeaderMap) -> bool {
    let at = Spot { file: "f".into(), line: 1, column: 1, path: String::new() };
    let located = |text: &str| Located { value: text.to_owned(), at: at.clone() };
    let action = Action::Cluster(located("c"));
    let route = Route { name: located("r"), matches, order: 0, action, timeout: None, transforms: Vec::new() };
    let view = RequestView {
        method: &Method::GET,
        host: "h",
        port: None,
        path: "/",
        query: Some(query),
        headers,
        client_ip: None,
    };
    Router::new(&[route]).find(&view).is_some()
}
