//! Which probes a snapshot asks for, and what becomes of those that are made already. Data and no clock: the tasks are
//! [`super::Prober`]'s.
//!
//! A probe belongs to a real address and to all that is sent there and when, not to a destination: however many clusters ask
//! for the same one, it is made once and each of them judges by it.

use crate::model::{Member, Reason};
use crate::runtime::{Cluster, Pace, Snapshot};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// One probe, again and again.
#[derive(Clone)]
pub struct Job {
    pub signature: Arc<str>,
    pub pace: Pace,
    /// Never empty.
    pub subscribers: Vec<Subscriber>,
}

/// A destination that is judged by it.
#[derive(Clone)]
pub struct Subscriber {
    pub cluster: Arc<Cluster>,
    pub member: Arc<Member>,
}

/// What becomes of one job that is wanted. What is made already and is in no step ends.
pub enum Step {
    /// The one made already, by its position, goes on under new terms.
    Keep { made: usize, job: Job, at_once: bool },
    /// A new one; its first probe is due as the next one of `after` would be, else at once.
    Start { job: Job, after: Option<usize> },
}

impl Subscriber {
    /// In the snapshot that serves now, unless it is gone there, gets no probes, or is probed otherwise.
    pub fn current(&self, snapshot: &Snapshot, signature: &str) -> Option<Subscriber> {
        let cluster = snapshot.cluster(&self.cluster.name)?;
        let member = cluster.members.iter().find(|member| self.is(cluster, member))?;
        let same = cluster.probe_signature(member).is_some_and(|other| **other == *signature);
        (same && cluster.wants_probes(member)).then(|| Subscriber { cluster: cluster.clone(), member: member.clone() })
    }

    fn is(&self, cluster: &Cluster, member: &Member) -> bool {
        let (own, other) = (&self.member.destination, &member.destination);
        self.cluster.name == cluster.name && own.id == other.id && own.endpoint == other.endpoint
    }

    /// Out by another word than the operator's.
    fn is_out(&self) -> bool {
        self.member.live.marks.reasons().any(|reason| reason != Reason::Operator)
    }
}

impl Job {
    /// From the start of one probe to the start of the next, without jitter.
    pub fn interval(&self) -> Duration {
        match self.subscribers.iter().any(Subscriber::is_out) {
            true => self.pace.interval_when_unhealthy,
            false => self.pace.interval,
        }
    }

    /// No result for longer than this, and what was found is not known to hold.
    pub fn stale_after(&self) -> Duration {
        2 * self.pace.interval.max(self.pace.interval_when_unhealthy) + self.pace.timeout
    }

    fn has(&self, subscriber: &Subscriber) -> bool {
        self.subscribers.iter().any(|own| own.is(&subscriber.cluster, &subscriber.member))
    }
}

/// All that a snapshot asks for.
pub fn jobs(snapshot: &Snapshot) -> Vec<Job> {
    let mut jobs: Vec<Job> = Vec::new();
    let mut known: HashMap<Arc<str>, Vec<usize>> = HashMap::new();
    for cluster in &snapshot.clusters {
        let Some(check) = &cluster.check else { continue };
        for member in cluster.members.iter().filter(|member| cluster.wants_probes(member)) {
            let Some(signature) = cluster.probe_signature(member) else { continue };
            let subscriber = Subscriber { cluster: cluster.clone(), member: member.clone() };
            let alike = known.entry(signature.clone()).or_default();
            match alike.iter().find(|job| jobs[**job].pace == check.pace) {
                Some(job) => jobs[*job].subscribers.push(subscriber),
                None => {
                    alike.push(jobs.len());
                    let (signature, pace) = (signature.clone(), check.pace);
                    jobs.push(Job { signature, pace, subscribers: vec![subscriber] });
                }
            }
        }
    }
    jobs
}

/// How to get from the probes that are made to those that are wanted. A change of the configuration never puts off a probe
/// that was due: whoever is probed goes on, by its old clock where only the times changed; who is new is probed at once.
pub fn plan(made: &[Job], wanted: Vec<Job>) -> Vec<Step> {
    let mut alike: HashMap<Arc<str>, Vec<usize>> = HashMap::new();
    for (position, job) in made.iter().enumerate() {
        alike.entry(job.signature.clone()).or_default().push(position);
    }
    let positions = |job: &Job| alike.get(&job.signature).map_or(&[][..], Vec::as_slice);
    let is_known = |job: &Job| {
        let by_any = |one: &Subscriber| positions(job).iter().any(|position| made[*position].has(one));
        job.subscribers.iter().all(by_any)
    };
    let mut free = vec![true; made.len()];
    let mut steps = Vec::new();
    let mut others = Vec::new();
    for job in wanted {
        match positions(&job).iter().find(|position| made[**position].pace == job.pace) {
            Some(&position) => {
                free[position] = false;
                steps.push(Step::Keep { made: position, at_once: !is_known(&job), job });
            }
            None => others.push(job),
        }
    }
    for job in others {
        match positions(&job).iter().find(|position| free[**position]) {
            Some(&position) => {
                free[position] = false;
                steps.push(Step::Keep { made: position, at_once: !is_known(&job), job });
            }
            None => {
                let after = positions(&job).first().copied().filter(|_| is_known(&job));
                steps.push(Step::Start { job, after });
            }
        }
    }
    steps
}
