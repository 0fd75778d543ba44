//! Why a destination's health changed, told so that the decision can be made again from what is told: [`replay`] does.

use super::Evidence;
use super::passive::Measure;
use crate::config::show_duration;
use crate::model::{Reason, Stamp};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// One step of a destination's health, with all that led to it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Explanation {
    pub at: Stamp,
    pub decision: Decision,
    /// The marks that stood before it.
    pub marks_before: Vec<Reason>,
    pub rule: Rule,
    pub next: Next,
    /// What was last seen, oldest first.
    pub evidence: Vec<Evidence>,
}

/// What was decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    pub step: Step,
    /// The judge.
    pub reason: Reason,
    /// Without any mark, before it and after it.
    pub was_healthy: bool,
    pub is_healthy: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// The judge set its mark: the active check, or the operator.
    MarkedOut,
    /// The judge lifted its mark.
    Readmitted,
    /// A detector fired.
    Ejected,
    /// A trial failed.
    EjectedAgain,
    /// A detector fired, and as many are out already as may be.
    EjectionSkipped,
    /// Trials decide from here.
    HalfOpen,
    CircuitOpened,
    CircuitClosed,
    /// The operator set another weight, or the configuration's holds again.
    Reweighted,
}

/// What was met, with its numbers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rule {
    /// Findings of the active check in a row.
    Probes { passed: bool, in_a_row: u32, needed: u32, causes: Vec<String> },
    /// `initial: probe_first`, and the very first probe failed.
    FirstProbe { cause: String },
    /// A passive detector, or the breaker's threshold. `out` and `most`: how many were ejected with it, and how many may be.
    Detector { policy: String, parameters: String, measures: Vec<Measure>, out: u32, most: u32 },
    /// `mode: full`: no detector's rate is over its limit any more.
    Recovered,
    /// A request on trial, or one served in a panic.
    Trial { passed: bool, outcome: String, passes: u32, needed: u32 },
    /// Probes of a destination that is half-open and gets no traffic.
    TrialProbes { passes: u32, needed: u32 },
    /// A probe that began after the ejection passed.
    LiftingProbe { ejected: Stamp, begun: Stamp },
    /// The time set is over; `full`: without trials.
    TimeOver { set: Stamp, lasted_ms: u64, full: bool },
    /// The operator's order.
    Operator { order: String, by: String },
    /// The configuration no longer has the judge.
    Reload,
    /// The configuration disabled the destination.
    Disabled,
    /// The process before had judged otherwise, and handed that over.
    HandedOver,
}

/// What follows by itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Next {
    Nothing,
    /// Half-open when the time is over: the period written, times the penalty.
    HalfOpen {
        in_ms: u64,
        period_ms: u64,
        sooner_by_probe: bool,
    },
    /// `mode: full`: all traffic again when the time is over.
    FullTraffic {
        in_ms: u64,
        period_ms: u64,
        window_ms: u64,
    },
    /// `reactivation: off`
    Never,
    /// `reactivation: off`, and an active check: half-open when a probe passes.
    NextProbe,
    /// Back when so many probes in a row passed.
    Probes {
        needed: u32,
    },
    /// So many requests at a time are on trial.
    Trials {
        at_a_time: u32,
    },
    /// Half-open after the breaker's sleep.
    Sleep {
        in_ms: u64,
    },
    /// Its share of the traffic grows to its weight.
    Ramp {
        over_ms: u64,
    },
    /// The operator's order ends by itself.
    OrderEnds {
        in_ms: u64,
    },
    /// The operator's order to leave goes on as maintenance.
    Maintenance {
        in_ms: u64,
    },
    /// The operator ends it.
    Operator,
}

/// Before the name of an order whose time is over.
pub const END_OF: &str = "end of ";

/// Who ends an order whose time is over.
pub(super) const BY_TIME: &str = "its time";

impl Explanation {
    /// As it is told by a clock that is so many milliseconds ahead of the one it was told by.
    pub(super) fn shifted(mut self, ahead: i64) -> Self {
        let shift = |stamp: &mut Stamp| stamp.0 = stamp.0.saturating_add_signed(ahead);
        shift(&mut self.at);
        self.evidence.iter_mut().for_each(|seen| shift(&mut seen.at));
        match &mut self.rule {
            Rule::LiftingProbe { ejected, begun } => [ejected, begun].into_iter().for_each(shift),
            Rule::TimeOver { set, .. } => shift(set),
            _ => {}
        }
        self
    }

    /// The rule with its numbers, in a line.
    pub fn why(&self) -> String {
        self.rule.words()
    }

    /// Why a detector that fired did not eject; empty of any other rule.
    pub fn limit(&self) -> String {
        match &self.rule {
            Rule::Detector { out, most, .. } => format!("{out} of at most {most} are out (max_ejected)"),
            _ => String::new(),
        }
    }

    /// An order that ended by itself, not by another.
    pub fn by_time(&self) -> bool {
        matches!(&self.rule, Rule::Operator { by, .. } if by == BY_TIME)
    }

    /// When the next step is due, where that is known.
    pub fn next_at(&self) -> Option<Stamp> {
        let in_ms = match self.next {
            Next::HalfOpen { in_ms, .. }
            | Next::FullTraffic { in_ms, .. }
            | Next::Sleep { in_ms }
            | Next::Ramp { over_ms: in_ms }
            | Next::OrderEnds { in_ms }
            | Next::Maintenance { in_ms } => in_ms,
            _ => return None,
        };
        Some(Stamp(self.at.0.saturating_add(in_ms)))
    }

    /// What comes next, for who reads it at `now`; empty where nothing does.
    pub fn ahead(&self, now: Stamp) -> Ahead<'_> {
        Ahead { explanation: self, now }
    }
}

/// [`Next`] as it is later: `half-open in 7s, at 03:12:04Z`.
pub struct Ahead<'a> {
    explanation: &'a Explanation,
    now: Stamp,
}

impl fmt::Display for Ahead<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.explanation.next.write(f, self.explanation.next_at().map(|at| (at, self.now)))
    }
}

impl Step {
    pub fn as_str(self) -> &'static str {
        match self {
            Step::MarkedOut => "marked out",
            Step::Readmitted => "mark lifted",
            Step::Ejected => "ejected",
            Step::EjectedAgain => "ejected again",
            Step::EjectionSkipped => "ejection skipped",
            Step::HalfOpen => "half-open",
            Step::CircuitOpened => "circuit opened",
            Step::CircuitClosed => "circuit closed",
            Step::Reweighted => "reweighted",
        }
    }
}

/// Makes the decision again, from nothing but what the explanation holds; `None` when its rule is not met by its numbers.
pub fn replay(explanation: &Explanation) -> Option<Decision> {
    let Explanation { rule, decision: Decision { reason, .. }, marks_before, .. } = explanation;
    let step = rule.decide(*reason, marks_before.contains(reason))?;
    let was_healthy = marks_before.is_empty();
    let others = marks_before.iter().any(|mark| mark != reason);
    let is_healthy = match step {
        Step::MarkedOut | Step::Ejected | Step::EjectedAgain | Step::CircuitOpened => false,
        Step::Readmitted | Step::CircuitClosed => !others,
        Step::EjectionSkipped | Step::HalfOpen | Step::Reweighted => was_healthy,
    };
    Some(Decision { step, reason: *reason, was_healthy, is_healthy })
}

impl Rule {
    fn decide(&self, reason: Reason, marked: bool) -> Option<Step> {
        let (out, back) = match reason {
            Reason::Breaker => (Step::CircuitOpened, Step::CircuitClosed),
            Reason::Passive => (if marked { Step::EjectedAgain } else { Step::Ejected }, Step::Readmitted),
            _ => (Step::MarkedOut, Step::Readmitted),
        };
        match self {
            Rule::Probes { passed, in_a_row, needed, .. } => {
                (in_a_row >= needed).then_some(if *passed { back } else { out })
            }
            Rule::FirstProbe { .. } => Some(out),
            Rule::Detector { measures, .. } if !measures.iter().all(Measure::is_met) => None,
            Rule::Detector { out: others, most, .. } if reason == Reason::Passive && others >= most => {
                Some(Step::EjectionSkipped)
            }
            Rule::Detector { .. } => Some(out),
            Rule::Recovered | Rule::Reload | Rule::Disabled | Rule::HandedOver => Some(back),
            Rule::Trial { passed: false, .. } => Some(out),
            Rule::Trial { passes, needed, .. } | Rule::TrialProbes { passes, needed } => {
                (passes >= needed).then_some(back)
            }
            Rule::LiftingProbe { ejected, begun } => (begun >= ejected).then_some(Step::HalfOpen),
            Rule::TimeOver { full, .. } => Some(if *full { back } else { Step::HalfOpen }),
            Rule::Operator { order, .. } => match order.as_str() {
                "drain" | "leave" | "maint" | "eject" => Some(out),
                order if order.starts_with("weight") => Some(Step::Reweighted),
                _ => Some(back),
            },
        }
    }

    fn words(&self) -> String {
        match self {
            Rule::Probes { passed, in_a_row, needed, causes } => {
                let (word, rule) = if *passed { ("passed", "healthy_after") } else { ("failed", "unhealthy_after") };
                let times = times(*in_a_row);
                format!("active check {word} {times} in a row ({rule} {needed}): {}", causes.join(", "))
            }
            Rule::FirstProbe { cause } => format!("the first probe failed (initial: probe_first): {cause}"),
            Rule::Detector { policy, parameters, measures, .. } => {
                let met: Vec<String> = measures.iter().map(ToString::to_string).collect();
                format!("{policy} ({parameters}): {}", met.join(", "))
            }
            Rule::Recovered => "no detector is over its limit any more (mode: full)".to_string(),
            Rule::Trial { passed, outcome, passes, needed } => match passed {
                false => format!("a trial failed: {outcome}"),
                true => format!("trial passed: {outcome} ({passes} of {needed})"),
            },
            Rule::TrialProbes { passes, needed } => {
                format!("half-open without traffic, and its probes passed {} ({needed} needed)", times(*passes))
            }
            Rule::LiftingProbe { .. } => "a probe begun after the ejection passed (lifted_by_probe)".to_string(),
            // Not to the millisecond: what is due is looked at now and then.
            Rule::TimeOver { lasted_ms, .. } if *lasted_ms >= 1_000 => {
                format!("its time is over ({})", duration(lasted_ms / 1_000 * 1_000))
            }
            Rule::TimeOver { lasted_ms, .. } => format!("its time is over ({})", duration(*lasted_ms)),
            Rule::Operator { order, by } => format!("{order}, by {by}"),
            Rule::Reload => "the configuration no longer has this judge".to_string(),
            Rule::Disabled => "the destination is disabled (enabled: false)".to_string(),
            Rule::HandedOver => "the process before knew better".to_string(),
        }
    }
}

impl fmt::Display for Measure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Measure { what, value, limit } = self;
        match *limit > 0.0 {
            true => write!(f, "{what} {} ≥ {}", rounded(*value), rounded(*limit)),
            false => write!(f, "{what} {}", rounded(*value)),
        }
    }
}

impl fmt::Display for Next {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, None)
    }
}

impl Next {
    /// `due`: when it is due, and what time it is.
    fn write(&self, f: &mut fmt::Formatter<'_>, due: Option<(Stamp, Stamp)>) -> fmt::Result {
        let when = |in_ms: u64| match due {
            None => format!("in {}", duration(in_ms)),
            Some((at, now)) if at > now => format!("in {}, at {}", left(at.since(now)), at.of_day()),
            Some(_) => "now".to_string(),
        };
        match self {
            Next::Nothing => Ok(()),
            Next::HalfOpen { in_ms, period_ms, sooner_by_probe } => {
                write!(f, "half-open {}", when(*in_ms))?;
                if in_ms > period_ms {
                    write!(f, " (period {}, longer for want of a success since the last)", duration(*period_ms))?;
                }
                if *sooner_by_probe { f.write_str(", or by the next probe that passes") } else { Ok(()) }
            }
            Next::FullTraffic { in_ms, period_ms, window_ms } => {
                write!(f, "reactivation {}", when(*in_ms))?;
                if window_ms > period_ms {
                    write!(f, " (period {} raised to the {} window)", duration(*period_ms), duration(*window_ms))?;
                }
                Ok(())
            }
            Next::NextProbe => f.write_str("half-open by the next probe that passes (reactivation: off)"),
            Next::Never => f.write_str("never by itself (reactivation: off)"),
            Next::Probes { needed } => write!(f, "back when its probes pass {} in a row", times(*needed)),
            Next::Trials { at_a_time: 1 } => f.write_str("one request at a time is on trial"),
            Next::Trials { at_a_time } => write!(f, "{at_a_time} requests at a time are on trial"),
            Next::Sleep { in_ms } => write!(f, "half-open {}", when(*in_ms)),
            Next::Ramp { over_ms } => match due {
                None => write!(f, "its share grows for {} (slow_start)", duration(*over_ms)),
                Some(_) => write!(f, "its whole share {} (slow_start)", when(*over_ms)),
            },
            Next::OrderEnds { in_ms } => write!(f, "the order ends {}", when(*in_ms)),
            Next::Maintenance { in_ms } => write!(f, "sessions go elsewhere {} (maint)", when(*in_ms)),
            Next::Operator => f.write_str("until the operator says `ready`"),
        }
    }
}

fn times(n: u32) -> String {
    if n == 1 { "once".into() } else { format!("{n} times") }
}

fn duration(ms: u64) -> String {
    seconds(Duration::from_millis(ms))
}

/// From a second on rounded up to whole ones.
fn left(duration: Duration) -> String {
    match duration.as_millis().div_ceil(1_000) {
        0 | 1 => seconds(duration),
        whole => seconds(Duration::from_secs(u64::try_from(whole).unwrap_or(u64::MAX))),
    }
}

/// Up to two minutes in seconds, as periods and windows are written.
pub(super) fn seconds(duration: Duration) -> String {
    match duration.subsec_nanos() == 0 && (1..120).contains(&duration.as_secs()) {
        true => format!("{}s", duration.as_secs()),
        false => show_duration(duration),
    }
}

/// Two decimals at most, none where there are none.
fn rounded(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}
