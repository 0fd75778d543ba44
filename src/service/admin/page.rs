//! The addresses of the admin listener. Segments are percent-decoded one by one, so that a name may hold any character.

use http::Method;

#[derive(Debug, PartialEq, Eq)]
pub enum Page {
    Health,
    Ready,
    Metrics,
    Requests,
    /// Tells how the process takes its leave, and takes the order to.
    Drain,
    /// Takes the order to read the file again.
    Reload,
    /// Takes the order to start a successor.
    Upgrade,
    Clusters,
    Cluster(String),
    Explain(Place),
    /// Takes orders about the state.
    State(Place),
    /// Takes orders about the weight.
    Weight(Place),
    /// Takes orders about the share of a cluster's canary.
    Canary(String),
}

#[derive(Debug, PartialEq, Eq)]
pub struct Place {
    pub cluster: String,
    pub destination: String,
}

/// What there is, for whoever asked for something else.
pub const ALL: &str = "/metrics /health /ready /api/v1/clusters /api/v1/clusters/{cluster} \
    /api/v1/explain/{cluster}/{destination} /api/v1/clusters/{cluster}/destinations/{destination}/state and …/weight \
    /api/v1/clusters/{cluster}/canary /api/v1/requests /api/v1/drain /api/v1/reload /api/v1/upgrade";

impl Page {
    pub fn of(path: &str) -> Option<Page> {
        let Some(path) = path.strip_prefix("/api/v1/") else {
            return match path {
                "/health" => Some(Page::Health),
                "/ready" => Some(Page::Ready),
                "/metrics" => Some(Page::Metrics),
                _ => None,
            };
        };
        let segments = path.split('/').map(percent_decoded).collect::<Option<Vec<String>>>()?;
        let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
        let place = |cluster: &str, destination: &str| Place {
            cluster: cluster.to_string(),
            destination: destination.to_string(),
        };
        match segments[..] {
            ["requests"] => Some(Page::Requests),
            ["drain"] => Some(Page::Drain),
            ["reload"] => Some(Page::Reload),
            ["upgrade"] => Some(Page::Upgrade),
            ["clusters"] => Some(Page::Clusters),
            ["clusters", cluster] => Some(Page::Cluster(cluster.to_string())),
            ["clusters", cluster, "canary"] => Some(Page::Canary(cluster.to_string())),
            ["explain", cluster, destination] => Some(Page::Explain(place(cluster, destination))),
            ["clusters", cluster, "destinations", destination, "state"] => {
                Some(Page::State(place(cluster, destination)))
            }
            ["clusters", cluster, "destinations", destination, "weight"] => {
                Some(Page::Weight(place(cluster, destination)))
            }
            _ => None,
        }
    }

    /// As the header Allow lists them.
    pub fn methods(&self) -> &'static str {
        match self {
            Page::State(_) | Page::Reload | Page::Upgrade => "POST",
            Page::Weight(_) | Page::Canary(_) => "PUT",
            Page::Drain => "GET, HEAD, POST",
            _ => "GET, HEAD",
        }
    }

    pub fn takes(&self, method: &Method) -> bool {
        self.methods().split(", ").any(|known| known == method.as_str())
    }

    /// Everybody may ask.
    pub fn is_open(&self) -> bool {
        matches!(self, Page::Health | Page::Ready)
    }

    /// It changes something.
    pub fn is_order(&self, method: &Method) -> bool {
        self.takes(method) && matches!(*method, Method::POST | Method::PUT)
    }
}

/// A path segment with its `%XX` read; `None` when it then is no UTF-8.
fn percent_decoded(segment: &str) -> Option<String> {
    let mut decoded = Vec::new();
    let mut rest = segment.as_bytes();
    while let [first, after @ ..] = rest {
        let digit = |at: usize| char::from(*after.get(at)?).to_digit(16);
        match (first, digit(0), digit(1)) {
            (b'%', Some(high), Some(low)) => {
                decoded.push((high * 16 + low) as u8);
                rest = &after[2..];
            }
            _ => {
                decoded.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8(decoded).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_a_segment_when_decoded_then_each_escape_once_and_what_is_none_stays() {
        for (segment, decoded) in [
            ("odd%20name", Some("odd name")),
            ("a%2Fb", Some("a/b")),
            ("%2520", Some("%20")),
            ("%C3%BC", Some("ü")),
            ("%", Some("%")),
            ("%+1", Some("%+1")),
            ("%ff", None),
        ] {
            assert_eq!(percent_decoded(segment).as_deref(), decoded, "{segment}");
        }
    }

    #[test]
    fn given_paths_when_read_then_names_may_hold_anything_and_no_more_segments_are_taken() {
        let place =
            |cluster: &str, destination: &str| Place { cluster: cluster.into(), destination: destination.into() };
        for (path, page) in [
            ("/api/v1/explain/app/%5B::1%5D:80", Some(Page::Explain(place("app", "[::1]:80")))),
            ("/api/v1/explain/a%2Fb/[::1]:80", Some(Page::Explain(place("a/b", "[::1]:80")))),
            ("/api/v1/clusters/app/destinations/a%2Fstate/state", Some(Page::State(place("app", "a/state")))),
            ("/api/v1/clusters/app/destinations/a/weight", Some(Page::Weight(place("app", "a")))),
            ("/api/v1/clusters/app/canary", Some(Page::Canary("app".into()))),
            ("/api/v1/clusters/", Some(Page::Cluster(String::new()))),
            ("/api/v1/explain/app", None),
            ("/api/v1/explain/app/a/", None),
            ("/api/v1/clusters/app/destinations/a/states", None),
            ("/api/v1", None),
            ("/health/", None),
        ] {
            assert_eq!(Page::of(path), page, "{path}");
        }
    }
}
