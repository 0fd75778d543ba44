//! The ordering service: one order, always the same bytes, so that a page or a test can compare them.

use super::answer::{Answer, Service, json, refusal, text};
use async_trait::async_trait;
use http::{Method, StatusCode, Uri};

/// Literal, for a JSON writer would make 605.5 of the total.
const ORDER_1001: &str = r#"{"id":1001,"customerEmail":"ada@example.com","total":605.50,"status":"Shipped"}"#;

pub(super) struct Ordering;

#[async_trait]
impl Service for Ordering {
    async fn answer(&self, method: &Method, uri: &Uri) -> Answer {
        match (method, uri.path()) {
            (&Method::GET, "/orders/1001") => json(StatusCode::OK, ORDER_1001),
            (&Method::GET, "/health") => text(StatusCode::OK, "Healthy"),
            _ => refusal(StatusCode::NOT_FOUND, "no such order; there is /orders/1001"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::header::CONTENT_TYPE;
    use http_body_util::BodyExt;

    #[tokio::test]
    async fn given_order_1001_when_asked_then_the_bytes_are_exactly_these() {
        let answer = Ordering.answer(&Method::GET, &Uri::from_static("/orders/1001")).await;
        assert_eq!(answer.status(), StatusCode::OK);
        assert_eq!(answer.headers()[CONTENT_TYPE], "application/json");
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(body, r#"{"id":1001,"customerEmail":"ada@example.com","total":605.50,"status":"Shipped"}"#);
    }

    #[tokio::test]
    async fn given_any_other_order_or_method_when_asked_then_404() {
        for (method, path) in [(Method::GET, "/orders/1002"), (Method::GET, "/orders"), (Method::POST, "/orders/1001")]
        {
            let answer = Ordering.answer(&method, &path.parse().unwrap()).await;
            assert_eq!(answer.status(), StatusCode::NOT_FOUND, "{method} {path}");
        }
    }
}
