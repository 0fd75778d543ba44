//! What a successor waits for before it accepts its first connection: the first round of probes, and what the process before knew
//! of health. Whatever comes of the latter, it opens.

use super::{Before, take};
use crate::observe::{Metrics, Phase, event};
use crate::runtime::{Handover, Runtime};
use crate::service::Lifecycle;
use async_trait::async_trait;
use pingora::server::ShutdownWatch;
use pingora::services::ServiceReadyNotifier;
use pingora::services::background::BackgroundService;
use std::sync::{Arc, PoisonError};
use std::time::Instant;
use tokio::task::spawn_blocking;

/// Opens when this process is ready: a successor accepts nobody before.
pub struct Gate {
    pub lifecycle: Arc<Lifecycle>,
    pub runtime: Arc<Runtime>,
    pub metrics: Arc<Metrics>,
    pub predecessor: Before,
}

#[async_trait]
impl BackgroundService for Gate {
    async fn start_with_ready_notifier(&self, _: ShutdownWatch, ready: ServiceReadyNotifier) {
        let mut phase = self.lifecycle.phase();
        // One that is told to end before never does.
        if phase.wait_for(|phase| *phase == Phase::Ready).await.is_ok() {
            self.take_health().await;
            ready.notify_ready();
        }
    }
}

impl Gate {
    async fn take_health(&self) {
        let Some(mut predecessor) = take(&self.predecessor) else { return };
        let (runtime, metrics) = (self.runtime.clone(), self.metrics.clone());
        let asked = spawn_blocking(move || {
            match predecessor.health().and_then(|document| Handover::read(&document)) {
                Ok(handover) => event::health_taken_over(&metrics, runtime.take_over(handover, Instant::now())),
                Err(why) => event::health_not_taken_over(&metrics, why),
            }
            predecessor
        });
        if let Ok(predecessor) = asked.await {
            *self.predecessor.lock().unwrap_or_else(PoisonError::into_inner) = Some(predecessor);
        }
    }
}
