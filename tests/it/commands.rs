//! The commands as a shell sees them: what they print, where, and their exit codes.

use crate::support::{
    Answer, Client, DEADLINE, Edge, Gate, Origin, Step, derbent, eventually, free_port, get, loopback,
};
use std::net::TcpListener;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use tempfile::TempDir;

/// A command that does not end by itself; killed when dropped.
struct Running(Child);

impl Running {
    fn start(arguments: &[&str]) -> Running {
        Running::telling(Stdio::null(), arguments)
    }

    fn telling(stderr: Stdio, arguments: &[&str]) -> Running {
        let mut command = Command::new(env!("CARGO_BIN_EXE_derbent"));
        command.args(arguments).env_remove("RUST_LOG");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr);
        Running(command.spawn().expect("starting derbent"))
    }

    async fn ended(&mut self) -> ExitStatus {
        let mut status = None;
        eventually(DEADLINE, "the command ends", async || {
            status = self.0.try_wait().expect("a child of this process");
            status.is_some()
        })
        .await;
        status.expect("ended above")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail only when it has ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Exit code, standard output and standard error.
async fn told(arguments: &[&str]) -> (i32, String, String) {
    let Output { status, stdout, stderr } = derbent(arguments).await;
    (status.code().expect("no signal"), text(&stdout), text(&stderr))
}

fn write(directory: &TempDir, name: &str, yaml: &str) -> String {
    let path = directory.path().join(name);
    std::fs::write(&path, yaml).expect("a file in a temporary directory");
    path.display().to_string()
}

fn minimal(web: u16, admin: u16) -> String {
    format!(
        "listeners: {{ web: \"127.0.0.1:{web}\" }}\nadmin: {{ address: \"127.0.0.1:{admin}\" }}\n\
         routes: {{ ping: {{ respond: {{ body: pong }} }} }}\n"
    )
}

#[tokio::test]
async fn given_no_command_when_run_then_help_with_three_examples_and_0() {
    let (code, out, err) = told(&[]).await;
    assert_eq!((code, err.as_str()), (0, ""));
    let (_, examples) = out.split_once("Examples:").expect("examples");
    let examples: Vec<&str> = examples.lines().filter(|line| line.trim_start().starts_with("derbent ")).collect();
    assert_eq!(examples.len(), 3, "{out}");
    for (line, command) in examples.iter().zip(["demo", "proxy", "run"]) {
        assert!(line.trim_start().starts_with(&format!("derbent {command}")), "{line}");
    }
    for command in ["run", "check", "proxy", "demo", "loadprobe", "healthcheck", "ctl", "schema", "version"] {
        assert!(out.lines().any(|line| line.trim_start().starts_with(command)), "{command} in\n{out}");
        let (code, out, _) = told(&[command, "--help"]).await;
        assert!(code == 0 && out.contains("Usage: derbent "), "{command}: {out}");
    }
}

#[tokio::test]
async fn given_version_when_run_then_ours_and_the_pingora_that_is_locked() {
    let lock = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.lock")).unwrap();
    let (_, after) = lock.split_once("name = \"pingora\"\nversion = \"").expect("pingora is locked");
    let pingora = after.split('"').next().unwrap();
    let expected = format!("derbent {} (pingora {pingora})\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(told(&["version"]).await, (0, expected, String::new()));
    assert_eq!(told(&["--version"]).await.1, format!("derbent {}\n", env!("CARGO_PKG_VERSION")));
}

#[tokio::test]
async fn given_wrong_usage_when_run_then_2_and_a_word_on_standard_error() {
    for arguments in [
        &["rum"][..],
        &["run"],
        &["check"],
        &["run", "-c"],
        &["run", "-c", "a", "b"],
        &["check", "-c", "a", "--jsn"],
        &["proxy", "--listen", "127.0.0.1:1"],
        &["proxy", "--to", "http://127.0.0.1:1"],
        &["healthcheck", "--timeout", "soon"],
        &["healthcheck", "--admin", "nowhere:port"],
        &["demo", "catalog", "--name", "a", "--port", "70000"],
        &["loadprobe"],
    ] {
        let (code, out, err) = told(arguments).await;
        assert!(code == 2 && out.is_empty() && !err.is_empty(), "{arguments:?}: {code} {out}\n{err}");
    }
}

#[tokio::test]
async fn given_a_file_that_cannot_be_read_when_checked_or_run_then_3_and_its_name() {
    let directory = TempDir::new().unwrap();
    let folder = directory.path().display().to_string();
    for file in [&format!("{folder}/none.yaml"), &folder] {
        for command in [&["check", "-c", file][..], &["run", "-c", file], &["check", "--json", "-c", file]] {
            let (code, out, err) = told(command).await;
            assert_eq!((code, out.as_str()), (3, ""), "{command:?}: {err}");
            assert!(err.starts_with(&format!("cannot read {file}: ")), "{err}");
        }
    }
}

#[tokio::test]
async fn given_a_taken_port_when_run_then_3_and_which_listener_wants_it() {
    let directory = TempDir::new().unwrap();
    let taken = TcpListener::bind(loopback(free_port())).unwrap();
    let port = taken.local_addr().unwrap().port();
    for (yaml, whose) in [(minimal(port, free_port()), "web"), (minimal(free_port(), port), "admin")] {
        let file = write(&directory, "taken.yaml", &yaml);
        assert_eq!(told(&["check", "-c", &file]).await.0, 0);
        let (code, _, err) = told(&["run", "-c", &file]).await;
        assert_eq!(code, 3, "{err}");
        assert!(err.contains(&format!("cannot listen on 127.0.0.1:{port} ({whose}): ")), "{err}");
        assert!(!err.contains("panicked"), "{err}");
    }
}

#[tokio::test]
async fn given_check_json_when_run_then_a_list_on_standard_output_whatever_the_fault() {
    let directory = TempDir::new().unwrap();
    let fine = write(&directory, "fine.yaml", &minimal(1, 2));
    assert_eq!(told(&["check", "--json", "-c", &fine]).await, (0, "[]\n".to_owned(), String::new()));
    for (yaml, line, column, path) in [
        (
            "log: {}\nlisteners: { web: \"127.0.0.1:1\" }\nroutes: { all: { cluster: app } }\n",
            3,
            27,
            "routes.all.cluster",
        ),
        ("routes: {}\n\tx: 1\n", 2, 1, ""),
        ("\u{fffd}: [", 1, 4, ""),
        ("", 1, 1, ""),
    ] {
        let file = write(&directory, "broken.yaml", yaml);
        let (code, out, err) = told(&["check", "--json", "-c", &file]).await;
        assert_eq!((code, err.as_str()), (1, ""), "{yaml:?}");
        let faults: serde_json::Value = serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error} in {out:?}"));
        let fault = &faults[0];
        assert_eq!((&fault["file"], &fault["line"]), (&file.as_str().into(), &line.into()), "{out}");
        assert_eq!((&fault["column"], &fault["path"]), (&column.into(), &path.into()), "{out}");
        assert!(fault["message"].as_str().is_some_and(|message| !message.is_empty()), "{out}");
    }
}

#[tokio::test]
async fn given_a_file_that_check_accepts_when_run_then_it_starts_and_reports_nothing_wrong() {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let origin = Origin::named("app").await;
    let destinations = format!("destinations: [\"{}\"]", origin.url());
    let tls = "listeners: { web: { address: \"WEB\", tls: { certificates: [{ cert: c.pem, key: k.pem }] } } }\n\
               routes: { all: { cluster: app } }\n";
    let plain = "listeners: { web: \"WEB\" }\nroutes: { all: { cluster: app } }\n";
    for (head, cluster) in [
        (plain, destinations.clone()),
        (tls, destinations.clone()),
        (plain, format!("{destinations}, load_balancing: {{ policy: PreferSameZone, spill_over: 8 }}")),
        (plain, format!("{destinations}, health: {{ available: HealthyAndUnknown, active: tcp }}, retry: off")),
        (plain, "destinations: { a: { address: \"https://localhost:1/x\", weight: 0 } }, connection: { tls: { ca: c.pem, client_cert: c.pem, client_key: k.pem } }".to_owned()),
    ] {
        let directory = TempDir::new().unwrap();
        write(&directory, "c.pem", &made.cert.pem());
        write(&directory, "k.pem", &made.signing_key.serialize_pem());
        let (web, admin) = (free_port(), free_port());
        let yaml = format!(
            "server: {{ zone: zone-a }}\nadmin: {{ address: \"127.0.0.1:{admin}\" }}\n{head}clusters: {{ app: {{ {cluster} }} }}\n"
        );
        let file = write(&directory, "derbent.yaml", &yaml.replace("WEB", &format!("127.0.0.1:{web}")));
        let (code, _, err) = told(&["check", "-c", &file]).await;
        assert_eq!((code, err.as_str()), (0, ""), "{yaml}");
        let mut running = Running::start(&["run", "-c", &file]);
        eventually(DEADLINE, "ready", async || {
            assert_eq!(running.0.try_wait().unwrap(), None, "check accepts and run does not:\n{yaml}");
            get(loopback(admin), "/ready").await.is_ok_and(|answer| answer.status == 200)
        })
        .await;
        Client::connect(loopback(web)).await;
    }
}

#[tokio::test]
async fn given_a_file_named_by_the_environment_when_checked_then_it_is_the_one() {
    let directory = TempDir::new().unwrap();
    let file = write(&directory, "fine.yaml", &minimal(1, 2));
    let mut command = Command::new(env!("CARGO_BIN_EXE_derbent"));
    let output = command.arg("check").env("DERBENT_CONFIG", &file).output().unwrap();
    assert_eq!((output.status.code(), text(&output.stdout).starts_with(&file)), (Some(0), true));
}

#[tokio::test]
async fn given_proxy_print_when_checked_then_it_is_a_file_that_passes() {
    let directory = TempDir::new().unwrap();
    for arguments in [
        &["--listen", "127.0.0.1:8080", "--to", "http://127.0.0.1:3000"][..],
        &["--listen", ":8080", "--to", "http://127.0.0.1:3000,https://127.0.0.1:3001/base", "--admin", "off"],
        &["--listen", "[::1]:8080", "--to", "http://[::1]:3000", "--to", "http://localhost:4000"],
    ] {
        let (code, yaml, err) = told(&[&["proxy", "--print"], arguments].concat()).await;
        assert_eq!((code, err.as_str()), (0, ""), "{arguments:?}");
        let file = write(&directory, "printed.yaml", &yaml);
        let (code, out, err) = told(&["check", "-c", &file]).await;
        assert_eq!(code, 0, "{arguments:?}\n{yaml}\n{err}");
        let destinations = arguments.iter().flat_map(|it| it.split(',')).filter(|it| it.contains("//")).count();
        let s = if destinations == 1 { "" } else { "s" };
        assert!(out.contains(&format!("1 listener, 1 route, 1 cluster, {destinations} destination{s}\n")), "{out}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn given_proxy_when_run_then_it_proxies_to_both_and_a_bad_url_is_a_fault() {
    let (one, two) = (Origin::named("one").await, Origin::named("two").await);
    let (web, admin) = (free_port(), free_port());
    let (listen, admin_address) = (format!("127.0.0.1:{web}"), format!("127.0.0.1:{admin}"));
    let to = format!("{},{}", one.url(), two.url());
    let directory = TempDir::new().unwrap();
    let log = directory.path().join("log");
    let stderr = std::fs::File::create(&log).unwrap().into();
    let running = Running::telling(stderr, &["proxy", "--listen", &listen, "--to", &to, "--admin", &admin_address]);
    eventually(DEADLINE, "ready", async || {
        get(loopback(admin), "/ready").await.is_ok_and(|answer| answer.status == 200)
    })
    .await;
    let mut client = Client::connect(loopback(web)).await;
    for _ in 0..200 {
        assert_eq!(client.get("/some%2Fpath?q=1", "").await.unwrap().status, 200);
    }
    assert!(one.hits("/some%2Fpath?q=1") > 0 && two.hits("/some%2Fpath?q=1") > 0);
    let hang_up = format!("kill -HUP {}", running.0.id());
    assert!(Command::new("sh").args(["-c", &hang_up]).status().unwrap().success());
    let warned = async || std::fs::read_to_string(&log).unwrap().contains("there is nothing to read again");
    eventually(DEADLINE, "it is told", warned).await;
    assert_eq!(client.get("/after", "").await.unwrap().status, 200);
    let (code, _, err) = told(&["proxy", "--listen", &listen, "--to", "ftp://x"]).await;
    assert!(code == 1 && err.contains("clusters.app.destinations[0]: expected http://"), "{code} {err}");
}

#[tokio::test(flavor = "multi_thread")]
async fn given_healthcheck_when_run_then_its_code_tells_ready_from_not_yet_from_gone() {
    let hanging = Origin::start(|_| Answer::script([Step::Wait(Gate::closed())])).await;
    let url = hanging.url();
    let yaml = format!(
        "routes: {{ all: {{ cluster: app }} }}\nclusters: {{ app: {{ destinations: [\"{url}\"], health: {{ active: {{ type: http, timeout: 10m }} }} }} }}\n"
    );
    let edge = Edge::launch(TempDir::new().unwrap(), &yaml, &[]);
    eventually(DEADLINE, "the admin listener answers", async || get(edge.admin(), "/health").await.is_ok()).await;
    let admin = edge.admin().to_string();
    let (code, out, err) = told(&["healthcheck", "--admin", &admin, "--timeout", "30s"]).await;
    assert_eq!((code, out.as_str()), (1, ""), "{err}");
    assert!(err.contains("503"), "{err}");
    assert_eq!(told(&["healthcheck", "--admin", &admin, "--timeout", "30s", "--path", "/health"]).await.0, 0);
    drop(edge);
    let (code, out, err) = told(&["healthcheck", "--admin", &admin, "--timeout", "30s"]).await;
    assert_eq!((code, out.as_str()), (3, ""), "{err}");

    let edge = Edge::start("routes: { ping: { respond: { body: pong } } }\n").await;
    let (code, out, err) = told(&["healthcheck", "--admin", &edge.admin().to_string(), "--timeout", "30s"]).await;
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(out.contains("/ready: 200"), "{out}");
    // A listener that takes the connection and says nothing.
    let (code, _, err) = told(&["healthcheck", "--admin", &hanging.address().to_string(), "--timeout", "100ms"]).await;
    assert_eq!(code, 3, "{err}");
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_catalog_of_its_own_when_killed_then_its_connections_are_gone_with_it() {
    let port = free_port();
    let mut catalog = Running::start(&["demo", "catalog", "--name", "catalog-2", "--port", &port.to_string()]);
    let books = async || get(loopback(port), "/books").await;
    eventually(DEADLINE, "the catalog answers", async || books().await.is_ok()).await;
    let answer = books().await.unwrap();
    assert_eq!((answer.status, answer.header("x-catalog-instance")), (200, Some("catalog-2")));
    assert!(answer.json().as_array().is_some_and(|books| !books.is_empty()), "{}", answer.text());
    let mut kept = Client::connect(loopback(port)).await;
    assert_eq!(kept.get("/health", "").await.unwrap().status, 200);
    catalog.0.kill().unwrap();
    let status = catalog.ended().await;
    assert_eq!(status.code(), None, "ended by a signal");
    assert!(kept.get("/health", "").await.is_err());
    assert!(books().await.is_err());
    let taken = TcpListener::bind(loopback(port)).expect("the port is free again");
    let (code, _, err) = told(&["demo", "catalog", "--name", "x", "--port", &port.to_string()]).await;
    drop(taken);
    assert!(code == 3 && !err.is_empty(), "{code} {err}");
}
