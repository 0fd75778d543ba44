//! What Maglev hashes of a request.

use crate::config::{Located, Section, unknown};
use crate::model::{RequestView, is_token};
use http::HeaderName;
use std::net::IpAddr;
use xxhash_rust::xxh64::xxh64;

#[derive(Debug, Clone, PartialEq)]
pub enum Key {
    ClientIp,
    /// The first field of this name.
    Header(HeaderName),
    /// The first cookie of this name that has a value; names are case-sensitive.
    Cookie(String),
    /// Without the query.
    Path,
}

impl Key {
    /// `key: client_ip | header:NAME | cookie:NAME | path`. Default client_ip.
    pub fn read(params: &mut Section<'_>) -> Key {
        let Some(Located { value: text, at }) = params.text("key") else { return Key::ClientIp };
        Key::parse(&text).unwrap_or_else(|message| {
            params.problem(&at, message);
            Key::ClientIp
        })
    }

    fn parse(text: &str) -> Result<Key, String> {
        let (kind, name) = text.split_once(':').map_or((text, None), |(kind, name)| (kind, Some(name)));
        match (kind, name) {
            ("client_ip", None) => Ok(Key::ClientIp),
            ("path", None) => Ok(Key::Path),
            ("header", Some(name)) => match name.parse() {
                Ok(name) => Ok(Key::Header(name)),
                Err(_) => Err(format!("expected the name of a header behind `header:`; found {name:?}")),
            },
            ("cookie", Some(name)) if is_token(name.as_bytes()) => Ok(Key::Cookie(name.to_owned())),
            ("cookie", Some(name)) => Err(format!("expected the name of a cookie behind `cookie:`; found {name:?}")),
            ("header" | "cookie", None) => Err(format!("expected a name as well: {kind}:NAME; found {text:?}")),
            ("client_ip" | "path", Some(_)) => Err(format!("`{kind}` stands alone; found {text:?}")),
            (_, name) => {
                let [header, cookie] = ["header", "cookie"].map(|kind| format!("{kind}:{}", name.unwrap_or("NAME")));
                Err(unknown("key", text, &["client_ip", &header, &cookie, "path"]))
            }
        }
    }

    /// `None` when the request has no such thing, or nothing in it.
    pub fn hash(&self, request: &RequestView<'_>) -> Option<u64> {
        let of = |bytes: &[u8]| (!bytes.is_empty()).then(|| xxh64(bytes, 0));
        match self {
            Key::ClientIp => match request.client_ip? {
                IpAddr::V4(ip) => of(&ip.octets()),
                IpAddr::V6(ip) => of(&ip.octets()),
            },
            Key::Header(name) => of(request.headers.get(name)?.as_bytes()),
            Key::Cookie(name) => of(request.cookie(name)?),
            Key::Path => of(request.path.as_bytes()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::testing::request;
    use http::{HeaderMap, HeaderValue};

    fn parsed(text: &str) -> Result<Key, String> {
        Key::parse(text)
    }

    #[test]
    fn given_each_kind_when_read_then_it_and_its_name() {
        assert_eq!(parsed("client_ip"), Ok(Key::ClientIp));
        assert_eq!(parsed("path"), Ok(Key::Path));
        assert_eq!(parsed("header:X-User"), Ok(Key::Header(HeaderName::from_static("x-user"))));
        assert_eq!(parsed("cookie:Sid"), Ok(Key::Cookie("Sid".into())));
    }

    #[test]
    fn given_what_is_no_key_when_read_then_what_is_wrong_with_it() {
        for (text, told) in [
            ("client-ip", "unknown key \"client-ip\"; did you mean \"client_ip\"?"),
            ("heder:X-User", "did you mean \"header:X-User\"?"),
            ("Cookie:sid", "did you mean \"cookie:sid\"?"),
            ("uri", "one of: client_ip, header:NAME, cookie:NAME, path"),
            ("header", "expected a name as well: header:NAME"),
            ("header:", "expected the name of a header"),
            ("header:X User", "expected the name of a header"),
            ("cookie:a=b", "expected the name of a cookie"),
            ("path:/a", "`path` stands alone"),
        ] {
            let message = parsed(text).expect_err(text);
            assert!(message.contains(told), "{text}: {message}");
        }
    }

    #[test]
    fn given_a_request_when_hashed_then_by_that_part_of_it_alone_and_not_at_all_without_it() {
        let mut headers = HeaderMap::new();
        headers.insert("x-user", HeaderValue::from_static("u1"));
        headers.insert("cookie", HeaderValue::from_static("sid=s1; empty="));
        let full = RequestView {
            headers: &headers,
            client_ip: Some([10, 0, 0, 1].into()),
            path: "/p",
            query: Some("a=b"),
            ..request()
        };
        for (key, bytes) in
            [("header:x-user", b"u1" as &[u8]), ("cookie:sid", b"s1"), ("client_ip", &[10, 0, 0, 1]), ("path", b"/p")]
        {
            assert_eq!(parsed(key).unwrap().hash(&full), Some(xxh64(bytes, 0)), "{key}");
        }
        for key in ["header:x-none", "cookie:empty", "cookie:none"] {
            assert_eq!(parsed(key).unwrap().hash(&full), None, "{key}");
        }
        assert_eq!(Key::ClientIp.hash(&request()), None);
    }
}
