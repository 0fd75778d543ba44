//! Active checks: what a probe is. One kind a file, one row in [`BUILTIN`]; each is a check that
//! pingora-load-balancing's service runs. Its own checks are not used: each brings connectors of its own with all of the
//! system's authorities, half a megabyte a destination. When to probe is `service::prober`'s matter, what follows from it [`super::Standing`]'s.

mod cause;
mod http;
mod tcp;

pub use cause::{is_unprocessed, outcome_of, words_of};

use crate::config::{Section, Spoken};
use async_trait::async_trait;
use pingora::connectors::TransportConnector;
use pingora::connectors::http::Connector as HttpConnector;
use pingora::upstreams::peer::HttpPeer;
use pingora_load_balancing::Backend;
use pingora_load_balancing::health_check::HealthCheck;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

/// A kind of probe with its parameters, one for each cluster.
pub trait ProbeKind: Send + Sync {
    /// A probe of one destination.
    fn prepare(&self, target: &Target<'_>, connectors: &Arc<Connectors>) -> Probe;
}

/// What all probes connect by. No connection is kept: a kept one would hide that new ones fail.
pub struct Connectors {
    pub http: HttpConnector,
    pub tcp: TransportConnector,
}

impl Default for Connectors {
    fn default() -> Self {
        Connectors { http: HttpConnector::new(None), tcp: TransportConnector::new(None) }
    }
}

/// Whom to probe.
pub struct Target<'a> {
    /// Address, TLS and timeouts as for requests of the cluster.
    pub peer: &'a HttpPeer,
    /// What requests of the cluster speak to this address.
    pub spoken: Spoken,
    /// Host header.
    pub host: &'a str,
    /// Goes before the probe's own path.
    pub path: &'a str,
}

/// A check, and where it leaves the status it saw.
pub struct Probe {
    pub check: Box<dyn HealthCheck + Send + Sync>,
    /// 0 = none seen.
    pub status: Arc<AtomicU16>,
}

#[derive(Clone, Copy)]
pub struct Entry {
    pub name: &'static str,
    pub build: fn(&mut Section<'_>) -> Box<dyn ProbeKind>,
}

pub const BUILTIN: &[Entry] = &[http::ENTRY, tcp::ENTRY];

/// One probe's result.
#[derive(Debug, Clone)]
pub struct Finding {
    pub result: ProbeResult,
    /// What people read: `200`, `503`, `connection refused`.
    pub cause: String,
    pub took: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProbeResult {
    Success,
    /// An answer that was not the expected one.
    Failure,
    Timeout,
    /// No answer.
    Error,
    /// It could not be made, for want of something of our own.
    NotMade,
}

/// A probe under one total timeout that hands over *every* result: Pingora's own callbacks speak only when its state
/// flips, and its timeouts count per read, so that a target that drips bytes would never be judged.
pub struct Observed<F> {
    pub probe: Probe,
    pub timeout: Duration,
    pub observe: F,
}

#[async_trait]
impl<F: Fn(Finding) + Send + Sync> HealthCheck for Observed<F> {
    async fn check(&self, target: &Backend) -> pingora::Result<()> {
        let begun = Instant::now();
        self.probe.status.store(0, Ordering::Relaxed);
        let checked = tokio::time::timeout(self.timeout, self.probe.check.check(target)).await;
        let status = self.probe.status.load(Ordering::Relaxed);
        let (result, cause) = match &checked {
            Ok(Ok(())) if status > 0 => (ProbeResult::Success, status.to_string()),
            Ok(Ok(())) => (ProbeResult::Success, "connected".to_string()),
            Ok(Err(_)) if status > 0 => (ProbeResult::Failure, status.to_string()),
            Ok(Err(error)) if cause::is_ours(error) => (ProbeResult::NotMade, words_of(error)),
            Ok(Err(error)) => (ProbeResult::Error, words_of(error)),
            Err(_) => (ProbeResult::Timeout, format!("timed out after {:?}", self.timeout)),
        };
        (self.observe)(Finding { result, cause, took: begun.elapsed() });
        checked.unwrap_or_else(|_| pingora::Error::e_explain(pingora::ReadTimedout, "probe"))
    }

    /// The thresholds are [`super::Standing`]'s; Pingora's own health value is not read.
    fn health_threshold(&self, _success: bool) -> usize {
        1
    }
}
