//! The real binary, run on a configuration of the test's own.

use super::{Client, DEADLINE, Origin, Response, eventually, free_port, get, loopback};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::{Arc, Mutex};
use tempfile::TempDir;

const BINARY: &str = env!("CARGO_BIN_EXE_derbent");

/// A running `derbent run`; killed when dropped.
pub struct Edge {
    child: Child,
    directory: TempDir,
    address: SocketAddr,
    admin: SocketAddr,
    stderr: Arc<Mutex<Vec<String>>>,
}

impl Edge {
    /// Runs `yaml` (routes and clusters, as a rule) and returns when it is ready. Where `yaml` has no section of that
    /// name, these are added: `admin` and a listener `web` on ports of their own, `log` at debug, and a `server` that does not watch its file.
    pub async fn start(yaml: &str) -> Edge {
        Edge::start_in(TempDir::new().expect("a temporary directory"), yaml, &[]).await
    }

    /// Before one origin: route `all`, cluster `app`, destination `one`.
    pub async fn before(origin: &Origin) -> Edge {
        Edge::start(&one_destination(&origin.url(), "")).await
    }

    /// As [`Edge::start`], in a directory that may hold more files (certificates), with environment variables.
    pub async fn start_in(directory: TempDir, yaml: &str, environment: &[(&str, &str)]) -> Edge {
        let mut edge = Edge::launch(directory, yaml, environment);
        let admin = edge.admin;
        let mut ended = None;
        eventually(DEADLINE, "derbent is ready", async || {
            ended = edge.child.try_wait().expect("a child of this process");
            ended.is_some() || get(admin, "/ready").await.is_ok_and(|response| response.status == 200)
        })
        .await;
        if let Some(status) = ended {
            panic!("derbent ended with {status} before it was ready");
        }
        edge
    }

    /// As [`Edge::start_in`], without waiting for anything.
    pub fn launch(directory: TempDir, yaml: &str, environment: &[(&str, &str)]) -> Edge {
        let (address, admin) = (loopback(free_port()), loopback(free_port()));
        let file = directory.path().join("derbent.yaml");
        std::fs::write(&file, complete(yaml, address, admin)).expect("writing the configuration");
        let mut child = Command::new(BINARY)
            .args([OsStr::new("run"), OsStr::new("-c"), file.as_os_str()])
            .env_remove("RUST_LOG")
            .envs(environment.iter().copied())
            .stdin(Stdio::null())
            .stdout(File::create(directory.path().join("stdout")).expect("a file for stdout"))
            .stderr(Stdio::piped())
            .spawn()
            .expect("starting derbent");
        let stderr = Arc::new(Mutex::new(Vec::new()));
        let lines = BufReader::new(child.stderr.take().expect("piped above")).lines();
        let kept = stderr.clone();
        // Ends with the child, at the end of its stderr.
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(|line| kept.lock().unwrap().push(line)));
        Edge { child, directory, address, admin, stderr }
    }

    /// The listener `web`.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn admin(&self) -> SocketAddr {
        self.admin
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Where `derbent.yaml` and the other files of the test are, and `stdout`, what it printed.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// A connection to the listener `web`.
    pub async fn connect(&self) -> Client {
        Client::connect(self.address).await
    }

    /// One GET on a connection of its own.
    pub async fn get(&self, path: &str) -> Response {
        get(self.address, path).await.unwrap_or_else(|error| panic!("GET {path}: {error}"))
    }

    /// One GET of the admin listener.
    pub async fn admin_get(&self, path: &str) -> Response {
        get(self.admin, path).await.unwrap_or_else(|error| panic!("GET {path} of the admin listener: {error}"))
    }

    pub async fn metrics(&self) -> String {
        self.admin_get("/metrics").await.text()
    }

    /// The value of the sample whose name and labels are `series`, as `/metrics` writes them.
    pub async fn metric(&self, series: &str) -> Option<f64> {
        let metrics = self.metrics().await;
        metrics.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok())
    }

    /// Waits until [`Edge::metric`] is `value`.
    pub async fn counts(&self, series: &str, value: f64) {
        let mut last = None;
        let began = std::time::Instant::now();
        while began.elapsed() < DEADLINE && last != Some(value) {
            last = self.metric(series).await;
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        assert_eq!(last, Some(value), "{series}");
    }

    pub async fn clusters(&self) -> serde_json::Value {
        self.admin_get("/api/v1/clusters").await.json()
    }

    /// One destination's entry of `/api/v1/clusters`; null when it is not there.
    pub async fn destination(&self, cluster: &str, id: &str) -> serde_json::Value {
        let clusters = self.clusters().await;
        let found = named(&clusters["clusters"], "name", cluster);
        named(&found["destinations"], "id", id).clone()
    }

    /// The lines logged so far.
    pub fn stderr(&self) -> Vec<String> {
        self.stderr.lock().unwrap().clone()
    }

    /// The first line that has all of `words`, when it is there.
    pub async fn logged(&self, words: &[&str]) -> String {
        let mut found = None;
        eventually(DEADLINE, &format!("a log line with {words:?}"), async || {
            found = self.stderr().into_iter().find(|line| words.iter().all(|word| line.contains(word)));
            found.is_some()
        })
        .await;
        found.expect("found above")
    }

    /// Sends a signal by its name: `TERM`, `HUP`.
    pub fn signal(&self, name: &str) {
        let kill = format!("kill -{name} {}", self.pid());
        let status = Command::new("sh").args(["-c", &kill]).status().expect("running sh");
        assert!(status.success(), "{kill}: {status}");
    }

    /// Writes its file anew, completed as at the start; nothing is told of it.
    pub fn write(&self, yaml: &str) {
        let yaml = complete(yaml, self.address, self.admin);
        // A reload that is under way finds one or the other, never half of it.
        let new = self.directory().join("derbent.yaml.new");
        std::fs::write(&new, yaml).expect("writing the configuration");
        std::fs::rename(new, self.directory().join("derbent.yaml")).expect("putting it in place");
    }

    /// Writes its file anew, sends SIGHUP, and waits until it was taken.
    pub async fn reload(&self, yaml: &str) {
        self.hang_up(yaml, "success").await;
    }

    /// As [`Edge::reload`], until it was rejected.
    pub async fn reload_rejected(&self, yaml: &str) {
        self.hang_up(yaml, "rejected").await;
    }

    async fn hang_up(&self, yaml: &str, result: &str) {
        let series = format!("derbent_config_reloads_total{{result=\"{result}\"}}");
        let before = self.metric(&series).await.expect("there from the start");
        self.write(yaml);
        self.signal("HUP");
        self.counts(&series, before + 1.0).await;
    }

    /// How it ended; fails when it does not end by itself.
    pub async fn ended(&mut self) -> ExitStatus {
        let mut status = None;
        eventually(DEADLINE, "derbent ends", async || {
            status = self.child.try_wait().expect("a child of this process");
            status.is_some()
        })
        .await;
        status.expect("ended above")
    }
}

impl Drop for Edge {
    fn drop(&mut self) {
        // Both fail only when it has ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("stderr of derbent:\n{}", self.stderr().join("\n"));
        }
    }
}

/// A configuration whose route `all` leads to cluster `app` with the one destination `one`; `more` are further keys of
/// the cluster, in flow style: `request: { activity_timeout: 1s }`.
pub fn one_destination(address: &str, more: &str) -> String {
    format!(
        "routes: {{ all: {{ cluster: app }} }}\n\
         clusters: {{ app: {{ destinations: {{ one: {{ address: \"{address}\" }} }}, {more} }} }}\n"
    )
}

/// One command that ends by itself (`check`, `version`), with all it printed.
pub async fn derbent(arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Output {
    let directory = TempDir::new().expect("a temporary directory");
    let (out, err) = (directory.path().join("out"), directory.path().join("err"));
    let mut child = Command::new(BINARY)
        .args(arguments)
        .env_remove("RUST_LOG")
        .stdin(Stdio::null())
        .stdout(File::create(&out).expect("a file for stdout"))
        .stderr(File::create(&err).expect("a file for stderr"))
        .spawn()
        .expect("starting derbent");
    let mut status = None;
    let ends = eventually(DEADLINE, "the command ends", async || {
        status = child.try_wait().expect("a child of this process");
        status.is_some()
    });
    ends.await;
    let read = |file| std::fs::read(file).expect("what the command printed");
    Output { status: status.expect("ended above"), stdout: read(out), stderr: read(err) }
}

fn complete(yaml: &str, address: SocketAddr, admin: SocketAddr) -> String {
    let sections = [
        ("listeners:", format!("listeners: {{ web: \"{address}\" }}\n")),
        ("admin:", format!("admin: {{ address: \"{admin}\" }}\n")),
        ("log:", "log: { level: debug }\n".to_owned()),
    ];
    let written = |name: &str| yaml.lines().any(|line| line.starts_with(name));
    let added: String = sections.into_iter().filter(|(name, _)| !written(name)).map(|(_, text)| text).collect();
    // Tests say when it is read again.
    let still = if written("server:") { "" } else { "\nserver: { reload: { watch: false } }\n" };
    added + yaml + still
}

fn named<'a>(list: &'a serde_json::Value, key: &str, value: &str) -> &'a serde_json::Value {
    const NONE: &serde_json::Value = &serde_json::Value::Null;
    list.as_array().and_then(|list| list.iter().find(|entry| entry[key] == value)).unwrap_or(NONE)
}
