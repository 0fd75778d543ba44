//! The address of a request, read once and whole, so that nothing can be wrong with it later.

use http::header::{HOST, HeaderValue};
use http::{Request, Uri};
use std::fmt;
use std::str::FromStr;

/// Where a request goes: `http://HOST[:PORT][/PATH][?QUERY]`.
#[derive(Debug, Clone)]
pub struct Target {
    written: String,
    pub(super) host: String,
    pub(super) port: u16,
    /// Path and query.
    uri: Uri,
    authority: HeaderValue,
}

impl Target {
    /// Sends the request here.
    pub(super) fn address<B>(&self, request: &mut Request<B>) {
        *request.uri_mut() = self.uri.clone();
        request.headers_mut().insert(HOST, self.authority.clone());
    }
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Target, String> {
        let expected = || "expected http://HOST[:PORT][/PATH]".to_owned();
        let uri: Uri = text.parse().map_err(|_| expected())?;
        match uri.scheme_str() {
            Some("http") => {}
            Some("https") => {
                return Err("https is not spoken here; give an http:// address".to_owned());
            }
            _ => return Err(expected()),
        }
        let authority = uri.authority().filter(|authority| !authority.as_str().contains('@')).ok_or_else(expected)?;
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        let port = match authority.as_str().strip_prefix(authority.host()) {
            Some("") => 80,
            // `Uri` lets `host:` and `host:99999` through.
            _ => authority.port_u16().filter(|port| *port != 0).ok_or_else(expected)?,
        };
        if host.is_empty() {
            return Err(expected());
        }
        // Written out, a path that begins with `?` gets its slash.
        let path = uri.path_and_query().map_or("/".to_owned(), ToString::to_string);
        Ok(Target {
            written: text.to_owned(),
            host,
            port,
            uri: path.parse().map_err(|_| expected())?,
            authority: HeaderValue::from_str(authority.as_str()).map_err(|_| expected())?,
        })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.written)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_an_http_address_when_read_then_host_port_and_path_are_its_own() {
        for (text, host, port, path, authority) in [
            ("http://localhost:5300/api/v1/books?x=1#y", "localhost", 5300, "/api/v1/books?x=1", "localhost:5300"),
            ("http://shop.example.com", "shop.example.com", 80, "/", "shop.example.com"),
            ("http://[::1]:81?q", "::1", 81, "/?q", "[::1]:81"),
            ("http://[::1]/a%2Fb", "::1", 80, "/a%2Fb", "[::1]"),
        ] {
            let target: Target = text.parse().unwrap();
            assert_eq!((target.host.as_str(), target.port), (host, port), "{text}");
            assert_eq!(
                (target.uri.to_string().as_str(), target.authority.to_str().unwrap()),
                (path, authority),
                "{text}"
            );
            assert_eq!(target.to_string(), text);
        }
    }

    #[test]
    fn given_any_other_address_when_read_then_it_is_refused() {
        for text in [
            "",
            "localhost",
            "localhost:80",
            "/books",
            "ftp://a/",
            "http://",
            "http:///x",
            "http://a:0/",
            "http://a:/",
            "http://a:99999/",
            "http://a:b/",
            "http://u:p@a/",
            "http://u@a:1/",
            "http://a b/",
        ] {
            assert!(text.parse::<Target>().unwrap_err().contains("http://HOST"), "{text}");
        }
        assert!("https://a/".parse::<Target>().unwrap_err().contains("https is not spoken"));
    }
}
