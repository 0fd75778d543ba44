//! Which requests go to a canary, and when none does. An exact share of the new requests, and those that match; all go to the
//! primaries for the cool-down after a failure of a canary: an attempt that `passive.count` or `breaker.count` names a failure,
//! or a mark by any judge but the operator. It ends by itself. Whether a canary may be drawn at all is its health's to say.

use super::matcher::HeaderMatcher;
use super::{Cluster, Report};
use crate::config::{self, Count, Role};
use crate::model::{Member, Outcome, RequestView, Span, Split};
use crate::observe::event;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Where a request begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arm {
    Primary,
    Canary,
}

/// Section `canary`, ready for requests.
pub(super) struct Canary {
    permille: u32,
    cooldown: Duration,
    /// One of them suffices.
    matches: Vec<HeaderMatcher>,
    /// What of an attempt's end is a failure.
    count: Vec<Count>,
}

/// What outlives a snapshot.
pub(super) struct Course {
    split: Split,
    /// The operator's word in place of the configuration's share; [`NO_WORD`].
    permille: AtomicU32,
    /// When the last cool-down ends, in the cluster's nanoseconds; 0 = there was none.
    rests_until: AtomicU64,
    /// Its end is still to be told.
    rests: AtomicBool,
}

const NO_WORD: u32 = u32::MAX;

impl Default for Course {
    fn default() -> Self {
        Course {
            split: Split::default(),
            permille: AtomicU32::new(NO_WORD),
            rests_until: AtomicU64::new(0),
            rests: AtomicBool::new(false),
        }
    }
}

impl Canary {
    pub fn new(canary: &config::Canary, health: &config::Health) -> Self {
        let passive = health.passive.as_ref().map(|passive| passive.count.clone());
        let breaker = health.breaker.as_ref().map(|breaker| breaker.count.clone());
        let count: Vec<Count> = passive.into_iter().chain(breaker).collect();
        Canary {
            permille: canary.permille,
            cooldown: canary.cooldown,
            matches: canary.matches.iter().map(HeaderMatcher::new).collect(),
            count: if count.is_empty() { vec![Count::default()] } else { count },
        }
    }

    fn matches(&self, request: &RequestView<'_>) -> bool {
        self.matches.iter().any(|matcher| matcher.admits(request.headers))
    }
}

/// How a canary stands, for people.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CanaryView {
    /// In tenths of a percent.
    pub permille: u32,
    /// The operator's word, in place of the configuration's.
    pub ordered: bool,
    /// What is left of the cool-down.
    pub rests: Option<Duration>,
}

/// How a canary stands, for another process. Its turns begin anew there.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SavedCanary {
    /// The operator's word.
    permille: Option<u32>,
    /// What is left of the cool-down.
    rests: Option<Span>,
}

impl Cluster {
    pub(super) fn saved_canary(&self, now: Instant) -> Option<SavedCanary> {
        self.canary.as_ref()?;
        let course = &self.kept.course;
        let permille = Some(course.permille.load(Relaxed)).filter(|permille| *permille != NO_WORD);
        let until = self.kept.begun + Duration::from_nanos(course.rests_until.load(Relaxed));
        let rests = self.canary_rests(now).then(|| Span::between(now, until));
        (permille.is_some() || rests.is_some()).then_some(SavedCanary { permille, rests })
    }

    pub(super) fn resume_canary(&self, saved: &SavedCanary, now: Instant) {
        if self.set_canary(saved.permille.map(|permille| permille.min(1_000)))
            && let Some(left) = saved.rests
        {
            let course = &self.kept.course;
            course.rests_until.store(self.nanos(left.ahead(now)), Relaxed);
            course.rests.store(true, Relaxed);
        }
    }

    /// Where a new request begins; asked once for each, for it counts.
    pub fn arm(&self, request: &RequestView<'_>, now: Instant) -> Arm {
        let Some(canary) = &self.canary else { return Arm::Primary };
        let course = &self.kept.course;
        let wanted = canary.matches(request) || course.split.next(self.permille(canary));
        match wanted && !self.canary_rests(now) {
            true => Arm::Canary,
            false => Arm::Primary,
        }
    }

    /// The operator's share in place of the configuration's, or no longer. `false`: the cluster has no canary.
    pub fn set_canary(&self, permille: Option<u32>) -> bool {
        if self.canary.is_some() {
            self.kept.course.permille.store(permille.unwrap_or(NO_WORD), Relaxed);
        }
        self.canary.is_some()
    }

    /// `None`: it has none.
    pub fn canary_view(&self, now: Instant) -> Option<CanaryView> {
        let canary = self.canary.as_ref()?;
        let left = self.kept.course.rests_until.load(Relaxed).saturating_sub(self.nanos(now));
        Some(CanaryView {
            permille: self.permille(canary),
            ordered: self.kept.course.permille.load(Relaxed) != NO_WORD,
            rests: (left > 0).then(|| Duration::from_nanos(left)),
        })
    }

    fn permille(&self, canary: &Canary) -> u32 {
        match self.kept.course.permille.load(Relaxed) {
            NO_WORD => canary.permille,
            word => word,
        }
    }

    pub(super) fn canary_rests(&self, now: Instant) -> bool {
        self.nanos(now) < self.kept.course.rests_until.load(Relaxed)
    }

    /// What came of an attempt at a canary. One that began before the last cool-down ended says nothing new.
    pub(super) fn canary_answered(&self, member: &Member, report: &Report<'_>, now: Instant) {
        let Some(canary) = self.canary.as_ref().filter(|_| member.is(Role::Canary)) else { return };
        if canary.count.iter().any(|count| report.outcome.is_in(count)) {
            let known = self.nanos(report.begun) < self.kept.course.rests_until.load(Relaxed);
            if !known {
                match report.outcome {
                    Outcome::Status(status) => self.rest(canary, member, format_args!("it answered {status}"), now),
                    outcome => self.rest(canary, member, format_args!("{}", outcome.as_str()), now),
                }
            }
        }
    }

    /// A judge marked a canary.
    pub(super) fn canary_fell(&self, member: &Member, now: Instant) {
        let Some(canary) = self.canary.as_ref().filter(|_| member.is(Role::Canary)) else { return };
        if member.is_found_out() && !self.canary_rests(now) {
            self.rest(canary, member, format_args!("it is unhealthy"), now);
        }
    }

    fn rest(&self, canary: &Canary, member: &Member, why: fmt::Arguments<'_>, now: Instant) {
        let course = &self.kept.course;
        course.rests_until.store(self.nanos(now + canary.cooldown), Relaxed);
        course.rests.store(true, Relaxed);
        event::canary_rests(&self.metrics, &member.destination.id, canary.cooldown, why);
    }

    /// Tells the end of a cool-down, once.
    pub(super) fn canary_due(&self, now: Instant) {
        if self.kept.course.rests.load(Relaxed)
            && !self.canary_rests(now)
            && self.kept.course.rests.swap(false, Relaxed)
        {
            event::canary_returns(&self.metrics);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health::Event;
    use crate::model::testing::request;
    use crate::model::{Dice, Member};
    use crate::runtime::testing::compiled;
    use crate::runtime::{Trail, draw};
    use http::{HeaderMap, header};
    use std::sync::Arc;

    /// One primary, one canary, and more keys.
    fn cluster(more: &str) -> Arc<Cluster> {
        let text = format!(
            "listeners: {{ web: \"127.0.0.1:1\" }}\nroutes: {{ all: {{ cluster: c }} }}\nclusters: {{ c: {{ destinations: {{ p: \
             \"http://127.0.0.1:7001\", c: {{ address: \"http://127.0.0.1:7002\", role: canary }} }}, {more} }} }}\n"
        );
        compiled(&text).1.clusters[0].clone()
    }

    fn sent(cluster: &Cluster, request: RequestView<'_>, now: Instant) -> String {
        let arm = cluster.arm(&request, now);
        let drawn = draw(cluster, arm, request, &mut Trail::default(), now, &mut Dice::with_seed(1));
        drawn.map_or("none".into(), |drawn| drawn.member.destination.id.clone())
    }

    fn canaries(cluster: &Cluster, requests: usize, now: Instant) -> usize {
        (0..requests).filter(|_| sent(cluster, request(), now) == "c").count()
    }

    fn ended(cluster: &Cluster, member: &Arc<Member>, outcome: Outcome, begun: Instant, now: Instant) {
        let lease = member.live.lease(None).expect("no bound");
        let (route, ticket, waited) = (&Arc::from("all"), lease.ticket(), Duration::ZERO);
        cluster.report(member, &Report { outcome, ticket, begun, route, attempt: 1, detail: "", waited }, now);
    }

    #[test]
    fn given_a_share_when_ten_thousand_requests_come_then_exactly_so_many_go_to_the_canary() {
        let (cluster, now) = (cluster("canary: { percent: 5% }"), Instant::now());
        assert_eq!(canaries(&cluster, 10_000, now), 500);
        assert!((0..10).all(|_| canaries(&cluster, 100, now) == 5));
        assert!(cluster.set_canary(Some(1)));
        assert_eq!(canaries(&cluster, 1_000, now), 1);
        assert!(cluster.set_canary(None));
        assert_eq!(canaries(&cluster, 100, now), 5);
    }

    #[test]
    fn given_a_match_when_a_request_has_the_header_or_the_cookie_then_it_goes_to_the_canary_and_others_by_the_share() {
        let of = "{ header: { name: X-Canary, values: [\"1\"] }, cookie: { name: canary, values: [always] } }";
        let (cluster, now) = (cluster(&format!("canary: {{ match: {of} }}")), Instant::now());
        for (name, value, to) in [
            ("x-canary", "1", "c"),
            ("x-canary", "0", "p"),
            ("cookie", "a=b; canary=always", "c"),
            ("cookie", "canary=Always", "p"),
            ("cookie", "xcanary=always", "p"),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::HeaderName::from_static(name), value.parse().expect("a value"));
            assert_eq!(sent(&cluster, RequestView { headers: &headers, ..request() }, now), to, "{name}: {value}");
        }
        assert_eq!(canaries(&cluster, 1_000, now), 0);
    }

    #[test]
    fn given_a_failed_answer_when_the_cooldown_runs_then_all_goes_to_the_primaries_and_it_returns_by_itself() {
        let more = "canary: { percent: 50%, cooldown: 10s }, health: { passive: { count: [connect, \"5xx\"] } }";
        let (cluster, now) = (cluster(more), Instant::now());
        let (primary, canary) = (&cluster.members[0], &cluster.members[1]);
        ended(&cluster, canary, Outcome::Status(404), now, now);
        ended(&cluster, canary, Outcome::ClientAbort, now, now);
        ended(&cluster, primary, Outcome::Status(500), now, now);
        assert_eq!(canaries(&cluster, 10, now), 5);
        ended(&cluster, canary, Outcome::Status(500), now, now);
        assert_eq!(canaries(&cluster, 10, now), 0);
        let later = now + Duration::from_millis(9_999);
        // Begun before it rested: nothing new.
        ended(&cluster, canary, Outcome::Status(500), now, later);
        assert_eq!(canaries(&cluster, 10, later), 0);
        let over = now + Duration::from_secs(10);
        assert_eq!(canaries(&cluster, 10, over), 5);
        ended(&cluster, canary, Outcome::Refused, over, over);
        assert_eq!(canaries(&cluster, 10, over), 0);
        assert_eq!(cluster.canary_view(over).and_then(|view| view.rests), Some(Duration::from_secs(10)));
    }

    #[test]
    fn given_a_check_or_a_breaker_that_marks_it_when_the_cooldown_runs_then_all_goes_to_the_primaries() {
        let more = "canary: { percent: 50%, cooldown: 10s }, health: { passive: off, active: { type: tcp, unhealthy_after: 1 } }";
        let (cluster, now) = (cluster(more), Instant::now());
        let probe = |passed, now| {
            drop(cluster.judge(&cluster.members[1], Event::Probe { passed, cause: "".into(), begun: now }, now));
        };
        probe(false, now);
        probe(true, now);
        assert_eq!(canaries(&cluster, 10, now), 0);
        let over = now + Duration::from_secs(10);
        assert_eq!(canaries(&cluster, 10, over), 5);
        let (cluster, now) = (
            self::cluster(
                "canary: { percent: 50%, cooldown: 10s }, health: { breaker: { threshold: 2, minimum_requests: 2, sleep: 1s, count: [\"503\"] } }",
            ),
            now,
        );
        let canary = &cluster.members[1];
        ended(&cluster, canary, Outcome::Status(503), now, now);
        assert_eq!(canaries(&cluster, 10, now), 0);
        assert_eq!(canaries(&cluster, 10, over), 5);
    }
}
