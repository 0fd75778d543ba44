//! One request: Pingora's phases, each a few lines that call the room next to it.
//!
//! [`strict`] refuses heads before anything else looks at them, by what [`wire`] saw of them too; [`select`] draws and prepares
//! the connection, [`headers`] turns the client's head into ours and back, [`sessions`] binds by it, [`conclude`] says what came of an attempt,
//! [`recover`] whether another is made, [`dial`] opens a connection, [`expect`] who tells the client to send its body, [`http10`] what old clients do not know,
//! [`keepalive`] learns how long connections may be kept, [`clock`] how long all this may take, [`queue`]
//! waits, [`mirror`] hands a copy over, [`respond`] answers in the proxy's own name, [`access`] gathers what is told of a
//! request. No policy is decided here, nothing is spawned, no label is formatted.

mod access;
mod alarm;
mod clock;
mod conclude;
mod connection;
mod ctx;
mod dial;
mod expect;
mod grpc;
mod headers;
mod http10;
mod keepalive;
mod mirror;
mod queue;
mod recover;
mod respond;
mod select;
mod sessions;
mod strict;
mod timed;
mod wire;

pub use alarm::{Alarm, Bell};
pub use connection::{CONNECTION, Connection, Listener};
pub use dial::ROUNDS;
pub use wire::Wire;

use crate::observe::Recent;
use crate::runtime::{Action, Runtime};
use crate::service::{AccessLog, Mirrors};
use async_trait::async_trait;
use bytes::Bytes;
use ctx::Ctx;
use pingora::http::{RequestHeader, ResponseHeader};
use pingora::protocols::Digest;
use pingora::upstreams::peer::HttpPeer;
use pingora::{Error, Result};
use pingora_proxy::{FailToProxy, ProxyHttp, ProxyWarnLogContext, Session};
use respond::FailReason;
use std::sync::Arc;
use std::time::Duration;

/// What Pingora asks at each phase.
pub struct Proxy {
    runtime: Arc<Runtime>,
    access_log: Option<AccessLog>,
    recent: Arc<Recent>,
    mirrors: Mirrors,
}

impl Proxy {
    pub fn new(runtime: Arc<Runtime>, access_log: Option<AccessLog>, recent: Arc<Recent>, mirrors: Mirrors) -> Self {
        Proxy { runtime, access_log, recent, mirrors }
    }
}

#[async_trait]
impl ProxyHttp for Proxy {
    type CTX = Ctx;

    fn new_ctx(&self) -> Ctx {
        Ctx::new(Connection::current(), self.runtime.pin(), self.access_log.is_some())
    }

    /// The compression module that Pingora adds by default would be work for nothing.
    fn init_downstream_modules(&self, _: &mut pingora::modules::http::HttpModules) {}

    async fn early_request_filter(&self, session: &mut Session, ctx: &mut Ctx) -> Result<()> {
        ctx.connection.set_limits(session);
        ctx.client.believe(&session.req_header().headers, &ctx.connection, &ctx.snapshot.trusted_proxies);
        Ok(())
    }

    async fn request_filter(&self, session: &mut Session, ctx: &mut Ctx) -> Result<bool> {
        if let Err(fault) = select::strict(session, ctx) {
            return respond::refuse(session, ctx, FailReason::Refused(fault)).await;
        }
        loop {
            let Some(route) = select::route(session, ctx) else {
                return respond::refuse(session, ctx, FailReason::NoRoute).await;
            };
            let cluster = match &route.action {
                Action::Forward(cluster) => cluster,
                Action::Split(split) => split.next(),
                Action::Redirect(redirect) => return respond::redirect(session, redirect).await,
                Action::Respond(answer) => return respond::fixed(session, answer).await,
            };
            ctx.cluster = Some(cluster.clone());
            match select::first(session, ctx, &route, cluster).await {
                Ok(true) => return Ok(false),
                // Nothing was sent of it, and what it waited for is no more.
                Ok(false) => ctx.begin_anew(self.runtime.pin()),
                Err(reason) => return respond::refuse(session, ctx, reason).await,
            }
        }
    }

    async fn upstream_peer(&self, session: &mut Session, ctx: &mut Ctx) -> Result<Box<HttpPeer>> {
        select::peer(session, ctx).await
    }

    async fn connected_to_upstream(
        &self,
        session: &mut Session,
        reused: bool,
        _: &HttpPeer,
        _: std::os::unix::io::RawFd,
        digest: Option<&Digest>,
        ctx: &mut Ctx,
    ) -> Result<()> {
        dial::give_back(session, ctx);
        conclude::connected(reused, digest, ctx);
        Ok(())
    }

    async fn upstream_request_filter(
        &self,
        session: &mut Session,
        request: &mut RequestHeader,
        ctx: &mut Ctx,
    ) -> Result<()> {
        headers::to_upstream(session, request, ctx)?;
        if session.as_downstream_mut().is_body_done() {
            mirror::whole(session, ctx, &self.mirrors);
        }
        Ok(())
    }

    async fn request_body_filter(
        &self,
        session: &mut Session,
        body: &mut Option<Bytes>,
        end: bool,
        ctx: &mut Ctx,
    ) -> Result<()> {
        if !end && body.is_none() && timed::has_trailers(session.as_downstream_mut()) {
            // Of nothing Pingora sends nothing, and reads on.
            *body = Some(Bytes::new());
            return Ok(());
        }
        conclude::sending(ctx, end);
        if end {
            ctx.connection.wire.set_whole(true);
            mirror::whole(session, ctx, &self.mirrors);
        }
        // An empty last chunk would be written as a second end of the body, and the next request on that connection
        // would find it.
        if end && body.as_ref().is_some_and(Bytes::is_empty) {
            *body = None;
        }
        Ok(())
    }

    async fn upstream_response_filter(
        &self,
        session: &mut Session,
        response: &mut ResponseHeader,
        ctx: &mut Ctx,
    ) -> Result<()> {
        headers::check(session, response)?;
        expect::to_client(session, response);
        conclude::answered(session, response, ctx);
        if let Some(again) = recover::after_status(session, response, ctx) {
            return Err(again);
        }
        headers::to_client(response);
        sessions::bind(response, ctx)
    }

    fn upstream_response_body_filter(
        &self,
        _: &mut Session,
        body: &mut Option<Bytes>,
        _: bool,
        ctx: &mut Ctx,
    ) -> Result<Option<Duration>> {
        conclude::goes_on(ctx);
        mirror::answers(ctx, body.as_ref().map_or(0, Bytes::len));
        Ok(None)
    }

    async fn response_filter(&self, session: &mut Session, _: &mut ResponseHeader, ctx: &mut Ctx) -> Result<()> {
        ctx.connection.set_last(session);
        Ok(())
    }

    fn fail_to_connect(&self, session: &mut Session, _: &HttpPeer, ctx: &mut Ctx, error: Box<Error>) -> Box<Error> {
        conclude::not_connected(session, ctx, error)
    }

    fn error_while_proxy(
        &self,
        _: &HttpPeer,
        session: &mut Session,
        error: Box<Error>,
        ctx: &mut Ctx,
        reused: bool,
    ) -> Box<Error> {
        conclude::broken(session, ctx, error, reused)
    }

    async fn fail_to_proxy(&self, session: &mut Session, error: &Error, ctx: &mut Ctx) -> FailToProxy {
        respond::failed(session, error, ctx).await
    }

    async fn logging(&self, session: &mut Session, error: Option<&Error>, ctx: &mut Ctx) {
        let Some(status) = conclude::finished(session, error, ctx) else { return };
        if error.is_none() {
            mirror::answered(ctx, status);
        }
        access::tell(session, status, ctx, self.access_log.as_ref(), &self.recent);
    }

    /// We tell failures ourselves, once and in our words.
    fn suppress_error_log(&self, _: &Session, _: &Ctx, _: &Error) -> bool {
        true
    }

    fn suppress_proxy_warn_log(&self, _: &Session, _: &Ctx, _: &Error, _: ProxyWarnLogContext) -> bool {
        true
    }
}
