//! A destination of HTTP/1.1 or HTTP/2 that takes requests in as a whole, and answers when it is let.

use super::{Answer, Gate, Origin, Step, free_port, loopback, take};
use bytes::Bytes;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::net::{TcpListener, TcpStream};

pub struct Held {
    /// Of `cluster.request`, in flow style.
    pub version: &'static str,
    address: SocketAddr,
    origin: Option<Origin>,
    streams: Arc<Streams>,
}

#[derive(Default)]
struct Streams {
    whole: AtomicUsize,
    open: AtomicUsize,
}

impl Held {
    /// Both, in this order.
    pub async fn both(gate: &Gate) -> [Held; 2] {
        [Held::http1(gate).await, Held::http2(gate).await]
    }

    async fn http1(gate: &Gate) -> Held {
        let held = gate.clone();
        let origin = Origin::start(move |request| {
            let body = if request.method() == "HEAD" { "" } else { "late" };
            let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n{body}");
            Answer::script([Step::ReadBody, Step::Wait(held.clone()), Step::send(answer)])
        })
        .await;
        Held { version: "version: 1.1", address: origin.address(), origin: Some(origin), streams: Arc::default() }
    }

    async fn http2(gate: &Gate) -> Held {
        let listener = TcpListener::bind(loopback(free_port())).await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let streams = Arc::<Streams>::default();
        let (gate, seen) = (gate.clone(), streams.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, gate.clone(), seen.clone()));
            }
        });
        Held { version: "version: 2, version_policy: Exact", address, origin: None, streams }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Requests that came as a whole, so far.
    pub fn whole(&self) -> usize {
        match &self.origin {
            Some(origin) => origin.requests().iter().filter(|request| request.complete).count(),
            None => self.streams.whole.load(Ordering::SeqCst),
        }
    }

    /// Requests in its hands; of HTTP/1 kept connections too.
    pub fn open(&self) -> usize {
        self.origin.as_ref().map_or_else(|| self.streams.open.load(Ordering::SeqCst), Origin::open)
    }
}

async fn serve(stream: TcpStream, gate: Gate, seen: Arc<Streams>) -> Result<(), h2::Error> {
    let mut connection = h2::server::handshake(stream).await?;
    while let Some(accepted) = connection.accept().await {
        let (request, mut respond) = accepted?;
        let (gate, seen) = (gate.clone(), seen.clone());
        tokio::spawn(async move {
            seen.open.fetch_add(1, Ordering::SeqCst);
            let (head, mut body) = request.into_parts();
            let answered = async {
                while let Some(chunk) = body.data().await {
                    take(&mut body, chunk?);
                }
                body.trailers().await?;
                seen.whole.fetch_add(1, Ordering::SeqCst);
                tokio::select! {
                    () = gate.wait() => {}
                    reset = poll_fn(|context| respond.poll_reset(context)) => return reset.map(drop),
                }
                let bare = head.method == http::Method::HEAD;
                let mut out = respond.send_response(http::Response::new(()), bare)?;
                if bare { Ok(()) } else { out.send_data(Bytes::from_static(b"late"), true) }
            };
            // However it ends, it is over.
            let _ = answered.await;
            seen.open.fetch_sub(1, Ordering::SeqCst);
        });
    }
    Ok(())
}
