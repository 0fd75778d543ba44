//! Which probes a snapshot asks for, and what becomes of those that are made already. Data and no clock: the tasks are
//! [`super::Prober`]'s.
//!
//! A probe belongs to a real address and to all that is sent there and when, not to a destination: however many clusters ask
//! for the same one, it is made once and each of them judges by it.

use crate::model::Member;
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

    fn is_out(&self) -> bool {
        self.member.is_found_out()
    }
}

impl Job {
    /// From the start of one probe to the start of the next, without jitter.
    pub fn interval(&self) -> Duration {
        self.pace.interval(self.subscribers.iter().any(Subscriber::is_out))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::discovery::SystemNames;
    use crate::model::Epoch;
    use crate::model::Reason;
    use crate::observe::Metrics;
    use crate::runtime::{Registry, Scene, compile};
    use std::time::{Instant, SystemTime};

    /// Clusters of one destination each: name, what the destination has besides its address, active check.
    fn snapshot(clusters: &[(&str, &str, &str)]) -> Snapshot {
        let cluster = |(name, more, check): &(&str, &str, &str)| {
            let destination = format!("{{ address: \"http://127.0.0.1:7001/\", {more} }}");
            format!("  {name}: {{ destinations: {{ d: {destination} }}, health: {{ active: {{ {check} }} }} }}\n")
        };
        let clusters: String = clusters.iter().map(cluster).collect();
        let rest = "listeners: { web: \"127.0.0.1:1\" }\nroutes: { ping: { respond: {} } }\n";
        let text = format!("{rest}clusters:\n{clusters}");
        let config = Config::parse("test", &text).unwrap_or_else(|error| panic!("{error}"));
        let epoch = Epoch { instant: Instant::now(), wall: SystemTime::UNIX_EPOCH };
        let (registry, metrics) = (Registry::builtin(), Metrics::new());
        let scene = Scene { registry: &registry, names: &SystemNames, metrics: &metrics, epoch, serving: None };
        compile(&config, &scene, config.problems()).unwrap_or_else(|problems| panic!("{problems}"))
    }

    /// Each job as its subscribers' clusters.
    fn shared(clusters: &[(&str, &str, &str)]) -> Vec<Vec<String>> {
        let names = |job: &Job| job.subscribers.iter().map(|one| one.cluster.name.clone()).collect();
        jobs(&snapshot(clusters)).iter().map(names).collect()
    }

    #[test]
    fn given_two_clusters_when_all_that_is_sent_and_when_is_alike_then_one_probe_for_both() {
        const HTTP: &str = "type: http, path: /health";
        let both = |a: &str, b: &str| shared(&[("a", "", a), ("b", "", b)]).len() == 1;
        for alike in [
            "type: http, path: /health, unhealthy_after: 9, healthy_after: 3",
            "type: http, path: /health, method: GET, interval: 15s, timeout: 10s",
            "type: http, path: /health, expect: { status: 200-299 }",
            "type: http, path: /health, port: 7001",
        ] {
            assert!(both(HTTP, alike), "{alike}");
        }
        for other in [
            "path: /other",
            "path: /health?x=1",
            "path: /health, method: HEAD",
            "path: /health, headers: { A: b }",
            "path: /health, body: x",
            "path: /health, port: 7002",
            "path: /health, host: other.example",
            "path: /health, tls: on",
            "path: /health, version: 1.0",
            "path: /health, expect: { status: 204 }",
            "path: /health, expect: { headers: { A: b } }",
            "path: /health, expect: { body: x }",
            "path: /health, interval: 5s",
            "path: /health, interval_when_unhealthy: 1s",
            "path: /health, timeout: 1s",
            "path: /health, jitter: 0%",
        ] {
            assert!(!both(HTTP, &format!("type: http, {other}")), "{other}");
        }
        assert!(!both("type: http", "type: tcp") && !both("type: grpc", "type: grpc, service: x"));
        assert!(both("type: grpc", "type: grpc"));
        // TCP makes nothing of a Host, HTTP does.
        let named = |check: &str| shared(&[("a", "", check), ("b", "host: other.example", check)]);
        assert_eq!((named("type: tcp").len(), named("type: http").len()), (1, 2));
        let certificates = |verify: &str| format!("type: http, tls: {{ verify: {verify} }}");
        assert!(both(&certificates("true"), &certificates("true")));
        assert!(!both(&certificates("true"), &certificates("false")));
    }

    #[test]
    fn given_disabled_destinations_and_those_in_maintenance_when_asked_then_no_probe_of_them() {
        let check = "type: tcp";
        let snapshot = snapshot(&[("a", "enabled: false", check), ("b", "", check), ("c", "", check)]);
        snapshot.cluster("c").unwrap().members[0].live.set_maintenance(true);
        let jobs = jobs(&snapshot);
        assert_eq!((jobs.len(), jobs[0].subscribers.len()), (1, 1));
        let subscriber = &jobs[0].subscribers[0];
        assert!(subscriber.current(&snapshot, &jobs[0].signature).is_some());
        subscriber.member.live.set_maintenance(true);
        assert!(subscriber.current(&snapshot, &jobs[0].signature).is_none(), "a result that comes too late");
    }

    #[test]
    fn given_a_result_when_the_check_has_changed_meanwhile_then_it_says_nothing_any_more() {
        let old = jobs(&snapshot(&[("a", "", "type: http")])).remove(0);
        let ask = |now: Snapshot| old.subscribers[0].current(&now, &old.signature).is_some();
        assert!(ask(snapshot(&[("a", "weight: 2", "type: http, interval: 1s")])));
        assert!(!ask(snapshot(&[("a", "", "type: http, path: /other")])));
        assert!(!ask(snapshot(&[("b", "", "type: http")])));
    }

    #[test]
    fn given_a_mark_when_it_is_not_the_operators_then_the_other_interval() {
        let job = jobs(&snapshot(&[("a", "", "type: tcp, interval: 9s, interval_when_unhealthy: 2s")])).remove(0);
        let marks = &job.subscribers[0].member.live.marks;
        assert_eq!(job.interval(), Duration::from_secs(9));
        marks.set(Reason::Operator, true);
        assert_eq!(job.interval(), Duration::from_secs(9));
        for reason in [Reason::Active, Reason::Passive] {
            marks.set(reason, true);
            assert_eq!(job.interval(), Duration::from_secs(2));
            marks.set(reason, false);
        }
        assert_eq!((job.interval(), job.stale_after()), (Duration::from_secs(9), Duration::from_secs(28)));
    }

    /// What becomes of the first snapshot's probes in the second, as words.
    fn steps(before: &[(&str, &str, &str)], after: &[(&str, &str, &str)]) -> Vec<String> {
        let step = |step: Step| match step {
            Step::Keep { made, at_once, .. } => format!("keep {made}{}", if at_once { " at once" } else { "" }),
            Step::Start { after: Some(after), .. } => format!("start after {after}"),
            Step::Start { after: None, .. } => "start at once".to_owned(),
        };
        plan(&jobs(&snapshot(before)), jobs(&snapshot(after))).into_iter().map(step).collect()
    }

    #[test]
    fn given_a_new_configuration_when_planned_then_known_probes_keep_their_clock_and_new_ones_are_made_at_once() {
        const FIVE: &str = "type: tcp, interval: 5s";
        const NINE: &str = "type: tcp, interval: 9s";
        let a = ("a", "", FIVE);
        assert_eq!(steps(&[a], &[a]), ["keep 0"]);
        assert_eq!(steps(&[a], &[("a", "metadata: { x: y }, weight: 3", FIVE)]), ["keep 0"]);
        assert_eq!(steps(&[a], &[("a", "", NINE)]), ["keep 0"], "only the time");
        assert_eq!(steps(&[a], &[("a", "", "type: tcp, interval: 5s, port: 7009")]), ["start at once"]);
        assert_eq!(steps(&[a], &[]), Vec::<String>::new());
        assert_eq!(steps(&[], &[a]), ["start at once"]);
        assert_eq!(steps(&[a], &[a, ("b", "", FIVE)]), ["keep 0 at once"], "b joins");
        assert_eq!(steps(&[a, ("b", "", FIVE)], &[a]), ["keep 0"], "b leaves");
        assert_eq!(steps(&[a, ("b", "", FIVE)], &[a, ("b", "", NINE)]), ["keep 0", "start after 0"], "b parts");
        assert_eq!(steps(&[a, ("b", "", NINE)], &[a, ("b", "", FIVE)]), ["keep 0"], "b comes to a");
    }
}
