//! What a service of the Bookstore gives back, and the trait by which it does.

use async_trait::async_trait;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Method, Request, Response, StatusCode, Uri};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use std::sync::Mutex;

pub(super) type Answer = Response<Full<Bytes>>;

/// What a connection becomes after its answer, where that was a 101.
pub(super) type Upgrade = Mutex<Option<OnUpgrade>>;

/// One service: a request's method and target in, a whole answer out.
#[async_trait]
pub(super) trait Service: Send + Sync + 'static {
    async fn answer(&self, method: &Method, uri: &Uri) -> Answer;

    /// For a service that looks at more than that. A connection with an upgrade echoes frames of WebSocket.
    async fn take(&self, request: Request<Incoming>, _upgrade: &Upgrade) -> Answer {
        self.answer(request.method(), request.uri()).await
    }
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
