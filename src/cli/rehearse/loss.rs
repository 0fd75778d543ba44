//! What a client that never tries again loses, told from what libraries and the system say.

use std::error::Error;
use std::fmt;
use std::io;

/// Why a request has no whole answer of 2xx.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Loss {
    /// No connection: ECONNREFUSED.
    Refused,
    /// ECONNRESET, or EPIPE, which says the same later; a stream of HTTP/2 that was reset.
    Reset,
    /// The end of a connection that had carried no answer yet.
    EofFresh,
    /// The end of one that had.
    EofReused,
    /// The head came, the rest of the answer did not; a WebSocket that was cut.
    Truncated,
    Timeout,
    /// An answer of another status.
    Status(u16),
    /// Neither HTTP nor TLS as it should be, or streams refused for ever.
    Protocol,
    /// This machine's own limits and names: ports or descriptors spent, an unknown host.
    Local,
}

impl Loss {
    /// The kinds, all statuses as one.
    pub const KINDS: [&str; 9] =
        ["refused", "reset", "eof_fresh", "eof_reused", "truncated", "timeout", "status", "protocol", "local"];

    pub fn kind(self) -> &'static str {
        let at = match self {
            Loss::Refused => 0,
            Loss::Reset => 1,
            Loss::EofFresh => 2,
            Loss::EofReused => 3,
            Loss::Truncated => 4,
            Loss::Timeout => 5,
            Loss::Status(_) => 6,
            Loss::Protocol => 7,
            Loss::Local => 8,
        };
        Loss::KINDS[at]
    }

    /// Where the connection simply ended.
    pub fn eof(reused: bool) -> Loss {
        if reused { Loss::EofReused } else { Loss::EofFresh }
    }

    pub fn of_io(fault: &io::Error, reused: bool) -> Loss {
        use io::ErrorKind as Kind;
        match fault.kind() {
            Kind::ConnectionRefused => Loss::Refused,
            Kind::ConnectionReset | Kind::ConnectionAborted | Kind::BrokenPipe | Kind::NotConnected => Loss::Reset,
            Kind::UnexpectedEof => Loss::eof(reused),
            Kind::TimedOut => Loss::Timeout,
            // What TLS calls wrong.
            Kind::InvalidData | Kind::InvalidInput => Loss::Protocol,
            _ => Loss::Local,
        }
    }

    /// `None`: the server says that it did not look at the request.
    pub fn of_exchange(fault: &hyper::Error, reused: bool) -> Option<Loss> {
        if let Some(fault) = cause::<h2::Error>(fault) {
            return of_http2(fault, reused);
        }
        if let Some(fault) = cause::<io::Error>(fault) {
            return Some(Loss::of_io(fault, reused));
        }
        match fault.is_incomplete_message() || fault.is_canceled() || fault.is_closed() {
            true => Some(Loss::eof(reused)),
            false => Some(Loss::Protocol),
        }
    }
}

/// RFC 9113, 8.7: a stream above the GOAWAY's last one, or refused, was not processed.
fn of_http2(fault: &h2::Error, reused: bool) -> Option<Loss> {
    let reason = fault.reason();
    if let Some(io) = fault.get_io() {
        return Some(Loss::of_io(io, reused));
    }
    match fault.is_remote() && (fault.is_go_away() || fault.is_reset()) {
        true if fault.is_go_away() && reason == Some(h2::Reason::NO_ERROR) => None,
        true if fault.is_reset() && reason == Some(h2::Reason::REFUSED_STREAM) => None,
        true => Some(Loss::Reset),
        false => Some(Loss::Protocol),
    }
}

fn cause<E: Error + 'static>(fault: &hyper::Error) -> Option<&E> {
    let mut cause = fault.source();
    while let Some(fault) = cause {
        if let Some(found) = fault.downcast_ref() {
            return Some(found);
        }
        cause = fault.source();
    }
    None
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Loss::Status(code) => write!(f, "status {code}"),
            other => f.write_str(other.kind()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_a_fault_of_the_system_when_told_then_it_has_its_kind() {
        use io::ErrorKind as Kind;
        for (kind, reused, loss) in [
            (Kind::ConnectionRefused, false, "refused"),
            (Kind::ConnectionReset, true, "reset"),
            (Kind::BrokenPipe, true, "reset"),
            (Kind::UnexpectedEof, false, "eof_fresh"),
            (Kind::UnexpectedEof, true, "eof_reused"),
            (Kind::AddrInUse, false, "local"),
        ] {
            assert_eq!(Loss::of_io(&kind.into(), reused).to_string(), loss, "{kind}");
        }
    }

    #[test]
    fn given_streams_of_http2_that_end_when_told_then_only_the_servers_own_reset_is_a_loss() {
        assert_eq!(of_http2(&h2::Reason::INTERNAL_ERROR.into(), false), Some(Loss::Protocol), "our own");
        assert_eq!(Loss::Status(503).to_string(), "status 503");
    }
}
