use http::{HeaderMap, Method, header};
use std::net::IpAddr;

/// What routing and picking may look at, borrowed from the client's request.
#[derive(Debug, Clone, Copy)]
pub struct RequestView<'a> {
    pub method: &'a Method,
    /// The host asked for, without its port; in the client's own letters.
    pub host: &'a str,
    /// The port written with the host.
    pub port: Option<u16>,
    /// The path byte for byte, without the query.
    pub path: &'a str,
    /// What stands behind the `?`, byte for byte.
    pub query: Option<&'a str>,
    pub headers: &'a HeaderMap,
    /// The address of the client's connection; IPv4 inside IPv6 is IPv4.
    pub client_ip: Option<IpAddr>,
}

impl<'a> RequestView<'a> {
    /// The first cookie of this name that has a value, byte for byte. Looks at each byte of the Cookie fields once, whatever
    /// they hold.
    pub fn cookie(&self, name: &str) -> Option<&'a [u8]> {
        let fields = self.headers.get_all(header::COOKIE).iter();
        fields.flat_map(|field| field.as_bytes().split(|&b| b == b';')).find_map(|pair| {
            let equals = pair.iter().position(|&b| b == b'=')?;
            let value = pair[equals + 1..].trim_ascii();
            (pair[..equals].trim_ascii() == name.as_bytes() && !value.is_empty()).then_some(value)
        })
    }
}

/// RFC 9110's `token`, of which names are made.
pub fn is_token(name: &[u8]) -> bool {
    !name.is_empty() && name.iter().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte))
}

#[cfg(test)]
mod tests {
    use super::super::testing::request;
    use super::*;
    use http::HeaderValue;
    use proptest::prelude::*;

    fn cookies(fields: &[&[u8]]) -> HeaderMap {
        let fields = fields.iter().map(|field| (header::COOKIE, HeaderValue::from_bytes(field).expect("a value")));
        fields.collect()
    }

    fn found(headers: &HeaderMap) -> Option<&[u8]> {
        RequestView { headers, ..request() }.cookie("sid")
    }

    #[test]
    fn given_cookies_in_one_or_several_fields_when_asked_then_the_first_of_the_name_with_a_value() {
        for (fields, expected) in [
            (&[b"sid=1" as &[u8]] as &[&[u8]], Some(b"1" as &[u8])),
            (&[b"a=b; sid=x=y;sid=2"], Some(b"x=y")),
            (&[b"a=b", b" sid = \"q\" ;"], Some(b"\"q\"")),
            (&[b"sid=; sid=2"], Some(b"2")),
            (&[b"sid=\xff\xfe"], Some(b"\xff\xfe")),
            (&[b"SID=1; xsid=2; sid; =sid; sid=", b";;=;", b""], None),
            (&[], None),
        ] {
            assert_eq!(found(&cookies(fields)), expected, "{fields:?}");
        }
    }

    proptest! {
        #[test]
        fn given_any_bytes_when_a_cookie_is_asked_then_nothing_or_a_part_of_them(
            field in prop::collection::vec(prop::sample::select(b"sid=; \t\xffx,\"".to_vec()), 0..60)
        ) {
            let headers = cookies(&[&field]);
            if let Some(value) = found(&headers) {
                prop_assert!(!value.is_empty() && field.windows(value.len()).any(|part| part == value));
            }
        }
    }
}
