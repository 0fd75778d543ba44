//! The head on its way: what a destination gets to see, and what of its answer the client gets. Path and query stay byte
//! for byte but for what the configuration takes off or puts before them. Hop-by-hop fields of the request are taken out
//! by Pingora's standard policy before we see it; those of the response are ours.

use super::ctx::Ctx;
use super::expect;
use super::strict::is_framed;
use super::timed;
use crate::config::Spoken;
use crate::runtime::{Route, Upstream};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Version, header};
use pingora::http::{RequestHeader, ResponseHeader};
use pingora::{Error, ErrorType, OrErr, Result};
use pingora_proxy::Session;

const HTTP: HeaderValue = HeaderValue::from_static("http");
const HTTPS: HeaderValue = HeaderValue::from_static("https");
pub const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Marks a copy.
pub const MIRROR: HeaderName = HeaderName::from_static("x-derbent-mirror");
/// A client's id is kept up to this length.
const REQUEST_ID_MOST: usize = 128;

/// Named by `Connection`, these are options or framing, no fields to take out.
const KEPT: [&str; 4] = ["close", "keep-alive", "transfer-encoding", "content-length"];

/// Said by the client about itself, which a destination must not take for ours, or to us alone.
fn is_untrusted(name: &HeaderName) -> bool {
    matches!(
        name.as_str(),
        "forwarded"
            | "x-forwarded-for"
            | "x-forwarded-proto"
            | "x-forwarded-host"
            | "x-forwarded-port"
            | "x-forwarded-prefix"
            | "x-real-ip"
            | "x-derbent-mirror"
            // From HTTP/2 to HTTP/2 Pingora takes nothing out.
            | "proxy-authorization"
    )
}

/// Of these a trusted proxy's word stays as it is.
fn is_of_the_edge(name: &HeaderName) -> bool {
    matches!(name.as_str(), "x-forwarded-port" | "x-forwarded-prefix")
}

fn is_hop_by_hop(name: &HeaderName) -> bool {
    matches!(
        name.as_str(),
        "connection" | "upgrade" | "keep-alive" | "proxy-connection" | "proxy-authenticate" | "te" | "trailer"
    )
}

/// Whether it asks for the one upgrade that Pingora passes on.
pub fn is_websocket(request: &RequestHeader) -> bool {
    let upgrade = request.headers.get(header::UPGRADE);
    request.version == Version::HTTP_11
        && upgrade.is_some_and(|protocol| protocol.as_bytes().eq_ignore_ascii_case(b"websocket"))
}

/// Whether it has a body where none has a meaning. Some servers do not read it and take it for their next request: what
/// follows on their connection must be nobody else's.
pub fn has_meaningless_body(request: &RequestHeader) -> bool {
    matches!(request.method, Method::GET | Method::HEAD | Method::DELETE)
        && (request.headers.contains_key(header::TRANSFER_ENCODING)
            || request.headers.get(header::CONTENT_LENGTH).is_some_and(|length| length != "0"))
}

/// For each attempt, from the client's own request.
pub fn to_upstream(session: &mut Session, request: &mut RequestHeader, ctx: &mut Ctx) -> Result<()> {
    let id = request_id(session, ctx);
    let (Some(route), Some(attempt)) = (&ctx.route, &ctx.attempt) else { return Ok(()) };
    let upstream = attempt.cluster.upstream(&attempt.member);
    match upstream.spoken {
        Spoken::Http10 => request.set_version(Version::HTTP_10),
        // Pingora takes what a destination agrees on.
        Spoken::Http2 if request.version != Version::HTTP_2 => {
            return Err(Error::explain(ErrorType::H2Downgrade, "the destination does not agree on it").into_up());
        }
        _ => {}
    }
    attempt.member.live.set_shares_connections(request.version == Version::HTTP_2);
    expect::to_upstream(session, request, ctx, upstream.spoken);
    let host = upstream.host.clone();
    forwarded(session, request, ctx, route, &upstream.path, host, id)
}

/// For a copy, as HTTP/1 carries it: what destinations get, but for the host, which is the client's, and a body of so many
/// bytes.
pub fn to_mirror(session: &Session, ctx: &mut Ctx, upstream: &Upstream, length: usize) -> Result<RequestHeader> {
    let mut request = session.req_header().clone();
    let id = request_id(session, ctx);
    let Some(route) = &ctx.route else { return Ok(request) };
    hop_by_hop(&request.headers).iter().for_each(|name| drop(request.remove_header(name)));
    request.set_version(if upstream.spoken == Spoken::Http10 { Version::HTTP_10 } else { Version::HTTP_11 });
    let host = host(session.req_header()).unwrap_or_else(|| upstream.host.clone());
    forwarded(session, &mut request, ctx, route, &upstream.path, host, id)?;
    request.insert_header(MIRROR, "1")?;
    if length > 0 {
        request.insert_header(header::CONTENT_LENGTH, length)?;
    }
    Ok(request)
}

/// What is the client's connection's, by the standard policy that Pingora has for destinations. Of a copy the body is whole,
/// so that its framing is its length and nobody is asked whether to send it; gRPC's servers insist on `TE`.
fn hop_by_hop(headers: &HeaderMap) -> Vec<HeaderName> {
    let framing = |name: &HeaderName| matches!(name.as_str(), "transfer-encoding" | "expect" | "http2-settings");
    let grpc = headers.get(header::TE).is_some_and(|te| te == "trailers");
    let ours = headers.keys().filter(|name| is_hop_by_hop(name) || framing(name));
    ours.filter(|name| !grpc || **name != header::TE).cloned().chain(nominated(headers)).collect()
}

/// Named by `Connection`.
fn nominated(headers: &HeaderMap) -> Vec<HeaderName> {
    headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .filter(|name| !KEPT.iter().any(|kept| kept.eq_ignore_ascii_case(name)))
        .filter_map(|name| name.parse().ok())
        .collect()
}

/// What requests and their copies have in common.
fn forwarded(
    session: &Session,
    request: &mut RequestHeader,
    ctx: &Ctx,
    route: &Route,
    prefix: &str,
    host: HeaderValue,
    id: HeaderValue,
) -> Result<()> {
    join_cookies(request)?;
    rewrite_target(request, route, prefix)?;
    if let Some(bound) = &ctx.bound {
        bound.withhold(request)?;
    }
    let client_host = self::host(session.req_header());
    request.insert_header("Host", host)?;
    origin(request, client_host, ctx)?;
    timed::put_back(session, request)?;
    request.insert_header("X-Request-Id", id)
}

/// Who asked, in our words; a trusted proxy's are passed on, as far as they are believed.
fn origin(request: &mut RequestHeader, client_host: Option<HeaderValue>, ctx: &Ctx) -> Result<()> {
    let believed = ctx.client.forwarded.as_deref();
    let out = |name: &&HeaderName| is_untrusted(name) && !(believed.is_some() && is_of_the_edge(name));
    // One look at each name: a removal costs as much as a look-up even when there is nothing to remove.
    let untrusted: Vec<HeaderName> = request.headers.keys().filter(out).cloned().collect();
    untrusted.iter().for_each(|name| drop(request.remove_header(name)));
    let chain = believed.and_then(|believed| believed.chain.as_ref());
    if let Some(client) = chain.or(ctx.connection.client.as_ref()) {
        request.insert_header("X-Forwarded-For", client)?;
    }
    request.insert_header("X-Forwarded-Proto", if ctx.client.secure { HTTPS } else { HTTP })?;
    if let Some(host) = believed.and_then(|believed| believed.host.clone()).or(client_host) {
        request.insert_header("X-Forwarded-Host", host)?;
    }
    if let Some(forwarded) = believed.and_then(|believed| believed.forwarded.as_ref()) {
        request.insert_header("Forwarded", forwarded)?;
    }
    Ok(())
}

/// What the client asked for, by the field or by HTTP/2's own.
fn host(request: &RequestHeader) -> Option<HeaderValue> {
    let authority = || request.uri.authority().and_then(|host| HeaderValue::from_str(host.as_str()).ok());
    request.headers.get(header::HOST).cloned().or_else(authority)
}

/// HTTP/2 may split this field; a server of HTTP/1 may look at the first only.
fn join_cookies(request: &mut RequestHeader) -> Result<()> {
    let mut cookies = request.headers.get_all(header::COOKIE).iter();
    let (Some(_), Some(_)) = (cookies.next(), cookies.next()) else { return Ok(()) };
    if request.version == Version::HTTP_2 {
        return Ok(());
    }
    let cookies: Vec<&[u8]> = request.headers.get_all(header::COOKIE).iter().map(HeaderValue::as_bytes).collect();
    let joined = HeaderValue::from_bytes(&cookies.join(&b"; "[..]));
    request.insert_header(header::COOKIE, joined.or_err(ErrorType::InvalidHTTPHeader, "cookies")?)
}

/// Puts the path that the destination is to see into the request line. Without filter and prefix nothing is touched,
/// unless the client wrote an absolute URL, which only proxies are sent. `*` asks about the server, not about a path.
fn rewrite_target(request: &mut RequestHeader, route: &Route, prefix: &str) -> Result<()> {
    let raw = request.raw_path();
    let absolute = !raw.starts_with(b"/");
    if raw == b"*" || (route.filters.is_empty() && prefix.is_empty() && !absolute) {
        return Ok(());
    }
    // The URI holds path and query as they came; those of an absolute URL too, without its host.
    let target = request.uri.path_and_query().map_or("/", |target| target.as_str());
    let (path, query) = target.split_at(target.find('?').unwrap_or(target.len()));
    let path = route.forwarded_path(path);
    let slash = if path.is_empty() { "/" } else { "" };
    let target = [prefix, path, slash, query].concat();
    request.set_raw_path(target.as_bytes())
}

/// The client's id where it is one, else a new one.
pub fn request_id(session: &Session, ctx: &mut Ctx) -> HeaderValue {
    if let Some(id) = &ctx.request_id {
        return id.clone();
    }
    let sent = session.req_header().headers.get(&REQUEST_ID);
    let usable = |id: &&HeaderValue| {
        (1..=REQUEST_ID_MOST).contains(&id.len()) && id.as_bytes().iter().all(|b| b.is_ascii_graphic())
    };
    let id = sent.filter(usable).cloned().unwrap_or_else(new_request_id);
    ctx.request_id = Some(id.clone());
    id
}

fn new_request_id() -> HeaderValue {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let mut text = [0; 32];
    let mut random = fastrand::u128(..);
    for digit in &mut text {
        *digit = HEX[(random & 15) as usize];
        random >>= 4;
    }
    HeaderValue::from_bytes(&text).unwrap_or(HeaderValue::from_static("-"))
}

/// An error for an answer without one certain end, and for a 101 that nobody asked for: Pingora would pass them on, and
/// whatever follows.
pub fn check(session: &Session, response: &ResponseHeader) -> Result<()> {
    let switches = response.status == StatusCode::SWITCHING_PROTOCOLS;
    let wrong = if switches && !is_websocket(session.req_header()) {
        "101 without an upgrade asked for"
    } else if response.version <= Version::HTTP_11 && !is_framed(response) {
        "where it ends is not clear"
    } else {
        return Ok(());
    };
    Err(Error::explain(ErrorType::InvalidHTTPHeader, wrong).into_up())
}

/// Takes out of a destination's answer what was meant for us alone.
pub fn to_client(response: &mut ResponseHeader) {
    // The version is each connection's own: the client's is spoken to in ours.
    if response.version < Version::HTTP_11 {
        response.set_version(Version::HTTP_11);
    }
    if response.status == StatusCode::SWITCHING_PROTOCOLS {
        return;
    }
    let ours: Vec<HeaderName> = response.headers.keys().filter(|name| is_hop_by_hop(name)).cloned().collect();
    let nominated = nominated(&response.headers);
    ours.iter().chain(&nominated).for_each(|name| drop(response.remove_header(name)));
    // These have no body whatever they say; a client that believed what they say would wait for one.
    if response.status.is_informational()
        || matches!(response.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
    {
        response.remove_header(&header::CONTENT_LENGTH);
        response.remove_header(&header::TRANSFER_ENCODING);
    }
}
