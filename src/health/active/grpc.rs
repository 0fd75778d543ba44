//! `type: grpc`: asks `grpc.health.v1.Health/Check` and is good when it says SERVING. Keys: `service` (default the server as a
//! whole) and [`Reach`]'s. HTTP/2 and nothing else: by prior knowledge over cleartext, by ALPN over TLS.
//!
//! Its two messages have one field each, a string and an enumeration, so they are coded here and no compiler of
//! protocols is needed: `HealthCheckRequest { string service = 1; }`, `HealthCheckResponse { ServingStatus status = 1; }`.

use super::exchange::{self, Line};
use super::{Check, Connectors, Entry, ProbeKind, Target, Verdict};
use crate::config::{Reach, Section, Spoken};
use ::http::HeaderMap;
use async_trait::async_trait;
use bytes::Bytes;
use pingora::http::RequestHeader;
use pingora::protocols::http::client::HttpSession as ClientSession;
use pingora::{Error, ErrorType, Result};
use std::sync::Arc;

pub const ENTRY: Entry = Entry { name: "grpc", build };

const PATH: &str = "/grpc.health.v1.Health/Check";
/// An answer is a few bytes; of more so much is read.
const ANSWER: usize = 1024;
/// By their numbers.
const SERVING_STATUSES: [&str; 4] = ["UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN"];
const SERVING: u64 = 1;
const CODES: [&str; 17] = [
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
];

fn build(params: &mut Section<'_>) -> Box<dyn ProbeKind> {
    let service = params.text("service").map(|service| service.value).unwrap_or_default();
    Box::new(GrpcProbe { service, reach: Reach::read(params) })
}

struct GrpcProbe {
    service: String,
    reach: Reach,
}

impl ProbeKind for GrpcProbe {
    fn reach(&self) -> &Reach {
        &self.reach
    }

    fn prepare(&self, target: &Target, connectors: &Arc<Connectors>) -> Box<dyn Check> {
        let line = Line::new(target, Spoken::Http2, connectors);
        Box::new(GrpcCheck { line, head: head(target), message: framed(&request(&self.service)) })
    }

    fn signature(&self, target: &Target) -> String {
        format!("grpc {} {:?}", target.signature(), self.service)
    }
}

fn head(target: &Target) -> Option<RequestHeader> {
    let mut head = exchange::head("POST", PATH, target, Spoken::Http2)?;
    head.insert_header("Content-Type", "application/grpc").ok()?;
    head.insert_header("TE", "trailers").ok()?;
    Some(head)
}

/// `HealthCheckRequest`; a field that is empty is not sent.
fn request(service: &str) -> Vec<u8> {
    if service.is_empty() {
        return Vec::new();
    }
    let mut message = vec![0x0a];
    let mut length = service.len();
    while length >= 0x80 {
        message.push(length as u8 | 0x80);
        length >>= 7;
    }
    message.push(length as u8);
    message.extend_from_slice(service.as_bytes());
    message
}

/// Not compressed, the length, the message.
fn framed(message: &[u8]) -> Bytes {
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX).to_be_bytes();
    [&[0], &length[..], message].concat().into()
}

/// The message of the first frame, whole and not compressed.
fn unframed(body: &[u8]) -> Option<&[u8]> {
    let (head, rest) = body.split_at_checked(5)?;
    let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
    rest.get(..length).filter(|_| head[0] == 0)
}

/// `HealthCheckResponse.status`; 0 when it is not there. `None` for what is no such message.
fn serving_status(mut message: &[u8]) -> Option<u64> {
    let mut status = 0;
    while !message.is_empty() {
        let tag = varint(&mut message)?;
        match (tag >> 3, tag & 7) {
            (1, 0) => status = varint(&mut message)?,
            (_, 0) => drop(varint(&mut message)?),
            (_, 1) => message = message.get(8..)?,
            (_, 2) => {
                let length = usize::try_from(varint(&mut message)?).ok()?;
                message = message.get(length..)?;
            }
            (_, 5) => message = message.get(4..)?,
            _ => return None,
        }
    }
    Some(status)
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

struct GrpcCheck {
    line: Line,
    /// `None` when the host or path cannot be sent.
    head: Option<RequestHeader>,
    message: Bytes,
}

#[async_trait]
impl Check for GrpcCheck {
    async fn check(&self) -> Result<Verdict> {
        self.ask().await.map_err(|error| self.line.blame(error))
    }
}

impl GrpcCheck {
    async fn ask(&self) -> Result<Verdict> {
        let Some(head) = &self.head else {
            return Error::e_explain(ErrorType::InternalError, format!("cannot ask for {PATH}"));
        };
        let mut session = self.line.open().await?;
        session.write_request_header(Box::new(head.clone())).await?;
        session.write_request_body(self.message.clone(), true).await?;
        session.read_response_header().await?;
        let head = session.response_header();
        let status = head.map_or(0, |head| head.status.as_u16());
        if status != 200 {
            return Ok(Verdict::Unwanted(format!("HTTP status {status}, no gRPC")));
        }
        // An answer without a message has its code in the head.
        if let Some(code) = head.and_then(|head| code(&head.headers)) {
            return Ok(refused(code));
        }
        let body = exchange::body(&mut session, ANSWER).await?;
        let trailers = match &mut session {
            ClientSession::H2(session) => session.read_trailers().await?,
            _ => None,
        };
        Ok(judge(trailers.and_then(|trailers| code(&trailers)), &body))
    }
}

/// `grpc-status`.
fn code(headers: &HeaderMap) -> Option<usize> {
    headers.get("grpc-status")?.to_str().ok()?.parse().ok()
}

fn judge(code: Option<usize>, body: &[u8]) -> Verdict {
    match code {
        Some(0) => {}
        Some(code) => return refused(code),
        None => return Verdict::Unwanted("no gRPC: an answer without grpc-status".to_string()),
    }
    match unframed(body).and_then(serving_status) {
        Some(SERVING) => Verdict::Wanted("SERVING".to_string()),
        Some(status) => {
            let known = usize::try_from(status).ok().and_then(|status| SERVING_STATUSES.get(status));
            Verdict::Unwanted(known.map_or_else(|| format!("serving status {status}"), ToString::to_string))
        }
        None => Verdict::Unwanted("no answer of grpc.health.v1".to_string()),
    }
}

/// A call that was answered by a code instead of a message.
fn refused(code: usize) -> Verdict {
    Verdict::Unwanted(match CODES.get(code) {
        Some(&"OK") => "no answer of grpc.health.v1".to_string(),
        Some(&"UNIMPLEMENTED") => "UNIMPLEMENTED: no health service".to_string(),
        Some(&"NOT_FOUND") => "NOT_FOUND: unknown service".to_string(),
        Some(known) => known.to_string(),
        None => format!("gRPC code {code}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn unwanted(words: &str) -> Verdict {
        Verdict::Unwanted(words.to_string())
    }

    #[test]
    fn given_a_service_when_asked_for_then_the_frame_of_protobuf() {
        assert_eq!(&framed(&request(""))[..], [0, 0, 0, 0, 0]);
        assert_eq!(&framed(&request("ab"))[..], [0, 0, 0, 0, 4, 0x0a, 2, b'a', b'b']);
        let long = request(&"x".repeat(300));
        assert_eq!((&long[..3], long.len()), (&[0x0a, 0xac, 0x02][..], 303));
    }

    #[test]
    fn given_answers_when_judged_then_only_serving_passes_and_each_failure_has_its_word() {
        let status = |status: u8| framed(&[8, status]);
        assert_eq!(judge(Some(0), &status(1)), Verdict::Wanted("SERVING".to_string()));
        // Fields of later versions are passed over.
        assert_eq!(judge(Some(0), &framed(&[0x12, 1, 7, 8, 1, 0x1d, 0, 0, 0, 0])), Verdict::Wanted("SERVING".into()));
        assert_eq!(judge(Some(0), &framed(&[])), unwanted("UNKNOWN"));
        assert_eq!(judge(Some(0), &status(2)), unwanted("NOT_SERVING"));
        assert_eq!(judge(Some(0), &status(3)), unwanted("SERVICE_UNKNOWN"));
        assert_eq!(judge(Some(0), &status(9)), unwanted("serving status 9"));
        assert_eq!(judge(Some(5), b""), unwanted("NOT_FOUND: unknown service"));
        assert_eq!(judge(Some(12), b""), unwanted("UNIMPLEMENTED: no health service"));
        assert_eq!(judge(Some(14), &status(1)), unwanted("UNAVAILABLE"));
        assert_eq!(judge(Some(99), b""), unwanted("gRPC code 99"));
        assert_eq!(judge(None, &status(1)), unwanted("no gRPC: an answer without grpc-status"));
        for broken in
            [&b""[..], b"\0\0\0\0\x05\x08", b"\x01\0\0\0\x02\x08\x01", b"\0\0\0\0\x01\x08", b"\0\0\0\0\x01\x0c"]
        {
            assert_eq!(judge(Some(0), broken), unwanted("no answer of grpc.health.v1"), "{broken:?}");
        }
    }

    proptest! {
        #[test]
        fn given_any_bytes_when_judged_then_a_verdict(body in prop::collection::vec(any::<u8>(), 0..40)) {
            judge(Some(0), &body);
            serving_status(&body);
        }
    }
}
