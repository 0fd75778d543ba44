use async_trait::async_trait;
use pingora::server::{ListenFds, ShutdownWatch};
use pingora::services::{ServiceReadyNotifier, ServiceWithDependents};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::IntoRawFd;

/// An open socket under the name by which Pingora looks for it.
pub struct Bound {
    pub name: String,
    pub socket: TcpListener,
}

/// Binds before anything runs, so that a taken port ends the start with an error; Pingora itself would go on without
/// the listener.
pub fn bind(address: SocketAddr) -> std::io::Result<Bound> {
    let socket = TcpListener::bind(address)?;
    socket.set_nonblocking(true)?;
    Ok(Bound { name: address.to_string(), socket })
}

/// Puts the sockets where Pingora's listening service, which depends on this one, finds them instead of binding anew.
pub struct Sockets(Vec<Bound>);

impl Sockets {
    pub fn new(bound: Vec<Bound>) -> Self {
        Sockets(bound)
    }
}

#[async_trait]
impl ServiceWithDependents for Sockets {
    async fn start_service(
        &mut self,
        fds: Option<ListenFds>,
        _shutdown: ShutdownWatch,
        _listeners_per_fd: usize,
        ready: ServiceReadyNotifier,
    ) {
        if let Some(fds) = fds {
            let mut table = fds.lock();
            for bound in self.0.drain(..) {
                table.add(bound.name, bound.socket.into_raw_fd());
            }
        }
        ready.notify_ready();
    }

    fn name(&self) -> &str {
        "sockets"
    }

    fn threads(&self) -> Option<usize> {
        Some(1)
    }

    fn listen_addresses(&self) -> Option<Vec<String>> {
        Some(self.0.iter().map(|bound| bound.name.clone()).collect())
    }
}
