//! What a standing hands to the one that goes on with the destination in another process.
//!
//! | judge | handed over | taken over while |
//! |---|---|---|
//! | active | its mark, the probes in a row | there is an active check |
//! | unprobed | its mark | `probe_first` |
//! | passive | an ejection and what is left of it, half-open and the probes passed, the penalty | there are detectors, the destination is enabled, and half-open is known (not to `mode: full`) |
//! | breaker | open and what is left of its sleep, half-open and the trials passed | there is one |
//! | operator | orders, who gave them, what is left of them | always |
//! | | how far its slow start is | there is one |
//! | | for people: since when it is as it is, why each mark stands, the last steps | always |
//!
//! Not handed over: what detectors and the breaker have counted, which would be each policy's own to write and is a window's worth
//! of outcomes at most (an ejection is not called over for want of them: [`Detector`](super::Detector)); what was seen, but for what set a mark that stands; latencies; requests on trial, which end where they
//! began. An ejection keeps its place whatever the limit is now.
//!
//! The later probe wins: those that this process made before it took over are judged on top of what it got when they were over
//! after the last one judged there, and say nothing new otherwise; nor do those of a destination in maintenance, which was to get
//! none.

use super::shown::Shown;
use super::{Around, Change, Decision, Held, Marked, Next, Order, Override, Ramp, Rule, Standing, State, Step, Streak};
use crate::health::{Breaker, Circuit, Explanation, Phase, Reactivation};
use crate::model::{Live, Reason, Span, Stamp, Transition};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use std::sync::Arc;
use std::time::Instant;

/// A standing for another process. Written anew for each hand-over, and read by the same version of it only.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Saved {
    /// What time it was by the clock that the explanations' times are of.
    clock: Stamp,
    state: State,
    /// `None`: it never was anything else.
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<Span>,
    known: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    probes: Option<Probes>,
    unprobed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    active: Option<Why>,
    #[serde(skip_serializing_if = "Option::is_none")]
    passive: Option<(Ejection, Why)>,
    #[serde(deserialize_with = "penalty")]
    penalty: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    breaker: Option<(Open, Why)>,
    /// Since when trials decide.
    #[serde(skip_serializing_if = "Option::is_none")]
    half_open: Option<Span>,
    any_trial: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    order: Option<(Override, Given, Why)>,
    #[serde(skip_serializing_if = "Option::is_none")]
    weight: Option<(u32, Given)>,
    /// How long ago its slow start began.
    #[serde(skip_serializing_if = "Option::is_none")]
    ramp: Option<Span>,
    /// Without what was seen.
    history: Vec<Explanation>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Probes {
    passed: bool,
    in_a_row: u32,
    causes: Vec<String>,
    last: Span,
}

/// Why a mark stands: [`Marked`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Why {
    first: Explanation,
    times: u32,
    set: Explanation,
    #[serde(skip_serializing_if = "Option::is_none")]
    half_open: Option<Explanation>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum Ejection {
    Ejected { since: Span, left: Option<Span> },
    HalfOpen { passes: u32 },
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum Open {
    Open { left: Span },
    HalfOpen { passes: u32 },
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Given {
    by: String,
    since: Span,
    /// `None`: until another.
    left: Option<Span>,
}

/// As none can grow beyond: the longest period has this many of the shortest.
const MOST_PENALTY: f64 = 1e6;
/// As an order may say.
const MOST_WEIGHT: u32 = 1_000;

fn penalty<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    let penalty = f64::deserialize(from)?;
    let is_one = (1.0..=MOST_PENALTY).contains(&penalty);
    is_one.then_some(penalty).ok_or_else(|| D::Error::custom(format_args!("{penalty} is no penalty")))
}

impl Saved {
    /// Only what decides, and why each mark stands: for what would be too much otherwise.
    pub fn shorten(&mut self) {
        self.history.clear();
        let marks = [self.active.as_mut(), self.passive.as_mut().map(|(_, why)| why)];
        let others = [self.breaker.as_mut().map(|(_, why)| why), self.order.as_mut().map(|(.., why)| why)];
        for why in marks.into_iter().chain(others).flatten() {
            let half_open = why.half_open.as_mut();
            [&mut why.first, &mut why.set].into_iter().chain(half_open).for_each(|step| step.evidence.clear());
        }
    }
}

impl Why {
    fn of(marked: &Marked) -> Self {
        let half_open = marked.half_open.as_deref().cloned();
        Why { first: without(&marked.first), times: marked.times, set: (*marked.set).clone(), half_open }
    }

    fn marked(self, ahead: i64) -> Marked {
        let told = |step: Explanation| Arc::new(step.shifted(ahead));
        let Why { first, times, set, half_open } = self;
        Marked { first: told(first), times, set: told(set), half_open: half_open.map(told) }
    }
}

fn without(step: &Explanation) -> Explanation {
    let Explanation { at, decision, marks_before, rule, next, .. } = step.clone();
    Explanation { at, decision, marks_before, rule, next, evidence: Vec::new() }
}

impl Given {
    fn of(held: &Held, now: Instant) -> Self {
        let left = held.until.map(|until| Span::between(now, until));
        Given { by: held.by.clone(), since: Span::between(held.since, now), left }
    }

    fn held(self, order: Order, now: Instant) -> Held {
        let Given { by, since, left } = self;
        Held { order, by, since: since.ago(now), until: left.map(|left| left.ahead(now)) }
    }
}

impl Standing {
    pub fn saved(&self, live: &Live, now: Instant) -> Saved {
        let ago = |then: Instant| Span::between(then, now);
        let left = |until: Instant| Span::between(now, until);
        let why = |reason| self.marked(reason).filter(|_| live.marks.has(reason)).map(Why::of);
        let ejection = match self.reactivation.phase() {
            Phase::Serving => None,
            Phase::Ejected { since, until } => Some(Ejection::Ejected { since: ago(since), left: until.map(left) }),
            Phase::HalfOpen { passes } => Some(Ejection::HalfOpen { passes }),
        };
        let open = match self.circuit() {
            None | Some(Circuit::Closed) => None,
            Some(Circuit::Open { until }) => Some(Open::Open { left: left(until) }),
            Some(Circuit::HalfOpen { passes }) => Some(Open::HalfOpen { passes }),
        };
        let order = self.orders.state.as_ref().map(|(order, held)| (*order, Given::of(held, now)));
        let weight = self.orders.weight.as_ref().and_then(|held| Some((live.weight()?, Given::of(held, now))));
        let probes = self.probes.at().map(|at| Probes {
            passed: self.probes.passed(),
            in_a_row: self.probes.length(),
            causes: self.probes.last_causes().cloned().collect(),
            last: ago(at),
        });
        Saved {
            clock: self.epoch.stamp(now),
            state: self.shown.state,
            since: self.shown.since.map(ago),
            known: self.known,
            probes,
            unprobed: live.marks.has(Reason::Unprobed),
            active: why(Reason::Active),
            passive: ejection.zip(why(Reason::Passive)),
            penalty: self.reactivation.penalty(),
            breaker: open.zip(why(Reason::Breaker)),
            half_open: self.half_open_since.map(ago),
            any_trial: live.takes_any_trial(),
            order: order.zip(why(Reason::Operator)).map(|((order, given), why)| (order, given, why)),
            weight,
            ramp: self.ramp.as_ref().map(|ramp| ago(ramp.since)),
            history: self.history.iter().map(|step| without(step)).collect(),
        }
    }

    /// Goes on as the one that was saved would, under its own settings; `enabled` is the destination's. Tells what became of the
    /// marks that this process set by itself before, and what its later probes changed.
    pub fn resume(&mut self, saved: Saved, enabled: bool, around: &Around<'_>, now: Instant) -> Vec<Change> {
        let mut changes = Vec::new();
        if self.retired {
            return changes;
        }
        let marks = &around.live.marks;
        let own: Vec<Reason> = marks.reasons().collect();
        let last = saved.probes.as_ref().map(|probes| probes.last.ago(now));
        let own_probes = self.evidence.take_probes(last);
        self.put(saved, enabled, around, now);
        let wanted = self.settings.active.is_some() && !around.live.in_maintenance();
        for probe in own_probes.into_iter().filter(|_| wanted) {
            self.probed(probe.passed, probe.cause, probe.begun, around, probe.at, &mut changes);
        }
        // What stands as it did was told before.
        changes.retain(|change| !(own.contains(&change.reason) && marks.has(change.reason)));
        let is_gone = |reason: &Reason| !marks.has(*reason) && !changes.iter().any(|change| change.reason == *reason);
        let gone: Vec<Reason> = own.into_iter().filter(is_gone).collect();
        for (position, reason) in gone.iter().enumerate() {
            let before = Reason::ALL.into_iter().filter(|mark| marks.has(*mark) || gone[position..].contains(mark));
            changes.push(self.forgive(*reason, before.collect(), now));
        }
        self.look(around.live, now);
        changes
    }

    /// A mark of this process's own is gone by what it got.
    fn forgive(&mut self, reason: Reason, before: Vec<Reason>, now: Instant) -> Change {
        let is_healthy = before == [reason];
        let transition = is_healthy.then_some(Transition { to_healthy: true, reason });
        let step = if reason == Reason::Breaker { Step::CircuitClosed } else { Step::Readmitted };
        let decision = Decision { step, reason, was_healthy: false, is_healthy };
        self.tell(decision, transition, before, (Rule::HandedOver, Next::Nothing), now)
    }

    fn put(&mut self, saved: Saved, enabled: bool, around: &Around<'_>, now: Instant) {
        let here = self.epoch.stamp(now);
        let ahead = i128::from(here.0) - i128::from(saved.clock.0);
        let ahead = i64::try_from(ahead).unwrap_or_default();
        let live = around.live;
        live.next_epoch();
        self.shown = Shown::new(live);
        (self.known, self.skipped) = (saved.known, None);
        self.put_checks(saved.active, saved.probes, saved.unprobed, (live, ahead, now));
        self.put_passive(saved.passive.filter(|_| enabled), saved.penalty, around, (ahead, now));
        self.put_breaker(saved.breaker, (live, ahead, now));
        self.put_orders(saved.order, saved.weight, (live, ahead, now));
        self.half_open_since = saved.half_open.map(|ago| ago.ago(now)).filter(|_| self.is_half_open());
        live.set_takes_any_trial(saved.any_trial && self.half_open_since.is_some());
        self.end_ramp(live);
        if let Some(ago) = saved.ramp
            && live.marks.is_empty()
            && !self.settings.slow_start.is_zero()
        {
            self.ramp = Some(Ramp { since: ago.ago(now), tenths: 1 });
            self.ramp_on(around, now);
        }
        self.history = saved.history.into_iter().map(|step| Arc::new(step.shifted(ahead))).collect();
        self.history.truncate(super::HISTORY);
        (self.shown.state, self.shown.since) = (saved.state, saved.since.map(|ago| ago.ago(now)));
    }

    fn put_mark(&mut self, reason: Reason, why: Option<Why>, live: &Live, ahead: i64) {
        live.marks.set(reason, why.is_some());
        self.shown.marked[reason.index()] = why.map(|why| why.marked(ahead));
    }

    fn put_checks(
        &mut self,
        active: Option<Why>,
        probes: Option<Probes>,
        unprobed: bool,
        (live, ahead, now): (&Live, i64, Instant),
    ) {
        let is_checked = self.settings.active.is_some();
        self.put_mark(Reason::Active, active.filter(|_| is_checked), live, ahead);
        live.marks.set(Reason::Unprobed, unprobed && self.settings.probe_first);
        let resumed = |probes: Probes| {
            let Probes { passed, in_a_row, causes, last } = probes;
            Streak::resumed(passed, in_a_row, causes, last.ago(now))
        };
        self.probes = probes.filter(|_| is_checked).map(resumed).unwrap_or_default();
    }

    fn put_passive(
        &mut self,
        passive: Option<(Ejection, Why)>,
        penalty: f64,
        around: &Around<'_>,
        (ahead, now): (i64, Instant),
    ) {
        let Around { live, cap } = around;
        let known = |ejection| match (&self.settings.passive, ejection) {
            (Some(passive), Ejection::HalfOpen { .. }) => !passive.is_full(),
            (passive, Ejection::Ejected { .. }) => passive.is_some(),
            (None, _) => false,
        };
        let (ejection, why) = passive.filter(|(ejection, _)| known(*ejection)).unzip();
        self.put_mark(Reason::Passive, why, live, ahead);
        self.give_back(cap);
        live.passive_trials.close();
        let how = self.settings.passive.as_ref().and_then(|passive| passive.reactivation);
        let phase = match ejection {
            None => Phase::Serving,
            Some(Ejection::Ejected { since, left }) => {
                Phase::Ejected { since: since.ago(now), until: left.map(|left| left.ahead(now)) }
            }
            Some(Ejection::HalfOpen { passes }) => {
                live.passive_trials.open(how.map_or(1, |how| how.trial_requests));
                live.marks.set_half_open(Reason::Passive);
                Phase::HalfOpen { passes }
            }
        };
        self.reactivation = Reactivation::resumed(phase, penalty);
        let blind = matches!(phase, Phase::Ejected { .. }).then_some(now);
        self.detectors.iter_mut().for_each(|detector| detector.blind_before = blind);
        if let Some(how) = how {
            self.reactivation.end_in(how.period, now);
        }
        if phase != Phase::Serving {
            cap.keep();
            self.holds_place = true;
        }
    }

    fn put_breaker(&mut self, breaker: Option<(Open, Why)>, (live, ahead, now): (&Live, i64, Instant)) {
        let how = self.settings.breaker.as_ref().map(|(_, how)| *how);
        let (open, why) = breaker.filter(|_| how.is_some()).unzip();
        self.put_mark(Reason::Breaker, why, live, ahead);
        live.breaker_trials.close();
        let circuit = match open {
            None => Circuit::Closed,
            Some(Open::Open { left }) => Circuit::Open { until: left.ahead(now) },
            Some(Open::HalfOpen { passes }) => {
                live.breaker_trials.open(how.map_or(1, |how| how.trial_requests));
                live.marks.set_half_open(Reason::Breaker);
                Circuit::HalfOpen { passes }
            }
        };
        self.breaker = how.map(|how| Breaker::resumed(how, circuit));
    }

    fn put_orders(
        &mut self,
        order: Option<(Override, Given, Why)>,
        weight: Option<(u32, Given)>,
        (live, ahead, now): (&Live, i64, Instant),
    ) {
        let state = order.as_ref().map(|(state, ..)| *state);
        live.set_maintenance(state == Some(Override::Maint));
        live.set_draining(state.is_some_and(Override::keeps_sessions));
        let (held, why) = order.map(|(state, given, why)| ((state, given), why)).unzip();
        self.put_mark(Reason::Operator, why, live, ahead);
        self.orders.state = held.map(|(state, given)| (state, given.held(Order::Override(state), now)));
        let weight = weight.map(|(weight, given)| (weight.min(MOST_WEIGHT), given));
        live.set_weight(weight.as_ref().map(|(weight, _)| *weight));
        self.orders.weight = weight.map(|(weight, given)| given.held(Order::Weight(Some(weight)), now));
    }
}
