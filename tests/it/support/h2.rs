//! HTTP/2 for the tests: a client, a server that echoes, and one that takes its leave every few requests.

use super::{free_port, in_time, loopback};
use bytes::Bytes;
use h2::client::SendRequest;
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderMap, Request, Response};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

/// A client connection.
pub struct H2Client {
    send: SendRequest<Bytes>,
    connection: JoinHandle<Result<(), h2::Error>>,
}

/// A response, whole.
#[derive(Debug)]
pub struct H2Response {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
    pub trailers: HeaderMap,
}

impl H2Client {
    /// By prior knowledge.
    pub async fn connect(address: SocketAddr) -> H2Client {
        H2Client::over(TcpStream::connect(address).await.expect("connecting")).await
    }

    pub async fn over(stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) -> H2Client {
        let (send, connection) = h2::client::handshake(stream).await.expect("a handshake writes only");
        H2Client { send, connection: tokio::spawn(connection) }
    }

    /// A request whose body is still to come.
    pub async fn open(&self, request: Request<()>) -> (SendStream<Bytes>, h2::client::ResponseFuture) {
        let mut send = in_time("a free stream", self.send.clone().ready()).await.expect("an open connection");
        let (response, body) = send.send_request(request, false).expect("a good request");
        (body, response)
    }

    pub async fn send(&self, request: Request<()>, body: &[u8]) -> Result<H2Response, h2::Error> {
        let mut send = in_time("a free stream", self.send.clone().ready()).await?;
        let (response, mut stream) = send.send_request(request, body.is_empty())?;
        // A server may answer before it has the body, and then it takes no more of it.
        if !body.is_empty() && write(&mut stream, body).await.is_ok() {
            let _ = stream.send_data(Bytes::new(), true);
        }
        H2Response::read(response).await
    }

    pub async fn get(&self, url: &str) -> Result<H2Response, h2::Error> {
        self.send(Request::get(url).body(()).unwrap(), b"").await
    }

    /// Leaves, and takes its streams along.
    pub fn drop_connection(self) {
        self.connection.abort();
    }

    /// Returns when the server has said that it goes away, and no stream is left; the client itself would stay.
    pub async fn left(self) -> Result<(), h2::Error> {
        let H2Client { send: _stays, connection } = self;
        in_time("the end of the connection", connection).await.expect("no panic")
    }

    /// Returns when the server has closed; an error is one of HTTP/2.
    pub async fn closed(self) -> Result<(), h2::Error> {
        drop(self.send);
        in_time("the end of the connection", self.connection).await.expect("no panic")
    }
}

impl H2Response {
    pub async fn read(response: h2::client::ResponseFuture) -> Result<H2Response, h2::Error> {
        let (head, mut stream) = in_time("the head of a response", response).await?.into_parts();
        let mut body = Vec::new();
        let mut read = async || {
            while let Some(chunk) = in_time("the body of a response", stream.data()).await {
                body.extend(take(&mut stream, chunk?));
            }
            in_time("trailers", stream.trailers()).await
        };
        let trailers = match read().await {
            // How a server says that it wants no more of the request.
            Err(error) if error.is_reset() && error.reason() == Some(Reason::NO_ERROR) => HeaderMap::new(),
            trailers => trailers?.unwrap_or_default(),
        };
        Ok(H2Response { status: head.status.as_u16(), headers: head.headers, body, trailers })
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// Gives the bytes back to the flow control.
pub fn take(stream: &mut RecvStream, chunk: Bytes) -> Bytes {
    stream.flow_control().release_capacity(chunk.len()).expect("its own bytes");
    chunk
}

async fn write(stream: &mut SendStream<Bytes>, mut bytes: &[u8]) -> Result<(), h2::Error> {
    while !bytes.is_empty() {
        stream.reserve_capacity(bytes.len());
        let capacity = std::future::poll_fn(|context| stream.poll_capacity(context));
        let Some(capacity) = in_time("room for the body", capacity).await.transpose()? else { break };
        let (now, later) = bytes.split_at(capacity.min(bytes.len()));
        stream.send_data(Bytes::copy_from_slice(now), false)?;
        bytes = later;
    }
    Ok(())
}

type Refuses = fn(usize) -> bool;

/// Echoes each body chunk by chunk, with the trailer `grpc-status: 0`.
pub struct H2Origin {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<http::request::Parts>>>,
    connections: Arc<AtomicUsize>,
}

impl H2Origin {
    /// h2c by prior knowledge.
    pub async fn start() -> H2Origin {
        H2Origin::refusing(|_| false).await
    }

    /// One that refuses some requests unprocessed, by their number from 1.
    pub async fn refusing(refuses: Refuses) -> H2Origin {
        H2Origin::serve(refuses, None).await
    }

    pub async fn over_tls(acceptor: TlsAcceptor) -> H2Origin {
        H2Origin::serve(|_| false, Some(acceptor)).await
    }

    async fn serve(refuses: Refuses, tls: Option<TlsAcceptor>) -> H2Origin {
        let listener = TcpListener::bind(loopback(free_port())).await.unwrap();
        let origin =
            H2Origin { address: listener.local_addr().unwrap(), seen: Arc::default(), connections: Arc::default() };
        let (seen, connections) = (origin.seen.clone(), origin.connections.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                connections.fetch_add(1, Ordering::SeqCst);
                let (seen, tls) = (seen.clone(), tls.clone());
                tokio::spawn(async move {
                    match tls {
                        Some(acceptor) => echo(acceptor.accept(stream).await.ok()?, seen, refuses).await.ok(),
                        None => echo(stream, seen, refuses).await.ok(),
                    }
                });
            }
        });
        origin
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The heads, in the order in which they came.
    pub fn seen(&self) -> Vec<http::request::Parts> {
        self.seen.lock().unwrap().clone()
    }

    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

async fn echo(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    seen: Arc<Mutex<Vec<http::request::Parts>>>,
    refuses: Refuses,
) -> Result<(), h2::Error> {
    let mut connection = h2::server::handshake(stream).await?;
    while let Some(accepted) = connection.accept().await {
        let (request, mut respond) = accepted?;
        let (head, mut body) = request.into_parts();
        let number = {
            let mut seen = seen.lock().unwrap();
            seen.push(head);
            seen.len()
        };
        if refuses(number) {
            respond.send_reset(Reason::REFUSED_STREAM);
            continue;
        }
        tokio::spawn(async move {
            let response = Response::builder().header("content-type", "application/grpc").body(()).unwrap();
            let mut out = respond.send_response(response, false)?;
            while let Some(chunk) = body.data().await {
                let chunk = take(&mut body, chunk?);
                write(&mut out, &chunk).await?;
            }
            out.send_trailers(HeaderMap::from_iter([("grpc-status".parse().unwrap(), "0".parse().unwrap())]))
        });
    }
    Ok(())
}

/// Answers 200 to `each` requests of a connection and leaves out the rest: a GOAWAY says that they were not processed.
pub struct GoAway {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
}

impl GoAway {
    pub async fn after(each: u32) -> GoAway {
        let listener = TcpListener::bind(loopback(free_port())).await.unwrap();
        let origin = GoAway { address: listener.local_addr().unwrap(), connections: Arc::default() };
        let connections = origin.connections.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                connections.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(leave_after(stream, each));
            }
        });
        origin
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

/// Frames by hand, as no server of a library leaves a stream out on purpose.
async fn leave_after(mut stream: TcpStream, each: u32) -> std::io::Result<()> {
    const HEADERS: u8 = 1;
    const SETTINGS: u8 = 4;
    const GOAWAY: u8 = 7;
    let frame = |kind: u8, flags: u8, id: u32, payload: &[u8]| {
        let length = (payload.len() as u32).to_be_bytes();
        [&length[1..], &[kind, flags], &id.to_be_bytes(), payload].concat()
    };
    stream.read_exact(&mut [0; 24]).await?;
    stream.write_all(&frame(SETTINGS, 0, 0, &[])).await?;
    let (mut served, mut last, mut left) = (0, 0, false);
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).await?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let id = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        stream.read_exact(&mut vec![0; length]).await?;
        match (head[3], head[4]) {
            (SETTINGS, 0) => stream.write_all(&frame(SETTINGS, 1, 0, &[])).await?,
            (HEADERS, _) if served < each => {
                (served, last) = (served + 1, id);
                // `:status: 200` in HPACK's table; the end of the headers and of the stream.
                stream.write_all(&frame(HEADERS, 5, id, &[0x88])).await?;
            }
            (HEADERS, _) if !left => {
                left = true;
                let payload = [last.to_be_bytes(), [0; 4]].concat();
                stream.write_all(&frame(GOAWAY, 0, 0, &payload)).await?;
            }
            _ => {}
        }
    }
}
