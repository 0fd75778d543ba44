//! Session affinity of one cluster: its policy, and what follows from what that finds. Where a request without a destination of
//! its session goes is [`super::draw()`]'s to say; what is written on the answer, the driver's.

use super::draw::bound;
use super::{Arm, Cluster, Drawn, NoDestination, Registry, Trail, draw};
use crate::affinity::{Affinity, Recall, Scope};
use crate::config::{self, AffinityFailure, HttpAddress, IdForm, Problems};
use crate::model::{Destination, Dice, RequestView};
use std::time::Instant;

pub struct Sessions {
    pub policy: Box<dyn Affinity>,
    pub failure: AffinityFailure,
    /// A request that began at its session's destination is tried at no other.
    pub strict: bool,
    /// Destinations see the key.
    pub forward: bool,
    /// Each answer carries the key anew.
    pub sliding: bool,
}

/// What the key of a request came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Session {
    /// There was none.
    New,
    /// The destination at this index takes it.
    Kept(usize),
    /// It leads nowhere; the request goes on as a new one.
    Lost(Lost),
    /// It leads nowhere, and there the request ends.
    Refused(Lost),
}

/// Why a key leads nowhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lost {
    /// Of no destination that there is.
    Unknown,
    Unreadable,
    /// The destination at this index may not be used.
    Unavailable(usize),
    /// It has `max_requests` in flight.
    Full(usize),
    /// It is a canary in its cool-down, which says nothing against the session.
    Resting(usize),
}

/// Where a request begins.
pub struct First {
    /// `None`: the cluster binds no sessions.
    pub session: Option<Session>,
    /// `None`: it was not asked for, or not yet.
    pub arm: Option<Arm>,
    pub drawn: Result<Drawn, NoDestination>,
}

/// The first draw for a request; made again, it has the `arm` that the one before found.
///
/// | its key | what follows |
/// |---|---|
/// | of a destination that may be used: it has no mark, or only the order to drain, or is half-open and has a place for it, or serves in a panic; its role and weight do not matter, nor the share of canaries | that one |
/// | none, or of a canary in its cool-down | a new request's draw |
/// | unknown, unreadable, or of a destination that may not be used | the same, unless `failure` is Return503Error: [`NoDestination::SessionLost`] |
/// | of a destination at `max_requests` | the same, unless `failure` is Return503Error or it is `strict`: [`NoDestination::AllFull`] |
pub fn first(
    cluster: &Cluster,
    arm: Option<Arm>,
    request: RequestView<'_>,
    trail: &mut Trail,
    now: Instant,
    dice: &mut Dice,
) -> First {
    let session = match cluster.sessions.as_ref().map(|sessions| sessions.recall(cluster, &request, now)) {
        None => None,
        Some(Ok((index, drawn))) => return First { session: Some(Session::Kept(index)), arm, drawn: Ok(drawn) },
        Some(Err((session, Some(refusal)))) => return First { session: Some(session), arm, drawn: Err(refusal) },
        Some(Err((session, None))) => Some(session),
    };
    let arm = arm.unwrap_or_else(|| cluster.arm(&request, now));
    First { session, arm: Some(arm), drawn: draw(cluster, arm, request, trail, now, dice) }
}

impl Cluster {
    /// What a session's request that goes nowhere else is refused by, as the file has it.
    pub fn refuses_by(&self) -> &'static str {
        let by_failure = self.sessions.as_ref().is_some_and(Sessions::refuses);
        if by_failure { "Return503Error" } else { "strict" }
    }
}

impl Sessions {
    /// The destination that the key leads to; else what the key came to, and whether the request ends there.
    fn recall(
        &self,
        cluster: &Cluster,
        request: &RequestView<'_>,
        now: Instant,
    ) -> Result<(usize, Drawn), (Session, Option<NoDestination>)> {
        match self.policy.recall(request) {
            Recall::Unset => Err((Session::New, None)),
            Recall::Unknown => Err(self.lost(Lost::Unknown)),
            Recall::Unreadable => Err(self.lost(Lost::Unreadable)),
            Recall::Bound(index) => match bound(cluster, index, request, now) {
                Ok(drawn) => Ok((index, drawn)),
                Err(lost) => Err(self.lost(lost)),
            },
        }
    }

    fn refuses(&self) -> bool {
        self.failure == AffinityFailure::Return503Error
    }

    fn lost(&self, lost: Lost) -> (Session, Option<NoDestination>) {
        let refuses = self.refuses();
        let refusal = match lost {
            Lost::Resting(_) => None,
            Lost::Full(_) => (refuses || self.strict).then_some(NoDestination::AllFull),
            Lost::Unknown | Lost::Unreadable | Lost::Unavailable(_) => refuses.then_some(NoDestination::SessionLost),
        };
        (if refusal.is_some() { Session::Refused(lost) } else { Session::Lost(lost) }, refusal)
    }

    /// `ids` are [`key_id`]s by index. `Some(None)`: there is none; `None`: it was faulty.
    pub(super) fn compile(
        cluster: &config::Cluster,
        ids: &[String],
        registry: &Registry,
        problems: &mut Problems,
    ) -> Option<Option<Self>> {
        let Some(written) = &cluster.session_affinity else { return Some(None) };
        let scope = Scope { key_name: &written.key_name, ids };
        Some(Some(Sessions {
            policy: registry.affinity(&written.policy, &scope, problems)?,
            failure: written.failure,
            strict: written.strict,
            forward: written.forward,
            sliding: written.sliding,
        }))
    }
}

/// What `destination`, which `written` became, is called in keys.
pub(super) fn key_id(cluster: &config::Cluster, written: &config::Destination, destination: &Destination) -> String {
    match cluster.session_affinity.as_ref().map(|affinity| affinity.id_form) {
        Some(IdForm::Resolved) => format!("{}[{}]", written.id.value, authority(written, destination)),
        Some(IdForm::Name) | None => destination.id.clone(),
    }
}

/// As the file has it, unless it was a logical name: then as the service has it.
fn authority(written: &config::Destination, destination: &Destination) -> String {
    let text = &written.address.value;
    let found = destination.endpoint.authority();
    match HttpAddress::parse(text) {
        Ok(address) if address.authority() == found => {
            let rest = text.split_once("://").map_or(text.as_str(), |(_, rest)| rest);
            rest.split('/').next().unwrap_or(rest).to_owned()
        }
        _ => found,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health::{Attempted, Event, Order, Override};
    use crate::model::testing::request;
    use crate::model::{Outcome, Reason};
    use crate::runtime::testing::compiled;
    use http::{HeaderMap, HeaderValue, Method, header};
    use std::sync::Arc;
    use std::time::Duration;

    fn cluster(settings: &str, destinations: &str, more: &str) -> Arc<Cluster> {
        let text = format!(
            "listeners: {{ web: \"127.0.0.1:1\" }}\nroutes: {{ all: {{ cluster: c }} }}\nservices: {{ catalog: {{ http: \
             [\"localhost:5301\", \"127.0.0.1:5311\"] }} }}\nclusters: {{ c: {{ destinations: {destinations}, \
             session_affinity: {{ key_name: k, {settings} }}, discovery: {{ type: services }}, {more} }} }}"
        );
        compiled(&text).1.clusters[0].clone()
    }

    /// A cluster of `a`, `b` and `c`, in turn.
    fn abc(settings: &str, more: &str) -> Arc<Cluster> {
        let destinations =
            "{ a: \"http://127.0.0.1:7001\", b: \"http://127.0.0.1:7002\", c: \"http://127.0.0.1:7003\" }";
        cluster(settings, destinations, &format!("load_balancing: RoundRobin, {more}"))
    }

    fn cookie(value: &str) -> HeaderMap {
        let field = HeaderValue::try_from(format!("k={value}")).expect("a value");
        std::iter::once((header::COOKIE, field)).collect()
    }

    /// The cookie that binds to a destination.
    fn key(cluster: &Cluster, id: &str) -> HeaderMap {
        let member = cluster.members.iter().find(|member| member.destination.id == id).expect("is there");
        let answer = crate::affinity::Answer { secure: false, now: std::time::UNIX_EPOCH };
        let sessions = cluster.sessions.as_ref().expect("is configured");
        let (_, line) = sessions.policy.remember(member.index, &answer).expect("a cookie");
        let pair = line.to_str().expect("text").split(';').next().expect("a pair");
        cookie(pair.strip_prefix("k=").expect("its name"))
    }

    /// What the key came to, and where the request goes.
    fn began(cluster: &Cluster, headers: &HeaderMap, now: Instant) -> (Session, Result<String, NoDestination>) {
        began_as(cluster, RequestView { headers, ..request() }, now)
    }

    fn began_as(cluster: &Cluster, request: RequestView<'_>, now: Instant) -> (Session, Result<String, NoDestination>) {
        let first = first(cluster, None, request, &mut Trail::default(), now, &mut Dice::with_seed(1));
        let drawn = first.drawn.map(|drawn| drawn.member.destination.id.clone());
        (first.session.expect("is configured"), drawn)
    }

    fn ordered(cluster: &Cluster, index: usize, order: Order, lasts: Option<Duration>, now: Instant) {
        cluster.judge(&cluster.members[index], Event::Operator { order, lasts, by: "me".into() }, now);
    }

    fn refused(cluster: &Cluster, index: usize, now: Instant) {
        let member = &cluster.members[index];
        let ticket = member.live.lease(None).expect("no bound").ticket();
        let (route, outcome, latency) = (&Arc::from("all"), Outcome::Refused, Duration::ZERO);
        cluster.judge(
            member,
            Event::Outcome(Attempted { outcome, ticket, begun: now, route, attempt: 1, latency }),
            now,
        );
    }

    const EJECTING: &str = "health: { passive: { detectors: [{ policy: ConsecutiveFailures, failures: 1 }], reactivation: { period: 10s } } }";

    #[test]
    fn given_a_key_when_its_destination_is_available_then_that_one_and_none_is_a_new_session() {
        let (cluster, now) = (abc("", ""), Instant::now());
        let bound = key(&cluster, "b");
        assert!((0..10).all(|_| began(&cluster, &bound, now) == (Session::Kept(1), Ok("b".into()))));
        // No turn was taken by those.
        let new: Vec<_> = (0..3).map(|_| began(&cluster, &HeaderMap::new(), now)).collect();
        assert_eq!(new, ["a", "b", "c"].map(|id| (Session::New, Ok(id.to_owned()))));
    }

    #[test]
    fn given_a_key_of_none_or_of_one_that_is_out_when_begun_then_the_failure_policy_decides() {
        for (settings, refuses) in [("", false), ("failure: Return503Error", true)] {
            let (cluster, now) = (abc(settings, EJECTING), Instant::now());
            let lost = |lost| if refuses { Session::Refused(lost) } else { Session::Lost(lost) };
            let (session, drawn) = began(&cluster, &cookie("nonsense"), now);
            assert_eq!((session, drawn.is_err()), (lost(Lost::Unknown), refuses));
            refused(&cluster, 1, now);
            let (session, drawn) = began(&cluster, &key(&cluster, "b"), now);
            assert_eq!(session, lost(Lost::Unavailable(1)));
            match refuses {
                true => assert_eq!(drawn, Err(NoDestination::SessionLost)),
                false => assert!(drawn.is_ok_and(|id| id != "b")),
            }
        }
    }

    #[test]
    fn given_a_draining_destination_when_begun_then_its_sessions_stay_until_its_end_and_no_new_one_comes() {
        let (cluster, now) = (abc("", "health: { active: { type: tcp, unhealthy_after: 1 } }"), Instant::now());
        let bound = key(&cluster, "b");
        ordered(&cluster, 1, Order::Override(Override::Drain), Some(Duration::from_secs(60)), now);
        assert_eq!(began(&cluster, &bound, now), (Session::Kept(1), Ok("b".into())));
        assert!((0..10).all(|_| began(&cluster, &HeaderMap::new(), now).1 != Ok("b".into())));
        // Another judge's word counts.
        cluster.judge(&cluster.members[1], Event::Probe { passed: false, cause: "".into(), begun: now }, now);
        assert_eq!(began(&cluster, &bound, now).0, Session::Lost(Lost::Unavailable(1)));
        cluster.judge(&cluster.members[1], Event::Probe { passed: true, cause: "".into(), begun: now }, now);
        for order in [Override::Maint, Override::Eject] {
            ordered(&cluster, 1, Order::Override(order), None, now);
            assert_eq!(began(&cluster, &bound, now).0, Session::Lost(Lost::Unavailable(1)), "{order:?}");
        }
        ordered(&cluster, 1, Order::Ready, None, now);
        assert_eq!(began(&cluster, &bound, now).0, Session::Kept(1));
        assert!(!cluster.members[1].live.is_draining());
    }

    #[test]
    fn given_a_destination_on_its_leave_when_its_time_is_over_then_its_sessions_are_lost_and_it_stays_out() {
        let (cluster, now) = (abc("", ""), Instant::now());
        let (bound, minute) = (key(&cluster, "b"), Duration::from_secs(60));
        ordered(&cluster, 1, Order::Override(Override::Leave), Some(minute), now);
        cluster.due(now + minute - Duration::from_millis(1));
        assert_eq!(began(&cluster, &bound, now), (Session::Kept(1), Ok("b".into())));
        cluster.due(now + minute);
        assert_eq!(began(&cluster, &bound, now + minute).0, Session::Lost(Lost::Unavailable(1)));
        let live = &cluster.members[1].live;
        assert!(live.in_maintenance() && !live.is_draining());
        cluster.due(now + 100 * minute);
        assert_eq!(began(&cluster, &bound, now + 100 * minute).0, Session::Lost(Lost::Unavailable(1)));
        ordered(&cluster, 1, Order::Ready, None, now + 100 * minute);
        assert_eq!(began(&cluster, &bound, now + 100 * minute).0, Session::Kept(1));
    }

    #[test]
    fn given_weight_0_or_a_disabled_destination_when_begun_then_the_first_keeps_its_sessions() {
        let destinations = "{ a: \"http://127.0.0.1:7001\", b: { address: \"http://127.0.0.1:7002\", weight: 0 }, c: { address: \
                            \"http://127.0.0.1:7003\", enabled: false } }";
        let (cluster, now) = (cluster("", destinations, ""), Instant::now());
        assert_eq!(began(&cluster, &key(&cluster, "b"), now), (Session::Kept(1), Ok("b".into())));
        assert_eq!(began(&cluster, &key(&cluster, "c"), now), (Session::Lost(Lost::Unavailable(2)), Ok("a".into())));
    }

    #[test]
    fn given_a_panic_when_begun_then_a_valid_key_stays_and_what_no_panic_overrides_does_not_serve() {
        let more = "health: { active: { type: tcp, unhealthy_after: 1 } }";
        let (cluster, now) = (abc("", more), Instant::now());
        let bound = key(&cluster, "b");
        for member in &cluster.members {
            cluster.judge(member, Event::Probe { passed: false, cause: "".into(), begun: now }, now);
        }
        assert!(cluster.published().primaries.panic);
        assert!((0..10).all(|_| began(&cluster, &bound, now) == (Session::Kept(1), Ok("b".into()))));
        ordered(&cluster, 1, Order::Override(Override::Maint), None, now);
        assert_eq!(began(&cluster, &bound, now).0, Session::Lost(Lost::Unavailable(1)));
        // Marked, and no panic is published yet.
        let cluster = abc("", more);
        for member in &cluster.members {
            member.live.marks.set(Reason::Active, true);
        }
        assert_eq!(began(&cluster, &bound, now).0, Session::Kept(1));
    }

    #[test]
    fn given_a_half_open_destination_when_begun_then_its_sessions_are_its_trials_while_there_is_a_place() {
        let (cluster, now) = (abc("", EJECTING), Instant::now());
        let bound = key(&cluster, "b");
        refused(&cluster, 1, now);
        let later = now + Duration::from_secs(10);
        cluster.due(later);
        let post = RequestView { method: &Method::POST, headers: &bound, ..request() };
        assert_eq!(began_as(&cluster, post, later).0, Session::Lost(Lost::Unavailable(1)));
        let get = RequestView { headers: &bound, ..request() };
        let first = first(&cluster, None, get, &mut Trail::default(), later, &mut Dice::with_seed(1));
        let drawn = first.drawn.expect("a trial");
        assert_eq!((drawn.member.index, drawn.lease.ticket().trial), (1, true));
        assert_eq!(began(&cluster, &bound, later).0, Session::Lost(Lost::Unavailable(1)));
        assert_eq!(began(&cluster, &key(&cluster, "c"), later), (Session::Kept(2), Ok("c".into())));
    }

    #[test]
    fn given_a_full_destination_when_begun_then_another_unless_it_is_strict() {
        let destinations =
            "{ a: { address: \"http://127.0.0.1:7001\", max_requests: 1 }, b: \"http://127.0.0.1:7002\" }";
        for (settings, expected) in [
            ("", (Session::Lost(Lost::Full(0)), Ok("b".to_owned()))),
            ("strict: true", (Session::Refused(Lost::Full(0)), Err(NoDestination::AllFull))),
            ("failure: Return503Error", (Session::Refused(Lost::Full(0)), Err(NoDestination::AllFull))),
        ] {
            let cluster = cluster(settings, destinations, "");
            let _held = cluster.members[0].live.lease(None).expect("no bound");
            assert_eq!(began(&cluster, &key(&cluster, "a"), Instant::now()), expected, "{settings}");
        }
    }

    const ROLES: &str = "{ p: \"http://127.0.0.1:7001\", c: { address: \"http://127.0.0.1:7002\", role: canary }, f: { address: \
                         \"http://127.0.0.1:7003\", role: failover }, m: { address: \"http://127.0.0.1:7004\", role: mirror } }";

    #[test]
    fn given_sessions_of_each_arm_when_begun_then_they_stay_and_the_share_of_new_ones_is_exact() {
        let (cluster, now) = (
            cluster(
                "",
                ROLES,
                "mirror: { percent: 1% }, canary: { percent: 10%, match: { header: { name: X-Canary, values: [\"1\"] } } }",
            ),
            Instant::now(),
        );
        let mut canaries = 0;
        for _ in 0..1_000 {
            for id in ["p", "c", "f"] {
                assert_eq!(began(&cluster, &key(&cluster, id), now).1, Ok(id.to_owned()));
            }
            let mut bound = key(&cluster, "p");
            bound.insert("x-canary", HeaderValue::from_static("1"));
            assert_eq!(began(&cluster, &bound, now).1, Ok("p".into()));
            canaries += usize::from(began(&cluster, &HeaderMap::new(), now).1 == Ok("c".into()));
        }
        assert_eq!(canaries, 100);
        assert_eq!(began(&cluster, &key(&cluster, "m"), now).0, Session::Lost(Lost::Unavailable(3)));
    }

    #[test]
    fn given_a_canary_in_its_cooldown_when_begun_then_its_sessions_are_bound_anew_whatever_the_failure_policy() {
        let more = "mirror: { percent: 1% }, canary: { percent: 10%, cooldown: 60s }";
        let (cluster, now) = (cluster("failure: Return503Error", ROLES, more), Instant::now());
        let (member, bound) = (&cluster.members[1], key(&cluster, "c"));
        let ticket = member.live.lease(None).expect("no bound").ticket();
        let (route, outcome, waited) = (&Arc::from("all"), Outcome::Refused, Duration::ZERO);
        cluster.report(
            member,
            &crate::runtime::Report { outcome, ticket, begun: now, route, attempt: 1, detail: "", waited },
            now,
        );
        assert_eq!(began(&cluster, &bound, now), (Session::Lost(Lost::Resting(1)), Ok("p".into())));
        let over = now + Duration::from_secs(60);
        assert_eq!(began(&cluster, &bound, over), (Session::Kept(1), Ok("c".into())));
    }

    #[test]
    fn given_failover_off_when_begun_then_a_session_of_a_failover_goes_to_a_primary() {
        let more = "mirror: { percent: 1% }, canary: { percent: 10% }, failover: { enabled: false }";
        let (cluster, now) = (cluster("", ROLES, more), Instant::now());
        let expected = (Session::Lost(Lost::Unavailable(2)), Ok("p".into()));
        assert_eq!(began(&cluster, &key(&cluster, "f"), now), expected);
    }

    /// Which destination's key `value` is, in a cluster of these settings and destinations.
    fn recalled(settings: &str, destinations: &str, value: &str) -> Option<String> {
        match began(&cluster(settings, destinations, ""), &cookie(value), Instant::now()) {
            (Session::Kept(_), drawn) => drawn.ok(),
            _ => None,
        }
    }

    #[test]
    fn given_the_form_of_yarp_behind_a_resolver_when_compiled_then_its_cookies_lead_to_the_destinations() {
        let catalogs =
            "{ catalog-1: \"http://localhost:5301/\", catalog-2: \"http://localhost:5311\", a: \"http://127.0.0.1\" }";
        let resolved = |value| recalled("id_form: resolved", catalogs, value);
        assert_eq!(resolved("e76da95c600cb57c").as_deref(), Some("catalog-1"));
        assert_eq!(resolved("d673564b930708ae").as_deref(), Some("catalog-2"));
        assert_eq!(resolved("97f64c126aa7b24d"), None);
        // The port stands there only where it is written.
        let catalog = "{ catalog: \"http://127.0.0.1\" }";
        assert_eq!(recalled("id_form: resolved", catalog, "b268fce7757d84ec").as_deref(), Some("catalog"));
        let named = |value| recalled("strict: true", catalogs, value);
        assert_eq!(named("97f64c126aa7b24d").as_deref(), Some("catalog-1"));
        assert_eq!(named("e76da95c600cb57c"), None);
    }

    #[test]
    fn given_a_logical_name_with_a_resolved_form_when_compiled_then_the_services_addresses_stand_in_the_keys() {
        let found = |value| recalled("id_form: resolved", "{ catalog-1: \"http://catalog\" }", value);
        assert_eq!(found("e76da95c600cb57c").as_deref(), Some("catalog-1[localhost:5301]"));
    }

    #[test]
    fn given_another_port_or_a_resolver_when_compiled_then_the_keys_of_names_stay() {
        for destinations in ["{ catalog-1: \"http://localhost:1\" }", "{ catalog-1: \"http://127.0.0.1:5301\" }"] {
            assert_eq!(recalled("", destinations, "97f64c126aa7b24d").as_deref(), Some("catalog-1"), "{destinations}");
        }
    }
}
