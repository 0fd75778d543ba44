//! `Expect: 100-continue`. The destination says when the client is to go on, where that can be heard: Pingora takes what is
//! interim out of HTTP/2, and HTTP/1.0 has none of it. There we say so ourselves, as soon as the body is waited for. A client that was
//! told expects nothing any more, so that no other attempt has it told again.
//!
//! A client of HTTP/2 cannot be told: what it expects goes on as it came, and it had better not wait.

use super::ctx::Ctx;
use crate::config::Spoken;
use http::{StatusCode, Version, header};
use pingora::http::{RequestHeader, ResponseHeader};
use pingora_proxy::Session;

/// Before the head goes to a destination that is spoken to like this.
pub fn to_upstream(session: &mut Session, request: &mut RequestHeader, ctx: &Ctx, spoken: Spoken) {
    let is_heard = spoken != Spoken::Http10 && request.version != Version::HTTP_2;
    if is_heard || !is_expected(request) {
        return;
    }
    let is_asked = session.req_header().version == Version::HTTP_11;
    if is_asked && !session.as_downstream_mut().is_body_done() {
        ctx.connection.wire.ask_for_body();
        is_told(session);
    }
    if is_asked || spoken == Spoken::Http10 {
        request.remove_header(&header::EXPECT);
    }
}

/// A response head that goes to the client.
pub fn to_client(session: &mut Session, response: &ResponseHeader) {
    if response.status == StatusCode::CONTINUE && session.req_header().version == Version::HTTP_11 {
        is_told(session);
    }
}

fn is_told(session: &mut Session) {
    session.req_header_mut().remove_header(&header::EXPECT);
}

fn is_expected(request: &RequestHeader) -> bool {
    let expected = request.headers.get(header::EXPECT);
    expected.is_some_and(|expected| expected.as_bytes().eq_ignore_ascii_case(b"100-continue"))
}
