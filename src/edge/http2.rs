//! HTTP/2 with a client: Pingora's own loop over a connection's streams, each stream's request told which connection it came on.
//! Told of a drain, the loop says GOAWAY and serves what is still coming.

use crate::proxy::{CONNECTION, Connection, Proxy};
use crate::service::Lifecycle;
use async_trait::async_trait;
use pingora::apps::{HttpServerApp, HttpServerOptions, ReusedHttpStream, ServerApp};
use pingora::protocols::Stream;
use pingora::protocols::http::ServerSession;
use pingora::protocols::http::v2::server::{H2Options, default_h2_options};
use pingora::server::ShutdownWatch;
use pingora_proxy::HttpProxy;
use std::sync::Arc;
use tokio::sync::watch;

const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The preface's request line. The shortest request of HTTP/1 is longer, so that waiting for as much keeps nobody waiting.
const PREFACE_LINE: usize = 14;

/// Bytes that a client may send ahead of a destination that takes none: of one stream, and of them all together.
const STREAM_WINDOW: u32 = 256 * 1024;
const CONNECTION_WINDOW: u32 = 1024 * 1024;
/// Bytes of an answer waiting in a stream for a client that takes none.
const SEND_BUFFER: usize = 128 * 1024;

/// Whether HTTP/2 is what comes; the bytes stay there to be read. `None`: the client has gone.
pub async fn has_preface(stream: &mut Stream) -> Option<bool> {
    let mut line = [0; PREFACE_LINE];
    stream.try_peek(&mut line).await.ok()?;
    if line != PREFACE[..PREFACE_LINE] {
        return Some(false);
    }
    let mut whole = [0; PREFACE.len()];
    stream.try_peek(&mut whole).await.ok()?;
    Some(whole == *PREFACE)
}

/// One client connection of HTTP/2.
pub struct Http2 {
    proxy: Arc<HttpProxy<Proxy>>,
    connection: Arc<Connection>,
    options: HttpServerOptions,
    /// Of a connection that came during a drain: its client had no chance to know, so it is told with the first request.
    late: Option<watch::Sender<bool>>,
}

impl Http2 {
    /// Returns when the connection is over.
    pub async fn serve(
        proxy: Arc<HttpProxy<Proxy>>,
        lifecycle: &Lifecycle,
        connection: Arc<Connection>,
        stream: Stream,
    ) {
        let mut options = HttpServerOptions::default();
        // Looked at without TLS only; with it there was ALPN.
        options.h2c = true;
        options.h2_idle_timeout = Some(connection.idle_timeout);
        let draining = lifecycle.draining();
        let already = *draining.borrow();
        let (late, shutdown) = if already {
            let (late, told) = watch::channel(false);
            (Some(late), told)
        } else {
            (None, draining)
        };
        let app = Arc::new(Http2 { proxy, connection, options, late });
        app.process_new(stream, &shutdown).await;
    }
}

#[async_trait]
impl HttpServerApp for Http2 {
    async fn process_new_http(
        self: &Arc<Self>,
        session: ServerSession,
        shutdown: &ShutdownWatch,
    ) -> Option<ReusedHttpStream> {
        if let Some(late) = &self.late {
            late.send_replace(true);
        }
        CONNECTION.scope(self.connection.clone(), self.proxy.process_new_http(session, shutdown)).await
    }

    fn h2_options(&self) -> Option<H2Options> {
        // Bounded in headers and streams.
        let mut options = default_h2_options();
        options.initial_window_size(STREAM_WINDOW);
        options.initial_connection_window_size(CONNECTION_WINDOW);
        options.max_send_buffer_size(SEND_BUFFER);
        Some(options)
    }

    fn server_options(&self) -> Option<&HttpServerOptions> {
        Some(&self.options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pingora::protocols::l4;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    async fn sent(bytes: &[u8]) -> (Stream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let mut client = TcpStream::connect(listener.local_addr().expect("bound")).await.expect("connected");
        client.write_all(bytes).await.expect("sent");
        let (server, _) = listener.accept().await.expect("accepted");
        (Box::new(l4::stream::Stream::from(server)), client)
    }

    #[tokio::test]
    async fn given_first_bytes_when_looked_at_then_told_apart_and_still_there() {
        let almost = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\rX";
        for (bytes, http2) in [
            (&PREFACE[..], true),
            (b"GET / HTTP/1.0\r\n\r\n", false),
            (b"A / HTTP/1.1\r\n\r\n", false),
            (b"PROPFIND / HTTP/1.1\r\n\r\n", false),
            (almost, false),
        ] {
            let (mut server, _client) = sent(bytes).await;
            assert_eq!(has_preface(&mut server).await, Some(http2), "{bytes:?}");
            let mut read = vec![0; bytes.len()];
            server.read_exact(&mut read).await.expect("still there");
            assert_eq!(read, bytes);
        }
    }

    #[tokio::test]
    async fn given_a_client_that_leaves_when_looked_at_then_there_is_nothing_to_serve() {
        let (mut server, client) = sent(b"PRI * HTTP/2.0\r\n").await;
        drop(client);
        assert_eq!(has_preface(&mut server).await, None);
    }
}
