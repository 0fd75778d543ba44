//! gRPC's own status, where the head is all there is of an answer: in the proxy's own name, and read in a destination's. A
//! client of gRPC-Web or of HTTP/1 gets the plain answer.

use super::headers::REQUEST_ID;
use http::{HeaderValue, Version, header};
use pingora::Result;
use pingora::http::{RequestHeader, ResponseHeader};

const STATUS: &str = "grpc-status";
const CONTENT_TYPE: HeaderValue = HeaderValue::from_static("application/grpc");

pub fn is_grpc(request: &RequestHeader) -> bool {
    let kind = request.headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
    let rest = kind.and_then(|kind| kind.strip_prefix(CONTENT_TYPE.as_bytes()));
    request.version == Version::HTTP_2 && matches!(rest, Some([] | [b'+' | b';', ..]))
}

/// gRPC's status in a head, which without messages is the whole answer. `None` for requests of another kind; those of gRPC-Web
/// and over any version are of this.
pub fn status(request: &RequestHeader, response: &ResponseHeader) -> Option<u8> {
    let kind = request.headers.get(header::CONTENT_TYPE)?.as_bytes().strip_prefix(CONTENT_TYPE.as_bytes())?;
    let status = matches!(kind, [] | [b'+' | b';', ..]) || kind.starts_with(b"-web");
    status.then(|| response.headers.get(STATUS)?.to_str().ok()?.parse().ok())?
}

/// `message` is plain text without `%`.
pub fn head(status: u16, message: &'static str, id: HeaderValue) -> Result<ResponseHeader> {
    let mut response = ResponseHeader::build(200, Some(4))?;
    response.insert_header(header::CONTENT_TYPE, CONTENT_TYPE)?;
    response.insert_header(STATUS, code(status))?;
    response.insert_header("grpc-message", message)?;
    response.insert_header(REQUEST_ID, id)?;
    Ok(response)
}

/// gRPC's own table of HTTP statuses, but that what took too long is DEADLINE_EXCEEDED and what is too much
/// RESOURCE_EXHAUSTED.
fn code(status: u16) -> u16 {
    const UNKNOWN: u16 = 2;
    const DEADLINE_EXCEEDED: u16 = 4;
    const PERMISSION_DENIED: u16 = 7;
    const RESOURCE_EXHAUSTED: u16 = 8;
    const UNIMPLEMENTED: u16 = 12;
    const INTERNAL: u16 = 13;
    const UNAVAILABLE: u16 = 14;
    const UNAUTHENTICATED: u16 = 16;
    match status {
        400 | 500 => INTERNAL,
        401 => UNAUTHENTICATED,
        403 => PERMISSION_DENIED,
        404 => UNIMPLEMENTED,
        408 | 504 => DEADLINE_EXCEEDED,
        413 | 431 => RESOURCE_EXHAUSTED,
        429 | 502 | 503 => UNAVAILABLE,
        _ => UNKNOWN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_a_content_type_when_looked_at_then_only_grpc_over_http2_is_grpc() {
        for (kind, version, grpc) in [
            ("application/grpc", Version::HTTP_2, true),
            ("application/grpc+proto", Version::HTTP_2, true),
            ("application/grpc;charset=utf-8", Version::HTTP_2, true),
            ("application/grpc-web", Version::HTTP_2, false),
            ("application/grpcx", Version::HTTP_2, false),
            ("application/json", Version::HTTP_2, false),
            ("application/grpc", Version::HTTP_11, false),
        ] {
            let mut request = RequestHeader::build("POST", b"/", None).unwrap();
            request.set_version(version);
            request.insert_header(header::CONTENT_TYPE, kind).unwrap();
            assert_eq!(is_grpc(&request), grpc, "{kind} {version:?}");
        }
    }

    #[test]
    fn given_an_answers_head_when_looked_at_then_the_status_of_grpc_to_requests_of_grpc_alone() {
        for (kind, written, status) in [
            ("application/grpc", Some("14"), Some(14)),
            ("application/grpc+proto", Some("0"), Some(0)),
            ("application/grpc-web+proto", Some("8"), Some(8)),
            ("application/grpcx", Some("14"), None),
            ("application/json", Some("14"), None),
            ("application/grpc", None, None),
            ("application/grpc", Some("unavailable"), None),
            ("application/grpc", Some("1400"), None),
        ] {
            let mut request = RequestHeader::build("POST", b"/", None).unwrap();
            request.insert_header(header::CONTENT_TYPE, kind).unwrap();
            let mut response = ResponseHeader::build(200, None).unwrap();
            if let Some(written) = written {
                response.insert_header(STATUS, written).unwrap();
            }
            assert_eq!(super::status(&request, &response), status, "{kind} {written:?}");
        }
    }

    #[test]
    fn given_our_statuses_when_told_to_grpc_then_each_has_its_code() {
        let told = [502, 503, 504, 404, 400, 500, 405].map(code);
        assert_eq!(told, [14, 14, 4, 12, 13, 13, 2]);
    }
}
