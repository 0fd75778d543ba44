//! Who asked, by the word of a proxy in front: believed of those that are trusted, replaced of all others.

use crate::support::{DEADLINE, Edge, Origin, Response, eventually};

async fn edge(origin: &Origin, trusted: &str) -> Edge {
    Edge::start(&format!(
        "trusted_proxies: [{trusted}]\naccess_log: {{ template: \"{{client}}\" }}\nroutes:\n  clients: {{ match: {{ client_ip: \
         198.51.100.0/24 }}, respond: {{ status: 204 }} }}\n  all: {{ cluster: app }}\nclusters: {{ app: {{ destinations: [\"{}\"] }} }}\n",
        origin.url()
    ))
    .await
}

async fn get(edge: &Edge, headers: &str) -> Response {
    edge.connect().await.get("/", headers).await.expect("an answer")
}

const SAID: &str = "x-forwarded-for: 6.6.6.6, 203.0.113.7\r\nx-forwarded-proto: https\r\nx-forwarded-host: shop.example\r\n\
                    x-forwarded-port: 8443\r\nx-forwarded-prefix: /shop\r\nx-real-ip: 6.6.6.6\r\nforwarded: for=6.6.6.6\r\n";

const FIELDS: [&str; 7] = [
    "x-forwarded-for",
    "x-forwarded-proto",
    "x-forwarded-host",
    "x-forwarded-port",
    "x-forwarded-prefix",
    "x-real-ip",
    "forwarded",
];

/// What the destination got of these.
async fn passed(trusted: &str, said: &str) -> Vec<Option<String>> {
    let origin = Origin::named("o").await;
    let edge = edge(&origin, trusted).await;
    assert_eq!(get(&edge, said).await.status, 200);
    FIELDS.iter().map(|field| origin.requests()[0].header(field)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn given_forwarding_headers_when_the_peer_is_trusted_then_they_go_on_from_the_client_and_else_they_are_ours() {
    let some = |text: &str| Some(text.to_owned());
    let believed = passed("127.0.0.1", SAID).await;
    let ours = ["203.0.113.7, 127.0.0.1", "https", "shop.example", "8443", "/shop"].map(some);
    assert_eq!(believed, [&ours[..], &[None, None]].concat());
    let replaced = passed("10.0.0.0/8", SAID).await;
    assert_eq!(replaced[..2], ["127.0.0.1", "http"].map(some));
    assert!(replaced[2].as_ref().is_some_and(|host| host.starts_with("127.0.0.1:")), "{replaced:?}");
    assert_eq!(replaced[3..], [None, None, None, None]);
    let standard =
        passed("127.0.0.1", "forwarded: for=6.6.6.6, for=203.0.113.7;proto=https;host=shop.example\r\n").await;
    assert_eq!(standard[..3], ["203.0.113.7, 127.0.0.1", "https", "shop.example"].map(some));
    assert_eq!(standard[6], some("for=203.0.113.7;proto=https;host=shop.example, for=127.0.0.1"));
    let disguised = passed("127.0.0.1", "forwarded: for=203.0.113.7:99; host=\"a;for=10.0.0.1\"\r\n").await;
    assert_eq!(disguised[0], some("203.0.113.7, 127.0.0.1"));
    assert!(disguised[2].as_ref().is_some_and(|host| host.starts_with("127.0.0.1:")), "{disguised:?}");
    assert_eq!(disguised[6], some("for=\"203.0.113.7:99\", for=127.0.0.1"));
    let twice = passed("127.0.0.1", "forwarded: for=203.0.113.7;for=203.0.113.8;proto=https\r\n").await;
    assert_eq!(twice[..2], ["127.0.0.1", "http"].map(some));
    assert_eq!(twice[6], None);
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_client_behind_a_proxy_when_it_is_trusted_then_routes_and_the_access_line_see_the_client() {
    let origin = Origin::named("o").await;
    let edge = edge(&origin, "127.0.0.0/8").await;
    let said = |chain: &str| format!("x-forwarded-for: {chain}\r\n");
    assert_eq!(get(&edge, &said("198.51.100.7")).await.status, 204);
    // What a client writes itself stands before what the proxy saw.
    assert_eq!(get(&edge, &said("198.51.100.7, 203.0.113.9")).await.status, 200);
    assert_eq!(get(&edge, "").await.status, 200);
    let lines = || std::fs::read_to_string(edge.directory().join("stdout")).unwrap();
    eventually(DEADLINE, "three lines", async || lines().lines().count() == 3).await;
    let lines = lines();
    let mut clients: Vec<&str> = lines.lines().collect();
    clients.sort();
    assert_eq!(clients, ["127.0.0.1", "198.51.100.7", "203.0.113.9"]);
}
