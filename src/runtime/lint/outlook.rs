//! What can be told beforehand: how fast a dead destination is noticed, what a request may come to, what destinations must
//! do, and what probing costs.

use super::worst::Worst;
use super::{Case, ejecting, keepalive};
use crate::config::{self, Config, Count, show_duration};
use crate::health::passive::{PassivePolicy, Sample};
use crate::health::{Breaker, Breaking, Threshold};
use crate::runtime::Snapshot;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

/// Failures that are tried out at most: no key takes a larger number.
const MOST: u32 = 1_000_000;

/// Lines for people, the clusters in the order of the file. Detectors are tried out as of `now`.
pub fn outlook(config: &Config, snapshot: &Snapshot, now: Instant) -> Vec<String> {
    let mut lines = Vec::new();
    let mut in_all = 0.0;
    // What clusters ask for alike is made once.
    let mut known = HashSet::new();
    for written in &config.clusters {
        let name = &written.name.value;
        let Some(case) = Case::of(config, snapshot, written) else { continue };
        let built = case.built;
        let bound = built.settings.passive.as_ref().and_then(|passive| bound(written, &passive.detectors, now));
        let opens = built.settings.breaker.as_ref().map(|(count, breaking)| opens(count, *breaking, now));
        lines.extend(bound.into_iter().chain(opens).map(|bound| format!("{name}: {bound}")));
        lines.push(format!("{name}: {}", Worst::of(config, written, built).words()));
        lines.extend(keepalive::told(&case).map(|told| format!("{name}: {told}")));
        let Some(check) = &built.check else { continue };
        let enabled: Vec<_> = built.members.iter().filter(|member| member.destination.enabled).collect();
        let seconds = check.pace.interval.as_secs_f64();
        let probes = enabled.iter().map(|member| (built.probe_signature(member), format!("{:?}", check.pace)));
        in_all += probes.filter(|probe| known.insert(probe.clone())).count() as f64 / seconds;
        let (probed, rate) = (enabled.len(), enabled.len() as f64 / seconds);
        let (probes, every) = (if probed == 1 { "probe" } else { "probes" }, show_duration(check.pace.interval));
        lines.push(format!("{name}: {probed} {probes} every {every}, {}", pace(rate)));
    }
    if in_all > 0.0 {
        lines.push(format!("probes of this instance in all: {}", pace(in_all)));
    }
    lines
}

/// At which failure a destination is out that answers nothing more: whatever was before, or else when nothing was.
fn bound(cluster: &config::Cluster, detectors: &[Arc<dyn PassivePolicy>], now: Instant) -> Option<String> {
    let (dead, failure) = named(&ejecting(cluster)?.count);
    if let Some(failures) = detectors.iter().filter_map(|detector| detector.bound()).min() {
        return Some(format!("{dead} is out at the {} {failure} in a row at the latest", ordinal(failures)));
    }
    let failures = ordinal(detectors.iter().filter_map(|detector| fires_at(&**detector, now)).min()?);
    Some(format!("{dead} is out at the {failures} {failure} in a row, later where good answers came before"))
}

/// At which failure the breaker opens, when they come within its window.
fn opens(count: &Count, breaking: Breaking, now: Instant) -> String {
    let (dead, failure) = named(count);
    let mut breaker = Breaker::new(breaking);
    let failures = (1..=MOST).find(|_| breaker.record(true, now)).unwrap_or(MOST);
    let later = match breaking.threshold {
        Threshold::Number(_) => "",
        Threshold::Share(_) => ", later where good answers came before",
    };
    let within = show_duration(breaking.window);
    format!("the breaker of {dead} opens at the {} {failure} within {within}{later}", ordinal(failures))
}

/// Who it is that is judged, and by what.
fn named(count: &Count) -> (&'static str, &'static str) {
    match count.connect {
        true => ("a dead destination", "failure"),
        false => ("a failing destination", "counted failure"),
    }
}

/// The failure at which it fires when there was nothing before.
fn fires_at(detector: &dyn PassivePolicy, now: Instant) -> Option<u32> {
    let mut tracker = detector.track();
    (1..=MOST).find(|_| tracker.record(Sample { failed: true, begun: now }, now))
}

fn ordinal(n: u32) -> String {
    let ending = match (n % 10, n % 100) {
        (_, 11..=13) => "th",
        (1, _) => "st",
        (2, _) => "nd",
        (3, _) => "rd",
        _ => "th",
    };
    format!("{n}{ending}")
}

/// So many a second, in the unit in which it is not below 1.
fn pace(a_second: f64) -> String {
    let units = [(1.0, "second"), (60.0, "minute"), (3_600.0, "hour")];
    let (factor, unit) = units.into_iter().find(|(factor, _)| a_second * factor >= 1.0).unwrap_or(units[2]);
    let rounded = (a_second * factor * 10.0).round() / 10.0;
    let article = if unit == "hour" { "an" } else { "a" };
    format!("{rounded} {article} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_numbers_when_in_words_then_as_people_say_them() {
        let said: Vec<String> = [1, 2, 3, 5, 11, 12, 13, 21, 102, 111].map(ordinal).into();
        assert_eq!(said, ["1st", "2nd", "3rd", "5th", "11th", "12th", "13th", "21st", "102nd", "111th"]);
    }

    #[test]
    fn given_a_pace_when_in_words_then_in_a_unit_in_which_it_is_a_number() {
        for (a_second, said) in [
            (300.0, "300 a second"),
            (1.0, "1 a second"),
            (0.2, "12 a minute"),
            (1.0 / 3.0, "20 a minute"),
            (1.5 / 3_600.0, "1.5 an hour"),
            (0.0, "0 an hour"),
        ] {
            assert_eq!(pace(a_second), said);
        }
    }
}
