use super::corked::Corked;
use super::cut::Cut;
use super::http2::{self, Http2};
use super::patience::Patience;
use crate::observe::event;
use crate::proxy::{CONNECTION, Connection, Listener, Proxy};
use crate::runtime::Runtime;
use crate::service::Lifecycle;
use async_trait::async_trait;
use pingora::apps::{HttpServerApp, ReusedHttpStream, ServerApp};
use pingora::protocols::http::ServerSession;
use pingora::protocols::{ALPN, Stream};
use pingora::server::ShutdownWatch;
use pingora_proxy::HttpProxy;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A new connection has this long for the whole head of its first request.
const FIRST_HEAD: Duration = Duration::from_secs(10);

/// One app for all listeners, so that they share worker threads and the pool of upstream connections.
pub struct Edge {
    proxy: Arc<HttpProxy<Proxy>>,
    listeners: Vec<(SocketAddr, Arc<Listener>)>,
    runtime: Arc<Runtime>,
    lifecycle: Arc<Lifecycle>,
}

/// When a connection of HTTP/1 ends before its client wants it to.
struct Limits {
    patience: Patience,
    cut: Cut,
}

enum Speaks {
    Http1,
    Http2,
}

impl Edge {
    pub fn new(
        proxy: HttpProxy<Proxy>,
        listeners: Vec<(SocketAddr, Arc<Listener>)>,
        runtime: Arc<Runtime>,
        lifecycle: Arc<Lifecycle>,
    ) -> Self {
        Edge { proxy: Arc::new(proxy), listeners, runtime, lifecycle }
    }

    /// The listener that took the connection: the one whose address is the connection's own end, or covers it.
    fn listener(&self, local: SocketAddr) -> Option<&Arc<Listener>> {
        let local = SocketAddr::new(local.ip().to_canonical(), local.port());
        let exact = self.listeners.iter().find(|(address, _)| *address == local);
        let covering = |(address, _): &&(SocketAddr, Arc<Listener>)| {
            address.port() == local.port() && address.ip().is_unspecified()
        };
        exact.or_else(|| self.listeners.iter().find(covering)).map(|(_, listener)| listener)
    }

    /// One request after the other.
    async fn http1(&self, stream: Stream, connection: &Arc<Connection>, mut limits: Limits, shutdown: &ShutdownWatch) {
        let mut session = ServerSession::new_http1(Box::new(Corked::new(stream, connection.wire.clone())));
        session.set_keepalive(Some(FIRST_HEAD.as_secs()));
        // Off, a request that came before the answer to the last one would be dropped with the connection.
        session.set_pipelining_enabled(true);
        let mut next = self.serve(session, connection, &mut limits, shutdown).await;
        while let Some(session) = next {
            next = self.serve(session, connection, &mut limits, shutdown).await;
        }
    }

    /// One request; `Some` when the connection can take another.
    async fn serve(
        &self,
        session: ServerSession,
        connection: &Arc<Connection>,
        Limits { patience, cut }: &mut Limits,
        shutdown: &ShutdownWatch,
    ) -> Option<ServerSession> {
        let proxied = CONNECTION.scope(connection.clone(), process(&self.proxy, session, shutdown));
        tokio::pin!(proxied);
        let reused = loop {
            tokio::select! {
                biased;
                reused = &mut proxied => break reused?,
                () = patience.lost(connection) => return None,
                () = cut.heard(), if !connection.is_cut() => {
                    connection.cut();
                    if connection.wire.is_clients_turn() {
                        return None;
                    }
                    // Pingora hears the alarm now, and tells of the request.
                }
            }
        };
        connection.wire.await_head();
        let (stream, settings) = reused.consume();
        let mut session = ServerSession::new_http1(stream);
        if let Some(settings) = settings {
            settings.apply_to_session(&mut session);
        }
        Some(session)
    }
}

/// By ALPN within TLS, by the first bytes without it. `None`: what the listener does not speak.
async fn speaks(stream: &mut Stream, listener: &Listener) -> Option<Speaks> {
    let protocols = listener.protocols;
    let http2 = if listener.tls {
        stream.selected_alpn_proto() == Some(ALPN::H2)
    } else {
        protocols.h2c && http2::has_preface(stream).await?
    };
    match http2 {
        true => Some(Speaks::Http2),
        false => protocols.http1.then_some(Speaks::Http1),
    }
}

/// Pingora's work on one request. Not inlined, for the sake of its size: inside another future it would be built on the
/// stack first and its 14 KB copied to where they live.
#[inline(never)]
fn process<'a>(
    proxy: &'a Arc<HttpProxy<Proxy>>,
    session: ServerSession,
    shutdown: &'a ShutdownWatch,
) -> Pin<Box<dyn Future<Output = Option<ReusedHttpStream>> + Send + 'a>> {
    proxy.process_new_http(session, shutdown)
}

#[async_trait]
impl ServerApp for Edge {
    async fn process_new(self: &Arc<Self>, mut stream: Stream, shutdown: &ShutdownWatch) -> Option<Stream> {
        let digest = stream.get_socket_digest()?;
        let address = |end: Option<&pingora::protocols::l4::socket::SocketAddr>| end?.as_inet().copied();
        let listener = self.listener(address(digest.local_addr())?)?.clone();
        let _open = listener.metrics.connection_opened();
        let client = address(digest.peer_addr()).map(|peer| peer.ip());
        let idle_timeout = self.runtime.pin().listeners.get(listener.index)?.idle_timeout;
        let connection = Arc::new(Connection::new(listener, client, idle_timeout, self.lifecycle.clone()));
        let mut patience = Patience::new(FIRST_HEAD, idle_timeout);
        let mut cut = Cut::new(self.lifecycle.clone());
        let speaks = tokio::select! {
            biased;
            speaks = speaks(&mut stream, &connection.listener) => speaks?,
            () = patience.lost(&connection) => return None,
        };
        match speaks {
            Speaks::Http1 => self.http1(stream, &connection, Limits { patience, cut }, shutdown).await,
            Speaks::Http2 => {
                let served = Http2::serve(self.proxy.clone(), &self.lifecycle, connection.clone(), stream);
                tokio::select! {
                    () = served => {}
                    () = patience.lost(&connection) => {}
                    // Before its streams lose their connection, so that they know why.
                    () = async { cut.heard().await; connection.cut() } => {}
                }
            }
        }
        if connection.wire.refused() {
            let listener = &connection.listener;
            event::refused(&listener.metrics, &listener.unrouted, "its head is no HTTP/1, or CONNECT", Instant::now());
        }
        None
    }
}
