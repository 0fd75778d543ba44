//! The loop: one happening after the other, each at its time.

#[cfg(test)]
mod tests;

use super::agenda::Agenda;
use super::findings::Findings;
use super::place::Found;
use super::{Asked, Scenario};
use crate::config::Load;
use crate::health::{Change, Event};
use crate::model::{Dice, Member, Outcome, RequestView};
use crate::runtime::{Cluster, Drawn, Report, Trail, draw};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// As often as `service` looks what time alone changed.
const LOOK: Duration = Duration::from_millis(50);
/// What the proxy itself takes to say that there is no destination.
const OWN_ANSWER: Duration = Duration::from_millis(1);

/// A simulation under way.
pub struct Run {
    scenario: Scenario,
    start: Instant,
    now: Duration,
    agenda: Agenda<Happening>,
    chance: Chance,
    phase: Current,
    flights: Flights,
    probes: Vec<Probing>,
    findings: Findings,
}

enum Happening {
    Phase(usize),
    /// A request comes, in an open load.
    Arrival(usize),
    /// A client of a closed load asks.
    Ask(usize, u32),
    /// An attempt is over, unless it broke off earlier.
    Ended(usize, u32),
    /// The next turn of a destination.
    Turn(usize),
    /// A probe is made, unless another is due instead.
    Probe(usize, u32),
    Probed(usize, Duration, Box<Found>),
    Look,
}

/// One for each matter, so that a change of one leaves the others' as it was.
struct Chance {
    load: Dice,
    draw: Dice,
    places: Dice,
    probes: Dice,
}

/// The phase of the load.
struct Current {
    /// `None` before the first.
    index: Option<usize>,
    /// Requests that came in it.
    begun: u64,
}

#[derive(Default)]
struct Flights {
    all: Vec<Option<Flight>>,
    free: Vec<usize>,
    /// Grows with each that begins or breaks off.
    number: u32,
}

struct Flight {
    drawn: Drawn,
    begun: Duration,
    outcome: Outcome,
    /// Of a closed load: its phase and who asked.
    client: Option<(usize, u32)>,
    number: u32,
}

/// The probes of one destination.
#[derive(Default)]
struct Probing {
    begun: Duration,
    due: Duration,
    interval: Duration,
    under_way: bool,
    number: u32,
}

impl Run {
    /// `start` is what the cluster's epoch says. Nothing has happened yet.
    pub fn new(scenario: Scenario, seed: u64, start: Instant) -> Self {
        let mut dice = Dice::with_seed(seed);
        let chance = Chance { load: dice.fork(), draw: dice.fork(), places: dice.fork(), probes: dice.fork() };
        let mut agenda = Agenda::new();
        for (index, place) in scenario.places.iter().enumerate() {
            place.times().for_each(|at| agenda.add(at, Happening::Turn(index)));
        }
        for (index, phase) in scenario.phases.iter().enumerate() {
            agenda.add(phase.at, Happening::Phase(index));
        }
        for member in scenario.cluster.members.iter().filter(|member| scenario.cluster.wants_probes(member)) {
            agenda.add(Duration::ZERO, Happening::Probe(member.index, 0));
        }
        agenda.add(LOOK, Happening::Look);
        Run {
            findings: Findings::new(&scenario.cluster, seed),
            probes: scenario.cluster.members.iter().map(|_| Probing::default()).collect(),
            scenario,
            start,
            now: Duration::ZERO,
            agenda,
            chance,
            phase: Current { index: None, begun: 0 },
            flights: Flights::default(),
        }
    }

    /// To the end. `progress` hears now and then which share of it is done.
    pub fn finish(mut self, mut progress: impl FnMut(f64)) -> Findings {
        const EVERY: u32 = 10_000;
        let mut steps = 0;
        while self.step() {
            steps = (steps + 1) % EVERY;
            if steps == 0 {
                progress(self.done());
            }
        }
        self.findings.end(self.now, self.flights.under_way());
        self.findings
    }

    /// One happening; `false` when it is all over.
    fn step(&mut self) -> bool {
        if self.is_over() {
            return false;
        }
        let Some((at, what)) = self.agenda.next() else { return false };
        if let Some(length) = self.scenario.length.filter(|length| at >= *length) {
            self.now = length;
            return false;
        }
        self.now = at;
        match what {
            Happening::Phase(index) => self.enter(index),
            Happening::Arrival(phase) if self.asks(phase) => self.arrive(),
            Happening::Ask(phase, client) if self.asks(phase) => self.ask(phase, client),
            Happening::Arrival(_) | Happening::Ask(..) => {}
            Happening::Ended(flight, number) => self.ended(flight, number),
            Happening::Turn(index) => self.turn(index),
            Happening::Probe(index, number) => self.probe(index, number),
            Happening::Probed(index, begun, found) => self.probed(index, begun, *found),
            Happening::Look => self.look(),
        }
        true
    }

    /// Without a length it ends with the last request.
    fn is_over(&self) -> bool {
        let last = self.scenario.phases.len().checked_sub(1);
        self.scenario.length.is_none() && self.phase.index == last && self.left() == 0 && self.flights.under_way() == 0
    }

    /// Requests still to come in the phase.
    fn left(&self) -> u64 {
        let phase = self.phase.index.and_then(|index| self.scenario.phases.get(index));
        phase.map_or(0, |phase| phase.requests.map_or(u64::MAX, |requests| requests - self.phase.begun))
    }

    fn done(&self) -> f64 {
        match self.scenario.length {
            Some(length) => self.now.as_secs_f64() / length.as_secs_f64(),
            None => {
                let all: u64 = self.scenario.phases.iter().filter_map(|phase| phase.requests).sum();
                self.findings.requests() as f64 / all.max(1) as f64
            }
        }
    }

    fn instant(&self) -> Instant {
        self.start + self.now
    }
}

/// The load.
impl Run {
    fn enter(&mut self, index: usize) {
        self.phase = Current { index: Some(index), begun: 0 };
        match self.scenario.phases[index].load {
            Load::Open { .. } => self.next_arrival(index),
            Load::Closed { clients, .. } => {
                (0..clients).for_each(|client| self.agenda.add(self.now, Happening::Ask(index, client)));
            }
        }
    }

    /// That phase is on, and has requests left.
    fn asks(&self, phase: usize) -> bool {
        self.phase.index == Some(phase) && self.left() > 0
    }

    fn next_arrival(&mut self, index: usize) {
        let phase = &self.scenario.phases[index];
        let Load::Open { rps, poisson } = phase.load else { return };
        if rps <= 0.0 {
            return;
        }
        let at = match poisson {
            true => self.now + Duration::from_secs_f64((-(1.0 - self.chance.load.f64()).ln() / rps).min(1e9)),
            // Counted from the phase's start, so that no rounding adds up.
            false => phase.at + Duration::from_secs_f64((self.phase.begun as f64 / rps).min(1e9)),
        };
        self.agenda.add(at, Happening::Arrival(index));
    }

    fn arrive(&mut self) {
        let Some(index) = self.phase.index else { return };
        let address = self.chance.load.u16(..).into();
        self.begin(address, None);
        self.next_arrival(index);
    }

    fn ask(&mut self, phase: usize, client: u32) {
        self.begin(client, Some((phase, client)));
    }

    /// A request of the client with this number; one that finds no destination is answered by the proxy.
    fn begin(&mut self, address: u32, client: Option<(usize, u32)>) {
        self.phase.begun += 1;
        let cluster = self.scenario.cluster.clone();
        let asked = self.asked();
        let client_ip = Some(IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0000 | (address & 0x00ff_ffff))));
        let Asked { method, path, headers, .. } = &self.scenario.asked[asked];
        let request = RequestView { method, host: "simulated", port: None, path, query: None, headers, client_ip };
        let now = self.instant();
        let Ok(drawn) =
            draw(&cluster, cluster.arm(&request, now), request, &mut Trail::default(), now, &mut self.chance.draw)
        else {
            self.findings.answered(503, self.now);
            self.think(client, OWN_ANSWER);
            return;
        };
        let index = drawn.member.index;
        self.findings.drew(index);
        let fate = self.scenario.places[index].attempt(cluster.activity_timeout, &mut self.chance.places);
        let leaves = self.scenario.abort > 0.0 && self.chance.load.f64() < self.scenario.abort;
        let (took, outcome) = match leaves {
            true => (fate.took.mul_f64(self.chance.load.f64()), Outcome::ClientAbort),
            false => (fate.took, fate.outcome),
        };
        let begun = self.now;
        let (flight, number) = self.flights.add(Flight { drawn, begun, outcome, client, number: 0 });
        self.agenda.add(begun + took, Happening::Ended(flight, number));
    }

    fn asked(&mut self) -> usize {
        let asked = &self.scenario.asked;
        if asked.len() == 1 {
            return 0;
        }
        let drawn = self.chance.load.f64();
        asked.iter().position(|kind| drawn < kind.up_to).unwrap_or(asked.len() - 1)
    }

    /// The client of a closed load asks again, when it has thought.
    fn think(&mut self, client: Option<(usize, u32)>, after: Duration) {
        let Some((phase, client)) = client else { return };
        if let Load::Closed { think, .. } = self.scenario.phases[phase].load {
            self.agenda.add(self.now + after + think, Happening::Ask(phase, client));
        }
    }

    fn ended(&mut self, flight: usize, number: u32) {
        let Some(Flight { drawn, begun, outcome, client, .. }) = self.flights.take(flight, number) else { return };
        let (cluster, now) = (self.scenario.cluster.clone(), self.instant());
        let waited = self.now - begun;
        if let Outcome::Status(status) = outcome {
            cluster.answered(&drawn.member, status, waited, now);
        }
        let report = Report {
            outcome,
            ticket: drawn.lease.ticket(),
            begun: self.start + begun,
            route: &self.scenario.route,
            attempt: 1,
            detail: "simulated",
            waited,
        };
        let changes = cluster.report(&drawn.member, &report, now);
        self.findings.ended(drawn.member.index, outcome, self.now);
        self.note(&cluster, &drawn.member, &changes);
        drop(drawn);
        self.think(client, Duration::ZERO);
    }

    fn turn(&mut self, index: usize) {
        if !self.scenario.places[index].turn() {
            return;
        }
        for (flight, number) in self.flights.break_off(index) {
            self.agenda.add(self.now, Happening::Ended(flight, number));
        }
    }
}

/// What happens without requests.
impl Run {
    fn probe(&mut self, index: usize, number: u32) {
        let Some(check) = &self.scenario.cluster.check else { return };
        let probing = &mut self.probes[index];
        if probing.number != number {
            return;
        }
        (probing.begun, probing.under_way) = (self.now, true);
        let found = self.scenario.places[index].probe(self.scenario.check, check.pace.timeout, &mut self.chance.probes);
        self.agenda.add(self.now + found.took, Happening::Probed(index, self.now, Box::new(found)));
    }

    fn probed(&mut self, index: usize, begun: Duration, found: Found) {
        let cluster = self.scenario.cluster.clone();
        let (member, Some(check)) = (&cluster.members[index], &cluster.check) else { return };
        let Found { passed, cause, .. } = found;
        let changes = cluster.judge(member, Event::Probe { passed, cause, begun: self.start + begun }, self.instant());
        self.note(&cluster, member, &changes);
        let probing = &mut self.probes[index];
        (probing.under_way, probing.interval) = (false, check.pace.interval(member.is_found_out()));
        let pause = check.pace.varied(probing.interval, &mut self.chance.probes);
        self.probe_at(index, begun + pause);
    }

    fn probe_at(&mut self, index: usize, due: Duration) {
        let probing = &mut self.probes[index];
        probing.due = due.max(self.now);
        probing.number += 1;
        self.agenda.add(probing.due, Happening::Probe(index, probing.number));
    }

    /// What time alone changed; and a destination that went out or came back meanwhile is probed at its new pace, which puts
    /// no probe off.
    fn look(&mut self) {
        let cluster = self.scenario.cluster.clone();
        for (member, change) in cluster.due(self.instant()) {
            self.note(&cluster, &member, std::slice::from_ref(&change));
        }
        for member in &cluster.members {
            let (Some(check), probing) = (&cluster.check, &mut self.probes[member.index]) else { break };
            let interval = check.pace.interval(member.is_found_out());
            if !cluster.wants_probes(member) || probing.under_way || probing.interval == interval {
                continue;
            }
            probing.interval = interval;
            let due = probing.begun + check.pace.varied(interval, &mut self.chance.probes);
            if due < probing.due {
                self.probe_at(member.index, due);
            }
        }
        self.agenda.add(self.now + LOOK, Happening::Look);
    }

    fn note(&mut self, cluster: &Arc<Cluster>, member: &Member, changes: &[Change]) {
        if !changes.is_empty() {
            self.findings.changed(member.index, changes, cluster.published().primaries.panic, self.now);
        }
    }
}

impl Flights {
    fn under_way(&self) -> usize {
        self.all.len() - self.free.len()
    }

    fn add(&mut self, mut flight: Flight) -> (usize, u32) {
        self.number = self.number.wrapping_add(1);
        flight.number = self.number;
        let at = match self.free.pop() {
            Some(at) => {
                self.all[at] = Some(flight);
                at
            }
            None => {
                self.all.push(Some(flight));
                self.all.len() - 1
            }
        };
        (at, self.number)
    }

    /// Unless it was taken already, or breaks off at another time.
    fn take(&mut self, at: usize, number: u32) -> Option<Flight> {
        let flight = self.all[at].take_if(|flight| flight.number == number)?;
        self.free.push(at);
        Some(flight)
    }

    /// All that are under way to a destination, with their new numbers.
    fn break_off(&mut self, index: usize) -> Vec<(usize, u32)> {
        let mut broken = Vec::new();
        for (at, flight) in self.all.iter_mut().enumerate() {
            let Some(flight) = flight.as_mut().filter(|flight| flight.drawn.member.index == index) else { continue };
            self.number = self.number.wrapping_add(1);
            (flight.number, flight.outcome) = (self.number, Outcome::Reset);
            broken.push((at, self.number));
        }
        broken
    }
}
