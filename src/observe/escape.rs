//! Text that a peer chose, made safe for a log: one record stays one line, and no terminal obeys it.

use std::fmt::{self, Display, Write};

/// Shows `T` with control characters, line separators and text direction overrides written as escapes (`\n`, `\u{1b}`).
/// All else, backslashes included, stays as it is.
pub struct Escaped<T>(pub T);

impl<T: Display> Display for Escaped<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(Escaping(f), "{}", self.0)
    }
}

struct Escaping<W>(W);

impl<W: Write> Write for Escaping<W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut rest = text;
        while let Some(at) = rest.find(is_unsafe) {
            self.0.write_str(&rest[..at])?;
            let mut chars = rest[at..].chars();
            if let Some(c) = chars.next() {
                write!(self.0, "{}", c.escape_default())?;
            }
            rest = chars.as_str();
        }
        self.0.write_str(rest)
    }
}

pub(super) fn is_unsafe(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_text_with_controls_when_shown_then_they_are_escapes() {
        let cases = [
            ("/a\r\nWARN forged", "/a\\r\\nWARN forged"),
            ("\u{1b}[31mred", "\\u{1b}[31mred"),
            ("\u{7f}\u{9b}\0", "\\u{7f}\\u{9b}\\u{0}"),
            ("a\u{202e}b\u{2028}", "a\\u{202e}b\\u{2028}"),
        ];
        for (text, shown) in cases {
            assert_eq!(Escaped(text).to_string(), shown);
        }
    }

    #[test]
    fn given_plain_text_when_shown_then_it_is_unchanged() {
        for text in ["", "/books?q=%0A", "C:\\temp", "Bücher \"x\" → 書"] {
            assert_eq!(Escaped(text).to_string(), text);
        }
    }
}
