//! All of the Bookstore in one process, and what to try with it.

use super::catalog::Instance;
use super::control::Control;
use super::ordering::Ordering;
use super::site::Site;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// A port of loopback for each service; 0 takes any free one. The default is what [`super::CONFIG`] leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ports {
    /// catalog-1, catalog-2, catalog-3. Default 5301, 5311, 5312.
    pub catalogs: [u16; 3],
    /// Default 5302.
    pub ordering: u16,
    /// The switches. Default 5399.
    pub control: u16,
}

impl Default for Ports {
    fn default() -> Self {
        Ports { catalogs: [5301, 5311, 5312], ordering: 5302, control: 5399 }
    }
}

/// The running services; they end when this is dropped.
pub struct Bookstore {
    catalogs: Arc<[Instance]>,
    ordering: Site,
    control: Site,
}

impl Bookstore {
    /// Listens on every port before it returns. Needs a tokio runtime, which the services then run on.
    ///
    /// Fails when a port is taken; nothing is left open then.
    pub async fn start(ports: Ports) -> io::Result<Bookstore> {
        let mut catalogs = Vec::with_capacity(ports.catalogs.len());
        for (at, port) in ports.catalogs.into_iter().enumerate() {
            catalogs.push(Instance::start(&format!("catalog-{}", at + 1), port, Duration::ZERO).await?);
        }
        let catalogs: Arc<[Instance]> = catalogs.into();
        let ordering = Site::open("ordering", ports.ordering, Arc::new(Ordering)).await?;
        let switches = Arc::new(Control { catalogs: catalogs.clone() });
        let control = Site::open("the switches", ports.control, switches).await?;
        Ok(Bookstore { catalogs, ordering, control })
    }

    /// The ports in use, also where 0 was asked for.
    pub fn ports(&self) -> Ports {
        Ports {
            catalogs: std::array::from_fn(|at| self.catalogs[at].port()),
            ordering: self.ordering.port(),
            control: self.control.port(),
        }
    }

    /// What to try, as text for a terminal: the gateway of [`super::CONFIG`] and every switch, one command a line.
    pub fn try_next(&self) -> String {
        let control = self.control.port();
        format!(
            "\
Through the gateway
  curl -i localhost:5300/api/v1/books
  curl localhost:5300/api/v1/orders/1001
  derbent loadprobe http://localhost:5300/api/v1/books
What the gateway sees
  curl localhost:5390/api/v1/clusters
  curl localhost:5390/metrics
Trouble, one switch each (catalog-1, catalog-2 or catalog-3)
  curl -X POST 'localhost:{control}/catalog-2/delay?ms=50'           slow books; ms=0 ends it
  curl -X POST 'localhost:{control}/catalog-1/health?ok=false'       /health answers 503; ok=true ends it
  curl -X POST 'localhost:{control}/catalog-1/ready?ok=false'        /ready answers 503; ok=true ends it
  curl -X POST 'localhost:{control}/catalog-3/status?code=500'       books answer 500; code=0 ends it
  curl -X POST localhost:{control}/catalog-2/down                    as if killed
  curl -X POST localhost:{control}/catalog-2/up                      the same port again
  curl -X POST 'localhost:{control}/catalog-3/protocol?only=h2c'     HTTP/2 only; only=http1 ends it
  curl localhost:{control}                                           the state of all
"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use http::{HeaderMap, Method, Request, StatusCode};
    use http_body_util::{BodyExt, Empty};
    use hyper::client::conn::{http1, http2};
    use hyper_util::rt::{TokioExecutor, TokioIo};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    const ANY: Ports = Ports { catalogs: [0; 3], ordering: 0, control: 0 };

    async fn bookstore() -> (Bookstore, Ports) {
        let bookstore = Bookstore::start(ANY).await.unwrap();
        let ports = bookstore.ports();
        (bookstore, ports)
    }

    fn request(method: Method, path: &str) -> Request<Empty<Bytes>> {
        let request = Request::builder().method(method).uri(path).header("host", "localhost");
        request.body(Empty::new()).unwrap()
    }

    async fn ask(port: u16, method: Method, path: &str) -> (StatusCode, HeaderMap, String) {
        let stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        let driver = tokio::spawn(connection);
        let (head, body) = sender.send_request(request(method, path)).await.unwrap().into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        driver.abort();
        (head.status, head.headers, String::from_utf8(body.to_vec()).unwrap())
    }

    async fn switch(ports: Ports, path: &str) -> serde_json::Value {
        let (status, _, body) = ask(ports.control, Method::POST, path).await;
        assert_eq!((status, body.lines().count()), (StatusCode::OK, 1), "{path}: {body}");
        serde_json::from_str(&body).unwrap()
    }

    /// A connection that has had one answer and is kept.
    async fn kept(port: u16) -> TcpStream {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        stream.write_all(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
        let mut got = Vec::new();
        while !got.ends_with(b"Healthy") {
            assert_ne!(stream.read_buf(&mut got).await.unwrap(), 0);
        }
        stream
    }

    async fn is_reset(mut stream: TcpStream) -> bool {
        let read = stream.read(&mut [0; 64]).await;
        read.is_err_and(|fault| fault.kind() == io::ErrorKind::ConnectionReset)
    }

    #[tokio::test]
    async fn given_a_bookstore_when_asked_over_its_ports_then_each_service_answers() {
        let (_bookstore, ports) = bookstore().await;
        for (at, port) in ports.catalogs.into_iter().enumerate() {
            let (status, headers, _) = ask(port, Method::GET, "/books").await;
            assert_eq!(status, StatusCode::OK);
            assert_eq!(headers["X-Catalog-Instance"], format!("catalog-{}", at + 1).as_str());
        }
        let (_, headers, body) = ask(ports.ordering, Method::GET, "/orders/1001").await;
        assert_eq!(headers["content-length"], body.len().to_string().as_str());
        assert!(body.contains("605.50"));
        let (_, _, states) = ask(ports.control, Method::GET, "/").await;
        let states: serde_json::Value = serde_json::from_str(&states).unwrap();
        assert_eq!(states[2]["port"], ports.catalogs[2]);
    }

    #[tokio::test]
    async fn given_switches_of_one_catalog_when_turned_then_it_alone_changes_and_its_state_tells() {
        let (_bookstore, ports) = bookstore().await;
        assert_eq!(switch(ports, "/catalog-1/health?ok=false").await["health"], false);
        assert_eq!(switch(ports, "/catalog-1/ready?ok=false").await["ready"], false);
        assert_eq!(switch(ports, "/catalog-1/delay?ms=1").await["delay_ms"], 1);
        let state = switch(ports, "/catalog-1/status?code=500").await;
        assert_eq!((&state["status"], &state["name"]), (&500.into(), &"catalog-1".into()));
        for (path, status) in [("/health", 503), ("/ready", 503), ("/books", 500)] {
            assert_eq!(ask(ports.catalogs[0], Method::GET, path).await.0, status, "{path}");
            assert_eq!(ask(ports.catalogs[1], Method::GET, path).await.0, 200, "{path}");
        }
        switch(ports, "/catalog-1/status?code=0").await;
        assert_eq!(ask(ports.catalogs[0], Method::GET, "/books").await.0, 200);
    }

    #[tokio::test]
    async fn given_wrong_switches_when_turned_then_refused_and_nothing_changes() {
        let (_bookstore, ports) = bookstore().await;
        let before = ask(ports.control, Method::GET, "/").await.2;
        for (method, path, status) in [
            (Method::POST, "/catalog-1/delay?ms=x", 400),
            (Method::PUT, "/catalog-1/status?code=99", 400),
            (Method::POST, "/catalog-4/down", 404),
            (Method::POST, "/catalog-1", 404),
            (Method::POST, "/", 404),
            (Method::OPTIONS, "*", 404),
            (Method::GET, "/catalog-1/down", 404),
        ] {
            assert_eq!(ask(ports.control, method, path).await.0, status, "{path}");
        }
        assert_eq!(ask(ports.control, Method::GET, "/").await.2, before);
    }

    #[tokio::test]
    async fn given_open_connections_when_a_catalog_goes_down_then_they_are_reset_and_new_ones_refused() {
        let (_bookstore, ports) = bookstore().await;
        let port = ports.catalogs[1];
        let idle = kept(port).await;
        switch(ports, "/catalog-2/delay?ms=600000").await;
        let mut busy = kept(port).await;
        busy.write_all(b"GET /books HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
        let mut posting = kept(port).await;
        posting.write_all(b"POST /books/echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\nx").await.unwrap();

        assert_eq!(switch(ports, "/catalog-2/down").await["up"], false);
        assert!(is_reset(idle).await);
        assert!(is_reset(busy).await);
        assert!(is_reset(posting).await);
        let refused = TcpStream::connect(("127.0.0.1", port)).await.unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        assert_eq!(switch(ports, "/catalog-2/down").await["up"], false);
    }

    #[tokio::test]
    async fn given_a_catalog_that_is_down_when_put_up_then_the_same_port_answers_with_its_switches_kept() {
        let (_bookstore, ports) = bookstore().await;
        switch(ports, "/catalog-3/health?ok=false").await;
        for _ in 0..3 {
            switch(ports, "/catalog-3/down").await;
            let state = switch(ports, "/catalog-3/up").await;
            assert_eq!((&state["up"], &state["port"]), (&true.into(), &ports.catalogs[2].into()));
            assert_eq!(ask(ports.catalogs[2], Method::GET, "/health").await.0, 503);
        }
        assert_eq!(switch(ports, "/catalog-3/up").await["up"], true);
    }

    #[tokio::test]
    async fn given_h2c_only_when_asked_then_http2_is_answered_and_http1_closed() {
        let (_bookstore, ports) = bookstore().await;
        let port = ports.catalogs[2];
        let mut before = kept(port).await;
        assert_eq!(switch(ports, "/catalog-3/protocol?only=h2c").await["protocol"], "h2c");
        assert_eq!(before.read(&mut [0; 64]).await.unwrap(), 0, "a kept connection ends");

        let stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        let (mut sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
        let driver = tokio::spawn(connection);
        let answer = sender.send_request(request(Method::GET, "http://localhost/books")).await.unwrap();
        assert_eq!((answer.status(), answer.version()), (StatusCode::OK, http::Version::HTTP_2));
        driver.abort();

        let mut old = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        old.write_all(b"GET /books HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
        let mut got = Vec::new();
        // A reset is an end as well.
        let _ = old.read_to_end(&mut got).await;
        assert!(!got.starts_with(b"HTTP/1"), "{}", String::from_utf8_lossy(&got));

        switch(ports, "/catalog-3/protocol?only=http1").await;
        kept(port).await;
    }

    #[tokio::test]
    async fn given_a_taken_port_when_started_then_the_message_names_port_and_service() {
        let (_bookstore, taken) = bookstore().await;
        let ports = Ports { ordering: taken.ordering, ..ANY };
        let fault = Bookstore::start(ports).await.err().unwrap();
        assert_eq!(fault.kind(), io::ErrorKind::AddrInUse);
        assert!(fault.to_string().contains(&format!("ordering on 127.0.0.1:{}", taken.ordering)), "{fault}");
    }

    #[tokio::test]
    async fn given_the_text_of_what_to_try_when_its_switches_are_posted_then_each_is_known() {
        let (bookstore, ports) = bookstore().await;
        let text = bookstore.try_next();
        let base = format!("localhost:{}", ports.control);
        let switches: Vec<&str> = text
            .lines()
            .filter_map(|line| line.split_once("-X POST ")?.1.trim_start_matches('\'').strip_prefix(base.as_str()))
            .filter_map(|rest| rest.split(['\'', ' ']).next())
            .collect();
        assert_eq!(switches.len(), 7, "{text}");
        for path in switches {
            switch(ports, path).await;
        }
    }
}
