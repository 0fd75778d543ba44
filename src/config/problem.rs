//! Faults in what the operator wrote, collected and shown together: each with its place, the source line and a caret.
//! It judges nothing itself; it only words unknown names, so that all of them read alike.

use super::node::{join, quote};
use super::watched::LookedFor;
use super::{Outline, Spot};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write};
use std::sync::Arc;

/// One fault in what the operator wrote.
#[derive(Debug, Clone)]
pub struct Problem {
    pub at: Spot,
    /// What is wrong, what was expected, how to mend it; one sentence or two.
    pub message: String,
}

/// Faults shown with their source line; the rest of a longer report goes without.
const SNIPPETS: usize = 100;

/// Faults in the order they were found; shown in the order of the files. Keeps the texts they stand in.
#[derive(Debug, Clone, Default)]
pub struct Problems {
    list: Vec<Problem>,
    sources: Sources,
    /// Where the keys asked for are noted; the faults do not matter then.
    outline: Option<Box<Outline>>,
}

impl Problems {
    pub(super) fn of(sources: Sources) -> Self {
        Problems { sources, ..Problems::default() }
    }

    pub(super) fn outlining() -> Self {
        Problems { outline: Some(Box::default()), ..Problems::default() }
    }

    pub(super) fn is_outlining(&self) -> bool {
        self.outline.is_some()
    }

    /// What is known of the value of `key` below a key path, of that path itself without a key; while keys are noted.
    pub(super) fn outline(&mut self, path: &str, key: &str) -> Option<&mut Outline> {
        self.outline.as_mut().map(|outline| outline.at(&join(path, key)))
    }

    /// What form that value has; the first that is noted counts.
    pub(super) fn note(&mut self, path: &str, key: &str, form: impl FnOnce() -> Value) {
        if let Some(outline) = self.outline(path, key) {
            outline.add_form(form);
        }
    }

    pub(super) fn into_outline(self) -> Outline {
        self.outline.map_or_else(Outline::default, |outline| *outline)
    }

    pub fn push(&mut self, at: &Spot, message: impl Into<String>) {
        self.list.push(Problem { at: at.clone(), message: message.into() });
    }

    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// By file, line and column.
    pub fn iter(&self) -> impl Iterator<Item = &Problem> {
        let mut sorted: Vec<_> = self.list.iter().collect();
        sorted.sort_by_key(|problem| (&problem.at.file, problem.at.line, problem.at.column));
        sorted.into_iter()
    }

    /// A list of objects with `file`, `line`, `column`, `path` and `message`, sorted as [`Problems::iter`] does.
    pub fn to_json(&self) -> Value {
        self.iter()
            .map(|Problem { at, message }| {
                json!({ "file": &*at.file, "line": at.line, "column": at.column, "path": at.path, "message": message })
            })
            .collect()
    }

    /// As they are shown, counted as `what`: `2 faults`.
    pub fn counted_as(&self, what: &'static str) -> impl fmt::Display {
        Counted { problems: self, what }
    }

    pub(super) fn sources(&self) -> &Sources {
        &self.sources
    }

    pub(super) fn add_source(&mut self, file: &Arc<str>, text: &str) {
        Arc::make_mut(&mut self.sources.texts).insert(file.clone(), text.trim_start_matches('\u{feff}').into());
    }

    pub(super) fn add_looked_for(&mut self, what: LookedFor) {
        Arc::make_mut(&mut self.sources.looked_for).insert(what);
    }
}

impl std::error::Error for Problems {}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.counted_as("fault").fmt(f)
    }
}

struct Counted<'p> {
    problems: &'p Problems,
    what: &'static str,
}

impl fmt::Display for Counted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counted { problems, what } = self;
        for (index, problem) in problems.iter().enumerate() {
            writeln!(f, "{problem}")?;
            let line = (index < SNIPPETS).then(|| problems.sources.line(&problem.at)).flatten();
            if let Some(line) = line {
                write_snippet(f, &problem.at, line)?;
            }
        }
        let count = problems.len();
        write!(f, "{count} {what}{}", if count == 1 { "" } else { "s" })
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Spot { file, line, column, path } = &self.at;
        write!(f, "{file}:{line}:{column}: ")?;
        // Keys are the file's own; a terminal must not obey them.
        for c in path.chars() {
            match c.is_control() {
                true => write!(f, "{}", c.escape_default())?,
                false => f.write_char(c)?,
            }
        }
        if !path.is_empty() {
            f.write_str(": ")?;
        }
        f.write_str(&self.message)
    }
}

/// The texts of the files read, by name.
#[derive(Clone, Default)]
pub(super) struct Sources {
    texts: Arc<BTreeMap<Arc<str>, Arc<str>>>,
    /// Whether it was there or not.
    looked_for: Arc<BTreeSet<LookedFor>>,
}

impl Sources {
    pub fn texts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.texts.iter().map(|(name, text)| (&**name, &**text))
    }

    pub fn looked_for(&self) -> impl Iterator<Item = &LookedFor> {
        self.looked_for.iter()
    }

    pub fn look_for_too(&mut self, other: &Sources) {
        Arc::make_mut(&mut self.looked_for).extend(other.looked_for.iter().cloned());
    }

    fn line(&self, at: &Spot) -> Option<&str> {
        let above = usize::try_from(at.line).ok()?.checked_sub(1)?;
        lines(self.texts.get(&at.file)?).nth(above)
    }
}

/// As YAML counts them: a carriage return alone ends a line too.
pub(super) fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().flat_map(|line| line.split('\r'))
}

impl fmt::Debug for Sources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.texts.keys()).finish()
    }
}

fn write_snippet(f: &mut fmt::Formatter<'_>, at: &Spot, line: &str) -> fmt::Result {
    const BEFORE: usize = 80;
    const SHOWN: usize = 120;
    let caret = (at.column as usize).saturating_sub(1);
    let cut = caret.saturating_sub(BEFORE);
    let shown: String = line.chars().skip(cut).take(SHOWN).map(printable).collect();
    let number = at.line.to_string();
    writeln!(f, "  {number} | {}", shown.trim_end())?;
    writeln!(f, "  {:1$} | {2:3$}^", "", number.len(), "", caret - cut)
}

/// One column wide, whatever it was.
fn printable(c: char) -> char {
    match c {
        '\t' => ' ',
        c if c.is_control() => '\u{fffd}',
        c => c,
    }
}

/// `unknown policy "RoundRobbin"; did you mean "RoundRobin"? One of: RoundRobin, Random.`
pub fn unknown(what: &str, word: &str, candidates: &[&str]) -> String {
    const SHOWN: usize = 20;
    let all = || match candidates.len().saturating_sub(SHOWN) {
        0 => candidates.join(", "),
        more => format!("{} and {more} more", candidates[..SHOWN].join(", ")),
    };
    let mut message = format!("unknown {what} {}", quote(word));
    let near = nearest(word, candidates.iter().copied());
    if let Some(near) = near {
        message += &format!("; did you mean \"{near}\"?");
    }
    match candidates {
        [] => message + "; none is known here",
        [only] if near.is_none() => message + &format!("; only {only} is known here"),
        [_] => message,
        _ if near.is_none() => message + &format!("; one of: {}", all()),
        _ => message + &format!(" One of: {}", all()),
    }
}

/// The candidate that `word` is most likely a slip of: at most a third of its letters differ, case aside.
pub fn nearest<'c>(word: &str, candidates: impl IntoIterator<Item = &'c str>) -> Option<&'c str> {
    const LONGEST: usize = 128;
    if word.len() > LONGEST {
        return None;
    }
    let word = word.to_lowercase();
    let allowed = (word.chars().count() / 3).max(1);
    candidates
        .into_iter()
        .filter(|candidate| candidate.len() <= LONGEST)
        .map(|candidate| (strsim::damerau_levenshtein(&word, &candidate.to_lowercase()), candidate))
        .filter(|(distance, _)| *distance <= allowed)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spot(file: &str, line: u32, column: u32, path: &str) -> Spot {
        Spot { file: file.into(), line, column, path: path.into() }
    }

    #[test]
    fn given_faults_of_two_files_when_shown_then_sorted_with_source_line_caret_and_count() {
        let mut problems = Problems::default();
        problems.add_source(&"a.yaml".into(), "one: 1\n\ttwo: 2\n");
        problems.push(&spot("b.yaml", 1, 1, ""), "empty");
        problems.push(&spot("a.yaml", 2, 7, "two"), "wrong");
        assert_eq!(
            problems.to_string(),
            "a.yaml:2:7: two: wrong\n  2 |  two: 2\n    |       ^\nb.yaml:1:1: empty\n2 faults"
        );
    }

    #[test]
    fn given_a_very_long_line_when_shown_then_only_the_part_at_the_caret() {
        let mut problems = Problems::default();
        problems.add_source(&"a".into(), &format!("{}HERE{}", "x".repeat(5000), "y".repeat(5000)));
        problems.push(&spot("a", 1, 5001, ""), "wrong");
        let shown = problems.to_string();
        assert!(shown.contains("xHEREy") && shown.len() < 400, "{shown}");
    }

    #[test]
    fn given_carriage_returns_when_shown_then_lines_are_those_of_yaml() {
        let mut problems = Problems::default();
        problems.add_source(&"a".into(), "one\rtwo\r\nthree\n");
        problems.push(&spot("a", 2, 1, ""), "wrong");
        problems.push(&spot("a", 3, 1, ""), "wrong");
        let shown = problems.to_string();
        assert!(shown.contains("  2 | two\n") && shown.contains("  3 | three\n"), "{shown}");
    }

    #[test]
    fn given_a_place_outside_the_text_when_shown_then_no_source_line() {
        let mut problems = Problems::default();
        problems.add_source(&"a".into(), "x");
        problems.push(&spot("a", 0, 0, ""), "wrong");
        problems.push(&spot("a", 9, 9, ""), "wrong");
        assert_eq!(problems.to_string(), "a:0:0: wrong\na:9:9: wrong\n2 faults");
    }

    #[test]
    fn given_faults_when_as_json_then_objects_in_the_order_of_the_file() {
        let mut problems = Problems::default();
        problems.push(&spot("a", 2, 1, "y"), "second");
        problems.push(&spot("a", 1, 3, "x"), "first");
        assert_eq!(
            problems.to_json(),
            json!([
                { "file": "a", "line": 1, "column": 3, "path": "x", "message": "first" },
                { "file": "a", "line": 2, "column": 1, "path": "y", "message": "second" },
            ])
        );
    }

    #[test]
    fn given_a_slip_when_nearest_is_asked_then_the_word_meant() {
        let words = ["RoundRobin", "Random", "load_balancing"];
        for (slip, meant) in [
            ("RoundRobbin", Some("RoundRobin")),
            ("roundrobin", Some("RoundRobin")),
            ("loadBalancing", Some("load_balancing")),
            ("Rnadom", Some("Random")),
            ("Maglev", None),
            ("", None),
        ] {
            assert_eq!(nearest(slip, words), meant, "{slip}");
        }
    }

    #[test]
    fn given_an_unknown_word_when_worded_then_nearest_and_all_that_are_known() {
        assert_eq!(
            unknown("policy", "Randon", &["RoundRobin", "Random"]),
            r#"unknown policy "Randon"; did you mean "Random"? One of: RoundRobin, Random"#
        );
        assert_eq!(unknown("role", "x", &["primary"]), r#"unknown role "x"; only primary is known here"#);
    }

    #[test]
    fn given_a_flood_of_faults_when_shown_then_each_has_its_line_and_the_first_hundred_their_source() {
        let text = "log: {}\n".repeat(3_000);
        let shown = crate::config::Config::parse("t.yaml", &text).expect_err("faults").to_string();
        assert_eq!(shown.lines().filter(|line| line.contains(": duplicate key \"log\"")).count(), 2_999);
        assert_eq!(shown.lines().filter(|line| line.trim_start().starts_with("| ^")).count(), 100);
    }

    #[test]
    fn given_thousands_of_candidates_when_worded_then_only_some_are_listed() {
        let names: Vec<String> = (0..3_000).map(|i| format!("c{i}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let message = unknown("cluster", "catalogue", &names);
        assert!(message.ends_with("c18, c19 and 2980 more") && message.len() < 300, "{message}");
    }

    #[test]
    fn given_a_key_with_control_characters_when_shown_then_no_terminal_obeys_it() {
        let mut problems = Problems::default();
        problems.push(&spot("a", 1, 1, "routes.x\u{1b}[2J\ny"), "wrong");
        assert_eq!(problems.to_string(), "a:1:1: routes.x\\u{1b}[2J\\ny: wrong\n1 fault");
    }
}
