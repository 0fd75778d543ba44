//! What examples/ says of time, ports and files fits together, and the commands in it are ones that there are.

use crate::support::derbent;
use derbent::Config;
use derbent::config::Drain;
use serde_yaml::Value;
use std::time::Duration;

/// Where the image's command looks for its file.
const FOLDER: &str = "/etc/derbent";

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
    assert!(gateway["deploy"].get("replicas").is_none(), "a port of the machine is there once");
    // A file that is put in the place of the old one would not be seen.
    assert!(gateway["volumes"][0].as_str().expect("text").ends_with(&format!(":{FOLDER}:ro")));
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
    assert_eq!(mounted["mountPath"], FOLDER);
    let port = u64::from(config.listeners[0].address.value.port());
    assert_eq!(pod["containers"][0]["ports"][0]["containerPort"].as_u64(), Some(port));
    assert_eq!(parts[2]["spec"]["ports"][0]["targetPort"].as_u64(), Some(port));
    let labels = &spec["template"]["metadata"]["labels"];
    assert!(labels == &parts[2]["spec"]["selector"] && labels == &parts[3]["spec"]["selector"]["matchLabels"]);
    assert!(parts[3]["spec"]["minAvailable"].as_u64() < spec["replicas"].as_u64(), "no node could be emptied");
}

#[tokio::test]
async fn given_the_commands_in_the_examples_when_read_by_the_binary_then_it_knows_them() {
    let files = ["kubernetes/derbent.yaml", "docker/compose.yaml", "systemd/derbent.service"];
    let mut commands: Vec<Vec<String>> = Vec::new();
    for line in files.iter().map(|file| read(file)).collect::<Vec<_>>().join("\n").lines() {
        let Some((_, rest)) = line.split_once("/usr/bin/derbent").filter(|_| !line.starts_with('#')) else { continue };
        let words = rest.split(|byte: char| byte.is_whitespace() || "\",[]{}".contains(byte));
        commands.push(words.filter(|word| !word.is_empty()).map(str::to_owned).collect());
    }
    // Three of the pod's, one of the container's, and of the unit's the check, the start and the reload.
    assert_eq!(commands.len(), 7, "{commands:?}");
    for command in commands {
        // Words before it that are unknown are a fault.
        let output = derbent(command.iter().map(String::as_str).chain(["--help"])).await;
        assert_eq!(output.status.code(), Some(0), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
}
