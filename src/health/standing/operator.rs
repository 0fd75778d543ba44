//! What the operator orders at run time. An order holds over reloads and upgrades until its time is over or another comes.

use super::{Around, Change, Standing, millis};
use crate::health::explanation::{BY_TIME, END_OF};
use crate::health::{Next, Phase, Rule, Step};
use crate::model::Reason;
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    Override(Override),
    /// Ends drain, maintenance or ejection.
    Ready,
    /// Ends an ejection, the operator's or the detectors'.
    Uneject,
    /// `None`: the configuration's again.
    Weight(Option<u32>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Override {
    /// No new requests, but those of sessions bound to it; probes go on.
    Drain,
    /// [`Override::Drain`] for its time, then [`Override::Maint`]: its sessions stay until then, and go elsewhere.
    Leave,
    /// No new requests and no probes.
    Maint,
    /// Out for a while, as the detectors would have it.
    Eject,
}

impl Override {
    pub fn as_str(self) -> &'static str {
        match self {
            Override::Drain => "drain",
            Override::Leave => "leave",
            Override::Maint => "maint",
            Override::Eject => "eject",
        }
    }

    pub(super) fn keeps_sessions(self) -> bool {
        matches!(self, Override::Drain | Override::Leave)
    }
}

impl Order {
    /// As explanations and the log word it.
    pub fn words(self) -> String {
        match self {
            Order::Override(state) => state.as_str().to_string(),
            Order::Ready => "ready".to_string(),
            Order::Uneject => "uneject".to_string(),
            Order::Weight(Some(weight)) => format!("weight {weight}"),
            Order::Weight(None) => "weight as configured".to_string(),
        }
    }
}

/// The orders that hold.
#[derive(Debug, Default)]
pub(super) struct Orders {
    pub(super) state: Option<(Override, Held)>,
    pub(super) weight: Option<Held>,
}

/// An order that holds, for people.
#[derive(Debug, Clone)]
pub struct Held {
    pub order: Order,
    /// Who gave it.
    pub by: String,
    pub since: Instant,
    /// `None`: until another.
    pub until: Option<Instant>,
}

impl Orders {
    pub fn state(&self) -> Option<Override> {
        self.state.as_ref().map(|(state, _)| *state)
    }

    pub fn held(&self) -> impl Iterator<Item = &Held> {
        self.state.iter().map(|(_, held)| held).chain(&self.weight)
    }

    pub fn due(&self) -> Option<Instant> {
        self.held().filter_map(|held| held.until).min()
    }
}

/// The period where reactivation is off.
const PERIOD: Duration = Duration::from_secs(10);

impl Standing {
    pub(super) fn ordered(
        &mut self,
        order: Order,
        lasts: Option<Duration>,
        by: String,
        around: &Around<'_>,
        now: Instant,
        changes: &mut Vec<Change>,
    ) {
        let rule = Rule::Operator { order: order.words(), by: by.clone() };
        let held = |lasts: Option<Duration>| Held { order, by, since: now, until: lasts.map(|lasts| now + lasts) };
        match order {
            Order::Override(state) => {
                let lasts = if state == Override::Eject { lasts.or(Some(self.period())) } else { lasts };
                self.orders.state = Some((state, held(lasts)));
                around.live.set_maintenance(state == Override::Maint);
                around.live.set_draining(state.keeps_sessions());
                let next = match lasts.map(millis) {
                    Some(in_ms) if state == Override::Leave => Next::Maintenance { in_ms },
                    Some(in_ms) => Next::OrderEnds { in_ms },
                    None => Next::Operator,
                };
                changes.push(self.mark(Reason::Operator, Step::MarkedOut, (rule, next), around, now));
            }
            Order::Ready => changes.extend(self.obey_no_more(rule, around, now)),
            Order::Uneject => {
                if self.orders.state() == Some(Override::Eject) {
                    changes.extend(self.obey_no_more(rule.clone(), around, now));
                }
                if self.reactivation.phase() != Phase::Serving {
                    changes.push(self.readmit(rule, around, now));
                }
            }
            Order::Weight(weight) => {
                self.orders.weight = weight.map(|_| held(lasts));
                around.live.set_weight(weight);
                let next = match (weight, lasts) {
                    (Some(_), Some(lasts)) => Next::OrderEnds { in_ms: millis(lasts) },
                    _ => Next::Nothing,
                };
                changes.push(self.note(Reason::Operator, Step::Reweighted, (rule, next), around, now));
            }
        }
    }

    /// Ends the orders whose time is over. One to leave goes on as maintenance, in the name of who gave it.
    pub(super) fn orders_due(&mut self, around: &Around<'_>, now: Instant, changes: &mut Vec<Change>) {
        let is_over = |held: &Held| held.until.is_some_and(|until| until <= now);
        match self.orders.state.as_ref().filter(|(_, held)| is_over(held)) {
            Some((Override::Leave, held)) => {
                let by = held.by.clone();
                self.ordered(Order::Override(Override::Maint), None, by, around, now, changes);
            }
            Some((state, _)) => {
                let order = format!("{END_OF}{}", state.as_str());
                let rule = Rule::Operator { order, by: BY_TIME.to_string() };
                changes.extend(self.obey_no_more(rule, around, now));
            }
            None => {}
        }
        if self.orders.weight.as_ref().is_some_and(is_over) {
            self.orders.weight = None;
            around.live.set_weight(None);
            let rule = Rule::Operator { order: "weight as configured".to_string(), by: BY_TIME.to_string() };
            changes.push(self.note(Reason::Operator, Step::Reweighted, (rule, Next::Nothing), around, now));
        }
    }

    fn obey_no_more(&mut self, rule: Rule, around: &Around<'_>, now: Instant) -> Option<Change> {
        self.orders.state.take()?;
        around.live.set_maintenance(false);
        let change = self.mark(Reason::Operator, Step::Readmitted, (rule, Next::Nothing), around, now);
        // Not before its mark is gone: its sessions would be lost in between.
        around.live.set_draining(false);
        Some(change)
    }

    /// The reactivation's: so long lasts an ejection by the operator where nothing else is said.
    pub(super) fn period(&self) -> Duration {
        let how = self.settings.passive.as_ref().and_then(|passive| passive.reactivation);
        how.map_or(PERIOD, |how| how.period)
    }
}
