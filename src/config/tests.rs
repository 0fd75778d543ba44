//! Whole configurations, good and broken.

use super::{
    AccessFormat, Action, Config, Discovery, HttpVersion, LoadError, MatchMode, Problems, Queue, Transform, Version,
    VersionPolicy,
};
use proptest::prelude::*;
use std::fs;
use std::path::Path;
use std::time::Duration;

const SMALLEST: &str = r#"listeners: { web: "0.0.0.0:8080" }
routes:    { all: { cluster: app } }
clusters:  { app: { destinations: ["http://10.0.0.1:3000", "http://10.0.0.2"] } }
"#;

const FULL: &str = r#"version: 1
server: { threads: 3, zone: zone-a, keepalive_pool: 10, name: gw-1 }
admin: { address: "0.0.0.0:5390", token_file: admin.token }
log: { level: debug, format: json }
access_log: { path: logs/access, format: combined }
listeners:
  web: { address: "127.0.0.1:5300", protocols: [http1, h2c], limits: { idle_timeout: 620s } }
  secure:
    address: "127.0.0.1:5343"
    tls: { certificates: [{ cert: certs/a.pem, key: /etc/a.key }, { cert: b.pem, key: b.key }] }
routes:
  books:
    match:
      hosts: ["Shop.example.com", "*.shop.example.com:8443"]
      path: "/api/{v}/{**rest}"
      methods: [GET, QUERY]
      headers: [{ name: X-Tenant, mode: Prefix, values: [a, b], case_sensitive: true }, { name: x, mode: NotExists }]
      query: [{ name: Preview, values: one }]
      client_ip: [10.0.0.0/8, "::1"]
    order: -1
    cluster: catalog
    timeout: 30s
    transforms: [{ path_remove_prefix: /api }]
  old: { match: { path: "/shop/{**rest}" }, redirect: { to: "https://x/{rest}", status: 301 } }
  ping: { match: { path: /ping }, respond: { status: 204, body: "" } }
clusters:
  catalog:
    load_balancing: { policy: PreferSameZone, zone_key: Zone }
    destinations:
      catalog-1: http://127.0.0.1:5301/base
      catalog-2:
        address: http://127.0.0.1:5311
        health_address: http://127.0.0.1:5312
        host: catalog.internal:80
        role: primary
        enabled: false
        weight: 0
        max_requests: 512
        metadata: { Zone: zone-b, Rack: 7 }
    health:
      available: { policy: Panic, enter_below: "50%" }
      active:
        type: http
        policy: ConsecutiveFailures
        interval: 5s
        timeout: 00:00:02
        path: /health
        unhealthy_after: 3
        healthy_after: 4
        jitter: "20%"
    retry: off
    connection:
      connect_timeout: 1s
      idle_timeout: 2s
      max_connections: 7
      tls: { verify: false, ca: ca.pem, client_cert: c.pem, client_key: c.key, server_name: x.internal }
    request: { activity_timeout: 2s, version: 1.1, version_policy: OrHigher }
    queue: { max: 3, deadline: 4s }
  ordering:
    destinations: { ordering: { address: "http://ordering" } }
    discovery: { type: services }
    health: { active: off }
services:
  ordering: { http: ["127.0.0.1:5302"], https: "ordering.internal:443" }
"#;

fn faults(text: &str) -> Problems {
    match Config::parse("conf/t.yaml", text) {
        Err(LoadError::Faults(problems)) if !problems.is_empty() => problems,
        other => panic!("no faults in {text:?}: {other:?}"),
    }
}

fn lines(problems: &Problems) -> Vec<String> {
    problems.iter().map(|problem| format!("{}:{} {}", problem.at.line, problem.at.path, problem.message)).collect()
}

/// `text` with the sections it must not go without; its own lines come first.
fn completed(text: &str) -> String {
    format!("{text}\n{}", "listeners: { web: 0.0.0.0:1 }\nroutes: { all: { cluster: c } }\n")
}

#[test]
fn given_the_smallest_file_when_read_then_short_forms_spelled_out_and_defaults_filled_in() {
    let config = Config::parse("t.yaml", SMALLEST).expect("it is good");
    let listener = &config.listeners[0];
    assert_eq!((listener.name.value.as_str(), listener.address.value.port()), ("web", 8080));
    assert!(matches!(&config.routes[0].action, Action::Cluster(name) if name.value == "app" && name.at.line == 2));
    assert_eq!(listener.idle_timeout.value, Duration::from_secs(75));
    let cluster = &config.clusters[0];
    let ids: Vec<_> = cluster.destinations.iter().map(|d| d.id.value.as_str()).collect();
    assert_eq!(ids, ["10.0.0.1:3000", "10.0.0.2:80"]);
    assert!(cluster.destinations.iter().all(|d| d.weight == 1 && d.enabled && d.max_requests.is_none()));
    assert_eq!(cluster.load_balancing.name.value, "PowerOfTwoChoices");
    assert_eq!(cluster.health.available.name.value, "HealthyOrPanic");
    assert!(cluster.health.active.is_none() && cluster.connection.tls.verify);
    assert_eq!(cluster.connection.connect_timeout, Duration::from_secs(5));
    assert_eq!(cluster.connection.idle_timeout, Duration::from_secs(60));
    assert_eq!(cluster.activity_timeout, Duration::from_secs(100));
    assert!(cluster.queue.is_none() && cluster.connection.max_connections.is_none());
    assert!(config.routes[0].timeout.is_none());
    assert_eq!(config.admin.expect("on by default").address.value.to_string(), "127.0.0.1:5390");
    assert_eq!((config.log.level, config.server.keepalive_pool), (log::LevelFilter::Info, 1024));
    assert!(config.access_log.is_none());
    assert!(config.server.threads >= 1 && !config.server.name.is_empty());
}

#[test]
fn given_every_key_when_read_then_every_value_arrives() {
    let config = Config::parse("conf/t.yaml", FULL).unwrap_or_else(|error| panic!("{error}"));
    let server = &config.server;
    assert_eq!((server.threads, server.zone.as_deref(), server.name.as_str()), (3, Some("zone-a"), "gw-1"));
    let access_log = config.access_log.as_ref().expect("given");
    assert_eq!(access_log.path.as_deref(), Some(Path::new("conf/logs/access")));
    assert_eq!((access_log.format, &access_log.template), (AccessFormat::Combined, &None));
    let token = config.admin.as_ref().and_then(|admin| admin.token_file.as_ref()).expect("given");
    assert_eq!(token.value, Path::new("conf/admin.token"));
    let tls = config.listeners[1].tls.as_ref().expect("given");
    let [first, second] = &tls.certificates[..] else { panic!("two certificates") };
    assert_eq!(first.cert.value, Path::new("conf/certs/a.pem"));
    assert_eq!(first.key.value, Path::new("/etc/a.key"));
    assert_eq!(second.cert.value, Path::new("conf/b.pem"));
    let idle: Vec<_> = config.listeners.iter().map(|listener| listener.idle_timeout.value.as_secs()).collect();
    assert_eq!(idle, [620, 75]);
    let spoken: Vec<_> = config.listeners.iter().map(|listener| listener.protocols.to_string()).collect();
    assert_eq!(spoken, ["http1, h2c", "http1, http2"]);
    let [books, old, ping] = &config.routes[..] else { panic!("three routes") };
    let hosts: Vec<_> = books.matches.hosts.iter().map(|host| host.value.as_str()).collect();
    assert_eq!(hosts, ["shop.example.com", "*.shop.example.com:8443"]);
    assert_eq!((books.order, books.matches.methods.len()), (-1, 2));
    let [tenant, absent] = &books.matches.headers[..] else { panic!("two matchers") };
    assert_eq!((tenant.name.as_str(), tenant.test.mode), ("x-tenant", MatchMode::Prefix));
    assert_eq!((&tenant.test.values[..], tenant.test.case_sensitive), (&["a".to_owned(), "b".to_owned()][..], true));
    assert_eq!((absent.test.mode, absent.test.values.len()), (MatchMode::NotExists, 0));
    let [preview] = &books.matches.query[..] else { panic!("one matcher") };
    assert_eq!((preview.name.as_str(), preview.test.mode), ("Preview", MatchMode::Exact));
    assert!(!preview.test.case_sensitive);
    let ranges: Vec<String> = books.matches.client_ip.iter().map(ToString::to_string).collect();
    assert_eq!(ranges, ["10.0.0.0/8", "::1/128"]);
    assert_eq!((books.timeout, ping.timeout), (Some(Duration::from_secs(30)), None));
    assert!(matches!(&books.transforms[..], [Transform::PathRemovePrefix(prefix)] if prefix == "/api"));
    assert!(matches!(&old.action, Action::Redirect { to, status: 301 } if to.value == "https://x/{rest}"));
    assert!(matches!(&ping.action, Action::Respond { status: 204, body } if body.is_empty()));
    let catalog = &config.clusters[0];
    assert_eq!(catalog.load_balancing.name.value, "PreferSameZone");
    let second = &catalog.destinations[1];
    assert_eq!((second.weight, second.max_requests, second.enabled), (0, Some(512), false));
    assert_eq!(second.metadata.get("Rack").map(String::as_str), Some("7"));
    let active = catalog.health.active.as_ref().expect("given");
    assert_eq!((active.kind.name.value.as_str(), active.unhealthy_after, active.healthy_after), ("http", 3, 4));
    assert_eq!((active.timeout, active.jitter), (Duration::from_secs(2), 0.2));
    assert_eq!(catalog.connection.tls.ca.as_ref().expect("given").value, Path::new("conf/ca.pem"));
    let queue = Queue { max: 3, deadline: Duration::from_secs(4) };
    assert_eq!((catalog.queue, catalog.connection.max_connections), (Some(queue), Some(7)));
    let asked = HttpVersion { version: Version::Http11, policy: VersionPolicy::OrHigher };
    assert_eq!((catalog.version, config.clusters[1].version.policy), (asked, VersionPolicy::OrLower));
    assert_eq!(config.clusters[1].discovery, Discovery::Services);
    assert!(config.clusters[1].health.active.is_none());
    let endpoints = &config.services[0].endpoints;
    assert_eq!((endpoints[0].0.as_str(), endpoints[1].1[0].value.as_str()), ("http", "ordering.internal:443"));
}

#[test]
fn given_a_policy_with_parameters_when_taken_then_unknown_ones_are_faults_with_place() {
    let config = Config::parse("conf/t.yaml", FULL).expect("it is good");
    let mut problems = config.problems();
    let catalog = &config.clusters[0];
    let mut params = catalog.load_balancing.params(&mut problems);
    assert_eq!(params.text("zone_keys"), None);
    params.finish();
    let probe = &catalog.health.active.as_ref().expect("given").kind;
    let mut params = probe.params(&mut problems);
    assert_eq!(params.text("path").map(|path| path.value), Some("/health".into()));
    params.finish();
    let shown = problems.to_string();
    let fault = "conf/t.yaml:28:47: clusters.catalog.load_balancing.zone_key: unknown key \"zone_key\"; did you mean \"zone_keys\"? One of: policy, zone_keys\n  28 |     load_balancing: { policy: PreferSameZone, zone_key: Zone }\n     |                                               ^\n1 fault";
    assert_eq!(shown, fault);
}

#[test]
fn given_one_broken_value_when_read_then_one_fault_at_its_line_and_path() {
    let cases = [
        // Unknown keys.
        ("listener: {}", "1:listener unknown key \"listener\"; did you mean \"listeners\"?"),
        ("server: { drian: {} }", "1:server.drian unknown key \"drian\"; did you mean \"drain\"?"),
        (
            "clusters:\n  c:\n    destinations: [\"http://a\"]\n    loadBalancing: Random",
            "4:clusters.c.loadBalancing unknown key \"loadBalancing\"; did you mean \"load_balancing\"?",
        ),
        (
            "clusters: { c: { destinations: { d: { address: http://a, wieght: 2 } } } }",
            "1:clusters.c.destinations.d.wieght unknown key \"wieght\"; did you mean \"weight\"?",
        ),
        // Duplicate keys.
        ("log: { level: info }\nlog: { level: warn }", "2:log duplicate key \"log\"; first at line 1"),
        (
            "clusters:\n  c: { destinations: [\"http://a\"] }\n  c: { destinations: [\"http://b\"] }",
            "3:clusters.c duplicate key \"c\"; first at line 2",
        ),
        (
            "clusters: { c: { destinations: [\"http://a\", \"http://a:80\"] } }",
            "1:clusters.c.destinations[1] destination a:80 is written twice",
        ),
        // Wrong types.
        ("log: info", "1:log expected a section of keys; found \"info\""),
        (
            "server: { threads: many }",
            "1:server.threads expected auto, or a number of threads from 1 to 1024; found \"many\"",
        ),
        (
            "server: { keepalive_pool: '5' }",
            "1:server.keepalive_pool expected a whole number from 0 to 1000000; found the text \"5\", take the quotes away",
        ),
        ("clusters: [c]", "1:clusters expected a section of keys; found a list"),
        (
            "clusters: { c: { destinations: { d: [x] } } }",
            "1:clusters.c.destinations.d expected a section of keys; found a list",
        ),
        ("clusters: { c: { destinations: [[x]] } }", "1:clusters.c.destinations[0] expected a URL"),
        (
            "clusters: { c: { destinations: [\"http://a\"], load_balancing: [] } }",
            "1:clusters.c.load_balancing expected a section of keys; found a list",
        ),
        (
            "clusters: { c: { destinations: [\"http://a\"], request: { activity_timeout: 5 } } }",
            "1:clusters.c.request.activity_timeout a bare number has no unit; write 5s or 5ms",
        ),
        (
            "clusters: { c: { destinations: [\"http://a\"], retry: { attempts: 11 } } }",
            "1:clusters.c.retry.attempts expected a whole number from 1 to 10; found \"11\"",
        ),
        (
            "clusters: { c: { destinations: [\"http://a\"], queue: { max: 0 } } }",
            "1:clusters.c.queue.max expected a whole number from 1 to 1000000; found \"0\"",
        ),
        (
            "clusters: { c: { destinations: [\"http://a\"], connection: { max_connections: 0 } } }",
            "1:clusters.c.connection.max_connections expected a whole number from 1 to 1000000; found \"0\"",
        ),
        // Out of range.
        ("version: 2", "1:version expected 1, the only version there is; found \"2\""),
        ("server: { threads: 0 }", "1:server.threads expected auto"),
        (
            "clusters: { c: { destinations: { d: { address: http://a, weight: 1001 } } } }",
            "1:clusters.c.destinations.d.weight expected a whole number from 0 to 1000; found \"1001\"",
        ),
        (
            "clusters: { c: { destinations: [\"http://a\"], health: { active: { type: tcp, interval: 2h } } } }",
            "1:clusters.c.health.active.interval expected a duration from 100ms to 1h; found \"2h\"",
        ),
        (
            "clusters: { c: { destinations: [\"http://a\"], health: { active: { type: tcp, jitter: 11 } } } }",
            "1:clusters.c.health.active.jitter expected a share",
        ),
        // Words.
        (
            "log: { level: inof }",
            "1:log.level unknown level \"inof\"; did you mean \"info\"? One of: off, error, warn, info, debug, trace",
        ),
        (
            "clusters: { c: { destinations: [\"http://a\"], discovery: { type: dns } } }",
            "1:clusters.c.discovery.type unknown type \"dns\"; only services is known here",
        ),
        (
            "clusters: { c: { destinations: [\"http://a\"], health: { active: { interval: 1s } } } }",
            "1:clusters.c.health.active needs `type`",
        ),
        (
            "clusters: { c: { destinations: [\"http://a\"], request: { version: 3 } } }",
            "1:clusters.c.request.version unknown version \"3\"",
        ),
        (
            "clusters: { c: { destinations: [\"http://a\"], request: { version_policy: Exakt } } }",
            "1:clusters.c.request.version_policy unknown version_policy \"Exakt\"; did you mean \"Exact\"?",
        ),
        // URLs.
        (
            "clusters: { c: { destinations: [\"10.0.0.1:80\"] } }",
            "1:clusters.c.destinations[0] expected a URL such as http://10.0.0.1:8080; found \"10.0.0.1:80\"",
        ),
        (
            "clusters: { c: { destinations: [\"http://a:99999\"] } }",
            "1:clusters.c.destinations[0] expected a port from 1 to 65535",
        ),
        (
            "clusters: { c: { destinations: { d: { address: \"ftp://a\" } } } }",
            "1:clusters.c.destinations.d.address expected http:// or https:// in front",
        ),
        ("services: { s: { http: [\"127.0.0.1\"] } }", "1:services.s.http[0] expected host:port"),
        // What must be there.
        ("clusters: { c: {} }", "1:clusters.c.destinations needs at least one"),
        ("clusters: { c: { destinations: [] } }", "1:clusters.c.destinations needs at least one"),
        ("clusters: { c: { destinations: { d: { weight: 1 } } } }", "1:clusters.c.destinations.d needs `address`"),
        (
            "clusters: { c: { destinations: [\"https://a\"], connection: { tls: { client_cert: x } } } }",
            "1:clusters.c.connection.tls needs `client_key`",
        ),
        (
            "clusters: { \"\": { destinations: [\"http://a\"] } }",
            "1:clusters. a name has 1 to 128 printable characters; found \"\"",
        ),
        ("admin: { address: 0.0.0.0:5390 }", "1:admin.address an address other than loopback needs `token_file`"),
        ("admin: { address: localhost:5390 }", "1:admin.address expected an IP address with a port"),
    ];
    for (text, fault) in cases {
        let found = lines(&faults(&completed(text)));
        assert!(found.len() == 1 && found[0].starts_with(fault), "{text}\n{found:?}");
    }
}

#[test]
fn given_a_broken_listener_or_route_when_read_then_one_fault_at_its_path() {
    for (listener, route, fault) in [
        ("0.0.0.0", "cluster: c", "listeners.x expected an IP address with a port"),
        ("{ protocols: [http1] }", "cluster: c", "listeners.x needs `address`"),
        (
            "{ address: 0.0.0.0:1, limits: { idle_timeout: 900ms } }",
            "cluster: c",
            "listeners.x.limits.idle_timeout expected a duration from 1s to 24h",
        ),
        (
            "{ address: 0.0.0.0:1, protocols: [htp1] }",
            "cluster: c",
            "listeners.x.protocols[0] unknown protocol \"htp1\"; did you mean \"http1\"?",
        ),
        ("{ address: 0.0.0.0:1, protocols: [] }", "cluster: c", "listeners.x.protocols expected at least one of http1"),
        (
            "{ address: 0.0.0.0:1, protocols: [http1, http2] }",
            "cluster: c",
            "listeners.x.protocols[1] http2 is agreed on within TLS and there is no `tls`",
        ),
        (
            "{ address: 0.0.0.0:1, protocols: h2c, tls: { certificates: [{ cert: a, key: b }] } }",
            "cluster: c",
            "listeners.x.protocols h2c is HTTP/2 without TLS and there is `tls`",
        ),
        (
            "{ address: 0.0.0.0:1, tls: { certificates: [] } }",
            "cluster: c",
            "listeners.x.tls.certificates expected at least one certificate; found 0",
        ),
        ("{ address: 0.0.0.0:1, tls: {} }", "cluster: c", "listeners.x.tls needs `certificates`"),
        (
            "{ address: 0.0.0.0:1, tls: { certificates: [{ cert: a }] } }",
            "cluster: c",
            "listeners.x.tls.certificates[0] needs `key`",
        ),
        (
            "{ address: 0.0.0.0:1, tls: { certificates: [{}] } }",
            "cluster: c",
            "listeners.x.tls.certificates[0] needs `cert`",
        ),
        ("0.0.0.0:2", "cluster: c", "listeners.x listener `y` has this address already"),
        ("0.0.0.0:1", "{ respond: {}, timeout: 1s }", "routes.r.timeout there is no cluster that is waited for"),
        ("0.0.0.0:1", "match: {}", "routes.r needs one of `cluster`, `split`, `redirect` and `respond`"),
        ("0.0.0.0:1", "{ cluster: c, respond: {} }", "routes.r.respond `cluster` is there too"),
        (
            "0.0.0.0:1",
            "{ respond: { status: 199 } }",
            "routes.r.respond.status expected a whole number from 200 to 599",
        ),
        (
            "0.0.0.0:1",
            "{ redirect: { to: /x, status: 300 } }",
            "routes.r.redirect.status unknown status \"300\"; did you mean",
        ),
        ("0.0.0.0:1", "{ redirect: { status: 301 } }", "routes.r.redirect needs `to`"),
        ("0.0.0.0:1", "{ redirect: { to: x.com } }", "routes.r.redirect.to expected http://"),
        (
            "0.0.0.0:1",
            "{ match: { path: '/{rest}' }, redirect: { to: '/{rset}' } }",
            "routes.r.redirect.to unknown path parameter \"rset\"; did you mean \"rest\"?",
        ),
        (
            "0.0.0.0:1",
            "{ match: { path: '/{rest' }, redirect: { to: '/{rest}' } }",
            "routes.r.match.path a parameter fills its segment",
        ),
        (
            "0.0.0.0:1",
            "{ match: { path: api }, cluster: c }",
            "routes.r.match.path expected a path that starts with `/`; found \"api\"",
        ),
        ("0.0.0.0:1", "{ match: { path: '/a/*' }, cluster: c }", "routes.r.match.path `*` has no meaning in a path"),
        ("0.0.0.0:1", "{ match: { hosts: ['a b'] }, cluster: c }", "routes.r.match.hosts[0] expected a host name"),
        (
            "0.0.0.0:1",
            "{ match: { methods: [get] }, cluster: c }",
            "routes.r.match.methods[0] methods are written in capitals; did you mean \"GET\"?",
        ),
        ("0.0.0.0:1", "{ match: { header: x }, cluster: c }", "routes.r.match.header unknown key \"header\""),
        ("0.0.0.0:1", "{ order: 1.5, cluster: c }", "routes.r.order expected a whole number"),
        ("0.0.0.0:1", "{ cluster: c, transforms: { path_remove_prefix: /a } }", "routes.r.transforms expected a list"),
        (
            "0.0.0.0:1",
            "{ cluster: c, transforms: [{ path_remove_prefix: /a/ }] }",
            "routes.r.transforms[0].path_remove_prefix expected a path of at least one segment",
        ),
        ("0.0.0.0:1", "{ cluster: c, transforms: [{ path_remove_prefx: /a }] }", "routes.r.transforms[0]"),
        (
            "0.0.0.0:1",
            "{ respond: {}, transforms: [{ path_remove_prefix: /a }] }",
            "routes.r.transforms transforms change what a cluster is sent",
        ),
        ("0.0.0.0:1", "{ cluster: [c] }", "routes.r.cluster expected text; found a list"),
    ] {
        let route = if route.starts_with('{') { route.to_owned() } else { format!("{{ {route} }}") };
        let text = format!("listeners:\n  y: 0.0.0.0:2\n  x: {listener}\nroutes:\n  r: {route}\n");
        let found = lines(&faults(&text));
        let line = if fault.starts_with("routes") { 5 } else { 3 };
        assert!(found[0].starts_with(&format!("{line}:{fault}")), "{text}\n{found:?}");
        let slip = fault == "routes.r.transforms[0]";
        assert_eq!(found.len(), if slip { 2 } else { 1 }, "{text}\n{found:?}");
    }
}

#[test]
fn given_a_file_that_is_no_configuration_when_read_then_one_fault_with_place() {
    for (text, fault) in [
        ("", "1: the file is empty"),
        ("\n# nothing\n\n", "the file is empty"),
        ("---\n", "the file is empty"),
        ("null", "1: the file is empty"),
        ("just text", "1: expected sections such as listeners, routes and clusters; found \"just text\""),
        ("- a\n", "1: expected sections such as listeners, routes and clusters; found a list"),
        ("listeners:\n\tweb: 0.0.0.0:1\n", "2: a tab cannot indent YAML; use spaces"),
        ("listeners: \"open\nroutes: {}\n", "1: a quote is opened and never closed"),
        ("listeners: {\n", "not valid YAML"),
        ("\u{0}\u{1}\u{2}", "1: "),
        ("a: \u{7}", "1:"),
        ("%PDF-1.7\n%", "2: not valid YAML"),
    ] {
        let found = lines(&faults(text));
        assert!(found.len() == 1 && found[0].contains(fault), "{text:?}\n{found:?}");
    }
}

#[test]
fn given_ten_faults_in_one_file_when_read_then_ten_reported_in_the_order_of_the_file() {
    let text = "\
version: 2
sevrer: {}
log: { level: loud, level: info }
listeners: { web: nowhere }
routes:
  a: { match: { path: x }, cluster: c }
  b: {}
clusters:
  c:
    destinations: [\"http://\", { }]
    connection: { connect_timeout: 0s }
    retry: on
";
    let problems = faults(text);
    let lines: Vec<_> = problems.iter().map(|problem| problem.at.line).collect();
    assert_eq!(lines, [1, 2, 3, 3, 4, 6, 7, 10, 10, 11, 12], "{problems}");
    assert!(problems.to_string().ends_with("\n11 faults"));
}

#[test]
fn given_neither_listeners_nor_routes_when_read_then_both_are_missed() {
    let found = lines(&faults("clusters: { c: { destinations: [\"http://a\"] } }\nroutes: {}\n"));
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found.iter().any(|fault| fault.contains("listeners needs at least one, such as `web: 0.0.0.0:8080`")));
    assert!(found.iter().any(|fault| fault.starts_with("2:routes needs at least one")));
}

#[test]
fn given_a_draft_with_faults_when_read_then_every_cluster_is_still_there() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("t.yaml");
    fs::write(&path, completed("clusters: { a: nothing, b: { destinations: [bad], x: 1 } }")).expect("written");
    let (config, problems) = Config::draft(&path, &|_| None).expect("it is YAML");
    let names: Vec<_> = config.clusters.iter().map(|cluster| cluster.name.value.as_str()).collect();
    assert_eq!(names, ["a", "b"]);
    assert_eq!(problems.len(), 3, "{problems}");
    let again = config.problems();
    assert!(again.is_empty());
}

#[test]
fn given_eighty_thousand_destinations_when_read_then_all_there() {
    let urls: String =
        (0..80_000).map(|i| format!("      d{i}: {{ address: \"http://h{i}:80\", weight: 2 }}\n")).collect();
    let text = format!(
        "listeners: {{ web: 0.0.0.0:1 }}\nroutes: {{ r: {{ cluster: c }} }}\nclusters:\n  c:\n    destinations:\n{urls}"
    );
    let config = Config::parse("t.yaml", &text).expect("it is good");
    assert_eq!(config.clusters[0].destinations.len(), 80_000);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn given_any_text_when_read_then_never_a_panic_and_every_report_can_be_shown(text in "(?s).{0,200}") {
        if let Err(error) = Config::parse("t.yaml", &text) {
            prop_assert!(!error.to_string().is_empty());
        }
    }

    #[test]
    fn given_a_good_file_with_a_part_replaced_when_read_then_never_a_panic(
        start in 0..FULL.len(),
        length in 0..40usize,
        text in "[ -~\\n\\t{}\\[\\]:&*!%é-]{0,12}",
    ) {
        let end = (start + length).min(FULL.len());
        let mutated = format!("{}{text}{}", &FULL[..start], &FULL[end..]);
        if let Err(error) = Config::parse("t.yaml", &mutated) {
            prop_assert!(error.to_string().starts_with("t.yaml:"), "{error}");
        }
    }
}
