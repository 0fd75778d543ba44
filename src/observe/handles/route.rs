//! Requests by route. Statuses are counted exactly, and come from upstreams: a list per method grows by the statuses
//! that occur, 501 at the most, instead of a place for each that could.

use super::super::metrics::{Metrics, Row};
use super::super::page::{Page, histogram};
use super::{CODE_CLASSES, OTHER, code_class, zeros};
use http::Method;
use prometheus::Histogram;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

/// The route of a request that no route took.
pub const NO_ROUTE: &str = "none";

const METHODS: [&str; 10] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE", OTHER];

/// Why the proxy itself refused a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rejected {
    /// No route matched.
    NoRoute,
    /// The request is not one that can be passed on.
    BadRequest,
    /// No destination of the cluster was available.
    NoDestination,
    /// Every destination was at its limit.
    Overload,
}

impl Rejected {
    const ALL: [Rejected; 4] = [Rejected::NoRoute, Rejected::BadRequest, Rejected::NoDestination, Rejected::Overload];

    /// The word that stands in metrics.
    pub fn label(self) -> &'static str {
        match self {
            Rejected::NoRoute => "no_route",
            Rejected::BadRequest => "bad_request",
            Rejected::NoDestination => "no_destination",
            Rejected::Overload => "overload",
        }
    }
}

/// Counts of one route as one listener serves it. Durations, bytes and rejections are the route's over all listeners.
#[derive(Clone)]
pub struct RouteMetrics(Arc<ListenerRoute>);

pub(in super::super) struct ListenerRoute {
    listener: String,
    route: Arc<Route>,
    statuses: [Statuses; METHODS.len()],
}

pub(in super::super) struct Route {
    name: String,
    durations: [OnceLock<Histogram>; CODE_CLASSES.len()],
    request_bytes: AtomicU64,
    response_bytes: AtomicU64,
    rejected: [AtomicU64; Rejected::ALL.len()],
}

impl Metrics {
    /// `route` is a name from the configuration or [`NO_ROUTE`].
    pub fn route(&self, listener: &str, route: &str) -> RouteMetrics {
        RouteMetrics(self.series.listener_routes.get([listener, route], || ListenerRoute {
            listener: listener.to_owned(),
            route: self.series.routes.get([route], || Route {
                name: route.to_owned(),
                durations: Default::default(),
                request_bytes: AtomicU64::new(0),
                response_bytes: AtomicU64::new(0),
                rejected: zeros(),
            }),
            statuses: Default::default(),
        }))
    }
}

impl RouteMetrics {
    /// The route's name.
    pub fn name(&self) -> &str {
        &self.0.route.name
    }

    /// A request was completed: the final status sent, the seconds from first byte in to last byte out, body bytes from
    /// and to the client. A method outside the nine standard ones and a status outside 100–599 count as `other`.
    pub fn request(&self, method: &Method, status: u16, seconds: f64, request_bytes: u64, response_bytes: u64) {
        let route = &self.0.route;
        self.0.statuses[method_index(method)].count(status);
        route.durations[code_class(status)].get_or_init(|| histogram(Row::RequestDuration)).observe(seconds);
        route.request_bytes.fetch_add(request_bytes, Relaxed);
        route.response_bytes.fetch_add(response_bytes, Relaxed);
    }

    /// The proxy itself refused a request. [`RouteMetrics::request`] counts it as well, with the status sent.
    pub fn rejected(&self, reason: Rejected) {
        self.0.route.rejected[reason as usize].fetch_add(1, Relaxed);
    }
}

impl ListenerRoute {
    pub(in super::super) fn collect(&self, page: &mut Page) {
        for (method, statuses) in METHODS.iter().zip(&self.statuses) {
            statuses.each(|status, requests| {
                let code = if status == 0 { OTHER.to_owned() } else { status.to_string() };
                page.counter(Row::Requests, &[&self.listener, &self.route.name, method, &code], requests);
            });
        }
    }
}

impl Route {
    pub(in super::super) fn collect(&self, page: &mut Page) {
        let name = self.name.as_str();
        for (class, duration) in CODE_CLASSES.iter().zip(&self.durations) {
            if let Some(duration) = duration.get() {
                page.histogram(Row::RequestDuration, &[name, class], duration);
            }
        }
        page.counter(Row::RequestBytes, &[name], &self.request_bytes);
        page.counter(Row::ResponseBytes, &[name], &self.response_bytes);
        for (reason, requests) in Rejected::ALL.iter().zip(&self.rejected) {
            if requests.load(Relaxed) > 0 {
                page.counter(Row::RequestsRejected, &[name, reason.label()], requests);
            }
        }
    }
}

/// Index into [`METHODS`].
fn method_index(method: &Method) -> usize {
    let other = METHODS.len() - 1;
    METHODS[..other].iter().position(|name| *name == method.as_str()).unwrap_or(other)
}

/// Requests by status, in the order in which the statuses first occurred: an append-only list, read without a lock.
/// Status 0 stands for all outside 100–599.
#[derive(Default)]
struct Statuses {
    first: OnceLock<Box<Status>>,
}

struct Status {
    status: u16,
    requests: AtomicU64,
    next: OnceLock<Box<Status>>,
}

impl Statuses {
    fn count(&self, status: u16) {
        let status = if (100..=599).contains(&status) { status } else { 0 };
        let mut slot = &self.first;
        loop {
            let node =
                slot.get_or_init(|| Box::new(Status { status, requests: AtomicU64::new(0), next: OnceLock::new() }));
            if node.status == status {
                node.requests.fetch_add(1, Relaxed);
                return;
            }
            slot = &node.next;
        }
    }

    fn each(&self, mut visit: impl FnMut(u16, &AtomicU64)) {
        let mut slot = &self.first;
        while let Some(node) = slot.get() {
            visit(node.status, &node.requests);
            slot = &node.next;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_odd_methods_and_codes_when_counted_then_the_labels_stay_closed() {
        let metrics = Metrics::new();
        let route = metrics.route("web", "catalog");
        for (method, status) in [("BREW", 200), ("get", 200), ("GET", 999), ("GET", 0), ("GET", 99), ("GET", 600)] {
            route.request(&Method::from_bytes(method.as_bytes()).expect("a token"), status, 0.1, 0, 0);
        }
        let page = metrics.render();
        let requests: Vec<_> = page.lines().filter(|line| line.starts_with("derbent_http_requests_total")).collect();
        assert_eq!(requests, [requests_line("web", "GET", OTHER, 4), requests_line("web", OTHER, "200", 2)]);
        assert!(page.contains("derbent_http_request_duration_seconds_count{route=\"catalog\",code_class=\"other\"} 4"));
    }

    #[test]
    fn given_every_method_and_status_when_counted_twice_then_each_has_its_own_series() {
        let metrics = Metrics::new();
        let route = metrics.route("web", "catalog");
        for method in &METHODS[..METHODS.len() - 1] {
            let method = Method::from_bytes(method.as_bytes()).expect("a method");
            (100..600).chain(100..600).for_each(|status| route.request(&method, status, 0.0, 0, 0));
        }
        let page = metrics.render();
        let twice = page.lines().filter(|line| line.starts_with("derbent_http_requests_total") && line.ends_with(" 2"));
        assert_eq!(twice.count(), 9 * 500);
    }

    #[test]
    fn given_threads_that_meet_new_statuses_together_when_they_end_then_no_request_is_lost() {
        let statuses = Statuses::default();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..1000).for_each(|n| statuses.count(200 + n % 10)));
            }
        });
        let mut seen = Vec::new();
        statuses.each(|status, requests| seen.push((status, requests.load(Relaxed))));
        seen.sort_unstable();
        assert_eq!(seen, (200..210).map(|status| (status, 400)).collect::<Vec<_>>());
    }

    #[test]
    fn given_a_route_on_two_listeners_when_counted_then_requests_are_apart_and_bytes_together() {
        let metrics = Metrics::new();
        let (web, tls) = (metrics.route("web", "catalog"), metrics.route("websecure", "catalog"));
        web.request(&Method::POST, 201, 0.02, 10, 100);
        tls.request(&Method::POST, 201, 0.02, 1, 2);
        let page = metrics.render();
        for line in [
            requests_line("web", "POST", "201", 1).as_str(),
            &requests_line("websecure", "POST", "201", 1),
            "derbent_http_request_bytes_total{route=\"catalog\"} 11",
            "derbent_http_response_bytes_total{route=\"catalog\"} 102",
            "derbent_http_request_duration_seconds_bucket{route=\"catalog\",code_class=\"2xx\",le=\"0.01\"} 0",
            "derbent_http_request_duration_seconds_bucket{route=\"catalog\",code_class=\"2xx\",le=\"0.025\"} 2",
        ] {
            assert!(page.lines().any(|it| it == line), "{line} in\n{page}");
        }
    }

    #[test]
    fn given_rejections_when_counted_then_each_reason_stands_under_its_own_word() {
        let metrics = Metrics::new();
        let route = metrics.route("web", NO_ROUTE);
        for (n, reason) in Rejected::ALL.into_iter().enumerate() {
            (0..=n).for_each(|_| route.rejected(reason));
        }
        let page = metrics.render();
        for (reason, n) in [("no_route", 1), ("bad_request", 2), ("no_destination", 3)] {
            let line = format!("derbent_http_requests_rejected_total{{route=\"none\",reason=\"{reason}\"}} {n}");
            assert!(page.lines().any(|it| it == line), "{line} in\n{page}");
        }
    }

    #[test]
    fn given_a_reload_when_the_route_is_named_again_then_it_counts_on_and_when_dropped_it_leaves_the_page() {
        let metrics = Metrics::new();
        let old = metrics.route("web", "catalog");
        old.request(&Method::GET, 200, 0.0, 0, 0);
        let new = metrics.route("web", "catalog");
        drop(old);
        new.request(&Method::GET, 200, 0.0, 0, 0);
        assert!(metrics.render().contains(&requests_line("web", "GET", "200", 2)));
        drop(new);
        assert!(!metrics.render().contains("catalog"));
    }

    fn requests_line(listener: &str, method: &str, code: &str, n: u64) -> String {
        format!(
            "derbent_http_requests_total{{listener=\"{listener}\",route=\"catalog\",method=\"{method}\",code=\"{code}\"}} {n}"
        )
    }
}
