//! The copies of mirrored requests on their way. A request hands its copy to a bounded queue and goes on; here each gets a
//! task of its own, on a thread that serves nobody else, over connections that nobody else uses. An answer is read to its end
//! and dropped. One that stays away takes up a place until its time is over, and no request ever waits: what the queue does not
//! take is dropped and counted. A copy is never made again; when the process ends, those in flight do too.

use super::mirror_connections::MirrorConnections;
use super::mirror_head::Head;
use crate::health::active::words_of;
use crate::observe::{MirrorMetrics, Mirrored, event};
use crate::runtime::{Answer, Comparison, Place, Target};
use async_trait::async_trait;
use bytes::Bytes;
use http::{StatusCode, Uri, header, uri};
use pingora::http::RequestHeader;
use pingora::protocols::http::client::HttpSession as ClientSession;
use pingora::server::ShutdownWatch;
use pingora::services::background::BackgroundService;
use pingora::upstreams::peer::HttpPeer;
use pingora::{Error, ErrorType, OrErr, Result};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::JoinSet;
use tokio::time::{Instant as Deadline, timeout_at};

/// Copies that wait for the thread to look at them. Each has its place among `max_in_flight` already.
const QUEUE: usize = 1024;
/// So many statuses below 200 may come before the final one.
const INTERIM: usize = 16;

/// A copy of a request.
pub struct Copied {
    pub target: Target,
    /// Whom to connect to, and how.
    pub peer: Box<HttpPeer>,
    /// As HTTP/1 carries it, its own length included.
    pub head: Head,
    pub body: Bytes,
    pub place: Place,
    pub comparison: Option<Arc<Comparison>>,
    pub metrics: MirrorMetrics,
    /// From `begun` to the end of the answer.
    pub timeout: Duration,
    pub begun: Instant,
}

/// Where requests hand their copies over. Clones share one queue.
#[derive(Clone)]
pub struct Mirrors(Sender<Copied>);

/// Sends them.
pub struct Mirroring(Mutex<Option<Receiver<Copied>>>);

impl Mirrors {
    pub fn new() -> (Mirrors, Mirroring) {
        let (sender, receiver) = channel(QUEUE);
        (Mirrors(sender), Mirroring(Mutex::new(Some(receiver))))
    }

    /// Never waits.
    pub fn send(&self, copy: Copied) {
        if let Err(refused) = self.0.try_send(copy) {
            refused.into_inner().metrics.ended(Mirrored::DroppedFull);
        }
    }
}

#[async_trait]
impl BackgroundService for Mirroring {
    /// Ends with the process: requests that end while it drains are mirrored too.
    async fn start(&self, _: ShutdownWatch) {
        let receiver = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(mut copies) = receiver else { return };
        let mut tasks = JoinSet::new();
        let connections = Arc::new(MirrorConnections::default());
        loop {
            tokio::select! {
                copy = copies.recv() => {
                    let Some(copy) = copy else { return };
                    let connections = connections.clone();
                    tasks.spawn(async move { send(&connections, copy).await });
                }
                _ = tasks.join_next(), if !tasks.is_empty() => {}
            }
        }
    }
}

async fn send(connections: &MirrorConnections, copy: Copied) {
    let Copied { target, peer, head, body, place, comparison, metrics, timeout, begun } = copy;
    let asked = timeout_at(Deadline::from_std(begun + timeout), ask(connections, &peer, head, body)).await;
    let failed = |result, why: &str| {
        let destination = &target.member.destination;
        event::mirror_failed(&metrics, result, &destination.id, why, Instant::now());
    };
    match asked {
        Ok(Ok(answer)) => {
            metrics.ended(Mirrored::Ok);
            place.answered();
            comparison.iter().for_each(|comparison| comparison.tell(answer));
        }
        Ok(Err(error)) => {
            place.failed(Instant::now());
            failed(Mirrored::Failed, &words_of(&error));
        }
        Err(_) => failed(Mirrored::Timeout, &format!("timed out after {timeout:?}")),
    }
    drop(place);
}

/// The whole answer to one request.
async fn ask(connections: &MirrorConnections, peer: &HttpPeer, head: Head, body: Bytes) -> Result<Answer> {
    // Each apart: what is done later is several times what waits for a connection.
    let session = Box::pin(connections.get(peer)).await?;
    let (session, answer) = Box::pin(exchange(session, head, body, peer.is_tls())).await?;
    Box::pin(connections.give_back(session, peer)).await;
    Ok(answer)
}

async fn exchange(mut session: ClientSession, head: Head, body: Bytes, tls: bool) -> Result<(ClientSession, Answer)> {
    let http2 = matches!(session, ClientSession::H2(_));
    let mut request = head.request(!http2)?;
    if http2 {
        to_http2(&mut request, tls)?;
    }
    session.write_request_header(request).await?;
    if !body.is_empty() {
        session.write_request_body(body, false).await?;
    }
    session.finish_request_body().await?;
    let status = answered(&mut session).await?;
    let mut length = 0;
    while let Some(piece) = session.read_response_body().await? {
        length += piece.len() as u64;
    }
    Ok((session, Answer { status, length }))
}

/// The final status.
async fn answered(session: &mut ClientSession) -> Result<u16> {
    for _ in 0..=INTERIM {
        session.read_response_header().await?;
        let status = session.response_header().map_or(StatusCode::CONTINUE, |head| head.status);
        if status == StatusCode::SWITCHING_PROTOCOLS {
            return Error::e_explain(ErrorType::InvalidHTTPHeader, "101 without an upgrade asked for");
        }
        if !status.is_informational() {
            return Ok(status.as_u16());
        }
    }
    Error::e_explain(ErrorType::InvalidHTTPHeader, "interim statuses without end")
}

/// HTTP/2 has the host in its target.
fn to_http2(head: &mut RequestHeader, tls: bool) -> Result<()> {
    let host = head.remove_header(&header::HOST);
    let path = head.uri.path_and_query().cloned().unwrap_or(uri::PathAndQuery::from_static("/"));
    let target = Uri::builder()
        .scheme(if tls { "https" } else { "http" })
        .authority(host.as_ref().map_or(&b""[..], |host| host.as_bytes()))
        .path_and_query(path)
        .build();
    head.set_uri(target.or_err(ErrorType::InvalidHTTPHeader, "no target of HTTP/2")?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size<'a, R>(_: fn(&'a MirrorConnections, Copied) -> R) -> usize {
        size_of::<R>()
    }

    #[test]
    fn given_a_copy_when_it_waits_for_a_connection_then_its_task_takes_little() {
        let taken = size(send);
        assert!(taken <= 1024, "{taken} bytes");
    }
}
