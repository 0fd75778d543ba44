//! How a section is read: ask for the keys you know, then [`Section::finish`] turns what was not asked for into
//! faults. Built-in sections and policies read alike. Nothing here stops: a fault is recorded at the value's place and
//! the answer is `None`, as for an absent key, so the caller takes its default and goes on.

mod builtin;

pub(super) use builtin::check_at;

use super::node::{Kind, quote};
use super::outline::{one_of, or_variable, text, texts, unit};
use super::units::{self, show_duration, show_size};
use super::{Located, Node, Problems, Spot, unknown};
use serde_json::{Value, json};
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::time::Duration;

/// A map being read. Every `Option` is `None` when the key is absent or its fault is recorded.
pub struct Section<'a> {
    at: &'a Spot,
    entries: &'a [(Located<String>, Node)],
    problems: &'a mut Problems,
    asked: Vec<&'static str>,
    /// The node was no map; a fault of its own, so nothing is said to be missing.
    misfit: bool,
}

impl<'a> Section<'a> {
    /// A node that is no map is a fault, and reads as an empty one; nothing at all is an empty map.
    pub fn of_map(node: &'a Node, problems: &'a mut Problems) -> Section<'a> {
        let entries = entries_of(node, problems);
        Section {
            at: &node.at,
            entries: entries.unwrap_or_default(),
            problems,
            asked: Vec::new(),
            misfit: entries.is_none(),
        }
    }

    /// Of the section itself.
    pub fn at(&self) -> &Spot {
        self.at
    }

    /// Of the value of `key`; where it is absent, of the section, with the path the key would have.
    pub fn spot_of(&self, key: &str) -> Spot {
        self.find(key).map_or_else(|| self.at.under(key), |node| node.at.clone())
    }

    pub fn problem(&mut self, at: &Spot, message: impl Into<String>) {
        self.problems.push(at, message);
    }

    /// A fault when `key` is absent; `what` says what it holds, or gives an example.
    pub fn require(&mut self, key: &'static str, what: &str) {
        self.note_required(key);
        if !self.has(key) {
            self.lacks(format!("needs `{key}`: {what}"));
        }
    }

    pub fn has(&self, key: &str) -> bool {
        self.find(key).is_some()
    }

    /// Whether the key says `off`.
    pub fn off(&mut self, key: &'static str) -> bool {
        if let Some(outline) = self.problems.outline(&self.at.path, key) {
            outline.add_off();
        }
        self.take(key).is_some_and(Node::is_off)
    }

    /// Text of at least one character, quoted or not.
    pub fn text(&mut self, key: &'static str) -> Option<Located<String>> {
        self.note(key, text);
        self.scalar(key, "text", |text| (!text.is_empty()).then(|| text.to_owned()))
    }

    pub fn integer(&mut self, key: &'static str, range: RangeInclusive<u64>) -> Option<u64> {
        self.note(key, || {
            or_variable(bounded("integer", json!(range.start()), json!(range.end()), *range.end() < u64::MAX))
        });
        let expected = format!("a whole number{}", bounds(&range, u64::MAX, ToString::to_string));
        self.plain(key, &expected, |text| text.parse().ok().filter(|n| range.contains(n)))
    }

    pub fn number(&mut self, key: &'static str, range: RangeInclusive<f64>) -> Option<f64> {
        self.note(key, || {
            or_variable(bounded("number", json!(range.start()), json!(range.end()), *range.end() < f64::MAX))
        });
        let expected = format!("a number{}", bounds(&range, f64::MAX, ToString::to_string));
        self.plain(key, &expected, |text| text.parse().ok().filter(|n| range.contains(n)))
    }

    /// `true` or `false`.
    pub fn flag(&mut self, key: &'static str) -> Option<bool> {
        self.note(key, || or_variable(json!({ "type": "boolean" })));
        self.plain(key, "true or false", |text| text.parse().ok())
    }

    /// `250ms`, `1m30s`, `hh:mm:ss`.
    pub fn duration(&mut self, key: &'static str, range: RangeInclusive<Duration>) -> Option<Duration> {
        let bounds = bounds(&range, Duration::MAX, |limit| show_duration(*limit));
        self.note(key, || unit("duration", format!("a duration{bounds}")));
        self.unit(key, units::duration, |duration| range.contains(duration), &format!("a duration{bounds}"))
    }

    /// `64KiB`, in bytes.
    pub fn size(&mut self, key: &'static str, range: RangeInclusive<u64>) -> Option<u64> {
        let bounds = bounds(&range, u64::MAX, |limit| show_size(*limit));
        self.note(key, || unit("size", format!("a size{bounds}")));
        self.unit(key, units::size, |size| range.contains(size), &format!("a size{bounds}"))
    }

    /// `5%` or 0.05, from 0 to 1.
    pub fn percent(&mut self, key: &'static str) -> Option<f64> {
        self.note(key, || unit("share", "a share, from 0% to 100%".to_owned()));
        self.unit(key, units::percent, |_| true, "a share")
    }

    /// A share in whole tenths of a percent: 0–1000.
    pub fn permille(&mut self, key: &'static str) -> Option<u32> {
        self.note(key, || unit("share", "a share in whole tenths of a percent, from 0% to 100%".to_owned()));
        self.unit(key, units::permille, |_| true, "a share")
    }

    /// One of `words`.
    pub fn word<T: Copy>(&mut self, key: &'static str, words: &[(&'static str, T)]) -> Option<T> {
        self.note(key, || one_of(words.iter().map(|(word, _)| *word)));
        let Located { value, at } = self.text(key)?;
        let found = words.iter().find(|(word, _)| *word == value).map(|(_, meaning)| *meaning);
        if found.is_none() {
            let known: Vec<_> = words.iter().map(|(word, _)| *word).collect();
            self.problems.push(&at, unknown(key, &value, &known));
        }
        found
    }

    /// A list of texts; one text stands for a list of one. Absent: empty.
    pub fn words(&mut self, key: &'static str) -> Vec<Located<String>> {
        self.note(key, texts);
        let Some(node) = self.take(key) else {
            return Vec::new();
        };
        let items = match &node.kind {
            Kind::List(items) => items.as_slice(),
            _ => std::slice::from_ref(node),
        };
        let mut words = Vec::new();
        for item in items {
            match item.scalar().filter(|text| !text.is_empty()) {
                Some(text) => words.push(Located { value: text.to_owned(), at: item.at.clone() }),
                None => self.problems.push(&item.at, format!("expected text; {}", item.found())),
            }
        }
        words
    }

    /// Texts by names of the operator's choosing, in the file's order. Absent: empty.
    pub fn texts(&mut self, key: &'static str) -> Vec<(Located<String>, Located<String>)> {
        self.note(key, || json!({ "type": ["object", "null"], "additionalProperties": text() }));
        let mut texts = Vec::new();
        for (name, node) in self.named(key) {
            match node.scalar() {
                Some(text) => texts.push((name, Located { value: text.to_owned(), at: node.at.clone() })),
                None => self.problems.push(&node.at, format!("expected text; {}", node.found())),
            }
        }
        texts
    }

    /// The nested map below `key`; what `read` does not ask for becomes a fault.
    pub fn section<R>(&mut self, key: &'static str, read: impl FnOnce(&mut Section<'_>) -> R) -> Option<R> {
        let absent = self.problems.is_outlining().then(|| Node::empty_map(self.at.under(key)));
        let node = self.take(key).or(absent.as_ref())?;
        let mut section = Section::of_map(node, self.problems);
        let result = read(&mut section);
        section.finish();
        Some(result)
    }

    /// Every key not asked for is a fault, with the nearest key that was.
    pub fn finish(self) {
        for (key, _) in self.entries {
            if !self.asked.contains(&key.value.as_str()) {
                self.problems.push(&key.at, unknown("key", &key.value, &self.asked));
            }
        }
    }
}

impl<'a> Section<'a> {
    fn unit<T>(
        &mut self,
        key: &'static str,
        read: fn(&str) -> Result<T, String>,
        within: impl FnOnce(&T) -> bool,
        expected: &str,
    ) -> Option<T> {
        let Located { value: text, at } = self.text(key)?;
        match read(&text) {
            Ok(value) if within(&value) => return Some(value),
            Ok(_) => self.problems.push(&at, format!("expected {expected}; found {}", quote(&text))),
            Err(message) => self.problems.push(&at, format!("{message}; found {}", quote(&text))),
        }
        None
    }

    /// What form the value of `key` has, unless a more exact word was noted already.
    pub(in crate::config) fn note(&mut self, key: &str, form: impl FnOnce() -> Value) {
        self.problems.note(&self.at.path, key, form);
    }

    fn note_required(&mut self, key: &str) {
        if let Some(outline) = self.problems.outline(&self.at.path, "") {
            outline.require(key);
        }
    }

    fn find(&self, key: &str) -> Option<&'a Node> {
        self.entries.iter().find(|(name, _)| name.value == key).map(|(_, node)| node)
    }
}

/// The JSON Schema of a number in a range whose end may be the type's own.
fn bounded(kind: &str, least: Value, most: Value, has_end: bool) -> Value {
    match has_end {
        true => json!({ "type": kind, "minimum": least, "maximum": most }),
        false => json!({ "type": kind, "minimum": least }),
    }
}

/// Nothing, and a fault, when the node is no map.
fn entries_of<'a>(node: &'a Node, problems: &mut Problems) -> Option<&'a [(Located<String>, Node)]> {
    match &node.kind {
        Kind::Map(entries) => Some(entries),
        Kind::Null => Some(&[]),
        _ => {
            problems.push(&node.at, format!("expected a section of keys; {}", node.found()));
            None
        }
    }
}

/// ` from 1 to 1000`, or ` of at least 1` below the type's own end.
fn bounds<T: PartialOrd>(range: &RangeInclusive<T>, end: T, show: impl Fn(&T) -> String) -> impl Display {
    match range.end() < &end {
        true => format!(" from {} to {}", show(range.start()), show(range.end())),
        false => format!(" of at least {}", show(range.start())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::yaml;

    /// What `read` makes of `text`, and its faults, each as `column: message`.
    fn read<R>(text: &str, read: impl FnOnce(&mut Section<'_>) -> R) -> (R, Vec<String>) {
        let mut problems = Problems::default();
        let node = yaml::read(&"t".into(), text, &mut problems).expect("valid YAML");
        let mut section = Section::of_map(&node, &mut problems);
        let result = read(&mut section);
        section.finish();
        let faults = problems.iter().map(|p| format!("{}: {}", p.at.column, p.message)).collect();
        (result, faults)
    }

    #[test]
    fn given_good_values_when_read_then_typed() {
        let text = "{a: 7, b: 0.5, c: true, d: 5s, e: 1KiB, f: '5%', g: Two, h: [x, y], i: z, j: {k: 1}}";
        let (values, faults) = read(text, |s| {
            (
                (s.integer("a", 1..=9), s.number("b", 0.0..=1.0), s.flag("c")),
                s.duration("d", Duration::ZERO..=Duration::MAX),
                (s.size("e", 0..=u64::MAX), s.percent("f"), s.word("g", &[("One", 1), ("Two", 2)])),
                (s.words("h").len(), s.words("i").len(), s.section("j", |j| j.integer("k", 0..=1))),
            )
        });
        assert_eq!(faults, Vec::<String>::new());
        assert_eq!(
            values,
            (
                (Some(7), Some(0.5), Some(true)),
                Some(Duration::from_secs(5)),
                (Some(1024), Some(0.05), Some(2)),
                (2, 1, Some(Some(1))),
            )
        );
    }

    #[test]
    fn given_wrong_values_when_read_then_each_fault_says_what_was_expected() {
        type Ask = fn(&mut Section<'_>);
        let cases: [(&str, Ask, &str); 14] = [
            (
                "a: 10",
                |s| {
                    s.integer("a", 1..=9);
                },
                r#"4: expected a whole number from 1 to 9; found "10""#,
            ),
            (
                "a: 0x1",
                |s| {
                    s.integer("a", 1..=u64::MAX);
                },
                r#"4: expected a whole number of at least 1; found "0x1""#,
            ),
            (
                "a: '5'",
                |s| {
                    s.integer("a", 1..=9);
                },
                r#"4: expected a whole number from 1 to 9; found the text "5", take the quotes away"#,
            ),
            (
                "a: NaN",
                |s| {
                    s.number("a", 0.0..=1.0);
                },
                r#"4: expected a number from 0 to 1; found "NaN""#,
            ),
            (
                "a: yes",
                |s| {
                    s.flag("a");
                },
                r#"4: expected true or false; found "yes""#,
            ),
            (
                "a: 5",
                |s| {
                    s.duration("a", Duration::ZERO..=Duration::MAX);
                },
                r#"4: a bare number has no unit; write 5s or 5ms; found "5""#,
            ),
            (
                "a: 2h",
                |s| {
                    s.duration("a", Duration::ZERO..=Duration::from_secs(3600));
                },
                r#"4: expected a duration from 0s to 1h; found "2h""#,
            ),
            (
                "a: 2KiB",
                |s| {
                    s.size("a", 0..=1024);
                },
                r#"4: expected a size from 0 bytes to 1KiB; found "2KiB""#,
            ),
            (
                "a: Twoo",
                |s| {
                    s.word("a", &[("One", ()), ("Two", ())]);
                },
                r#"4: unknown a "Twoo"; did you mean "Two"? One of: One, Two"#,
            ),
            (
                "a: [x, [y]]",
                |s| {
                    s.words("a");
                },
                "8: expected text; found a list",
            ),
            (
                "a: ''",
                |s| {
                    s.text("a");
                },
                r#"4: expected text; found """#,
            ),
            (
                "a:",
                |s| {
                    s.text("a");
                },
                "2: expected text; found nothing",
            ),
            (
                "a: x",
                |s| {
                    s.section("a", |_| ());
                },
                r#"4: expected a section of keys; found "x""#,
            ),
            (
                "b: 1",
                |s| {
                    s.text("a");
                },
                r#"1: unknown key "b"; did you mean "a"?"#,
            ),
        ];
        for (text, ask, fault) in cases {
            let (_, faults) = read(text, ask);
            assert_eq!(faults, [fault], "{text}");
        }
    }

    #[test]
    fn given_an_absent_key_when_its_spot_is_asked_then_the_section_with_the_path() {
        let (spot, _) = read("a: {b: 1}", |s| {
            s.section("a", |a| {
                a.flag("b");
                a.spot_of("c")
            })
        });
        let spot = spot.expect("the section is there");
        assert_eq!((spot.column, spot.path.as_str()), (4, "a.c"));
    }
}
