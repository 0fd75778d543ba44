//! A connection whose client must take what it is sent: hyper bounds how long it waits for a head, not for a reader.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

pub struct Taken<S> {
    stream: S,
    within: Duration,
    /// Runs while a write waits.
    waiting: Option<Pin<Box<Sleep>>>,
}

impl<S> Taken<S> {
    pub fn within(within: Duration, stream: S) -> Self {
        Taken { stream, within, waiting: None }
    }

    /// What a write came to, or an error when it has waited for too long.
    fn bounded<T>(&mut self, written: Poll<io::Result<T>>, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.waiting = None;
            return written;
        }
        let within = self.within;
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(sleep(within)));
        ready!(waiting.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Taken<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Taken<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.bounded(written, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.bounded(written, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.bounded(flushed, context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.stream).poll_shutdown(context);
        self.bounded(shut, context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    const WITHIN: Duration = Duration::from_millis(200);

    #[tokio::test]
    async fn given_a_client_that_takes_nothing_when_the_time_is_over_then_writing_fails() {
        let (stream, _client) = duplex(64);
        let error = Taken::within(WITHIN, stream).write_all(&[0; 1000]).await.expect_err("nobody reads");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test]
    async fn given_a_client_that_is_slow_when_it_takes_some_each_time_then_all_is_written() {
        let (stream, mut client) = duplex(64);
        let writing = tokio::spawn(async move { Taken::within(WITHIN, stream).write_all(&[0; 512]).await });
        let mut taken = [0; 64];
        for _ in 0..8 {
            sleep(WITHIN / 2).await;
            client.read_exact(&mut taken).await.expect("what was written");
        }
        writing.await.expect("no panic").expect("all of it");
    }
}
