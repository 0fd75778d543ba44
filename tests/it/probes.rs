//! What probes send and what they make of the answers, and who shares them. Counts are held against counts of the same run,
//! never against a clock; times only from below.

use crate::support::{
    Answer, Call, Client, DEADLINE, Edge, GrpcHealth, Origin, Step, derbent, eventually, free_port, loopback,
};
use std::fmt::Write;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Clusters by name: their destinations as one flow map, and the keys of their active check.
fn clusters(clusters: &[(&str, &str, &str)]) -> String {
    let mut yaml = "routes:\n".to_owned();
    for (name, ..) in clusters {
        writeln!(yaml, "  {name}: {{ match: {{ path: /{name} }}, cluster: {name} }}").unwrap();
    }
    yaml += "clusters:\n";
    for (name, destinations, check) in clusters {
        writeln!(yaml, "  {name}: {{ destinations: {{ {destinations} }}, health: {{ active: {check} }} }}").unwrap();
    }
    yaml
}

/// Cluster `app` with the one destination `one`.
fn app(address: &str, check: &str) -> String {
    clusters(&[("app", &format!("one: {{ address: \"{address}\" }}"), &format!("{{ {check} }}"))])
}

async fn in_state(edge: &Edge, cluster: &str, id: &str, state: &str) {
    eventually(DEADLINE, &format!("{cluster}/{id} is {state}"), async || {
        edge.destination(cluster, id).await["state"] == state
    })
    .await;
}

/// Waits until the last probe's cause is `cause`.
async fn told(edge: &Edge, cluster: &str, cause: &str) {
    let mut last = serde_json::Value::Null;
    let began = Instant::now();
    while last != cause && began.elapsed() < DEADLINE {
        last = edge.destination(cluster, "one").await["last_probe"].clone();
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(last, cause);
}

async fn results(edge: &Edge, cluster: &str, id: &str, result: &str) -> usize {
    let labels = format!("{{cluster=\"{cluster}\",destination=\"{id}\",result=\"{result}\"}}");
    edge.metric(&format!("derbent_upstream_health_checks_total{labels}")).await.expect("there from the start") as usize
}

#[tokio::test(flavor = "multi_thread")]
async fn given_two_clusters_at_one_address_when_probed_then_one_probe_an_interval_and_both_judge_by_it() {
    let origin = Origin::named("one").await;
    let one = format!("one: {{ address: \"{}\" }}", origin.url());
    const CHECK: &str = "type: http, path: /health, interval: 100ms, unhealthy_after";
    let (patient, strict) = (format!("{{ {CHECK}: 4 }}"), format!("{{ {CHECK}: 1 }}"));
    let edge = Edge::start(&clusters(&[("patient", &one, &patient), ("strict", &one, &strict)])).await;
    eventually(DEADLINE, "ten probes", async || origin.hits("/health") >= 10).await;
    let counted = [results(&edge, "patient", "one", "success").await, results(&edge, "strict", "one", "success").await];
    let (made, least) = (origin.hits("/health"), counted[0].min(counted[1]));
    assert!(least >= 9 && made < 2 * least, "{made} made, {counted:?} counted");
    origin.answer_by(|_| Answer::new(503, "", ""));
    in_state(&edge, "patient", "one", "unhealthy").await;
    in_state(&edge, "strict", "one", "unhealthy").await;
    edge.logged(&["WARN", "of cluster strict is unhealthy: active check failed once in a row (unhealthy_after 1)"])
        .await;
    edge.logged(&["WARN", "of cluster patient is unhealthy: active check failed 4 times in a row (unhealthy_after 4)"])
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn given_fifty_routes_and_clusters_at_one_address_when_probed_then_as_often_as_for_one() {
    const PROBES: usize = 60;
    let origin = Origin::named("one").await;
    let one = format!("one: {{ address: \"{}\" }}", origin.url());
    let names: Vec<String> = (0..50).map(|n| format!("c{n}")).collect();
    let check = "{ type: http, path: /health, interval: 100ms, jitter: 0% }";
    let yaml = clusters(&names.iter().map(|name| (name.as_str(), one.as_str(), check)).collect::<Vec<_>>());
    let began = Instant::now();
    let edge = Edge::start(&yaml).await;
    eventually(DEADLINE, "so many probes", async || origin.hits("/health") >= PROBES).await;
    let (made, elapsed) = (origin.hits("/health") as f64, began.elapsed().as_secs_f64());
    let predicted = edge.metric("derbent_probes_per_second_expected{cluster=\"c7\"}").await.expect("told");
    assert_eq!(predicted, 10.0);
    assert!(made <= predicted * elapsed * 1.05 + 1.0, "{made} probes in {elapsed} s");
    // Each probe was every cluster's.
    for name in [&names[0], &names[23], &names[49]] {
        let (before, counted, after) =
            (origin.hits("/health"), results(&edge, name, "one", "success").await, origin.hits("/health"));
        let margin = before.div_ceil(20);
        assert!(counted + margin >= before && counted <= after, "{name}: {counted} of {before} to {after}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn given_all_keys_of_http_when_probed_then_the_request_is_as_written() {
    let origin = Origin::named("one").await;
    let dead = loopback(free_port());
    let check = format!(
        "type: http, interval: 1h, method: POST, port: {}, host: \"shop.example:8443\", path: \"/health?deep=1&x=%20\", \
         headers: {{ X-Probe: derbent, User-Agent: Monitor/1, X-Number: 7 }}, body: \"are you there?\"",
        origin.address().port()
    );
    let edge = Edge::start(&app(&format!("http://{dead}/base"), &check)).await;
    in_state(&edge, "app", "one", "healthy").await;
    let requests = origin.requests();
    assert_eq!(requests.len(), 1);
    let probe = &requests[0];
    assert_eq!((probe.method().as_str(), probe.target().as_str()), ("POST", "/base/health?deep=1&x=%20"));
    assert_eq!(String::from_utf8_lossy(&probe.body), "are you there?");
    let headers = ["host", "x-probe", "user-agent", "x-number", "content-length"].map(|name| probe.header(name));
    assert_eq!(headers.map(Option::unwrap_or_default), ["shop.example:8443", "derbent", "Monitor/1", "7", "14"]);
    let names: Vec<String> = probe.headers().into_iter().map(|(name, _)| name.to_lowercase()).collect();
    assert_eq!(names.iter().filter(|name| *name == "user-agent").count(), 1);
    edge.logged(&[&format!("probe of one[{}] in cluster app: 200", origin.address())]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn given_each_method_when_probed_then_it_is_asked_by_and_a_length_is_told_where_a_body_belongs() {
    let origin = Origin::start(|request| match request.method().as_str() {
        "HEAD" => Answer::bodiless(200, "content-length: 9\r\n"),
        _ => Answer::ok(""),
    })
    .await;
    let one = format!("one: {{ address: \"{}\" }}", origin.url());
    let methods = ["GET", "POST", "PUT", "HEAD", "OPTIONS", "DELETE"];
    let checks: Vec<String> =
        methods.iter().map(|method| format!("{{ type: http, method: {method}, interval: 1h }}")).collect();
    let names = methods.map(str::to_lowercase);
    let written: Vec<_> =
        names.iter().zip(&checks).map(|(name, check)| (name.as_str(), one.as_str(), check.as_str())).collect();
    let edge = Edge::start(&clusters(&written)).await;
    for name in &names {
        in_state(&edge, name, "one", "healthy").await;
    }
    let mut asked: Vec<(String, Option<String>)> =
        origin.requests().iter().map(|request| (request.method(), request.header("content-length"))).collect();
    asked.sort();
    let zero = Some("0".to_owned());
    let expected =
        [("DELETE", &None), ("GET", &None), ("HEAD", &None), ("OPTIONS", &None), ("POST", &zero), ("PUT", &zero)];
    assert_eq!(asked, expected.map(|(method, length)| (method.to_owned(), length.clone())));
}

/// YARP's case 19.
#[tokio::test(flavor = "multi_thread")]
async fn case_19_given_a_health_address_with_a_path_when_probed_then_the_checks_path_and_query_come_after_it() {
    let (serving, asked) = (Origin::named("serving").await, Origin::named("asked").await);
    let one = format!("one: {{ address: \"{}/\", health_address: \"{}/api\" }}", serving.url(), asked.url());
    let yaml = clusters(&[
        ("slash", &one, "{ type: http, path: \"/health/?k=v\", interval: 1h }"),
        ("query", &one, "{ type: http, path: \"/health?foo=bar\", interval: 1h }"),
    ]);
    let edge = Edge::start(&yaml).await;
    in_state(&edge, "slash", "one", "healthy").await;
    in_state(&edge, "query", "one", "healthy").await;
    let mut targets: Vec<String> = asked.requests().iter().map(|request| request.target()).collect();
    targets.sort();
    assert_eq!((targets, serving.requests().len()), (vec!["/api/health/?k=v".into(), "/api/health?foo=bar".into()], 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn given_expected_headers_and_a_body_when_an_answer_lacks_one_then_it_fails_and_says_which() {
    let origin = Origin::named("").await;
    let check = "type: http, interval: 100ms, expect: { status: [200, 203], headers: { X-Ready: yes, X-Tier: a b }, \
                 body: '\"status\": ?\"(up|starting)\"' }";
    let edge = Edge::start(&app(&origin.url(), check)).await;
    const HEADERS: &str = "x-ready: no\r\nx-ready: yes\r\nX-TIER: a b\r\n";
    let up = |before: usize| format!("{}{{\"status\":\"up\"}}", " ".repeat(before));
    let good = |body: String| Answer::new(203, HEADERS, &body);
    const LIMIT: usize = 16 * 1024;
    for (answer, cause) in [
        (good(up(0)), "203"),
        (Answer::new(201, HEADERS, &up(0)), "201"),
        (Answer::new(200, "x-ready: yes\r\n", &up(0)), "200, but header x-tier is missing"),
        (Answer::new(200, "x-tier: a b\r\nx-ready: YES\r\n", &up(0)), "200, but header x-ready is not as expected"),
        (good("{\"status\":\"down\"}".into()), "203, but the body does not match"),
        (good(String::new()), "203, but the body does not match"),
        // The limit is within the match, then right behind it.
        (good(up(LIMIT - 14)), "203, but the body does not match"),
        (good(up(LIMIT - 15) + &"x".repeat(100_000)), "203"),
        (good("{}".into()).then(Step::Close), "203, but the body does not match"),
    ] {
        origin.answer_by(move |_| answer.clone());
        told(&edge, "app", cause).await;
    }
    // Chunks are joined; a body that breaks off is no answer.
    origin.answer_by(|_| {
        let head = format!("HTTP/1.1 200 OK\r\n{HEADERS}transfer-encoding: chunked\r\n\r\n");
        Answer::script([head.as_str(), "9\r\n{\"status\"\r\n", "6\r\n: \"up\"\r\n0\r\n\r\n"].map(Step::send))
    });
    told(&edge, "app", "200").await;
    origin.answer_by(|_| {
        let head = format!("HTTP/1.1 200 OK\r\n{HEADERS}content-length: 99\r\n\r\n{{");
        Answer::script([Step::send(head), Step::Reset])
    });
    told(&edge, "app", "connection closed or reset").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn given_interim_answers_when_probed_then_the_final_one_decides() {
    let origin = Origin::named("").await;
    origin.answer_by(|_| {
        let interim = "HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n";
        Answer::script([interim, "HTTP/1.1 204 No Content\r\n\r\n"].map(Step::send))
    });
    let edge = Edge::start(&app(&origin.url(), "type: http, interval: 100ms")).await;
    told(&edge, "app", "204").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn given_interim_answers_without_end_when_probed_then_it_fails_long_before_its_timeout() {
    let origin =
        Origin::start(|_| Answer::script([Step::send("HTTP/1.1 100 Continue\r\n\r\n".repeat(40)), Step::Echo])).await;
    let edge = Edge::start(&app(&origin.url(), "type: http, interval: 100ms, timeout: 10m")).await;
    told(&edge, "app", "100").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_tcp_check_with_a_port_when_only_that_one_is_open_then_healthy() {
    let mut origin = Origin::named("one").await;
    let check = format!("type: tcp, interval: 100ms, port: {}", origin.address().port());
    let edge = Edge::start(&app(&format!("http://{}", loopback(free_port())), &check)).await;
    in_state(&edge, "app", "one", "healthy").await;
    origin.stop().await;
    in_state(&edge, "app", "one", "unhealthy").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_grpc_check_when_asked_then_serving_passes_and_every_failure_has_its_word() {
    let server = GrpcHealth::start(Call::Status(1), None).await;
    let one = format!("one: {{ address: \"http://{}\" }}", server.address());
    let yaml = clusters(&[
        ("whole", &one, "{ type: grpc, interval: 100ms, unhealthy_after: 1 }"),
        ("part", &one, "{ type: grpc, interval: 100ms, service: catalog.v1.Catalog, host: catalog.internal }"),
    ]);
    let edge = Edge::start(&yaml).await;
    in_state(&edge, "whole", "one", "healthy").await;
    in_state(&edge, "part", "one", "healthy").await;
    for (answer, cause) in [
        (Call::Status(2), "NOT_SERVING"),
        (Call::Status(0), "UNKNOWN"),
        (Call::Status(3), "SERVICE_UNKNOWN"),
        (Call::Code(12), "UNIMPLEMENTED: no health service"),
        (Call::Code(5), "NOT_FOUND: unknown service"),
        (Call::Code(14), "UNAVAILABLE"),
    ] {
        server.answer(answer);
        told(&edge, "whole", cause).await;
        in_state(&edge, "whole", "one", "unhealthy").await;
        edge.logged(&[&format!("probe of one[{}] in cluster whole: {cause}", server.address())]).await;
    }
    server.answer(Call::Status(1));
    in_state(&edge, "whole", "one", "healthy").await;
    let seen = server.seen();
    assert!(seen.iter().all(|call| call.head.uri.path() == "/grpc.health.v1.Health/Check"));
    let part: Vec<_> = seen.iter().filter(|call| call.head.uri.host() == Some("catalog.internal")).collect();
    let whole: Vec<_> = seen.iter().filter(|call| call.head.uri.host() == Some("127.0.0.1")).collect();
    assert_eq!(part[0].body, [&[0, 0, 0, 0, 20, 0x0a, 18][..], b"catalog.v1.Catalog"].concat());
    assert_eq!((whole[0].body.as_slice(), whole[0].head.method.as_str()), (&[0; 5][..], "POST"));
    let headers = ["content-type", "te"].map(|name| whole[0].head.headers[name].to_str().unwrap());
    assert_eq!(headers, ["application/grpc", "trailers"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_grpc_check_when_the_destination_speaks_http1_or_no_grpc_then_it_fails_and_says_so() {
    let http1 = Origin::named("one").await;
    let echo = crate::support::H2Origin::start().await;
    let one = |address| format!("one: {{ address: \"http://{address}\" }}");
    let check = "{ type: grpc, interval: 100ms }";
    let (old, other) = (one(http1.address()), one(echo.address()));
    let edge = Edge::start(&clusters(&[("old", &old, check), ("other", &other, check)])).await;
    in_state(&edge, "old", "one", "unhealthy").await;
    let cause = edge.destination("old", "one").await["last_probe"].clone();
    assert!(cause.as_str().unwrap().starts_with("speaks no cleartext HTTP/2"), "{cause}");
    // It sends back what it was sent: a message without a status.
    told(&edge, "other", "UNKNOWN").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn given_another_interval_while_unhealthy_when_out_then_probed_by_it_and_by_the_usual_one_when_back() {
    let (origin, clock) = (Origin::named("one").await, Origin::named("clock").await);
    origin.answer_by(|_| Answer::new(503, "", ""));
    let (one, other) =
        (format!("one: {{ address: \"{}\" }}", origin.url()), format!("one: {{ address: \"{}\" }}", clock.url()));
    let check = "{ type: http, interval: 1h, interval_when_unhealthy: 100ms, unhealthy_after: 1, healthy_after: 3 }";
    let yaml = clusters(&[("app", &one, check), ("clock", &other, "{ type: http, interval: 100ms }")]);
    let edge = Edge::start(&yaml).await;
    eventually(DEADLINE, "five probes in an hour", async || origin.requests().len() >= 5).await;
    origin.answer_by(|_| Answer::ok("one"));
    in_state(&edge, "app", "one", "healthy").await;
    let (made, passed) = (origin.requests().len(), clock.requests().len());
    eventually(DEADLINE, "the other's probes go on", async || clock.requests().len() >= passed + 10).await;
    assert_eq!(origin.requests().len(), made);
}

/// YARP's case 15.
#[tokio::test(flavor = "multi_thread")]
async fn case_15_given_clusters_with_and_without_a_check_when_started_then_the_first_round_is_one_probe_each_and_none()
{
    let origins = [
        Origin::named("a1").await,
        Origin::named("a2").await,
        Origin::named("b1").await,
        Origin::named("b2").await,
        Origin::named("c1").await,
        Origin::named("c2").await,
    ];
    let pair = |first: usize| {
        let [one, two] = [&origins[first], &origins[first + 1]].map(Origin::url);
        format!("one: {{ address: \"{one}\" }}, two: {{ address: \"{two}\" }}")
    };
    let (a, b, c) = (pair(0), pair(2), pair(4));
    let on = "{ type: http, path: /health, interval: 1h }";
    let edge = Edge::start(&clusters(&[("a", &a, on), ("b", &b, "off"), ("c", &c, on)])).await;
    let probes: Vec<usize> = origins.iter().map(|origin| origin.requests().len()).collect();
    assert_eq!(probes, [1, 1, 0, 0, 1, 1]);
    let agent = origins[5].requests()[0].header("user-agent").expect("it says who it is");
    assert_eq!(agent, format!("derbent/{} (health check)", env!("CARGO_PKG_VERSION")));
    for (cluster, expected) in [("a", 2.0 / 3600.0), ("b", 0.0)] {
        let series = format!("derbent_probes_per_second_expected{{cluster=\"{cluster}\"}}");
        assert_eq!(edge.metric(&series).await, Some(expected));
    }
}

/// YARP's case 16, and row 10 of what it is weak in.
#[tokio::test(flavor = "multi_thread")]
async fn case_16_given_a_probe_that_is_never_answered_when_started_then_the_round_ends_and_every_cluster_is_judged() {
    let never = Origin::start(|_| Answer::script([Step::Wait(crate::support::Gate::closed())])).await;
    let others = [Origin::named("good").await, Origin::start(|_| Answer::new(503, "", "")).await];
    let one = |origin: &Origin| format!("one: {{ address: \"{}\" }}", origin.url());
    let check = "{ type: http, interval: 1h, unhealthy_after: 1 }";
    let (hanging, good, bad) = (one(&never), one(&others[0]), one(&others[1]));
    let short = "{ type: http, interval: 1h, unhealthy_after: 1, timeout: 1ms }";
    // Ready at all: the round has ended.
    let edge = Edge::start(&clusters(&[("a", &hanging, short), ("b", &good, check), ("c", &bad, check)])).await;
    for (cluster, state, result) in
        [("a", "unhealthy", "timeout"), ("b", "healthy", "success"), ("c", "unhealthy", "failure")]
    {
        in_state(&edge, cluster, "one", state).await;
        assert_eq!(results(&edge, cluster, "one", result).await, 1, "{cluster}");
    }
    // One that may hang for ten minutes keeps nobody waiting for a verdict, not even in its own cluster.
    let in_one = format!("hanging: {{ address: \"{}\" }}, bad: {{ address: \"{}\" }}", never.url(), others[1].url());
    let patient = "{ type: http, interval: 100ms, timeout: 10m }";
    let edge = Edge::launch(TempDir::new().unwrap(), &clusters(&[("app", &in_one, patient)]), &[]);
    eventually(DEADLINE, "the admin listener answers", async || {
        crate::support::get(edge.admin(), "/health").await.is_ok()
    })
    .await;
    in_state(&edge, "app", "bad", "unhealthy").await;
    assert_eq!(edge.destination("app", "hanging").await["state"], "unknown");
}

/// YARP's case 17.
#[tokio::test(flavor = "multi_thread")]
async fn case_17_given_one_round_when_one_answers_500_one_breaks_and_one_is_well_then_exactly_these_results() {
    let origins = [
        Origin::start(|_| Answer::new(500, "", "")).await,
        Origin::start(|_| Answer::script([Step::Reset])).await,
        Origin::named("well").await,
    ];
    let written: Vec<String> =
        origins.iter().enumerate().map(|(n, origin)| format!("d{n}: {{ address: \"{}\" }}", origin.url())).collect();
    let edge = Edge::start(&clusters(&[("app", &written.join(", "), "{ type: http, interval: 1h }")])).await;
    for (id, found) in [("d0", [0, 1, 0]), ("d1", [0, 0, 1]), ("d2", [1, 0, 0])] {
        let mut counted = [0; 3];
        for (count, result) in counted.iter_mut().zip(["success", "failure", "error"]) {
            *count = results(&edge, "app", id, result).await;
        }
        assert_eq!(counted, found, "{id}");
    }
}

/// YARP's case 18.
#[tokio::test(flavor = "multi_thread")]
async fn given_a_reload_when_clusters_go_lose_their_check_or_come_then_probes_end_go_on_and_begin_at_once() {
    let [gone, off, stays, new] = [
        Origin::named("gone").await,
        Origin::named("off").await,
        Origin::named("stays").await,
        Origin::named("new").await,
    ];
    let written = [&gone, &off, &stays, &new].map(|origin| format!("one: {{ address: \"{}\" }}", origin.url()));
    let [in_gone, in_off, in_stays, in_new] = written.each_ref().map(String::as_str);
    const ON: &str = "{ type: http, path: /health, interval: 100ms }";
    let edge = Edge::start(&clusters(&[("gone", in_gone, ON), ("off", in_off, ON), ("stays", in_stays, ON)])).await;
    let hourly = "{ type: http, path: /health, interval: 1h }";
    edge.reload(&clusters(&[("off", in_off, "off"), ("stays", in_stays, ON), ("new", in_new, hourly)])).await;
    in_state(&edge, "new", "one", "healthy").await;
    // What was under way then comes before the next of those that stay.
    let next = stays.hits("/health") + 2;
    eventually(DEADLINE, "the others' probes go on", async || stays.hits("/health") >= next).await;
    let (then, later) = ((gone.hits("/health"), off.hits("/health")), stays.hits("/health") + 10);
    eventually(DEADLINE, "the others' probes go on", async || stays.hits("/health") >= later).await;
    assert_eq!((gone.hits("/health"), off.hits("/health"), new.hits("/health")), (then.0, then.1, 1));
    edge.reload(&clusters(&[("off", in_off, ON), ("stays", in_stays, ON), ("new", in_new, hourly)])).await;
    eventually(DEADLINE, "probed again", async || off.hits("/health") > then.1).await;
    assert_eq!((edge.destination("new", "one").await["state"].clone(), new.hits("/health")), ("healthy".into(), 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn given_probes_that_cannot_be_made_when_two_intervals_are_over_then_they_are_told_to_be_stale() {
    let origin = Origin::named("one").await;
    let edge = Edge::start(&app(&origin.url(), "type: http, interval: 100ms, timeout: 100ms")).await;
    in_state(&edge, "app", "one", "healthy").await;
    let limit = |most: &str| {
        let arguments = ["--pid".to_owned(), edge.pid().to_string(), format!("--nofile={most}:")];
        assert!(std::process::Command::new("prlimit").args(arguments).status().expect("prlimit").success());
    };
    // Open already, as no connection can be made later.
    let mut admin = Client::connect(edge.admin()).await;
    let mut stale = async || {
        let page = admin.get("/metrics", "").await.expect("the connection stays").text();
        page.contains("derbent_destination_probe_stale{cluster=\"app\",destination=\"one\"} 1\n")
    };
    assert!(!stale().await);
    limit("1");
    eventually(DEADLINE, "stale", &mut stale).await;
    limit("1024");
    eventually(DEADLINE, "no longer", async || !stale().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn given_faults_in_an_active_check_when_checked_then_each_is_told_at_its_place() {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("derbent.yaml");
    let mut missed = Vec::new();
    for (check, place, words) in [
        ("type: http, method: GIT", "method", "unknown method \"GIT\"; did you mean \"GET\"?"),
        ("type: http, path: health", "path", "\"health\" is no path"),
        ("type: http, path: \"/a#b\"", "path", "\"/a#b\" is no path"),
        ("type: http, port: 0", "port", "expected a whole number from 1 to 65535"),
        ("type: tcp, port: 70000", "port", "expected a whole number from 1 to 65535"),
        ("type: tcp, path: /x", "path", "unknown key \"path\"; one of: type, policy"),
        ("type: http, host: \"a b\"", "host", "expected a host name"),
        ("type: http, tls: yes", "tls", "expected a section of keys; found \"yes\""),
        ("type: http, tls: { verfy: true }", "tls.verfy", "unknown key \"verfy\"; did you mean \"verify\"?"),
        ("type: http, tls: { ca: missing.pem }", "tls.ca", "cannot read"),
        ("type: http, tls: { client_cert: a.pem }", "tls", "client_key"),
        ("type: http, headers: { \"a b\": c }", "headers.a b", "\"a b\" is no name of a header"),
        ("type: http, headers: { Host: c }", "headers.Host", "key `host`"),
        ("type: http, headers: { Content-Length: 1 }", "headers.Content-Length", "made by the probe itself"),
        ("type: http, headers: { X-A: b, x-a: c }", "headers.x-a", "header x-a is written twice"),
        ("type: http, headers: { X-A: \"a\\nb\" }", "headers.X-A", "cannot stand in a header"),
        ("type: http, headers: { X-A: [b] }", "headers.X-A", "expected text; found a list"),
        (
            "type: http, expect: { body: \"(up\" }",
            "expect.body",
            "expected a regular expression, such as '\"up\"': unclosed group",
        ),
        ("type: http, expect: { body: \"(a{1000}){1000}\" }", "expect.body", "exceeds size limit"),
        ("type: http, expect: { headers: { \"\": b } }", "expect.headers", "header"),
        ("type: http, method: HEAD, expect: { body: x }", "expect", "an answer to HEAD has no body"),
        ("type: grpc, path: /x", "path", "unknown key \"path\""),
        ("type: grpc, service: \"\"", "service", "expected text"),
        ("type: grcp", "type", "unknown type of active check \"grcp\"; did you mean \"grpc\"?"),
    ] {
        let yaml = format!("listeners: {{ web: \"127.0.0.1:1\" }}\n{}", app("http://127.0.0.1:9", check));
        std::fs::write(&file, yaml).unwrap();
        let output = derbent(["check".into(), "-c".into(), file.clone().into_os_string()]).await;
        let report = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{check}\n{report}");
        let is = |line: &str| line.contains(&format!("clusters.app.health.active.{place}")) && line.contains(words);
        if !report.lines().any(is) {
            missed.push(format!("{check}\n{report}"));
        }
    }
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}
