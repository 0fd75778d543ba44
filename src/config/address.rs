//! Addresses as written in a configuration: URLs of destinations, `host:port`, host patterns of routes. Syntax only;
//! nothing is looked up here. Errors say what was expected.

use std::net::{Ipv4Addr, Ipv6Addr};

/// `http://host[:port][/path]` or `https://…`, taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpAddress {
    pub tls: bool,
    /// A name or an IP address; IPv6 without its brackets.
    pub host: String,
    /// As written, else 80 or 443.
    pub port: u16,
    /// Starts with `/` when it was written, else empty.
    pub path: String,
}

impl HttpAddress {
    /// # Errors
    /// Says what was expected, for any text that is not of this form: another scheme, no host, a port outside
    /// 1–65535, user, query or fragment.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (scheme, rest) = text.split_once("://").ok_or("expected a URL such as http://10.0.0.1:8080")?;
        let tls = match scheme {
            "http" => false,
            "https" => true,
            _ => return Err("expected http:// or https:// in front".into()),
        };
        let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        if authority.contains('@') {
            return Err("a URL here has no user or password".into());
        }
        let (host, port) = host_and_port(authority)?;
        Ok(HttpAddress {
            tls,
            host: host.trim_matches(['[', ']']).to_owned(),
            port: port.unwrap_or(if tls { 443 } else { 80 }),
            path: plain_path(path)?.to_owned(),
        })
    }

    /// `host:port`, an IPv6 address in brackets.
    pub fn authority(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }
}

/// `host:port`; the port must be there.
pub(super) fn endpoint(text: &str) -> Result<String, String> {
    match host_and_port(text)? {
        (_, Some(_)) => Ok(text.to_owned()),
        (_, None) => Err("expected host:port, such as 127.0.0.1:5302".into()),
    }
}

/// A host a request may name: lower case, `*.` in front, a port behind.
pub(super) fn host_pattern(text: &str) -> Result<String, String> {
    host_and_port(text.strip_prefix("*.").unwrap_or(text))?;
    Ok(text.to_ascii_lowercase())
}

/// A Host header and TLS name: a host, with or without a port.
pub(super) fn host_name(text: &str) -> Result<String, String> {
    host_and_port(text)?;
    Ok(text.to_owned())
}

/// A name or address without a port, to hold a certificate against.
pub(super) fn server_name(text: &str) -> Result<String, String> {
    match host_and_port(text)? {
        (_, None) => Ok(text.to_owned()),
        (_, Some(_)) => Err("expected a host name without a port".into()),
    }
}

fn host_and_port(text: &str) -> Result<(&str, Option<u16>), String> {
    let bracketed = text.rfind(']').map_or(0, |end| end + 1);
    let (host, port) = match text[bracketed..].split_once(':') {
        Some((rest, port)) => (&text[..bracketed + rest.len()], Some(port)),
        None => (text, None),
    };
    check_host(host)?;
    let port = port
        .map(|port| {
            let digits = port.bytes().all(|b| b.is_ascii_digit());
            let number = port.parse().ok().filter(|number| digits && *number > 0);
            number.ok_or("expected a port from 1 to 65535")
        })
        .transpose()?;
    Ok((host, port))
}

fn check_host(host: &str) -> Result<(), String> {
    if let Some(address) = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        return match address.parse::<Ipv6Addr>() {
            Ok(_) => Ok(()),
            Err(_) => Err("expected an IPv6 address in the brackets".into()),
        };
    }
    if host.is_empty() {
        return Err("expected a host name or IP address".into());
    }
    if host.contains('*') {
        return Err("`*` may only stand in front of a route's host, as `*.example.com`".into());
    }
    if host.bytes().all(|b| b.is_ascii_digit() || b == b'.') {
        return match host.parse::<Ipv4Addr>() {
            Ok(_) => Ok(()),
            Err(_) => Err("expected four numbers from 0 to 255 in an IPv4 address".into()),
        };
    }
    let label_is_good = |label: &str| {
        (1..=63).contains(&label.len())
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
    };
    if host.len() <= 253 && host.split('.').all(label_is_good) {
        Ok(())
    } else if host.is_ascii() {
        Err("expected a host name of letters, digits, `-`, `_` and dots".into())
    } else {
        Err("expected a host name in ASCII; write an international one in its xn-- form".into())
    }
}

/// A path without query and fragment, or nothing.
fn plain_path(path: &str) -> Result<&str, String> {
    if path.contains(['?', '#']) {
        return Err("a URL here has no query and no fragment".into());
    }
    let parsed: Result<http::uri::PathAndQuery, _> = path.parse();
    match path.is_empty() || parsed.is_ok() && path.is_ascii() {
        true => Ok(path),
        false => Err("expected a path of URL characters; write others as %XX".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_urls_when_parsed_then_taken_apart_with_default_ports() {
        for (text, authority, path) in [
            ("http://10.0.0.1:3000", "10.0.0.1:3000", ""),
            ("http://ordering", "ordering:80", ""),
            ("https://shop_1.example.com/a%20b/", "shop_1.example.com:443", "/a%20b/"),
            ("https://[::1]:8443/x", "[::1]:8443", "/x"),
            ("http://[2001:db8::1]", "[2001:db8::1]:80", ""),
        ] {
            let address = HttpAddress::parse(text).expect(text);
            assert_eq!((address.authority().as_str(), address.path.as_str()), (authority, path));
            assert_eq!(address.tls, text.starts_with("https"));
        }
    }

    #[test]
    fn given_bad_urls_when_parsed_then_errors() {
        for text in [
            "",
            "10.0.0.1:3000",
            "localhost",
            "ftp://x",
            "http//x",
            "http://",
            "http:///x",
            "http://:80",
            "http://x:0",
            "http://x:65536",
            "http://x:",
            "http://x:+80",
            "http://u:p@x",
            "http://x?q",
            "http://x/a?q=1",
            "http://x/#f",
            "http://a b",
            "http://x/a b",
            "http://1.2.3",
            "http://1.2.3.400",
            "http://[::g]",
            "http://[::1",
            "http://::1",
            "http://-x",
            "http://x..y",
            "http://bücher.de",
            "http://x/ü",
            "http://x:80:80",
            "http://*.x",
            "http://]:80",
        ] {
            assert!(HttpAddress::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn given_hosts_of_routes_when_checked_then_lower_case_with_star_and_port() {
        assert_eq!(host_pattern("*.Shop.example.com:8443"), Ok("*.shop.example.com:8443".into()));
        for text in ["", "*", "*.", "a.*.b", "*a.b", "http://x", "x/y", "x:y"] {
            assert!(host_pattern(text).is_err(), "{text}");
        }
        assert_eq!(endpoint("127.0.0.1:5302"), Ok("127.0.0.1:5302".into()));
        assert!(endpoint("127.0.0.1").is_err());
    }
}
