//! What a service of the Bookstore gives back, and the trait by which it does.

use async_trait::async_trait;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Method, Response, StatusCode, Uri};
use http_body_util::Full;

pub(super) type Answer = Response<Full<Bytes>>;

/// One service: a request's method and target in, a whole answer out. Bodies of requests are not looked at.
#[async_trait]
pub(super) trait Service: Send + Sync + 'static {
    async fn answer(&self, method: &Method, uri: &Uri) -> Answer;
}

pub(super) fn json(status: StatusCode, body: impl Into<Bytes>) -> Answer {
    answer(status, "application/json", body.into())
}

pub(super) fn text(status: StatusCode, body: impl Into<Bytes>) -> Answer {
    answer(status, "text/plain; charset=utf-8", body.into())
}

/// The JSON body of every refusal: `{"error":"…"}`.
pub(super) fn refusal(status: StatusCode, reason: &str) -> Answer {
    json(status, format!("{}\n", serde_json::json!({ "error": reason })))
}

fn answer(status: StatusCode, content_type: &'static str, body: Bytes) -> Answer {
    let mut answer = Response::new(Full::new(body));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    answer
}
