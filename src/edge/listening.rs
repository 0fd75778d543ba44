use super::Edge;
use crate::service::Lifecycle;
use async_trait::async_trait;
use pingora::server::{ListenFds, ShutdownWatch};
use pingora::services::Service;
use pingora::services::listening;
use std::sync::Arc;

/// Pingora's listening service, whose listeners close when a drain has come so far. Its own sign for that is the server's end, after
/// which it would sleep for the whole time that a drain may last.
pub struct Listening {
    pub service: listening::Service<Edge>,
    pub lifecycle: Arc<Lifecycle>,
}

#[async_trait]
impl Service for Listening {
    async fn start_service(&mut self, fds: Option<ListenFds>, _: ShutdownWatch, listeners_per_fd: usize) {
        Service::start_service(&mut self.service, fds, self.lifecycle.closing(), listeners_per_fd).await;
    }

    fn name(&self) -> &str {
        self.service.name()
    }

    fn threads(&self) -> Option<usize> {
        Service::threads(&self.service)
    }

    fn listen_addresses(&self) -> Option<Vec<String>> {
        Service::listen_addresses(&self.service)
    }
}
