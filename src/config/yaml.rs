//! The only file that names the YAML crates: serde-saphyr's parser reads, serde_yaml writes. Reading goes by parser
//! events, because those alone keep a scalar's exact text (`1.10` stays `1.10`), its quotes and the place of every key.
//! Anchors, aliases and `<<` merges are resolved here; tags are refused, and so are several documents in a file.
//!
//! A duplicate key is a fault and reading goes on. A syntax error ends the file with one fault, and so does a file
//! that would grow past the budget: an alias bomb costs at most [`BUDGET`].

use super::node::{Entries, Kind, join, quote};
use super::problem::lines;
use super::{Located, Node, Problem, Problems, Spot};
use serde::Serialize;
use serde_saphyr::granit_parser::{ErrorKind, Event, Parser, ScalarStyle, ScanError, Span, StrInput};
use std::collections::HashMap;
use std::sync::Arc;

/// Bytes of text and paths a file may come to, aliases spelled out; far above any real configuration.
const BUDGET: usize = 128 << 20;

/// What a node weighs in the budget besides its text.
const NODE: usize = 64;

/// Levels a file may nest; the deepest real key stands at eight.
const DEPTH: usize = 64;

/// The tree of one file, or nothing when it cannot be read; whatever is wrong is in `problems`.
pub(super) fn read(file: &Arc<str>, text: &str, problems: &mut Problems) -> Option<Node> {
    let parser = Parser::new_from_str(text);
    let mut builder =
        Builder { parser, file, text, problems, anchors: HashMap::new(), left: BUDGET, path: String::new() };
    match builder.document() {
        Ok(root) => Some(root),
        Err(Problem { at, message }) => {
            builder.problems.push(&at, message);
            None
        }
    }
}

/// YAML text of what we print ourselves.
///
/// # Errors
/// When the value does not serialize.
pub fn write(value: &impl Serialize) -> Result<String, serde_yaml::Error> {
    serde_yaml::to_string(value)
}

struct Builder<'t, 'p> {
    parser: Parser<'t, StrInput<'t>>,
    file: &'p Arc<str>,
    text: &'t str,
    problems: &'p mut Problems,
    anchors: HashMap<usize, Node>,
    left: usize,
    /// Of the value being read, for faults; the tree's own paths come at the end, when aliases stand where they are used.
    path: String,
}

/// `Err` ends the file.
type Read<T> = Result<T, Problem>;

impl<'t> Builder<'t, '_> {
    fn document(&mut self) -> Read<Node> {
        let mut root = None;
        loop {
            let (event, at) = self.next()?;
            match event {
                Event::StreamEnd => break,
                Event::StreamStart | Event::DocumentEnd => {}
                Event::DocumentStart(..) if root.is_some() => {
                    return Err(fault(at, "a second document starts here; one file holds one"));
                }
                Event::DocumentStart(..) => {}
                event => root = Some(self.node(event, at, 0)?),
            }
        }
        let mut root = root.unwrap_or_else(|| Node { at: self.start(), kind: Kind::Null });
        place(&mut root, String::new(), &mut self.left).then_some(root).ok_or_else(|| too_large(self.start()))
    }

    fn next(&mut self) -> Read<(Event<'t>, Spot)> {
        match self.parser.next_event() {
            Some(Ok((event, span))) => Ok((event, self.spot(&span))),
            Some(Err(error)) => Err(self.syntax(&error)),
            None => Err(fault(self.start(), "the file ends in the middle of a value")),
        }
    }

    fn node(&mut self, event: Event<'t>, at: Spot, depth: usize) -> Read<Node> {
        if depth > DEPTH {
            return Err(fault(at, format!("nested deeper than {DEPTH} levels")));
        }
        if event.tag().is_some() {
            return Err(fault(at, "tags (!…) have no meaning here; to make a value text, put it in quotes"));
        }
        let anchor = event.anchor_id().filter(|id| *id != 0);
        let kind = match event {
            Event::Scalar(text, style, ..) => {
                self.spend(NODE + text.len(), &at)?;
                match style {
                    ScalarStyle::Plain => Kind::plain(text.into_owned()),
                    _ => Kind::Scalar { text: text.into_owned(), quoted: true },
                }
            }
            Event::SequenceStart(..) => Kind::List(self.list(&at, depth)?),
            Event::MappingStart(..) => Kind::Map(self.map(&at, depth)?),
            Event::Alias(id) => return self.alias(id, at, depth),
            _ => return Err(fault(at, "expected a value")),
        };
        let node = Node { at, kind };
        if let Some(id) = anchor {
            self.spend(measure(&node).weight, &node.at)?;
            self.anchors.insert(id, node.clone());
        }
        Ok(node)
    }

    fn list(&mut self, at: &Spot, depth: usize) -> Read<Vec<Node>> {
        self.spend(NODE, at)?;
        let mut items = Vec::new();
        loop {
            match self.next()? {
                (Event::SequenceEnd, _) => return Ok(items),
                (event, at) => {
                    let outer = self.path.len();
                    self.path += &format!("[{}]", items.len());
                    items.push(self.node(event, at, depth + 1)?);
                    self.path.truncate(outer);
                }
            }
        }
    }

    fn map(&mut self, at: &Spot, depth: usize) -> Read<Entries> {
        self.spend(NODE, at)?;
        let mut entries = Entries::new();
        let mut lines: HashMap<String, u32> = HashMap::new();
        let mut merged = Vec::new();
        loop {
            let (event, at) = self.next()?;
            if event == Event::MappingEnd {
                break;
            }
            let key = self.node(event, at, depth + 1)?;
            let outer = self.path.len();
            if let Some(word) = key.scalar() {
                self.enter(word);
            }
            let (event, at) = self.next()?;
            let value = self.node(event, at, depth + 1)?;
            let at = key.at.clone();
            match key.kind {
                Kind::Scalar { text, quoted: false } if text == "<<" => merged.push(value),
                Kind::Scalar { text, .. } => match lines.get(&text) {
                    Some(first) => self.tell(&at, format!("duplicate key {}; first at line {first}", quote(&text)))?,
                    None => {
                        lines.insert(text.clone(), at.line);
                        entries.push((Located { value: text, at }, value));
                    }
                },
                _ => self.tell(&at, format!("a key must be a word; {}", key.found()))?,
            }
            self.path.truncate(outer);
        }
        for source in merged {
            self.merge(source, &mut entries, &mut lines)?;
        }
        Ok(entries)
    }

    /// Adds what is not there yet: the map's own keys win over merged ones, earlier merges over later ones.
    fn merge(&mut self, source: Node, entries: &mut Entries, lines: &mut HashMap<String, u32>) -> Read<()> {
        match source.kind {
            Kind::Map(more) => {
                for (key, value) in more {
                    if !lines.contains_key(&key.value) {
                        lines.insert(key.value.clone(), key.at.line);
                        entries.push((key, value));
                    }
                }
            }
            Kind::List(sources) => sources.into_iter().try_for_each(|one| self.merge(one, entries, lines))?,
            _ => {
                let message = format!("`<<` merges a section, such as `<<: *name`; {}", source.found());
                self.tell(&source.at, message)?;
            }
        }
        Ok(())
    }

    fn alias(&mut self, id: usize, at: Spot, depth: usize) -> Read<Node> {
        let Some(node) = self.anchors.get(&id) else {
            return Err(fault(at, "an alias cannot stand inside the value it names"));
        };
        let Measure { weight, height } = measure(node);
        if depth + height > DEPTH {
            return Err(fault(at, format!("nested deeper than {DEPTH} levels")));
        }
        let node = node.clone();
        self.spend(weight, &at)?;
        Ok(node)
    }

    /// A fault of a value whose path the tree does not have yet.
    fn tell(&mut self, at: &Spot, message: String) -> Read<()> {
        self.spend(self.path.len(), at)?;
        self.problems.push(&Spot { path: self.path.clone(), ..at.clone() }, message);
        Ok(())
    }

    fn enter(&mut self, key: &str) {
        if !self.path.is_empty() {
            self.path.push('.');
        }
        self.path += key;
    }

    fn spend(&mut self, weight: usize, at: &Spot) -> Read<()> {
        self.left = self.left.checked_sub(weight).ok_or_else(|| too_large(at.clone()))?;
        Ok(())
    }

    fn spot(&self, span: &Span) -> Spot {
        self.place(span.start.line(), span.start.col())
    }

    fn start(&self) -> Spot {
        self.place(1, 0)
    }

    fn place(&self, line: usize, column: usize) -> Spot {
        let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        Spot { file: self.file.clone(), line: number(line), column: number(column + 1), path: String::new() }
    }

    fn syntax(&self, error: &ScanError) -> Problem {
        let (line, column) = (error.marker().line(), error.marker().col());
        if let Some((line, column)) = self.tab_near(line) {
            return fault(self.place(line, column), "a tab cannot indent YAML; use spaces");
        }
        let message = match error.kind() {
            ErrorKind::UnclosedQuotedScalar => "a quote is opened and never closed".to_owned(),
            ErrorKind::MappingValueNotAllowed => {
                "a key cannot stand here: check the indentation of this line and the one \
                 before, and put a value that holds `: ` in quotes"
                    .to_owned()
            }
            ErrorKind::UnknownAnchor => "no anchor of this name (`&name`) stands before this alias".to_owned(),
            ErrorKind::RecursionLimitExceeded => format!("nested deeper than {DEPTH} levels"),
            _ => format!("not valid YAML: {}", error.info()),
        };
        let in_braces = self.line(line).contains("${");
        let hint = if in_braces { "; between { } and [ ] put ${…} in quotes" } else { "" };
        fault(self.place(line, column), message + hint)
    }

    /// A tab that indents the line of an error or the next: the parser may notice it only at the end of the value before.
    fn tab_near(&self, line: usize) -> Option<(usize, usize)> {
        [line, line + 1].into_iter().find_map(|line| {
            let text = self.line(line);
            let tab = text.find('\t')?;
            text[..tab].trim_start().is_empty().then_some((line, tab))
        })
    }

    fn line(&self, number: usize) -> &'t str {
        number.checked_sub(1).and_then(|above| lines(self.text).nth(above)).unwrap_or_default()
    }
}

fn fault(at: Spot, message: impl Into<String>) -> Problem {
    Problem { at, message: message.into() }
}

fn too_large(at: Spot) -> Problem {
    let mebibytes = BUDGET >> 20;
    fault(at, format!("the file grows beyond {mebibytes} MiB here, aliases spelled out; that is the most accepted"))
}

struct Measure {
    weight: usize,
    height: usize,
}

fn measure(node: &Node) -> Measure {
    let mut total = Measure { weight: NODE, height: 0 };
    let mut add = |below: &Node, text: usize| {
        let below = measure(below);
        total.weight += below.weight + text;
        total.height = total.height.max(below.height + 1);
    };
    match &node.kind {
        Kind::Null => {}
        Kind::Scalar { text, .. } => total.weight += text.len(),
        Kind::List(items) => items.iter().for_each(|item| add(item, 0)),
        Kind::Map(entries) => entries.iter().for_each(|(key, value)| add(value, NODE + key.value.len())),
    }
    total
}

/// Writes the key paths, once aliases stand where they are used; `false` when the budget does not last.
fn place(node: &mut Node, path: String, left: &mut usize) -> bool {
    let Some(rest) = left.checked_sub(path.len()) else {
        return false;
    };
    *left = rest;
    let done = match &mut node.kind {
        Kind::Null | Kind::Scalar { .. } => true,
        Kind::List(items) => items.iter_mut().enumerate().all(|(i, item)| place(item, format!("{path}[{i}]"), left)),
        Kind::Map(entries) => entries.iter_mut().all(|(key, value)| {
            key.at.path = join(&path, &key.value);
            place(value, key.at.path.clone(), left)
        }),
    };
    node.at.path = path;
    done
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write;

    fn parse(text: &str) -> (Option<Node>, Problems) {
        let mut problems = Problems::default();
        let root = read(&"t.yaml".into(), text, &mut problems);
        (root, problems)
    }

    /// One line a leaf: place, path, value.
    fn leaves(node: &Node, out: &mut String) {
        match &node.kind {
            Kind::Null => writeln!(out, "{:?} null", node.at).unwrap(),
            Kind::Scalar { text, quoted } => {
                let text = if *quoted { format!("{text:?}") } else { text.clone() };
                writeln!(out, "{:?} {text}", node.at).unwrap();
            }
            Kind::List(items) => items.iter().for_each(|item| leaves(item, out)),
            Kind::Map(entries) => entries.iter().for_each(|(_, value)| leaves(value, out)),
        }
    }

    fn shown(text: &str) -> String {
        let (root, problems) = parse(text);
        assert!(problems.is_empty(), "{problems}");
        let mut out = String::new();
        leaves(&root.unwrap(), &mut out);
        out
    }

    #[test]
    fn given_scalars_when_read_then_exact_text_place_and_path() {
        assert_eq!(
            shown("a: 1.10\nb:\n  - 0x10\n  - \"5\"\n  - ~\nc: {d: yes, é: 'it''s'}\n"),
            "t.yaml:1:4 a 1.10\nt.yaml:3:5 b[0] 0x10\nt.yaml:4:5 b[1] \"5\"\nt.yaml:5:5 b[2] null\n\
             t.yaml:6:8 c.d yes\nt.yaml:6:16 c.é \"it's\"\n"
        );
    }

    #[test]
    fn given_aliases_and_merges_when_read_then_own_keys_win_and_paths_are_of_the_use() {
        assert_eq!(
            shown("x: &x {k: 1, l: 2}\ny: {l: 3, <<: *x}\nz: {<<: [{l: 4}, *x]}\nw: *x\n"),
            "t.yaml:1:11 x.k 1\nt.yaml:1:17 x.l 2\nt.yaml:2:8 y.l 3\nt.yaml:1:11 y.k 1\n\
             t.yaml:3:14 z.l 4\nt.yaml:1:11 z.k 1\nt.yaml:1:11 w.k 1\nt.yaml:1:17 w.l 2\n"
        );
    }

    #[test]
    fn given_duplicate_keys_in_any_map_when_read_then_each_is_a_fault_at_the_second() {
        let (root, problems) = parse("a: 1\nb:\n  c: 1\n  'c': 2\nd: [{e: 1, e: 2}]\na: 2\n");
        assert!(root.is_some());
        let places: Vec<_> = problems.iter().map(|p| (p.at.line, p.at.column, p.message.as_str())).collect();
        assert_eq!(
            places,
            [
                (4, 3, r#"duplicate key "c"; first at line 3"#),
                (5, 12, r#"duplicate key "e"; first at line 5"#),
                (6, 1, r#"duplicate key "a"; first at line 1"#),
            ]
        );
    }

    #[test]
    fn given_broken_yaml_when_read_then_one_fault_with_place_and_sentence() {
        let deep = format!("a:\n{}", (1..100).map(|i| format!("{}a:\n", " ".repeat(i))).collect::<String>());
        for (text, line, message) in [
            ("a:\n\tb: 1\n", 2, "a tab cannot indent"),
            ("a:\n  b: 1\n\tc: 2\n", 3, "a tab cannot indent"),
            ("a: \"open\nb: 1\n", 1, "never closed"),
            ("a: 'open", 1, "never closed"),
            ("a: [1, 2\nb: 3\n", 2, "not valid YAML"),
            ("a: {b: 1\n", 1, "not valid YAML"),
            ("a: 1\n b: 2\n", 2, "check the indentation"),
            ("a: b: c\n", 1, "in quotes"),
            ("a: *nowhere\n", 1, "no anchor of this name"),
            ("a: { b: ${C} }\n", 1, "put ${…} in quotes"),
            ("a: &a [*a]\n", 1, "inside the value it names"),
            ("a: !!str 5\n", 1, "tags"),
            ("a: 1\n---\nb: 2\n", 2, "second document"),
            (&deep, 65, "nested deeper than 64"),
            (&format!("a: {}", "[".repeat(100_000)), 1, "nested deeper"),
        ] {
            let (root, problems) = parse(text);
            let found: Vec<_> = problems.iter().collect();
            assert!(root.is_none() && found.len() == 1, "{text}: {problems}");
            assert!(found[0].message.contains(message), "{text}: {problems}");
            assert_eq!(found[0].at.line, line, "{text}: {problems}");
        }
    }

    #[test]
    fn given_keys_that_are_no_words_when_read_then_faults_and_the_rest_is_read() {
        let (root, problems) = parse("[a, b]: 1\n~: 2\nc: 3\n<<: 5\n");
        assert_eq!(problems.len(), 3, "{problems}");
        assert!(matches!(root.unwrap().kind, Kind::Map(entries) if entries.len() == 1));
    }

    #[test]
    fn given_an_alias_bomb_when_read_then_refused_within_the_budget() {
        let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for i in 1..12 {
            let before = vec![format!("*a{}", i - 1); 10].join(", ");
            writeln!(text, "a{i}: &a{i} [{before}]").unwrap();
        }
        let (root, problems) = parse(&text);
        assert!(root.is_none());
        assert!(problems.to_string().contains("grows beyond 128 MiB"), "{problems}");
    }

    #[test]
    fn given_an_alias_inside_an_alias_when_too_deep_then_refused() {
        let mut text = format!("a0: &a0 {}x{}\n", "[".repeat(30), "]".repeat(30));
        for i in 1..4 {
            writeln!(text, "a{i}: &a{i} {}*a{}{}", "[".repeat(30), i - 1, "]".repeat(30)).unwrap();
        }
        let (root, problems) = parse(&text);
        assert!(root.is_none());
        assert!(problems.to_string().contains("t.yaml:3:"), "{problems}");
    }

    #[test]
    fn given_a_value_when_written_then_it_reads_back() {
        let value: serde_yaml::Value = serde_yaml::from_str("a: '1.10'\nb: [x, 2]\n").unwrap();
        let text = write(&value).unwrap();
        assert_eq!(shown(&text), "t.yaml:1:4 a \"1.10\"\nt.yaml:3:3 b[0] x\nt.yaml:4:3 b[1] 2\n");
    }
}
