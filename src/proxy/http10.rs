//! A client of HTTP/1.0 knows neither interim answers nor chunks. The end of its connection is the end of an answer whose length it was
//! not told; so one that breaks off ends with a reset, for by a plain end it would look whole.

use super::connection::Connection;
use async_trait::async_trait;
use http::{Version, header};
use pingora::Result;
use pingora::http::ResponseHeader;
use pingora::modules::http::{HttpModule, HttpModuleBuilder, HttpModules, Module};
use pingora_proxy::Session;
use std::any::Any;

/// Takes out what Pingora puts in after all else has seen the head.
struct Unchunked;

#[async_trait]
impl HttpModule for Unchunked {
    async fn response_header_filter(&mut self, response: &mut ResponseHeader, _: bool) -> Result<()> {
        response.remove_header(&header::TRANSFER_ENCODING);
        Ok(())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

impl HttpModuleBuilder for Unchunked {
    fn init(&self) -> Module {
        Box::new(Unchunked)
    }
}

fn is_old(session: &Session) -> bool {
    session.req_header().version < Version::HTTP_11
}

/// Before anything is answered.
pub fn prepare(session: &mut Session) {
    let is_old = is_old(session);
    session.set_ignore_info_resp(is_old);
    if is_old {
        session.set_keepalive(None);
        let mut modules = HttpModules::new();
        modules.add_module(Box::new(Unchunked));
        session.downstream_modules_ctx = modules.build_ctx();
    }
}

/// The destination's answer goes no further.
pub fn broke_off(session: &Session, connection: &Connection) {
    let unframed = |response: &ResponseHeader| !response.headers.contains_key(header::CONTENT_LENGTH);
    if is_old(session) && session.response_written().is_some_and(unframed) {
        connection.wire.break_off();
    }
}
