//! A client's stream of HTTP/2 whose reads and writes fail when its alarm rings. One of HTTP/1 has its connection to itself,
//! which hears the alarm for it; streams share theirs, so this one stands between Pingora and its own.
//!
//! It says that the request is whole when its body was read to the end: Pingora's own waits for trailers to be read too, which
//! nobody does.
//!
//! All else is passed on. Pingora takes such a stream for a protocol of its user's: it keeps `te` from destinations of HTTP/2
//! then, which is put back where the head is made.

use super::{Alarm, Bell};
use async_trait::async_trait;
use bytes::Bytes;
use futures_core::Stream;
use http::{HeaderMap, Version, header};
use pingora::http::{RequestHeader, ResponseHeader};
use pingora::protocols::Digest;
use pingora::protocols::http::custom::CustomMessageWrite;
use pingora::protocols::http::custom::server::Session;
use pingora::protocols::http::v2::server::HttpSession;
use pingora::protocols::http::{HttpTask, ServerSession};
use pingora::protocols::l4::socket::SocketAddr;
use pingora::{Error, ErrorType, Result};
use std::future::poll_fn;
use std::mem::replace;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

struct Timed {
    inner: HttpSession,
    alarm: Arc<Alarm>,
    bell: Bell,
    /// Nothing more of the request is read.
    whole: bool,
}

/// Puts a stream of HTTP/2 under an alarm of its own; `None`: it is none.
pub fn timed(session: &mut ServerSession) -> Option<Arc<Alarm>> {
    match replace(session, ServerSession::new_custom(Box::new(()))) {
        ServerSession::H2(inner) => {
            let alarm = Arc::<Alarm>::default();
            let timed = Timed { inner, alarm: alarm.clone(), bell: Bell::default(), whole: false };
            *session = ServerSession::new_custom(Box::new(timed));
            Some(alarm)
        }
        other => {
            *session = other;
            None
        }
    }
}

/// Whether a body that came to its end may be followed by trailers. Then it is read to its end once more, of a stream that says
/// when that was.
pub fn has_trailers(session: &mut ServerSession) -> bool {
    timed(session).is_some()
}

/// What a client of HTTP/2 may say to a destination of HTTP/2, and Pingora took out.
pub fn put_back(session: &pingora_proxy::Session, request: &mut RequestHeader) -> Result<()> {
    let asked = session.req_header().headers.get(header::TE).filter(|_| request.version == Version::HTTP_2);
    match asked {
        Some(te) if session.as_downstream().is_custom() => request.insert_header(header::TE, te),
        _ => Ok(()),
    }
}

/// What `work` comes to, unless the alarm rings before.
async fn within<T>(
    alarm: &Alarm,
    bell: &mut Bell,
    rings: ErrorType,
    work: impl Future<Output = Result<T>>,
) -> Result<T> {
    let mut work = pin!(work);
    poll_fn(|context| match work.as_mut().poll(context) {
        Poll::Ready(done) => Poll::Ready(done),
        Poll::Pending => {
            bell.poll_rung(alarm, context).map(|rung| Err(Error::because(rings.clone(), "", rung).into_down()))
        }
    })
    .await
}

#[async_trait]
impl Session for Timed {
    fn req_header(&self) -> &RequestHeader {
        self.inner.req_header()
    }

    fn req_header_mut(&mut self) -> &mut RequestHeader {
        self.inner.req_header_mut()
    }

    async fn read_body_bytes(&mut self) -> Result<Option<Bytes>> {
        let read = self.inner.read_body_bytes();
        let piece = within(&self.alarm, &mut self.bell, ErrorType::ReadError, read).await?;
        self.whole |= piece.is_none();
        Ok(piece)
    }

    async fn read_body_or_idle(&mut self, no_body_expected: bool) -> Result<Option<Bytes>> {
        let read = self.inner.read_body_or_idle(no_body_expected || self.whole);
        let piece = within(&self.alarm, &mut self.bell, ErrorType::ReadError, read).await?;
        self.whole |= piece.is_none();
        Ok(piece)
    }

    async fn drain_request_body(&mut self) -> Result<()> {
        self.inner.drain_request_body().await
    }

    async fn write_response_header(&mut self, response: Box<ResponseHeader>, end: bool) -> Result<()> {
        self.inner.write_response_header(response, end)
    }

    async fn write_response_header_ref(&mut self, response: &ResponseHeader, end: bool) -> Result<()> {
        self.inner.write_response_header_ref(response, end)
    }

    async fn write_body(&mut self, data: Bytes, end: bool) -> Result<()> {
        let written = self.inner.write_body(data, end);
        within(&self.alarm, &mut self.bell, ErrorType::WriteError, written).await
    }

    async fn write_trailers(&mut self, trailers: HeaderMap) -> Result<()> {
        self.inner.write_trailers(trailers)
    }

    async fn response_duplex_vec(&mut self, tasks: Vec<HttpTask>) -> Result<bool> {
        let written = self.inner.response_duplex_vec(tasks);
        within(&self.alarm, &mut self.bell, ErrorType::WriteError, written).await
    }

    /// A stream of HTTP/2 has none.
    fn set_read_timeout(&mut self, _: Option<Duration>) {}

    fn get_read_timeout(&self) -> Option<Duration> {
        None
    }

    fn set_write_timeout(&mut self, timeout: Option<Duration>) {
        self.inner.set_write_timeout(timeout);
    }

    fn get_write_timeout(&self) -> Option<Duration> {
        self.inner.get_write_timeout()
    }

    fn set_total_drain_timeout(&mut self, timeout: Option<Duration>) {
        self.inner.set_total_drain_timeout(timeout);
    }

    fn get_total_drain_timeout(&self) -> Option<Duration> {
        self.inner.get_total_drain_timeout()
    }

    fn request_summary(&self) -> String {
        self.inner.request_summary()
    }

    fn response_written(&self) -> Option<&ResponseHeader> {
        self.inner.response_written()
    }

    async fn shutdown(&mut self, code: u32, _: &str) {
        self.inner.shutdown_with_reason(code.into());
    }

    async fn abandon(&mut self, _: &str) {
        self.inner.shutdown();
    }

    fn is_body_done(&mut self) -> bool {
        self.whole || self.inner.is_body_done()
    }

    async fn finish(&mut self) -> Result<()> {
        self.inner.finish()
    }

    fn is_body_empty(&mut self) -> bool {
        self.inner.is_body_empty() || (self.whole && self.inner.body_bytes_read() == 0)
    }

    fn body_bytes_sent(&self) -> usize {
        self.inner.body_bytes_sent()
    }

    fn body_bytes_read(&self) -> usize {
        self.inner.body_bytes_read()
    }

    fn digest(&self) -> Option<&Digest> {
        self.inner.digest()
    }

    fn digest_mut(&mut self) -> Option<&mut Digest> {
        self.inner.digest_mut()
    }

    fn client_addr(&self) -> Option<&SocketAddr> {
        self.inner.client_addr()
    }

    fn server_addr(&self) -> Option<&SocketAddr> {
        self.inner.server_addr()
    }

    fn pseudo_raw_h1_request_header(&self) -> Bytes {
        self.inner.pseudo_raw_h1_request_header()
    }

    fn enable_retry_buffering(&mut self) {
        self.inner.enable_retry_buffering();
    }

    fn retry_buffer_truncated(&self) -> bool {
        self.inner.retry_buffer_truncated()
    }

    fn get_retry_buffer(&self) -> Option<Bytes> {
        self.inner.get_retry_buffer()
    }

    async fn finish_custom(&mut self) -> Result<()> {
        Ok(())
    }

    fn take_custom_message_reader(
        &mut self,
    ) -> Option<Box<dyn Stream<Item = Result<Bytes>> + Unpin + Send + Sync + 'static>> {
        None
    }

    fn restore_custom_message_reader(
        &mut self,
        _: Box<dyn Stream<Item = Result<Bytes>> + Unpin + Send + Sync + 'static>,
    ) -> Result<()> {
        Ok(())
    }

    fn take_custom_message_writer(&mut self) -> Option<Box<dyn CustomMessageWrite>> {
        None
    }

    fn restore_custom_message_writer(&mut self, _: Box<dyn CustomMessageWrite>) -> Result<()> {
        Ok(())
    }
}
