use super::template::Template;
use super::{Cluster, Split};
use crate::filter::RemovePrefix;
use crate::observe::RouteMetrics;
use std::slice;
use std::sync::Arc;
use std::time::Duration;

/// A match's end: what is done with the request. The match itself is the router's.
pub struct Route {
    pub name: Arc<str>,
    pub action: Action,
    /// Of the whole request.
    pub timeout: Option<Duration>,
    /// In the order written.
    pub filters: Vec<RemovePrefix>,
    /// One for each listener, by its position.
    pub metrics: Vec<RouteMetrics>,
}

pub enum Action {
    Forward(Arc<Cluster>),
    Split(Split),
    Redirect(Redirect),
    Respond(Respond),
}

impl Action {
    /// Where it may send a request to.
    pub fn clusters(&self) -> &[Arc<Cluster>] {
        match self {
            Action::Forward(cluster) => slice::from_ref(cluster),
            Action::Split(split) => split.clusters(),
            Action::Redirect(_) | Action::Respond(_) => &[],
        }
    }
}

pub struct Respond {
    pub status: u16,
    pub body: String,
}

pub struct Redirect {
    pub status: u16,
    pub(super) template: Template,
    pub(super) to: Vec<Part>,
}

/// A piece of `to`.
pub(super) enum Part {
    Text(String),
    Parameter(String),
}

impl Route {
    /// The path that goes on, after all filters.
    pub fn forwarded_path<'a>(&self, path: &'a str) -> &'a str {
        self.filters.iter().fold(path, |path, filter| filter.apply(path))
    }
}

impl Redirect {
    /// The target for a path that matched; the query, where there is one, goes along.
    pub fn location(&self, path: &str, query: Option<&str>) -> String {
        let mut location = String::new();
        for part in &self.to {
            location.push_str(match part {
                Part::Text(text) => text,
                Part::Parameter(name) => self.template.capture(name, path).unwrap_or(""),
            });
        }
        if self.is_path() {
            // `//host` and, to browsers, `/\host` are not a path but another host's.
            let path = location.trim_start_matches(['/', '\\']).len();
            location.replace_range(..location.len() - path, "/");
        }
        if let Some(query) = query {
            location.push(if location.contains('?') { '&' } else { '?' });
            location.push_str(query);
        }
        location
    }
}

impl Redirect {
    /// Whether the operator wrote a path of this host.
    fn is_path(&self) -> bool {
        matches!(self.to.first(), Some(Part::Text(text)) if text.starts_with('/') && !text.starts_with("//"))
    }
}

/// Takes `https://x/{rest}` apart.
pub(super) fn parts(to: &str) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut left = to;
    while let Some((text, tail)) = left.split_once('{') {
        let Some((name, rest)) = tail.split_once('}') else { break };
        parts.push(Part::Text(text.to_string()));
        parts.push(Part::Parameter(name.trim_start_matches('*').to_string()));
        left = rest;
    }
    parts.push(Part::Text(left.to_string()));
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_a_redirect_when_located_then_parameters_and_query_go_along() {
        let redirect = |to: &str| Redirect { status: 308, template: Template::parse("/shop/{**rest}"), to: parts(to) };
        let to = redirect("https://shop.example.com/{rest}");
        assert_eq!(to.location("/shop/a%2Fb/c", None), "https://shop.example.com/a%2Fb/c");
        assert_eq!(to.location("/shop/a", Some("x=1&y")), "https://shop.example.com/a?x=1&y");
        assert_eq!(redirect("/new?from={rest}").location("/shop/a", Some("b")), "/new?from=a&b");
    }

    #[test]
    fn given_a_redirect_to_a_path_when_a_client_writes_a_host_into_it_then_it_stays_on_this_host() {
        let redirect = |to: &str| Redirect { status: 308, template: Template::parse("/old/{**rest}"), to: parts(to) };
        for (path, location) in [
            ("/old//evil.example/x", "/evil.example/x"),
            ("/old/\\evil.example", "/evil.example"),
            ("/old/\\/evil.example", "/evil.example"),
            ("/old/a//b", "/a//b"),
            ("/old", "/"),
        ] {
            assert_eq!(redirect("/{rest}").location(path, None), location);
        }
        assert_eq!(redirect("//cdn.example/{rest}").location("/old/a", None), "//cdn.example/a");
        assert_eq!(redirect("https://a.example/{rest}").location("/old//b", None), "https://a.example//b");
    }
}
