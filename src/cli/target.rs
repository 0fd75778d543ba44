//! The address of a request, read once and whole, so that nothing can be wrong with it later.

use http::header::{HOST, HeaderValue};
use http::{Request, Uri};
use std::fmt;
use std::str::FromStr;

/// Where a request goes: `http://HOST[:PORT][/PATH][?QUERY]`; `https://` where [`Target::of_either`] read it.
#[derive(Debug, Clone)]
pub struct Target {
    written: String,
    pub(super) tls: bool,
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

    /// For HTTP/2, whose requests have no Host.
    pub(super) fn address_whole<B>(&self, request: &mut Request<B>) {
        let path = self.uri.path_and_query().map_or("/", |path| path.as_str());
        let whole = Uri::builder().scheme(self.scheme()).authority(self.authority.as_bytes()).path_and_query(path);
        if let Ok(whole) = whole.build() {
            *request.uri_mut() = whole;
        }
    }

    /// As written: `HOST[:PORT]` and the path.
    pub(super) fn parts(&self) -> (&HeaderValue, &Uri) {
        (&self.authority, &self.uri)
    }

    /// The same server, another path.
    pub(super) fn at(&self, path: &str) -> Result<Target, String> {
        match path.starts_with('/') {
            true => {
                let authority = self.authority.to_str().unwrap_or_default();
                Target::of_either(&format!("{}://{authority}{path}", self.scheme()))
            }
            false => Err(format!("expected a path such as /books, not {path:?}")),
        }
    }

    fn scheme(&self) -> &'static str {
        if self.tls { "https" } else { "http" }
    }

    /// `http://` or `https://`.
    pub(super) fn of_either(text: &str) -> Result<Target, String> {
        let expected = || "expected http://HOST[:PORT][/PATH] or https://…".to_owned();
        let uri: Uri = text.parse().map_err(|_| expected())?;
        let tls = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(expected()),
        };
        let authority = uri.authority().filter(|authority| !authority.as_str().contains('@')).ok_or_else(expected)?;
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        let port = match authority.as_str().strip_prefix(authority.host()) {
            Some("") if tls => 443,
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
            tls,
            host,
            port,
            uri: path.parse().map_err(|_| expected())?,
            authority: HeaderValue::from_str(authority.as_str()).map_err(|_| expected())?,
        })
    }
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Target, String> {
        match Target::of_either(text) {
            Ok(target) if target.tls => Err("https is not spoken here; give an http:// address".to_owned()),
            Ok(target) => Ok(target),
            Err(_) => Err("expected http://HOST[:PORT][/PATH]".to_owned()),
        }
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

    #[test]
    fn given_an_address_of_either_scheme_when_read_then_port_and_other_paths_follow_it() {
        let secure = Target::of_either("https://shop.example.com/books").unwrap();
        assert_eq!((secure.tls, secure.port), (true, 443));
        let other = secure.at("/echo?x=1").unwrap();
        assert_eq!((other.port, other.uri.to_string().as_str()), (443, "/echo?x=1"));
        let mut request = Request::new(());
        other.address_whole(&mut request);
        assert_eq!(request.uri(), "https://shop.example.com/echo?x=1");
        assert!(!Target::of_either("http://a:81/").unwrap().at("/x").unwrap().tls);
        assert!(secure.at("echo").unwrap_err().contains("path") && Target::of_either("ftp://a/").is_err());
    }
}
