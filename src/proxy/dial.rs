//! A new connection to a destination, opened with an eye on the client. Pingora opens one by itself where none is kept, and the
//! client is out of its sight meanwhile. So it is made to look for a kept one first; where there is none, it looks again with the
//! client lent to whoever opens the connection, who gives up when the client does. It is given back before anything is asked of it.
//!
//! TLS that is agreed on afterwards is Pingora's again, and not watched.

use super::ctx::Ctx;
use super::queue::ended;
use super::wire::Wire;
use async_trait::async_trait;
use pingora::connectors::L4Connect;
use pingora::protocols::http::ServerSession;
use pingora::protocols::l4::socket::SocketAddr;
use pingora::protocols::l4::stream::Stream;
use pingora::upstreams::peer::HttpPeer;
use pingora::{Error, ErrorType, Result};
use pingora_proxy::Session;
use std::fmt;
use std::mem;
use std::sync::Arc;
use tokio::sync::Mutex;

/// Rounds of Pingora's that one connection takes at most.
pub const ROUNDS: usize = 2;

const NONE_KEPT: ErrorType = ErrorType::new("NoneKept");

/// Where the connection of an attempt comes from.
#[derive(Default)]
pub enum Dial {
    /// From the pool, if there is one.
    #[default]
    Kept,
    /// There was none.
    New,
    Lent(Arc<Attended>),
}

/// Opens no connection.
#[derive(Debug)]
struct Kept;

/// Opens one connection for one client.
pub struct Attended {
    dialer: Arc<dyn L4Connect + Send + Sync>,
    wire: Arc<Wire>,
    lent: Mutex<Lent>,
}

struct Lent {
    client: Box<ServerSession>,
    /// How the client ended its request meanwhile.
    ended: Option<Box<Error>>,
}

/// What came of a round before there was a connection.
pub enum Came {
    /// There is another, for a new connection.
    Again,
    ClientEnded(Box<Error>),
    Failed,
}

/// Sees to it that `peer` opens no connection with the client out of sight.
pub fn attend(session: &mut Session, ctx: &mut Ctx, peer: &mut HttpPeer) {
    let Some(dialer) = peer.options.custom_l4.take() else { return };
    let fresh = ctx.attempt.as_ref().is_some_and(|attempt| attempt.fresh);
    if matches!(ctx.dial, Dial::Kept) && !fresh {
        peer.options.custom_l4 = Some(Arc::new(Kept));
        return;
    }
    let nobody = Box::new(ServerSession::new_custom(Box::new(())));
    let client = mem::replace(&mut session.downstream_session, nobody);
    let lent = Mutex::new(Lent { client, ended: None });
    let attended = Arc::new(Attended { dialer, wire: ctx.connection.wire.clone(), lent });
    ctx.dial = Dial::Lent(attended.clone());
    peer.options.custom_l4 = Some(attended);
}

/// Gives the client back, if it was lent. Nobody connects any more.
pub fn give_back(session: &mut Session, ctx: &mut Ctx) -> Option<Box<Error>> {
    let Dial::Lent(attended) = mem::take(&mut ctx.dial) else { return None };
    let mut lent = attended.lent.try_lock().ok()?;
    mem::swap(&mut session.downstream_session, &mut lent.client);
    lent.ended.take()
}

/// As [`give_back`], when `error` is why there is no connection.
pub fn failed(session: &mut Session, ctx: &mut Ctx, error: &Error) -> Came {
    if let Some(ended) = give_back(session, ctx) {
        return Came::ClientEnded(ended);
    }
    if error.etype() != &NONE_KEPT {
        return Came::Failed;
    }
    ctx.dial = Dial::New;
    Came::Again
}

#[async_trait]
impl L4Connect for Kept {
    async fn connect(&self, _: &SocketAddr) -> Result<Stream> {
        Err(Error::new_up(NONE_KEPT))
    }
}

#[async_trait]
impl L4Connect for Attended {
    async fn connect(&self, address: &SocketAddr) -> Result<Stream> {
        let mut lent = self.lent.lock().await;
        let Lent { client, ended: end } = &mut *lent;
        tokio::select! {
            biased;
            // One that ends its side when all is said may wait for its answer.
            error = ended(client, || self.wire.set_whole(true)) => {
                *end = Some(error);
                Error::e_explain(ErrorType::ConnectError, "the client ended its request")
            }
            connected = self.dialer.connect(address) => connected,
        }
    }
}

impl fmt::Debug for Attended {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.dialer.fmt(formatter)
    }
}
