/// Where the process stands in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Phase {
    /// The first round of probes is not over.
    #[default]
    Starting,
    Ready,
    /// It takes its leave, and still takes connections.
    Announced,
    /// It takes no more of them; what is there goes on.
    Closing,
    /// Nothing is waited for.
    Done,
}

impl Phase {
    pub const ALL: [Phase; 5] = [Phase::Starting, Phase::Ready, Phase::Announced, Phase::Closing, Phase::Done];

    /// The word that stands in metrics and in the API.
    pub fn label(self) -> &'static str {
        match self {
            Phase::Starting => "starting",
            Phase::Ready => "ready",
            Phase::Announced => "announced",
            Phase::Closing => "closing",
            Phase::Done => "done",
        }
    }

    /// It takes its leave.
    pub fn is_draining(self) -> bool {
        self >= Phase::Announced
    }
}

/// What a process that takes its leave still has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Left {
    pub connections: i64,
    /// Tunnels among them.
    pub requests: i64,
    /// WebSockets.
    pub tunnels: i64,
}
