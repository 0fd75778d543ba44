//! Lets time do its part: ejections and orders that are over, breakers that slept enough, ramps, destinations that may go. What is
//! due is the clusters' to know; between two looks a look costs one comparison a cluster, and one a destination for those who leave.
//! Requests and WebSockets may go on for hours after the listeners closed, and so does this.

use super::Lifecycle;
use crate::runtime::Runtime;
use async_trait::async_trait;
use nix::sys::socket::{Shutdown, shutdown};
use pingora::server::ShutdownWatch;
use pingora::services::background::BackgroundService;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::time::{MissedTickBehavior, interval};

/// Nothing comes later than this after it is due.
const LOOK: Duration = Duration::from_millis(50);

pub struct Recovery {
    runtime: Arc<Runtime>,
    lifecycle: Arc<Lifecycle>,
}

impl Recovery {
    pub fn new(runtime: Arc<Runtime>, lifecycle: Arc<Lifecycle>) -> Self {
        Recovery { runtime, lifecycle }
    }
}

/// Who watches it for Pingora's pool finds it ended and closes it; one that the other side ended meanwhile is no loss.
fn end(socket: RawFd) {
    let _ = shutdown(socket, Shutdown::Both);
}

#[async_trait]
impl BackgroundService for Recovery {
    async fn start(&self, _: ShutdownWatch) {
        let mut look = interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = look.tick() => {}
                () = self.lifecycle.over() => return,
            }
            for cluster in &self.runtime.pin().clusters {
                cluster.due(Instant::now());
            }
            self.runtime.let_go(Instant::now(), end);
        }
    }
}
