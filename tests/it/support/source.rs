//! Rust source as the floors need it: without comments, strings and tests, every path spelled out, every function's length.
//! It reads rustfmt's output, not all of Rust: a macro may hide a path from it.

/// A word, `::`, or one other character.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    pub text: String,
    pub line: usize,
}

/// A file of the crate.
#[derive(Debug)]
pub struct Source {
    /// Below `src`, with `/`.
    pub path: String,
    /// Tests left out.
    pub tokens: Vec<Token>,
    /// Lines, those of tests not counted.
    pub lines: usize,
    /// Child modules that only tests have.
    pub test_modules: Vec<String>,
}

/// A path as the code names it, `use` groups taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Named {
    /// From the crate's root on: `crate`, `self` and `super` are resolved.
    Inside(Vec<String>),
    Outside(Vec<String>),
}

impl Source {
    pub fn read(path: &str, text: &str) -> Source {
        let mut source =
            Source { path: path.to_owned(), tokens: Vec::new(), lines: text.lines().count(), test_modules: Vec::new() };
        let all = tokens(text);
        let mut at = 0;
        while at < all.len() {
            if !matches(&all, at, &["#", "[", "cfg", "(", "test", ")", "]"]) {
                source.tokens.push(all[at].clone());
                at += 1;
                continue;
            }
            let end = item_end(&all, at + 7);
            source.lines -= all[end - 1].line + 1 - all[at].line;
            // However visible it is.
            if end >= at + 10 && all[end - 3].text == "mod" && all[end - 1].text == ";" {
                source.test_modules.push(all[end - 2].text.clone());
            }
            at = end;
        }
        source
    }

    /// The module's path below the crate: `health/active/mod.rs` is `health::active`.
    pub fn module(&self) -> Vec<String> {
        let mut module: Vec<String> = self.path.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
        if matches!(module.last().map(String::as_str), Some("mod" | "lib" | "main")) {
            module.pop();
        }
        module
    }

    /// All paths of two words or more, with their lines.
    pub fn paths(&self) -> Vec<(Named, usize)> {
        let mut found = Vec::new();
        let mut at = 0;
        while at < self.tokens.len() {
            if self.is(at, "use") {
                at = self.use_tree(at + 1, &mut Vec::new(), &mut found);
            } else if self.word(at) {
                let mut path = vec![self.tokens[at].text.clone()];
                let line = self.tokens[at].line;
                while self.is(at + 1, "::") && self.word(at + 2) {
                    path.push(self.tokens[at + 2].text.clone());
                    at += 2;
                }
                found.push((path, line));
                at += 1;
            } else {
                at += 1;
            }
        }
        found.into_iter().filter(|(path, _)| path.len() > 1).map(|(path, line)| (self.resolve(path), line)).collect()
    }

    /// Name, first line and length of each function.
    pub fn functions(&self) -> Vec<(String, usize, usize)> {
        let starts = (0..self.tokens.len()).filter(|&at| self.is(at, "fn") && self.word(at + 1));
        starts
            .map(|at| {
                let first = self.tokens[at].line;
                let last = self.tokens[item_end(&self.tokens, at) - 1].line;
                (self.tokens[at + 1].text.clone(), first, last + 1 - first)
            })
            .collect()
    }

    fn use_tree(&self, mut at: usize, prefix: &mut Vec<String>, found: &mut Vec<(Vec<String>, usize)>) -> usize {
        let outer = prefix.len();
        while at < self.tokens.len() {
            match self.tokens[at].text.as_str() {
                "{" => at = self.use_tree(at + 1, prefix, found),
                "as" => at += 2,
                end @ ("," | "}" | ";") => {
                    if prefix.len() > outer {
                        found.push((prefix.clone(), self.tokens[at].line));
                        prefix.truncate(outer);
                    }
                    at += 1;
                    if end != "," {
                        return at;
                    }
                }
                "::" => at += 1,
                word => {
                    prefix.push(word.to_owned());
                    at += 1;
                }
            }
        }
        at
    }

    fn resolve(&self, path: Vec<String>) -> Named {
        let mut base = self.module();
        let mut rest = path.as_slice();
        match rest[0].as_str() {
            "crate" | "derbent" => return Named::Inside(rest[1..].to_vec()),
            "self" | "super" => {}
            _ => return Named::Outside(path),
        }
        while let [first, tail @ ..] = rest {
            match first.as_str() {
                "self" => {}
                "super" => drop(base.pop()),
                _ => break,
            }
            rest = tail;
        }
        base.extend_from_slice(rest);
        Named::Inside(base)
    }

    fn is(&self, at: usize, text: &str) -> bool {
        matches(&self.tokens, at, &[text])
    }

    fn word(&self, at: usize) -> bool {
        self.tokens.get(at).is_some_and(|token| token.text.starts_with(|c: char| c.is_alphabetic() || c == '_'))
    }
}

fn matches(tokens: &[Token], at: usize, texts: &[&str]) -> bool {
    texts.iter().enumerate().all(|(step, text)| tokens.get(at + step).is_some_and(|token| token.text == *text))
}

/// Behind the item at `at`: behind its `;`, or behind the braces that close it.
fn item_end(tokens: &[Token], mut at: usize) -> usize {
    let (mut braces, mut others) = (0, 0);
    while at < tokens.len() {
        match tokens[at].text.as_str() {
            "(" | "[" => others += 1,
            ")" | "]" => others -= 1,
            "{" => braces += 1,
            "}" => braces -= 1,
            ";" if braces == 0 && others == 0 => return at + 1,
            _ => {}
        }
        at += 1;
        if braces == 0 && others == 0 && tokens[at - 1].text == "}" {
            // `use a::{b};`
            return if matches(tokens, at, &[";"]) { at + 1 } else { at };
        }
    }
    at
}

fn tokens(text: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let (mut rest, mut line) = (text, 1);
    while let Some(first) = rest.chars().next() {
        let length = token_length(rest, first);
        let (token, tail) = rest.split_at(length);
        if !first.is_whitespace() && !is_comment(token) && !is_literal(token) {
            tokens.push(Token { text: token.to_owned(), line });
        }
        line += token.matches('\n').count();
        rest = tail;
    }
    tokens
}

fn is_comment(token: &str) -> bool {
    token.starts_with("//") || token.starts_with("/*")
}

fn is_literal(token: &str) -> bool {
    token.len() > 1 && token.ends_with(['"', '\'', '#'])
}

fn token_length(rest: &str, first: char) -> usize {
    if rest.starts_with("//") {
        return rest.find('\n').unwrap_or(rest.len());
    }
    if rest.starts_with("/*") {
        return comment_length(rest);
    }
    if let Some(length) = string_length(rest) {
        return length;
    }
    if first.is_alphanumeric() || first == '_' {
        return rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
    }
    if rest.starts_with("::") { 2 } else { first.len_utf8() }
}

fn comment_length(rest: &str) -> usize {
    let mut depth = 0;
    for (at, _) in rest.char_indices() {
        if rest[at..].starts_with("/*") {
            depth += 1;
        } else if rest[at..].starts_with("*/") {
            depth -= 1;
            if depth == 0 {
                return at + 2;
            }
        }
    }
    rest.len()
}

/// A string or character literal at the start, its prefix included; `None` for anything else, lifetimes too.
fn string_length(rest: &str) -> Option<usize> {
    let body = rest.trim_start_matches(['b', 'c', 'r']);
    let prefix = rest.len() - body.len();
    let raw = rest[..prefix].contains('r');
    let hashes = body.len() - body.trim_start_matches('#').len();
    if raw && body[hashes..].starts_with('"') {
        let end = format!("\"{}", "#".repeat(hashes));
        let inner = prefix + hashes + 1;
        return Some(rest[inner..].find(&end).map_or(rest.len(), |at| inner + at + end.len()));
    }
    let quote = body.chars().next().filter(|c| matches!(c, '"' | '\''))?;
    let mut escaped = false;
    for (at, c) in body.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if c == quote => return Some(prefix + at + 1),
            // A lifetime: more than one character without a closing quote.
            _ if quote == '\'' && at > 1 && !body[1..].starts_with('\\') => return None,
            _ => {}
        }
    }
    None
}
