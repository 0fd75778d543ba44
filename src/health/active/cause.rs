//! Pingora's errors in our words.

use crate::model::Outcome;
use pingora::{Error, ErrorType};
use std::io;

/// Which outcome an error of the upstream side is.
pub fn outcome_of(error: &Error) -> Outcome {
    match error.etype() {
        ErrorType::ConnectTimedout | ErrorType::TLSHandshakeTimedout => Outcome::ConnectTimeout,
        ErrorType::ConnectRefused => Outcome::Refused,
        ErrorType::ConnectNoRoute | ErrorType::ConnectError | ErrorType::BindError | ErrorType::SocketError => {
            match io_kind(error) {
                Some(io::ErrorKind::ConnectionRefused) => Outcome::Refused,
                Some(io::ErrorKind::ConnectionReset) => Outcome::Reset,
                Some(io::ErrorKind::TimedOut) => Outcome::ConnectTimeout,
                _ => Outcome::Unreachable,
            }
        }
        ErrorType::TLSHandshakeFailure
        | ErrorType::TLSWantX509Lookup
        | ErrorType::InvalidCert
        | ErrorType::HandshakeError => Outcome::Tls,
        ErrorType::ReadTimedout | ErrorType::WriteTimedout => Outcome::ReadTimeout,
        ErrorType::ReadError | ErrorType::WriteError | ErrorType::ConnectionClosed | ErrorType::ConnectProxyFailure => {
            Outcome::Reset
        }
        ErrorType::InvalidHTTPHeader
        | ErrorType::H1Error
        | ErrorType::H2Error
        | ErrorType::InvalidH2
        | ErrorType::H2Downgrade => Outcome::Protocol,
        _ => Outcome::Local,
    }
}

/// What people read of it.
pub fn words_of(error: &Error) -> String {
    let words = match outcome_of(error) {
        Outcome::Refused => "connection refused",
        Outcome::Unreachable => "unreachable",
        Outcome::ConnectTimeout => "connecting timed out",
        Outcome::ReadTimeout => "no byte in time",
        Outcome::Reset => "connection closed or reset",
        Outcome::Protocol => "answer is not HTTP",
        Outcome::Tls => "TLS failed",
        _ => return error.to_string(),
    };
    match outcome_of(error) {
        Outcome::Tls | Outcome::Unreachable => format!("{words}: {}", error.root_cause()),
        _ => words.to_string(),
    }
}

fn io_kind(error: &Error) -> Option<io::ErrorKind> {
    error.root_cause().downcast_ref::<io::Error>().map(io::Error::kind)
}
