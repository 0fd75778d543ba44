//! One write for a small answer, and none that waits. Pingora writes head and body apart and, of an answer of known
//! length, flushes only the end: without a buffer that is a system call too many, with a plain one what came so far is
//! kept back while the destination takes its time. This buffer holds small writes back until they are flushed, too many, or
//! *the client is read from*: that is what Pingora does whenever it waits for the destination.
//!
//! It also tells the connection's [`Wire`] what passes, fails when its alarm rings, and keeps the end of the client's side to itself for a while where
//! the client may only have said that it sends no more: Pingora would take it for gone. It tells the client to send its body
//! where the `Wire` asks for it, and ends with a reset what broke off.

use crate::proxy::{Bell, Wire};
use async_trait::async_trait;
use pingora::protocols::raw_connect::ProxyDigest;
use pingora::protocols::tls::SslDigest;
use pingora::protocols::{
    ALPN, GetProxyDigest, GetSocketDigest, GetTimingDigest, Peek, Shutdown, SocketDigest, Ssl, Stream, TimingDigest,
    UniqueID, UniqueIDType,
};
use rustix::net::sockopt::set_socket_linger;
use std::io;
use std::os::fd::BorrowedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

/// Bytes held back at most: what fits one packet.
const HELD: usize = 1460;
/// A client that has ended its side and takes nothing for this long is gone: to be seen is only that it sends no more.
const HALF_CLOSED: Duration = Duration::from_secs(5);

/// What a client waits for that asked whether to send its body.
const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// A client's connection whose small writes are put together.
#[derive(Debug)]
pub struct Corked {
    inner: Stream,
    held: Vec<u8>,
    /// Of `held`, what was written already.
    sent: usize,
    wire: Arc<Wire>,
    /// Rings when the request that is served has had its time.
    bell: Bell,
    /// The client's side has ended; runs while it may still take its answer.
    ended: Option<Pin<Box<Sleep>>>,
}

impl Corked {
    pub fn new(inner: Stream, wire: Arc<Wire>) -> Self {
        Corked { inner, held: Vec::new(), sent: 0, wire, bell: Bell::default(), ended: None }
    }

    /// The client sends no more. Ready when it is not to be waited for either.
    fn poll_ended(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.wire.awaits_answer() {
            return Poll::Ready(Ok(()));
        }
        let ended = self.ended.get_or_insert_with(|| Box::pin(sleep(HALF_CLOSED)));
        ended.as_mut().poll(context).map(Ok)
    }

    fn poll_rung(&mut self, context: &mut Context<'_>) -> Poll<io::Error> {
        let Corked { bell, wire, .. } = self;
        bell.poll_rung(&wire.alarm, context)
    }

    /// The client took something: it is there.
    fn taken(&mut self) {
        if let Some(ended) = &mut self.ended {
            ended.as_mut().reset(Instant::now() + HALF_CLOSED);
        }
    }

    /// Writes what is held back, down to the socket.
    fn poll_send(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.sent < self.held.len() {
            let written = ready!(Pin::new(&mut self.inner).poll_write(context, &self.held[self.sent..]))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.sent += written;
            self.taken();
        }
        ready!(Pin::new(&mut self.inner).poll_flush(context))?;
        self.held.clear();
        self.sent = 0;
        Poll::Ready(Ok(()))
    }
}

impl Drop for Corked {
    fn drop(&mut self) {
        if self.wire.is_broken_off() {
            // SAFETY: the descriptor is that of `inner`, which is there until this function has ended.
            let socket = unsafe { BorrowedFd::borrow_raw(self.inner.id()) };
            // A socket that takes no option is gone already.
            let _ = set_socket_linger(socket, Some(Duration::ZERO));
        }
    }
}

impl AsyncWrite for Corked {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.wire.sent();
        if let Poll::Ready(rung) = self.poll_rung(context) {
            return Poll::Ready(Err(rung));
        }
        if self.held.len() + bytes.len() > HELD {
            ready!(self.poll_send(context))?;
            if bytes.len() > HELD {
                let written = ready!(Pin::new(&mut self.inner).poll_write(context, bytes))?;
                self.taken();
                return Poll::Ready(Ok(written));
            }
        }
        self.held.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Poll::Ready(rung) = self.poll_rung(context) {
            return Poll::Ready(Err(rung));
        }
        self.poll_send(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_send(context))?;
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}

impl AsyncRead for Corked {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.wire.asks_for_body() {
            self.held.extend_from_slice(CONTINUE);
        }
        // A client that takes nothing must still be read from: it may be waiting for that itself.
        if !self.held.is_empty()
            && let Poll::Ready(Err(error)) = self.poll_send(context)
        {
            return Poll::Ready(Err(error));
        }
        if let Poll::Ready(rung) = self.poll_rung(context) {
            return Poll::Ready(Err(rung));
        }
        if self.ended.is_some() {
            return self.poll_ended(context);
        }
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(context, buffer))?;
        match &buffer.filled()[before..] {
            [] if buffer.remaining() > 0 => return self.poll_ended(context),
            bytes => self.wire.received(bytes),
        }
        Poll::Ready(Ok(()))
    }
}

#[async_trait]
impl Shutdown for Corked {
    async fn shutdown(&mut self) {
        // Whoever cannot be written to any more is not waiting for it either.
        let _ = std::future::poll_fn(|context| self.poll_send(context)).await;
        self.inner.shutdown().await;
    }
}

#[async_trait]
impl Peek for Corked {
    async fn try_peek(&mut self, buffer: &mut [u8]) -> io::Result<bool> {
        self.inner.try_peek(buffer).await
    }
}

impl UniqueID for Corked {
    fn id(&self) -> UniqueIDType {
        self.inner.id()
    }
}

impl Ssl for Corked {
    fn get_ssl_digest(&self) -> Option<Arc<SslDigest>> {
        self.inner.get_ssl_digest()
    }

    fn selected_alpn_proto(&self) -> Option<ALPN> {
        self.inner.selected_alpn_proto()
    }
}

impl GetTimingDigest for Corked {
    fn get_timing_digest(&self) -> Vec<Option<TimingDigest>> {
        self.inner.get_timing_digest()
    }

    fn get_read_pending_time(&self) -> Duration {
        self.inner.get_read_pending_time()
    }

    fn get_write_pending_time(&self) -> Duration {
        self.inner.get_write_pending_time()
    }
}

impl GetProxyDigest for Corked {
    fn get_proxy_digest(&self) -> Option<Arc<ProxyDigest>> {
        self.inner.get_proxy_digest()
    }

    fn set_proxy_digest(&mut self, digest: ProxyDigest) {
        self.inner.set_proxy_digest(digest);
    }
}

impl GetSocketDigest for Corked {
    fn get_socket_digest(&self) -> Option<Arc<SocketDigest>> {
        self.inner.get_socket_digest()
    }

    fn set_socket_digest(&mut self, digest: SocketDigest) {
        self.inner.set_socket_digest(digest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pingora::protocols::l4;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    async fn pair() -> (Corked, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let client = TcpStream::connect(listener.local_addr().expect("bound")).await.expect("connected");
        let (server, _) = listener.accept().await.expect("accepted");
        (Corked::new(Box::new(l4::stream::Stream::from(server)), Arc::default()), client)
    }

    /// What has arrived so far, without waiting for more.
    fn arrived(client: &TcpStream) -> Vec<u8> {
        let mut bytes = vec![0; 65_536];
        let n = client.try_read(&mut bytes).unwrap_or(0);
        bytes.truncate(n);
        bytes
    }

    #[tokio::test]
    async fn given_small_writes_when_flushed_then_they_arrive_together_and_not_before() {
        let (mut server, mut client) = pair().await;
        server.write_all(b"head ").await.expect("held");
        server.write_all(b"body").await.expect("held");
        assert!(arrived(&client).is_empty());
        server.flush().await.expect("sent");
        let mut bytes = [0; 9];
        client.read_exact(&mut bytes).await.expect("arrived");
        assert_eq!(&bytes, b"head body");
    }

    #[tokio::test]
    async fn given_bytes_held_back_when_the_client_is_waited_for_then_they_go_first() {
        let (mut server, mut client) = pair().await;
        server.write_all(b"so far").await.expect("held");
        let mut byte = [0; 1];
        let waiting = server.read(&mut byte);
        tokio::pin!(waiting);
        let mut bytes = [0; 6];
        tokio::select! {
            biased;
            _ = &mut waiting => panic!("the client has sent nothing"),
            read = client.read_exact(&mut bytes) => drop(read.expect("arrived")),
        }
        assert_eq!(&bytes, b"so far");
    }

    #[tokio::test]
    async fn given_writes_of_any_size_when_shut_down_then_every_byte_arrives_in_order() {
        let (mut server, mut client) = pair().await;
        let sent: Vec<u8> = (0..200_000u32).map(|i| i as u8).collect();
        let writing = tokio::spawn({
            let sent = sent.clone();
            async move {
                let mut left = &sent[..];
                for size in [1, 1459, 1460, 1461, 3, 60_000, 700, 800].into_iter().cycle() {
                    let (chunk, rest) = left.split_at(size.min(left.len()));
                    server.write_all(chunk).await.expect("written");
                    left = rest;
                    if left.is_empty() {
                        break;
                    }
                }
                AsyncWriteExt::shutdown(&mut server).await.expect("sent");
            }
        });
        let mut received = Vec::new();
        client.read_to_end(&mut received).await.expect("arrived");
        writing.await.expect("no panic");
        assert!(received == sent, "{} of {}", received.len(), sent.len());
    }
}
