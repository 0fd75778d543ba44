use crate::config::Count;

/// What came of one attempt. One closed set of words for metrics, log and explanations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The name gave no address.
    Dns,
    Refused,
    /// No route, or the network said no.
    Unreachable,
    ConnectTimeout,
    /// Handshake, certificate or name.
    Tls,
    /// No byte for `activity_timeout`.
    ReadTimeout,
    /// The connection broke, also in the middle of a body.
    Reset,
    /// The answer was no HTTP.
    Protocol,
    Status(u16),
    /// The client went first; nobody's failure.
    ClientAbort,
    RouteTimeout,
    /// Our own doing.
    Local,
    /// Every place was taken.
    Overload,
}

impl Outcome {
    /// The words of [`Outcome::index`], in its order.
    pub const WORDS: [&'static str; 12] = [
        "dns",
        "refused",
        "unreachable",
        "connect_timeout",
        "tls",
        "read_timeout",
        "reset",
        "protocol",
        "client_abort",
        "route_timeout",
        "local",
        "overload",
    ];

    /// Position in [`Outcome::WORDS`]; a status has none.
    pub fn index(self) -> Option<usize> {
        Some(match self {
            Outcome::Dns => 0,
            Outcome::Refused => 1,
            Outcome::Unreachable => 2,
            Outcome::ConnectTimeout => 3,
            Outcome::Tls => 4,
            Outcome::ReadTimeout => 5,
            Outcome::Reset => 6,
            Outcome::Protocol => 7,
            Outcome::ClientAbort => 8,
            Outcome::RouteTimeout => 9,
            Outcome::Local => 10,
            Outcome::Overload => 11,
            Outcome::Status(_) => return None,
        })
    }

    /// Whether the configuration's words mean it.
    ///
    /// | outcome | is in |
    /// |---|---|
    /// | dns, refused, unreachable, connect_timeout, tls | `connect` |
    /// | read_timeout | `timeout` |
    /// | reset, protocol | `reset` |
    /// | a status | the statuses and classes |
    /// | client_abort, route_timeout, local, overload | none |
    pub fn is_in(self, words: &Count) -> bool {
        match self {
            Outcome::Dns | Outcome::Refused | Outcome::Unreachable | Outcome::ConnectTimeout | Outcome::Tls => {
                words.connect
            }
            Outcome::ReadTimeout => words.timeout,
            Outcome::Reset | Outcome::Protocol => words.reset,
            Outcome::Status(status) => words.statuses.iter().any(|range| range.contains(&status)),
            Outcome::ClientAbort | Outcome::RouteTimeout | Outcome::Local | Outcome::Overload => false,
        }
    }

    pub fn as_str(self) -> &'static str {
        self.index().map_or("status", |index| Self::WORDS[index])
    }
}
