//! A gRPC server with a health service, as far as a probe sees it.

use super::{free_port, in_time, loopback, take};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// How it answers every call.
#[derive(Debug, Clone, Copy)]
pub enum Call {
    /// `HealthCheckResponse.status`, and code 0 in the trailers.
    Status(u8),
    /// This code in the head and no message, as servers refuse what they do not know.
    Code(u8),
}

/// A call as it arrived.
#[derive(Debug, Clone)]
pub struct Called {
    pub head: http::request::Parts,
    pub body: Vec<u8>,
}

pub struct GrpcHealth {
    address: SocketAddr,
    answer: Arc<Mutex<Call>>,
    seen: Arc<Mutex<Vec<Called>>>,
}

impl GrpcHealth {
    /// By prior knowledge, or over TLS.
    pub async fn start(answer: Call, tls: Option<TlsAcceptor>) -> GrpcHealth {
        let listener = TcpListener::bind(loopback(free_port())).await.unwrap();
        let server = GrpcHealth {
            address: listener.local_addr().unwrap(),
            answer: Arc::new(Mutex::new(answer)),
            seen: Arc::default(),
        };
        let (answer, seen) = (server.answer.clone(), server.seen.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (answer, seen, tls) = (answer.clone(), seen.clone(), tls.clone());
                tokio::spawn(async move {
                    match tls {
                        Some(acceptor) => serve(acceptor.accept(stream).await.ok()?, answer, seen).await.ok(),
                        None => serve(stream, answer, seen).await.ok(),
                    }
                });
            }
        });
        server
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// From the next call on.
    pub fn answer(&self, answer: Call) {
        *self.answer.lock().unwrap() = answer;
    }

    pub fn seen(&self) -> Vec<Called> {
        self.seen.lock().unwrap().clone()
    }
}

async fn serve(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    answer: Arc<Mutex<Call>>,
    seen: Arc<Mutex<Vec<Called>>>,
) -> Result<(), h2::Error> {
    let mut connection = h2::server::handshake(stream).await?;
    while let Some(accepted) = connection.accept().await {
        let (request, respond) = accepted?;
        tokio::spawn(call(request, respond, answer.clone(), seen.clone()));
    }
    Ok(())
}

async fn call(
    request: http::Request<h2::RecvStream>,
    mut respond: h2::server::SendResponse<Bytes>,
    answer: Arc<Mutex<Call>>,
    seen: Arc<Mutex<Vec<Called>>>,
) -> Result<(), h2::Error> {
    let (head, mut stream) = request.into_parts();
    let mut body = Vec::new();
    while let Some(chunk) = in_time("the body of a call", stream.data()).await {
        body.extend(take(&mut stream, chunk?));
    }
    seen.lock().unwrap().push(Called { head, body });
    let response = Response::builder().header("content-type", "application/grpc");
    let answer = *answer.lock().unwrap();
    match answer {
        Call::Code(code) => {
            respond.send_response(response.header("grpc-status", code.to_string()).body(()).unwrap(), true)?;
        }
        Call::Status(status) => {
            let mut out = respond.send_response(response.body(()).unwrap(), false)?;
            out.send_data(Bytes::copy_from_slice(&[0, 0, 0, 0, 2, 8, status]), false)?;
            out.send_trailers(HeaderMap::from_iter([("grpc-status".parse().unwrap(), HeaderValue::from_static("0"))]))?;
        }
    }
    Ok(())
}
