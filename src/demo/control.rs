//! The switches of the catalogs, one request each: `POST /catalog-2/delay?ms=50`. PUT does the same; the answer is the
//! catalog's state as one JSON line. `GET /` lists the states of all.
//!
//! A wrong value is a 400 that says what is expected and changes nothing.

use super::answer::{Answer, Service, json, refusal};
use super::catalog::Instance;
use super::site::Protocol;
use async_trait::async_trait;
use http::{Method, StatusCode, Uri};
use std::sync::Arc;
use std::time::Duration;

const LONGEST_DELAY_MS: u64 = 600_000;
const KNOWN: &str = "there is GET / and POST /CATALOG/SWITCH, where SWITCH is delay?ms=50, health?ok=false or health?every=3 \
                     (each third probe fails), ready?ok=false, status?code=500, down, up or protocol?only=h2c";

pub(super) struct Control {
    pub catalogs: Arc<[Instance]>,
}

#[async_trait]
impl Service for Control {
    async fn answer(&self, method: &Method, uri: &Uri) -> Answer {
        match *method {
            Method::GET if uri.path() == "/" => self.states().await,
            Method::POST | Method::PUT => self.switch(uri).await,
            _ => refusal(StatusCode::NOT_FOUND, KNOWN),
        }
    }
}

impl Control {
    async fn states(&self) -> Answer {
        let mut states = Vec::with_capacity(self.catalogs.len());
        for catalog in self.catalogs.iter() {
            states.push(catalog.state().await);
        }
        json(StatusCode::OK, format!("[{}]\n", states.join(",\n ")))
    }

    async fn switch(&self, uri: &Uri) -> Answer {
        let path = uri.path().strip_prefix('/').unwrap_or_default();
        let (name, switch) = path.split_once('/').unwrap_or_default();
        let Some(catalog) = self.catalogs.iter().find(|catalog| catalog.name() == name) else {
            return refusal(StatusCode::NOT_FOUND, KNOWN);
        };
        let turned = match Switch::parse(switch, uri.query().unwrap_or_default()) {
            Ok(switch) => switch.turn(catalog).await,
            Err(fault) => Err(fault),
        };
        match turned {
            Ok(()) => json(StatusCode::OK, format!("{}\n", catalog.state().await)),
            Err((status, reason)) => refusal(status, &reason),
        }
    }
}

type Refused = (StatusCode, String);

#[derive(Debug, PartialEq)]
enum Switch {
    Delay(Duration),
    Health(bool),
    /// Each so-many-th probe fails.
    IllEvery(u32),
    Ready(bool),
    Status(Option<StatusCode>),
    Down,
    Up,
    Only(Protocol),
}

impl Switch {
    fn parse(switch: &str, query: &str) -> Result<Switch, Refused> {
        let expected = |what: &str| (StatusCode::BAD_REQUEST, format!("{switch} expects {what}"));
        let value = |key: &str| query.strip_prefix(key).and_then(|rest| rest.strip_prefix('='));
        let flag = || match value("ok") {
            Some("true") => Ok(true),
            Some("false") => Ok(false),
            _ => Err(expected("?ok=true or ?ok=false")),
        };
        let bare = |switch| match query {
            "" => Ok(switch),
            _ => Err(expected("no query")),
        };
        match switch {
            "delay" => match value("ms").and_then(|ms| ms.parse().ok()) {
                Some(ms @ 0..=LONGEST_DELAY_MS) => Ok(Switch::Delay(Duration::from_millis(ms))),
                _ => Err(expected("?ms=N, N from 0 to 600000")),
            },
            "health" if query.starts_with("every") => match value("every").and_then(|n| n.parse().ok()) {
                Some(every @ 2..=1_000) => Ok(Switch::IllEvery(every)),
                _ => Err(expected("?every=N, N from 2 to 1000")),
            },
            "health" => flag().map(Switch::Health),
            "ready" => flag().map(Switch::Ready),
            "status" => match value("code").and_then(|code| code.parse().ok()) {
                Some(0) => Ok(Switch::Status(None)),
                Some(code @ 200..=599) => Ok(Switch::Status(StatusCode::from_u16(code).ok())),
                _ => Err(expected("?code=N, N from 200 to 599, or 0 for the usual answers")),
            },
            "down" => bare(Switch::Down),
            "up" => bare(Switch::Up),
            "protocol" => match value("only") {
                Some("http1") => Ok(Switch::Only(Protocol::Http1)),
                Some("h2c") => Ok(Switch::Only(Protocol::H2c)),
                _ => Err(expected("?only=http1 or ?only=h2c")),
            },
            _ => Err((StatusCode::NOT_FOUND, KNOWN.to_owned())),
        }
    }

    async fn turn(self, catalog: &Instance) -> Result<(), Refused> {
        match self {
            Switch::Delay(delay) => catalog.switches().delay = delay,
            Switch::Health(ok) => catalog.switches().set_health(ok, None),
            Switch::IllEvery(every) => catalog.switches().set_health(true, Some(every)),
            Switch::Ready(ok) => catalog.switches().ready = ok,
            Switch::Status(status) => catalog.switches().status = status,
            Switch::Only(protocol) => catalog.site.speak(protocol),
            Switch::Down => catalog.site.down().await,
            Switch::Up => {
                let up = catalog.site.up().await;
                up.map_err(|fault| (StatusCode::CONFLICT, format!("port {}: {fault}", catalog.port())))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_a_well_formed_switch_when_read_then_it_is_that() {
        let not_found = StatusCode::from_u16(404).ok();
        for (switch, query, read) in [
            ("delay", "ms=0", Switch::Delay(Duration::ZERO)),
            ("delay", "ms=600000", Switch::Delay(Duration::from_secs(600))),
            ("health", "ok=false", Switch::Health(false)),
            ("health", "every=3", Switch::IllEvery(3)),
            ("ready", "ok=true", Switch::Ready(true)),
            ("status", "code=404", Switch::Status(not_found)),
            ("status", "code=0", Switch::Status(None)),
            ("down", "", Switch::Down),
            ("up", "", Switch::Up),
            ("protocol", "only=h2c", Switch::Only(Protocol::H2c)),
            ("protocol", "only=http1", Switch::Only(Protocol::Http1)),
        ] {
            assert_eq!(Switch::parse(switch, query), Ok(read), "{switch}?{query}");
        }
    }

    #[test]
    fn given_a_bad_value_when_read_then_400_says_what_is_expected() {
        for (switch, query, expected) in [
            ("delay", "", "ms=N"),
            ("delay", "ms=-1", "ms=N"),
            ("delay", "ms=600001", "600000"),
            ("delay", "s=1", "ms=N"),
            ("delay", "ms=1&ms=2", "ms=N"),
            ("health", "ok=maybe", "ok=true or ?ok=false"),
            ("health", "every=1", "every=N"),
            ("ready", "", "ok=true"),
            ("status", "code=100", "200 to 599"),
            ("status", "code=600", "200 to 599"),
            ("status", "code=x", "200 to 599"),
            ("down", "now=true", "no query"),
            ("up", "x", "no query"),
            ("protocol", "only=h3", "only=h2c"),
        ] {
            let (status, reason) = Switch::parse(switch, query).unwrap_err();
            assert_eq!(status, StatusCode::BAD_REQUEST, "{switch}?{query}");
            assert!(reason.contains(expected), "{switch}?{query}: {reason}");
        }
        assert_eq!(Switch::parse("dealy", "ms=5").unwrap_err().0, StatusCode::NOT_FOUND);
    }
}
