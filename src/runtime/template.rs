//! Path templates: `/api/{name}` matches one segment, `/api/{**rest}` the rest, also an empty one. Matching is by whole
//! segments, byte for byte and case-sensitive; one trailing slash is overlooked, the template's and the request's, as
//! ASP.NET Core's routing does.

use crate::config;

/// A parsed template. Its syntax was checked when the configuration was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    segments: Vec<Segment>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Segment {
    Literal(String),
    Parameter(String),
    Rest(String),
}

impl Template {
    pub fn parse(template: &str) -> Self {
        let segments = config::segments(template).unwrap_or_default().into_iter().map(|segment| match segment {
            config::Segment::Literal(text) => Segment::Literal(text.to_string()),
            config::Segment::Parameter(name) => Segment::Parameter(name.to_string()),
            config::Segment::Rest(name) => Segment::Rest(name.to_string()),
        });
        let mut segments: Vec<Segment> = segments.collect();
        segments.pop_if(|last| *last == Segment::Literal(String::new()));
        Template { segments }
    }

    /// The route's own; every path where it has none.
    pub fn of(route: &config::Route) -> Self {
        route.matches.path.as_ref().map_or_else(Template::everything, |path| Template::parse(&path.value))
    }

    fn everything() -> Self {
        Template { segments: vec![Segment::Rest("path".to_string())] }
    }

    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// ASP.NET Core's precedence: segment by segment a literal is before a parameter before the rest.
    pub fn precedence(&self) -> Vec<u8> {
        let digit = |segment: &Segment| match segment {
            Segment::Literal(_) => 1,
            Segment::Parameter(_) => 3,
            Segment::Rest(_) => 5,
        };
        self.segments.iter().map(digit).collect()
    }

    /// The value of a parameter in a path that matches.
    pub fn capture<'a>(&self, name: &str, path: &'a str) -> Option<&'a str> {
        let mut left = path.strip_prefix('/').unwrap_or(path);
        for segment in &self.segments {
            let (first, rest) = left.split_once('/').unwrap_or((left, ""));
            match segment {
                Segment::Parameter(parameter) if parameter == name => return Some(first),
                Segment::Rest(parameter) => return (parameter == name).then_some(left),
                _ => left = rest,
            }
        }
        None
    }
}

/// The segments of a path: what stands between slashes, without an empty last one.
pub fn segments(path: &str) -> impl Iterator<Item = &str> + Clone {
    let path = path.strip_prefix('/').unwrap_or(path);
    let path = path.strip_suffix('/').unwrap_or(path);
    (!path.is_empty()).then(|| path.split('/')).into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_a_template_when_captured_then_parameters_hold_the_paths_own_bytes() {
        let template = Template::parse("/shop/{id}/{**rest}");
        assert_eq!(template.capture("id", "/shop/a%2Fb/c/d/"), Some("a%2Fb"));
        assert_eq!(template.capture("rest", "/shop/x/c/d/"), Some("c/d/"));
        assert_eq!(template.capture("rest", "/shop/x"), Some(""));
        assert_eq!(template.capture("other", "/shop/x"), None);
    }

    #[test]
    fn given_a_template_with_a_closing_slash_when_parsed_then_it_is_the_one_without() {
        assert_eq!(Template::parse("/books/"), Template::parse("/books"));
        assert_eq!(Template::parse("/{id}/"), Template::parse("/{id}"));
        assert!(Template::parse("/").segments().is_empty());
    }

    #[test]
    fn given_templates_when_ranked_then_literals_come_before_parameters_before_the_rest() {
        let rank = |template: &str| Template::parse(template).precedence();
        assert!(rank("/a/b") < rank("/a/{x}"));
        assert!(rank("/a/{x}") < rank("/a/{**x}"));
        assert!(rank("/a") < rank("/a/{**x}"));
        assert!(rank("/a/{**x}") < Template::everything().precedence());
    }
}
