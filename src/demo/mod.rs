//! The Bookstore: three catalogs and an ordering service on loopback, so that every page, test and first try has
//! something real behind the proxy. Each service is a few lines of answers; `site` gives it a port that can be cut
//! off as a killed process's is; `control` holds the switches, on an address of its own, for a catalog that is down
//! cannot be reached.
//!
//! Deliberately not here: the gateway itself, anything but loopback, TLS, any storage.
//!
//! Fails when a port is taken, with the port and its service in the message. `[::1]` is taken where it can be and
//! missed silently where not.

mod answer;
mod bookstore;
mod catalog;
mod control;
mod door;
mod ordering;
mod site;
pub(crate) mod websocket;

pub use bookstore::{Bookstore, Ports};
pub use catalog::{Instance, Manner};

/// The gateway's configuration for the Bookstore on its default [`Ports`].
pub const CONFIG: &str = include_str!("../../conf/demo.yaml");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_the_configuration_when_read_then_it_leads_to_the_default_ports() {
        let config: serde_json::Value = serde_yaml::from_str(CONFIG).unwrap();
        let destinations = &config["clusters"]["catalog"]["destinations"];
        for (at, port) in Ports::default().catalogs.into_iter().enumerate() {
            let name = format!("catalog-{}", at + 1);
            assert_eq!(destinations[&name]["address"], format!("http://localhost:{port}"));
        }
        let ordering = format!("localhost:{}", Ports::default().ordering);
        assert_eq!(config["services"]["ordering"]["http"][0], ordering);
    }
}
