//! HTTP/1.1 for the commands that ask a server something: GETs on a connection that is kept, the bodies of their answers read to
//! their end and dropped, and [`ask`] for one request whose answer is wanted whole.
//!
//! Deliberately not here: TLS, redirects, proxies. A GET that was never written, because the server had closed the kept connection, goes once over a new one; nothing else is
//! repeated. Failures carry the words of the proxy's own metrics.

use super::target::Target;
use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::TrySendError;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use std::error::Error;
use std::fmt;
use std::io;
use tokio::net::{TcpStream, lookup_host};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

/// Why no whole answer came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Failure {
    Dns,
    Refused,
    Unreachable,
    ConnectTimeout,
    ReadTimeout,
    Reset,
    Protocol,
    /// This machine's own limits: ports or file descriptors spent.
    Local,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Failure::Dns => "dns",
            Failure::Refused => "refused",
            Failure::Unreachable => "unreachable",
            Failure::ConnectTimeout => "connect_timeout",
            Failure::ReadTimeout => "read_timeout",
            Failure::Reset => "reset",
            Failure::Protocol => "protocol",
            Failure::Local => "local",
        })
    }
}

/// An answer's body is no longer than this.
const MOST_BODY: usize = 64 << 20;

/// One request on a connection of its own; the status and body of its answer, come whole by `deadline`. The head of `request` needs no
/// address: that is the target's.
pub async fn ask(
    target: &Target,
    mut request: Request<Full<Bytes>>,
    deadline: Instant,
) -> Result<(StatusCode, Vec<u8>), Failure> {
    target.address(&mut request);
    let mut connection = connect(target, deadline).await?;
    let mut body = Vec::new();
    let keep = |bytes: Bytes| {
        body.extend_from_slice(&bytes);
        body.len() <= MOST_BODY
    };
    match timeout_at(deadline, connection.exchange(request, keep)).await {
        Ok(Ok((status, _))) => Ok((status, body)),
        Ok(Err(Unanswered::NotSent)) => Err(Failure::Reset),
        Ok(Err(Unanswered::Failed(failure))) => Err(failure),
        Err(_) => Err(Failure::ReadTimeout),
    }
}

async fn connect(target: &Target, deadline: Instant) -> Result<Connection, Failure> {
    let connected = timeout_at(deadline, Connection::open(&target.host, target.port));
    connected.await.unwrap_or(Err(Failure::ConnectTimeout))
}

/// A client for one [`Target`], with at most one connection, made when first needed.
pub struct Client<'a> {
    target: &'a Target,
    connection: Option<Connection>,
}

struct Connection {
    sender: SendRequest<Full<Bytes>>,
    /// Holds the one task that moves the bytes; it ends with the set.
    _driver: JoinSet<()>,
}

impl<'a> Client<'a> {
    pub fn new(target: &'a Target) -> Client<'a> {
        Client { target, connection: None }
    }

    /// The status and headers of an answer that came whole by `deadline`. Connecting counts.
    pub async fn get(&mut self, deadline: Instant) -> Result<(StatusCode, HeaderMap), Failure> {
        let mut connection = match self.connection.take() {
            Some(kept) => kept,
            None => connect(self.target, deadline).await?,
        };
        let exchanged = match timeout_at(deadline, connection.exchange(self.request(), |_| true)).await {
            Ok(Err(Unanswered::NotSent)) => {
                connection = connect(self.target, deadline).await?;
                timeout_at(deadline, connection.exchange(self.request(), |_| true)).await
            }
            first => first,
        };
        match exchanged {
            Ok(Ok(answer)) => {
                self.connection = Some(connection);
                Ok(answer)
            }
            Ok(Err(Unanswered::NotSent)) => Err(Failure::Reset),
            Ok(Err(Unanswered::Failed(failure))) => Err(failure),
            Err(_) => Err(Failure::ReadTimeout),
        }
    }

    fn request(&self) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::default());
        self.target.address(&mut request);
        request
    }
}

enum Unanswered {
    NotSent,
    Failed(Failure),
}

impl Connection {
    async fn open(host: &str, port: u16) -> Result<Connection, Failure> {
        let addresses: Vec<_> = lookup_host((host, port)).await.map_err(|_| Failure::Dns)?.collect();
        let stream = TcpStream::connect(&addresses[..]).await.map_err(|fault| of_connect(&fault))?;
        stream.set_nodelay(true).map_err(|_| Failure::Local)?;
        let handshake = http1::handshake(TokioIo::new(stream)).await;
        let (sender, connection) = handshake.map_err(|fault| of_exchange(&fault))?;
        let mut driver = JoinSet::new();
        driver.spawn(async move {
            // Its fault reaches the request that is under way.
            let _ = connection.await;
        });
        Ok(Connection { sender, _driver: driver })
    }

    /// `take` gets the body's bytes and says whether there may be more.
    async fn exchange(
        &mut self,
        request: Request<Full<Bytes>>,
        mut take: impl FnMut(Bytes) -> bool,
    ) -> Result<(StatusCode, HeaderMap), Unanswered> {
        let failed = |fault: hyper::Error| Unanswered::Failed(of_exchange(&fault));
        self.sender.ready().await.map_err(|_| Unanswered::NotSent)?;
        let response = self.sender.try_send_request(request).await.map_err(not_answered)?;
        let (head, mut body) = response.into_parts();
        while let Some(frame) = body.frame().await {
            if let Ok(bytes) = frame.map_err(failed)?.into_data()
                && !take(bytes)
            {
                return Err(Unanswered::Failed(Failure::Protocol));
            }
        }
        Ok((head.status, head.headers))
    }
}

fn not_answered(mut fault: TrySendError<Request<Full<Bytes>>>) -> Unanswered {
    match fault.take_message() {
        Some(_) => Unanswered::NotSent,
        None => Unanswered::Failed(of_exchange(fault.error())),
    }
}

fn of_connect(fault: &io::Error) -> Failure {
    match fault.kind() {
        io::ErrorKind::ConnectionRefused => Failure::Refused,
        io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => Failure::Unreachable,
        io::ErrorKind::TimedOut => Failure::ConnectTimeout,
        io::ErrorKind::ConnectionReset => Failure::Reset,
        _ => Failure::Local,
    }
}

/// What is neither the connection's loss nor its silence is a peer that does not speak HTTP/1.1.
fn of_exchange(fault: &hyper::Error) -> Failure {
    let lost = fault.source().is_some_and(|cause| cause.is::<io::Error>());
    match lost || fault.is_incomplete_message() || fault.is_canceled() || fault.is_closed() {
        true => Failure::Reset,
        false => Failure::Protocol,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    /// A server that takes the connections one after another, reads one request of each and answers with the bytes given.
    async fn scripted(answers: Vec<&'static str>) -> (Target, tokio::task::JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let target = format!("http://{}/", listener.local_addr().unwrap()).parse().unwrap();
        let task = tokio::spawn(async move {
            for answer in answers {
                let (mut stream, _) = listener.accept().await.unwrap();
                assert_ne!(stream.read(&mut [0; 4096]).await.unwrap(), 0);
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        });
        (target, task)
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(30)
    }

    #[tokio::test]
    async fn given_a_server_that_closes_after_each_answer_when_asked_again_then_it_reconnects() {
        let closing = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok";
        let (target, server) = scripted(vec![closing, closing]).await;
        let mut client = Client::new(&target);
        for _ in 0..2 {
            assert_eq!(client.get(soon()).await.unwrap().0, StatusCode::OK);
        }
        server.await.unwrap();
    }

    #[tokio::test]
    async fn given_an_answer_cut_short_or_foreign_when_read_then_the_kind_tells() {
        for (answer, kind) in [
            ("", Failure::Reset),
            ("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok", Failure::Reset),
            ("SSH-2.0-OpenSSH_9.2\r\n\r\n", Failure::Protocol),
        ] {
            let (target, _server) = scripted(vec![answer]).await;
            assert_eq!(Client::new(&target).get(soon()).await.unwrap_err(), kind, "{answer:?}");
        }
    }

    #[tokio::test]
    async fn given_a_kept_connection_gone_silent_when_the_deadline_is_over_then_it_is_a_read_timeout() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let target: Target = format!("http://{}/", listener.local_addr().unwrap()).parse().unwrap();
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            assert_ne!(stream.read(&mut [0; 4096]).await.unwrap(), 0);
            stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.unwrap();
            std::future::pending::<()>().await;
        });
        let mut client = Client::new(&target);
        assert_eq!(client.get(soon()).await.unwrap().0, StatusCode::NO_CONTENT);
        assert_eq!(client.get(Instant::now()).await.unwrap_err(), Failure::ReadTimeout);
        server.abort();
    }
}
