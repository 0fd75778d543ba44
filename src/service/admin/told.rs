//! What is known of one destination at one moment, read under its standing's lock, for views and for `explain`.

use crate::health::{Circuit, Explanation, Marked, Next, Order, Standing, State, Step};
use crate::model::{Member, Reason, Stamp, WHOLE};
use crate::runtime::Cluster;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Instant;

pub struct Told {
    pub now: Stamp,
    pub state: State,
    /// `None`: as long as it is there.
    pub since: Option<Stamp>,
    /// Is drawn for requests that are no trials.
    pub available: bool,
    /// `None` for the mark that stands until the first probe.
    pub marks: Vec<(Reason, Option<Marked>)>,
    /// The step told last.
    pub last: Option<Arc<Explanation>>,
    /// A detector fired last and could not eject.
    pub skipped: Option<Arc<Explanation>>,
    pub penalty: f64,
    pub circuit: Option<Circuit>,
    pub orders: Vec<Given>,
    pub last_probe: Option<String>,
}

/// An order that holds.
pub struct Given {
    pub order: Order,
    pub by: String,
    pub since: Stamp,
    pub until: Option<Stamp>,
}

/// Why a destination under `probe_first` gets nothing yet.
const UNPROBED: &str = "waits for its first probe (initial: probe_first)";

impl Told {
    /// `standing` is the member's.
    pub fn of(cluster: &Cluster, member: &Member, standing: &Standing, now: Instant) -> Told {
        let published = cluster.published();
        let state = if member.destination.enabled { standing.state(&member.live) } else { State::Disabled };
        let stamp = |at| standing.epoch().stamp(at);
        let marks = member.live.marks.reasons().map(|reason| (reason, standing.marked(reason).cloned()));
        let orders = standing.orders().map(|held| Given {
            order: held.order,
            by: held.by.clone(),
            since: stamp(held.since),
            until: held.until.map(stamp),
        });
        let passive = standing.history().filter(|step| step.decision.reason == Reason::Passive).last();
        Told {
            now: stamp(now),
            state,
            since: standing.since(),
            available: published.has(member),
            marks: marks.collect(),
            last: standing.history().last().cloned(),
            skipped: passive.filter(|step| step.decision.step == Step::EjectionSkipped).cloned(),
            penalty: standing.penalty(),
            circuit: standing.circuit(),
            orders: orders.collect(),
            last_probe: standing.last_cause().map(str::to_string),
        }
    }

    /// For each mark its judge and rule; without marks the last step's alone.
    pub fn why(&self) -> Vec<(Option<Reason>, String)> {
        let why = |marked: &Option<Marked>| marked.as_ref().map_or(UNPROBED.to_string(), |marked| marked.set.why());
        match self.marks.is_empty() {
            true => self.last.iter().map(|last| (None, last.why())).collect(),
            false => self.marks.iter().map(|(reason, marked)| (Some(*reason), why(marked))).collect(),
        }
    }

    /// For each mark what its judge does next; without marks the end of a ramp.
    pub fn next(&self) -> Vec<(Option<Reason>, String)> {
        let ramp = self.last.as_ref().filter(|last| self.marks.is_empty() && self.ramps(last));
        let ramp = ramp.map(|last| (None, last.ahead(self.now).to_string()));
        let ahead = |marked: &Marked| marked.last().ahead(self.now).to_string();
        let of_marks = self.marks.iter().map(|(reason, marked)| {
            (Some(*reason), marked.as_ref().map_or("back when its probes pass".to_string(), ahead))
        });
        of_marks.chain(ramp).filter(|(_, next)| !next.is_empty()).collect()
    }

    fn ramps(&self, last: &Explanation) -> bool {
        self.state == State::Ramping && matches!(last.next, Next::Ramp { .. })
    }

    /// What it gets, in words.
    pub fn gets(&self, member: &Member) -> String {
        match self.state {
            State::Disabled => "gets nothing (enabled: false)".to_string(),
            State::Draining => "no new requests".to_string(),
            State::Maintenance => "no new requests, no probes".to_string(),
            _ if member.weight() == 0 => "no new requests (weight 0)".to_string(),
            State::HalfOpen if !self.available => "only requests on trial".to_string(),
            State::Unhealthy | State::HalfOpen if self.available => {
                "gets requests all the same, for too few others are in (panic)".to_string()
            }
            State::Unhealthy => "gets no requests".to_string(),
            State::Unknown => "gets requests, and nothing was found out yet".to_string(),
            _ => match member.live.share() {
                WHOLE => "gets its share of the requests".to_string(),
                tenths => format!("gets {tenths}0% of its share"),
            },
        }
    }

    pub fn overrides(&self) -> Value {
        let one = |given: &Given| {
            json!({
                "order": given.order.words(),
                "by": given.by,
                "since": given.since.to_string(),
                "until": given.until.map(|until| until.to_string()),
            })
        };
        self.orders.iter().map(one).collect()
    }
}

/// `passive: …; active: …`
pub fn joined(of: &[(Option<Reason>, String)]) -> Option<String> {
    let alone = of.len() == 1;
    let one = |(reason, words): &(Option<Reason>, String)| match reason {
        Some(reason) if !alone => format!("{}: {words}", reason.as_str()),
        _ => words.clone(),
    };
    (!of.is_empty()).then(|| of.iter().map(one).collect::<Vec<_>>().join("; "))
}
