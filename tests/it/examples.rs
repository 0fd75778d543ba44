//! What examples/ says of time fits together.

use derbent::Config;
use derbent::config::Drain;
use serde_yaml::Value;
use std::time::Duration;

fn read(file: &str) -> String {
    let path = format!("{}/examples/{file}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn seconds(text: &str) -> Duration {
    Duration::from_secs(text.trim_end_matches('s').parse().expect("seconds"))
}

#[test]
fn given_the_unit_of_systemd_when_read_then_it_waits_longer_than_a_drain_lasts() {
    let unit = read("systemd/derbent.service");
    let value = |key: &str| unit.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('=')).expect("a key");
    assert!(seconds(value("TimeoutStopSec")) > Drain::default().kill);
    assert_eq!((value("Type"), value("NotifyAccess"), value("KillMode")), ("notify", "all", "control-group"));
    // Without something that waits, systemd kills a successor that it tells to stop.
    let stops: Vec<&str> = unit.lines().filter_map(|line| line.strip_prefix("ExecStop=-")).collect();
    assert!(stops.len() == 2 && stops[0].contains("kill -TERM $MAINPID") && stops[1].contains("--pid=${MAINPID}"));
    assert!(value("ExecReload").ends_with("derbent ctl reload"));
}

#[test]
fn given_the_compose_file_when_read_then_it_waits_longer_than_a_drain_lasts() {
    let file: Value = serde_yaml::from_str(&read("docker/compose.yaml")).expect("YAML");
    let gateway = &file["services"]["gateway"];
    assert!(seconds(gateway["stop_grace_period"].as_str().expect("text")) > Drain::default().kill);
    assert_eq!(gateway["deploy"]["update_config"]["order"], "start-first");
}

#[test]
fn given_the_deployment_when_read_then_its_config_loads_and_the_pod_has_time_for_its_drain() {
    let text = read("kubernetes/derbent.yaml");
    let parts: Vec<Value> = text.split("\n---\n").map(|part| serde_yaml::from_str(part).expect("YAML")).collect();
    let file = parts[0]["data"]["derbent.yaml"].as_str().expect("the file");
    let config = Config::parse("derbent.yaml", file).unwrap_or_else(|faults| panic!("{faults}"));
    let (spec, pod) = (&parts[1]["spec"], &parts[1]["spec"]["template"]["spec"]);
    let grace = Duration::from_secs(pod["terminationGracePeriodSeconds"].as_u64().expect("seconds"));
    assert!(grace > config.server.drain.kill);
    let update = &spec["strategy"]["rollingUpdate"];
    assert_eq!((update["maxUnavailable"].as_u64(), update["maxSurge"].as_u64()), (Some(0), Some(1)));
    // Unready is seen well before the listeners close.
    let ready = &pod["containers"][0]["readinessProbe"];
    let seen = ready["periodSeconds"].as_u64().expect("seconds") * ready["failureThreshold"].as_u64().expect("a count");
    assert!(Duration::from_secs(2 * seen) < config.server.drain.close_listeners);
    let mounted = &pod["containers"][0]["volumeMounts"][0];
    assert!(mounted.get("subPath").is_none(), "a ConfigMap's change would not be seen");
}
