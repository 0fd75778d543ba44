//! README's table of metrics is the table that the program exports by.

use derbent::observe::metrics::{Metric, TABLE};

const START: &str = "<!-- metrics -->";
const END: &str = "<!-- /metrics -->";

/// Name, type, labels and help as README shows them.
fn cells(metric: &Metric) -> [String; 4] {
    let labels: Vec<String> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
    let kind = format!("{:?}", metric.kind).to_lowercase();
    [format!("`{}`", metric.full_name()), kind, labels.join(", "), metric.help.to_owned()]
}

/// What should stand between the marks.
fn expected() -> String {
    let rows = TABLE.iter().map(|metric| format!("| {} |\n", cells(metric).join(" | ")));
    rows.fold("| Metric | Type | Labels | Help |\n| --- | --- | --- | --- |\n".to_owned(), |table, row| table + &row)
}

#[test]
fn given_the_readme_when_its_table_of_metrics_is_read_then_it_is_the_programs_own() {
    let readme = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/README.md")).expect("README.md");
    let table = readme.split_once(START).and_then(|(_, from)| from.split_once(END)).map(|(table, _)| table);
    let table = table.unwrap_or_else(|| panic!("README.md has no {START} … {END}"));
    let rows = table.lines().filter(|line| line.starts_with('|')).skip(2);
    let shown: Vec<Vec<&str>> =
        rows.map(|row| row.trim().trim_matches('|').split('|').map(str::trim).collect()).collect();
    let ours: Vec<[String; 4]> = TABLE.iter().map(cells).collect();
    assert!(shown == ours, "README.md shows another table; expected between {START} and {END}:\n\n{}", expected());
}
