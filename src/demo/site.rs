//! A service's place on loopback: a port of 127.0.0.1 and, where possible, the same of `[::1]`, that can be taken down
//! the way a killed process's sockets go (listener closed, open connections reset) and put up again on the same port.

use super::answer::{Answer, Service, Upgrade};
use super::door::{Door, Mortal};
use super::websocket;
use http::Request;
use http::header::{CONNECTION, HeaderValue};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use std::convert::Infallible;
use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use tokio::net::TcpStream;
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

/// How far a site is on its way out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Leave {
    Stays,
    /// Every answer says that its connection closes.
    Announced,
    /// And no connection is taken any more.
    Closed,
    /// And idle ones end.
    Ending,
    /// No connection is taken any more, and the open ones hear nothing of it.
    Unsaid,
}

/// Open from its construction; closed by [`Site::down`] or when dropped.
pub(super) struct Site {
    port: u16,
    service: Arc<dyn Service>,
    protocol: watch::Sender<Protocol>,
    leave: watch::Sender<Leave>,
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
        let leave = watch::Sender::new(Leave::Stays);
        let running = Running::start(door, service.clone(), &protocol, &leave);
        Ok(Site { port, service, protocol, leave, running: Mutex::new(Some(running)) })
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
        *running = Some(Running::start(door, self.service.clone(), &self.protocol, &self.leave));
        Ok(())
    }

    pub fn leave(&self, leave: Leave) {
        self.leave.send_replace(leave);
    }

    /// Whether the last connection ended by then, with the door shut.
    pub async fn empties_within(&self, time: Duration) -> bool {
        let mut running = self.running.lock().await;
        match running.as_mut().filter(|running| !running.task.is_finished()) {
            Some(running) => tokio::time::timeout(time, &mut running.task).await.is_ok(),
            None => true,
        }
    }
}

impl Running {
    fn start(
        door: Door,
        service: Arc<dyn Service>,
        protocol: &watch::Sender<Protocol>,
        leave: &watch::Sender<Leave>,
    ) -> Running {
        let (stop, stopped) = oneshot::channel();
        let killed = Arc::new(AtomicBool::new(false));
        let place = Place { service, protocol: protocol.subscribe(), leave: leave.subscribe(), killed: killed.clone() };
        let task = tokio::spawn(listen(door, place, stopped));
        Running { stop, task, killed }
    }
}

/// What each connection looks at.
#[derive(Clone)]
struct Place {
    service: Arc<dyn Service>,
    protocol: watch::Receiver<Protocol>,
    leave: watch::Receiver<Leave>,
    killed: Arc<AtomicBool>,
}

impl Place {
    /// Comes back when a connection shall end with the request that it is at.
    async fn wants_the_end(&mut self) {
        tokio::select! {
            Ok(()) = self.protocol.changed() => {}
            () = comes_to(&mut self.leave, |leave| leave == Leave::Ending) => {}
        }
    }
}

async fn listen(door: Door, place: Place, mut stopped: oneshot::Receiver<()>) {
    let mut connections = JoinSet::new();
    let mut leave = place.leave.clone();
    let mut door = Some(door);
    while door.is_some() || !connections.is_empty() {
        tokio::select! {
            _ = &mut stopped => break,
            Some(_) = connections.join_next() => {}
            () = comes_to(&mut leave, |leave| leave >= Leave::Closed), if door.is_some() => door = None,
            accepted = accept(&door) => match accepted {
                Ok(stream) => {
                    connections.spawn(converse(Mortal::new(stream, place.killed.clone()), place.clone()));
                }
                // Out of file descriptors, most likely: a connection that ends gives one back.
                Err(_) => tokio::time::sleep(BIND_PAUSE).await,
            },
        }
    }
    drop(door);
    connections.shutdown().await;
}

async fn comes_to(leave: &mut watch::Receiver<Leave>, far: impl Fn(Leave) -> bool) {
    if leave.wait_for(|leave| far(*leave)).await.is_err() {
        std::future::pending::<()>().await;
    }
}

async fn accept(door: &Option<Door>) -> io::Result<TcpStream> {
    match door {
        Some(door) => door.accept().await,
        None => std::future::pending().await,
    }
}

async fn converse(stream: Mortal, mut place: Place) {
    let spoken = *place.protocol.borrow_and_update();
    let upgrade = Arc::new(Upgrade::default());
    let (service, leave, upgraded) = (place.service.clone(), place.leave.clone(), upgrade.clone());
    let answer = service_fn(move |request: Request<Incoming>| {
        let (service, leave, upgrade) = (service.clone(), leave.clone(), upgraded.clone());
        async move {
            let mut answer = service.take(request, &upgrade).await;
            let closes = (Leave::Announced..=Leave::Ending).contains(&*leave.borrow());
            if closes && spoken == Protocol::Http1 && !answer.headers().contains_key(CONNECTION) {
                answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            Ok::<Answer, Infallible>(answer)
        }
    });
    let stream = TokioIo::new(stream);
    // How a connection ends is the client's affair: nobody is told.
    match spoken {
        Protocol::Http1 => {
            let mut builder = http1::Builder::new();
            builder.timer(TokioTimer::new()).header_read_timeout(KEEP_ALIVE);
            let mut connection = pin!(builder.serve_connection(stream, answer).with_upgrades());
            tokio::select! {
                _ = connection.as_mut() => {}
                () = place.wants_the_end() => {
                    connection.as_mut().graceful_shutdown();
                    let _ = connection.await;
                }
            }
        }
        Protocol::H2c => {
            let mut connection = pin!(http2::Builder::new(TokioExecutor::new()).serve_connection(stream, answer));
            tokio::select! {
                _ = connection.as_mut() => {}
                () = place.wants_the_end() => {
                    connection.as_mut().graceful_shutdown();
                    let _ = connection.await;
                }
            }
        }
    }
    let upgrade = upgrade.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(upgrade) = upgrade
        && let Ok(stream) = upgrade.await
    {
        let _ = websocket::echo(TokioIo::new(stream)).await;
    }
}
