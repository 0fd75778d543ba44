//! Clients of HTTP/2: several share a connection, each has one stream at a time. A stream that the server refuses unprocessed
//! goes over a new connection, as the protocol has it, and is counted apart.

use super::loss::Loss;
use super::mix::Kind;
use super::wire::Server;
use super::{Client, Rehearsal};
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

/// A request is refused so often at most; a server that goes on has lost it.
const TRIES: u32 = 5;

/// The connection that some clients share.
#[derive(Default)]
pub struct Shared(Mutex<Option<Arc<Connection>>>);

pub struct Connection {
    sender: SendRequest<Full<Bytes>>,
    /// This side's address.
    from: Option<SocketAddr>,
    answered: AtomicBool,
    /// Holds the one task that moves the bytes; it ends with the last stream.
    _driver: JoinSet<()>,
}

pub async fn ask(rehearsal: &Rehearsal, client: &mut Client) {
    while rehearsal.goes_on() {
        let begun = Instant::now();
        let asked = one(rehearsal, client);
        let outcome = timeout_at(begun + rehearsal.timeout, asked).await.unwrap_or(Err(Loss::Timeout));
        rehearsal.ended(client, outcome, begun.elapsed()).await;
    }
}

async fn one(rehearsal: &Rehearsal, client: &mut Client) -> Result<(), Loss> {
    let shared = &client.shared;
    for _ in 0..TRIES {
        let connection = shared.get(rehearsal, &client.server, &mut client.from).await?;
        client.from = connection.from;
        match connection.exchange(&client.server).await {
            Exchange::Answered(200..300) => return Ok(()),
            Exchange::Answered(status) => return Err(Loss::Status(status)),
            Exchange::Lost(loss) => {
                shared.leave(&connection).await;
                return Err(loss);
            }
            Exchange::Unsent => {
                if shared.leave(&connection).await {
                    rehearsal.count(Kind::Http2, |count| count.told_to_close += 1);
                }
            }
            Exchange::Unprocessed => {
                shared.leave(&connection).await;
                rehearsal.count(Kind::Http2, |count| count.sent_again += 1);
            }
        }
    }
    Err(Loss::Protocol)
}

impl Shared {
    async fn get(
        &self,
        rehearsal: &Rehearsal,
        server: &Server,
        from: &mut Option<SocketAddr>,
    ) -> Result<Arc<Connection>, Loss> {
        let mut shared = self.0.lock().await;
        if let Some(open) = &*shared {
            return Ok(open.clone());
        }
        let stream = server.connect(from).await?;
        let handshake = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
        let (sender, connection) =
            handshake.map_err(|fault| Loss::of_exchange(&fault, false).unwrap_or(Loss::Protocol))?;
        let mut driver = JoinSet::new();
        driver.spawn(async move {
            // Its fault reaches the streams that are under way.
            let _ = connection.await;
        });
        rehearsal.count(Kind::Http2, |count| count.connections += 1);
        let answered = AtomicBool::new(false);
        let open = Arc::new(Connection { sender, from: *from, answered, _driver: driver });
        *shared = Some(open.clone());
        Ok(open)
    }

    /// No new streams on this one; false where another one has taken its place.
    async fn leave(&self, connection: &Arc<Connection>) -> bool {
        let mut shared = self.0.lock().await;
        let is_it = shared.as_ref().is_some_and(|open| Arc::ptr_eq(open, connection));
        if is_it {
            *shared = None;
        }
        is_it
    }
}

enum Exchange {
    Answered(u16),
    /// The connection takes no more streams.
    Unsent,
    /// The server says that it did not look at it.
    Unprocessed,
    Lost(Loss),
}

impl Connection {
    async fn exchange(&self, server: &Server) -> Exchange {
        let mut sender = self.sender.clone();
        let reused = self.answered.load(Ordering::Relaxed);
        let of = |fault: &hyper::Error| match Loss::of_exchange(fault, reused) {
            Some(loss) => Exchange::Lost(loss),
            None => Exchange::Unprocessed,
        };
        if sender.ready().await.is_err() {
            return Exchange::Unsent;
        }
        let mut request = Request::new(Full::default());
        server.target.address_whole(&mut request);
        let response = match sender.try_send_request(request).await {
            Ok(response) => response,
            Err(mut fault) => {
                return if fault.take_message().is_some() { Exchange::Unsent } else { of(fault.error()) };
            }
        };
        let status = response.status().as_u16();
        let mut body = response.into_body();
        while let Some(frame) = body.frame().await {
            if frame.is_err() {
                return Exchange::Lost(Loss::Truncated);
            }
        }
        self.answered.store(true, Ordering::Relaxed);
        Exchange::Answered(status)
    }
}
