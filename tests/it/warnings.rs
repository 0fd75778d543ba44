//! `derbent check` of files without a fault: what it warns of and foretells, where, and with which exit code.

use crate::support::derbent;
use derbent::runtime::lint::{RULES, Rule};
use serde_json::{Value, json};
use tempfile::TempDir;

const START: &str = "<!-- warnings -->";
const END: &str = "<!-- /warnings -->";

/// A file, and what `check` with these options makes of it: exit code, standard output, standard error.
async fn check(clusters: &str, options: &[&str]) -> (i32, String, String) {
    let directory = TempDir::new().expect("a temporary directory");
    let file = directory.path().join("derbent.yaml").display().to_string();
    let text = format!("listeners: {{ web: \"127.0.0.1:8080\" }}\nroutes: {{ all: {{ cluster: app }} }}\n{clusters}\n");
    std::fs::write(&file, text).expect("writing the file");
    let output = derbent([&["check", "-c", &file], options].concat()).await;
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8").replace(&file, "FILE");
    (output.status.code().expect("no signal"), text(output.stdout), text(output.stderr))
}

const FINE: &str = "clusters: { app: { destinations: [\"http://127.0.0.1:3000\", \"http://127.0.0.1:3001\"] } }";

const WARNED: &str = "clusters:
  app:
    destinations: [\"http://127.0.0.1:3000\", \"http://127.0.0.1:3001\"]
    load_balancing: Maglev
    slow_start: 10s
    health:
      active: { type: tcp, interval: 500ms, unhealthy_after: 3, healthy_after: 3 }";

#[tokio::test]
async fn given_the_smallest_file_when_checked_strictly_then_no_warning_and_what_a_dead_destination_costs() {
    let told = "FILE is fine: 1 listener, 1 route, 1 cluster, 2 destinations\n\
                app: a dead destination is out at the 5th failure in a row at the latest\n\
                app: at worst a request takes 3 attempts and 5m16s\n\
                app: destinations must keep idle connections for longer than 1m, or a POST may be lost\n";
    assert_eq!(check(FINE, &["--strict"]).await, (0, told.to_owned(), String::new()));
    assert_eq!(check(FINE, &["--strict", "--json"]).await, (0, "[]\n".to_owned(), String::new()));
}

#[tokio::test]
async fn given_a_file_with_two_warnings_when_checked_then_each_with_rule_place_reason_and_fix() {
    let (code, out, err) = check(WARNED, &[]).await;
    assert_eq!(code, 0, "{err}");
    assert!(
        out.ends_with("app: 2 probes every 500ms, 4 a second\nprobes of this instance in all: 4 a second\n"),
        "{out}"
    );
    let lines: Vec<&str> = err.lines().collect();
    let [slow_start, source, caret, thresholds, _, _, count] = lines[..] else { panic!("{err}") };
    let placed = "FILE:7:17: clusters.app.slow_start: warning[slow-start-ignored]: Maglev ignores it";
    assert!(slow_start.starts_with(placed) && slow_start.contains("; fix: leave `slow_start` out"), "{slow_start}");
    assert_eq!((source, caret), ("  7 |     slow_start: 10s", "    |                 ^"));
    assert!(thresholds.starts_with("FILE:9:80: clusters.app.health.active.healthy_after: warning[equal-thresholds]"));
    assert_eq!(count, "2 warnings");
}

#[tokio::test]
async fn given_a_file_with_warnings_when_checked_strictly_then_1_and_the_same_words() {
    let (_, out, err) = check(WARNED, &[]).await;
    assert_eq!(check(WARNED, &["--strict"]).await, (1, out, err));
}

#[tokio::test]
async fn given_a_file_with_warnings_when_checked_as_json_then_objects_with_rule_and_fix() {
    let (code, out, err) = check(WARNED, &["--json"]).await;
    assert_eq!((code, err.as_str()), (0, ""));
    let warnings: Value = serde_json::from_str(&out).expect("JSON");
    let first = &warnings[0];
    assert_eq!(warnings.as_array().map(Vec::len), Some(2), "{out}");
    assert_eq!(
        (&first["warning"], &first["file"], &first["line"]),
        (&json!("slow-start-ignored"), &json!("FILE"), &json!(7))
    );
    assert_eq!((&first["column"], &first["path"]), (&json!(17), &json!("clusters.app.slow_start")));
    assert!(first["message"].is_string() && first["fix"].is_string(), "{first}");
    assert_eq!(check(WARNED, &["--json", "--strict"]).await, (1, out, err));
}

#[test]
fn given_the_readme_when_its_table_of_warnings_is_read_then_it_is_the_programs_own() {
    let readme = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/README.md")).expect("README.md");
    let table = readme.split_once(START).and_then(|(_, from)| from.split_once(END)).map(|(table, _)| table);
    let row = |rule: &Rule| format!("| `{}` | {} |\n", rule.id, sentence(rule.what));
    let ours =
        RULES.iter().map(row).fold("\n| Rule | Warns of |\n| --- | --- |\n".to_owned(), |table, row| table + &row);
    assert!(table == Some(ours.as_str()), "README.md shows another table; expected between {START} and {END}:\n{ours}");
}

fn sentence(what: &str) -> String {
    let mut letters = what.chars();
    let first = letters.next().map(|c| c.to_uppercase().to_string()).unwrap_or_default();
    format!("{first}{}.", letters.as_str())
}
