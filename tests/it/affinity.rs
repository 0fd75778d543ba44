//! Sessions and their destinations, seen from both sides: YARP's cases, and what YARP does not.

use crate::support::{
    Answer, Client, DEADLINE, Edge, Gate, H2Client, H2Origin, Origin, Response, Step, eventually, free_port, loopback,
};
use http::Request;
use std::collections::BTreeSet;
use std::path::Path;
use tempfile::TempDir;

/// YARP's own of these ids.
const KEYS: [(&str, &str); 3] = [("d1", "3ca257a575bfff71"), ("d2", "eb4f7569e28edc50"), ("d3", "d0dda09041e8467f")];

/// Cluster `app` of `d1`, `d2` … in their order as long as it may be, with sessions by `Sid`.
fn app(urls: &[String], affinity: &str, more: &str) -> String {
    let destinations: Vec<String> = KEYS.iter().zip(urls).map(|((id, _), url)| format!("{id}: \"{url}\"")).collect();
    let destinations = destinations.join(", ");
    format!(
        "routes: {{ all: {{ cluster: app }} }}\nclusters: {{ app: {{ load_balancing: FirstAlphabetical, destinations: {{ \
         {destinations} }}, session_affinity: {{ key_name: Sid, {affinity} }}, {more} }} }}\n"
    )
}

async fn three() -> [Origin; 3] {
    [Origin::named("d1").await, Origin::named("d2").await, Origin::named("d3").await]
}

fn urls(origins: &[Origin]) -> Vec<String> {
    origins.iter().map(Origin::url).collect()
}

async fn get(edge: &Edge, headers: &str) -> Response {
    edge.connect().await.get("/", headers).await.expect("an answer")
}

async fn with_cookie(edge: &Edge, value: &str) -> Response {
    get(edge, &format!("cookie: a=b; Sid={value}\r\n")).await
}

/// All lines of `Set-Cookie`.
fn set(answer: &Response) -> Vec<&str> {
    let lines = answer.headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case("set-cookie"));
    lines.map(|(_, value)| value.as_str()).collect()
}

fn line(key: usize) -> String {
    format!("Sid={}; path=/; httponly", KEYS[key].1)
}

fn counted(result: &str) -> String {
    format!("derbent_affinity_requests_total{{cluster=\"app\",result=\"{result}\"}}")
}

/// YARP's case 34, and that destinations' own cookies pass.
#[tokio::test(flavor = "multi_thread")]
async fn given_a_session_when_it_begins_then_its_key_is_set_once_and_leads_to_its_destination() {
    let origins = three().await;
    origins[0].answer_by(|_| Answer::new(404, "set-cookie: own=1\r\n", "d1"));
    let log = "access_log: {}\n";
    let edge = Edge::start(&format!("{log}{}", app(&urls(&origins), "", ""))).await;
    let new = get(&edge, "cookie: Some=value; another=one\r\n").await;
    // Whatever the status.
    assert_eq!((new.status, new.text(), set(&new)), (404, "d1".into(), vec!["own=1", &line(0)]));
    for (key, (id, value)) in KEYS.iter().enumerate().skip(1) {
        let kept = with_cookie(&edge, value).await;
        assert_eq!((kept.text().as_str(), set(&kept)), (*id, vec![]), "{key}");
    }
    // The key is the destination's to see.
    assert_eq!(origins[1].requests()[0].header("cookie").unwrap(), format!("a=b; Sid={}", KEYS[1].1));
    // An empty one is none; the last of several counts, names in any letters.
    let empty = with_cookie(&edge, "").await;
    assert_eq!(set(&empty), ["own=1", &line(0)]);
    let twice = get(&edge, &format!("cookie: Sid={}; sid={}\r\n", KEYS[2].1, KEYS[1].1)).await;
    assert_eq!((twice.text().as_str(), set(&twice)), ("d2", vec![]));
    edge.counts(&counted("new"), 2.0).await;
    edge.counts(&counted("hit"), 3.0).await;
    edge.counts(&counted("rebound"), 0.0).await;
    let lines = async || std::fs::read_to_string(edge.directory().join("stdout")).unwrap();
    eventually(DEADLINE, "five lines", async || lines().await.lines().count() == 5).await;
    // Those of two connections may come in either order.
    let mut told: Vec<String> = lines().await.lines().map(affinity).collect();
    told.sort();
    assert_eq!(told, ["hit", "hit", "hit", "new", "new"]);
}

fn affinity(line: &str) -> String {
    let line: serde_json::Value = serde_json::from_str(line).expect("JSON");
    line["affinity"].as_str().unwrap_or("none").to_owned()
}

/// YARP's cases 36 and 37.
#[tokio::test(flavor = "multi_thread")]
async fn given_a_key_that_leads_nowhere_when_asked_then_the_failure_policy_applies_and_the_log_warns() {
    let origins = three().await;
    let edge = Edge::start(&app(&urls(&origins), "", "")).await;
    for value in ["nonsense", "3CA257A575BFFF71", "\"3ca257a575bfff71\"", "/////"] {
        let rebound = with_cookie(&edge, value).await;
        assert_eq!((rebound.status, set(&rebound)), (200, vec![line(0).as_str()]), "{value}");
    }
    edge.counts(&counted("rebound"), 4.0).await;
    edge.logged(&[
        "WARN",
        "no destination for the key of a session in cluster app (it is none's): Redistribute applies",
    ])
    .await;
    let lines = edge.stderr().iter().filter(|line| line.contains("Redistribute applies")).count();
    assert!(lines < 4, "one a second, not one a request");

    let edge = Edge::start(&app(&urls(&origins), "failure: Return503Error", "")).await;
    let before = origins[0].hits("/");
    let refused = with_cookie(&edge, "nonsense").await;
    assert_eq!((refused.status, refused.header("retry-after"), set(&refused)), (503, Some("1"), vec![]));
    assert_eq!((with_cookie(&edge, KEYS[0].1).await.status, origins[0].hits("/") - before), (200, 1));
    edge.counts(&counted("refused"), 1.0).await;
    edge.logged(&["WARN", "(it is none's): Return503Error applies"]).await;
}

/// Better than YARP, 1, 2 and 5: §11 row 12.
#[tokio::test(flavor = "multi_thread")]
async fn row_12_given_a_destination_that_fails_when_a_request_may_be_tried_again_then_who_answers_gets_the_session() {
    let mut origins = three().await;
    let edge = Edge::start(&app(&urls(&origins), "", "health: { passive: off }")).await;
    origins[0].stop().await;
    let new = get(&edge, "").await;
    assert_eq!((new.text().as_str(), set(&new)), ("d2", vec![line(1).as_str()]));
    let moved = with_cookie(&edge, KEYS[0].1).await;
    assert_eq!((moved.text().as_str(), set(&moved)), ("d2", vec![line(1).as_str()]));
    // Back, and the client stays where it is.
    origins[0].restart().await;
    let stays = with_cookie(&edge, KEYS[1].1).await;
    assert_eq!((stays.text().as_str(), set(&stays)), ("d2", vec![]));
    for origin in &mut origins {
        origin.stop().await;
    }
    for cookie in [String::new(), format!("cookie: Sid={}\r\n", KEYS[2].1)] {
        let failed = get(&edge, &cookie).await;
        assert_eq!((failed.status, set(&failed)), (502, vec![]), "nobody is bound by our own answer");
    }
    edge.counts(&counted("rebound"), 1.0).await;
    edge.counts(&counted("hit"), 2.0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn given_strict_when_the_destination_fails_then_the_request_stays_until_it_is_marked() {
    let mut origins = three().await;
    let passive = "health: { passive: { detectors: [{ policy: ConsecutiveFailures, failures: 3 }], reactivation: { period: 1h } } }";
    let edge = Edge::start(&app(&urls(&origins), "strict: true", passive)).await;
    origins[1].stop().await;
    for _ in 0..3 {
        let failed = with_cookie(&edge, KEYS[1].1).await;
        assert_eq!((failed.status, set(&failed)), (502, vec![]));
    }
    let rebound = with_cookie(&edge, KEYS[1].1).await;
    assert_eq!((rebound.text().as_str(), set(&rebound)), ("d1", vec![line(0).as_str()]));
    edge.logged(&["WARN", "in cluster app (d2 is not available): Redistribute applies"]).await;
    // Who is not bound yet is tried elsewhere all the same.
    origins[0].stop().await;
    let new = get(&edge, "").await;
    assert_eq!((new.text().as_str(), set(&new)), ("d3", vec![line(2).as_str()]));
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_status_that_is_tried_again_when_answered_then_the_key_is_of_who_answered() {
    let origins = three().await;
    origins[0].answer_by(|_| Answer::new(503, "", "busy"));
    let edge = Edge::start(&app(&urls(&origins), "", "retry: { on: [\"503\"] }")).await;
    for cookie in [String::new(), format!("cookie: Sid={}\r\n", KEYS[0].1)] {
        let answer = get(&edge, &cookie).await;
        assert_eq!((answer.text().as_str(), set(&answer)), ("d2", vec![line(1).as_str()]));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_full_destination_when_there_is_a_queue_then_a_strict_session_waits_for_its_own() {
    let origins = three().await;
    let gate = Gate::closed();
    let held = gate.clone();
    origins[0].answer_by(move |_| Answer::ok("d1").after([Step::Wait(held.clone())]));
    let yaml = app(&urls(&origins), "strict: true", "queue: { max: 10, deadline: 60s }");
    let url = format!("\"{}\"", origins[0].url());
    let edge = Edge::start(&yaml.replacen(&url, &format!("{{ address: {url}, max_requests: 1 }}"), 1)).await;
    let ask = format!("GET / HTTP/1.1\r\nhost: h\r\ncookie: Sid={}\r\n\r\n", KEYS[0].1);
    let (mut first, mut second) = (edge.connect().await, edge.connect().await);
    first.send(&ask).await;
    eventually(DEADLINE, "the first has the place", async || origins[0].hits("/") == 1).await;
    second.send(&ask).await;
    edge.counts("derbent_cluster_queue_length{cluster=\"app\"}", 1.0).await;
    // It keeps nobody back whom another destination will do for.
    assert_eq!(get(&edge, "").await.text(), "d2");
    assert_eq!(with_cookie(&edge, KEYS[1].1).await.text(), "d2");
    gate.open();
    for client in [&mut first, &mut second] {
        let answer = client.read_response().await.expect("an answer");
        assert_eq!((answer.text().as_str(), set(&answer)), ("d1", vec![]));
    }
    edge.counts(&counted("hit"), 3.0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_full_destination_when_its_session_goes_nowhere_else_then_503_and_the_log_names_what_says_so() {
    for (settings, says) in [("strict: true", "strict"), ("strict: true, failure: Return503Error", "Return503Error")] {
        let origins = three().await;
        let gate = Gate::closed();
        let held = gate.clone();
        origins[0].answer_by(move |_| Answer::ok("d1").after([Step::Wait(held.clone())]));
        let url = format!("\"{}\"", origins[0].url());
        let yaml = app(&urls(&origins), settings, "");
        let edge = Edge::start(&yaml.replacen(&url, &format!("{{ address: {url}, max_requests: 1 }}"), 1)).await;
        let mut first = edge.connect().await;
        first.send(format!("GET / HTTP/1.1\r\nhost: h\r\ncookie: Sid={}\r\n\r\n", KEYS[0].1)).await;
        eventually(DEADLINE, "the first has the place", async || origins[0].hits("/") == 1).await;
        let second = with_cookie(&edge, KEYS[0].1).await;
        assert_eq!(second.status, 503);
        assert!(second.text().contains("every destination that may take it is at its limit"), "{}", second.text());
        edge.logged(&["WARN", &format!("in cluster app (d1 is full): {says} applies")]).await;
        gate.open();
        assert_eq!(first.read_response().await.expect("an answer").text(), "d1");
    }
}

/// Better than YARP, 3: §11 row 13.
#[tokio::test(flavor = "multi_thread")]
async fn row_13_given_another_port_or_a_logical_name_when_reloaded_then_the_keys_stay() {
    let origins = three().await;
    let edge = Edge::start(&app(&urls(&origins[..2]), "", "")).await;
    let other = &origins[2];
    let key = set(&get(&edge, "").await)[0].to_owned();
    assert_eq!(key, line(0));
    let url = other.url();
    let services = format!("services: {{ books: {{ http: [\"{}\"] }} }}\n", other.address());
    for (destination, services, more) in
        [(url.clone(), "", ""), ("http://books".into(), services.as_str(), "discovery: { type: services }")]
    {
        edge.reload(&format!("{services}{}", app(&[destination, url.clone()], "", more))).await;
        let kept = with_cookie(&edge, KEYS[0].1).await;
        assert_eq!((kept.text().as_str(), set(&kept)), ("d3", vec![]), "{more}");
    }
}

/// Better than YARP, 4.
#[tokio::test(flavor = "multi_thread")]
async fn given_a_drained_destination_when_asked_then_its_sessions_stay_and_new_ones_go_elsewhere() {
    let origins = three().await;
    let edge = Edge::start(&app(&urls(&origins), "", "")).await;
    let order = async |state: &str| {
        let body = format!("{{\"state\": \"{state}\"}}");
        let head = "POST /api/v1/clusters/app/destinations/d1/state HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json";
        let mut client = Client::connect(edge.admin()).await;
        client.send(format!("{head}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len())).await;
        assert_eq!(client.read_response().await.expect("an answer").status, 200);
    };
    order("drain").await;
    let bound = with_cookie(&edge, KEYS[0].1).await;
    assert_eq!((bound.text().as_str(), set(&bound)), ("d1", vec![]));
    let new = get(&edge, "").await;
    assert_eq!((new.text().as_str(), set(&new)), ("d2", vec![line(1).as_str()]));
    order("maint").await;
    let moved = with_cookie(&edge, KEYS[0].1).await;
    assert_eq!((moved.text().as_str(), set(&moved)), ("d2", vec![line(1).as_str()]));
    order("ready").await;
    assert_eq!(with_cookie(&edge, KEYS[0].1).await.text(), "d1");
}

/// Better than YARP, 6 and 7.
#[tokio::test(flavor = "multi_thread")]
async fn given_sliding_and_no_forwarding_when_asked_then_each_answer_renews_and_no_destination_sees_the_key() {
    let origins = three().await;
    let affinity = "sliding: true, forward: false, cookie: { max_age: 60s }";
    let edge = Edge::start(&app(&urls(&origins), affinity, "")).await;
    for _ in 0..2 {
        let renewed = get(&edge, &format!("cookie: a=b; Sid={}; c=d\r\n", KEYS[1].1)).await;
        let line = format!("Sid={}; max-age=60; path=/; httponly", KEYS[1].1);
        assert_eq!((renewed.text().as_str(), set(&renewed)), ("d2", vec![line.as_str()]));
    }
    get(&edge, &format!("cookie: Sid={}\r\n", KEYS[1].1)).await;
    let seen: Vec<Option<String>> = origins[1].requests().iter().map(|request| request.header("cookie")).collect();
    assert_eq!(seen, [Some("a=b; c=d".to_owned()), Some("a=b; c=d".to_owned()), None]);
    edge.counts(&counted("hit"), 3.0).await;
}

/// YARP's case 35, over instances that share nothing but a file, while its keys change.
#[tokio::test(flavor = "multi_thread")]
async fn given_encrypted_keys_when_two_instances_share_the_file_then_they_agree_and_keys_are_changed_under_way() {
    const OLD: &str = "0000000000000000000000000000000000000000000000000000000000000001";
    const NEW: &str = "0000000000000000000000000000000000000000000000000000000000000002";
    let origins = three().await;
    for (policy, cookie) in [("Cookie", true), ("CustomHeader", false)] {
        let yaml = app(&urls(&origins), &format!("policy: {policy}, key_file: affinity.key"), "");
        let write = |directory: &Path, keys: &str| std::fs::write(directory.join("affinity.key"), keys).unwrap();
        let start = async || {
            let directory = TempDir::new().unwrap();
            write(directory.path(), OLD);
            Edge::start_in(directory, &yaml, &[]).await
        };
        let (one, other) = (start().await, start().await);
        let key = async |edge: &Edge| {
            let answer = get(edge, "").await;
            assert_eq!(answer.text(), "d1");
            match cookie {
                true => format!("cookie: {}\r\n", set(&answer)[0].split(';').next().unwrap()),
                false => format!("Sid: {}\r\n", answer.header("sid").expect("a key")),
            }
        };
        let old = key(&one).await;
        assert_ne!(old, key(&one).await);
        let hits = async |edge: &Edge, key: &str| {
            let answer = get(edge, key).await;
            answer.text() == "d1" && set(&answer).is_empty() && answer.header("sid").is_none()
        };
        assert!(hits(&other, &old).await);
        for keys in [format!("{OLD}\n{NEW}"), format!("{NEW}\n{OLD}")] {
            for edge in [&one, &other] {
                write(edge.directory(), &keys);
                edge.reload(&yaml).await;
                assert!(
                    hits(edge, &old).await
                        && hits(&one, &key(&other).await).await
                        && hits(&other, &key(&one).await).await
                );
            }
        }
        write(one.directory(), NEW);
        one.reload(&yaml).await;
        let rebound = get(&one, &old).await;
        assert!(rebound.status == 200 && (!set(&rebound).is_empty() || rebound.header("sid").is_some()));
        one.logged(&["WARN", "(it cannot be read): Redistribute applies"]).await;
        write(one.directory(), "nonsense");
        one.reload_rejected(&yaml).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn given_any_balancing_policy_when_two_instances_get_each_others_sessions_then_they_agree() {
    let origins = three().await;
    for policy in ["PowerOfTwoChoices", "LeastRequests", "RoundRobin", "Random", "PeakEwma", "Maglev"] {
        let yaml = app(&urls(&origins), "", "").replace("FirstAlphabetical", policy);
        let (one, other) = (Edge::start(&yaml).await, Edge::start(&yaml).await);
        let mut homes = BTreeSet::new();
        for _ in 0..20 {
            let new = get(&one, "").await;
            let (home, pair) = (new.text(), set(&new)[0].split(';').next().unwrap().to_owned());
            for edge in [&one, &other] {
                let kept = get(edge, &format!("cookie: {pair}\r\n")).await;
                assert_eq!((kept.text(), set(&kept)), (home.clone(), vec![]), "{policy}");
            }
            homes.insert(home);
        }
        assert!(homes.len() > 1 || policy == "Maglev", "{policy}: {homes:?}");
    }
}

const SWITCH: &str = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";

#[tokio::test(flavor = "multi_thread")]
async fn given_a_websocket_when_it_opens_then_its_answer_binds_and_the_key_leads_there() {
    let tunnel =
        |name: &'static str| Origin::start(move |_| Answer::script([Step::send(SWITCH), Step::send(name), Step::Echo]));
    let origins = [tunnel("d1").await, tunnel("d2").await];
    let edge = Edge::start(&app(&urls(&origins), "", "")).await;
    for (cookie, home, set_cookie) in
        [(String::new(), b"d1", Some(line(0))), (format!("cookie: Sid={}\r\n", KEYS[1].1), b"d2", None)]
    {
        let mut client = edge.connect().await;
        let head = "GET /chat HTTP/1.1\r\nhost: h\r\nconnection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
                    sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
        client.send(format!("{head}{cookie}\r\n")).await;
        let answer = client.read_head().await.unwrap();
        assert_eq!((answer.status, set(&answer)), (101, set_cookie.iter().map(String::as_str).collect()));
        assert_eq!(client.read_exact(2).await.unwrap(), home);
        client.send("hello").await;
        assert_eq!(client.read_exact(5).await.unwrap(), b"hello");
    }
}

/// gRPC, as far as a proxy sees it.
#[tokio::test(flavor = "multi_thread")]
async fn given_calls_over_http2_when_they_carry_a_key_then_they_go_where_it_leads() {
    let origins = [H2Origin::start().await, H2Origin::start().await];
    let urls: Vec<String> = origins.iter().map(|origin| format!("http://{}", origin.address())).collect();
    let web = loopback(free_port());
    let h2 = "request: { version: 2, version_policy: Exact }";
    let listener = format!("listeners: {{ web: {{ address: \"{web}\", protocols: [http1, h2c] }} }}\n");
    let _edge = Edge::start(&format!("{listener}{}", app(&urls, "forward: false", h2))).await;
    let client = H2Client::connect(web).await;
    let call = async |cookies: &[String]| {
        let url = format!("http://{web}/catalog.Books/Get");
        let mut request = Request::post(url).header("content-type", "application/grpc").header("te", "trailers");
        for cookie in cookies {
            request = request.header("cookie", cookie);
        }
        client.send(request.body(()).unwrap(), b"\0\0\0\0\0").await.expect("an answer")
    };
    let new = call(&[]).await;
    assert_eq!((new.status, new.header("set-cookie")), (200, Some(line(0).as_str())));
    // HTTP/2 may send a field a cookie.
    let kept = call(&["a=b".into(), format!("Sid={}", KEYS[1].1), "c=d".into()]).await;
    assert_eq!((kept.status, kept.header("set-cookie")), (200, None));
    let seen = origins.each_ref().map(H2Origin::seen);
    assert_eq!((seen[0].len(), seen[1].len()), (1, 1));
    assert_eq!(seen[1][0].headers.get("cookie").unwrap(), "a=b; c=d");
}

/// The case that YARP's users switch over with.
#[tokio::test(flavor = "multi_thread")]
async fn given_a_cookie_that_yarp_made_behind_a_resolver_when_it_comes_then_it_is_honoured() {
    let origin = Origin::named("catalog").await;
    let port = origin.address().port();
    let yaml = |form: &str| {
        format!(
            "routes: {{ all: {{ cluster: app }} }}\nclusters: {{ app: {{ destinations: {{ catalog-1: \"http://localhost:{port}\" }}, \
             session_affinity: {{ key_name: Sid, id_form: {form}, cookie: {{ same_site: Lax }} }} }} }}\n"
        )
    };
    let edge = Edge::start(&yaml("name")).await;
    assert_eq!(set(&get(&edge, "").await), ["Sid=97f64c126aa7b24d; path=/; samesite=lax; httponly"]);
    edge.reload(&yaml("resolved")).await;
    let resolved = set(&get(&edge, "").await)[0].to_owned();
    assert_ne!(resolved, "Sid=97f64c126aa7b24d; path=/; samesite=lax; httponly");
    let value = resolved.split([';', '=']).nth(1).unwrap();
    assert!(set(&with_cookie(&edge, value).await).is_empty());
}

/// Better than YARP, 8, with the real binary; the share's exactness among thousands is the draw's own test.
#[tokio::test(flavor = "multi_thread")]
async fn given_a_canary_when_sessions_come_then_each_arm_keeps_its_own_and_new_ones_are_shared_exactly() {
    let [primary, canary, _] = three().await;
    let yaml = format!(
        "routes: {{ all: {{ cluster: app }} }}\nclusters: {{ app: {{ destinations: {{ d1: \"{}\", d2: {{ address: \"{}\", role: canary }} }}, \
         canary: {{ percent: 10% }}, session_affinity: {{ key_name: Sid }} }} }}\n",
        primary.url(),
        canary.url()
    );
    let edge = Edge::start(&yaml).await;
    let mut canaries = 0;
    for _ in 0..50 {
        canaries += usize::from(get(&edge, "").await.text() == "d2");
        for (id, key) in &KEYS[..2] {
            assert_eq!(with_cookie(&edge, key).await.text(), *id);
        }
    }
    assert_eq!(canaries, 5);
}

/// Better than YARP, 10.
#[tokio::test(flavor = "multi_thread")]
async fn given_a_proxy_in_front_when_it_is_trusted_then_its_word_makes_the_cookie_secure_and_anothers_does_not() {
    let origins = three().await;
    for (trusted, secure) in [("127.0.0.0/8", "; secure"), ("10.0.0.0/8", "")] {
        let yaml = app(&urls(&origins), "cookie: { secure: SameAsRequest }", "");
        let edge = Edge::start(&format!("trusted_proxies: [{trusted}]\n{yaml}")).await;
        let answer = get(&edge, "x-forwarded-for: 198.51.100.1\r\nx-forwarded-proto: https\r\n").await;
        assert_eq!(set(&answer), [format!("Sid={}; path=/{secure}; httponly", KEYS[0].1)], "{trusted}");
        let plain = get(&edge, "").await;
        assert_eq!(set(&plain), [line(0)], "{trusted}");
    }
}
