use super::super::metrics::{Metrics, Row};
use super::super::page::Page;
use std::collections::BTreeMap;
use std::time::Instant;

/// Why a destination is on its leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Parting {
    /// A reload did away with it, or gave it another address or role.
    Removed,
    /// `enabled: false`
    Disabled,
    /// By the operator's order.
    Drained,
    /// Likewise.
    Maintenance,
}

impl Parting {
    /// The word that stands in metrics, log and API.
    pub fn label(self) -> &'static str {
        match self {
            Parting::Removed => "removed",
            Parting::Disabled => "disabled",
            Parting::Drained => "drained",
            Parting::Maintenance => "maintenance",
        }
    }
}

/// A destination on its leave, and what is left of it.
#[derive(Debug, Clone)]
pub struct Departure {
    pub cluster: String,
    pub destination: String,
    /// `host:port`
    pub address: String,
    pub why: Parting,
    pub since: Instant,
    /// In flight, WebSockets and copies of mirrored requests among them.
    pub requests: u32,
    /// Open, idle ones included.
    pub connections: usize,
}

/// What the page shows of them. Those that share their labels, as after two reloads in a row, are one series.
#[derive(Debug, Default)]
pub(in super::super) struct Departures(BTreeMap<(String, String, Parting), (u64, u64)>);

impl Departures {
    pub(in super::super) fn collect(&self, page: &mut Page) {
        for ((cluster, destination, why), (requests, connections)) in &self.0 {
            for (left, count) in [("requests", requests), ("connections", connections)] {
                page.gauge(Row::Leaving, &[cluster, destination, why.label(), left], *count as f64);
            }
        }
    }
}

impl Metrics {
    /// Who is on its leave, told when a page is asked for.
    pub fn set_leaving(&self, all: impl IntoIterator<Item = Departure>) {
        let mut departures = Departures::default();
        for of in all {
            let (requests, connections) = departures.0.entry((of.cluster, of.destination, of.why)).or_default();
            *requests += u64::from(of.requests);
            *connections += of.connections as u64;
        }
        self.series.process.set_leaving(departures);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_departures_when_told_then_each_label_has_one_series_until_they_are_over() {
        let metrics = Metrics::new();
        let of = |why, requests, connections| Departure {
            cluster: "app".into(),
            destination: "a".into(),
            address: "127.0.0.1:1".into(),
            why,
            since: Instant::now(),
            requests,
            connections,
        };
        metrics.set_leaving([of(Parting::Removed, 1, 3), of(Parting::Removed, 2, 2), of(Parting::Drained, 0, 1)]);
        let page = metrics.render();
        let line = |why: &str, left: &str, count: u8| {
            format!(
                "derbent_destination_leaving{{cluster=\"app\",destination=\"a\",reason=\"{why}\",left=\"{left}\"}} {count}\n"
            )
        };
        for (why, requests, connections) in [("removed", 3, 5), ("drained", 0, 1)] {
            assert!(page.contains(&line(why, "requests", requests)), "{page}");
            assert!(page.contains(&line(why, "connections", connections)), "{page}");
        }
        metrics.set_leaving([]);
        assert!(!metrics.render().contains("leaving"));
    }
}
