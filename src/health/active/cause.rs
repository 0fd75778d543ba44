//! Pingora's errors in our words.

use crate::model::Outcome;
use pingora::{Error, ErrorType, RetryType};
use std::io;

/// What was asked in HTTP/2 by prior knowledge was not answered in it.
const NO_H2C: ErrorType = ErrorType::new("NoH2c");

/// The same error, when it shows that the destination speaks no HTTP/2 without TLS: something else came, or the end. One that
/// sent an error of HTTP/2 speaks it.
pub fn no_h2c(error: Box<Error>) -> Box<Error> {
    let speaks = error.root_cause().downcast_ref::<h2::Error>().is_some_and(h2::Error::is_remote);
    match outcome_of(&error) {
        Outcome::Protocol | Outcome::Reset if !speaks => Error::because(NO_H2C, words_of(&error), error),
        _ => error,
    }
}

/// Whether a connection of HTTP/2 ends without the request, of which the destination knows nothing: by a GOAWAY that leaves
/// its stream out. Also where it wants HTTP/1.1, which Pingora turns to.
pub fn is_left_out(error: &Error) -> bool {
    if error.etype() == &ErrorType::H2Downgrade {
        return matches!(error.retry, RetryType::Decided(true));
    }
    let cause = error.root_cause().downcast_ref::<h2::Error>();
    cause.is_some_and(|it| it.is_remote() && it.is_go_away() && it.reason() == Some(h2::Reason::NO_ERROR))
}

/// Whether a destination of HTTP/2 refused the request, and has not looked at it.
pub fn is_refused(error: &Error) -> bool {
    let cause = error.root_cause().downcast_ref::<h2::Error>();
    cause.is_some_and(|it| it.is_remote() && it.is_reset() && it.reason() == Some(h2::Reason::REFUSED_STREAM))
}

/// Whether a connection of HTTP/2 had broken before the request was given to it, when nothing of a body was. One that breaks
/// later is an error of reading.
pub fn is_unsent(error: &Error) -> bool {
    let cause = error.root_cause().downcast_ref::<h2::Error>();
    error.etype() == &ErrorType::H2Error && cause.is_some_and(h2::Error::is_io)
}

/// Which outcome an error of the upstream side is.
pub fn outcome_of(error: &Error) -> Outcome {
    if is_left_out(error) || is_refused(error) {
        return Outcome::Overload;
    }
    if is_unsent(error) {
        return Outcome::Reset;
    }
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
        ErrorType::TLSHandshakeFailure | ErrorType::TLSWantX509Lookup | ErrorType::InvalidCert => Outcome::Tls,
        ErrorType::ReadTimedout | ErrorType::WriteTimedout => Outcome::ReadTimeout,
        // The handshake is HTTP/2's: it fails by what it is written to.
        ErrorType::ReadError
        | ErrorType::WriteError
        | ErrorType::ConnectionClosed
        | ErrorType::ConnectProxyFailure
        | ErrorType::HandshakeError => Outcome::Reset,
        ErrorType::InvalidHTTPHeader
        | ErrorType::H1Error
        | ErrorType::H2Error
        | ErrorType::InvalidH2
        | ErrorType::H2Downgrade
        | &NO_H2C => Outcome::Protocol,
        _ => Outcome::Local,
    }
}

/// Whether it was this process that lacked something (descriptors, memory, a port to start from): says nothing about
/// the destination.
pub fn is_ours(error: &Error) -> bool {
    const ENFILE: i32 = 23;
    const EMFILE: i32 = 24;
    error.root_cause().downcast_ref::<io::Error>().is_some_and(|cause| {
        matches!(cause.raw_os_error(), Some(ENFILE | EMFILE))
            || matches!(cause.kind(), io::ErrorKind::OutOfMemory | io::ErrorKind::AddrNotAvailable)
    })
}

/// What people read of it.
pub fn words_of(error: &Error) -> String {
    if is_ours(error) {
        return format!("not tried: {}", error.root_cause());
    }
    if error.etype() == &NO_H2C {
        let seen = error.context.as_ref().map_or("", |seen| seen.as_str());
        return format!("speaks no cleartext HTTP/2 ({seen})");
    }
    let told = error.root_cause().downcast_ref::<h2::Error>().is_some();
    if error.etype() == &ErrorType::H2Downgrade && !told {
        return "HTTP/2 is not agreed on".to_string();
    }
    let words = match outcome_of(error) {
        Outcome::Refused => "connection refused",
        Outcome::Unreachable => "unreachable",
        Outcome::ConnectTimeout => "connecting timed out",
        Outcome::ReadTimeout => "no byte in time",
        Outcome::Reset => "connection closed or reset",
        Outcome::Protocol if is_http2(error) => "HTTP/2 failed",
        Outcome::Protocol => "answer is not HTTP",
        Outcome::Overload => "refused unprocessed",
        Outcome::Tls => "TLS failed",
        _ => return error.to_string(),
    };
    match outcome_of(error) {
        Outcome::Protocol if !is_http2(error) => words.to_string(),
        Outcome::Tls => format!("{words}: {}", why_tls(&error.to_string())),
        Outcome::Unreachable | Outcome::Protocol => format!("{words}: {}", error.root_cause()),
        _ => words.to_string(),
    }
}

/// Pingora keeps what rustls said as text, between words of its own.
fn why_tls(chain: &str) -> &str {
    let said = chain.split_once("TLS connect() failed: ").map_or(chain, |(_, said)| said);
    said.split_once(", SNI: ").map_or(said, |(said, _)| said)
}

fn is_http2(error: &Error) -> bool {
    matches!(error.etype(), ErrorType::H2Error | ErrorType::InvalidH2 | ErrorType::H2Downgrade)
}

fn io_kind(error: &Error) -> Option<io::ErrorKind> {
    error.root_cause().downcast_ref::<io::Error>().map(io::Error::kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_pingoras_chain_of_a_failed_handshake_when_read_then_what_rustls_said() {
        let said = "invalid peer certificate: UnknownIssuer";
        let inner =
            Error::explain(ErrorType::TLSHandshakeFailure, format!("TLS connect() failed: {said}, SNI: a.example"));
        let error = Error::because(ErrorType::TLSHandshakeFailure, "local address 127.0.0.1:1", inner);
        assert_eq!(words_of(&error), format!("TLS failed: {said}"));
    }

    #[tokio::test]
    async fn given_a_connection_of_http2_that_broke_when_a_request_is_given_to_it_then_nothing_was_sent() {
        let (ours, theirs) = tokio::io::duplex(1024);
        let (mut send, connection) = h2::client::handshake(ours).await.unwrap();
        drop(theirs);
        assert!(connection.await.is_err());
        let request = http::Request::get("http://h/").body(()).unwrap();
        let broken = send.send_request(request, true).expect_err("it broke");
        let unsent = Error::because(ErrorType::H2Error, "while sending request", broken);
        assert!(is_unsent(&unsent) && !is_left_out(&unsent));
        assert_eq!(outcome_of(&unsent), Outcome::Reset);
        let refused = Error::because(ErrorType::H2Error, "", h2::Error::from(h2::Reason::REFUSED_STREAM));
        assert!(!is_unsent(&refused));
    }
}
