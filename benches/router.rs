//! What finding a route costs at 10 and at 10,000 routes: by path, by host, and with matchers that have to be tried. Exits 1
//! when the cost grows more than caches explain. `cargo bench --bench router`

use derbent::Config;
use derbent::model::RequestView;
use derbent::runtime::Router;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use std::fmt::Write;
use std::hint::black_box;
use std::process::ExitCode;
use std::time::Instant;

const SIZES: [usize; 2] = [10, 10_000];
const LOOKUPS: usize = 100_000;
const ROUNDS: usize = 7;
/// 10,000 routes do not fit the nearest cache. A list of them would cost a thousand times as much.
const MOST_GROWTH: f64 = 10.0;

/// The match of route `n`, and host, path and query of a request that is for it.
struct Kind {
    name: &'static str,
    matches: fn(usize) -> String,
    host: fn(usize) -> String,
    path: fn(usize) -> String,
}

const KINDS: [Kind; 4] = [
    Kind {
        name: "path",
        matches: |n| format!("path: \"/api/v{}/things{n}/{{**rest}}\"", n % 7),
        host: |_| "shop.example.com".to_owned(),
        path: |n| format!("/api/v{}/things{n}/1/parts", n % 7),
    },
    Kind {
        name: "path parameter",
        matches: |n| format!("path: \"/{{tenant}}/things{n}/{{id}}\""),
        host: |_| "shop.example.com".to_owned(),
        path: |n| format!("/acme/things{n}/1"),
    },
    Kind {
        name: "host",
        matches: |n| format!("hosts: [\"shop{n}.example.com\"]"),
        host: |n| format!("shop{n}.example.com"),
        path: |_| "/api/v1/things/1".to_owned(),
    },
    Kind {
        name: "path and matchers",
        matches: |n| {
            format!(
                "path: \"/things{n}/{{id}}\", headers: [{{ name: X-Tenant, values: [acme] }}], \
                 query: [{{ name: preview, mode: Exists }}], client_ip: [10.0.0.0/8]"
            )
        },
        host: |_| "shop.example.com".to_owned(),
        path: |n| format!("/things{n}/1"),
    },
];

fn main() -> ExitCode {
    let mut grown = false;
    println!("{:<20} {:>10} {:>10}   growth", "ns per look-up", SIZES[0], SIZES[1]);
    for kind in &KINDS {
        let costs = SIZES.map(|size| best_of_rounds(kind, size));
        let growth = costs[1] / costs[0];
        grown |= growth > MOST_GROWTH;
        let verdict = if growth > MOST_GROWTH { "  too much" } else { "" };
        println!("{:<20} {:>10.1} {:>10.1}   {growth:.2}{verdict}", kind.name, costs[0], costs[1]);
    }
    if grown { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// The least of several rounds: what else the machine does only ever adds. The requests go round all routes.
fn best_of_rounds(kind: &Kind, size: usize) -> f64 {
    let router = Router::new(&config(kind, size).routes);
    let headers: HeaderMap = [("user-agent", "bench"), ("accept", "*/*"), ("x-tenant", "other, acme")]
        .into_iter()
        .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
        .collect();
    let requests: Vec<(String, String)> = (0..size).map(|n| ((kind.host)(n), (kind.path)(n))).collect();
    let view = |(host, path)| RequestView {
        method: &Method::GET,
        host,
        port: None,
        path,
        query: Some("page=2&preview=1"),
        headers: &headers,
        client_ip: Some([10, 1, 2, 3].into()),
    };
    for (n, (host, path)) in requests.iter().enumerate() {
        assert_eq!(router.find(&view((host, path))), Some(n), "{}", kind.name);
    }
    let round = |_| {
        let begun = Instant::now();
        for (host, path) in requests.iter().cycle().take(LOOKUPS) {
            black_box(router.find(&view((host, path))));
        }
        begun.elapsed().as_nanos() as f64 / LOOKUPS as f64
    };
    (0..ROUNDS).map(round).fold(f64::INFINITY, f64::min)
}

fn config(kind: &Kind, size: usize) -> Config {
    let mut text = "listeners: { web: \"127.0.0.1:1\" }\nroutes:\n".to_owned();
    for n in 0..size {
        writeln!(text, "  r{n}: {{ match: {{ {} }}, respond: {{ status: 204 }} }}", (kind.matches)(n)).expect("a text");
    }
    Config::parse("bench", &text).unwrap_or_else(|faults| panic!("{faults}"))
}
