//! How connections for requests are opened: as Pingora would do it, but counted among those of their destination from their
//! beginning to their end. Pingora's pool keeps idle ones for itself and tells nobody which they are.

use crate::model::Sockets;
use async_trait::async_trait;
use pingora::connectors::L4Connect;
use pingora::protocols::l4::ext;
use pingora::protocols::l4::socket::SocketAddr;
use pingora::protocols::l4::stream::Stream;
use pingora::upstreams::peer::{Tracer, Tracing};
use pingora::{Error, ErrorType, Result};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;

/// Opens the connections of one destination. Its time is limited by whoever asks: the peer's `total_connection_timeout`.
#[derive(Debug)]
pub(super) struct Dialer(pub Arc<Sockets>);

/// Goes with one connection; Pingora tells it just before that is closed.
#[derive(Debug, Clone)]
struct Counted {
    socket: RawFd,
    sockets: Arc<Sockets>,
}

#[async_trait]
impl L4Connect for Dialer {
    async fn connect(&self, address: &SocketAddr) -> Result<Stream> {
        let Some(address) = address.as_inet() else {
            return Error::e_explain(ErrorType::InternalError, "destinations have addresses of the Internet");
        };
        // The two are of this side.
        let ours = |error: Box<Error>| match error.etype() {
            ErrorType::SocketError | ErrorType::BindError => {
                Error::because(ErrorType::InternalError, format!("no connection to {address}"), error)
            }
            _ => error,
        };
        let mut stream = Stream::from(ext::connect(address, None).await.map_err(ours)?);
        let counted = Counted { socket: stream.as_raw_fd(), sockets: self.0.clone() };
        counted.on_connected();
        stream.tracer = Some(Tracer(Box::new(counted)));
        Ok(stream)
    }
}

impl Tracing for Counted {
    fn on_connected(&self) {
        self.sockets.opened(self.socket);
    }

    fn on_disconnected(&self) {
        self.sockets.closing(self.socket);
    }

    fn boxed_clone(&self) -> Box<dyn Tracing> {
        Box::new(self.clone())
    }
}
