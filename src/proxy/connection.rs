use super::http10;
use super::wire::Wire;
use crate::config::Protocols;
use crate::filter::Forwarded;
use crate::observe::{ListenerMetrics, RouteMetrics};
use crate::service::Lifecycle;
use http::{HeaderMap, HeaderValue};
use ipnet::IpNet;
use pingora_proxy::Session;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// No byte of a request body, or none of an answer taken, for this long ends the request, unless its cluster says.
const STALLED: Duration = Duration::from_secs(60);

tokio::task_local! {
    /// The client connection that the running task serves: Pingora tells its callbacks nothing of it.
    pub static CONNECTION: Arc<Connection>;
}

/// A listener as requests see it.
pub struct Listener {
    /// Its position in the configuration, by which routes keep their metrics.
    pub index: usize,
    pub tls: bool,
    pub protocols: Protocols,
    pub metrics: ListenerMetrics,
    /// Of the requests that match no route.
    pub unrouted: RouteMetrics,
}

/// One client connection.
pub struct Connection {
    pub listener: Arc<Listener>,
    /// The address at its other end; IPv4 inside IPv6 is IPv4.
    pub client_ip: Option<IpAddr>,
    /// As X-Forwarded-For carries it.
    pub client: Option<HeaderValue>,
    pub wire: Arc<Wire>,
    /// Without a request it is kept this long.
    pub idle_timeout: Duration,
    lifecycle: Arc<Lifecycle>,
    /// By the end of a drain.
    is_cut: AtomicBool,
}

/// Who sent a request: whoever is connected, or whom a trusted proxy that is connected tells of.
pub struct Client {
    pub ip: Option<IpAddr>,
    /// It speaks TLS.
    pub secure: bool,
    /// What the trusted proxy said.
    pub forwarded: Option<Box<Forwarded>>,
}

impl Client {
    pub fn of(connection: &Connection) -> Self {
        Client { ip: connection.client_ip, secure: connection.listener.tls, forwarded: None }
    }

    /// As `trusted` proxies tell of it.
    pub fn believe(&mut self, headers: &HeaderMap, connection: &Connection, trusted: &[IpNet]) {
        let Some(peer) = connection.client_ip.filter(|_| !trusted.is_empty()) else { return };
        if let Some(forwarded) = Forwarded::read(headers, peer, trusted) {
            self.ip = Some(forwarded.client);
            self.secure = forwarded.secure.unwrap_or(self.secure);
            self.forwarded = Some(Box::new(forwarded));
        }
    }
}

impl Connection {
    pub fn new(
        listener: Arc<Listener>,
        client: Option<IpAddr>,
        idle_timeout: Duration,
        lifecycle: Arc<Lifecycle>,
    ) -> Self {
        let client_ip = client.map(|ip| ip.to_canonical());
        let client = client_ip.and_then(|ip| HeaderValue::try_from(ip.to_string()).ok());
        let (wire, is_cut) = (Arc::default(), AtomicBool::new(false));
        Connection { listener, client_ip, client, wire, idle_timeout, lifecycle, is_cut }
    }

    /// Ends the request that is served: one of HTTP/1 by its alarm, streams of HTTP/2 by the connection's end, which is to follow.
    pub fn cut(&self) {
        self.is_cut.store(true, Relaxed);
        self.wire.alarm.ring();
    }

    pub fn is_cut(&self) -> bool {
        self.is_cut.load(Relaxed)
    }

    /// The one that this task serves.
    ///
    /// # Panics
    /// Outside of [`CONNECTION`]'s scope, which the edge opens around every call into Pingora's proxy.
    pub(super) fn current() -> Arc<Connection> {
        let connection = CONNECTION.with(Arc::clone);
        connection.wire.head_read();
        connection
    }

    /// For each request anew: Pingora keeps an infinite idle time otherwise, and no time for writing at all.
    pub(super) fn set_limits(&self, session: &mut Session) {
        http10::prepare(session);
        if session.get_keepalive().is_some() {
            // Nothing would be for ever.
            session.set_keepalive(Some(self.idle_timeout.as_secs_f64().ceil() as u64));
        }
        self.set_last(session);
        self.set_stalled(session, STALLED);
    }

    /// While the process takes its leave, every answer that begins is its connection's last.
    pub(super) fn set_last(&self, session: &mut Session) {
        if self.lifecycle.is_draining() {
            session.set_keepalive(None);
        }
    }

    /// How long the client may stay silent or take nothing, within a request.
    pub(super) fn set_stalled(&self, session: &mut Session, stalled: Duration) {
        session.set_read_timeout(Some(stalled));
        session.set_write_timeout(Some(stalled));
    }
}
