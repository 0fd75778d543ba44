//! What came of a simulation, as a table and as JSON. Times are since its start.

use crate::health::{By, Change, Counted, Evidence, Explanation};
use crate::model::Outcome;
use crate::runtime::Cluster;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::sync::Arc;
use std::time::Duration;

/// All that is told of a simulation.
pub struct Findings {
    cluster: String,
    seed: u64,
    length: Duration,
    /// What clients saw, by status.
    answers: BTreeMap<u16, Span>,
    /// Clients that left before they were answered.
    left: u64,
    /// Not answered at the end.
    under_way: usize,
    places: Vec<Of>,
    steps: Vec<Step>,
    /// Ejections that `max_ejected` forbade.
    skipped: u64,
    panics: Vec<(Duration, Option<Duration>)>,
}

/// How often, and when first and last.
#[derive(Debug, Clone, Copy)]
struct Span {
    count: u64,
    first: Duration,
    last: Duration,
}

/// A destination's part.
struct Of {
    id: String,
    requests: u64,
    /// By the outcome's word.
    failures: BTreeMap<&'static str, u64>,
    /// Answers of 500 and more.
    errors: BTreeMap<u16, u64>,
    /// When it was out.
    absences: Vec<(Duration, Option<Duration>)>,
}

struct Step {
    at: Duration,
    index: usize,
    told: Arc<Explanation>,
}

impl Findings {
    pub(super) fn new(cluster: &Cluster, seed: u64) -> Self {
        let of = |id: &String| Of {
            id: id.clone(),
            requests: 0,
            failures: BTreeMap::new(),
            errors: BTreeMap::new(),
            absences: Vec::new(),
        };
        let mut findings = Findings {
            cluster: cluster.name.clone(),
            seed,
            length: Duration::ZERO,
            answers: BTreeMap::new(),
            left: 0,
            under_way: 0,
            places: cluster.members.iter().map(|member| of(&member.destination.id)).collect(),
            steps: Vec::new(),
            skipped: 0,
            panics: Vec::new(),
        };
        // Under `probe_first` all are out from the start.
        for member in cluster.members.iter().filter(|member| !member.is_unmarked()) {
            findings.places[member.index].absences.push((Duration::ZERO, None));
        }
        findings
    }

    /// Answered, left, or under way at the end.
    pub fn requests(&self) -> u64 {
        self.answers.values().map(|span| span.count).sum::<u64>() + self.left + self.under_way as u64
    }

    /// How many clients got this status.
    pub fn answers(&self, status: u16) -> u64 {
        self.answers.get(&status).map_or(0, |span| span.count)
    }

    /// Every step of health, in order: when, whose, why.
    pub fn steps(&self) -> impl Iterator<Item = (Duration, &str, &Arc<Explanation>)> {
        self.steps.iter().map(|step| (step.at, self.places[step.index].id.as_str(), &step.told))
    }

    pub(super) fn drew(&mut self, index: usize) {
        self.places[index].requests += 1;
    }

    pub(super) fn answered(&mut self, status: u16, at: Duration) {
        let span = self.answers.entry(status).or_insert(Span { count: 0, first: at, last: at });
        (span.count, span.last) = (span.count + 1, at);
    }

    /// What came of an attempt, and what its client saw.
    pub(super) fn ended(&mut self, index: usize, outcome: Outcome, at: Duration) {
        let place = &mut self.places[index];
        match outcome {
            Outcome::ClientAbort => return self.left += 1,
            Outcome::Status(status) if status < 500 => {}
            Outcome::Status(status) => *place.errors.entry(status).or_default() += 1,
            failure => *place.failures.entry(failure.as_str()).or_default() += 1,
        }
        let status = match outcome {
            Outcome::Status(status) => status,
            Outcome::ReadTimeout | Outcome::ConnectTimeout | Outcome::RouteTimeout => 504,
            _ => 502,
        };
        self.answered(status, at);
    }

    pub(super) fn changed(&mut self, index: usize, changes: &[Change], panics: bool, at: Duration) {
        for change in changes {
            let Some(told) = &change.explanation else {
                self.skipped += 1;
                continue;
            };
            self.steps.push(Step { at, index, told: told.clone() });
            let absences = &mut self.places[index].absences;
            match change.transition.as_ref().map(|transition| transition.to_healthy) {
                Some(false) => absences.push((at, None)),
                Some(true) => end(absences, at),
                None => {}
            }
        }
        match (self.panics.last(), panics) {
            (None | Some((_, Some(_))), true) => self.panics.push((at, None)),
            (Some((_, None)), false) => end(&mut self.panics, at),
            _ => {}
        }
    }

    pub(super) fn end(&mut self, at: Duration, under_way: usize) {
        (self.length, self.under_way) = (at, under_way);
    }

    /// Clients that got 500 or more, whoever said it.
    fn errors(&self) -> impl Iterator<Item = (u16, Span)> {
        self.answers.range(500..).map(|(status, span)| (*status, *span))
    }

    fn shares(&self) -> impl Iterator<Item = (&Of, f64)> {
        let all: u64 = self.places.iter().map(|place| place.requests).sum();
        self.places.iter().map(move |place| (place, place.requests as f64 / all.max(1) as f64))
    }

    /// `explain` adds each step's whole explanation, whose times are milliseconds since the start.
    pub fn json(&self, explain: bool) -> Value {
        let counts = |counts: &BTreeMap<u16, Span>| -> Map<String, Value> {
            counts.iter().map(|(status, span)| (status.to_string(), span.count.into())).collect()
        };
        let errors = |(status, span): (u16, Span)| {
            (status.to_string(), json!({ "count": span.count, "first_ms": ms(span.first), "last_ms": ms(span.last) }))
        };
        let mut all =
            Map::from_iter([("all".to_string(), self.errors().map(|(_, span)| span.count).sum::<u64>().into())]);
        all.extend(self.errors().map(errors));
        json!({
            "cluster": self.cluster,
            "seed": self.seed,
            "simulated_ms": ms(self.length),
            "requests": self.requests(),
            "answers": counts(&self.answers),
            "clients_left": self.left,
            "under_way": self.under_way,
            "errors": all,
            "destinations": self.shares().map(|(place, share)| place.json(share)).collect::<Value>(),
            "steps": self.steps.iter().map(|step| step.json(&self.places[step.index].id, explain)).collect::<Value>(),
            "ejections_skipped": self.skipped,
            "panics": spans(&self.panics),
        })
    }
}

fn end(spans: &mut [(Duration, Option<Duration>)], at: Duration) {
    if let Some((_, until @ None)) = spans.last_mut() {
        *until = Some(at);
    }
}

fn ms(at: Duration) -> u64 {
    u64::try_from(at.as_millis()).unwrap_or(u64::MAX)
}

fn spans(spans: &[(Duration, Option<Duration>)]) -> Value {
    spans.iter().map(|(from, to)| json!({ "from_ms": ms(*from), "to_ms": to.map(ms) })).collect()
}

impl Of {
    fn json(&self, share: f64) -> Value {
        let mut failures: Map<String, Value> =
            self.failures.iter().map(|(word, count)| (word.to_string(), (*count).into())).collect();
        failures.extend(self.errors.iter().map(|(status, count)| (status.to_string(), (*count).into())));
        json!({
            "id": self.id,
            "requests": self.requests,
            "share": (share * 1e4).round() / 1e4,
            "failures": failures,
            "out": spans(&self.absences),
        })
    }
}

impl Step {
    /// As people read it, from and to.
    fn change(&self) -> (&'static str, &'static str) {
        let word = |healthy| if healthy { "healthy" } else { "unhealthy" };
        (word(self.told.decision.was_healthy), word(self.told.decision.is_healthy))
    }

    fn json(&self, id: &str, explain: bool) -> Value {
        let (from, to) = self.change();
        let told = &self.told;
        let mut step = json!({
            "at_ms": ms(self.at),
            "destination": id,
            "step": told.decision.step,
            "from": from,
            "to": to,
            "reason": told.decision.reason.as_str(),
            "why": told.why(),
            "next": told.next.to_string(),
        });
        if explain {
            step["explanation"] = json!(**told);
        }
        step
    }
}

/// The table; `explain` adds the marks and the evidence of each step.
pub struct Told<'a> {
    pub findings: &'a Findings,
    pub explain: bool,
}

impl Display for Told<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let findings = self.findings;
        let Findings { cluster, seed, length, under_way, left, .. } = findings;
        writeln!(f, "cluster {cluster}, seed {seed}: {} requests in {}", findings.requests(), Since(*length))?;
        if !findings.steps.is_empty() {
            writeln!(f, "\nsteps of health")?;
        }
        let widest = findings.places.iter().map(|place| place.id.chars().count()).max().unwrap_or_default();
        for step in &findings.steps {
            self.step(f, step, widest)?;
        }
        for (from, to) in &findings.panics {
            writeln!(f, "  panic {}", Between(*from, *to))?;
        }
        if findings.skipped > 0 {
            writeln!(f, "  {} more ejections skipped for max_ejected", findings.skipped)?;
        }
        writeln!(f, "\ndestinations")?;
        for (place, share) in findings.shares() {
            let Of { id, requests, .. } = place;
            write!(f, "  {id:widest$}  {requests:>9} {:>6.1}%{}", share * 100.0, Failed(place))?;
            writeln!(f, "{}", Absent(&place.absences))?;
        }
        writeln!(f, "\nclients")?;
        for (status, span) in &findings.answers {
            write!(f, "  {status}  {:>9}", span.count)?;
            match status {
                500.. => writeln!(f, "  first at {}, last at {}", Since(span.first), Since(span.last))?,
                _ => writeln!(f)?,
            }
        }
        if *left > 0 {
            writeln!(f, "  left {left:>9}")?;
        }
        if *under_way > 0 {
            writeln!(f, "  {under_way} under way at the end")?;
        }
        let errors: u64 = findings.errors().map(|(_, span)| span.count).sum();
        writeln!(f, "  {errors} of {} saw an error", findings.requests())
    }
}

impl Told<'_> {
    fn step(&self, f: &mut fmt::Formatter<'_>, step: &Step, widest: usize) -> fmt::Result {
        let (id, (from, to)) = (&self.findings.places[step.index].id, step.change());
        let Explanation { decision, next, marks_before, evidence, .. } = &*step.told;
        let (at, reason, what) = (Since(step.at).to_string(), decision.reason.as_str(), decision.step.as_str());
        write!(f, "  {at:>9}  {id:widest$}  {from} → {to}  {reason} {what}: {}", step.told.why())?;
        let next = next.to_string();
        match next.is_empty() {
            true => writeln!(f)?,
            false => writeln!(f, "; next: {next}")?,
        }
        if !self.explain {
            return Ok(());
        }
        let marks: Vec<&str> = marks_before.iter().map(|reason| reason.as_str()).collect();
        writeln!(f, "{:13}marks before: {}", "", if marks.is_empty() { "none".to_string() } else { marks.join(", ") })?;
        evidence.iter().try_for_each(|seen| writeln!(f, "{:13}{}", "", Seen(seen)))
    }
}

/// `12.345s`, as short as it goes.
struct Since(Duration);

impl Display for Since {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, ms) = (self.0.as_secs(), self.0.subsec_millis());
        match ms {
            0 => write!(f, "{seconds}s"),
            ms => write!(f, "{seconds}.{}s", format!("{ms:03}").trim_end_matches('0')),
        }
    }
}

struct Between(Duration, Option<Duration>);

impl Display for Between {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.1 {
            Some(to) => write!(f, "from {} to {}", Since(self.0), Since(to)),
            None => write!(f, "from {} to the end", Since(self.0)),
        }
    }
}

/// What failed at a destination, by kind.
struct Failed<'a>(&'a Of);

impl Display for Failed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let statuses = self.0.errors.iter().map(|(status, count)| format!("{count} {status}"));
        let words = self.0.failures.iter().map(|(word, count)| format!("{count} {word}"));
        let all: Vec<String> = words.chain(statuses).collect();
        if all.is_empty() { Ok(()) } else { write!(f, "  {}", all.join(", ")) }
    }
}

struct Absent<'a>(&'a [(Duration, Option<Duration>)]);

impl Display for Absent<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            [] => Ok(()),
            [(from, to)] => write!(f, "  out {}", Between(*from, *to)),
            [(from, _), .., (_, to)] => write!(f, "  out {} times {}", self.0.len(), Between(*from, *to)),
        }
    }
}

/// Evidence, with its time since the start.
struct Seen<'a>(&'a Evidence);

impl Display for Seen<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Evidence { at, by, what, counted, latency_ms } = self.0;
        let by = if matches!(by, By::Probe) { "probe" } else { "traffic" };
        let counted = match counted {
            Counted::Failure => "failure",
            Counted::Success => "success",
            Counted::Neither => "not counted",
        };
        write!(
            f,
            "{:>9}  {by:7}  {counted:11}  {what} in {latency_ms:.1} ms",
            Since(Duration::from_millis(at.0)).to_string()
        )
    }
}
