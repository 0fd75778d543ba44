//! Who may ask for what. An order is refused to whatever a web page of another place could send: it must be JSON by its content type and,
//! where an `Origin` is told, come from this very listener.

use super::page::Page;
use super::{Answer, text};
use http::{HeaderName, HeaderValue, Request, StatusCode, header};

/// Why the request is not answered as it asks, by its head alone.
pub fn refusal<B>(request: &Request<B>, page: Option<&Page>, token: Option<&str>) -> Option<Answer> {
    let is_open = page.is_some_and(Page::is_open);
    let is_order = page.is_some_and(|page| page.is_order(request.method()));
    method(request, page)
        .or_else(|| if is_open { None } else { stranger(request, token) })
        .or_else(|| if is_order { foreign(request).or_else(|| content_type(request)) } else { None })
}

fn method<B>(request: &Request<B>, page: Option<&Page>) -> Option<Answer> {
    let page = page.filter(|page| !page.takes(request.method()))?;
    let only = format!("{} only\n", and(page.methods()));
    Some(with(header::ALLOW, page.methods(), text(StatusCode::METHOD_NOT_ALLOWED, &only)))
}

/// The token is missing or, where none is configured, the host is a name that others can point here.
fn stranger<B>(request: &Request<B>, token: Option<&str>) -> Option<Answer> {
    match token {
        Some(token) => {
            let sent = value(request, header::AUTHORIZATION).and_then(|value| value.strip_prefix("Bearer "));
            if sent.is_some_and(|sent| same(sent.as_bytes(), token.as_bytes())) {
                return None;
            }
            let refusal = text(StatusCode::UNAUTHORIZED, "send the token as Authorization: Bearer …\n");
            Some(with(header::WWW_AUTHENTICATE, "Bearer", refusal))
        }
        None if host(request).is_none_or(is_loopback) => None,
        None => Some(text(StatusCode::FORBIDDEN, "the Host header must name this machine's loopback\n")),
    }
}

fn foreign<B>(request: &Request<B>) -> Option<Answer> {
    let origin = value(request, header::ORIGIN)?;
    let own = origin.strip_prefix("http://").zip(host(request));
    if request.headers().get_all(header::ORIGIN).iter().count() == 1
        && own.is_some_and(|(origin, host)| origin.eq_ignore_ascii_case(host))
    {
        return None;
    }
    Some(text(StatusCode::FORBIDDEN, "orders from pages of another origin are refused\n"))
}

fn content_type<B>(request: &Request<B>) -> Option<Answer> {
    let kind = value(request, header::CONTENT_TYPE).and_then(|value| value.split(';').next());
    if kind.is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json")) {
        return None;
    }
    Some(text(StatusCode::UNSUPPORTED_MEDIA_TYPE, "send the order as Content-Type: application/json\n"))
}

/// The request target may name a host as well, and wins over the header.
fn host<B>(request: &Request<B>) -> Option<&str> {
    let target = request.uri().authority().map(|target| target.as_str());
    target.or_else(|| value(request, header::HOST))
}

/// A value that is no text is nobody's name.
fn value<B>(request: &Request<B>, name: HeaderName) -> Option<&str> {
    request.headers().get(name).map(|value| value.to_str().unwrap_or_default())
}

fn with(name: HeaderName, value: &'static str, mut answer: Answer) -> Answer {
    answer.headers_mut().insert(name, HeaderValue::from_static(value));
    answer
}

/// `GET, HEAD and POST`
fn and(methods: &str) -> String {
    methods.rsplit_once(", ").map_or_else(|| methods.to_owned(), |(first, last)| format!("{first} and {last}"))
}

/// Equal, in a time that does not tell where two tokens differ.
fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |differing, (a, b)| differing | (a ^ b)) == 0
}

fn is_loopback(host: &str) -> bool {
    let name = crate::runtime::split_port(host).0;
    name.eq_ignore_ascii_case("localhost") || name.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_hosts_when_asked_for_loopback_then_only_this_machines_own_names() {
        for host in ["localhost", "localhost:5390", "127.0.0.1:5390", "[::1]:5390", "LOCALHOST"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in ["evil.example", "127.0.0.1.evil.example", "localhost.evil:5390", "10.0.0.1", ""] {
            assert!(!is_loopback(host), "{host}");
        }
    }

    #[test]
    fn given_tokens_when_compared_then_only_equal_ones_are_the_same() {
        assert!(same(b"secret", b"secret"));
        assert!(!same(b"secret", b"secreT"));
        assert!(!same(b"secret", b"secre"));
    }
}
