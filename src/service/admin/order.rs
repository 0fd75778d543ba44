//! Orders as they are sent: a small JSON object each, read strictly, for a slip of the operator must not be obeyed in part.

use crate::config::{duration, permille, unknown};
use crate::health::{Order, Override};
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;
use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

/// What is ordered, and for how long; `None` = until another order.
pub type Ordered = (Order, Option<Duration>);

const STATES: [&str; 6] = ["drain", "leave", "maint", "ready", "eject", "uneject"];
/// As in the configuration.
const WEIGHTS: RangeInclusive<u64> = 0..=1000;
const LASTS: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(86_400);

/// `{"state": "drain", "for": "10m"}`
pub fn state(body: &[u8]) -> Result<Ordered, String> {
    let (value, lasts) = fields(body, "state")?;
    let one_of = || format!("state: expected one of {}", STATES.join(", "));
    let word = value.as_str().ok_or_else(one_of)?;
    let order = match word {
        "drain" => Order::Override(Override::Drain),
        "leave" => Order::Override(Override::Leave),
        "maint" => Order::Override(Override::Maint),
        "eject" => Order::Override(Override::Eject),
        "ready" => Order::Ready,
        "uneject" => Order::Uneject,
        _ => return Err(unknown("state", word, &STATES)),
    };
    lasting(order, lasts)
}

/// `{"weight": 5, "for": "10m"}`; `null` is the configuration's.
pub fn weight(body: &[u8]) -> Result<Ordered, String> {
    let (value, lasts) = fields(body, "weight")?;
    let weight = match &value {
        Value::Null => None,
        value => {
            let weight = value.as_u64().filter(|weight| WEIGHTS.contains(weight));
            let weight = weight.and_then(|weight| u32::try_from(weight).ok()).ok_or_else(|| {
                let (least, most) = (WEIGHTS.start(), WEIGHTS.end());
                format!("weight: expected a whole number from {least} to {most}, or null for the configured one")
            })?;
            Some(weight)
        }
    };
    lasting(Order::Weight(weight), lasts)
}

/// `{"percent": "5%"}`, in tenths of a percent; `null` is the configuration's.
pub fn percent(body: &[u8]) -> Result<Option<u32>, String> {
    let (value, lasts) = fields(body, "percent")?;
    if lasts.is_some() {
        return Err("for: a canary's share holds until another order".to_string());
    }
    match &value {
        Value::Null => Ok(None),
        Value::String(text) => permille(text).map(Some).map_err(|fault| format!("percent: {fault}")),
        _ => Err("percent: expected a share such as \"5%\", or null for the configured one".to_string()),
    }
}

/// `{}`, or no body at all: what is ordered is said by the address.
pub fn nothing(body: &[u8]) -> Result<(), String> {
    if body.trim_ascii().is_empty() {
        return Ok(());
    }
    match object(body)?.first() {
        Some((name, _)) => Err(format!("unknown key {name:?}; this order has none")),
        None => Ok(()),
    }
}

/// What ends an order has no end of its own, and a leave is for a while.
fn lasting(order: Order, lasts: Option<Duration>) -> Result<Ordered, String> {
    match order {
        Order::Ready | Order::Uneject | Order::Weight(None) if lasts.is_some() => {
            Err(format!("for: `{}` ends orders, and lasts for no time of its own", order.words()))
        }
        Order::Override(Override::Leave) if lasts.is_none() => {
            Err("leave: needs \"for\", such as \"10m\": so long its sessions stay before it is in maintenance"
                .to_string())
        }
        _ => Ok((order, lasts)),
    }
}

/// The value of `key`, and what `for` says.
fn fields(body: &[u8], key: &str) -> Result<(Value, Option<Duration>), String> {
    let fields = object(body)?;
    let (mut value, mut lasts) = (None, None);
    for (name, found) in fields {
        match name.as_str() {
            "for" if lasts.is_none() => lasts = Some(read_lasts(&found)?),
            name if name == key && value.is_none() => value = Some(found),
            name if name == key || name == "for" => return Err(format!("{name}: stands there twice")),
            name => return Err(unknown("key", name, &[key, "for"])),
        }
    }
    Ok((value.ok_or_else(|| format!("needs \"{key}\""))?, lasts))
}

fn object(body: &[u8]) -> Result<Vec<(String, Value)>, String> {
    let read = serde_json::from_slice(body).map_err(|fault| format!("the body is no JSON object: {fault}"));
    read.map(|Fields(fields)| fields)
}

fn read_lasts(value: &Value) -> Result<Duration, String> {
    let text = value.as_str().ok_or("for: expected a duration such as \"10m\"")?;
    let lasts = duration(text).map_err(|fault| format!("for: {fault}"))?;
    LASTS.contains(&lasts).then_some(lasts).ok_or_else(|| "for: expected a duration from 1s to 24h".to_string())
}

/// A JSON object with its keys as they came, doubles included.
struct Fields(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Fields;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Fields, M::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(Fields(fields))
            }
        }
        deserializer.deserialize_map(Object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_orders_when_read_then_each_word_and_weight_with_its_time() {
        let minutes = |n: u64| Some(Duration::from_secs(n * 60));
        for (body, ordered) in [
            (r#"{"state":"drain"}"#, (Order::Override(Override::Drain), None)),
            (r#"{"for":"1m30s","state":"maint"}"#, (Order::Override(Override::Maint), Some(Duration::from_secs(90)))),
            (r#" {"state": "eject", "for": "24h"} "#, (Order::Override(Override::Eject), minutes(24 * 60))),
            (r#"{"state":"leave","for":"10m"}"#, (Order::Override(Override::Leave), minutes(10))),
            (r#"{"state":"ready"}"#, (Order::Ready, None)),
            (r#"{"state":"uneject"}"#, (Order::Uneject, None)),
        ] {
            assert_eq!(state(body.as_bytes()), Ok(ordered), "{body}");
        }
        for (body, ordered) in [
            (r#"{"weight":5,"for":"10m"}"#, (Order::Weight(Some(5)), minutes(10))),
            (r#"{"weight":0}"#, (Order::Weight(Some(0)), None)),
            (r#"{"weight":null}"#, (Order::Weight(None), None)),
        ] {
            assert_eq!(weight(body.as_bytes()), Ok(ordered), "{body}");
        }
    }

    #[test]
    fn given_shares_of_a_canary_when_read_then_tenths_of_a_percent_or_what_is_wrong() {
        for (body, read) in [
            (r#"{"percent":"5%"}"#, Ok(Some(50))),
            (r#"{"percent":"0.1%"}"#, Ok(Some(1))),
            (r#"{"percent":null}"#, Ok(None)),
            (r#"{"percent":"5"}"#, Err("percent: expected a share such as 5% or 0.05")),
            (r#"{"percent":5}"#, Err("percent: expected a share such as \"5%\"")),
            (r#"{"percent":"0.25%"}"#, Err("percent: expected whole tenths of a percent")),
            (r#"{"percent":"5%","for":"1m"}"#, Err("for: a canary's share holds")),
            (r#"{"procent":"5%"}"#, Err("unknown key \"procent\"; did you mean \"percent\"?")),
        ] {
            match (percent(body.as_bytes()), read) {
                (Err(told), Err(said)) => assert!(told.starts_with(said), "{body}: {told}"),
                (told, read) => assert_eq!(told.ok(), read.ok(), "{body}"),
            }
        }
    }

    #[test]
    fn given_an_order_without_keys_when_read_then_nothing_and_an_empty_object_do_and_any_key_is_a_slip() {
        for body in ["", " \n", "{}", " { } "] {
            assert_eq!(nothing(body.as_bytes()), Ok(()), "{body:?}");
        }
        for (body, said) in
            [("x", "the body is no JSON object: "), ("[]", "an object"), (r#"{"for":"1s"}"#, "unknown key \"for\"")]
        {
            let told = nothing(body.as_bytes()).unwrap_err();
            assert!(told.contains(said), "{body}: {told}");
        }
    }

    #[test]
    fn given_a_slip_when_read_then_nothing_is_ordered_and_the_message_says_what() {
        for (body, said) in [
            ("", "the body is no JSON object: EOF"),
            ("drain", "the body is no JSON object: "),
            (r#""drain""#, "expected an object"),
            (r#"{"state":"drain"} x"#, "the body is no JSON object: "),
            ("{}", "needs \"state\""),
            (
                r#"{"state":"drian"}"#,
                "unknown state \"drian\"; did you mean \"drain\"? One of: drain, leave, maint, ready",
            ),
            (r#"{"state":1}"#, "state: expected one of drain, leave, maint, ready, eject, uneject"),
            (r#"{"stat":"drain"}"#, "unknown key \"stat\"; did you mean \"state\"?"),
            (r#"{"state":"drain","state":"ready"}"#, "state: stands there twice"),
            (r#"{"state":"drain","for":"1m","for":"1h"}"#, "for: stands there twice"),
            (r#"{"state":"drain","for":10}"#, "for: expected a duration such as \"10m\""),
            (r#"{"state":"drain","for":"10"}"#, "for: a bare number has no unit; write 10s or 10ms"),
            (r#"{"state":"drain","for":"999ms"}"#, "for: expected a duration from 1s to 24h"),
            (r#"{"state":"drain","for":"24h1s"}"#, "for: expected a duration from 1s to 24h"),
            (r#"{"state":"ready","for":"1m"}"#, "for: `ready` ends orders"),
            (r#"{"state":"leave"}"#, "leave: needs \"for\""),
        ] {
            let told = state(body.as_bytes()).unwrap_err();
            assert!(told.contains(said), "{body}: {told}");
        }
        for body in [r#"{"weight":1001}"#, r#"{"weight":-1}"#, r#"{"weight":1.5}"#, r#"{"weight":"5"}"#] {
            assert!(weight(body.as_bytes()).unwrap_err().starts_with("weight: expected a whole number from 0 to 1000"));
        }
        let deep = "[".repeat(60_000);
        assert!(state(format!("{{\"state\":{deep}").as_bytes()).is_err());
    }
}
