use super::{Budget, wait};
use crate::config::Retry;
use crate::model::{Dice, Outcome};
use http::Method;
use std::time::{Duration, Instant};

/// Another connection to the same destination, at most so often.
const RENEWALS: u8 = 2;

/// Attempts of one request at failovers, at most.
pub const FAILOVERS: u8 = 32;

/// How often one request may be sent at most, connections that were renewed included.
pub const ROUNDS: usize = Retry::MOST as usize + RENEWALS as usize + FAILOVERS as usize;

/// What one request may still do. A pure machine.
///
/// | how far the attempt came | again |
/// |---|---|
/// | a pooled connection took no request any more, or was left without looking at it | over another, twice; then as when refused |
/// | a pooled connection was closed before a byte of the answer | over a fresh one, as all that follow, where the method is idempotent |
/// | nothing was sent | elsewhere with `connect` or the outcome in `on`, whatever the method |
/// | refused unprocessed | elsewhere, whatever the method |
/// | declined, by a status of gRPC in `on_grpc` | elsewhere, whatever the method |
/// | sent | elsewhere with the outcome in `on` and the method in `methods` |
/// | a byte of the answer went down | never |
///
/// Elsewhere only with what came of the body at hand, within `attempts` and the budget; when either is spent, at the failovers,
/// where there are any, outside the budget and [`FAILOVERS`] times at most. Another connection goes to the same destination, of
/// which an old one that ended says nothing: its policy chose it, and it serves. So it is no attempt, costs
/// no budget, and is there with `retry: off`. An upgrade counts as a method that is never sent twice.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Which attempt it is, from 1.
    attempt: u8,
    /// How many of them were at failovers.
    failovers: u8,
    fails_over: bool,
    renewals: u8,
    closed: bool,
    idempotent: bool,
    /// May be sent twice, by the configuration.
    listed: bool,
    stays: bool,
}

/// How an attempt ended.
#[derive(Debug, Clone, Copy)]
pub struct Ended {
    pub outcome: Outcome,
    pub sent: Sent,
    /// Bytes of the body that the client sent so far, all of which are kept; `None` when they are not.
    pub kept: Option<u64>,
}

/// How far an attempt came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    /// No connection, or the head could not be written.
    Nothing,
    /// A pooled connection took no request any more, or said that it had not looked at this one.
    LeftOut,
    /// The destination refused it unprocessed.
    Refused,
    /// The answer is a status of gRPC alone, of those that are tried again after.
    Declined,
    /// A pooled connection was closed before a byte of the answer.
    Closed,
    /// The head at least.
    Head,
    /// The client has some of the answer.
    Answered,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The attempt goes on at the same destination; `fresh`: over a connection of its own.
    Renew {
        fresh: bool,
    },
    /// Another attempt at a primary, after `wait`.
    Again {
        wait: Duration,
        fresh: bool,
    },
    /// Another attempt at a failover; `wait` is for one that was tried before. `why` the primaries are left.
    FailOver {
        wait: Duration,
        fresh: bool,
        why: Why,
    },
    Stop(Why),
}

/// Why there is no other attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// Not asked for: `retry: off`, or an outcome that is not in `on`.
    Unasked,
    /// The client has some of the answer.
    Answered,
    /// It was sent, and the method is not one to be sent twice.
    Method,
    /// More of the body was sent than is kept.
    BodySent,
    /// `attempts` were made.
    Limit,
    Budget,
    /// None is left that was not tried, or none is available.
    NoDestination,
    /// The route's time would be over before the wait is.
    Timeout,
}

impl Ended {
    fn has_body(&self) -> bool {
        self.kept != Some(0)
    }
}

impl Why {
    /// The words of [`Why::index`], in its order.
    pub const WORDS: [&'static str; 7] =
        ["answered", "method", "body_sent", "limit", "budget", "no_destination", "timeout"];

    /// Position in [`Why::WORDS`]; what was not asked for is not denied.
    pub fn index(self) -> Option<usize> {
        Some(match self {
            Why::Unasked => return None,
            Why::Answered => 0,
            Why::Method => 1,
            Why::BodySent => 2,
            Why::Limit => 3,
            Why::Budget => 4,
            Why::NoDestination => 5,
            Why::Timeout => 6,
        })
    }
}

impl Plan {
    /// `rule`: `None` is `retry: off`. `fails_over`: there are failovers.
    pub fn new(rule: Option<&Retry>, fails_over: bool, method: &Method, upgrade: bool) -> Self {
        Plan {
            attempt: 1,
            failovers: 0,
            fails_over,
            renewals: 0,
            closed: false,
            idempotent: method.is_idempotent() && !upgrade,
            listed: rule.is_some_and(|rule| rule.methods.contains(method)) && !upgrade,
            stays: false,
        }
    }

    /// Its session is not to leave its destination: only the connection may be another.
    pub fn stays(self) -> Self {
        Plan { stays: true, ..self }
    }

    /// Which attempt is under way, from 1.
    pub fn attempt(&self) -> u8 {
        self.attempt
    }

    /// The attempt is at a failover, from where none goes back. Whether it is the first such.
    pub fn failed_over(&mut self) -> bool {
        self.failovers += 1;
        self.failovers == 1
    }

    /// Whether an attempt at a failover may follow.
    pub fn fails_over(&self) -> bool {
        self.fails_over && self.failovers < FAILOVERS
    }

    /// What follows the end of an attempt. Another attempt has been taken out of the budget.
    pub fn concluded(
        &mut self,
        ended: &Ended,
        rule: Option<&Retry>,
        budget: &Budget,
        now: Instant,
        dice: &mut Dice,
    ) -> Verdict {
        if let Some(fresh) = self.renewed(ended) {
            return Verdict::Renew { fresh };
        }
        let Some(rule) = rule.filter(|_| !self.stays) else { return Verdict::Stop(Why::Unasked) };
        if let Some(why) = self.denied(ended, rule) {
            return Verdict::Stop(why);
        }
        let spent = match self.failovers > 0 || self.attempt >= rule.attempts {
            true => Some(Why::Limit),
            false => (!budget.take(&rule.budget, now)).then_some(Why::Budget),
        };
        if let Some(why) = spent.filter(|_| !self.fails_over()) {
            return Verdict::Stop(why);
        }
        let wait = wait(&rule.delay, self.attempt, dice);
        self.attempt += 1;
        // Pingora sends a body again before it listens, so that a second refusal would look like a failure.
        let unprocessed = matches!(ended.sent, Sent::Refused | Sent::LeftOut);
        let fresh = self.closed || (unprocessed && (ended.has_body() || self.attempt >= rule.attempts));
        match spent {
            None => Verdict::Again { wait, fresh },
            Some(why) => Verdict::FailOver { wait, fresh, why },
        }
    }

    /// Whether the attempt goes on, and then whether its connection is to be fresh.
    fn renewed(&mut self, ended: &Ended) -> Option<bool> {
        match ended.sent {
            _ if ended.kept.is_none() => None,
            Sent::LeftOut if self.renewals < RENEWALS => {
                self.renewals += 1;
                // The last is one which nobody else's requests can wear out.
                Some(ended.has_body() || self.renewals == RENEWALS)
            }
            Sent::Closed if self.idempotent && !self.closed => {
                self.closed = true;
                self.renewals = RENEWALS;
                Some(true)
            }
            _ => None,
        }
    }

    fn denied(&self, ended: &Ended, rule: &Retry) -> Option<Why> {
        let listed = ended.outcome.is_in(&rule.on);
        let asked = match ended.sent {
            Sent::Nothing => rule.on.connect || listed,
            Sent::Refused | Sent::LeftOut | Sent::Declined => true,
            Sent::Closed | Sent::Head | Sent::Answered => listed,
        };
        let sent = matches!(ended.sent, Sent::Closed | Sent::Head);
        [
            (!asked, Why::Unasked),
            (ended.sent == Sent::Answered, Why::Answered),
            (sent && !self.listed, Why::Method),
            (ended.kept.is_none_or(|kept| kept > rule.max_body), Why::BodySent),
        ]
        .into_iter()
        .find_map(|(stands, why)| stands.then_some(why))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Count, Delay, RetryBudget};
    use proptest::prelude::*;

    fn rule() -> Retry {
        Retry {
            attempts: 3,
            on: Count { connect: true, timeout: false, reset: true, statuses: Vec::new() },
            on_grpc: Vec::new(),
            methods: vec![Method::GET, Method::HEAD, Method::OPTIONS, Method::PUT, Method::DELETE, Method::TRACE],
            attempt_timeout: None,
            delay: Delay::Fixed(Duration::ZERO),
            budget: RetryBudget { percent: 0.2, floor: 10 },
            max_body: 65_536,
            repeat: true,
        }
    }

    fn plan(rule: &Retry, method: Method) -> Plan {
        Plan::new(Some(rule), false, &method, false)
    }

    fn ended(outcome: Outcome, sent: Sent) -> Ended {
        Ended { outcome, sent, kept: Some(0) }
    }

    fn after(plan: &mut Plan, rule: &Retry, ended: Ended) -> Verdict {
        plan.concluded(&ended, Some(rule), &Budget::default(), Instant::now(), &mut Dice::with_seed(1))
    }

    const AGAIN: Verdict = Verdict::Again { wait: Duration::ZERO, fresh: false };

    #[test]
    fn given_a_first_attempt_when_it_ended_then_the_pinned_table() {
        use Outcome::*;
        let rule = rule();
        let stop = Verdict::Stop;
        for (method, outcome, sent, verdict) in [
            (Method::POST, Refused, Sent::Nothing, AGAIN),
            (Method::POST, Reset, Sent::Nothing, AGAIN),
            (Method::POST, Overload, Sent::Refused, AGAIN),
            (Method::POST, Overload, Sent::LeftOut, Verdict::Renew { fresh: false }),
            (Method::POST, Status(200), Sent::Declined, AGAIN),
            (Method::POST, Reset, Sent::Closed, stop(Why::Method)),
            (Method::POST, Reset, Sent::Head, stop(Why::Method)),
            (Method::GET, Reset, Sent::Closed, Verdict::Renew { fresh: true }),
            (Method::GET, Reset, Sent::Head, AGAIN),
            (Method::PUT, Protocol, Sent::Head, AGAIN),
            (Method::GET, Reset, Sent::Answered, stop(Why::Answered)),
            (Method::GET, ReadTimeout, Sent::Head, stop(Why::Unasked)),
            (Method::GET, Status(503), Sent::Head, stop(Why::Unasked)),
            (Method::POST, Status(503), Sent::Head, stop(Why::Unasked)),
        ] {
            let mut plan = plan(&rule, method.clone());
            assert_eq!(after(&mut plan, &rule, ended(outcome, sent)), verdict, "{method} {outcome:?} {sent:?}");
        }
        let on = Count { connect: false, timeout: true, reset: false, statuses: vec![500..=599] };
        let rule = Retry { on, ..rule };
        for (outcome, sent, verdict) in [
            (Refused, Sent::Nothing, stop(Why::Unasked)),
            (ReadTimeout, Sent::Head, AGAIN),
            (Status(503), Sent::Head, AGAIN),
            (Status(404), Sent::Head, stop(Why::Unasked)),
            (Reset, Sent::Head, stop(Why::Unasked)),
        ] {
            let mut plan = plan(&rule, Method::GET);
            assert_eq!(after(&mut plan, &rule, ended(outcome, sent)), verdict, "{outcome:?} {sent:?}");
        }
    }

    #[test]
    fn given_an_upgrade_when_it_ended_then_again_only_before_it_was_sent() {
        let rule = rule();
        for (sent, verdict) in [
            (Sent::Nothing, AGAIN),
            (Sent::Closed, Verdict::Stop(Why::Method)),
            (Sent::Head, Verdict::Stop(Why::Method)),
        ] {
            let mut plan = Plan::new(Some(&rule), false, &Method::GET, true);
            assert_eq!(after(&mut plan, &rule, ended(Outcome::Reset, sent)), verdict, "{sent:?}");
        }
    }

    #[test]
    fn given_a_body_that_is_not_at_hand_when_it_ended_then_never_again() {
        let rule = rule();
        for sent in [Sent::Nothing, Sent::LeftOut, Sent::Refused, Sent::Declined, Sent::Closed, Sent::Head] {
            let ended = Ended { kept: None, ..ended(Outcome::Reset, sent) };
            assert_eq!(after(&mut plan(&rule, Method::PUT), &rule, ended), Verdict::Stop(Why::BodySent), "{sent:?}");
        }
        let rule = Retry { max_body: 10, ..rule };
        for (kept, verdict) in [(10, AGAIN), (11, Verdict::Stop(Why::BodySent))] {
            let ended = Ended { kept: Some(kept), ..ended(Outcome::Reset, Sent::Head) };
            assert_eq!(after(&mut plan(&rule, Method::PUT), &rule, ended), verdict, "{kept}");
        }
    }

    #[test]
    fn given_connections_that_wear_out_when_renewed_then_the_last_is_fresh_and_then_it_is_an_attempt() {
        let rule = rule();
        let mut plan = plan(&rule, Method::POST);
        let left_out = ended(Outcome::Overload, Sent::LeftOut);
        let verdicts: Vec<Verdict> = (0..5).map(|_| after(&mut plan, &rule, left_out)).collect();
        let fresh = Verdict::Again { wait: Duration::ZERO, fresh: true };
        let renew = |fresh| Verdict::Renew { fresh };
        assert_eq!(verdicts, [renew(false), renew(true), AGAIN, fresh, Verdict::Stop(Why::Limit)]);
    }

    #[test]
    fn given_a_closed_connection_when_it_was_renewed_once_then_the_next_is_as_sent_and_all_are_fresh() {
        let rule = rule();
        let mut plan = plan(&rule, Method::GET);
        let closed = ended(Outcome::Reset, Sent::Closed);
        let verdicts: Vec<Verdict> = (0..4).map(|_| after(&mut plan, &rule, closed)).collect();
        let fresh = Verdict::Again { wait: Duration::ZERO, fresh: true };
        assert_eq!(verdicts, [Verdict::Renew { fresh: true }, fresh, fresh, Verdict::Stop(Why::Limit)]);
        assert_eq!(plan.attempt(), 3);
    }

    #[test]
    fn given_failovers_when_attempts_are_spent_then_they_are_next_outside_the_budget_and_none_goes_back() {
        let rule = Retry { budget: RetryBudget { percent: 0.0, floor: 2 }, ..rule() };
        let (mut plan, budget) = (Plan::new(Some(&rule), true, &Method::GET, false), Budget::default());
        let (refused, now, mut dice) = (ended(Outcome::Refused, Sent::Nothing), Instant::now(), Dice::with_seed(1));
        let mut after = |plan: &mut Plan| plan.concluded(&refused, Some(&rule), &budget, now, &mut dice);
        let over = |why| Verdict::FailOver { wait: Duration::ZERO, fresh: false, why };
        assert_eq!([after(&mut plan), after(&mut plan)], [AGAIN, AGAIN]);
        for n in 0..FAILOVERS {
            assert_eq!(after(&mut plan), over(Why::Limit));
            assert_eq!(plan.failed_over(), n == 0);
        }
        assert_eq!(after(&mut plan), Verdict::Stop(Why::Limit));
        // The budget is spent by now.
        let mut next = Plan::new(Some(&rule), true, &Method::GET, false);
        assert_eq!(after(&mut next), over(Why::Budget));
    }

    #[test]
    fn given_failovers_when_it_must_not_be_sent_twice_or_nobody_asks_then_they_are_not_tried_either() {
        let rule = rule();
        for (rule, method, sent, why) in [
            (Some(&rule), Method::POST, Sent::Head, Why::Method),
            (Some(&rule), Method::GET, Sent::Answered, Why::Answered),
            (None, Method::GET, Sent::Nothing, Why::Unasked),
        ] {
            let mut plan = Plan::new(rule, true, &method, false);
            let ended = ended(Outcome::Reset, sent);
            let verdict = plan.concluded(&ended, rule, &Budget::default(), Instant::now(), &mut Dice::with_seed(1));
            assert_eq!(verdict, Verdict::Stop(why), "{method} {sent:?}");
        }
    }

    #[test]
    fn given_retry_off_or_a_session_that_stays_when_it_ended_then_only_connections_are_renewed() {
        let (rule, off) = (rule(), Plan::new(None, false, &Method::GET, false));
        for (mut plan, rule) in [(off, None), (plan(&rule, Method::GET).stays(), Some(&rule))] {
            let mut after = |sent| {
                let ended = ended(Outcome::Reset, sent);
                plan.concluded(&ended, rule, &Budget::default(), Instant::now(), &mut Dice::with_seed(1))
            };
            assert_eq!(after(Sent::Nothing), Verdict::Stop(Why::Unasked));
            assert_eq!(after(Sent::Closed), Verdict::Renew { fresh: true });
            assert_eq!(after(Sent::Head), Verdict::Stop(Why::Unasked));
        }
    }

    #[test]
    fn given_an_empty_budget_when_it_ended_then_no_attempt_but_another_connection() {
        let rule = Retry { budget: RetryBudget { percent: 0.0, floor: 0 }, ..rule() };
        let mut plan = plan(&rule, Method::GET);
        assert_eq!(after(&mut plan, &rule, ended(Outcome::Refused, Sent::Nothing)), Verdict::Stop(Why::Budget));
        let closed = ended(Outcome::Reset, Sent::Closed);
        assert_eq!(after(&mut plan, &rule, closed), Verdict::Renew { fresh: true });
    }

    fn any_end() -> impl Strategy<Value = Ended> {
        use Outcome::*;
        let outcomes = vec![Refused, ConnectTimeout, Tls, ReadTimeout, Reset, Protocol, Status(503), Overload, Local];
        let sent = vec![
            Sent::Nothing,
            Sent::LeftOut,
            Sent::Refused,
            Sent::Declined,
            Sent::Closed,
            Sent::Head,
            Sent::Head,
            Sent::Answered,
        ];
        (prop::sample::select(outcomes), prop::sample::select(sent), prop::option::weighted(0.9, 0u64..70_000))
            .prop_map(|(outcome, sent, kept)| Ended { outcome, sent, kept })
    }

    proptest! {
        #[test]
        fn given_ends_of_any_kind_when_planned_then_attempts_and_rounds_are_bound_and_nothing_is_sent_twice_in_vain(
            ends in prop::collection::vec(any_end(), 0..40),
            attempts in 1..=Retry::MOST,
            method in prop::sample::select(vec![Method::GET, Method::PUT, Method::POST, Method::PATCH]),
            upgrade in any::<bool>(),
            fails_over in any::<bool>(),
        ) {
            let rule = Retry { attempts, ..rule() };
            let mut plan = Plan::new(Some(&rule), fails_over, &method, upgrade);
            let (budget, now, mut dice) = (Budget::default(), Instant::now(), Dice::with_seed(1));
            let (mut rounds, mut made, mut at_failovers) = (1, 1, 0);
            for ended in ends {
                let verdict = plan.concluded(&ended, Some(&rule), &budget, now, &mut dice);
                if let Verdict::Stop(_) = verdict {
                    break;
                }
                rounds += 1;
                made += u8::from(!matches!(verdict, Verdict::Renew { .. }));
                if let Verdict::FailOver { .. } = verdict {
                    plan.failed_over();
                    at_failovers += 1;
                }
                prop_assert!(at_failovers == 0 || !matches!(verdict, Verdict::Again { .. }), "none goes back");
                let twice = matches!(ended.sent, Sent::Closed | Sent::Head | Sent::Answered);
                prop_assert!(!twice || (method.is_idempotent() && !upgrade), "{method} {ended:?}");
                prop_assert!(ended.kept.is_some() && ended.sent != Sent::Answered, "{ended:?}");
            }
            prop_assert!(made - at_failovers <= attempts && plan.attempt() == made);
            let most = if fails_over { FAILOVERS } else { 0 };
            prop_assert!(at_failovers <= most);
            prop_assert!(rounds <= ROUNDS);
        }
    }
}
