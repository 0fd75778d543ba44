//! Clients of HTTP/1.1. What was written and not answered is lost; a kept connection that ended before anything was written is
//! replaced, as every client does that sees it.

use super::loss::Loss;
use super::mix::Kind;
use super::wire::Server;
use super::{Client, Rehearsal};
use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_TYPE, HeaderValue};
use http::{HeaderMap, Method, Request};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout_at};

/// The longest body of a POST.
const MOST_BODY: usize = 16 << 10;

/// Requests one after another until the rehearsal is over.
pub async fn ask(rehearsal: &Rehearsal, client: &mut Client) {
    let mut kept = None;
    while rehearsal.goes_on() {
        if client.kind == Kind::Think {
            rehearsal.pause(Duration::from_millis(client.dice.u64(50..=500))).await;
        }
        let begun = Instant::now();
        let outcome = one(rehearsal, client, &mut kept, begun + rehearsal.timeout).await;
        rehearsal.ended(client, outcome, begun.elapsed()).await;
    }
}

async fn one(
    rehearsal: &Rehearsal,
    client: &mut Client,
    kept: &mut Option<Connection>,
    deadline: Instant,
) -> Result<(), Loss> {
    let mut connection = None;
    let mut exchange = Exchange::Unsent;
    if let Some(mut open) = kept.take() {
        exchange = timeout_at(deadline, open.exchange(request(client))).await.map_err(|_| Loss::Timeout)?;
        match exchange {
            Exchange::Unsent => rehearsal.count(client.kind, |count| count.closed_idle += 1),
            _ => connection = Some(open),
        }
    }
    if connection.is_none() {
        let mut open = timeout_at(deadline, Connection::open(&client.server, &mut client.from))
            .await
            .map_err(|_| Loss::Timeout)??;
        rehearsal.count(client.kind, |count| count.connections += 1);
        if client.kind == Kind::Fresh {
            sleep(Duration::from_millis(client.dice.u64(0..=40))).await;
        }
        exchange = timeout_at(deadline, open.exchange(request(client))).await.map_err(|_| Loss::Timeout)?;
        if let Exchange::Unsent = exchange {
            return Err(open.end().await);
        }
        connection = Some(open);
    }
    match exchange {
        Exchange::Answered { status, closes } => {
            if closes {
                rehearsal.count(client.kind, |count| count.told_to_close += 1);
            }
            *kept = connection.filter(|_| !closes && client.kind != Kind::Fresh);
            if (200..300).contains(&status) { Ok(()) } else { Err(Loss::Status(status)) }
        }
        Exchange::Lost(loss) => Err(loss),
        Exchange::Unsent => Err(Loss::EofFresh),
    }
}

fn request(client: &mut Client) -> Request<Full<Bytes>> {
    let mut request = Request::new(Full::default());
    client.server.target.address(&mut request);
    if client.kind == Kind::Post {
        let length = client.dice.usize(1..=MOST_BODY);
        *request.method_mut() = Method::POST;
        *request.body_mut() = Full::new(vec![b'x'; length].into());
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    }
    request
}

struct Connection {
    sender: SendRequest<Full<Bytes>>,
    answered: bool,
    /// Holds the one task that moves the bytes; it ends with the set.
    driver: JoinSet<hyper::Result<()>>,
}

enum Exchange {
    Answered {
        status: u16,
        /// By the answer's word.
        closes: bool,
    },
    /// The connection had ended; nothing was written.
    Unsent,
    Lost(Loss),
}

impl Connection {
    async fn open(server: &Server, from: &mut Option<SocketAddr>) -> Result<Connection, Loss> {
        let stream = server.connect(from).await?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|_| Loss::Protocol)?;
        let mut driver = JoinSet::new();
        driver.spawn(connection);
        Ok(Connection { sender, answered: false, driver })
    }

    async fn exchange(&mut self, request: Request<Full<Bytes>>) -> Exchange {
        if self.sender.ready().await.is_err() {
            return Exchange::Unsent;
        }
        let response = match self.sender.try_send_request(request).await {
            Ok(response) => response,
            Err(mut fault) => {
                let unsent = fault.take_message().is_some();
                let loss = Loss::of_exchange(fault.error(), self.answered).unwrap_or(Loss::Protocol);
                return if unsent { Exchange::Unsent } else { Exchange::Lost(loss) };
            }
        };
        let (head, mut body) = response.into_parts();
        while let Some(frame) = body.frame().await {
            if frame.is_err() {
                return Exchange::Lost(Loss::Truncated);
            }
        }
        self.answered = true;
        Exchange::Answered { status: head.status.as_u16(), closes: closes(&head.headers) }
    }

    /// How a connection ended that took no request.
    async fn end(mut self) -> Loss {
        match self.driver.join_next().await {
            Some(Ok(Err(fault))) => Loss::of_exchange(&fault, false).unwrap_or(Loss::Protocol),
            _ => Loss::EofFresh,
        }
    }
}

fn closes(headers: &HeaderMap) -> bool {
    let values = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|word| word.trim().eq_ignore_ascii_case("close"))
}
