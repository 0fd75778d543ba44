//! An HTTP/1.1 client on a bare TCP stream: what is sent is sent byte for byte, and what comes back is read as it is framed.

use super::{Framing, find_header, head_end, header_lines, in_time};
use std::io::{Error, ErrorKind, Result};
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// One connection. Bytes that came after a response wait for the next read.
pub struct Client {
    stream: TcpStream,
    buffer: Vec<u8>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    pub status: u16,
    /// The head as it came, the empty line included.
    pub head: Vec<u8>,
    pub headers: Vec<(String, String)>,
    /// Chunks are joined.
    pub body: Vec<u8>,
}

impl Response {
    pub fn header(&self, name: &str) -> Option<&str> {
        find_header(&self.headers, name)
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error} in {:?}", self.text()))
    }

    fn of_head(head: Vec<u8>) -> Result<Response> {
        let line = String::from_utf8_lossy(&head);
        let status = line.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.ok_or_else(|| Error::new(ErrorKind::InvalidData, format!("no status in {line:?}")))?;
        Ok(Response { status, headers: header_lines(&head), head, body: Vec::new() })
    }
}

/// One GET on a connection of its own.
pub async fn get(address: SocketAddr, path: &str) -> Result<Response> {
    let mut client = Client::try_connect(address).await?;
    client.try_send(&request("GET", address, path, "connection: close\r\n")).await?;
    client.read_response().await
}

fn request(method: &str, host: SocketAddr, path: &str, headers: &str) -> Vec<u8> {
    format!("{method} {path} HTTP/1.1\r\nhost: {host}\r\n{headers}\r\n").into_bytes()
}

impl Client {
    pub async fn connect(address: SocketAddr) -> Client {
        Client::try_connect(address).await.unwrap_or_else(|error| panic!("connecting to {address}: {error}"))
    }

    pub async fn try_connect(address: SocketAddr) -> Result<Client> {
        let stream = in_time("connecting", TcpStream::connect(address)).await?;
        stream.set_nodelay(true)?;
        Ok(Client { stream, buffer: Vec::new() })
    }

    /// Where this connection leads.
    pub fn peer(&self) -> SocketAddr {
        self.stream.peer_addr().expect("a connected stream")
    }

    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.try_send(bytes.as_ref()).await.expect("the peer takes what is sent");
    }

    /// As [`Client::send`], for a peer that may have closed.
    pub async fn try_send(&mut self, bytes: &[u8]) -> Result<()> {
        in_time("sending", self.stream.write_all(bytes)).await
    }

    /// A GET with `headers` (whole lines) on this connection, and its response.
    pub async fn get(&mut self, path: &str, headers: &str) -> Result<Response> {
        self.try_send(&request("GET", self.peer(), path, headers)).await?;
        self.read_response().await
    }

    /// The next response, whole. One that ends before its framing says so is an `UnexpectedEof` or the reset itself;
    /// an interim one (1xx) is a response of its own.
    pub async fn read_response(&mut self) -> Result<Response> {
        let mut response = self.read_head().await?;
        let bodiless = response.status < 200 || matches!(response.status, 204 | 304);
        match Framing::of(&response.headers) {
            _ if bodiless => {}
            Framing::Length(length) => response.body = self.read_exact(length).await?,
            Framing::Chunked => while self.read_chunk(&mut response.body).await? {},
            Framing::Unsaid => response.body = self.read_to_end().await?,
        }
        Ok(response)
    }

    /// A head and no more: for HEAD, and to see a body as it comes.
    pub async fn read_head(&mut self) -> Result<Response> {
        loop {
            if let Some(end) = head_end(&self.buffer) {
                return Response::of_head(self.buffer.drain(..end).collect());
            }
            self.fill().await?;
        }
    }

    /// Appends the next chunk to `body`; false after the last one.
    pub async fn read_chunk(&mut self, body: &mut Vec<u8>) -> Result<bool> {
        let line = self.read_line().await?;
        let size = line.split(';').next().and_then(|size| usize::from_str_radix(size.trim(), 16).ok());
        let size = size.ok_or_else(|| Error::new(ErrorKind::InvalidData, format!("no chunk size: {line:?}")))?;
        if size == 0 {
            while !self.read_line().await?.is_empty() {}
            return Ok(false);
        }
        body.extend(self.read_exact(size).await?);
        self.read_exact(2).await?;
        Ok(true)
    }

    pub async fn read_exact(&mut self, length: usize) -> Result<Vec<u8>> {
        while self.buffer.len() < length {
            self.fill().await?;
        }
        Ok(self.buffer.drain(..length).collect())
    }

    /// All that comes until the peer closes; a reset is an error.
    pub async fn read_to_end(&mut self) -> Result<Vec<u8>> {
        loop {
            match self.fill().await {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                    return Ok(std::mem::take(&mut self.buffer));
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// No more bytes will be sent; the peer's still arrive.
    pub async fn finish(&mut self) {
        self.stream.shutdown().await.expect("an open stream");
    }

    /// Leaves by a reset, as a killed client does.
    pub fn reset(self) {
        self.stream.set_zero_linger().expect("an open stream");
    }

    async fn read_line(&mut self) -> Result<String> {
        loop {
            if let Some(at) = self.buffer.windows(2).position(|window| window == b"\r\n") {
                let line: Vec<u8> = self.buffer.drain(..at + 2).collect();
                return Ok(String::from_utf8_lossy(&line[..at]).into_owned());
            }
            self.fill().await?;
        }
    }

    async fn fill(&mut self) -> Result<()> {
        match in_time("bytes of a response", self.stream.read_buf(&mut self.buffer)).await? {
            0 => Err(ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }
}
