//! A scripted HTTP/1.1 server on bare TCP: it keeps every byte it was sent and answers by [`Answer`]s, broken ones included.

use super::{DEADLINE, Framing, eventually, find_header, free_port, head_end, header_lines, loopback};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

/// A request as it arrived. It is recorded at the end of its head, and its body grows while it comes.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// Request line and headers byte for byte, the empty line included.
    pub head: Vec<u8>,
    /// Chunks are joined.
    pub body: Vec<u8>,
    /// The whole body is here.
    pub complete: bool,
    /// Which accepted connection it came on, from 1.
    pub connection: usize,
}

impl Request {
    pub fn method(&self) -> String {
        self.word(0)
    }

    /// The request target as sent: path and query.
    pub fn target(&self) -> String {
        self.word(1)
    }

    pub fn headers(&self) -> Vec<(String, String)> {
        header_lines(&self.head)
    }

    pub fn header(&self, name: &str) -> Option<String> {
        find_header(&self.headers(), name).map(str::to_owned)
    }

    fn word(&self, index: usize) -> String {
        String::from_utf8_lossy(&self.head).split([' ', '\r']).nth(index).unwrap_or_default().to_owned()
    }
}

/// Holds an answer back until it is opened; clones are the same gate.
#[derive(Debug, Clone)]
pub struct Gate(watch::Sender<bool>);

impl Gate {
    pub fn closed() -> Gate {
        Gate(watch::Sender::new(false))
    }

    pub fn open(&self) {
        self.0.send_replace(true);
    }

    pub async fn wait(&self) {
        // The sender lives in `self`, so the channel cannot close meanwhile.
        let _ = self.0.subscribe().wait_for(|open| *open).await;
    }
}

/// One move of an answer.
#[derive(Debug, Clone)]
pub enum Step {
    /// Takes in the request's body as it is framed.
    ReadBody,
    Send(Vec<u8>),
    Wait(Gate),
    Pause(Duration),
    /// Sends back whatever comes, until the peer ends.
    Echo,
    Close,
    Reset,
}

impl Step {
    pub fn send(bytes: impl Into<Vec<u8>>) -> Step {
        Step::Send(bytes.into())
    }
}

/// What the origin does with one request; at its end the connection waits for the next.
#[derive(Debug, Clone)]
pub struct Answer(Vec<Step>);

impl Answer {
    /// The body is read first, then `body` goes out with its length. `headers` are whole lines.
    pub fn new(status: u16, headers: &str, body: &str) -> Answer {
        let head = format!("HTTP/1.1 {status} Scripted\r\n{headers}content-length: {}\r\n\r\n{body}", body.len());
        Answer(vec![Step::ReadBody, Step::send(head)])
    }

    pub fn ok(body: &str) -> Answer {
        Answer::new(200, "", body)
    }

    /// To HEAD, and to 204 and 304: a head alone. `headers` are whole lines.
    pub fn bodiless(status: u16, headers: &str) -> Answer {
        Answer(vec![Step::ReadBody, Step::send(format!("HTTP/1.1 {status} Scripted\r\n{headers}\r\n"))])
    }

    /// A chunked 200 whose chunks go out one write each.
    pub fn chunked(chunks: &[&str]) -> Answer {
        let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n".to_owned();
        let chunks = chunks.iter().map(|chunk| format!("{:x}\r\n{chunk}\r\n", chunk.len()));
        let sent = std::iter::once(head).chain(chunks).chain(["0\r\n\r\n".to_owned()]);
        Answer(std::iter::once(Step::ReadBody).chain(sent.map(Step::send)).collect())
    }

    /// 101 to `protocol`, then every byte back.
    pub fn upgrade(protocol: &str) -> Answer {
        let head = format!("HTTP/1.1 101 Switching\r\nconnection: upgrade\r\nupgrade: {protocol}\r\n\r\n");
        Answer(vec![Step::send(head), Step::Echo])
    }

    /// Any moves at all; the request's body is read only where they say so.
    pub fn script(steps: impl IntoIterator<Item = Step>) -> Answer {
        Answer(steps.into_iter().collect())
    }

    /// The same after `steps`.
    pub fn after(mut self, steps: impl IntoIterator<Item = Step>) -> Answer {
        self.0.splice(0..0, steps);
        self
    }

    /// The same, and then `step`.
    pub fn then(mut self, step: Step) -> Answer {
        self.0.push(step);
        self
    }
}

type Respond = Arc<dyn Fn(&Request) -> Answer + Send + Sync>;

#[derive(Default)]
struct Seen {
    requests: Mutex<Vec<Request>>,
    accepted: AtomicUsize,
    open: AtomicUsize,
}

pub struct Origin {
    address: SocketAddr,
    respond: Arc<Mutex<Respond>>,
    seen: Arc<Seen>,
    serving: Option<Serving>,
}

struct Serving {
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Origin {
    /// Listens on a port of its own. `respond` is asked at the end of each request's head.
    pub async fn start(respond: impl Fn(&Request) -> Answer + Send + Sync + 'static) -> Origin {
        let respond: Respond = Arc::new(respond);
        let mut origin = Origin {
            address: loopback(free_port()),
            respond: Arc::new(Mutex::new(respond)),
            seen: Arc::default(),
            serving: None,
        };
        origin.restart().await;
        origin
    }

    /// 200 with `name` as the body, to everything.
    pub async fn named(name: &'static str) -> Origin {
        Origin::start(move |_| Answer::ok(name)).await
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// From the next request on.
    pub fn answer_by(&self, respond: impl Fn(&Request) -> Answer + Send + Sync + 'static) {
        *self.respond.lock().unwrap() = Arc::new(respond);
    }

    /// All requests so far, in the order of their heads.
    pub fn requests(&self) -> Vec<Request> {
        self.seen.requests.lock().unwrap().clone()
    }

    /// How many requests came for targets that begin with `prefix`.
    pub fn hits(&self, prefix: &str) -> usize {
        self.seen.requests.lock().unwrap().iter().filter(|request| request.target().starts_with(prefix)).count()
    }

    /// Connections accepted since the start.
    pub fn accepted(&self) -> usize {
        self.seen.accepted.load(Ordering::SeqCst)
    }

    /// Connections open now.
    pub fn open(&self) -> usize {
        self.seen.open.load(Ordering::SeqCst)
    }

    /// Dies as a killed process does: nobody listens and every connection is reset. Returns when that is so.
    pub async fn stop(&mut self) {
        if let Some(serving) = self.serving.take() {
            serving.stop.send_replace(true);
            serving.task.await.expect("the origin's accept loop");
        }
    }

    /// Listens again on the same port; does nothing while it runs.
    pub async fn restart(&mut self) {
        if self.serving.is_some() {
            return;
        }
        let mut listener = None;
        eventually(DEADLINE, "the origin's port can be bound", async || {
            listener = TcpListener::bind(self.address).await.ok();
            listener.is_some()
        })
        .await;
        let (stop, stopped) = watch::channel(false);
        let (respond, seen) = (self.respond.clone(), self.seen.clone());
        let listener = listener.expect("bound above");
        self.serving = Some(Serving { stop, task: tokio::spawn(accept(listener, respond, seen, stopped)) });
    }
}

async fn accept(
    listener: TcpListener,
    respond: Arc<Mutex<Respond>>,
    seen: Arc<Seen>,
    mut stopped: watch::Receiver<bool>,
) {
    let mut connections = JoinSet::new();
    loop {
        let stream = tokio::select! {
            Ok((stream, _)) = listener.accept() => stream,
            _ = stopped.wait_for(|stopped| *stopped) => break,
        };
        // Else a second write would wait for the acknowledgement of the first.
        let _ = stream.set_nodelay(true);
        let number = seen.accepted.fetch_add(1, Ordering::SeqCst) + 1;
        let connection =
            Connection { stream, number, unread: Vec::new(), seen: seen.clone(), respond: respond.clone() };
        connections.spawn(connection.run(stopped.clone()));
    }
    drop(listener);
    connections.join_all().await;
}

struct Connection {
    stream: TcpStream,
    number: usize,
    unread: Vec<u8>,
    seen: Arc<Seen>,
    respond: Arc<Mutex<Respond>>,
}

/// The connection is over.
struct Over;

impl Connection {
    async fn run(mut self, mut stopped: watch::Receiver<bool>) {
        self.seen.open.fetch_add(1, Ordering::SeqCst);
        let killed = tokio::select! {
            _ = self.serve() => false,
            _ = stopped.wait_for(|stopped| *stopped) => true,
        };
        if killed {
            // It may be gone already; then there is nothing to reset.
            let _ = self.stream.set_zero_linger();
        }
        self.seen.open.fetch_sub(1, Ordering::SeqCst);
    }

    async fn serve(&mut self) -> Result<(), Over> {
        loop {
            let index = self.read_request_head().await?;
            let request = self.seen.requests.lock().unwrap()[index].clone();
            let respond = self.respond.lock().unwrap().clone();
            for step in respond(&request).0 {
                self.take(step, index).await?;
            }
            if request.header("connection").is_some_and(|value| value.eq_ignore_ascii_case("close")) {
                return Err(Over);
            }
        }
    }

    async fn take(&mut self, step: Step, index: usize) -> Result<(), Over> {
        match step {
            Step::ReadBody => self.read_body(index).await,
            Step::Send(bytes) => self.stream.write_all(&bytes).await.map_err(|_| Over),
            Step::Wait(gate) => self.or_hang_up(gate.wait()).await,
            Step::Pause(time) => self.or_hang_up(tokio::time::sleep(time)).await,
            Step::Echo => loop {
                let bytes = std::mem::take(&mut self.unread);
                self.stream.write_all(&bytes).await.map_err(|_| Over)?;
                self.fill().await?;
            },
            Step::Close => Err(Over),
            Step::Reset => {
                let _ = self.stream.set_zero_linger();
                Err(Over)
            }
        }
    }

    /// Waits, unless the peer leaves first; what it sends meanwhile stays for later.
    async fn or_hang_up(&mut self, wait: impl Future<Output = ()>) -> Result<(), Over> {
        tokio::pin!(wait);
        loop {
            tokio::select! {
                () = &mut wait => return Ok(()),
                filled = self.fill() => filled?,
            }
        }
    }

    async fn read_request_head(&mut self) -> Result<usize, Over> {
        let end = loop {
            match head_end(&self.unread) {
                Some(end) => break end,
                None => self.fill().await?,
            }
        };
        let head: Vec<u8> = self.unread.drain(..end).collect();
        let mut requests = self.seen.requests.lock().unwrap();
        requests.push(Request { head, connection: self.number, ..Request::default() });
        Ok(requests.len() - 1)
    }

    async fn read_body(&mut self, index: usize) -> Result<(), Over> {
        let framing = Framing::of(&self.seen.requests.lock().unwrap()[index].headers());
        match framing {
            Framing::Unsaid => {}
            Framing::Length(length) => self.read_into(index, length).await?,
            Framing::Chunked => while self.read_chunk(index).await? {},
        }
        self.seen.requests.lock().unwrap()[index].complete = true;
        Ok(())
    }

    async fn read_chunk(&mut self, index: usize) -> Result<bool, Over> {
        let line = self.read_line().await?;
        let size = usize::from_str_radix(line.split(';').next().unwrap_or_default().trim(), 16).map_err(|_| Over)?;
        self.read_into(index, size).await?;
        // After a chunk its line end; after the last one trailers up to the empty line.
        while !self.read_line().await?.is_empty() {}
        Ok(size > 0)
    }

    async fn read_into(&mut self, index: usize, mut left: usize) -> Result<(), Over> {
        while left > 0 {
            if self.unread.is_empty() {
                self.fill().await?;
            }
            let taken = left.min(self.unread.len());
            self.seen.requests.lock().unwrap()[index].body.extend(self.unread.drain(..taken));
            left -= taken;
        }
        Ok(())
    }

    async fn read_line(&mut self) -> Result<String, Over> {
        loop {
            if let Some(at) = self.unread.windows(2).position(|window| window == b"\r\n") {
                let line: Vec<u8> = self.unread.drain(..at + 2).collect();
                return Ok(String::from_utf8_lossy(&line[..at]).into_owned());
            }
            self.fill().await?;
        }
    }

    async fn fill(&mut self) -> Result<(), Over> {
        match self.stream.read_buf(&mut self.unread).await {
            Ok(1..) => Ok(()),
            _ => Err(Over),
        }
    }
}
