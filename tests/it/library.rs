//! The crate as a library: a policy of the user's own, through the door that the binary comes by.

#[path = "../../examples/custom_policy.rs"]
mod custom_policy;

use crate::support::{Client, DEADLINE, Origin, eventually, free_port, get, loopback, one_destination};
use derbent::affinity::{Affinity, Answer, Recall};
use derbent::model::{Dice, RequestView};
use derbent::runtime::{Arm, NoDestination, Session, Snapshot, Trail, draw, first};
use derbent::{Config, Derbent, Problems, Registry};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

/// A configuration whose cluster `app` has three destinations and this policy.
fn config(policy: &str) -> Config {
    let yaml = format!(
        "listeners: {{ web: \"127.0.0.1:1\" }}
routes: {{ all: {{ cluster: app }} }}
clusters:
  app:
    load_balancing: {policy}
    destinations: {{ a: \"http://127.0.0.1:2\", b: \"http://127.0.0.1:3\", c: \"http://127.0.0.1:4\" }}
"
    );
    Config::parse("library.yaml", &yaml).unwrap_or_else(|faults| panic!("{faults}"))
}

fn check(policy: &str, registry: Registry) -> Result<Snapshot, Problems> {
    Derbent::from_config(config(policy)).registry(registry).check()
}

fn faults(policy: &str, registry: Registry) -> String {
    check(policy, registry).err().expect("a fault").to_string()
}

/// Where a request for `path` goes, when those of `tried` have been.
fn destination(snapshot: &Snapshot, path: &str, trail: &mut Trail) -> Result<String, NoDestination> {
    let cluster = snapshot.cluster("app").expect("it is configured");
    let (method, headers) = (&Method::GET, &HeaderMap::new());
    let request = RequestView { method, host: "h", port: None, path, query: None, headers, client_ip: None };
    let drawn = draw(cluster, Arm::Primary, request, trail, Instant::now(), &mut Dice::with_seed(1))?;
    trail.took(cluster, &drawn.member);
    Ok(drawn.member.destination.id.clone())
}

#[test]
fn given_a_policy_of_the_users_own_when_registered_then_a_file_can_name_it_and_it_decides() {
    let snapshot =
        check("{ policy: SamePath, segments: 2 }", custom_policy::registry()).unwrap_or_else(|f| panic!("{f}"));
    let first = |path: &str| destination(&snapshot, path, &mut Trail::default()).expect("one is available");
    let paths: Vec<String> = (0..60).map(|n| format!("/books/{n}")).collect();
    for path in &paths {
        assert_eq!(first(path), first(&format!("{path}/pages/1")), "{path}");
    }
    for id in ["a", "b", "c"] {
        assert!(paths.iter().any(|path| first(path) == id), "{id} gets no path");
    }
    let mut trail = Trail::default();
    let mut in_turn: Vec<String> =
        (0..3).map(|_| destination(&snapshot, "/books/1", &mut trail).expect("one is left")).collect();
    in_turn.sort();
    assert_eq!(in_turn, ["a", "b", "c"]);
    assert!(destination(&snapshot, "/books/1", &mut trail).is_err());
}

#[test]
fn given_a_policy_of_the_users_own_when_its_keys_are_wrong_then_faults_with_their_place() {
    let faults = |policy| faults(policy, custom_policy::registry());
    let told = faults("{ policy: SamePath, segment: 2 }");
    assert!(told.starts_with("library.yaml:5:41: clusters.app.load_balancing.segment: unknown key"), "{told}");
    assert!(told.contains("did you mean \"segments\"?"), "{told}");
    let told = faults("{ policy: SamePath, segments: 17 }");
    assert!(told.contains("clusters.app.load_balancing.segments: expected a whole number from 1 to 16"), "{told}");
    let told = faults("SamePaths");
    assert!(told.contains("did you mean \"SamePath\"?") && told.contains(", SamePath\n"), "{told}");
}

#[test]
fn given_a_policy_that_is_not_registered_when_named_then_a_fault_as_for_any_other() {
    let told = faults("SamePath", Registry::builtin());
    assert!(told.contains("library.yaml:5:21: clusters.app.load_balancing: unknown load balancing policy"), "{told}");
}

/// Binds by a header that names the destination, behind a word of the operator's.
struct Plain {
    ids: Vec<String>,
    prefix: String,
}

impl Affinity for Plain {
    fn recall(&self, request: &RequestView<'_>) -> Recall {
        let Some(key) = request.headers.get("x-home").and_then(|key| key.to_str().ok()) else { return Recall::Unset };
        let index = key.strip_prefix(&self.prefix).and_then(|id| self.ids.iter().position(|known| known == id));
        index.map_or(Recall::Unknown, Recall::Bound)
    }

    fn remember(&self, index: usize, _: &Answer) -> Option<(HeaderName, HeaderValue)> {
        let key = format!("{}{}", self.prefix, self.ids.get(index)?);
        Some((HeaderName::from_static("x-home"), HeaderValue::try_from(key).ok()?))
    }

    fn withhold(&self, headers: &HeaderMap) -> Option<(HeaderName, Option<HeaderValue>)> {
        headers.contains_key("x-home").then(|| (HeaderName::from_static("x-home"), None))
    }
}

#[test]
fn given_a_way_to_bind_sessions_of_the_users_own_when_registered_then_a_file_can_name_it_and_it_decides() {
    let registry = Registry::builtin().with_affinity("Plain", |params, scope| {
        let prefix = params.text("prefix").map(|prefix| prefix.value).unwrap_or_default();
        Box::new(Plain { ids: scope.ids.to_vec(), prefix })
    });
    let check = |more: &str| {
        let policy = format!("Random\n    session_affinity: {{ policy: Plain, key_name: X-Home{more} }}");
        check(&policy, registry.clone())
    };
    let snapshot = check(", prefix: at-").unwrap_or_else(|faults| panic!("{faults}"));
    let cluster = snapshot.cluster("app").expect("it is configured");
    let headers: HeaderMap =
        std::iter::once((HeaderName::from_static("x-home"), HeaderValue::from_static("at-b"))).collect();
    let request = RequestView {
        method: &Method::GET,
        host: "h",
        port: None,
        path: "/",
        query: None,
        headers: &headers,
        client_ip: None,
    };
    for _ in 0..20 {
        let first = first(cluster, None, request, &mut Trail::default(), Instant::now(), &mut Dice::with_seed(1));
        assert_eq!(first.session, Some(Session::Kept(1)));
        assert_eq!(first.drawn.map(|drawn| drawn.member.destination.id.clone()), Ok("b".to_owned()));
    }
    let told = check(", prefx: at-").err().expect("a fault").to_string();
    assert!(told.contains("session_affinity.prefx: unknown key \"prefx\"; did you mean \"prefix\"?"), "{told}");
}

/// Names the file of [`serve`].
const FILE: &str = "DERBENT_TEST_LIBRARY_FILE";

/// A program of the user's own: this test binary, started by the test below.
#[test]
#[ignore = "serves until it is killed; the test below starts it in a process of its own"]
fn serve() {
    let file = std::env::var_os(FILE).expect("the file to serve");
    let config = Config::load(file.as_ref()).unwrap_or_else(|faults| panic!("{faults}"));
    Derbent::from_config(config).registry(custom_policy::registry()).run().unwrap_or_else(|error| panic!("{error}"));
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_program_of_the_users_own_when_it_runs_then_requests_go_where_its_policy_says() {
    let origins = [Origin::named("a").await, Origin::named("b").await, Origin::named("c").await];
    let [a, b, c] = origins.each_ref().map(Origin::url);
    let (web, _program, _directory) = program(&format!(
        "routes: {{ all: {{ cluster: app }} }}
clusters: {{ app: {{ load_balancing: SamePath, destinations: [\"{a}\", \"{b}\", \"{c}\"] }} }}
"
    ))
    .await;
    let mut client = Client::connect(loopback(web)).await;
    let mut homes = std::collections::BTreeSet::new();
    for n in 0..30 {
        let mut home = std::collections::BTreeSet::new();
        for page in 0..3 {
            home.insert(client.get(&format!("/{n}/{page}"), "").await.unwrap().text());
        }
        assert_eq!(home.len(), 1, "/{n} went to {home:?}");
        homes.extend(home);
    }
    assert_eq!(homes.len(), 3, "{homes:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_program_of_the_users_own_when_it_is_told_to_end_then_it_goes_on_as_soon_as_nothing_is_left_to_wait_for()
 {
    let origin = Origin::named("one").await;
    let drains = "server: { drain: { close_listeners: 0s, end: 10m, kill: 11m } }\n";
    let (web, mut program, _directory) = program(&(drains.to_owned() + &one_destination(&origin.url(), ""))).await;
    assert_eq!(get(loopback(web), "/").await.expect("an answer").text(), "one");
    let told = Command::new("kill").args(["-TERM", &program.0.id().to_string()]).status();
    assert!(told.expect("kill runs").success());
    let mut code = None;
    eventually(DEADLINE, "it ends by itself", async || {
        code = program.0.try_wait().expect("our child");
        code.is_some()
    })
    .await;
    assert_eq!(code.and_then(|code| code.code()), Some(0));
}

/// [`serve`] with `yaml` on a port, and ready.
async fn program(yaml: &str) -> (u16, Killed, tempfile::TempDir) {
    let (web, admin, directory) = (free_port(), free_port(), tempfile::TempDir::new().unwrap());
    let file = directory.path().join("derbent.yaml");
    let listens = format!("listeners: {{ web: \"127.0.0.1:{web}\" }}\nadmin: {{ address: \"127.0.0.1:{admin}\" }}\n");
    std::fs::write(&file, listens + yaml).unwrap();
    let mut program = Command::new(std::env::current_exe().unwrap());
    program.args(["--ignored", "--exact", "library::serve"]).env(FILE, &file);
    let program = Killed(program.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    eventually(DEADLINE, "ready", async || get(loopback(admin), "/ready").await.is_ok_and(|it| it.status == 200)).await;
    (web, program, directory)
}

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // Both fail only when it has ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
