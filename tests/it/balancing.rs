//! The balancing policies through the real binary. Load is made by answers that are held back at a gate, never by time:
//! a destination that is busy stays busy for as long as the test wants.

use crate::support::{Answer, Client, DEADLINE, Edge, Gate, Origin, Step, eventually, get};
use std::net::SocketAddr;
use tokio::task::JoinSet;

/// Destinations that answer with their name at once, but `/hold` only when their gate opens.
struct Fleet {
    origins: Vec<(&'static str, Origin, Gate)>,
}

impl Fleet {
    async fn of(names: &[&'static str]) -> Fleet {
        let mut origins = Vec::new();
        for &name in names {
            let gate = Gate::closed();
            let held = gate.clone();
            let origin = Origin::start(move |request| match request.target().as_str() {
                "/hold" => Answer::ok(name).after([Step::Wait(held.clone())]),
                _ => Answer::ok(name),
            });
            origins.push((name, origin.await, gate));
        }
        Fleet { origins }
    }

    fn url(&self, name: &str) -> String {
        self.origins.iter().find(|(known, ..)| *known == name).expect("a name of this fleet").1.url()
    }

    fn held(&self, name: &str) -> usize {
        self.origins.iter().filter(|(known, ..)| *known == name).map(|(_, origin, _)| origin.hits("/hold")).sum()
    }

    fn all_held(&self) -> usize {
        self.origins.iter().map(|(_, origin, _)| origin.hits("/hold")).sum()
    }

    fn open(&self) {
        self.origins.iter().for_each(|(.., gate)| gate.open());
    }

    /// A proxy over all of it; `keys` are those of a destination by its name, `server` the zone's section or nothing.
    async fn behind(&self, policy: &str, keys: &[(&str, &str)], more: &str) -> Edge {
        Edge::start(&self.yaml(policy, keys, more)).await
    }

    fn yaml(&self, policy: &str, keys: &[(&str, &str)], more: &str) -> String {
        let written = |(name, ..): &(&str, Origin, Gate)| {
            let keys = keys.iter().find(|(known, _)| known == name).map_or("", |(_, keys)| keys);
            format!("      {name}: {{ address: \"{}\", {keys} }}\n", self.url(name))
        };
        let destinations: String = self.origins.iter().map(written).collect();
        format!(
            "{more}routes: {{ all: {{ cluster: app }} }}\nclusters:\n  app:\n    load_balancing: {policy}\n    destinations:\n{destinations}"
        )
    }
}

/// The names that answered so many requests, in turn.
async fn turns(edge: &Edge, requests: usize) -> String {
    let mut client = Client::connect(edge.address()).await;
    let mut seen = String::new();
    for _ in 0..requests {
        let response = client.get("/", "").await.expect("an answer");
        assert_eq!(response.status, 200);
        seen += &response.text();
    }
    seen
}

fn count(seen: &str, name: &str) -> usize {
    seen.matches(name).count()
}

/// Requests that wait at a gate.
#[derive(Default)]
struct Held(JoinSet<String>);

impl Held {
    /// One more, arrived.
    async fn add(&mut self, edge: &Edge, fleet: &Fleet) {
        let before = fleet.all_held();
        let address: SocketAddr = edge.address();
        self.0.spawn(async move { get(address, "/hold").await.expect("an answer").text() });
        eventually(DEADLINE, "the request arrives", async || fleet.all_held() > before).await;
    }

    /// As many as it takes until one waits at `name`.
    async fn until_at(&mut self, name: &str, edge: &Edge, fleet: &Fleet) {
        for _ in 0..100 {
            if fleet.held(name) > 0 {
                return;
            }
            self.add(edge, fleet).await;
        }
        panic!("none of 100 requests went to {name}");
    }
}

async fn in_flight(edge: &Edge, name: &str) -> u64 {
    edge.destination("app", name).await["in_flight"].as_u64().expect("a number")
}

async fn all_in_flight(edge: &Edge) -> u64 {
    let clusters = edge.clusters().await;
    let clusters = clusters["clusters"].as_array().expect("a list");
    let destinations = clusters.iter().flat_map(|cluster| cluster["destinations"].as_array().expect("a list"));
    destinations.map(|one| one["in_flight"].as_u64().expect("a number")).sum()
}

async fn settled(edge: &Edge, expected: u64) {
    eventually(DEADLINE, &format!("{expected} in flight"), async || all_in_flight(edge).await == expected).await;
}

/// Five standard deviations of a fair share of `n` requests among `parts`.
fn fair(n: usize, parts: usize) -> std::ops::RangeInclusive<usize> {
    let (n, p) = (n as f64, 1.0 / parts as f64);
    let off = 5.0 * (n * p * (1.0 - p)).sqrt();
    ((n * p - off) as usize)..=((n * p + off) as usize)
}

#[tokio::test(flavor = "multi_thread")]
async fn given_round_robin_when_asked_then_exact_turns_in_the_files_order() {
    let fleet = Fleet::of(&["a", "b", "c"]).await;
    let edge = fleet.behind("RoundRobin", &[], "").await;
    assert_eq!(turns(&edge, 9).await, "abcabcabc");
}

#[tokio::test(flavor = "multi_thread")]
async fn given_weights_when_round_robin_then_smooth_turns_and_none_for_weight_0() {
    let fleet = Fleet::of(&["a", "b", "c", "d"]).await;
    let edge = fleet.behind("RoundRobin", &[("a", "weight: 5"), ("d", "weight: 0")], "").await;
    assert_eq!(turns(&edge, 14).await, "aabacaaaabacaa");
}

#[tokio::test(flavor = "multi_thread")]
async fn given_round_robin_when_asked_by_many_at_once_then_the_shares_are_still_exact() {
    let fleet = Fleet::of(&["a", "b", "c"]).await;
    let edge = fleet.behind("RoundRobin", &[], "").await;
    let (one, two, three) = tokio::join!(turns(&edge, 50), turns(&edge, 50), turns(&edge, 50));
    let seen = one + &two + &three;
    assert_eq!(["a", "b", "c"].map(|name| count(&seen, name)), [50, 50, 50]);
}

#[tokio::test(flavor = "multi_thread")]
async fn given_no_load_when_random_or_two_choices_then_fair_shares_that_follow_weights() {
    let fleet = Fleet::of(&["a", "b", "c"]).await;
    for policy in ["Random", "PowerOfTwoChoices"] {
        let edge = fleet.behind(policy, &[], "").await;
        let seen = turns(&edge, 450).await;
        for name in ["a", "b", "c"] {
            let got = count(&seen, name);
            assert!(fair(450, 3).contains(&got), "{policy}: {got} of 450 to {name}");
        }
        let edge = fleet.behind(policy, &[("a", "weight: 2"), ("b", "weight: 0"), ("c", "weight: 2")], "").await;
        let seen = turns(&edge, 200).await;
        assert_eq!(count(&seen, "b"), 0, "{policy}");
        assert!(fair(200, 2).contains(&count(&seen, "a")), "{policy}: {seen}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn given_one_busy_destination_when_the_policy_looks_at_load_then_it_gets_nothing_more() {
    for policy in ["LeastRequests", "PowerOfTwoChoices"] {
        let fleet = Fleet::of(&["a", "b", "c"]).await;
        let edge = fleet.behind(policy, &[], "").await;
        let mut held = Held::default();
        held.until_at("b", &edge, &fleet).await;
        fleet.origins.iter().filter(|(name, ..)| *name != "b").for_each(|(.., gate)| gate.open());
        // `a` and `c` are idle before each request.
        for _ in 0..40 {
            settled(&edge, 1).await;
            assert_ne!(edge.get("/").await.text(), "b", "{policy}");
        }
        assert_eq!(in_flight(&edge, "b").await, 1);
        fleet.open();
        settled(&edge, 0).await;
        let seen = turns(&edge, 100).await;
        assert!(count(&seen, "b") > 0, "{policy}: b gets none although it is idle");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn given_one_busy_destination_when_round_robin_then_it_gets_its_turn_all_the_same() {
    let fleet = Fleet::of(&["a", "b"]).await;
    let edge = fleet.behind("RoundRobin", &[], "").await;
    let mut held = Held::default();
    held.add(&edge, &fleet).await;
    assert_eq!((fleet.held("a"), turns(&edge, 4).await.as_str()), (1, "baba"));
    fleet.open();
}

#[tokio::test(flavor = "multi_thread")]
async fn given_first_alphabetical_when_asked_then_the_first_name_alone_and_the_next_without_it() {
    let fleet = Fleet::of(&["node10", "node2", "Alpha"]).await;
    let edge = fleet.behind("FirstAlphabetical", &[], "").await;
    assert_eq!(turns(&edge, 5).await, "Alpha".repeat(5));
    let edge = fleet.behind("FirstAlphabetical", &[("Alpha", "enabled: false")], "").await;
    assert_eq!(turns(&edge, 5).await, "node10".repeat(5));
}

const ZONE: &str = "server: { zone: zone-a }\n";
const ZONES: [(&str, &str); 3] =
    [("a", "metadata: { Zone: zone-a }"), ("b", "metadata: { Zone: zone-a }"), ("c", "metadata: { Zone: zone-b }")];

#[tokio::test(flavor = "multi_thread")]
async fn given_a_zone_when_preferred_then_no_request_leaves_it_and_all_do_when_it_has_none() {
    let fleet = Fleet::of(&["a", "b", "c"]).await;
    let edge = fleet.behind("PreferSameZone", &ZONES, ZONE).await;
    let seen = turns(&edge, 200).await;
    assert_eq!(count(&seen, "c"), 0);
    assert!(fair(200, 2).contains(&count(&seen, "a")), "{seen}");
    let edge = fleet.behind("PreferSameZone", &ZONES, "server: { zone: zone-x }\n").await;
    let seen = turns(&edge, 100).await;
    assert!(["a", "b", "c"].iter().all(|name| count(&seen, name) > 0), "{seen}");
    let renamed = ZONES.map(|(name, keys)| (name, keys.replace("Zone:", "Rack:")));
    let renamed = [0, 1, 2].map(|i: usize| (renamed[i].0, renamed[i].1.as_str()));
    let edge = fleet.behind("{ policy: PreferSameZone, zone_key: Rack }", &renamed, ZONE).await;
    assert_eq!(count(&turns(&edge, 50).await, "c"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn given_spill_over_when_the_zone_is_at_its_limit_then_the_others_join_and_leave_again() {
    let fleet = Fleet::of(&["a", "b", "c"]).await;
    let edge = fleet.behind("{ policy: PreferSameZone, spill_over: 2 }", &ZONES, ZONE).await;
    let mut held = Held::default();
    for _ in 0..4 {
        held.add(&edge, &fleet).await;
    }
    assert_eq!(["a", "b", "c"].map(|name| fleet.held(name)), [2, 2, 0]);
    held.until_at("c", &edge, &fleet).await;
    fleet.open();
    settled(&edge, 0).await;
    assert_eq!(count(&turns(&edge, 100).await, "c"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn given_spill_over_off_when_the_zone_is_busy_then_it_is_stayed_in() {
    let fleet = Fleet::of(&["a", "b", "c"]).await;
    let edge = fleet.behind("PreferSameZone", &ZONES, ZONE).await;
    let mut held = Held::default();
    for _ in 0..20 {
        held.add(&edge, &fleet).await;
    }
    assert_eq!(["a", "b", "c"].map(|name| fleet.held(name)), [10, 10, 0]);
    fleet.open();
}

#[tokio::test(flavor = "multi_thread")]
async fn given_least_recently_used_when_one_was_away_then_it_comes_first_and_weights_do_not_count() {
    let mut fleet = Fleet::of(&["a", "b", "c"]).await;
    let yaml = fleet.yaml("LeastRecentlyUsed", &[("a", "weight: 5")], "");
    let edge =
        Edge::start(&(yaml + "    health: { active: { type: tcp, interval: 100ms, unhealthy_after: 1 } }\n")).await;
    assert_eq!(turns(&edge, 6).await, "abcabc");
    let available = async |name: &str, expected: bool| {
        let reached = async || edge.destination("app", name).await["available"] == expected;
        eventually(DEADLINE, &format!("{name} available: {expected}"), reached).await;
    };
    fleet.origins[2].1.stop().await;
    available("c", false).await;
    assert_eq!(turns(&edge, 3).await, "aba");
    fleet.origins[2].1.restart().await;
    available("c", true).await;
    assert_eq!(turns(&edge, 4).await, "cbac");
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_destination_that_refuses_at_once_when_peak_ewma_then_it_does_not_draw_the_requests() {
    let mut fleet = Fleet::of(&["good", "dead"]).await;
    fleet.origins[1].1.stop().await;
    let edge = fleet.behind("{ policy: PeakEwma, decay: 1h }\n    retry: off", &[], "").await;
    let mut failed = 0;
    for _ in 0..100 {
        failed += usize::from(edge.get("/").await.status == 502);
    }
    assert!((1..=5).contains(&failed), "{failed} of 100 failed");
}

#[tokio::test(flavor = "multi_thread")]
async fn given_one_slow_answer_when_peak_ewma_then_the_fast_one_is_preferred_and_a_slow_client_changes_nothing() {
    let fleet = Fleet::of(&["fast", "slow"]).await;
    fleet.origins[0].2.open();
    let edge = fleet.behind("{ policy: PeakEwma, decay: 1h }", &[], "").await;
    let mut held = Held::default();
    held.until_at("slow", &edge, &fleet).await;
    // This is how slow it is; the other one's requests are answered at once.
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    fleet.open();
    settled(&edge, 0).await;
    assert_eq!(turns(&edge, 50).await, "fast".repeat(50));
    let mut client = Client::connect(edge.address()).await;
    client.send("POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 4\r\n\r\nha").await;
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    client.send("lf").await;
    assert_eq!(client.read_response().await.expect("an answer").text(), "fast");
    assert_eq!(turns(&edge, 20).await, "fast".repeat(20));
}

/// Who answers a request with this header, for users 0 to 39.
async fn homes(edge: &Edge, header: impl Fn(usize) -> String) -> Vec<String> {
    let mut client = Client::connect(edge.address()).await;
    let mut homes = Vec::new();
    for user in 0..40 {
        homes.push(client.get("/", &header(user)).await.expect("an answer").text());
    }
    homes
}

#[tokio::test(flavor = "multi_thread")]
async fn given_maglev_when_the_key_is_equal_then_the_destination_is_in_another_process_and_order_too() {
    let fleet = Fleet::of(&["a", "b", "c"]).await;
    let mut turned = Fleet::of(&["c", "b", "a"]).await;
    // Ids decide, so the second proxy's other ports do not matter.
    let (edge, other) = (
        fleet.behind("{ policy: Maglev, key: \"header:X-User\" }", &[], "").await,
        turned.behind("{ policy: Maglev, key: \"cookie:user\", bound: off }", &[], "").await,
    );
    let by_header = homes(&edge, |user| format!("x-user: u{user}\r\n")).await;
    assert!(["a", "b", "c"].iter().all(|name| by_header.iter().any(|home| home == name)), "{by_header:?}");
    assert_eq!(homes(&edge, |user| format!("x-user: u{user}\r\ncookie: user=x\r\n")).await, by_header);
    assert_eq!(homes(&other, |user| format!("cookie: b=c; user=u{user}\r\nx-user: 1\r\n")).await, by_header);
    // Only what was at `c` moves when it is gone.
    turned.origins.remove(0);
    let without = turned.behind("{ policy: Maglev, key: \"cookie:user\" }", &[], "").await;
    let after = homes(&without, |user| format!("cookie: user=u{user}\r\n")).await;
    let moved = by_header.iter().zip(&after).filter(|(before, after)| *before != "c" && before != after).count();
    assert!(moved <= 2 && !after.contains(&"c".to_owned()), "{by_header:?}\n{after:?}");
    let keyless = homes(&edge, |_| "x-user: \r\n".to_owned()).await;
    assert!(["a", "b", "c"].iter().all(|name| keyless.iter().any(|home| home == name)), "{keyless:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn given_maglev_when_the_key_is_the_address_or_the_path_then_that_alone_decides() {
    let fleet = Fleet::of(&["a", "b", "c"]).await;
    // The request before may still be in flight, on a connection of its own.
    let edge = fleet.behind("{ policy: Maglev, bound: off }", &[], "").await;
    let home = turns(&edge, 1).await;
    assert_eq!(homes(&edge, |user| format!("x-user: {user}\r\n")).await.concat(), home.repeat(40));
    let edge = fleet.behind("{ policy: Maglev, key: path, bound: off }", &[], "").await;
    let mut homes = Vec::new();
    for path in 0..40 {
        let home = edge.get(&format!("/{path}")).await.text();
        assert_eq!(edge.get(&format!("/{path}?query={path}")).await.text(), home);
        homes.push(home);
    }
    assert!(["a", "b", "c"].iter().all(|name| homes.iter().any(|home| home == name)), "{homes:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn given_maglev_when_one_key_is_all_that_is_asked_then_the_bound_parts_it_and_off_does_not() {
    for (bound, most) in [("1.25", 2), ("off", 4)] {
        let fleet = Fleet::of(&["a", "b", "c"]).await;
        let edge = fleet.behind(&format!("{{ policy: Maglev, key: path, bound: {bound} }}"), &[], "").await;
        let mut held = Held::default();
        for _ in 0..4 {
            held.add(&edge, &fleet).await;
        }
        let seen = ["a", "b", "c"].map(|name| fleet.held(name));
        assert_eq!(seen.iter().max(), Some(&most), "{seen:?}");
        fleet.open();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn given_max_requests_when_one_is_full_then_the_others_serve_and_when_all_are_then_503() {
    for policy in [
        "RoundRobin",
        "PowerOfTwoChoices",
        "LeastRequests",
        "Random",
        "FirstAlphabetical",
        "LeastRecentlyUsed",
        "PeakEwma",
        "Maglev",
    ] {
        let fleet = Fleet::of(&["a", "b"]).await;
        let edge = fleet.behind(policy, &[("a", "max_requests: 1"), ("b", "max_requests: 2")], "").await;
        let mut held = Held::default();
        held.until_at("a", &edge, &fleet).await;
        while fleet.held("b") < 1 {
            held.add(&edge, &fleet).await;
        }
        if fleet.held("b") < 2 {
            for _ in 0..3 {
                assert_eq!(edge.get("/").await.text(), "b", "{policy}");
                settled(&edge, 2).await;
            }
            held.add(&edge, &fleet).await;
        }
        assert_eq!((fleet.held("a"), fleet.held("b")), (1, 2), "{policy}");
        let refused = edge.get("/").await;
        assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")), "{policy}");
        let rejected = edge.metric("derbent_http_requests_rejected_total{route=\"all\",reason=\"overload\"}").await;
        assert_eq!(rejected, Some(1.0), "{policy}");
        let gauge = edge.metric("derbent_upstream_requests_in_flight{cluster=\"app\",destination=\"b\"}").await;
        assert_eq!(gauge, Some(2.0), "{policy}");
        // A full destination is none that is ill.
        assert_eq!(edge.destination("app", "a").await["available"], true);
        fleet.open();
        settled(&edge, 0).await;
        assert_eq!(held.0.join_all().await.len(), 3, "{policy}");
        assert_eq!(edge.get("/").await.status, 200, "{policy}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn given_every_way_a_request_can_end_when_all_have_ended_then_none_is_in_flight() {
    let origin = Origin::start(|request| match request.target().as_str() {
        "/reset" => Answer::script([Step::Reset]),
        "/cut" => Answer::script([Step::send("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf"), Step::Close]),
        "/nonsense" => Answer::script([Step::send("nonsense\r\n\r\n"), Step::Close]),
        "/hold" => Answer::script([Step::Wait(Gate::closed())]),
        "/half" => Answer::script([
            Step::send("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf"),
            Step::Wait(Gate::closed()),
        ]),
        "/upgrade" => Answer::upgrade("websocket"),
        "/early" => Answer::script([Step::send("HTTP/1.1 413 Early\r\ncontent-length: 0\r\n\r\n")]),
        _ => Answer::ok("fine"),
    })
    .await;
    let refusing = Origin::named("gone").await;
    let (url, gone) = (origin.url(), refusing.url());
    drop(refusing);
    let edge = Edge::start(&format!(
        "routes:
  gone: {{ match: {{ path: /gone }}, cluster: gone }}
  patient: {{ match: {{ path: \"/patient/{{**rest}}\" }}, cluster: patient, transforms: [{{ path_remove_prefix: /patient }}] }}
  all: {{ cluster: app }}
clusters:
  app: {{ destinations: {{ a: \"{url}\" }}, request: {{ activity_timeout: 1s }} }}
  gone: {{ destinations: {{ a: \"{gone}\" }} }}
  patient: {{ destinations: {{ a: \"{url}\" }} }}
"
    ))
    .await;
    for round in 0..3 {
        for path in ["/", "/reset", "/cut", "/nonsense", "/hold", "/half", "/gone"] {
            // How it ends for the client is told elsewhere.
            let _ = get(edge.address(), path).await;
        }
        for path in ["/patient/hold", "/patient/half"] {
            let mut client = Client::connect(edge.address()).await;
            client.send(format!("GET {path} HTTP/1.1\r\nhost: h\r\n\r\n")).await;
            eventually(DEADLINE, "in flight", async || all_in_flight(&edge).await > 0).await;
            client.reset();
            settled(&edge, 0).await;
        }
        let mut client = Client::connect(edge.address()).await;
        client.send("POST /early HTTP/1.1\r\nhost: h\r\ncontent-length: 100000\r\n\r\nsome").await;
        assert_eq!(client.read_response().await.expect("an early answer").status, 413);
        client.reset();
        settled(&edge, 0).await;
        let mut client = Client::connect(edge.address()).await;
        assert_eq!(
            client.get("/patient/upgrade", "connection: upgrade\r\nupgrade: websocket\r\n").await.unwrap().status,
            101
        );
        assert_eq!(all_in_flight(&edge).await, 1, "a tunnel counts as long as it stands, round {round}");
        client.reset();
        settled(&edge, 0).await;
    }
    settled(&edge, 0).await;
    let requests = "derbent_http_requests_in_flight{listener=\"web\"}";
    eventually(DEADLINE, "no request is left", async || edge.metric(requests).await == Some(0.0)).await;
    assert!(!edge.stderr().iter().any(|line| line.contains("panicked")));
}
