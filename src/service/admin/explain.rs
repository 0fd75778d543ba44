//! Why a destination is as it is, for whoever was woken by it: what is so now comes first, what led to it last.

use super::told::{Told, joined};
use super::view::marks;
use crate::config::show_duration;
use crate::health::{By, Circuit, Counted, Evidence, Explanation, Step};
use crate::model::{Member, Reason, Stamp};
use crate::runtime::Cluster;
use serde_json::{Value, json};
use std::fmt::{self, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub struct Report<'a> {
    cluster: &'a Cluster,
    member: &'a Member,
    told: Told,
    history: Vec<Arc<Explanation>>,
    evidence: Vec<Evidence>,
}

/// In the text; all else about them is in the JSON.
const REPEATED: u32 = 2;

impl<'a> Report<'a> {
    pub fn of(cluster: &'a Cluster, member: &'a Member, now: Instant) -> Self {
        let standing = cluster.standing(member);
        let told = Told::of(cluster, member, &standing, now);
        let (history, evidence) = (standing.history().cloned().collect(), standing.evidence());
        Report { cluster, member, told, history, evidence }
    }

    pub fn json(&self) -> Value {
        let told = &self.told;
        json!({
            "cluster": self.cluster.name,
            "destination": self.member.destination.id,
            "address": self.member.destination.endpoint.to_string(),
            "now": told.now.to_string(),
            "state": told.state.as_str(),
            "since": told.since.map(|since| since.to_string()),
            "available": told.available,
            "marks": marks(told),
            "why": joined(&told.why()),
            "next": joined(&told.next()),
            "penalty": told.penalty,
            "breaker": told.circuit.map(circuit),
            "overrides": told.overrides(),
            "history": self.history.iter().map(|step| json!(**step)).collect::<Vec<_>>(),
            "evidence": self.evidence,
        })
    }

    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing into a text cannot fail.
        let _ = self.write(&mut text);
        text
    }

    fn write(&self, out: &mut String) -> fmt::Result {
        self.write_state(out)?;
        self.write_why(out)?;
        self.write_ahead(out)?;
        out.write_str("\nsteps, newest first\n")?;
        for step in self.history.iter().rev() {
            writeln!(out, "  {}  {}", step.at, sentence(step))?;
        }
        if self.history.is_empty() {
            out.write_str("  none yet\n")?;
        }
        out.write_str("\nseen, newest first\n")?;
        for seen in self.evidence.iter().rev() {
            writeln!(out, "  {seen}")?;
        }
        if self.evidence.is_empty() {
            out.write_str("  nothing yet\n")?;
        }
        Ok(())
    }

    fn write_state(&self, out: &mut String) -> fmt::Result {
        let Report { cluster, member, told, .. } = self;
        let destination = &member.destination;
        write!(out, "{} of cluster {} is {}", destination.id, cluster.name, told.state.as_str())?;
        if let Some(since) = told.since {
            write!(out, " since {} ({})", whole(since), ago(told.now, since))?;
        }
        writeln!(out, ": {}", told.gets(member))?;
        let (in_flight, weight) = (member.live.in_flight(), member.weight());
        write!(out, "address  {}, {in_flight} in flight, weight {weight}", destination.endpoint)?;
        if weight != destination.weight {
            write!(out, " ({} configured)", destination.weight)?;
        }
        match &told.last_probe {
            Some(seen) => writeln!(out, ", last probe: {seen}"),
            None => writeln!(out),
        }
    }

    fn write_why(&self, out: &mut String) -> fmt::Result {
        let told = &self.told;
        for ((reason, why), (_, marked)) in told.why().iter().zip(&told.marks) {
            let judge = reason.map_or("", Reason::as_str);
            writeln!(out, "why      {judge}: {why}")?;
            let Some(marked) = marked else { continue };
            let at = marked.set.at;
            write!(out, "         {} at {} ({})", marked.set.decision.step.as_str(), at.of_day(), ago(told.now, at))?;
            if marked.times >= REPEATED {
                write!(out, ", {} times since {}", marked.times, whole(marked.since))?;
            }
            if let Some(half_open) = &marked.half_open {
                write!(out, "; half-open at {}: {}", half_open.at.of_day(), half_open.why())?;
            }
            writeln!(out, "; seen until then: {}", summary(&marked.set.evidence))?;
        }
        if told.marks.is_empty() {
            match &told.last {
                Some(last) => {
                    writeln!(out, "why      no mark stands; last step {}: {}", ago(told.now, last.at), sentence(last))?
                }
                None => writeln!(out, "why      no mark stands, and none was ever set")?,
            }
        }
        if let Some(skipped) = &told.skipped {
            let at = skipped.at;
            writeln!(out, "note     a detector fired {} and could not eject: {}", ago(told.now, at), skipped.limit())?;
            writeln!(out, "         {}", skipped.why())?;
        }
        match &self.cluster.settings.passive {
            Some(_) if self.evidence.iter().any(is_uncounted) => {
                writeln!(
                    out,
                    "note     it answered with 5xx, which is no failure here: health.passive.count lacks \"5xx\""
                )
            }
            _ => Ok(()),
        }
    }

    fn write_ahead(&self, out: &mut String) -> fmt::Result {
        let told = &self.told;
        let next = told.next();
        for (reason, words) in &next {
            match reason {
                Some(reason) if next.len() > 1 => writeln!(out, "next     {}: {words}", reason.as_str())?,
                _ => writeln!(out, "next     {words}")?,
            }
        }
        if told.penalty > 1.0 {
            let times = (told.penalty * 100.0).round() / 100.0;
            writeln!(
                out,
                "penalty  {times}: so many times its period the next ejection lasts; each success halves it"
            )?;
        }
        for given in &told.orders {
            write!(out, "order    {}, by {} since {}", given.order.words(), given.by, whole(given.since))?;
            match given.until {
                Some(until) => writeln!(out, ", until {} (in {})", whole(until), span(until.since(told.now)))?,
                None => writeln!(out, ", until another")?,
            }
        }
        match told.circuit {
            Some(circuit) => writeln!(out, "breaker  {}", self::circuit(circuit)),
            None => Ok(()),
        }
    }
}

/// A step in a line.
fn sentence(step: &Explanation) -> String {
    let decision = step.decision;
    let mut line = format!("{} ({}): {}", decision.step.as_str(), decision.reason.as_str(), step.why());
    if decision.step == Step::EjectionSkipped {
        line += &format!("; {}", step.limit());
    }
    let next = step.next.to_string();
    if next.is_empty() { line } else { format!("{line}; {next}") }
}

/// `27 × 200, 5 × refused; probes: 2 × 503`
fn summary(evidence: &[Evidence]) -> String {
    let (probes, traffic): (Vec<&Evidence>, Vec<&Evidence>) = evidence.iter().partition(|seen| seen.by == By::Probe);
    let probes = (!probes.is_empty()).then(|| format!("probes {}", counts(&probes)));
    let parts: Vec<String> = (!traffic.is_empty()).then(|| counts(&traffic)).into_iter().chain(probes).collect();
    if parts.is_empty() { "nothing".to_string() } else { parts.join("; ") }
}

/// In the order in which each was first seen.
fn counts(evidence: &[&Evidence]) -> String {
    let mut counted: Vec<(&str, usize)> = Vec::new();
    for seen in evidence {
        match counted.iter_mut().find(|(what, _)| *what == seen.what) {
            Some((_, count)) => *count += 1,
            None => counted.push((&seen.what, 1)),
        }
    }
    counted.iter().map(|(what, count)| format!("{count} × {what}")).collect::<Vec<_>>().join(", ")
}

fn is_uncounted(seen: &Evidence) -> bool {
    let is_5xx = seen.what.parse().is_ok_and(|status: u16| (500..600).contains(&status));
    is_5xx && seen.by != By::Probe && seen.counted == Counted::Success
}

fn circuit(circuit: Circuit) -> &'static str {
    match circuit {
        Circuit::Closed => "closed",
        Circuit::Open { .. } => "open",
        Circuit::HalfOpen { .. } => "half_open",
    }
}

/// To the second.
fn whole(at: Stamp) -> String {
    let shown = at.to_string();
    shown.split_once('.').map_or(shown.clone(), |(seconds, _)| format!("{seconds}Z"))
}

fn ago(now: Stamp, then: Stamp) -> String {
    format!("{} ago", span(now.since(then)))
}

/// To the second, from a second on.
fn span(time: Duration) -> String {
    match time.as_secs() {
        0 => show_duration(time),
        seconds => show_duration(Duration::from_secs(seconds)),
    }
}
