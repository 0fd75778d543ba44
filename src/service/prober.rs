//! Makes the probes that the snapshot asks for, each at its own jittered pace, so that one that hangs never delays another's
//! verdict. Each has a registry of pingora-load-balancing to itself, which runs the check; what a result means is for the
//! clusters to judge that ask for it when it comes. The tasks follow the snapshot: which of them go on, and by which clock,
//! is [`probing`]'s to say.
//!
//! Deliberately not here: Pingora's own loop over all targets, which paces them all by the slowest.

use super::Lifecycle;
use super::probing::{self, Job, Step, Subscriber};
use crate::health::Event;
use crate::health::active::{Connectors, Finding, Observed, ProbeResult};
use crate::model::Dice;
use crate::observe::{self, event};
use crate::runtime::{Runtime, Snapshot};
use async_trait::async_trait;
use pingora::protocols::l4::socket::SocketAddr;
use pingora::server::ShutdownWatch;
use pingora::services::background::BackgroundService;
use pingora_load_balancing::discovery::Static;
use pingora_load_balancing::{Backend, Backends, HealthRegistry};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{MissedTickBehavior, interval, sleep_until, timeout};

/// A new snapshot, or a word of the operator's, is followed within this time.
const LOOK: Duration = Duration::from_millis(200);

pub struct Prober {
    runtime: Arc<Runtime>,
    lifecycle: Arc<Lifecycle>,
}

impl Prober {
    pub fn new(runtime: Arc<Runtime>, lifecycle: Arc<Lifecycle>) -> Self {
        Prober { runtime, lifecycle }
    }
}

#[async_trait]
impl BackgroundService for Prober {
    async fn start(&self, mut shutdown: ShutdownWatch) {
        // Closed when every task of the start dropped its sender, which it does after its first result.
        let (first_result, mut first_round) = mpsc::channel::<()>(1);
        let mut crew = Crew::new(self.runtime.clone());
        crew.follow(Some(first_result));
        let longest = crew.made.iter().map(|made| made.job.pace.timeout).max().unwrap_or_default();
        let first_round = timeout(longest + Duration::from_secs(1), first_round.recv());
        tokio::pin!(first_round);
        let mut is_ready = false;
        let mut look = interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = &mut first_round, if !is_ready => {
                    is_ready = true;
                    self.lifecycle.set_ready();
                }
                _ = look.tick() => crew.look(Instant::now()),
                changed = shutdown.changed() => if changed.is_err() || *shutdown.borrow() { return },
            }
        }
    }
}

/// The tasks, one a probe, and by what they were made.
struct Crew {
    runtime: Arc<Runtime>,
    connectors: Arc<Connectors>,
    snapshot: Option<Arc<Snapshot>>,
    /// Of all members of the snapshot, in order: whether they are probed.
    wants: Vec<bool>,
    made: Vec<Made>,
    tasks: JoinSet<()>,
}

/// A probe that is made.
struct Made {
    job: Arc<Job>,
    terms: watch::Sender<Terms>,
    clock: Arc<Mutex<Clock>>,
    task: AbortHandle,
}

/// What a task goes by now.
#[derive(Clone)]
struct Terms {
    job: Arc<Job>,
    /// The interval that holds; it is told when it changes.
    interval: Duration,
    /// Grows when somebody wants a result without waiting for the next one due.
    at_once: u32,
}

/// Of one task.
#[derive(Clone)]
struct Clock {
    /// The last probe.
    begun: Option<Instant>,
    /// The next one.
    due: Instant,
    /// The last one that said something; before the first, the beginning.
    told: Instant,
}

impl Crew {
    fn new(runtime: Arc<Runtime>) -> Self {
        let (connectors, tasks) = (Arc::default(), JoinSet::new());
        Crew { runtime, connectors, snapshot: None, wants: Vec::new(), made: Vec::new(), tasks }
    }

    fn look(&mut self, now: Instant) {
        let snapshot = self.runtime.pin();
        let same = self.snapshot.as_ref().is_some_and(|last| Arc::ptr_eq(last, &snapshot));
        if !same || !wants(&snapshot).eq(self.wants.iter().copied()) {
            self.follow(None);
        }
        for made in &self.made {
            let interval = made.job.interval();
            made.terms.send_if_modified(|terms| std::mem::replace(&mut terms.interval, interval) != interval);
            let stale = now.saturating_duration_since(lock(&made.clock).told) > made.job.stale_after();
            for subscriber in &made.job.subscribers {
                subscriber.cluster.destination_metrics(&subscriber.member).set_probe_stale(stale);
            }
        }
        while self.tasks.try_join_next().is_some() {}
    }

    /// Makes the probes of the snapshot of now. `first_result` is dropped by each new task after its first.
    fn follow(&mut self, first_result: Option<mpsc::Sender<()>>) {
        let snapshot = self.runtime.pin();
        self.wants = wants(&snapshot).collect();
        tell_load(&snapshot);
        let made: Vec<Job> = self.made.iter().map(|made| (*made.job).clone()).collect();
        let mut before: Vec<Option<Made>> = std::mem::take(&mut self.made).into_iter().map(Some).collect();
        let clocks: Vec<Clock> = before.iter().flatten().map(|made| lock(&made.clock).clone()).collect();
        for step in probing::plan(&made, probing::jobs(&snapshot)) {
            match step {
                Step::Keep { made, job, at_once } => {
                    let Some(mut kept) = before[made].take() else { continue };
                    kept.job = Arc::new(job);
                    kept.terms.send_modify(|terms| {
                        terms.job = kept.job.clone();
                        terms.interval = kept.job.interval();
                        terms.at_once += u32::from(at_once);
                    });
                    self.made.push(kept);
                }
                Step::Start { job, after } => {
                    let made = self.start(job, after.map(|after| clocks[after].clone()), first_result.clone());
                    self.made.push(made);
                }
            }
        }
        before.into_iter().flatten().for_each(|ended| ended.task.abort());
        self.snapshot = Some(snapshot);
    }

    fn start(&mut self, job: Job, after: Option<Clock>, first_result: Option<mpsc::Sender<()>>) -> Made {
        let now = Instant::now();
        let mut clock = after.unwrap_or(Clock { begun: None, due: now, told: now });
        let terms = Terms { interval: job.interval(), job: Arc::new(job), at_once: 0 };
        if let Some(begun) = clock.begun {
            clock.due = clock.due.min(begun + terms.pause());
        }
        let (job, clock) = (terms.job.clone(), Arc::new(Mutex::new(clock)));
        let (terms, receiver) = watch::channel(terms);
        let task = Task {
            runtime: self.runtime.clone(),
            connectors: self.connectors.clone(),
            terms: receiver,
            clock: clock.clone(),
        };
        let task = self.tasks.spawn(task.run(first_result));
        Made { job, terms, clock, task }
    }
}

/// Of every member, whether it is probed.
fn wants(snapshot: &Snapshot) -> impl Iterator<Item = bool> {
    snapshot.clusters.iter().flat_map(|cluster| cluster.members.iter().map(|member| cluster.wants_probes(member)))
}

/// How many probes a second the clusters ask for.
fn tell_load(snapshot: &Snapshot) {
    for cluster in &snapshot.clusters {
        let mut probed = 0;
        for member in &cluster.members {
            match cluster.wants_probes(member) {
                true => probed += 1,
                false => cluster.destination_metrics(member).set_probe_stale(false),
            }
        }
        let interval = cluster.check.as_ref().map(|check| check.pace.interval.as_secs_f64());
        cluster.metrics.set_probe_rate(interval.map_or(0.0, |interval| f64::from(probed) / interval));
    }
}

/// Makes one probe, for as long as it is wanted.
struct Task {
    runtime: Arc<Runtime>,
    connectors: Arc<Connectors>,
    terms: watch::Receiver<Terms>,
    clock: Arc<Mutex<Clock>>,
}

impl Task {
    async fn run(mut self, mut first_result: Option<mpsc::Sender<()>>) {
        let mut terms = self.terms.borrow_and_update().clone();
        // The view is what keeps the target in the registry.
        let (mut registry, mut _view) = self.registry(&terms.job).await;
        let mut limit = terms.job.pace.timeout;
        loop {
            self.wait(&mut terms).await;
            if limit != terms.job.pace.timeout {
                limit = terms.job.pace.timeout;
                (registry, _view) = self.registry(&terms.job).await;
            }
            let begun = Instant::now();
            lock(&self.clock).begun = Some(begun);
            registry.run_health_check(false).await;
            drop(first_result.take());
            lock(&self.clock).due = begun + Terms { interval: terms.job.interval(), ..terms.clone() }.pause();
        }
    }

    /// Until the next probe is due. New terms may bring that nearer, and never put it off.
    async fn wait(&mut self, terms: &mut Terms) {
        loop {
            let due = lock(&self.clock).due;
            tokio::select! {
                () = sleep_until(due.into()) => return,
                changed = self.terms.changed() => if changed.is_err() { return },
            }
            let new = self.terms.borrow_and_update().clone();
            let mut clock = lock(&self.clock);
            if (new.interval, new.job.pace) != (terms.interval, terms.job.pace)
                && let Some(begun) = clock.begun
            {
                clock.due = clock.due.min(begun + new.pause());
            }
            if new.at_once != terms.at_once {
                clock.due = clock.due.min(Instant::now());
            }
            drop(clock);
            *terms = new;
        }
    }

    /// A registry whose one target is the job's address and whose check hands every result to those who ask for it.
    async fn registry(&self, job: &Job) -> (Arc<HealthRegistry>, Backends) {
        let registry = Arc::new(HealthRegistry::new());
        let mut targets = BTreeSet::new();
        // All subscribers of a job have the same probe.
        if let Some(Subscriber { cluster, member }) = job.subscribers.first()
            && let Some(check) = &cluster.check
        {
            let target = &cluster.upstream(member).probed;
            let (runtime, terms, clock) = (self.runtime.clone(), self.terms.clone(), self.clock.clone());
            registry.set_health_check(Box::new(Observed {
                probe: check.kind.prepare(target, &self.connectors),
                timeout: job.pace.timeout,
                observe: move |finding: Finding| {
                    if finding.result != ProbeResult::NotMade {
                        lock(&clock).told = Instant::now();
                    }
                    let job = terms.borrow().job.clone();
                    found(&runtime.pin(), &job, &finding);
                },
            }));
            if let SocketAddr::Inet(address) = target.peer._address {
                targets.insert(Backend { addr: SocketAddr::Inet(address), weight: 1, ext: Default::default() });
            }
        }
        let view = Backends::new_with_health_registry(Static::new(targets), registry.clone());
        // A static list cannot fail to be discovered.
        let _ = view.update(|_| {}).await;
        (registry, view)
    }
}

impl Terms {
    /// From the start of one probe to the start of the next.
    fn pause(&self) -> Duration {
        pause(self.interval, self.job.pace.jitter, &mut Dice::new())
    }
}

fn lock(clock: &Mutex<Clock>) -> MutexGuard<'_, Clock> {
    clock.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Hands a result to all who ask for it by now.
fn found(snapshot: &Snapshot, job: &Job, finding: &Finding) {
    let result = match finding.result {
        ProbeResult::Success => observe::ProbeResult::Success,
        ProbeResult::Failure => observe::ProbeResult::Failure,
        ProbeResult::Timeout => observe::ProbeResult::Timeout,
        ProbeResult::Error | ProbeResult::NotMade => observe::ProbeResult::Error,
    };
    for subscriber in &job.subscribers {
        let Some(Subscriber { cluster, member }) = subscriber.current(snapshot, &job.signature) else { continue };
        let authority = &cluster.upstream(&member).probed.authority;
        event::probe_result(cluster.destination_metrics(&member), authority, result, &finding.cause, finding.took);
        if finding.result == ProbeResult::NotMade {
            // Else a flood of clients that takes all descriptors would take all destinations out.
            continue;
        }
        let passed = finding.result == ProbeResult::Success;
        let probe = Event::Probe { passed, cause: finding.cause.clone(), begun: finding.begun };
        cluster.judge(&member, probe, Instant::now());
    }
}

/// The interval, up to `jitter` of it more or less.
fn pause(interval: Duration, jitter: f64, dice: &mut Dice) -> Duration {
    interval.mul_f64(1.0 + jitter * (2.0 * dice.f64() - 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_a_jitter_when_paused_then_within_its_share_and_not_always_the_same() {
        let mut dice = Dice::with_seed(1);
        let pauses: Vec<f64> =
            (0..1000).map(|_| pause(Duration::from_secs(10), 0.1, &mut dice).as_secs_f64()).collect();
        assert!(pauses.iter().all(|pause| (9.0..=11.0).contains(pause)));
        assert!(pauses.iter().any(|p| *p < 9.2) && pauses.iter().any(|p| *p > 10.8));
        assert_eq!(pause(Duration::from_secs(10), 0.0, &mut dice), Duration::from_secs(10));
    }
}
