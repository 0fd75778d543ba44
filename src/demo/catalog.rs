//! One catalog: its books, and the switches that make it slow, ill or wrong. Health and readiness are switched apart
//! from the books, since a service that answers its probe and fails its work is what the pages are about.

use super::answer::{Answer, Service, Upgrade, json, refusal, text};
use super::site::{Leave, Protocol, Site};
use super::websocket;
use async_trait::async_trait;
use http::header::HeaderValue;
use http::{Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

const INSTANCE_HEADER: &str = "x-catalog-instance";
/// Gives back what is posted, and frames of a WebSocket; below /books, so that whatever leads there leads here.
const ECHO: &str = "/books/echo";
const LONGEST_ECHO: usize = 1 << 20;
/// A balancer that asks /ready once a second has noticed by then.
const ANNOUNCED: Duration = Duration::from_secs(2);
/// Kept connections have this long to bring one more request, whose answer ends them.
const HELD: Duration = Duration::from_secs(3);
/// Requests under way have this long after that.
const FINISHED: Duration = Duration::from_secs(3);

/// Id, title, author, price.
const BOOKS: [(u32, &str, &str, f64); 4] = [
    (1, "The Art of Computer Programming", "Donald Knuth", 219.99),
    (2, "Notes on the Analytical Engine", "Ada Lovelace", 18.5),
    (3, "Communicating Sequential Processes", "Tony Hoare", 64.0),
    (4, "A Discipline of Programming", "Edsger Dijkstra", 72.25),
];

/// A catalog instance that listens on loopback until it is dropped.
pub struct Instance {
    pub(super) site: Site,
    catalog: Arc<Catalog>,
}

/// How an [`Instance`] takes its leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    /// /ready is 503 and every answer says that its connection closes; after 2 s the listener goes, after 3 s more the idle
    /// connections, and what is under way has another 3 s.
    Announced,
    /// The listener goes at once and nobody is told; whatever is open after 2 s is cut, as by a program that knows nothing of kept
    /// connections.
    Naive,
}

impl Instance {
    /// Listens on `port` of 127.0.0.1 (0: any free one) and, where possible, of `[::1]`. `delay` is that of answers
    /// from `/books` and below.
    ///
    /// Fails when the port is taken, or `name` cannot stand in a header.
    pub async fn start(name: &str, port: u16, delay: Duration) -> io::Result<Instance> {
        let header = HeaderValue::from_str(name)
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "a catalog's name is plain text"))?;
        let switches = Mutex::new(Switches { delay, ..Switches::default() });
        let catalog = Arc::new(Catalog { name: name.to_owned(), header, switches, probed: AtomicU64::new(0) });
        let site = Site::open(name, port, catalog.clone()).await?;
        Ok(Instance { site, catalog })
    }

    /// Returns when the instance may go.
    pub async fn leave(&self, manner: Manner) {
        match manner {
            Manner::Announced => {
                self.switches().ready = false;
                self.site.leave(Leave::Announced);
                tokio::time::sleep(ANNOUNCED).await;
                self.site.leave(Leave::Closed);
                if !self.site.empties_within(HELD).await {
                    self.site.leave(Leave::Ending);
                    self.site.empties_within(FINISHED).await;
                }
            }
            Manner::Naive => {
                self.site.leave(Leave::Unsaid);
                self.site.empties_within(ANNOUNCED).await;
            }
        }
    }

    /// The port in use, also when 0 was asked for.
    pub fn port(&self) -> u16 {
        self.site.port()
    }

    pub fn name(&self) -> &str {
        &self.catalog.name
    }

    pub(super) fn switches(&self) -> MutexGuard<'_, Switches> {
        self.catalog.switches()
    }

    /// One JSON line without its end.
    pub(super) async fn state(&self) -> String {
        let (up, protocol) = (self.site.is_up().await, self.site.protocol());
        let now = self.switches().clone();
        let mut state = serde_json::json!({
            "name": self.name(),
            "port": self.port(),
            "up": up,
            "protocol": match protocol { Protocol::Http1 => "http1", Protocol::H2c => "h2c" },
            "delay_ms": now.delay.as_millis() as u64,
            "health": now.healthy,
            "ready": now.ready,
            "status": now.status.map_or(0, |status| status.as_u16()),
        });
        if let Some(every) = now.ill_every {
            state["ill_every"] = every.into();
        }
        state.to_string()
    }
}

#[derive(Debug, Clone)]
pub(super) struct Switches {
    pub delay: Duration,
    pub healthy: bool,
    /// Healthy, but each so-many-th probe fails.
    pub ill_every: Option<u32>,
    /// Since that was switched.
    pub probes: u32,
    pub ready: bool,
    /// Instead of any answer of `/books` and below.
    pub status: Option<StatusCode>,
}

impl Default for Switches {
    fn default() -> Self {
        Switches { delay: Duration::ZERO, healthy: true, ill_every: None, probes: 0, ready: true, status: None }
    }
}

impl Switches {
    pub fn set_health(&mut self, healthy: bool, ill_every: Option<u32>) {
        (self.healthy, self.ill_every, self.probes) = (healthy, ill_every, 0);
    }

    /// One probe of `/health` more: how it ends.
    fn probe(&mut self) -> bool {
        self.probes = self.probes.wrapping_add(1);
        self.healthy && self.ill_every.is_none_or(|every| !self.probes.is_multiple_of(every))
    }
}

struct Catalog {
    name: String,
    header: HeaderValue,
    switches: Mutex<Switches>,
    /// How often `/health` was asked for.
    probed: AtomicU64,
}

impl Catalog {
    fn switches(&self) -> MutexGuard<'_, Switches> {
        self.switches.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Service for Catalog {
    async fn answer(&self, method: &Method, uri: &Uri) -> Answer {
        let now = self.switches().clone();
        let mut answer = match (method, uri.path()) {
            (&Method::GET, "/health") => {
                self.probed.fetch_add(1, Ordering::Relaxed);
                probe(self.switches().probe(), "Healthy", "Unhealthy")
            }
            (&Method::GET, "/probed") => text(StatusCode::OK, self.probed.load(Ordering::Relaxed).to_string()),
            (&Method::GET, "/ready") => probe(now.ready, "Ready", "Not ready"),
            (&Method::GET, path) if path == "/books" || path.starts_with("/books/") => {
                pause(now.delay).await;
                match now.status {
                    Some(status) => refusal(status, "this status is switched on"),
                    None => books(path),
                }
            }
            _ => refusal(StatusCode::NOT_FOUND, "there is GET /books, /books/{id}, /health, /ready and /probed"),
        };
        answer.headers_mut().insert(INSTANCE_HEADER, self.header.clone());
        answer
    }

    async fn take(&self, mut request: Request<Incoming>, upgrade: &Upgrade) -> Answer {
        if request.uri().path() != ECHO {
            return self.answer(request.method(), request.uri()).await;
        }
        let delay = self.switches().delay;
        pause(delay).await;
        let mut answer = match websocket::agree(&mut request, upgrade) {
            Some(switches) => switches,
            None if request.method() == Method::POST => echo(request.into_body()).await,
            None => refusal(StatusCode::METHOD_NOT_ALLOWED, "POST a body here, or open a WebSocket"),
        };
        answer.headers_mut().insert(INSTANCE_HEADER, self.header.clone());
        answer
    }
}

async fn pause(delay: Duration) {
    if !delay.is_zero() {
        tokio::time::sleep(delay).await;
    }
}

async fn echo(body: Incoming) -> Answer {
    match Limited::new(body, LONGEST_ECHO).collect().await {
        Ok(body) => text(StatusCode::OK, body.to_bytes()),
        Err(_) => refusal(StatusCode::PAYLOAD_TOO_LARGE, "a body of at most 1 MiB, whole"),
    }
}

fn probe(well: bool, yes: &'static str, no: &'static str) -> Answer {
    match well {
        true => text(StatusCode::OK, yes),
        false => text(StatusCode::SERVICE_UNAVAILABLE, no),
    }
}

fn books(path: &str) -> Answer {
    let book = |(id, title, author, price): &(u32, &str, &str, f64)| serde_json::json!({ "id": id, "title": title, "author": author, "price": price });
    match path.strip_prefix("/books/").filter(|id| !id.is_empty()) {
        None => json(StatusCode::OK, serde_json::Value::from_iter(BOOKS.iter().map(book)).to_string()),
        Some(id) => match BOOKS.iter().find(|known| known.0.to_string() == id) {
            Some(found) => json(StatusCode::OK, book(found).to_string()),
            None => refusal(StatusCode::NOT_FOUND, "no such book"),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;

    fn catalog(switches: Switches) -> Catalog {
        Catalog {
            name: "catalog-9".to_owned(),
            header: HeaderValue::from_static("catalog-9"),
            switches: Mutex::new(switches),
            probed: AtomicU64::new(0),
        }
    }

    async fn ask(catalog: &Catalog, method: Method, path: &str) -> (u16, String) {
        let answer = catalog.answer(&method, &path.parse().unwrap()).await;
        assert_eq!(answer.headers()[INSTANCE_HEADER], "catalog-9", "{method} {path}");
        let status = answer.status().as_u16();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn given_a_well_catalog_when_asked_then_each_path_has_its_answer() {
        let catalog = catalog(Switches::default());
        let (status, body) = ask(&catalog, Method::GET, "/books").await;
        let list: serde_json::Value = serde_json::from_str(&body).unwrap();
        assert_eq!((status, list.as_array().unwrap().len()), (200, BOOKS.len()));
        let (status, body) = ask(&catalog, Method::GET, "/books/2?any=query").await;
        assert_eq!(serde_json::from_str::<serde_json::Value>(&body).unwrap(), list[1]);
        assert_eq!(status, 200);
        assert_eq!(ask(&catalog, Method::GET, "/health").await, (200, "Healthy".to_owned()));
        assert_eq!(ask(&catalog, Method::GET, "/ready").await, (200, "Ready".to_owned()));
        assert_eq!(ask(&catalog, Method::GET, "/probed").await, (200, "1".to_owned()));
        for (method, path) in [
            (Method::GET, "/books/99"),
            (Method::GET, "/books/2/pages"),
            (Method::GET, "/bookshelf"),
            (Method::GET, "/"),
            (Method::POST, "/books"),
        ] {
            let (status, body) = ask(&catalog, method, path).await;
            assert_eq!(status, 404, "{path}");
            assert!(serde_json::from_str::<serde_json::Value>(&body).unwrap()["error"].is_string());
        }
    }

    #[tokio::test]
    async fn given_health_and_ready_switched_off_when_asked_then_only_they_answer_503() {
        let catalog = catalog(Switches { healthy: false, ready: false, ..Switches::default() });
        assert_eq!(ask(&catalog, Method::GET, "/health").await.0, 503);
        assert_eq!(ask(&catalog, Method::GET, "/ready").await.0, 503);
        assert_eq!(ask(&catalog, Method::GET, "/books").await.0, 200);
    }

    #[tokio::test]
    async fn given_a_status_switched_on_when_asked_then_only_books_have_it() {
        let status = Some(StatusCode::IM_A_TEAPOT);
        let catalog = catalog(Switches { status, ..Switches::default() });
        assert_eq!(ask(&catalog, Method::GET, "/books").await.0, 418);
        assert_eq!(ask(&catalog, Method::GET, "/books/1").await.0, 418);
        assert_eq!(ask(&catalog, Method::GET, "/health").await.0, 200);
    }

    #[tokio::test(start_paused = true)]
    async fn given_a_delay_when_asked_then_only_books_wait() {
        let delay = Duration::from_secs(90);
        let catalog = catalog(Switches { delay, ..Switches::default() });
        let begin = tokio::time::Instant::now();
        ask(&catalog, Method::GET, "/health").await;
        ask(&catalog, Method::GET, "/ready").await;
        assert_eq!(begin.elapsed(), Duration::ZERO);
        ask(&catalog, Method::GET, "/books").await;
        assert!(begin.elapsed() >= delay && begin.elapsed() < delay * 2);
    }
}
