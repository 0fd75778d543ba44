//! conf/derbent.yaml, broken in every place by a machine: each key renamed, doubled, dropped, each value of another type. What
//! comes of it is a report with places, never a panic, and the place is where it was broken.

use super::node::Kind;
use super::{Config, LoadError, Located, Node, Problems, yaml};
use crate::Derbent;
use std::collections::BTreeSet;

const FILE: &str = "conf/derbent.yaml";
const FINE: &str = include_str!("../../conf/derbent.yaml");

/// One key of the file.
struct Key<'n> {
    key: &'n Located<String>,
    value: &'n Node,
    /// It is a name of the operator's choosing.
    named: bool,
}

impl Key<'_> {
    /// Where it begins, in bytes.
    fn start(&self) -> usize {
        offset(self.key.at.line, self.key.at.column)
    }

    /// Nothing but spaces stands before it in its line.
    fn is_first(&self) -> bool {
        let line = FINE[..self.start()].rsplit('\n').next().unwrap_or_default();
        line.trim().is_empty()
    }

    /// The place of a scalar's text, quotes included.
    fn scalar(&self) -> Option<std::ops::Range<usize>> {
        let Kind::Scalar { text, quoted } = &self.value.kind else { return None };
        let start = offset(self.value.at.line, self.value.at.column);
        let length = match quoted {
            true => FINE[start + 1..].find('"')? + 2,
            false => text.len(),
        };
        Some(start..start + length)
    }
}

fn offset(line: u32, column: u32) -> usize {
    let before: usize = FINE.split_inclusive('\n').take(line as usize - 1).map(str::len).sum();
    before
        + FINE
            .lines()
            .nth(line as usize - 1)
            .unwrap()
            .chars()
            .take(column as usize - 1)
            .map(char::len_utf8)
            .sum::<usize>()
}

fn keys<'n>(node: &'n Node, named: bool, found: &mut Vec<Key<'n>>) {
    match &node.kind {
        Kind::Map(entries) => {
            for (key, value) in entries {
                const NAMED: [&str; 7] =
                    ["listeners", "routes", "clusters", "services", "destinations", "metadata", "headers"];
                found.push(Key { key, value, named });
                keys(value, !named && NAMED.contains(&key.value.as_str()), found);
            }
        }
        Kind::List(items) => items.iter().for_each(|item| keys(item, false, found)),
        _ => {}
    }
}

/// All that is told of a text, by the reader and by compiling; the places are in the text.
fn faults(text: &str) -> Problems {
    let problems = match Config::parse(FILE, text) {
        Err(LoadError::Faults(problems)) => problems,
        Err(error) => panic!("{error}"),
        Ok(config) => Derbent::from_config(config).check().err().unwrap_or_default(),
    };
    for fault in problems.iter() {
        let line = text.lines().nth(fault.at.line as usize - 1);
        let width = line.unwrap_or_else(|| panic!("outside of the file: {fault}")).chars().count();
        assert!((1..=width + 1).contains(&(fault.at.column as usize)), "outside of its line: {fault}\n{text}");
        assert!(!fault.message.is_empty() && &*fault.at.file == FILE, "{fault}");
    }
    assert!(problems.to_string().ends_with(if problems.len() == 1 { " fault" } else { " faults" }));
    problems
}

fn replaced(range: std::ops::Range<usize>, with: &str) -> String {
    [&FINE[..range.start], with, &FINE[range.end..]].concat()
}

/// Each mutation changes the file in one place; `line` is where a fault must be told.
fn check(what: &str, text: &str, line: u32) {
    let told = faults(text);
    let lines: BTreeSet<u32> = told.iter().map(|fault| fault.at.line).collect();
    assert!(lines.contains(&line), "{what}: no fault at line {line}, but at {lines:?}: {told}");
}

#[test]
fn given_the_file_with_every_key_when_broken_anywhere_then_faults_with_the_place_and_never_a_panic() {
    let root = yaml::read(&FILE.into(), FINE, &mut Problems::default()).expect("it is fine");
    let mut found = Vec::new();
    keys(&root, false, &mut found);
    assert_eq!(faults(FINE).len(), 0, "{}", faults(FINE));
    let (mut broken, mut dropped) = (0, 0);
    for key in &found {
        let (name, start, line) = (&key.key.value, key.start(), key.key.at.line);
        let path = &key.key.at.path;
        if !key.named {
            let renamed = replaced(start..start + name.len(), &format!("{name}_x"));
            check(&format!("{path} renamed"), &renamed, line);
            broken += 1;
        }
        if FINE[start..].starts_with(name.as_str()) {
            let (again, at) = match key.is_first() {
                true => (format!("{name}: 1\n{}", " ".repeat(key.key.at.column as usize - 1)), line + 1),
                false => (format!("{name}: 1, "), line),
            };
            check(&format!("{path} twice"), &replaced(start..start, &again), at);
            broken += 1;
        }
        if let Some(scalar) = key.scalar() {
            check(&format!("{path} as a list of lists"), &replaced(scalar, "[[1]]"), key.value.at.line);
            broken += 1;
        }
        if key.is_first() {
            faults(&replaced(start..end_of(start, key.key.at.column), "# nothing\n"));
            dropped += 1;
        }
    }
    assert!(broken >= 100 && dropped >= 50, "only {broken} broken and {dropped} dropped");
}

/// Where the block that begins at `start` ends: before the next line that is no further in, items of a list aside.
fn end_of(start: usize, column: u32) -> usize {
    let mut end = start;
    for (index, line) in FINE[start..].split_inclusive('\n').enumerate() {
        let indent = line.len() - line.trim_start().len();
        if index > 0 && !line.trim().is_empty() && indent < column as usize && !line.trim_start().starts_with('-') {
            break;
        }
        end += line.len();
    }
    end
}

#[test]
fn given_the_file_with_every_key_when_a_line_is_left_out_or_moved_in_then_never_a_panic() {
    for (index, line) in FINE.lines().enumerate() {
        let without: Vec<&str> =
            FINE.lines().enumerate().filter(|(at, _)| *at != index).map(|(_, line)| line).collect();
        faults(&without.join("\n"));
        faults(&FINE.replacen(line, &format!(" {line}"), 1));
    }
}
