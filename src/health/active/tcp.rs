//! `type: tcp`: good when the port accepts a connection. Has no keys of its own.

use super::{Entry, Probe, ProbeKind, Target};
use pingora_load_balancing::health_check::TcpHealthCheck;
use std::sync::Arc;
use std::sync::atomic::AtomicU16;

pub const ENTRY: Entry = Entry { name: "tcp", build: |_| Box::new(TcpProbe) };

struct TcpProbe;

impl ProbeKind for TcpProbe {
    fn prepare(&self, target: &Target<'_>) -> Probe {
        let mut check = TcpHealthCheck::new();
        check.peer_template.options.connection_timeout = target.peer.options.connection_timeout;
        Probe { check, status: Arc::new(AtomicU16::new(0)) }
    }
}
