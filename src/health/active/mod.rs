//! Active checks: what a probe is. One kind a file, one row in [`BUILTIN`]; pingora-load-balancing's service runs them. Its
//! own checks are not used: each brings connectors of its own with all of the system's authorities, half a megabyte a
//! destination, and none can say more than good or bad. When to probe is `service::prober`'s matter, what follows from it
//! [`super::Standing`]'s.
//!
//! A probe fails by a [`Verdict`], when an answer came and was not the wanted one, or by an error, when none came.

mod cause;
mod exchange;
mod expect;
mod grpc;
mod http;
mod tcp;

pub use cause::{is_left_out, is_refused, is_unsent, outcome_of, words_of};

use crate::config::{Reach, Section, Spoken};
use async_trait::async_trait;
use pingora::connectors::TransportConnector;
use pingora::connectors::http::Connector as HttpConnector;
use pingora::upstreams::peer::HttpPeer;
use pingora_load_balancing::Backend;
use pingora_load_balancing::health_check::HealthCheck;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A kind of probe with its parameters, one for each cluster.
pub trait ProbeKind: Send + Sync {
    /// How its probes get to their destinations.
    fn reach(&self) -> &Reach;

    /// A probe of one destination.
    fn prepare(&self, target: &Target, connectors: &Arc<Connectors>) -> Box<dyn Check>;

    /// All that decides what the probe of one destination sends and what it makes of the answer. Two probes with the same
    /// one are the same probe.
    fn signature(&self, target: &Target) -> String;
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
pub struct Target {
    /// Address, TLS and time to connect; no other timeouts, as the probe as a whole has one.
    pub peer: HttpPeer,
    /// The certificates that are trusted and shown, by a hash of them.
    pub certificates: String,
    /// What requests of the cluster would speak to this address.
    pub spoken: Spoken,
    /// `host:port`, as logs show it.
    pub authority: String,
    /// Host header.
    pub host: String,
    /// Goes before the probe's own path.
    pub path: String,
}

impl Target {
    /// What TCP makes of it.
    fn connection(&self) -> String {
        format!("{} within {:?}", self.peer._address, self.peer.options.connection_timeout)
    }

    /// What TLS and HTTP make of it.
    fn signature(&self) -> String {
        let tls = match self.peer.is_tls() {
            true => format!("{:?} verify={} {}", self.peer.sni, self.peer.options.verify_cert, self.certificates),
            false => "cleartext".to_string(),
        };
        format!("{} {tls} {:?} {:?}", self.connection(), self.host, self.path)
    }
}

/// A probe of one destination, made as often as wanted.
#[async_trait]
pub trait Check: Send + Sync {
    /// # Errors
    /// No answer.
    async fn check(&self) -> pingora::Result<Verdict>;
}

/// What people read of an answer: `200`, `connected`, `NOT_SERVING`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    Wanted(String),
    Unwanted(String),
}

#[derive(Clone, Copy)]
pub struct Entry {
    pub name: &'static str,
    pub build: fn(&mut Section<'_>) -> Box<dyn ProbeKind>,
}

pub const BUILTIN: &[Entry] = &[http::ENTRY, tcp::ENTRY, grpc::ENTRY];

/// One probe's result.
#[derive(Debug, Clone)]
pub struct Finding {
    pub result: ProbeResult,
    /// What people read: `200`, `503`, `connection refused`.
    pub cause: String,
    pub begun: Instant,
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
    pub probe: Box<dyn Check>,
    pub timeout: Duration,
    pub observe: F,
}

#[async_trait]
impl<F: Fn(Finding) + Send + Sync> HealthCheck for Observed<F> {
    async fn check(&self, _target: &Backend) -> pingora::Result<()> {
        let begun = Instant::now();
        let checked = tokio::time::timeout(self.timeout, self.probe.check()).await;
        let (result, cause) = match checked {
            Ok(Ok(Verdict::Wanted(cause))) => (ProbeResult::Success, cause),
            Ok(Ok(Verdict::Unwanted(cause))) => (ProbeResult::Failure, cause),
            Ok(Err(error)) if cause::is_ours(&error) => (ProbeResult::NotMade, words_of(&error)),
            Ok(Err(error)) => (ProbeResult::Error, words_of(&error)),
            Err(_) => (ProbeResult::Timeout, format!("timed out after {:?}", self.timeout)),
        };
        (self.observe)(Finding { result, cause, begun, took: begun.elapsed() });
        Ok(())
    }

    /// The thresholds are [`super::Standing`]'s; Pingora's own health value is not read.
    fn health_threshold(&self, _success: bool) -> usize {
        1
    }
}
