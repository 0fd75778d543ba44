//! Path templates of routes: `/api/{version}/books/{**rest}`. Syntax only; matching is the router's.

/// One segment of a template.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Segment<'t> {
    /// As written, percent-encoding untouched; empty only at the end, for a closing `/`.
    Literal(&'t str),
    /// `{name}`: one segment.
    Parameter(&'t str),
    /// `{**name}`: all that is left, also nothing; only at the end.
    Rest(&'t str),
}

/// The segments between the slashes; `/` alone has none.
///
/// # Errors
/// Says what was expected: no `/` in front, an empty segment, a parameter that does not fill its segment or bears a
/// name twice, a `{**rest}` before the end, a query.
pub fn segments(template: &str) -> Result<Vec<Segment<'_>>, String> {
    let Some(inside) = template.strip_prefix('/') else {
        return Err("expected a path that starts with `/`".into());
    };
    if inside.is_empty() {
        return Ok(Vec::new());
    }
    let mut segments = Vec::new();
    let mut names = Vec::new();
    let mut parts = inside.split('/').peekable();
    while let Some(part) = parts.next() {
        let last = parts.peek().is_none();
        let segment = segment(part)?;
        match segment {
            Segment::Literal("") if !last => return Err("expected text between two slashes".into()),
            Segment::Rest(name) if !last => {
                return Err(format!("`{{**{name}}}` takes the rest, so it must come last"));
            }
            Segment::Literal(_) => {}
            Segment::Parameter(name) | Segment::Rest(name) if names.contains(&name) => {
                return Err(format!("`{name}` names two parameters"));
            }
            Segment::Parameter(name) | Segment::Rest(name) => names.push(name),
        }
        segments.push(segment);
    }
    Ok(segments)
}

/// The names a text asks for: `{rest}` or `{**rest}` in the `to` of a redirect.
///
/// # Errors
/// A brace without its partner, or a name that is none.
pub fn references(text: &str) -> Result<Vec<&str>, String> {
    let mut names = Vec::new();
    let mut rest = text;
    while let Some(brace) = rest.find(['{', '}']) {
        let inside = rest[brace..].strip_prefix('{').and_then(|after| after.split_once('}'));
        let (name, after) = inside.ok_or("expected every `{` to be closed by a `}`")?;
        names.push(parameter_name(name.strip_prefix("**").unwrap_or(name))?);
        rest = after;
    }
    Ok(names)
}

fn segment(part: &str) -> Result<Segment<'_>, String> {
    if let Some(inside) = part.strip_prefix('{').and_then(|part| part.strip_suffix('}')) {
        return match inside.strip_prefix("**") {
            Some(name) => parameter_name(name).map(Segment::Rest),
            None if inside.starts_with('*') => Err("expected `{**name}` for the rest of a path".into()),
            None => parameter_name(inside).map(Segment::Parameter),
        };
    }
    if part.contains(['{', '}']) {
        return Err("a parameter fills its segment: `/{name}/`".into());
    }
    if part.contains('*') {
        return Err("`*` has no meaning in a path; write `{**rest}` for what follows".into());
    }
    if part.contains(['?', '#']) {
        return Err("a path here has no query and no fragment".into());
    }
    let encoded =
        part.split('%').skip(1).all(|after| after.len() >= 2 && after.bytes().take(2).all(|b| b.is_ascii_hexdigit()));
    if encoded && part.bytes().all(|b| b.is_ascii_graphic() && !b"\"<>\\^`|".contains(&b)) {
        Ok(Segment::Literal(part))
    } else {
        Err("expected a path of URL characters; write others as %XX".into())
    }
}

fn parameter_name(name: &str) -> Result<&str, String> {
    let good = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    match !name.is_empty() && name.chars().all(good) {
        true => Ok(name),
        false => Err("expected a parameter name of letters, digits, `_` and `-` in the braces".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::Segment::{Literal, Parameter, Rest};
    use super::*;

    #[test]
    fn given_templates_when_parsed_then_their_segments() {
        for (text, expected) in [
            ("/", vec![]),
            ("/api/", vec![Literal("api"), Literal("")]),
            ("/a%2Fb;x/{id}/{**the-rest}", vec![Literal("a%2Fb;x"), Parameter("id"), Rest("the-rest")]),
        ] {
            assert_eq!(segments(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn given_bad_templates_when_parsed_then_errors() {
        for text in [
            "", "api", "//", "/a//b", "/a b", "/{", "/{}", "/{a", "/a}", "/x{a}", "/{a}{b}", "/{a}/{a}", "/{**a}/b",
            "/{**a}/", "/{*a}", "/{**}", "/*", "/a?b", "/a#b", "/%zz", "/%2", "/ü", "/{ä}", "/%é", "/a\tb",
        ] {
            assert!(segments(text).is_err(), "{text}");
        }
    }

    #[test]
    fn given_a_redirect_target_when_asked_then_the_names_in_it() {
        assert_eq!(references("https://x/{a}/{**rest}"), Ok(vec!["a", "rest"]));
        for text in ["/{", "/}", "/{a", "/{a b}", "/{{a}}"] {
            assert!(references(text).is_err(), "{text}");
        }
    }
}
