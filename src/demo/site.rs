//! A service's place on loopback: a port of 127.0.0.1 and, where possible, the same of `[::1]`, that can be taken down
//! the way a killed process's sockets go (listener closed, open connections reset) and put up again on the same port.

use super::answer::{Answer, Service};
use super::door::{Door, Mortal};
use http::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::{Mutex, oneshot, watch};
use tokio::task::{JoinHandle, JoinSet};

/// Kestrel's keep-alive time, which is above the proxy's own `idle_timeout`: the proxy closes first.
const KEEP_ALIVE: Duration = Duration::from_secs(130);
/// How long [`Site::up`] tries for its port, and how often.
const BIND_TRIES: u32 = 40;
const BIND_PAUSE: Duration = Duration::from_millis(50);

/// What a catalog speaks, and nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    Http1,
    /// HTTP/2 by prior knowledge, without TLS.
    H2c,
}

/// Open from its construction; closed by [`Site::down`] or when dropped.
pub(super) struct Site {
    port: u16,
    service: Arc<dyn Service>,
    protocol: watch::Sender<Protocol>,
    running: Mutex<Option<Running>>,
}

struct Running {
    /// Dropping it ends the task.
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
    killed: Arc<AtomicBool>,
}

impl Site {
    /// `name` is for the error message.
    pub async fn open(name: &str, port: u16, service: Arc<dyn Service>) -> io::Result<Site> {
        let named = |fault: io::Error| io::Error::new(fault.kind(), format!("{name} on 127.0.0.1:{port}: {fault}"));
        let door = Door::bind(port).await.map_err(named)?;
        let port = door.port().map_err(named)?;
        let protocol = watch::Sender::new(Protocol::Http1);
        let running = Running::start(door, service.clone(), &protocol);
        Ok(Site { port, service, protocol, running: Mutex::new(Some(running)) })
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn protocol(&self) -> Protocol {
        *self.protocol.borrow()
    }

    pub async fn is_up(&self) -> bool {
        self.running.lock().await.is_some()
    }

    /// For connections from now on; open ones end after the request they are at.
    pub fn speak(&self, protocol: Protocol) {
        self.protocol.send_if_modified(|now| std::mem::replace(now, protocol) != protocol);
    }

    /// Returns when the listener is closed and every connection reset. Nothing to do when down already.
    pub async fn down(&self) {
        let mut running = self.running.lock().await;
        if let Some(Running { stop, task, killed }) = running.take() {
            killed.store(true, Ordering::Release);
            drop(stop);
            // The task has no result; if it ended by a panic, its sockets are closed all the same.
            let _ = task.await;
        }
    }

    /// The same port again; tries for two seconds. Nothing to do when up already.
    pub async fn up(&self) -> io::Result<()> {
        let mut running = self.running.lock().await;
        if running.is_some() {
            return Ok(());
        }
        let mut tries = 1;
        let door = loop {
            match Door::bind(self.port).await {
                Ok(door) => break door,
                Err(fault) if tries == BIND_TRIES => return Err(fault),
                Err(_) => tries += 1,
            }
            tokio::time::sleep(BIND_PAUSE).await;
        };
        *running = Some(Running::start(door, self.service.clone(), &self.protocol));
        Ok(())
    }
}

impl Running {
    fn start(door: Door, service: Arc<dyn Service>, protocol: &watch::Sender<Protocol>) -> Running {
        let (stop, stopped) = oneshot::channel();
        let killed = Arc::new(AtomicBool::new(false));
        let task = tokio::spawn(listen(door, service, protocol.subscribe(), stopped, killed.clone()));
        Running { stop, task, killed }
    }
}

async fn listen(
    door: Door,
    service: Arc<dyn Service>,
    protocol: watch::Receiver<Protocol>,
    mut stopped: oneshot::Receiver<()>,
    killed: Arc<AtomicBool>,
) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            _ = &mut stopped => break,
            Some(_) = connections.join_next() => {}
            accepted = door.accept() => match accepted {
                Ok(stream) => {
                    let stream = Mortal::new(stream, killed.clone());
                    connections.spawn(converse(stream, service.clone(), protocol.clone()));
                }
                // Out of file descriptors, most likely: a connection that ends gives one back.
                Err(_) => tokio::time::sleep(BIND_PAUSE).await,
            },
        }
    }
    drop(door);
    connections.shutdown().await;
}

async fn converse(stream: Mortal, service: Arc<dyn Service>, mut protocol: watch::Receiver<Protocol>) {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(KEEP_ALIVE);
    let spoken = *protocol.borrow_and_update();
    let builder = match spoken {
        Protocol::Http1 => builder.http1_only(),
        Protocol::H2c => builder.http2_only(),
    };
    let answer = service_fn(move |request: Request<Incoming>| {
        let service = service.clone();
        async move { Ok::<Answer, Infallible>(service.answer(request.method(), request.uri()).await) }
    });
    let connection = builder.serve_connection(TokioIo::new(stream), answer);
    tokio::pin!(connection);
    // How a connection ends is the client's affair: nobody is told.
    tokio::select! {
        _ = connection.as_mut() => return,
        Ok(()) = protocol.changed() => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}
