//! The sockets of a [`super::site`]: the pair that listens, and the connections, which know how to die.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};

/// The listening sockets of one port.
pub(super) struct Door {
    v4: TcpListener,
    v6: Option<TcpListener>,
}

impl Door {
    pub async fn bind(port: u16) -> io::Result<Door> {
        let v4 = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
        let v6 = TcpListener::bind((Ipv6Addr::LOCALHOST, v4.local_addr()?.port())).await.ok();
        Ok(Door { v4, v6 })
    }

    pub fn port(&self) -> io::Result<u16> {
        Ok(self.v4.local_addr()?.port())
    }

    pub async fn accept(&self) -> io::Result<TcpStream> {
        let (stream, _) = match &self.v6 {
            None => self.v4.accept().await?,
            Some(v6) => tokio::select! {
                accepted = self.v4.accept() => accepted?,
                accepted = v6.accept() => accepted?,
            },
        };
        stream.set_nodelay(true)?;
        Ok(stream)
    }
}

/// A connection that is reset instead of closed when its site was killed. It is told apart only as it goes, since
/// hyper gives a connection's stream back for HTTP/1 alone.
pub(super) struct Mortal {
    stream: TcpStream,
    killed: Arc<AtomicBool>,
}

impl Mortal {
    pub fn new(stream: TcpStream, killed: Arc<AtomicBool>) -> Mortal {
        Mortal { stream, killed }
    }
}

impl Drop for Mortal {
    fn drop(&mut self) {
        if self.killed.load(Ordering::Acquire) {
            // Where the socket is gone already there is nothing left to reset.
            let _ = self.stream.set_zero_linger();
        }
    }
}

impl AsyncRead for Mortal {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Mortal {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
