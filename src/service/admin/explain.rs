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
            writeln!(out, "; seen until then: {}", summary(&marked.set.evidence))?;
            if let Some(half_open) = &marked.half_open {
                writeln!(out, "         half-open at {}: {}", half_open.at.of_day(), half_open.why())?;
            }
            if marked.times > 1 {
                let (first, times) = (&marked.first, marked.times);
                writeln!(out, "         {times} times since {}, at first: {}", whole(first.at), first.why())?;
            }
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
        if told.marks.len() > 1 {
            out.write_str("         in again when no mark stands\n")?;
        }
        if told.penalty > 1.0 {
            let times = (told.penalty * 100.0).round() / 100.0;
            writeln!(out, "penalty  the next ejection lasts {times} times its period; each success halves that")?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health::{Attempted, Event, Order, Override};
    use crate::model::Outcome;
    use crate::runtime::testing::compiled;
    use std::sync::Arc;

    /// Destinations `a` and `b` of cluster `c` on scripted time, which begins in 1970.
    struct Case {
        cluster: Arc<Cluster>,
        start: Instant,
        now: Instant,
    }

    impl Case {
        fn new(destination: &str, health: &str) -> Case {
            let text = format!(
                "listeners: {{ web: \"127.0.0.1:1\" }}\nroutes: {{ all: {{ cluster: c }} }}\nclusters:\n  c:\n    destinations:\n      \
                 a: {{ address: \"http://127.0.0.1:7001\"{destination} }}\n      b: \"http://127.0.0.1:7002\"\n    health: {health}\n"
            );
            let cluster = compiled(&text).1.clusters[0].clone();
            let start = cluster.standing(&cluster.members[0]).epoch().instant;
            Case { cluster, start, now: start }
        }

        fn at(&mut self, seconds: u64) -> &mut Case {
            self.now = self.start + Duration::from_secs(seconds);
            self.cluster.due(self.now);
            self
        }

        fn outcomes(&mut self, member: usize, outcome: Outcome, count: usize) -> &mut Case {
            let member = &self.cluster.members[member];
            for _ in 0..count {
                let lease = member.live.lease(None).expect("no bound");
                let (ticket, begun, route) = (lease.ticket(), self.now, &Arc::from("all"));
                let attempted =
                    Attempted { outcome, ticket, begun, route, attempt: 1, latency: Duration::from_millis(2) };
                self.cluster.judge(member, Event::Outcome(attempted), self.now);
            }
            self
        }

        fn probe(&mut self, passed: bool, cause: &str) -> &mut Case {
            let event = Event::Probe { passed, cause: cause.to_string(), begun: self.now };
            self.cluster.judge(&self.cluster.members[0], event, self.now);
            self
        }

        fn order(&mut self, order: Order, lasts: Option<u64>) -> &mut Case {
            let event =
                Event::Operator { order, lasts: lasts.map(Duration::from_secs), by: "127.0.0.1:40312".to_string() };
            self.cluster.judge(&self.cluster.members[0], event, self.now);
            self
        }

        /// Without steps and evidence.
        fn head(&self) -> String {
            let text = self.text();
            text.split("\nsteps,").next().unwrap_or_default().to_string()
        }

        fn text(&self) -> String {
            Report::of(&self.cluster, &self.cluster.members[0], self.now).text()
        }
    }

    #[test]
    fn given_a_destination_ejected_again_when_explained_then_the_page_is_this() {
        let mut case = Case::new("", "{ passive: { detectors: [{ policy: ConsecutiveFailures, failures: 2 }] } }");
        case.at(60).outcomes(0, Outcome::Status(200), 3).outcomes(0, Outcome::Refused, 2);
        case.at(70).outcomes(0, Outcome::ClientAbort, 1);
        let member = &case.cluster.members[0];
        let mut trial = member.live.lease(None).expect("no bound").ticket();
        trial.trial = true;
        let (begun, route) = (case.now, &Arc::from("all"));
        let outcome = Outcome::Reset;
        let failed = Attempted { outcome, ticket: trial, begun, route, attempt: 2, latency: Duration::from_millis(1) };
        case.cluster.judge(member, Event::Outcome(failed), case.now);
        case.at(83);
        let expected = "a of cluster c is unhealthy since 1970-01-01T00:01:10Z (13s ago): gets no requests
address  http://127.0.0.1:7001, 0 in flight, weight 1
why      passive: a trial failed: reset
         ejected again at 00:01:10Z (13s ago); seen until then: 3 × 200, 2 × refused, 1 × client_abort, 1 × reset
         2 times since 1970-01-01T00:01:00Z, at first: ConsecutiveFailures (failures 2): failures in a row 2 ≥ 2
next     half-open in 7s, at 00:01:30Z (period 10s, longer for want of a success since the last)
penalty  the next ejection lasts 4 times its period; each success halves that

steps, newest first
  1970-01-01T00:01:10.000Z  ejected again (passive): a trial failed: reset; half-open in 20s (period 10s, longer for want of a success since the last)
  1970-01-01T00:01:10.000Z  half-open (passive): its time is over (10s); one request at a time is on trial
  1970-01-01T00:01:00.000Z  ejected (passive): ConsecutiveFailures (failures 2): failures in a row 2 ≥ 2; half-open in 10s

seen, newest first
  1970-01-01T00:01:10.000Z  traffic  failure     reset in 1.0 ms, route all, attempt 2
  1970-01-01T00:01:10.000Z  traffic  not counted client_abort in 2.0 ms, route all, attempt 1
  1970-01-01T00:01:00.000Z  traffic  failure     refused in 2.0 ms, route all, attempt 1
  1970-01-01T00:01:00.000Z  traffic  failure     refused in 2.0 ms, route all, attempt 1
  1970-01-01T00:01:00.000Z  traffic  success     200 in 2.0 ms, route all, attempt 1
  1970-01-01T00:01:00.000Z  traffic  success     200 in 2.0 ms, route all, attempt 1
  1970-01-01T00:01:00.000Z  traffic  success     200 in 2.0 ms, route all, attempt 1
";
        assert_eq!(case.text(), expected);
    }

    #[test]
    fn given_orders_and_an_open_circuit_when_explained_then_each_mark_has_its_rule_and_its_way_back() {
        let health = "{ active: tcp, passive: off, breaker: { threshold: 2, sleep: 30s } }";
        let mut case = Case::new(", weight: 3", health);
        case.at(10).outcomes(0, Outcome::Status(200), 20).outcomes(0, Outcome::Refused, 2);
        case.at(12).probe(false, "connection refused").order(Order::Weight(Some(5)), Some(3600));
        case.at(15).order(Order::Override(Override::Drain), None);
        case.at(20);
        let head = case.head();
        for line in [
            "a of cluster c is draining since 1970-01-01T00:00:15Z (5s ago): no new requests",
            "address  http://127.0.0.1:7001, 0 in flight, weight 5 (3 configured), last probe: connection refused",
            "why      breaker: breaker (window 10s, threshold 2): failures in the window 2 ≥ 2",
            "why      operator: drain, by 127.0.0.1:40312",
            "next     breaker: half-open in 20s, at 00:00:40Z",
            "next     operator: until the operator says `ready`",
            "         in again when no mark stands",
            "order    drain, by 127.0.0.1:40312 since 1970-01-01T00:00:15Z, until another",
            "order    weight 5, by 127.0.0.1:40312 since 1970-01-01T00:00:12Z, until 1970-01-01T01:00:12Z (in 59m52s)",
            "breaker  open",
        ] {
            assert!(head.lines().any(|told| told == line), "{line}\nin\n{head}");
        }
    }

    #[test]
    fn given_other_states_when_explained_then_what_it_gets_is_said_first() {
        let begins = |case: &Case, begin: &str| assert!(case.head().starts_with(begin), "{}", case.head());
        begins(&Case::new(", enabled: false", "{}"), "a of cluster c is disabled: gets nothing (enabled: false)\n");
        begins(&Case::new(", weight: 0", "{}"), "a of cluster c is unknown: no new requests (weight 0)\n");
        let case = Case::new("", "{ active: tcp, initial: probe_first }");
        begins(&case, "a of cluster c is unhealthy: gets no requests\n");
        assert!(case.head().contains("\nwhy      unprobed: waits for its first probe (initial: probe_first)\n"));
        assert!(case.head().contains("\nnext     back when its probes pass\n"));
        // Half of two is one: the second to fail stays in.
        let mut case = Case::new("", "{ passive: { reactivation: off } }");
        case.at(5).outcomes(0, Outcome::Status(200), 1).outcomes(1, Outcome::Refused, 5).outcomes(0, Outcome::Reset, 5);
        begins(
            &case,
            "a of cluster c is healthy since 1970-01-01T00:00:05Z (0s ago): gets its share of the requests\n",
        );
        let note = "\nnote     a detector fired 0s ago and could not eject: 1 of at most 1 are out (max_ejected)\n";
        assert!(case.head().contains(note), "{}", case.head());
    }
}
