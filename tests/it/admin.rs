//! The admin listener: what it shows, to whom, and what it does with what is no request.

use crate::support::{Client, DEADLINE, Edge, Origin, Response, eventually, free_port, get, loopback};
use derbent::observe::metrics::{Kind, TABLE};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use tempfile::TempDir;

const YAML: &str = "routes: { all: { match: { methods: [GET] }, cluster: app } }
clusters: { app: { destinations: { a: \"URL\", b: \"URL/base\" } }, \"odd name\": { destinations: [\"URL\"] } }
";

async fn edge(origin: &Origin) -> Edge {
    Edge::start(&YAML.replace("URL", &origin.url())).await
}

/// One request on a connection of its own, `head` without its end.
async fn ask(address: SocketAddr, head: &str) -> Response {
    let mut client = Client::connect(address).await;
    client.send(format!("{head}\r\nconnection: close\r\n\r\n")).await;
    client.read_response().await.expect("an answer")
}

/// Ports of 127.0.0.1 and 0.0.0.0 that a process listens on, from the kernel's own tables.
fn listening(pid: u32) -> BTreeSet<u16> {
    let links = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("a running process");
    let sockets: BTreeSet<String> = links
        .filter_map(|link| std::fs::read_link(link.ok()?.path()).ok()?.to_str().map(str::to_owned))
        .filter_map(|link| Some(link.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned()))
        .collect();
    let mut ports = BTreeSet::new();
    for table in ["tcp", "tcp6"] {
        let table = std::fs::read_to_string(format!("/proc/{pid}/net/{table}")).unwrap_or_default();
        for line in table.lines().skip(1) {
            let words: Vec<&str> = line.split_whitespace().collect();
            const LISTEN: &str = "0A";
            if words[3] == LISTEN && sockets.contains(words[9]) {
                let port = words[1].rsplit(':').next().expect("address:port");
                ports.insert(u16::from_str_radix(port, 16).expect("a port in hex"));
            }
        }
    }
    ports
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_scrape_when_traffic_went_through_then_every_line_parses_and_every_metric_has_its_row() {
    let origin = Origin::named("a").await;
    let edge = edge(&origin).await;
    for path in ["/", "/evil\"}\\path", "/%0A"] {
        edge.get(path).await;
    }
    assert_eq!(ask(edge.address(), "POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 0").await.status, 404);
    let page = edge.admin_get("/metrics").await;
    assert_eq!((page.status, page.header("content-type")), (200, Some("text/plain; version=0.0.4")));
    assert_eq!(page.header("cache-control"), Some("no-store"));
    let known: BTreeSet<String> = TABLE.iter().map(|metric| metric.full_name()).collect();
    let text = page.text();
    let mut told = BTreeSet::new();
    for line in text.lines() {
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["#", "TYPE", name, kind] => {
                let row = TABLE.iter().find(|metric| metric.full_name() == name);
                let expected = row.map(|row| format!("{:?}", row.kind).to_lowercase());
                assert!(expected.is_none_or(|expected| expected == kind), "{line}");
                told.insert(name.to_owned());
            }
            ["#", "HELP", ..] => {}
            _ => {
                let (series, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("no value: {line}"));
                value.parse::<f64>().unwrap_or_else(|_| panic!("no number: {line}"));
                let name = series.split('{').next().unwrap_or_default();
                assert!(name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_'), "{line}");
                assert!(!line.contains("evil"), "a peer's text became a label: {line}");
            }
        }
    }
    let strange = told.iter().find(|name| !known.contains(*name) && !name.starts_with("process_"));
    assert_eq!(strange, None, "in no table");
    // Only what has no event yet may be missing, and what a cluster has not: circuits, canaries, mirrors, sessions, someone on its leave.
    let absent = ["circuit_breaker", "canary", "mirror", "affinity", "leaving"];
    let missing: Vec<&String> =
        known.iter().filter(|name| !told.contains(*name) && !absent.iter().any(|what| name.contains(what))).collect();
    assert_eq!(missing, ["derbent_destination_last_transition_timestamp_seconds"]);
    assert!(TABLE.iter().any(|metric| metric.kind == Kind::Histogram && told.contains(&metric.full_name())));
    let requests = "derbent_http_requests_total{listener=\"web\",route=\"all\",method=\"GET\",code=\"200\"}";
    assert!(edge.metric(requests).await.is_some_and(|n| n >= 1.0), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn given_the_views_when_asked_then_clusters_whole_or_by_name_and_404_names_what_there_is() {
    let origin = Origin::named("a").await;
    let edge = edge(&origin).await;
    let all = edge.admin_get("/api/v1/clusters").await;
    assert_eq!((all.status, all.header("content-type")), (200, Some("application/json")));
    let clusters = all.json();
    let names: Vec<&str> =
        clusters["clusters"].as_array().unwrap().iter().map(|c| c["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["app", "odd name"]);
    let app = edge.admin_get("/api/v1/clusters/app").await.json();
    assert_eq!(app, clusters["clusters"][0]);
    assert_eq!((&app["available"], &app["panic"]), (&2.into(), &false.into()));
    let b = &app["destinations"][1];
    assert_eq!((&b["id"], &b["address"]), (&"b".into(), &format!("{}/base", origin.url()).into()));
    assert_eq!((&b["state"], &b["weight"], &b["in_flight"]), (&"unknown".into(), &1.into(), &0.into()));
    assert_eq!(edge.admin_get("/api/v1/clusters/odd%20name").await.json()["name"], "odd name");
    for path in ["/", "/api/v1/clusters/nobody", "/api/v1/clusters/", "/metrics/", "/api/v1", "/%2e%2e/etc/passwd"] {
        let answer = edge.admin_get(path).await;
        assert_eq!((answer.status, answer.text().contains("/api/v1/clusters")), (404, true), "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn given_another_method_than_get_when_asked_then_405_and_head_has_no_body() {
    let origin = Origin::named("a").await;
    let edge = edge(&origin).await;
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "PATCH"] {
        for path in ["/metrics", "/health", "/ready", "/api/v1/clusters"] {
            let head = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0");
            let answer = ask(edge.admin(), &head).await;
            assert_eq!((answer.status, answer.header("allow")), (405, Some("GET, HEAD")), "{method} {path}");
        }
    }
    let mut client = Client::connect(edge.admin()).await;
    client.send("HEAD /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await;
    assert_eq!(client.read_head().await.expect("a head").status, 200);
    assert_eq!(client.read_to_end().await.expect("an end"), b"");
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_host_that_is_no_loopback_name_when_asked_then_403_but_for_health_and_ready() {
    let origin = Origin::named("a").await;
    let edge = edge(&origin).await;
    let status =
        async |path: &str, host: &str| ask(edge.admin(), &format!("GET {path} HTTP/1.1\r\nhost: {host}")).await.status;
    for host in ["evil.example", "evil.example:5390", "127.0.0.1.evil.example", "10.0.0.1", "localhost.evil"] {
        for path in ["/metrics", "/api/v1/clusters", "/api/v1/clusters/app"] {
            assert_eq!(status(path, host).await, 403, "{host} {path}");
        }
        assert_eq!((status("/health", host).await, status("/ready", host).await), (200, 200), "{host}");
    }
    for host in ["localhost", "LOCALHOST:1", "127.0.0.1", "[::1]:9"] {
        assert_eq!(status("/metrics", host).await, 200, "{host}");
    }
    // The request target may name a host as well, and wins over the header.
    let absolute = ask(edge.admin(), "GET http://evil.example/metrics HTTP/1.1\r\nhost: localhost").await;
    assert_eq!(absolute.status, 403);
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_token_when_another_address_is_listened_on_then_it_is_wanted_but_for_health_and_ready() {
    let origin = Origin::named("a").await;
    let (directory, port) = (TempDir::new().unwrap(), free_port());
    std::fs::write(directory.path().join("token"), "s3cret\n").unwrap();
    let admin = format!("admin: {{ address: \"0.0.0.0:{port}\", token_file: token }}\n");
    let edge = Edge::launch(directory, &(admin + &YAML.replace("URL", &origin.url())), &[]);
    let address = loopback(port);
    eventually(DEADLINE, "ready without a token", async || get(address, "/ready").await.is_ok_and(|r| r.status == 200))
        .await;
    assert_eq!(get(address, "/health").await.unwrap().status, 200);
    for path in ["/metrics", "/api/v1/clusters", "/api/v1/clusters/app", "/anything"] {
        for header in [
            "x: y",
            "authorization: Bearer wrong",
            "authorization: Bearer ",
            "authorization: s3cret",
            "authorization: Bearer s3cre",
        ] {
            let refused = ask(address, &format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n{header}")).await;
            assert_eq!((refused.status, refused.header("www-authenticate")), (401, Some("Bearer")), "{path} {header}");
            assert!(!refused.text().contains("s3cret"));
        }
    }
    let with = |path: &str| format!("GET {path} HTTP/1.1\r\nhost: gateway.internal\r\nauthorization: Bearer s3cret");
    assert_eq!(ask(address, &with("/metrics")).await.status, 200);
    assert_eq!(ask(address, &with("/api/v1/clusters/app")).await.json()["name"], "app");
    assert!(!edge.stderr().iter().any(|line| line.contains("s3cret")), "the token stands in the log");
}

#[tokio::test(flavor = "multi_thread")]
async fn given_admin_off_when_it_runs_then_only_the_listener_is_open() {
    let origin = Origin::named("a").await;
    let yaml = YAML.replace("URL", &origin.url());
    let edge = Edge::launch(TempDir::new().unwrap(), &format!("admin: off\n{yaml}"), &[]);
    eventually(DEADLINE, "it serves", async || get(edge.address(), "/").await.is_ok_and(|r| r.status == 200)).await;
    assert_eq!(listening(edge.pid()), BTreeSet::from([edge.address().port()]));
    let open = self::edge(&origin).await;
    assert_eq!(listening(open.pid()), BTreeSet::from([open.address().port(), open.admin().port()]));
}

#[tokio::test(flavor = "multi_thread")]
async fn given_bytes_that_are_no_request_when_sent_then_the_connection_ends_and_nothing_else() {
    let origin = Origin::named("a").await;
    let edge = edge(&origin).await;
    let mut random = fastrand::Rng::with_seed(11);
    let noise: Vec<u8> = (0..20_000).map(|_| random.u8(..)).collect();
    let long = format!("GET /{} HTTP/1.1\r\nhost: localhost\r\n\r\n", "a".repeat(1 << 20));
    let headers = format!("GET / HTTP/1.1\r\n{}\r\n", "x: y\r\n".repeat(50_000));
    let inputs: [&[u8]; 8] = [
        &noise,
        b"\0\0\0\0\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET \xff\xfe HTTP/1.1\r\nhost: \xff\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        long.as_bytes(),
        headers.as_bytes(),
    ];
    for (number, input) in inputs.into_iter().enumerate() {
        let mut client = Client::connect(edge.admin()).await;
        // It may be cut off in the middle.
        let _ = client.try_send(input).await;
        let answer = client.read_response().await;
        assert!(answer.as_ref().map_or(true, |answer| answer.status >= 400), "input {number}: {answer:?}");
        Client::connect(edge.admin()).await.reset();
    }
    assert_eq!(edge.admin_get("/ready").await.status, 200);
    assert_eq!(edge.get("/").await.text(), "a");
    assert!(!edge.stderr().iter().any(|line| line.contains("panicked")), "{:?}", edge.stderr());
}
