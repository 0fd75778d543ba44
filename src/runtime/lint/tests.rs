use super::*;
use crate::runtime::testing;
use std::time::Instant;

const ONE: &str = "destinations: [\"http://127.0.0.1:1\"]";
const TWO: &str = "destinations: [\"http://127.0.0.1:1\", \"http://127.0.0.1:2\"]";

fn compiled(cluster: &str) -> (Config, Snapshot) {
    testing::compiled(&file(cluster))
}

/// Unless it is a whole file.
fn file(cluster: &str) -> String {
    if cluster.starts_with("listeners:") || cluster.starts_with("trusted_proxies:") {
        return cluster.to_owned();
    }
    let listener = "listeners: { web: \"127.0.0.1:1\" }";
    format!("{listener}\nroutes: {{ r: {{ cluster: c }} }}\nclusters:\n  c: {{ {cluster} }}\n")
}

/// Each as `id path`, all of them placed in the cluster's line.
fn warned(cluster: &str) -> Vec<String> {
    let (config, snapshot) = compiled(cluster);
    let warnings = lint(&config, &snapshot);
    assert!(warnings.iter().all(|warning| warning.at.line == 4 && !warning.fix.is_empty()), "{warnings:?}");
    let path = |warning: &Warning| warning.at.path.trim_start_matches("clusters.c.").to_owned();
    warnings.iter().map(|warning| format!("{} {}", warning.id, path(warning))).collect()
}

/// Rule, what it warns of, and the nearest to it that is fine.
fn fixtures() -> Vec<(&'static str, String, String)> {
    let health = |text: &str| format!("{TWO}, health: {{ {text} }}");
    let of_one = |text: &str| format!("{ONE}, health: {{ {text} }}");
    let slow = |policy: &str| format!("{TWO}, slow_start: 5s, load_balancing: {policy}");
    let impatient = |patience: &str, health: &str| {
        format!(
            "{TWO}, request: {{ activity_timeout: {patience} }}, health: {{ active: {{ type: tcp, timeout: 2s }}, {health} }}"
        )
    };
    let probed = |address: &str| {
        format!("destinations: {{ a: {{ address: \"http://127.0.0.1:1/x\", health_address: \"{address}\" }} }}")
    };
    let rates = |period: &str, windows: &str| {
        let [a, b] = [windows, "5s"].map(|window| format!("{{ policy: TransportFailureRate, window: {window} }}"));
        health(&format!(
            "active: tcp, passive: {{ detectors: [{a}, {b}], reactivation: {{ mode: full, period: {period} }} }}"
        ))
    };
    let retry = |text: &str| format!("{TWO}, retry: {{ {text} }}");
    let idle = |methods: &str, cluster: &str| {
        let route = format!("{{ match: {{ methods: {methods} }}, cluster: c }}");
        format!(
            "listeners: {{ web: \"127.0.0.1:1\" }}\nroutes: {{ r: {route} }}\nclusters:\n  c: {{ {TWO}, {cluster} }}"
        )
    };
    let minutes = "connection: { idle_timeout: 61s }";
    let behind = |trusted: &str, listener: &str| {
        let listener = format!("listeners: {{ web: {{ address: \"127.0.0.1:1\", {listener} }} }}");
        let routes = "routes: { r: { cluster: c } }";
        format!("trusted_proxies: [{trusted}]\n{routes}\nclusters: {{ c: {{ {ONE} }} }}\n{listener}")
    };
    let lb = "10.0.0.0/8";
    let off = "passive: { reactivation: off }";
    vec![
        ("no-judge health.passive", health("passive: off"), health("passive: off, active: tcp")),
        ("no-judge health.passive", health("passive: off"), health("passive: off, breaker: {}")),
        (
            "no-recovery health.passive.reactivation",
            of_one(off),
            of_one("active: tcp, passive: { reactivation: off, max_ejected: 0 }"),
        ),
        (
            "no-recovery health.passive.reactivation",
            of_one(&format!("available: HealthyAndUnknown, {off}")),
            of_one("active: tcp"),
        ),
        (
            "no-recovery health.passive.reactivation",
            format!(
                "destinations: {{ a: \"http://127.0.0.1:1\", b: {{ address: \"http://127.0.0.1:2\", enabled: false }} }}, \
                 health: {{ {off} }}"
            ),
            of_one("passive: off, active: tcp"),
        ),
        (
            "no-reactivation health.passive.reactivation",
            health(off),
            health("active: tcp, passive: { reactivation: { period: 1h } }"),
        ),
        (
            "passive-without-active health.passive",
            health("passive: { max_ejected: 10% }"),
            health("active: tcp, passive: { max_ejected: 10% }"),
        ),
        ("passive-without-active health.passive", health("passive: {}"), health("initial: trust")),
        (
            "passive-without-active health.passive",
            health("passive: {}, active: off"),
            health("breaker: {}, passive: { max_ejected: 0 }"),
        ),
        ("period-under-window health.passive.reactivation.mode", rates("29s", "30s"), rates("30s", "30s")),
        (
            "period-under-window health.passive.reactivation.mode",
            health("active: tcp, passive: { reactivation: { mode: full } }"),
            health("active: tcp, passive: { reactivation: { mode: full }, detectors: [ConsecutiveFailures] }"),
        ),
        (
            "equal-thresholds health.active.healthy_after",
            health("active: { type: tcp, unhealthy_after: 3, healthy_after: 3 }"),
            health("active: { type: tcp, unhealthy_after: 3, healthy_after: 2 }"),
        ),
        (
            "equal-thresholds health.active.healthy_after",
            health("active: { type: tcp, healthy_after: 2 }"),
            health("active: { type: tcp, unhealthy_after: 1 }"),
        ),
        (
            "equal-thresholds health.active.healthy_after",
            health("active: { type: tcp, unhealthy_after: 1, healthy_after: 1 }"),
            health("active: tcp"),
        ),
        (
            "impatient-requests request.activity_timeout",
            impatient("1999ms", "available: HealthyOrPanic"),
            impatient("2s", "available: HealthyOrPanic"),
        ),
        (
            "impatient-requests request.activity_timeout",
            impatient("1s", "passive: off, breaker: {}"),
            impatient("1s", "passive: { count: connect }, breaker: { count: \"5xx\" }"),
        ),
        (
            "impatient-requests health.active.timeout",
            health("active: { type: tcp, timeout: 101s }"),
            health("active: { type: tcp, timeout: 100s }"),
        ),
        ("same-port destinations.a.health_address", probed("http://127.0.0.1:1/x/"), probed("http://127.0.0.1:1")),
        ("same-port destinations.a.health_address", probed("http://127.0.0.1:1/x"), probed("http://127.0.0.1:2/x")),
        ("same-port destinations.a.health_address", probed("http://127.0.0.1:1/x"), probed("https://127.0.0.1:1/x")),
        ("unsafe-retry retry.methods", retry("methods: [GET, POST]"), retry("methods: [GET, PUT, DELETE]")),
        ("unsafe-retry retry.methods", retry("methods: [PATCH]"), retry("methods: [PATCH], attempts: 1")),
        ("unsafe-retry retry.methods", retry("methods: [POST]"), retry("methods: [POST], on_grpc: [unavailable]")),
        (
            "unsafe-retry retry.methods",
            retry("methods: [POST] }, health: { active: tcp"),
            retry("methods: [POST] }, health: { active: grpc }, request: { version: 2, version_policy: Exact"),
        ),
        (
            "no-retry-budget retry.budget",
            retry("budget: { percent: 0%, floor: 0 }"),
            retry("budget: { percent: 0%, floor: 1 }"),
        ),
        ("timeouts-add-up retry.on", retry("on: timeout"), retry("on: timeout, attempt_timeout: 29s")),
        ("timeouts-add-up retry.on", retry("on: timeout"), retry("on: timeout }, request: { activity_timeout: 29s")),
        ("late-retries retry.attempts", retry("on: timeout, attempt_timeout: 31s"), retry("attempt_timeout: 31s")),
        (
            "late-retries retry.attempts",
            retry("attempts: 10 }, connection: { connect_timeout: 7s"),
            retry("attempts: 9 }, connection: { connect_timeout: 7s"),
        ),
        ("late-retries retry.attempts", retry("attempts: 7, delay: 10s"), retry("attempts: 4, delay: 10s")),
        ("slow-start-ignored slow_start", slow("Maglev"), slow("RoundRobin")),
        ("slow-start-ignored slow_start", slow("FirstAlphabetical"), slow("LeastRequests")),
        ("slow-start-ignored slow_start", slow("{ policy: LeastRecentlyUsed }"), slow("PeakEwma")),
        ("slow-start-ignored slow_start", slow("Maglev"), format!("{TWO}, slow_start: 0s, load_balancing: Maglev")),
        (
            "long-idle connection.idle_timeout",
            format!("{TWO}, {minutes}"),
            format!("{TWO}, connection: {{ idle_timeout: 60s }}"),
        ),
        ("long-idle connection.idle_timeout", idle("[GET, POST]", minutes), idle("[GET, PUT]", minutes)),
        (
            "long-idle connection.idle_timeout",
            idle("[GET, LOCK]", minutes),
            format!("{TWO}, {minutes}, request: {{ version: 2, version_policy: Exact }}"),
        ),
        (
            "long-idle connection.idle_timeout",
            format!("{TWO}, {minutes}, request: {{ version: 1.1 }}"),
            format!("{TWO}, {minutes}, request: {{ version: 1.0 }}"),
        ),
        (
            "balancer-closes-later listeners.web.limits.idle_timeout",
            behind(lb, "limits: { idle_timeout: 60s }"),
            behind(lb, "limits: { idle_timeout: 61s }"),
        ),
        (
            "balancer-closes-later listeners.web.limits.idle_timeout",
            behind(lb, "limits: { idle_timeout: 1s }"),
            behind("", "limits: { idle_timeout: 1s }"),
        ),
        (
            "balancer-closes-later listeners.web.limits.idle_timeout",
            behind(lb, "protocols: [http1, h2c], limits: { idle_timeout: 1s }"),
            behind(lb, "protocols: h2c, limits: { idle_timeout: 1s }"),
        ),
        (
            "balancer-closes-later listeners.web.limits.idle_timeout",
            behind(lb, "limits: { idle_timeout: 1s }"),
            behind(lb, "limits: {}"),
        ),
    ]
}

#[test]
fn given_each_rule_when_its_fixtures_are_judged_then_the_bad_one_is_warned_of_and_the_nearest_good_one_not() {
    for (warning, bad, good) in fixtures() {
        assert_eq!(warned(&bad), [warning], "{bad}");
        assert_eq!(warned(&good), Vec::<String>::new(), "{good}");
    }
}

/// The key is a kind's own, so the file is compiled without it.
#[test]
fn given_a_port_of_probes_when_all_of_them_go_there_anyway_then_it_is_warned_of() {
    let two = "a: \"http://127.0.0.1:1\", b: \"http://127.0.0.2:1\"";
    for (destinations, warned) in [
        (two.to_owned(), true),
        (format!("{two}, c: \"http://127.0.0.1:2\""), false),
        (format!("{two}, c: {{ address: \"http://127.0.0.1:2\", health_address: \"http://127.0.0.1:1\" }}"), true),
        (format!("{two}, c: {{ address: \"http://127.0.0.1:1\", health_address: \"http://127.0.0.1:2\" }}"), false),
    ] {
        let text = |check: &str| format!("destinations: {{ {destinations} }}, health: {{ active: {{ {check} }} }}");
        let (_, snapshot) = compiled(&text("type: tcp"));
        let config = Config::parse("t.yaml", &file(&text("type: tcp, port: 1"))).expect("no faults");
        let found: Vec<_> = lint(&config, &snapshot).into_iter().map(|found| (found.id, found.at.path)).collect();
        let expected = ("same-port", "clusters.c.health.active.port".to_owned());
        assert_eq!(found, if warned { vec![expected] } else { Vec::new() }, "{destinations}");
    }
}

#[test]
fn given_the_table_of_rules_when_held_against_the_fixtures_then_each_has_one_and_a_name_of_its_own() {
    let fixtures = fixtures();
    let mut ids: Vec<&str> = fixtures.iter().filter_map(|(warning, ..)| warning.split(' ').next()).collect();
    ids.dedup();
    assert_eq!(ids, RULES.iter().map(|rule| rule.id).collect::<Vec<_>>());
    assert!(RULES.iter().all(|rule| !rule.what.is_empty()));
}

#[test]
fn given_the_smallest_cluster_when_judged_then_no_warning() {
    assert_eq!(warned(ONE), Vec::<String>::new());
    assert_eq!(warned(TWO), Vec::<String>::new());
}

#[test]
fn given_two_rules_broken_when_judged_then_both_in_the_order_of_the_file_and_in_words() {
    let (config, snapshot) = compiled(&format!(
        "{TWO}, health: {{ passive: {{ reactivation: off }} }}, slow_start: 1s, load_balancing: Maglev"
    ));
    let warnings: Vec<String> = lint(&config, &snapshot).iter().map(ToString::to_string).collect();
    let [recovery, slow_start] = &warnings[..] else { panic!("{warnings:?}") };
    assert_eq!(
        recovery,
        "warning[no-reactivation]: what was ejected stays out until somebody brings it back, and one after the other goes; \
         fix: leave `reactivation` out"
    );
    assert!(slow_start.starts_with("warning[slow-start-ignored]: Maglev ignores it"), "{slow_start}");
}

#[test]
fn given_detectors_when_the_outlook_is_told_then_the_failure_that_ejects_at_the_latest() {
    let first = |passive: &str| {
        let (config, snapshot) = compiled(&format!("{TWO}, health: {{ passive: {passive} }}"));
        let general = |line: &str| line.contains("at worst") || line.contains("must keep");
        outlook(&config, &snapshot, Instant::now()).into_iter().find(|line| !general(line))
    };
    let told = |passive: &str| first(passive).unwrap_or_default();
    let rate = "{ policy: TransportFailureRate, minimum_requests: 7 }";
    assert_eq!(told("{}"), "c: a dead destination is out at the 5th failure in a row at the latest");
    let smallest =
        format!("{{ detectors: [{{ policy: ConsecutiveFailures, failures: 3 }}, {rate}, ConsecutiveFailures] }}");
    assert_eq!(told(&smallest), "c: a dead destination is out at the 3rd failure in a row at the latest");
    let later = "c: a dead destination is out at the 7th failure in a row, later where good answers came before";
    assert_eq!(told(&format!("{{ detectors: [{rate}] }}")), later);
    let never = "{ policy: ConsecutiveFailures, failures: 0 }";
    assert_eq!(told(&format!("{{ detectors: [TransportFailureRate, {never}, {rate}] }}")), later);
    let counted = "c: a failing destination is out at the 5th counted failure in a row at the latest";
    assert_eq!(told("{ count: \"5xx\" }"), counted);
    for silent in ["off", "{ max_ejected: 0 }", &format!("{{ detectors: [{never}] }}")] {
        assert_eq!(first(silent), None, "{silent}");
    }
}

#[test]
fn given_active_checks_when_the_outlook_is_told_then_the_probes_of_each_cluster_and_in_all() {
    let check = |interval: &str| format!("health: {{ passive: off, active: {{ type: tcp, interval: {interval} }} }}");
    let (config, snapshot) = compiled(&format!(
        "{TWO}, {} }}\n  d: {{ destinations: {{ a: \"http://127.0.0.1:1\", b: {{ address: \"http://127.0.0.1:2\", enabled: false }} }}, {}",
        check("500ms"),
        check("15s"),
    ));
    assert_eq!(
        outlook(&config, &snapshot, Instant::now()),
        [
            "c: at worst a request takes 3 attempts and 5m16s",
            "c: destinations must keep idle connections for longer than 1m, or a POST may be lost",
            "c: 2 probes every 500ms, 4 a second",
            "d: at worst a request takes 3 attempts and 5m16s",
            "d: 1 probe every 15s, 4 a minute",
            "probes of this instance in all: 4.1 a second"
        ]
    );
}

#[test]
fn given_a_breaker_when_the_outlook_is_told_then_the_failure_that_opens_it() {
    let told = |health: &str| {
        let (config, snapshot) = compiled(&format!("{TWO}, health: {{ {health} }}"));
        let lines = outlook(&config, &snapshot, Instant::now());
        lines.into_iter().filter(|line| line.contains("failure")).collect::<Vec<_>>()
    };
    let share = "c: the breaker of a dead destination opens at the 10th failure within 10s, later where good answers came before";
    assert_eq!(told("passive: off, breaker: {}"), [share]);
    let number = "passive: off, breaker: { threshold: 3, window: 1m, count: \"5xx\" }";
    assert_eq!(told(number), ["c: the breaker of a failing destination opens at the 3rd counted failure within 1m"]);
    let both = told("breaker: { minimum_requests: 1 }");
    assert_eq!(both[0], "c: a dead destination is out at the 5th failure in a row at the latest");
    assert!(both[1].contains("at the 1st failure within 10s"), "{both:?}");
}

/// What destinations must do, with these routes.
fn kept(routes: &str, cluster: &str) -> Option<String> {
    let (config, snapshot) = testing::compiled(&format!(
        "listeners: {{ web: \"127.0.0.1:1\" }}\nroutes: {{ {routes} }}\nclusters: {{ c: {{ {TWO}, {cluster} }}, d: {{ {ONE} }} }}\n"
    ));
    let lines = outlook(&config, &snapshot, Instant::now());
    lines.iter().find_map(|line| line.strip_prefix("c: destinations must keep ").map(str::to_owned))
}

#[test]
fn given_idle_connections_when_the_outlook_is_told_then_what_destinations_must_do_where_a_request_could_be_lost() {
    let any = "r: { cluster: c }";
    let longer =
        |than: &str, method: &str| Some(format!("idle connections for longer than {than}, or a {method} may be lost"));
    let idle = |time: &str| format!("connection: {{ idle_timeout: {time} }}");
    assert_eq!(kept(any, &idle("5s")), longer("5s", "POST"));
    assert_eq!(kept(any, &idle("4999ms")), None);
    let routes =
        "r: { match: { methods: [PUT] }, cluster: c }, s: { match: { methods: [PATCH], path: /s }, cluster: c }";
    assert_eq!(kept(routes, "retry: off"), longer("1m", "PATCH"));
    assert_eq!(kept("r: { match: { methods: [PUT] }, cluster: c }, s: { match: { path: /s }, cluster: d }", ""), None);
    // Sent twice, as it says.
    assert_eq!(kept("r: { match: { methods: POST }, cluster: c }", "retry: { methods: POST }"), None);
    assert_eq!(
        kept("r: { match: { methods: POST }, cluster: c }", "retry: { methods: POST, on: connect }"),
        longer("1m", "POST")
    );
    assert_eq!(kept(any, "request: { version: 2, version_policy: Exact }"), None);
}

/// What a request comes to at worst, with these routes.
fn worst(routes: &str, cluster: &str) -> String {
    let text = format!(
        "listeners: {{ web: \"127.0.0.1:1\" }}\nroutes: {{ {routes} }}\nclusters: {{ c: {{ {cluster} }}, d: {{ {ONE} }} }}\n"
    );
    let (config, snapshot) = testing::compiled(&text);
    let lines = outlook(&config, &snapshot, Instant::now());
    let said = lines.iter().find_map(|line| line.strip_prefix("c: at worst a request takes "));
    said.unwrap_or_else(|| panic!("{lines:?}")).to_owned()
}

#[test]
fn given_retries_when_the_outlook_is_told_then_the_most_attempts_and_their_longest_times_and_pauses() {
    let worst = |retry: &str| worst("r: { cluster: c }", &format!("{TWO}, {retry}"));
    // 5s to connect, 100s to the head.
    assert_eq!(worst("retry: off"), "1 attempt and 1m45s");
    assert_eq!(worst("retry: { attempts: 1 }"), "1 attempt and 1m45s");
    assert_eq!(worst("retry: { attempts: 2 }"), "2 attempts and 3m30s");
    assert_eq!(worst("retry: { delay: { initial: 2s, max: 2s } }"), "3 attempts and 5m17s");
    assert_eq!(worst("retry: { delay: 10ms, attempt_timeout: 2s }"), "3 attempts and 6s20ms");
    assert_eq!(worst("retry: { attempts: 2, attempt_timeout: 1h }"), "2 attempts and 3m30s");
    // A second each is waited where a destination asks for it, unless none is asked twice.
    assert_eq!(worst("retry: { delay: 0s, on: \"503\", attempt_timeout: 2s }"), "3 attempts and 8s");
    assert_eq!(worst("retry: { delay: 0s, on: \"503\", attempt_timeout: 2s, repeat: false }"), "2 attempts and 4s");
    // For a place, to connect, to the head; once in line.
    let limited = "retry: off, connection: { max_connections: 1 }, queue: { deadline: 7s }";
    assert_eq!(worst(limited), "1 attempt and 1m57s");
    let limited = "retry: { attempts: 1, attempt_timeout: 6s }, connection: { max_connections: 1 }";
    assert_eq!(worst(limited), "1 attempt and 10s");
}

#[test]
fn given_failovers_when_the_outlook_is_told_then_each_so_often_after_the_primaries() {
    let over = |port| format!("f{port}: {{ address: \"http://127.0.0.1:{port}\", role: failover }}");
    let worst = |more: &str| {
        let destinations = format!("p: \"http://127.0.0.1:1\", {}, {}", over(2), over(3));
        worst(
            "r: { cluster: c }",
            &format!("destinations: {{ {destinations} }}, request: {{ activity_timeout: 5s }}, {more}"),
        )
    };
    assert_eq!(worst("retry: { delay: 0s }"), "3 attempts, 2 more at failovers, and 50s");
    let twice = "failover: { attempts_per_destination: 2 }, retry: { delay: 2s }";
    // Before either further attempt at a primary, and at the same failover.
    assert_eq!(worst(twice), "3 attempts, 4 more at failovers, and 1m18s");
    assert_eq!(worst("failover: off, retry: { delay: 0s }"), "3 attempts and 30s");
    assert_eq!(worst("retry: off"), "1 attempt and 10s");
}

#[test]
fn given_timeouts_of_routes_when_all_that_lead_there_have_one_then_the_longest_cuts() {
    let worst = |routes: &str| worst(routes, &format!("{TWO}, retry: off"));
    let split = "split: [{ cluster: d, weight: 1 }, { cluster: c, weight: 1 }]";
    assert_eq!(worst("r: { cluster: c, timeout: 30s }"), "1 attempt and 1m45s, which its routes cut to 30s");
    assert_eq!(
        worst(&format!("r: {{ cluster: c, timeout: 30s }}, s: {{ match: {{ path: /s }}, timeout: 40s, {split} }}")),
        "1 attempt and 1m45s, which its routes cut to 40s"
    );
    assert_eq!(
        worst(&format!("r: {{ cluster: c, timeout: 30s }}, s: {{ match: {{ path: /s }}, {split} }}")),
        "1 attempt and 1m45s"
    );
    assert_eq!(worst("r: { cluster: c, timeout: 105s }, s: { cluster: d }"), "1 attempt and 1m45s");
}

#[test]
fn given_a_route_that_ends_before_the_last_attempt_begins_when_judged_then_it_is_warned_of_by_name() {
    let told = |timeout: &str| {
        let text = format!(
            "listeners: {{ web: \"127.0.0.1:1\" }}\nroutes: {{ long: {{ cluster: c }}, short: {{ match: {{ path: /s }}, cluster: c, timeout: {timeout} }} }}\n\
             clusters:\n  c: {{ {TWO}, retry: {{ on: timeout, delay: 0s, attempt_timeout: 10s }} }}\n"
        );
        let (config, snapshot) = testing::compiled(&text);
        lint(&config, &snapshot).iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let [warning] = &told("20s")[..] else { panic!("one") };
    let begins = "warning[late-retries]: the last attempt may begin only after 20s: route short ends after 20s; fix: ";
    assert!(warning.starts_with(begins), "{warning}");
    assert_eq!(told("21s"), Vec::<String>::new());
}
