//! The head on its way: what a destination gets to see, and what of its answer the client gets. Path and query stay byte
//! for byte but for what the configuration takes off or puts before them. Hop-by-hop fields of the request are taken out
//! by Pingora's standard policy before we see it; those of the response are ours.

use super::ctx::Ctx;
use crate::runtime::Route;
use http::{HeaderName, HeaderValue, StatusCode, Version, header};
use pingora::http::{RequestHeader, ResponseHeader};
use pingora::{Error, ErrorType, Result};
use pingora_proxy::Session;

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
/// Said by the client about itself; a destination must not take it for ours.
const UNTRUSTED: [HeaderName; 4] = [
    header::FORWARDED,
    HeaderName::from_static("x-forwarded-port"),
    HeaderName::from_static("x-forwarded-prefix"),
    HeaderName::from_static("x-real-ip"),
];
pub const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// A client's id is kept up to this length.
const REQUEST_ID_MOST: usize = 128;

/// Named by `Connection`, these are options or framing, no fields to take out.
const KEPT: [&str; 4] = ["close", "keep-alive", "transfer-encoding", "content-length"];

const HOP_BY_HOP: [HeaderName; 5] = [
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::PROXY_AUTHENTICATE,
    header::TE,
    header::TRAILER,
];

/// Whether the target is a path, a URL that has one, or `*`: Pingora routes `GET secret` as `/` and sends it on as it is.
pub fn has_path(request: &RequestHeader) -> bool {
    let target = request.raw_path();
    let begins = |scheme: &[u8]| target.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme));
    target.starts_with(b"/") || target == b"*" || begins(b"http://") || begins(b"https://")
}

/// Whether it asks for the one upgrade that Pingora passes on.
pub fn is_websocket(request: &RequestHeader) -> bool {
    let upgrade = request.headers.get(header::UPGRADE);
    upgrade.is_some_and(|protocol| protocol.as_bytes().eq_ignore_ascii_case(b"websocket"))
}

/// For each attempt, from the client's own request.
pub fn to_upstream(session: &Session, request: &mut RequestHeader, ctx: &mut Ctx) -> Result<()> {
    let id = request_id(session, ctx);
    let (Some(route), Some(attempt)) = (&ctx.route, &ctx.attempt) else { return Ok(()) };
    let upstream = attempt.cluster.upstream(&attempt.member);
    rewrite_target(request, route, &upstream.path)?;
    let client_host = request.remove_header(&header::HOST);
    request.insert_header(header::HOST, &upstream.host)?;
    UNTRUSTED.iter().for_each(|name| drop(request.remove_header(name)));
    match &ctx.connection.client {
        Some(client) => request.insert_header(FORWARDED_FOR, client)?,
        None => drop(request.remove_header(&FORWARDED_FOR)),
    }
    request.insert_header(FORWARDED_PROTO, if ctx.connection.listener.tls { "https" } else { "http" })?;
    match client_host {
        Some(host) => request.insert_header(FORWARDED_HOST, host)?,
        None => drop(request.remove_header(&FORWARDED_HOST)),
    }
    request.insert_header(REQUEST_ID, id)
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

/// An error for a 101 that nobody asked for: Pingora would pass it on and whatever follows.
pub fn check_switch(session: &Session, response: &ResponseHeader) -> Result<()> {
    if response.status == StatusCode::SWITCHING_PROTOCOLS && !is_websocket(session.req_header()) {
        return Err(Error::explain(ErrorType::InvalidHTTPHeader, "101 without an upgrade asked for").into_up());
    }
    Ok(())
}

/// Takes out of a destination's answer what was meant for us alone.
pub fn to_client(response: &mut ResponseHeader) {
    if response.status == StatusCode::SWITCHING_PROTOCOLS {
        return;
    }
    let nominated = response.headers.get_all(header::CONNECTION).iter();
    let nominated: Vec<HeaderName> = nominated
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .filter(|name| !KEPT.iter().any(|kept| kept.eq_ignore_ascii_case(name)))
        .filter_map(|name| name.parse().ok())
        .collect();
    nominated.iter().for_each(|name| drop(response.remove_header(name)));
    response.remove_header(&header::CONNECTION);
    response.remove_header(&header::UPGRADE);
    HOP_BY_HOP.iter().for_each(|name| drop(response.remove_header(name)));
}

/// To a client that knows no chunks the end of the connection is the end of the body.
pub fn unchunked(session: &Session, response: &mut ResponseHeader) {
    if session.req_header().version < Version::HTTP_11 {
        response.remove_header(&header::TRANSFER_ENCODING);
    }
}
