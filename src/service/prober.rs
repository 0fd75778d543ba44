//! Makes the probes that the snapshot asks for, each at its own jittered pace, so that one that hangs never delays another's
//! verdict. Each has a registry of pingora-load-balancing to itself, which runs the check; what a result means is for the
//! clusters to judge that ask for it when it comes. The tasks follow the snapshot: which of them go on, and by which clock,
//! is [`probing`]'s to say.
//!
//! Deliberately not here: Pingora's own loop over all targets, which paces them all by the slowest.

use super::Lifecycle;
use super::lifecycle::Word;
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
    /// Until what is under way is cut: who is tried again needs to know whom to try.
    async fn start(&self, _: ShutdownWatch) {
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
                    self.lifecycle.hear(Word::Probed, Instant::now());
                }
                _ = look.tick() => crew.look(Instant::now()),
                () = self.lifecycle.over() => return,
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

impl Clock {
    /// New terms may bring the next probe nearer, and never put it off.
    fn follow(&mut self, old: &Terms, new: &Terms, now: Instant) {
        let changed = (new.interval, new.job.pace) != (old.interval, old.job.pace);
        if let Some(begun) = self.begun.filter(|_| changed) {
            self.due = self.due.min(begun + new.pause());
        }
        if new.at_once != old.at_once {
            self.due = self.due.min(now);
        }
    }
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
            terms.interval = terms.job.interval();
            lock(&self.clock).due = begun + terms.pause();
        }
    }

    /// Until the next probe is due by the terms that hold then.
    async fn wait(&mut self, terms: &mut Terms) {
        loop {
            let due = lock(&self.clock).due;
            tokio::select! {
                () = sleep_until(due.into()) => return,
                changed = self.terms.changed() => if changed.is_err() { return },
            }
            let mut new = self.terms.borrow_and_update().clone();
            // What was told may be older than the last result.
            new.interval = new.job.interval();
            lock(&self.clock).follow(terms, &new, Instant::now());
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
        self.job.pace.varied(self.interval, &mut Dice::new())
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::discovery::SystemNames;
    use crate::model::Epoch;
    use crate::observe::Metrics;
    use crate::runtime::{Registry, Scene, compile};
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::SystemTime;
    use tokio::net::TcpListener;
    use tokio::time::sleep;

    const DEADLINE: Duration = Duration::from_secs(30);

    fn terms(seconds: u64, at_once: u32) -> Terms {
        let text = format!("{{ type: tcp, jitter: 0%, interval: {seconds}s }}");
        let snapshot = compiled(&[("a", 1, &text)], None, &Metrics::new());
        let job = Arc::new(probing::jobs(&snapshot).remove(0));
        Terms { interval: job.pace.interval, job, at_once }
    }

    #[test]
    fn given_a_probe_that_is_due_when_terms_change_then_it_may_come_earlier_and_never_later() {
        let start = Instant::now();
        let after = |seconds: u64| start + Duration::from_secs(seconds);
        let due = |old: &Terms, new: &Terms, begun: Option<u64>| {
            let mut clock = Clock { begun: begun.map(after), due: after(10), told: start };
            clock.follow(old, new, after(4));
            clock.due
        };
        let ten = terms(10, 0);
        assert_eq!(due(&ten, &terms(10, 0), Some(0)), after(10), "nothing changed");
        assert_eq!(due(&ten, &terms(3_600, 0), Some(0)), after(10), "longer");
        assert_eq!(due(&ten, &terms(6, 0), Some(0)), after(6), "shorter");
        assert_eq!(due(&ten, &terms(2, 0), Some(0)), after(2), "shorter than it waited already");
        assert_eq!(due(&ten, &terms(2, 0), None), after(10), "none was made yet");
        assert_eq!(due(&ten, &terms(10, 1), Some(0)), after(4), "somebody new");
    }

    /// Clusters by name, port of their one destination, and active check.
    fn compiled(clusters: &[(&str, u16, &str)], serving: Option<&Snapshot>, metrics: &Metrics) -> Snapshot {
        let cluster = |(name, port, check): &(&str, u16, &str)| {
            let destination = format!("{{ d: {{ address: \"http://127.0.0.1:{port}\" }} }}");
            format!("  {name}: {{ destinations: {destination}, health: {{ active: {check} }} }}\n")
        };
        let clusters: String = clusters.iter().map(cluster).collect();
        compiled_of(&format!("clusters:\n{clusters}"), serving, metrics)
    }

    fn compiled_of(clusters: &str, serving: Option<&Snapshot>, metrics: &Metrics) -> Snapshot {
        let rest = "listeners: { web: \"127.0.0.1:1\" }\nroutes: { ping: { respond: {} } }\n";
        let config = Config::parse("test", &format!("{rest}{clusters}")).unwrap_or_else(|error| panic!("{error}"));
        let epoch = Epoch { instant: Instant::now(), wall: SystemTime::UNIX_EPOCH };
        let scene = Scene { registry: &Registry::builtin(), names: &SystemNames, metrics, epoch, serving };
        compile(&config, &scene, config.problems()).unwrap_or_else(|problems| panic!("{problems}"))
    }

    /// A port that counts its connections.
    async fn port() -> (u16, Arc<AtomicUsize>) {
        let (listener, seen) = (TcpListener::bind("127.0.0.1:0").await.unwrap(), Arc::new(AtomicUsize::new(0)));
        let (port, count) = (listener.local_addr().unwrap().port(), seen.clone());
        tokio::spawn(async move {
            while listener.accept().await.is_ok() {
                count.fetch_add(1, Ordering::SeqCst);
            }
        });
        (port, seen)
    }

    /// A prober that runs for as long as the sender is kept.
    fn running(snapshot: Snapshot) -> (Arc<Runtime>, watch::Sender<bool>) {
        let runtime = Arc::new(Runtime::new(snapshot));
        let prober = Prober::new(runtime.clone(), Arc::new(lifecycle()));
        let (stop, shutdown) = watch::channel(false);
        tokio::spawn(async move { prober.start(shutdown).await });
        (runtime, stop)
    }

    fn reload(runtime: &Runtime, clusters: &str, metrics: &Metrics) {
        let compile = |old: &Snapshot| Ok::<_, ()>(compiled_of(clusters, Some(old), metrics));
        runtime.reload(compile, Instant::now).unwrap();
    }

    async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
        let began = Instant::now();
        while !condition() {
            assert!(began.elapsed() < DEADLINE, "{what}");
            sleep(Duration::from_millis(5)).await;
        }
    }

    #[tokio::test]
    async fn given_yarps_row_9_when_the_configuration_changes_more_often_than_probes_are_due_then_they_are_made() {
        let ((port, seen), metrics) = (port().await, Metrics::new());
        let cluster = |n: usize| {
            let destination =
                format!("{{ d: {{ address: \"http://127.0.0.1:{port}\", metadata: {{ n: \"{n}\" }} }} }}");
            let check = "{ type: tcp, interval: 1s, jitter: 0% }";
            format!("clusters: {{ a: {{ destinations: {destination}, health: {{ active: {check} }} }} }}\n")
        };
        let began = Instant::now();
        let (runtime, _stop) = running(compiled_of(&cluster(0), None, &metrics));
        let mut changes = 0;
        while seen.load(Ordering::SeqCst) < 4 {
            assert!(began.elapsed() < DEADLINE, "{} probes in {changes} changes", seen.load(Ordering::SeqCst));
            changes += 1;
            reload(&runtime, &cluster(changes), &metrics);
            sleep(Duration::from_millis(50)).await;
        }
        assert!(began.elapsed() >= Duration::from_secs(3), "a change is no reason to probe");
        assert!(changes > 4, "{changes}");
    }

    #[tokio::test]
    async fn case_18_given_a_reload_when_clusters_leave_lose_their_check_or_join_then_probes_end_go_on_or_begin_at_once()
     {
        const CHECK: &str = "{ type: tcp, interval: 100ms }";
        let metrics = Metrics::new();
        let ((gone, of_gone), (off, of_off), (stays, of_stays), (new, of_new)) =
            (port().await, port().await, port().await, port().await);
        let before = [("gone", gone, CHECK), ("off", off, CHECK), ("stays", stays, CHECK)];
        let (runtime, _stop) = running(compiled(&before, None, &metrics));
        let count = |seen: &Arc<AtomicUsize>| seen.load(Ordering::SeqCst);
        eventually("all are probed", || [&of_gone, &of_off, &of_stays].iter().all(|seen| count(seen) >= 2)).await;
        let compile = |old: &Snapshot| {
            let hourly = "{ type: tcp, interval: 1h }";
            let after = [("off", off, "off"), ("stays", stays, CHECK), ("new", new, hourly)];
            Ok::<_, ()>(compiled(&after, Some(old), &metrics))
        };
        runtime.reload(compile, Instant::now).unwrap();
        eventually("the new one is probed at once", || count(&of_new) == 1).await;
        // Its task was made in the turn that ended the others.
        let ended = (count(&of_gone), count(&of_off));
        let more = count(&of_stays) + 8;
        eventually("the other goes on", || count(&of_stays) >= more).await;
        let late = |now: usize, then: usize| now - then <= 1;
        assert!(late(count(&of_gone), ended.0) && late(count(&of_off), ended.1), "{ended:?}");
        assert_eq!(count(&of_new), 1);
    }

    #[tokio::test]
    async fn given_maintenance_when_it_begins_and_ends_then_probes_end_and_begin_at_once() {
        let ((busy, of_busy), (clock, of_clock)) = (port().await, port().await);
        let check = "{ type: tcp, interval: 100ms }";
        let snapshot = compiled(&[("busy", busy, check), ("clock", clock, check)], None, &Metrics::new());
        let (runtime, _stop) = running(snapshot);
        let count = |seen: &Arc<AtomicUsize>| seen.load(Ordering::SeqCst);
        eventually("both are probed", || count(&of_busy) >= 2 && count(&of_clock) >= 2).await;
        let snapshot = runtime.pin();
        let live = &snapshot.clusters[0].members[0].live;
        live.set_maintenance(true);
        // The operator's word is followed within two of these.
        let passed = count(&of_clock) + 8;
        eventually("the other goes on", || count(&of_clock) >= passed).await;
        let (then, passed) = (count(&of_busy), count(&of_clock) + 8);
        eventually("the other goes on", || count(&of_clock) >= passed).await;
        assert_eq!(count(&of_busy), then);
        live.set_maintenance(false);
        eventually("it is probed again", || count(&of_busy) > then).await;
    }

    fn lifecycle() -> Lifecycle {
        let epoch = Epoch { instant: Instant::now(), wall: SystemTime::now() };
        Lifecycle::new(crate::config::Drain::default(), Arc::default(), Vec::new(), epoch)
    }
}
