//! Twelve kinds of broken configuration, through the real binary: `check` tells every fault with its place, and `run`
//! tells the same and opens nothing. In the cases `‸` marks where a fault must be located; the marks and the faults
//! expected go in step.

use crate::support::{derbent, free_port, loopback};
use std::fmt::Write;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::Output;
use tempfile::TempDir;

/// Key path and words of the message, for each mark.
type Told<'a> = &'a [(&'a str, &'a str)];

/// A file that is fine; a case replaces the line of its own section, or adds one.
const FINE: [(&str, &str); 4] = [
    ("listeners", "listeners: { web: \"WEB\" }"),
    ("admin", "admin: { address: \"ADMIN\" }"),
    ("routes", "routes: { all: { cluster: app } }"),
    ("clusters", "clusters: { app: { destinations: [\"http://127.0.0.1:9\"] } }"),
];

/// A directory with a broken file, whose ports are taken: a `run` that bound before it judged would say so.
struct Broken {
    directory: TempDir,
    listeners: [TcpListener; 2],
}

impl Broken {
    fn new() -> Broken {
        let taken = || TcpListener::bind(loopback(free_port())).expect("a free port");
        Broken { directory: TempDir::new().expect("a temporary directory"), listeners: [taken(), taken()] }
    }

    fn address(&self, index: usize) -> SocketAddr {
        self.listeners[index].local_addr().expect("a bound socket")
    }

    fn file(&self) -> String {
        self.directory.path().join("broken.yaml").display().to_string()
    }

    /// With the addresses filled in.
    fn filled(&self, text: &str) -> String {
        text.replace("WEB", &self.address(0).to_string()).replace("ADMIN", &self.address(1).to_string())
    }

    /// `check` and `run` of these bytes: both exit 1 with one report, whose text is given back.
    async fn report(&self, bytes: &[u8]) -> String {
        std::fs::write(self.file(), bytes).expect("writing the configuration");
        let checked = derbent(["check", "-c", &self.file()]).await;
        let ran = derbent(["run", "-c", &self.file()]).await;
        let report = text(&checked.stderr);
        assert_eq!(checked.status.code(), Some(1), "check of\n{}\n{report}", text(bytes));
        assert_eq!(ran.status.code(), Some(1), "run of\n{}\n{}", text(bytes), text(&ran.stderr));
        assert_eq!(text(&ran.stderr), report, "run tells something else than check");
        assert_eq!(text(&checked.stdout) + &text(&ran.stdout), "");
        assert!(!report.contains("panicked"), "{report}");
        assert!(report.ends_with(" fault\n") || report.ends_with(" faults\n"), "no count at the end of {report:?}");
        report
    }

    /// A whole file with marks.
    async fn tells(&self, marked: &str, told: Told<'_>) {
        let marked = self.filled(marked);
        let report = self.report(marked.replace('‸', "").as_bytes()).await;
        let marks = marks(&marked);
        assert_eq!(marks.len(), told.len(), "marks and faults of\n{marked}");
        for ((line, column), (path, words)) in marks.into_iter().zip(told) {
            let colon = if path.is_empty() { "" } else { ": " };
            let start = format!("{}:{line}:{column}: {path}{colon}", self.file());
            let found = report.lines().find(|it| it.starts_with(&start) && it.contains(words));
            assert!(found.is_some(), "no `{start}… {words}` for\n{marked}\nin\n{report}");
        }
        let count = told.len();
        let end = format!("\n{count} {}\n", if count == 1 { "fault" } else { "faults" });
        assert!(report.ends_with(&end), "not {end:?} for\n{marked}\nin\n{report}");
    }
}

/// Each case is a section that replaces the fine one of its name.
async fn all_told(cases: &[(&str, Told<'_>)]) {
    let broken = Broken::new();
    for (section, told) in cases {
        broken.tells(&with(section), told).await;
    }
}

fn with(section: &str) -> String {
    let name = section.trim_start_matches('‸').split(':').next().unwrap_or_default();
    let others = FINE.iter().filter(|(other, _)| *other != name);
    others.fold(String::new(), |text, (_, line)| text + line + "\n") + section + "\n"
}

/// Line and column of each mark, as if the marks were not there.
fn marks(text: &str) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let before: Vec<usize> = line.split('‸').map(|part| part.chars().count()).collect();
        let ends = before[..before.len() - 1].iter().scan(0, |sum, part| {
            *sum += part;
            Some(*sum)
        });
        found.extend(ends.map(|column| (number + 1, column + 1)));
    }
    found
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[tokio::test]
async fn given_the_fine_file_when_checked_then_no_fault() {
    let broken = Broken::new();
    std::fs::write(broken.file(), broken.filled(&with("version: 1"))).unwrap();
    let Output { status, stdout, stderr } = derbent(["check", "-c", &broken.file()]).await;
    assert_eq!((status.code(), text(&stderr).as_str()), (Some(0), ""));
    assert!(text(&stdout).contains("is fine: 1 listener, 1 route, 1 cluster, 1 destination"), "{}", text(&stdout));
}

#[tokio::test]
async fn given_an_unknown_key_when_checked_then_its_place_and_the_nearest() {
    all_told(&[
        ("‸lisstener: {}", &[("lisstener", "did you mean \"listeners\"?")]),
        ("server: { ‸thread: 2 }", &[("server.thread", "did you mean \"threads\"?")]),
        ("routes:\n  all:\n    cluster: app\n    ‸mach: {}", &[("routes.all.mach", "did you mean \"match\"?")]),
        (
            "clusters: { app: { ‸loadBalancing: Random, destinations: [\"http://127.0.0.1:9\"] } }",
            &[("clusters.app.loadBalancing", "did you mean \"load_balancing\"?")],
        ),
        (
            "clusters: { app: { destinations: { a: { address: \"http://127.0.0.1:9\", ‸wieght: 2 } } } }",
            &[("clusters.app.destinations.a.wieght", "did you mean \"weight\"?")],
        ),
        (
            "clusters: { app: { destinations: [\"http://127.0.0.1:9\"], health: { active: { type: http, ‸intervall: 1s } } } }",
            &[("clusters.app.health.active.intervall", "intervall")],
        ),
        (
            "clusters: { app: { destinations: [\"http://127.0.0.1:9\"], load_balancing: { policy: Random, ‸spill_over: 8 } } }",
            &[("clusters.app.load_balancing.spill_over", "unknown key \"spill_over\"")],
        ),
        (
            "clusters: { app: { destinations: [\"http://127.0.0.1:9\"], load_balancing: { policy: Maglev, ‸bounds: 2 } } }",
            &[("clusters.app.load_balancing.bounds", "did you mean \"bound\"?")],
        ),
        (
            "clusters: { app: { destinations: [\"http://127.0.0.1:9\"], load_balancing: { policy: PeakEwma, ‸decy: 5s } } }",
            &[("clusters.app.load_balancing.decy", "did you mean \"decay\"?")],
        ),
        ("access_log: { ‸file: a }", &[("access_log.file", "unknown key \"file\"")]),
        // What a later part of the plan will read is refused until then.
        (
            "clusters: { app: { destinations: [\"http://127.0.0.1:9\"], ‸rate_limit: { percent: 10% } } }",
            &[("clusters.app.rate_limit", "unknown key \"rate_limit\"")],
        ),
    ])
    .await;
}

#[tokio::test]
async fn given_a_duplicate_when_checked_then_the_second_place_and_the_first_line() {
    all_told(&[
        ("server: { zone: a, ‸zone: b }", &[("server.zone", "duplicate key \"zone\"; first at line 5")]),
        ("log: {}\n‸log: {}", &[("log", "first at line 5")]),
        ("listeners:\n  web: \"WEB\"\n  ‸web: \"WEB\"", &[("listeners.web", "first at line 5")]),
        (
            "clusters:\n  app: { destinations: [\"http://127.0.0.1:9\"] }\n  ‸app: { destinations: [\"http://127.0.0.1:9\"] }",
            &[("clusters.app", "first at line 5")],
        ),
        (
            "clusters: { app: { destinations: { a: \"http://127.0.0.1:9\", ‸a: \"http://127.0.0.1:8\" } } }",
            &[("clusters.app.destinations.a", "duplicate key")],
        ),
        (
            "clusters: { app: { destinations: [\"http://127.0.0.1:9\", ‸\"http://127.0.0.1:9\"] } }",
            &[("clusters.app.destinations[1]", "written twice")],
        ),
    ])
    .await;
}

#[tokio::test]
async fn given_a_value_of_another_type_when_checked_then_what_was_expected_and_found() {
    all_told(&[
        ("server: { threads: ‸many }", &[("server.threads", "expected auto, or a number")]),
        ("server: { keepalive_pool: ‸\"12\" }", &[("server.keepalive_pool", "take the quotes away")]),
        ("server: ‸[a]", &[("server", "expected a section of keys; found a list")]),
        ("admin: ‸on", &[("admin", "expected a section of keys; found \"on\"")]),
        ("routes: { all: { cluster: ‸[app] } }", &[("routes.all.cluster", "expected text; found a list")]),
        ("routes: { all: { cluster: app, transforms: ‸/api } }", &[("routes.all.transforms", "expected a list")]),
        (
            "clusters: { app: { destinations: { a: { address: \"http://127.0.0.1:9\", enabled: ‸yes } } } }",
            &[("clusters.app.destinations.a.enabled", "expected true or false; found \"yes\"")],
        ),
        (
            "clusters: { app: { destinations: [\"http://127.0.0.1:9\"], request: { activity_timeout: ‸30 } } }",
            &[("clusters.app.request.activity_timeout", "write 30s or 30ms")],
        ),
        (
            "clusters: { app: { destinations: [\"http://127.0.0.1:9\"], request: { activity_timeout: ‸soon } } }",
            &[("clusters.app.request.activity_timeout", "such as 250ms")],
        ),
    ])
    .await;
}

#[tokio::test]
async fn given_a_number_out_of_range_when_checked_then_the_range() {
    let cluster = |inside: &str| format!("clusters: {{ app: {{ destinations: [\"http://127.0.0.1:9\"], {inside} }} }}");
    let destination = |inside: &str| {
        format!("clusters: {{ app: {{ destinations: {{ a: {{ address: \"http://127.0.0.1:9\", {inside} }} }} }} }}")
    };
    let active = |inside: &str| cluster(&format!("health: {{ active: {{ type: http, {inside} }} }}"));
    let checks = "clusters.app.health.active";
    let broken = Broken::new();
    for (section, path, words) in [
        ("server: { threads: ‸0 }".to_owned(), "server.threads".to_owned(), "1 to 1024"),
        ("server: { threads: ‸1025 }".to_owned(), "server.threads".to_owned(), "1 to 1024"),
        ("server: { keepalive_pool: ‸-1 }".to_owned(), "server.keepalive_pool".to_owned(), "from 0 to 1000000"),
        ("version: ‸2".to_owned(), "version".to_owned(), "expected 1"),
        (
            "routes: { all: { respond: { status: ‸600 } } }".to_owned(),
            "routes.all.respond.status".to_owned(),
            "from 200 to 599",
        ),
        (destination("weight: ‸1001"), "clusters.app.destinations.a.weight".to_owned(), "from 0 to 1000"),
        (destination("max_requests: ‸0"), "clusters.app.destinations.a.max_requests".to_owned(), "from 1 to 1000000"),
        (active("interval: ‸99ms"), format!("{checks}.interval"), "from 100ms to 1h"),
        (active("timeout: ‸11m"), format!("{checks}.timeout"), "from 1ms to 10m"),
        (active("unhealthy_after: ‸0"), format!("{checks}.unhealthy_after"), "from 1 to 1000"),
        (active("jitter: ‸150%"), format!("{checks}.jitter"), "from 0% to 100%"),
        (active("expect: { status: [‸700] }"), format!("{checks}.expect.status[0]"), "100 to 599"),
        (cluster("request: { activity_timeout: ‸25h }"), "clusters.app.request.activity_timeout".to_owned(), "to 24h"),
        (
            cluster("connection: { connect_timeout: ‸99999999999999999999s }"),
            "clusters.app.connection.connect_timeout".to_owned(),
            "expected a duration",
        ),
    ] {
        broken.tells(&with(&section), &[(&path, words)]).await;
    }
}

#[tokio::test]
async fn given_a_name_of_nothing_when_checked_then_the_nearest_and_all_that_are() {
    let cluster = |inside: &str| format!("clusters: {{ app: {{ destinations: [\"http://127.0.0.1:9\"], {inside} }} }}");
    let broken = Broken::new();
    for (section, path, words) in [
        (
            "routes: { all: { cluster: ‸ap } }".to_owned(),
            "routes.all.cluster",
            "unknown cluster \"ap\"; did you mean \"app\"?",
        ),
        ("routes: { all: { cluster: ‸catalog } }".to_owned(), "routes.all.cluster", "only app is known here"),
        (
            "routes: { all: { match: { path: \"/a/{rest}\" }, redirect: { to: ‸\"/b/{rset}\" } } }".to_owned(),
            "routes.all.redirect.to",
            "did you mean \"rest\"?",
        ),
        (cluster("load_balancing: ‸RoundRobbin"), "clusters.app.load_balancing", "did you mean \"RoundRobin\"?"),
        (
            cluster("load_balancing: { policy: ‸Fastest }"),
            "clusters.app.load_balancing.policy",
            "one of: PowerOfTwoChoices, LeastRequests, RoundRobin, Random, FirstAlphabetical, PreferSameZone, LeastRecentlyUsed, PeakEwma, Maglev",
        ),
        (cluster("load_balancing: ‸PreferSameZone"), "clusters.app.load_balancing", "set server.zone"),
        (
            cluster("load_balancing: { policy: Maglev, key: ‸heder:X-User }"),
            "clusters.app.load_balancing.key",
            "unknown key \"heder:X-User\"; did you mean \"header:X-User\"?",
        ),
        (
            cluster("health: { available: ‸HealthyAndUnkown }"),
            "clusters.app.health.available",
            "did you mean \"HealthyAndUnknown\"?",
        ),
        (
            cluster("health: { passive: { detectors: [{ policy: ‸ConsecutiveFailure }] } }"),
            "clusters.app.health.passive.detectors[0].policy",
            "unknown passive detector \"ConsecutiveFailure\"; did you mean \"ConsecutiveFailures\"?",
        ),
        (
            cluster("health: { passive: { detectors: [{ policy: TransportFailureRate, ‸failurerate: 50% }] } }"),
            "clusters.app.health.passive.detectors[0].failurerate",
            "did you mean \"failure_rate\"?",
        ),
        (
            cluster("health: { passive: { count: [‸conect] } }"),
            "clusters.app.health.passive.count[0]",
            "did you mean \"connect\"?",
        ),
        (cluster("health: { initial: ‸probe_first }"), "clusters.app.health.initial", "needs an active check"),
        (cluster("health: { active: { type: ‸htpp } }"), "clusters.app.health.active.type", "did you mean \"http\"?"),
        (cluster("discovery: { type: ‸service }"), "clusters.app.discovery.type", "did you mean \"services\"?"),
        ("log: { level: ‸wran }".to_owned(), "log.level", "did you mean \"warn\"?"),
        ("access_log: { format: ‸jsn }".to_owned(), "access_log.format", "did you mean \"json\"?"),
        (
            "access_log: { template: ‸\"{time} {statuss}\" }".to_owned(),
            "access_log.template",
            "unknown field \"statuss\"; did you mean \"status\"?",
        ),
        ("access_log: { template: ‸\"{time\" }".to_owned(), "access_log.template", "every `{` to be closed by a `}`"),
        ("access_log: { template: ‸\"a\\tb\" }".to_owned(), "access_log.template", "no control characters"),
        (
            "access_log: { format: json, template: ‸\"{time}\" }".to_owned(),
            "access_log.template",
            "in place of `format`",
        ),
        ("server: { zone: ‸\"${DERBENT_TEST_NOT_SET}\" }".to_owned(), "server.zone", "DERBENT_TEST_NOT_SET is not set"),
    ] {
        broken.tells(&with(&section), &[(path, words)]).await;
    }
}

#[tokio::test]
async fn given_a_bad_matcher_when_checked_then_what_is_wrong_with_it() {
    let broken = Broken::new();
    for (matcher, path, words) in [
        ("headers: [‸{ values: [a] }]", "headers[0]", "needs `name`: a header, such as X-Tenant"),
        ("headers: [{ name: ‸\"\", values: [a] }]", "headers[0].name", "expected text"),
        ("headers: [{ name: ‸\"X Tenant\", values: [a] }]", "headers[0].name", "expected a header's name"),
        ("headers: [{ name: ‸host, values: [a] }]", "headers[0].name", "write it under `hosts`"),
        ("headers: [‸{ name: X-Tenant }]", "headers[0].values", "needs at least one, such as `[acme]`"),
        ("headers: [{ name: X-Tenant, values: ‸[] }]", "headers[0].values", "needs at least one"),
        ("headers: [{ name: x, mode: Exists, values: ‸[a] }]", "headers[0].values", "Exists looks at no values"),
        ("headers: [{ name: x, mode: NotExists, values: ‸a }]", "headers[0].values", "NotExists looks at no values"),
        ("headers: [{ name: x, mode: ‸NotExist }]", "headers[0].mode", "did you mean \"NotExists\"?"),
        ("headers: [{ name: x, values: [a], ‸case: true }]", "headers[0].case", "unknown key \"case\""),
        ("headers: [{ name: x, values: [a], case_sensitive: ‸1 }]", "headers[0].case_sensitive", "true or false"),
        ("headers: ‸{ name: x, values: [a] }", "headers", "expected a list"),
        ("query: [‸{ values: [a] }]", "query[0]", "needs `name`: a query parameter"),
        ("query: [{ name: p, mode: ‸NotExists }]", "query[0].mode", "did you mean \"Exists\"?"),
        ("query: [{ name: p, mode: Contains, values: [‸\"\"] }]", "query[0].values[0]", "expected text"),
        ("client_ip: [‸10.0.0.1/8]", "client_ip[0]", "begins at 10.0.0.0; write 10.0.0.0/8"),
        ("client_ip: ‸localhost", "client_ip", "expected an address or a range"),
    ] {
        let section = format!("routes: {{ all: {{ match: {{ {matcher} }}, cluster: app }} }}");
        broken.tells(&with(&section), &[(&format!("routes.all.match.{path}"), words)]).await;
    }
    all_told(&[(
        "routes: { all: { match: { query: [‸‸~] }, cluster: app } }",
        &[("routes.all.match.query[0]", "needs `name`"), ("routes.all.match.query[0].values", "at least one")],
    )])
    .await;
}

#[tokio::test]
async fn given_a_bad_path_when_checked_then_what_is_wrong_with_it() {
    let broken = Broken::new();
    for (path, words) in [
        ("api", "/"),
        ("/a//b", "between two slashes"),
        ("/{", "fills its segment"),
        ("/{a}/{a}", "names two parameters"),
        ("/{**rest}/x", "last"),
        ("/{*rest}", "{**name}"),
        ("/*", "{**rest}"),
        ("/a?b", "no query"),
        ("/%zz", "%XX"),
        ("/bücher", "%XX"),
    ] {
        let section = format!("routes: {{ all: {{ match: {{ path: ‸\"{path}\" }}, cluster: app }} }}");
        broken.tells(&with(&section), &[("routes.all.match.path", words)]).await;
    }
    all_told(&[
        (
            "routes: { all: { cluster: app, transforms: [{ path_remove_prefix: ‸api }] } }",
            &[("routes.all.transforms[0].path_remove_prefix", "found \"api\"")],
        ),
        (
            "clusters: { app: { destinations: [\"http://127.0.0.1:9\"], health: { active: { type: http, path: ‸health } } } }",
            &[("clusters.app.health.active.path", "starts with /")],
        ),
    ])
    .await;
}

#[tokio::test]
async fn given_a_bad_url_or_address_when_checked_then_what_was_expected() {
    let broken = Broken::new();
    for (url, words) in [
        ("127.0.0.1:9", "such as http://"),
        ("ftp://x", "expected http:// or https://"),
        ("http://", "host name or IP address"),
        ("http://x:70000", "port from 1 to 65535"),
        ("http://1.2.3.400", "IPv4"),
        ("http://[::g]", "IPv6"),
        ("http://u:p@127.0.0.1", "no user or password"),
        ("http://127.0.0.1/?q=1", "no query"),
        ("http://a b", "letters, digits"),
    ] {
        let section = format!("clusters: {{ app: {{ destinations: [‸\"{url}\"] }} }}");
        broken.tells(&with(&section), &[("clusters.app.destinations[0]", words)]).await;
    }
    all_told(&[
        ("listeners: { web: ‸localhost }", &[("listeners.web", "IP address with a port")]),
        ("listeners: { web: ‸\":8080\" }", &[("listeners.web", "IP address with a port")]),
        ("listeners: { web: ‸\"127.0.0.1:0\" }", &[("listeners.web", "IP address with a port")]),
        ("listeners: { web: \"WEB\", two: ‸\"WEB\" }", &[("listeners.two", "listener `web` has this address already")]),
        ("admin: { address: ‸\"0.0.0.0:5390\" }", &[("admin.address", "token_file")]),
        (
            "clusters: { app: { destinations: { a: { address: \"http://127.0.0.1:9\", host: ‸\"a/b\" } } } }",
            &[("clusters.app.destinations.a.host", "letters, digits")],
        ),
        ("routes: { all: { match: { hosts: [‸\"a.*.b\"] }, cluster: app } }", &[("routes.all.match.hosts[0]", "`*`")]),
    ])
    .await;
}

#[tokio::test]
async fn given_addresses_that_exclude_each_other_when_checked_then_told_before_anything_is_bound() {
    let port = free_port();
    let broken = Broken::new();
    for (listeners, admin, path, words) in [
        (
            format!("{{ web: \"0.0.0.0:{port}\", two: ‸\"127.0.0.1:{port}\" }}"),
            "ADMIN".to_owned(),
            "listeners.two",
            "listener `web`",
        ),
        (
            format!("{{ web: \"127.0.0.1:{port}\", two: ‸\"[::]:{port}\" }}"),
            "ADMIN".to_owned(),
            "listeners.two",
            "listener `web`",
        ),
        (format!("{{ web: ‸\"127.0.0.1:{port}\" }}"), format!("127.0.0.1:{port}"), "listeners.web", "admin"),
        (format!("{{ web: ‸\"0.0.0.0:{port}\" }}"), format!("127.0.0.1:{port}"), "listeners.web", "admin"),
    ] {
        let file = with(&format!("listeners: {listeners}")).replace("ADMIN", &admin);
        broken.tells(&file, &[(path, words)]).await;
    }
}

#[tokio::test]
async fn given_a_tls_or_token_file_that_will_not_do_when_checked_then_the_key_that_names_it() {
    let broken = Broken::new();
    let own = |name: &str| {
        let made = rcgen::generate_simple_self_signed([name.to_owned()]).expect("a certificate");
        (made.cert.pem(), made.signing_key.serialize_pem())
    };
    let (cert, key) = own("localhost");
    let (_, other_key) = own("localhost");
    let directory = broken.directory.path();
    let hollow = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let files: [(&str, &str); 6] = [
        ("c.pem", &cert),
        ("k.pem", &key),
        ("other.pem", &other_key),
        ("notes.txt", "no PEM\n"),
        ("hollow.pem", hollow),
        ("empty", " \n"),
    ];
    files.into_iter().for_each(|(name, text)| write(directory, name, text));
    std::fs::create_dir(directory.join("folder")).unwrap();
    std::fs::File::create(directory.join("large")).and_then(|file| file.set_len((16 << 20) + 1)).unwrap();

    let listener = |cert: &str, key: &str| {
        format!(
            "listeners: {{ web: {{ address: \"WEB\", tls: {{ certificates: [{{ cert: {cert}, key: {key} }}] }} }} }}"
        )
    };
    let upstream = |tls: &str| {
        format!(
            "clusters: {{ app: {{ destinations: [\"https://127.0.0.1:9\"], connection: {{ tls: {{ {tls} }} }} }} }}"
        )
    };
    const CERT: &str = "listeners.web.tls.certificates[0].cert";
    const KEY: &str = "listeners.web.tls.certificates[0].key";
    for (section, path, words) in [
        (listener("‸none.pem", "k.pem"), CERT, "cannot read"),
        (listener("c.pem", "‸none.pem"), KEY, "cannot read"),
        (listener("‸folder", "k.pem"), CERT, "cannot read"),
        (listener("‸notes.txt", "k.pem"), CERT, "no certificate"),
        (listener("‸k.pem", "k.pem"), CERT, "no certificate"),
        (listener("‸hollow.pem", "k.pem"), CERT, "not X.509"),
        (listener("‸/dev/zero", "k.pem"), CERT, "no regular file"),
        (listener("‸large", "k.pem"), CERT, "larger than"),
        (listener("c.pem", "‸c.pem"), KEY, "no private key"),
        (listener("c.pem", "‸other.pem"), KEY, "do not go together"),
        (upstream("ca: ‸none.pem"), "clusters.app.connection.tls.ca", "cannot read"),
        (upstream("ca: ‸notes.txt"), "clusters.app.connection.tls.ca", "no certificate"),
        (
            upstream("client_cert: c.pem, client_key: ‸other.pem"),
            "clusters.app.connection.tls.client_key",
            "do not go together",
        ),
        ("admin: { address: \"ADMIN\", token_file: ‸none }".to_owned(), "admin.token_file", "cannot read"),
        ("admin: { address: \"ADMIN\", token_file: ‸empty }".to_owned(), "admin.token_file", "is empty"),
        ("admin: { address: \"ADMIN\", token_file: ‸folder }".to_owned(), "admin.token_file", "cannot read"),
        ("admin: { address: \"ADMIN\", token_file: ‸/dev/zero }".to_owned(), "admin.token_file", "no regular file"),
        ("admin: { address: \"ADMIN\", token_file: ‸large }".to_owned(), "admin.token_file", "larger than"),
    ] {
        broken.tells(&with(&section), &[(path, words)]).await;
    }
}

#[tokio::test]
async fn given_bad_yaml_when_checked_then_its_line() {
    let broken = Broken::new();
    for (yaml, line) in [
        ("listeners: { web: \"WEB\"\n", 1),
        ("listeners: [\n", 1),
        ("listeners: \"WEB\n", 1),
        ("routes:\n  a: 1\n b: 2\n", 3),
        ("routes: a: b\n", 1),
        ("routes: *nowhere\n", 1),
        ("routes: !!str x\n", 1),
        ("routes: {}\n---\nroutes: {}\n", 2),
        ("routes: {}\n}\n", 2),
        ("- a\n- b\n", 1),
        ("just words\n", 1),
        ("? [a]\n: b\n", 1),
    ] {
        located(&broken, yaml.as_bytes(), line).await;
    }
    let deep = "[".repeat(100_000);
    located(&broken, deep.as_bytes(), 1).await;
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for i in 1..12 {
        writeln!(bomb, "a{i}: &a{i} [{}]", vec![format!("*a{}", i - 1); 10].join(", ")).unwrap();
    }
    let report = broken.report(bomb.as_bytes()).await;
    assert!(report.contains("grows beyond"), "{report}");
}

#[tokio::test]
async fn given_a_tab_when_checked_then_its_line() {
    let broken = Broken::new();
    for (yaml, line) in [
        ("routes:\n\tall: { cluster: app }\n", 2),
        ("routes:\n  all:\n\t  cluster: app\n", 3),
        ("routes:\n  - a\n\t- b\n", 3),
    ] {
        let report = located(&broken, yaml.as_bytes(), line).await;
        assert!(report.to_lowercase().contains("tab"), "{report}");
    }
}

#[tokio::test]
async fn given_an_empty_file_when_checked_then_what_it_should_hold() {
    let broken = Broken::new();
    for yaml in ["", "\n\n", "# nothing\n", "---\n", "~\n", "\u{feff}"] {
        let report = broken.report(yaml.as_bytes()).await;
        assert!(report.contains("the file is empty; expected sections"), "{yaml:?}: {report}");
        assert!(report.starts_with(&format!("{}:", broken.file())), "{yaml:?}: {report}");
    }
    for yaml in ["{}\n", "listeners:\nroutes:\n"] {
        let report = broken.report(yaml.as_bytes()).await;
        for section in ["listeners", "routes"] {
            assert!(report.contains(&format!(": {section}: needs at least one")), "{yaml:?}: {report}");
        }
    }
}

#[tokio::test]
async fn given_a_binary_file_when_checked_then_a_place_and_no_panic() {
    let broken = Broken::new();
    let itself = std::fs::read(env!("CARGO_BIN_EXE_derbent")).expect("the binary under test");
    let mut random = fastrand::Rng::with_seed(7);
    let noise: Vec<u8> = (0..4096).map(|_| random.u8(..)).collect();
    let files: [&[u8]; 7] = [
        &itself[..64 << 10],
        &noise,
        b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03",
        b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR",
        b"\xff\xfer\x00o\x00u\x00t\x00e\x00s\x00",
        b"routes: \xc3\x28\n",
        b"\x00\x00\x00\x00",
    ];
    for bytes in files {
        let report = broken.report(bytes).await;
        assert!(report.starts_with(&format!("{}:1:", broken.file())) || bytes == noise, "{report}");
        assert!(report.bytes().all(|b| b == b'\n' || b >= b' '), "unescaped control bytes: {report:?}");
    }
}

#[tokio::test]
async fn given_faults_of_every_stage_when_checked_then_one_report_in_the_order_of_the_file() {
    let broken = Broken::new();
    let told = [
        ("lisstener", "did you mean \"listeners\"?"),
        ("server.zone", "duplicate"),
        ("listeners.web.tls.certificates[0].cert", "cannot read"),
        ("listeners.web.tls.certificates[0].key", "cannot read"),
        ("routes.a.match.path", "fills its segment"),
        ("routes.a.cluster", "did you mean \"app\"?"),
        ("clusters.app.load_balancing", "did you mean \"RoundRobin\"?"),
        ("clusters.app.destinations[0]", "port from 1 to 65535"),
        ("clusters.app.health.active.type", "did you mean \"tcp\"?"),
        ("clusters.app.health.active.interval", "from 100ms"),
    ];
    let file = "‸lisstener: {}
server: { zone: a, ‸zone: b }
listeners: { web: { address: \"WEB\", tls: { certificates: [{ cert: ‸none.pem, key: ‸none.key }] } } }
routes:
  a: { match: { path: ‸\"/{\" }, cluster: ‸ap }
clusters:
  app:
    load_balancing: ‸RoundRobbin
    destinations: [‸\"http://x:0\"]
    health: { active: { type: ‸tpc, interval: ‸1ms } }
";
    broken.tells(file, &told).await;
    let report = broken.report(broken.filled(&file.replace('‸', "")).as_bytes()).await;
    let places: Vec<usize> = told.iter().map(|(path, _)| report.find(&format!(" {path}: ")).expect("told")).collect();
    assert!(places.is_sorted(), "{report}");
}

#[tokio::test]
async fn given_faults_in_included_files_when_checked_then_each_in_its_own_file() {
    let broken = Broken::new();
    let directory = broken.directory.path();
    write(directory, "a.yaml", "routes: { all: { cluster: ap } }\n");
    write(
        directory,
        "b.yaml",
        "clusters: { app: { destinations: [\"http://127.0.0.1:9\"], load_balancing: Randon } }\n",
    );
    let report = broken
        .report(broken.filled("include: [a.yaml, b.yaml]\nlisteners: { web: \"WEB\" }\nlog: 5\n").as_bytes())
        .await;
    for place in
        ["a.yaml:1:27: routes.all.cluster: ", "b.yaml:1:74: clusters.app.load_balancing: ", "broken.yaml:3:6: log: "]
    {
        assert!(report.contains(&format!("/{place}")), "{place} in\n{report}");
    }
    for (yaml, words) in [
        ("include: none.yaml\n", "cannot read"),
        ("include: broken.yaml\n", "includes itself"),
        ("include: \"[\"\n", "no file pattern"),
    ] {
        let report = broken.report(yaml.as_bytes()).await;
        assert!(report.contains("broken.yaml:1:10: include: ") && report.contains(words), "{report}");
    }
}

#[tokio::test]
async fn given_a_pipe_socket_device_or_directory_where_a_file_should_be_when_checked_then_a_fault_and_no_wait() {
    let broken = Broken::new();
    let at = |name: &str| broken.directory.path().join(name);
    assert!(std::process::Command::new("mkfifo").arg(at("pipe")).status().expect("mkfifo of coreutils").success());
    let _socket = std::os::unix::net::UnixListener::bind(at("socket")).expect("bound");
    std::os::unix::fs::symlink("/dev/zero", at("zero")).expect("a link");
    std::fs::create_dir(at("directory")).expect("a directory");
    let lines = "listeners: { web: \"WEB\" }\nroutes: { all: { respond: {} } }\n";
    let secure = "listeners: { web: { address: \"WEB\", tls: { certificates: [{ cert: FILE, key: FILE }] } } }\nroutes: { all: { respond: {} } }\n";
    for (file, is) in [("pipe", "a pipe"), ("socket", "a socket"), ("zero", "a device"), ("directory", "a directory")] {
        for (yaml, place) in [
            (format!("{lines}include: FILE\n"), ":3:10: include: "),
            (format!("{lines}include: \"FILE*\"\n"), ":3:10: include: "),
            (format!("{lines}admin: {{ address: \"ADMIN\", token_file: FILE }}\n"), "admin.token_file: "),
            (secure.to_owned(), "tls.certificates[0].cert: "),
            (secure.to_owned(), "tls.certificates[0].key: "),
        ] {
            let report = broken.report(broken.filled(&yaml.replace("FILE", file)).as_bytes()).await;
            let told = report.lines().find(|line| line.contains(place) && line.contains(is));
            assert!(told.is_some_and(|line| line.contains("is no regular file")), "{yaml} {file}: {report}");
        }
    }
}

#[tokio::test]
async fn given_a_name_that_no_log_line_can_hold_when_checked_then_a_fault() {
    let broken = Broken::new();
    let told = ("server.name", "printable characters only; found \"gw\\nWARN\"");
    broken.tells(&with("server: { name: ‸\"gw\\nWARN\" }"), &[told]).await;
}

/// One fault at that line of the file.
async fn located(broken: &Broken, bytes: &[u8], line: usize) -> String {
    let report = broken.report(bytes).await;
    let start = format!("{}:{line}:", broken.file());
    let shown: String = text(bytes).chars().take(80).collect();
    assert!(report.starts_with(&start), "not at line {line} of\n{shown}\n{report}");
    report
}

fn write(directory: &Path, name: &str, text: &str) {
    std::fs::write(directory.join(name), text).expect("a file in a temporary directory");
}
