//! One destination on scripted time. YARP's own cases (its tests, retold) go through `mode: full`.

use super::*;
use crate::config::Count;
use crate::health::passive::{ConsecutiveFailures, TransportFailureRate};
use crate::health::{Breaking, Reactivating, Threshold, replay};
use std::time::SystemTime;

pub(super) const COUNT: Count = Count { connect: true, timeout: true, reset: true, statuses: Vec::new() };

/// A destination, its clock, and all that was told.
pub(super) struct Case {
    standing: Standing,
    pub live: Arc<Live>,
    pub cap: Cap,
    pub now: Instant,
    start: Instant,
    route: Arc<str>,
    pub told: Vec<Change>,
}

pub(super) const HOW: Reactivating = Reactivating {
    period: Duration::from_secs(10),
    full: false,
    trial_requests: 1,
    multiplier: 2.0,
    max: Duration::from_secs(300),
    lifted_by_probe: true,
};

pub(super) fn passive(detectors: Vec<Arc<dyn PassivePolicy>>, how: Reactivating) -> Settings {
    let passive = Passive { count: COUNT, detectors, reactivation: Some(how) };
    Settings { passive: Some(passive), ..Settings::default() }
}

pub(super) fn rate(seconds: u64, minimum_requests: u32, failure_rate: f64) -> Arc<dyn PassivePolicy> {
    Arc::new(TransportFailureRate { window: Duration::from_secs(seconds), minimum_requests, failure_rate })
}

pub(super) fn in_a_row(failures: u32) -> Arc<dyn PassivePolicy> {
    Arc::new(ConsecutiveFailures { failures })
}

fn checked(healthy_after: u32, unhealthy_after: u32) -> Settings {
    Settings { active: Some(Thresholds { healthy_after, unhealthy_after }), ..Settings::default() }
}

fn breaking(threshold: Threshold) -> Breaking {
    let (window, sleep) = (Duration::from_secs(10), Duration::from_secs(5));
    Breaking { window, threshold, minimum_requests: 4, sleep, trial_requests: 1 }
}

impl Case {
    pub fn new(settings: Settings) -> Self {
        let (now, live, cap) = (Instant::now(), Arc::new(Live::default()), Cap::default());
        cap.set_limit(1);
        let epoch = Epoch { instant: now, wall: SystemTime::UNIX_EPOCH };
        let standing = Standing::new(Arc::new(settings), epoch, &live);
        Case { standing, live, cap, now, start: now, route: "all".into(), told: Vec::new() }
    }

    pub fn apply(&mut self, event: Event<'_>) -> Vec<Step> {
        let changes = self.standing.apply(event, &Around { live: &self.live, cap: &self.cap }, self.now);
        for change in &changes {
            let explanation = change.explanation.as_deref();
            if let Some(explanation) = explanation {
                assert_eq!(replay(explanation), Some(explanation.decision), "{explanation:?}");
            }
        }
        let steps = changes.iter().map(|change| change.step).collect();
        self.told.extend(changes);
        steps
    }

    /// An attempt begun and over now.
    pub fn attempt(&mut self, outcome: Outcome) -> Vec<Step> {
        let ticket = Ticket { epoch: self.live.epoch(), trial: false, panic: false };
        self.conclude(outcome, ticket)
    }

    pub fn conclude(&mut self, outcome: Outcome, ticket: Ticket) -> Vec<Step> {
        let (begun, route, latency) = (self.now, self.route.clone(), Duration::from_millis(1));
        self.apply(Event::Outcome(Attempted { outcome, ticket, begun, route: &route, attempt: 1, latency }))
    }

    /// A request on trial.
    fn trial(&mut self, outcome: Outcome) -> Vec<Step> {
        let lease = self.live.lease(None).expect("no bound").on_trial().expect("a place");
        self.conclude(outcome, lease.ticket())
    }

    pub fn probe(&mut self, passed: bool) -> Vec<Step> {
        let cause = if passed { "200" } else { "503" }.to_string();
        self.apply(Event::Probe { passed, cause, begun: self.now })
    }

    pub fn order(&mut self, order: Order, seconds: Option<u64>) -> Vec<Step> {
        let lasts = seconds.map(Duration::from_secs);
        self.apply(Event::Operator { order, lasts, by: "127.0.0.1".into() })
    }

    pub fn wait(&mut self, ms: u64) -> Vec<Step> {
        self.now += Duration::from_millis(ms);
        self.apply(Event::Due)
    }

    pub fn state(&self) -> State {
        self.standing.state(&self.live)
    }

    pub fn out(&self) -> bool {
        !self.live.marks.is_empty()
    }

    fn due(&self) -> Option<u64> {
        self.standing.next_due(&self.live).map(|due| (due - self.start).as_secs())
    }

    pub fn last(&self) -> &Explanation {
        self.told.last().and_then(|change| change.explanation.as_deref()).expect("an explanation")
    }
}

const OK: Outcome = Outcome::Status(200);
const BAD: Outcome = Outcome::Refused;

mod active {
    use super::*;

    #[test]
    fn given_threshold_two_when_two_probes_fail_then_unknown_first_and_out_at_the_second() {
        let mut case = Case::new(checked(1, 2));
        assert_eq!(case.probe(false), []);
        assert_eq!(case.state(), State::Unknown);
        assert_eq!(case.probe(false), [Step::MarkedOut]);
        assert_eq!(case.state(), State::Unhealthy);
        assert_eq!(case.probe(false), []);
        assert_eq!(case.last().why(), "active check failed 2 times in a row (unhealthy_after 2): 503, 503");
        assert_eq!(case.last().next.to_string(), "back when its probes pass once in a row");
    }

    #[test]
    fn given_an_unhealthy_destination_when_one_probe_passes_then_it_is_back_at_once() {
        let mut case = Case::new(checked(1, 2));
        case.probe(false);
        case.probe(false);
        assert_eq!(case.probe(true), [Step::Readmitted]);
        assert_eq!(case.state(), State::Healthy);
    }

    #[test]
    fn given_dual_thresholds_when_every_third_probe_fails_then_nothing_flaps() {
        let mut case = Case::new(checked(2, 3));
        for n in 0..60 {
            assert_eq!(case.probe(n % 3 != 2), [], "probe {n}");
        }
        assert_eq!(case.state(), State::Healthy);
    }

    #[test]
    fn given_probe_first_when_probes_pass_then_nothing_until_healthy_after_in_a_row() {
        let mut case = Case::new(Settings { probe_first: true, ..checked(2, 3) });
        assert!(case.out());
        assert_eq!(case.state(), State::Unhealthy);
        assert_eq!(case.probe(true), []);
        assert!(case.out());
        assert_eq!(case.probe(true), [Step::Readmitted]);
        assert_eq!((case.told[0].reason, case.out()), (Reason::Unprobed, false));
    }

    #[test]
    fn given_probe_first_when_the_first_probe_fails_then_it_is_marked_at_once() {
        let mut case = Case::new(Settings { probe_first: true, ..checked(1, 3) });
        assert_eq!(case.probe(false), [Step::MarkedOut]);
        assert_eq!(case.live.marks.reasons().collect::<Vec<_>>(), [Reason::Active, Reason::Unprobed]);
        assert!(!case.live.marks.is_overridable(), "no panic sends to what no probe has passed");
        assert_eq!(case.probe(true), [Step::Readmitted, Step::Readmitted]);
        assert!(!case.out());
    }
}

mod yarp {
    //! Its passive cases by number.

    use super::*;

    fn full(seconds: u64, minimum: u32, limit: f64, period: u64) -> Case {
        let how = Reactivating { full: true, period: Duration::from_secs(period), ..HOW };
        Case::new(passive(vec![rate(seconds, minimum, limit)], how))
    }

    /// Attempts, each followed by a pause; whether it was out after each.
    fn run(case: &mut Case, outcomes: &[(Outcome, u64)]) -> Vec<bool> {
        let one = |&(outcome, pause): &(Outcome, u64)| {
            case.attempt(outcome);
            let out = case.out();
            case.now += Duration::from_millis(pause);
            out
        };
        outcomes.iter().map(one).collect()
    }

    #[test]
    fn case_21_given_three_successes_and_three_failures_when_the_limit_is_a_half_then_out_at_the_third() {
        let mut case = full(30, 1, 0.5, 30);
        assert_eq!(run(&mut case, &[(OK, 4_000); 3]), [false; 3]);
        assert_eq!(run(&mut case, &[(BAD, 1_000); 3]), [false, false, true]);
    }

    #[test]
    fn case_22_given_a_higher_limit_when_failures_go_on_then_out_when_the_old_successes_left_the_window() {
        let mut case = full(30, 1, 0.61, 100);
        run(&mut case, &[(OK, 1_000); 3]);
        assert_eq!(run(&mut case, &[(BAD, 1_000); 4]), [false; 4]);
        case.now += Duration::from_secs(6);
        assert_eq!(run(&mut case, &[(BAD, 0)]), [true]);
        assert_eq!(case.last().next, Next::FullTraffic { in_ms: 100_000, period_ms: 100_000, window_ms: 30_000 });
    }

    #[test]
    fn case_23_given_failures_that_leave_the_window_when_others_come_then_the_rate_decides_each_time() {
        let mut case = full(30, 1, 0.5, 30);
        assert_eq!(run(&mut case, &[(BAD, 1_000); 2]), [true, true]);
        assert_eq!(run(&mut case, &[(OK, 5_000); 4]), [true, true, false, false]);
        assert_eq!(run(&mut case, &[(BAD, 1); 2]), [false, true]);
        case.now += Duration::from_millis(10_998);
        assert_eq!(run(&mut case, &[(OK, 1), (OK, 1), (BAD, 1)]), [false, false, false]);
    }

    #[test]
    fn case_24_given_a_period_under_the_window_when_ejected_then_the_window_and_healthy_after_it() {
        let mut case = full(30, 1, 0.5, 10);
        case.attempt(BAD);
        assert_eq!(case.last().next.to_string(), "reactivation in 30s (period 10s raised to the 30s window)");
        assert_eq!(case.due(), Some(30));
        assert_eq!(case.wait(29_999), []);
        assert_eq!(case.wait(1), [Step::Readmitted]);
        assert_eq!(case.state(), State::Unknown);
        case.now += Duration::from_secs(1);
        assert_eq!(case.attempt(OK), []);
        assert_eq!(case.state(), State::Healthy);
    }

    #[test]
    fn case_25_given_no_clock_movement_when_successes_follow_then_it_heals_at_once() {
        let mut case = full(30, 1, 0.5, 30);
        assert_eq!(run(&mut case, &[(OK, 0), (OK, 0), (BAD, 0), (BAD, 0)]), [false, false, false, true]);
        assert_eq!(run(&mut case, &[(OK, 0), (OK, 0)]), [false, false]);
    }

    #[test]
    fn case_26_given_an_ejection_of_2_s_when_it_is_over_then_unknown_and_the_active_state_untouched() {
        let how = Reactivating { full: true, period: Duration::from_secs(2), ..HOW };
        let mut case = Case::new(Settings {
            active: Some(Thresholds { healthy_after: 1, unhealthy_after: 1 }),
            ..passive(vec![in_a_row(1)], how)
        });
        case.probe(false);
        case.attempt(BAD);
        assert_eq!(case.wait(2_000), [Step::Readmitted]);
        assert_eq!(case.live.marks.reasons().collect::<Vec<_>>(), [Reason::Active]);
        assert_eq!(case.told.last().map(|change| change.transition.is_none()), Some(true));
    }

    #[test]
    fn case_27_given_the_state_it_has_when_set_again_then_neither_a_timer_nor_a_step() {
        let mut case = full(30, 1, 0.5, 30);
        case.attempt(BAD);
        case.now += Duration::from_secs(5);
        assert_eq!(case.attempt(BAD), []);
        assert_eq!(case.due(), Some(30));
    }
}

mod half_open {
    use super::*;

    fn case() -> Case {
        Case::new(passive(vec![in_a_row(5)], HOW))
    }

    fn ejected() -> Case {
        let mut case = case();
        (0..5).for_each(|_| drop(case.attempt(BAD)));
        case
    }

    #[test]
    fn given_600_good_answers_when_it_dies_then_out_at_the_5th_failure() {
        let mut case = Case::new(passive(vec![rate(60, 10, 0.3), rate(5, 10, 0.5), in_a_row(5)], HOW));
        (0..600).for_each(|_| assert_eq!(case.attempt(OK), []));
        assert!((0..4).all(|_| case.attempt(BAD).is_empty()));
        assert_eq!(case.attempt(BAD), [Step::Ejected]);
        assert_eq!(case.last().why(), "ConsecutiveFailures (failures 5): failures in a row 5 ≥ 5");
        assert_eq!(case.last().next.to_string(), "half-open in 10s");
        assert_eq!(case.last().evidence.len(), 32);
    }

    #[test]
    fn given_an_ejection_when_the_period_is_over_then_one_trial_decides() {
        let mut case = ejected();
        assert_eq!(case.state(), State::Unhealthy);
        assert_eq!(case.wait(10_000), [Step::HalfOpen]);
        assert_eq!(case.state(), State::HalfOpen);
        assert_eq!(case.trial(BAD), [Step::EjectedAgain]);
        assert_eq!(case.due(), Some(30), "20 s this time");
        assert_eq!(case.wait(20_000), [Step::HalfOpen]);
        assert_eq!(case.trial(OK), [Step::Readmitted]);
        assert_eq!((case.state(), case.cap.taken()), (State::Healthy, 0));
        let transitions = case.told.iter().filter(|change| change.transition.is_some()).count();
        assert_eq!(transitions, 2, "a failed trial is none");
    }

    #[test]
    fn given_late_outcomes_of_older_attempts_when_they_come_then_they_judge_nothing() {
        let mut case = ejected();
        let old = Ticket { epoch: 0, trial: false, panic: false };
        case.wait(10_000);
        assert_eq!(case.conclude(OK, old), []);
        assert_eq!(case.conclude(BAD, old), []);
        assert_eq!(case.trial(OK), [Step::Readmitted]);
        (0..9).for_each(|_| assert_eq!(case.conclude(BAD, old), []));
        assert!(!case.out());
    }

    #[test]
    fn given_no_request_that_suits_a_trial_when_a_period_is_over_then_any_will_do_until_it_is_decided() {
        let mut case = ejected();
        case.wait(10_000);
        assert!(!case.live.takes_any_trial());
        assert_eq!(case.due(), Some(20));
        case.wait(10_000);
        assert_eq!((case.live.takes_any_trial(), case.due()), (true, None));
        case.trial(BAD);
        assert!(!case.live.takes_any_trial());
        case.wait(20_000);
        assert!(!case.live.takes_any_trial());
        case.trial(OK);
        assert_eq!(case.due(), None);
    }

    #[test]
    fn given_a_client_that_leaves_when_it_was_on_trial_then_the_place_is_free_again() {
        let mut case = ejected();
        case.wait(10_000);
        assert_eq!(case.trial(Outcome::ClientAbort), []);
        assert_eq!(case.trial(Outcome::ClientAbort), []);
        assert_eq!(case.trial(OK), [Step::Readmitted]);
    }

    #[test]
    fn given_no_traffic_when_probes_pass_then_the_first_lifts_and_the_next_readmits() {
        let settings = Settings {
            active: Some(Thresholds { healthy_after: 2, unhealthy_after: 9 }),
            ..passive(vec![in_a_row(1)], HOW)
        };
        let mut case = Case::new(settings);
        case.attempt(BAD);
        assert_eq!(case.probe(true), [], "it began at the ejection, not after it");
        case.now += Duration::from_secs(1);
        assert_eq!(case.probe(true), [Step::HalfOpen]);
        assert_eq!(case.probe(true), []);
        assert_eq!(case.probe(false), []);
        assert_eq!(case.probe(true), []);
        assert_eq!(case.probe(true), [Step::Readmitted]);
    }

    #[test]
    fn given_a_panic_when_a_request_succeeds_then_it_counts_as_a_passed_trial() {
        let mut case = ejected();
        let ticket = Ticket { epoch: case.live.epoch(), trial: false, panic: true };
        assert_eq!(case.conclude(BAD, ticket), []);
        assert_eq!(case.conclude(OK, ticket), [Step::Readmitted]);
    }

    #[test]
    fn given_as_many_out_as_may_be_when_a_detector_fires_then_no_mark_and_one_line_a_period() {
        let mut case = case();
        case.cap.take();
        let steps: Vec<Step> = (0..20).flat_map(|_| case.attempt(BAD)).collect();
        assert_eq!(steps, [Step::EjectionSkipped; 16]);
        assert!(!case.out());
        assert_eq!(case.told.iter().filter(|change| change.explanation.is_some()).count(), 1);
        case.now += Duration::from_secs(10);
        case.attempt(BAD);
        assert_eq!(case.told.iter().filter(|change| change.explanation.is_some()).count(), 2);
        case.cap.give_back();
        assert_eq!(case.attempt(BAD), [Step::Ejected]);
    }

    #[test]
    fn given_reactivation_off_and_no_place_when_a_detector_fires_on_and_on_then_it_is_told_now_and_then_only() {
        let off = Passive { count: COUNT, detectors: vec![in_a_row(1)], reactivation: None };
        let mut case = Case::new(Settings { passive: Some(off), ..Settings::default() });
        case.cap.take();
        let steps: Vec<Step> = (0..20).flat_map(|_| case.attempt(BAD)).collect();
        assert_eq!(steps, [Step::EjectionSkipped; 20]);
        assert_eq!(case.told.iter().filter(|change| change.explanation.is_some()).count(), 1);
    }

    #[test]
    fn given_1000_clients_that_leave_when_told_then_no_step() {
        let mut case = case();
        (0..1_000).for_each(|_| assert_eq!(case.attempt(Outcome::ClientAbort), []));
    }

    #[test]
    fn given_reactivation_off_when_ejected_then_it_stays_out() {
        let settings = Settings {
            passive: Some(Passive { count: COUNT, detectors: vec![in_a_row(1)], reactivation: None }),
            ..Settings::default()
        };
        let mut case = Case::new(settings);
        assert_eq!(case.attempt(BAD), [Step::Ejected]);
        assert_eq!(case.last().next, Next::Never);
        assert_eq!(case.wait(86_400_000), []);
        assert_eq!(case.order(Order::Uneject, None), [Step::Readmitted]);
    }

    #[test]
    fn given_slow_start_when_it_returns_then_its_share_grows_in_ten_steps() {
        let mut case = Case::new(Settings { slow_start: Duration::from_secs(10), ..passive(vec![in_a_row(1)], HOW) });
        case.attempt(BAD);
        case.wait(10_000);
        case.trial(OK);
        assert_eq!(case.last().next.to_string(), "its share grows for 10s (slow_start)");
        let shares: Vec<u8> = (0..11)
            .map(|_| {
                let share = case.live.ramp();
                case.wait(1_000);
                share
            })
            .collect();
        assert_eq!(shares, [1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
        assert_eq!((case.state(), case.due()), (State::Healthy, None));
    }
}

mod breaker {
    use super::*;

    fn case(active: bool) -> Case {
        let active = active.then_some(Thresholds { healthy_after: 2, unhealthy_after: 2 });
        let breaker = Some((COUNT, breaking(Threshold::Number(2))));
        Case::new(Settings { active, breaker, ..Settings::default() })
    }

    #[test]
    fn given_failures_when_the_threshold_is_reached_then_open_asleep_half_open_and_closed() {
        let mut case = case(false);
        assert_eq!(case.attempt(BAD), []);
        assert_eq!(case.attempt(BAD), [Step::CircuitOpened]);
        assert_eq!(case.wait(4_999), []);
        assert_eq!(case.wait(1), [Step::HalfOpen]);
        assert_eq!(case.trial(BAD), [Step::CircuitOpened]);
        assert_eq!(case.wait(5_000), [Step::HalfOpen]);
        assert_eq!(case.trial(OK), [Step::CircuitClosed]);
        assert_eq!(case.state(), State::Healthy);
    }

    #[test]
    fn given_an_active_check_when_it_fails_then_open_without_traffic_and_closed_by_its_pass() {
        let mut case = case(true);
        case.probe(false);
        assert_eq!(case.probe(false), [Step::MarkedOut, Step::CircuitOpened]);
        assert_eq!(case.wait(60_000), [], "sleep's end admits nothing while probes fail");
        assert_eq!(case.probe(true), []);
        assert_eq!(case.probe(true), [Step::CircuitClosed, Step::Readmitted]);
        assert!(!case.out());
    }

    #[test]
    fn given_two_half_open_judges_when_a_trial_succeeds_then_one_outcome_answers_both() {
        let mut case = Case::new(Settings {
            breaker: Some((COUNT, Breaking { sleep: Duration::from_secs(10), ..breaking(Threshold::Number(2)) })),
            ..passive(vec![in_a_row(2)], HOW)
        });
        case.attempt(BAD);
        assert_eq!(case.attempt(BAD), [Step::Ejected, Step::CircuitOpened]);
        assert_eq!(case.wait(10_000), [Step::HalfOpen, Step::HalfOpen]);
        assert_eq!(case.state(), State::HalfOpen);
        assert_eq!(case.trial(OK), [Step::Readmitted, Step::CircuitClosed]);
        assert!(!case.out());
    }
}

mod operator {
    use super::*;

    #[test]
    fn given_orders_with_a_time_when_it_is_over_then_they_end_by_themselves() {
        let mut case = Case::new(checked(1, 2));
        case.probe(true);
        for (order, state) in [
            (Override::Drain, State::Draining),
            (Override::Maint, State::Maintenance),
            (Override::Eject, State::Unhealthy),
        ] {
            assert_eq!(case.order(Order::Override(order), Some(60)), [Step::MarkedOut]);
            assert_eq!((case.state(), case.live.in_maintenance()), (state, order == Override::Maint));
            assert_eq!(case.wait(60_000), [Step::Readmitted]);
            assert_eq!((case.state(), case.live.in_maintenance()), (State::Healthy, false));
        }
        assert_eq!(case.order(Order::Weight(Some(5)), Some(1)), [Step::Reweighted]);
        assert_eq!(case.live.weight(), Some(5));
        assert_eq!(case.wait(1_000), [Step::Reweighted]);
        assert_eq!(case.live.weight(), None);
    }

    #[test]
    fn given_a_drained_destination_when_another_judge_objects_too_then_ready_lifts_only_the_order() {
        let mut case = Case::new(checked(1, 1));
        case.order(Order::Override(Override::Drain), None);
        case.probe(false);
        assert_eq!(case.order(Order::Ready, None), [Step::Readmitted]);
        assert_eq!(case.state(), State::Unhealthy);
        assert_eq!(case.order(Order::Ready, None), []);
    }
}

mod reload {
    use super::*;

    fn adopt(case: &mut Case, settings: Settings) -> Vec<Step> {
        let around = Around { live: &case.live, cap: &case.cap };
        let changes = case.standing.adopt(Arc::new(settings), &around, case.now);
        changes.iter().map(|change| change.step).collect()
    }

    #[test]
    fn given_the_same_detector_when_adopted_then_its_history_stays_and_another_begins_anew() {
        let mut case = Case::new(passive(vec![in_a_row(3)], HOW));
        case.attempt(BAD);
        case.attempt(BAD);
        assert_eq!(adopt(&mut case, passive(vec![rate(60, 10, 0.3), in_a_row(3)], HOW)), []);
        assert_eq!(case.attempt(BAD), [Step::Ejected]);
        case.wait(10_000);
        case.trial(OK);
        case.attempt(BAD);
        case.attempt(BAD);
        adopt(&mut case, passive(vec![in_a_row(2)], HOW));
        assert_eq!(case.attempt(BAD), []);
        assert_eq!(case.attempt(BAD), [Step::Ejected]);
    }

    #[test]
    fn given_reactivation_off_when_it_is_adopted_again_then_what_was_ejected_meanwhile_comes_back() {
        let off = || Passive { count: COUNT, detectors: vec![in_a_row(1)], reactivation: None };
        let mut case = Case::new(Settings { passive: Some(off()), ..Settings::default() });
        assert_eq!(case.attempt(BAD), [Step::Ejected]);
        assert_eq!((case.wait(60_000), case.due()), (vec![], None));
        adopt(&mut case, passive(vec![in_a_row(1)], HOW));
        assert_eq!(case.due(), Some(70), "a period from then on");
        assert_eq!(case.wait(10_000), [Step::HalfOpen]);
        assert_eq!(case.trial(OK), [Step::Readmitted]);
    }

    #[test]
    fn given_an_active_check_that_was_gone_when_there_is_one_again_then_its_old_findings_are_forgotten() {
        let mut case = Case::new(checked(1, 2));
        (0..3).for_each(|_| drop(case.probe(false)));
        assert_eq!(adopt(&mut case, Settings::default()), [Step::Readmitted]);
        assert_eq!(case.probe(false), [], "one that the reload overtook");
        assert_eq!(case.standing.last_cause(), None);
        adopt(&mut case, checked(1, 2));
        assert_eq!(case.probe(false), []);
        assert_eq!(case.probe(false), [Step::MarkedOut]);
    }

    #[test]
    fn given_judges_that_are_gone_when_adopted_then_their_marks_are_lifted() {
        let mut case = Case::new(Settings {
            active: Some(Thresholds { healthy_after: 1, unhealthy_after: 1 }),
            breaker: Some((COUNT, breaking(Threshold::Number(1)))),
            ..passive(vec![in_a_row(1)], HOW)
        });
        case.attempt(BAD);
        case.probe(false);
        assert_eq!(case.live.marks.reasons().count(), 3);
        let steps = adopt(&mut case, Settings::default());
        assert_eq!(steps, [Step::Readmitted, Step::CircuitClosed, Step::Readmitted]);
        assert_eq!((case.out(), case.cap.taken()), (false, 0));
    }
}

/// Weaknesses of YARP that do not recur here, by their row in the list of them.
mod beaten {
    use super::*;

    fn defaults() -> Case {
        Case::new(passive(vec![rate(60, 10, 0.3), rate(5, 10, 0.5), in_a_row(5)], HOW))
    }

    fn failures(case: &mut Case, most: usize) -> usize {
        (1..=most).find(|_| case.attempt(BAD).contains(&Step::Ejected)).expect("ejected")
    }

    #[test]
    fn row_3_given_a_passive_ejection_when_probes_pass_again_then_it_does_not_sit_out_its_period() {
        let active = Some(Thresholds { healthy_after: 1, unhealthy_after: 2 });
        let mut case = Case::new(Settings { active, ..passive(vec![in_a_row(5)], HOW) });
        failures(&mut case, 5);
        case.wait(2_000);
        assert_eq!(case.probe(true), [Step::HalfOpen]);
        assert_eq!(case.trial(OK), [Step::Readmitted]);
    }

    #[test]
    fn row_4_given_a_return_when_its_first_request_succeeds_then_old_failures_do_not_eject_it_again() {
        let mut case = defaults();
        failures(&mut case, 5);
        case.wait(10_000);
        case.trial(OK);
        for _ in 0..50 {
            assert_eq!(case.attempt(OK), []);
            case.now += Duration::from_millis(100);
        }
        assert_eq!(case.state(), State::Healthy);
    }

    #[test]
    fn row_5_given_an_ejection_soon_after_another_when_told_then_the_time_told_is_the_time_it_ends() {
        for full in [false, true] {
            let how = Reactivating { full, multiplier: 1.0, ..HOW };
            let mut case = Case::new(passive(vec![in_a_row(1)], how));
            case.attempt(BAD);
            case.wait(4_000);
            case.order(Order::Uneject, None);
            case.wait(1_000);
            assert_eq!(case.attempt(BAD), [Step::Ejected]);
            let told = case.last().next_at().expect("a time").0;
            assert_eq!(told, 15_000);
            assert_eq!(case.due(), Some(15));
            assert_eq!(case.wait(9_999), []);
            assert_eq!(case.wait(1).len(), 1);
        }
    }

    #[test]
    fn row_6_given_any_number_of_good_answers_before_when_it_dies_then_out_at_the_5th_failure_at_the_latest() {
        for good in [0, 9, 600, 5_000] {
            let mut case = defaults();
            (0..good).for_each(|_| drop(case.attempt(OK)));
            assert!(failures(&mut case, 10) <= 5, "after {good} good answers");
        }
    }

    #[test]
    fn row_7_given_a_request_a_minute_when_it_is_dead_then_out_all_the_same() {
        let mut case = defaults();
        let out = (1..=10).find(|_| {
            case.now += Duration::from_secs(61);
            case.attempt(BAD).contains(&Step::Ejected)
        });
        assert_eq!(out, Some(5));
    }
}

mod shown {
    use super::*;

    #[test]
    fn given_a_mark_that_stands_for_long_when_the_history_forgot_it_then_why_it_was_set_is_still_told() {
        let mut case = Case::new(passive(vec![in_a_row(1)], HOW));
        case.order(Order::Override(Override::Drain), None);
        case.attempt(BAD);
        for _ in 0..2 * HISTORY {
            case.wait(300_000);
            case.trial(BAD);
        }
        assert!(case.standing.history().all(|step| step.decision.reason == Reason::Passive));
        let drained = case.standing.marked(Reason::Operator).expect("it stands");
        assert_eq!((drained.times, drained.set.why().as_str()), (1, "drain, by 127.0.0.1"));
        let ejected = case.standing.marked(Reason::Passive).expect("it stands");
        assert_eq!((ejected.times as usize, ejected.first.decision.step), (2 * HISTORY + 1, Step::Ejected));
        assert_eq!((ejected.set.why().as_str(), ejected.half_open.is_some()), ("a trial failed: refused", false));
        case.wait(300_000);
        let half_open = case.standing.marked(Reason::Passive).expect("it stands");
        assert_eq!(half_open.last().decision.step, Step::HalfOpen);
        case.trial(OK);
        assert!(case.standing.marked(Reason::Passive).is_none());
    }

    #[test]
    fn given_states_that_change_when_asked_since_when_then_the_last_change_and_none_before_any() {
        let mut case = Case::new(passive(vec![in_a_row(2)], HOW));
        let at = |case: &Case| case.standing.since().map(|since| since.0);
        case.wait(1_000);
        assert_eq!((case.state(), at(&case)), (State::Unknown, None));
        case.attempt(OK);
        case.wait(1_000);
        case.attempt(BAD);
        assert_eq!((case.state(), at(&case)), (State::Healthy, Some(1_000)));
        case.attempt(BAD);
        case.wait(10_000);
        assert_eq!((case.state(), at(&case)), (State::HalfOpen, Some(12_000)));
        case.order(Order::Weight(Some(5)), Some(60));
        case.order(Order::Override(Override::Maint), None);
        assert_eq!((case.state(), at(&case)), (State::Maintenance, Some(12_000)));
        let held: Vec<(Order, Option<u64>)> = case
            .standing
            .orders()
            .map(|held| (held.order, held.until.map(|until| (until - case.start).as_secs())))
            .collect();
        assert_eq!(held, [(Order::Override(Override::Maint), None), (Order::Weight(Some(5)), Some(72))]);
        case.wait(60_000);
        assert_eq!(case.standing.orders().count(), 1);
    }
}

/// Whatever happens in whatever order, reloads included.
mod laws {
    use super::*;
    use proptest::prelude::*;

    /// Of every kind that a file can write.
    fn settings(seed: u32) -> Settings {
        let bit = |n: u32| seed >> n & 1 == 1;
        let how = Reactivating {
            period: if bit(0) { Duration::from_millis(100) } else { Duration::from_secs(3_600) },
            full: bit(1) && bit(2),
            trial_requests: if bit(3) { 3 } else { 1 },
            multiplier: if bit(4) { 10.0 } else { 1.0 },
            max: if bit(5) { Duration::from_secs(3_600) } else { Duration::from_secs(1) },
            lifted_by_probe: bit(6),
        };
        let detectors = vec![
            in_a_row(if bit(7) { 2 } else { 3 }),
            rate(if bit(8) { 600 } else { 1 }, 2, if bit(9) { 0.0 } else { 0.5 }),
        ];
        let mut count = COUNT;
        count.statuses = if bit(10) { vec![500..=599] } else { Vec::new() };
        let passive = Passive { count: count.clone(), detectors, reactivation: (bit(11) || bit(12)).then_some(how) };
        let threshold = if bit(13) { Threshold::Share(0.5) } else { Threshold::Number(2) };
        let how = Breaking { trial_requests: if bit(14) { 3 } else { 1 }, ..breaking(threshold) };
        let active = bit(15).then_some(Thresholds { healthy_after: 1 + seed % 3, unhealthy_after: 2 });
        Settings {
            probe_first: active.is_some() && bit(16),
            active,
            passive: (bit(17) || bit(18)).then_some(passive),
            breaker: bit(19).then_some((if bit(20) { COUNT } else { count }, how)),
            slow_start: if bit(21) { Duration::from_millis(7) } else { Duration::ZERO },
        }
    }

    fn hold(case: &Case) {
        let (standing, marks) = (&case.standing, &case.live.marks);
        let passive = marks.has(Reason::Passive);
        assert_eq!(passive, standing.phase() != Phase::Serving);
        assert_eq!((passive, case.cap.taken()), (standing.holds_place, u32::from(passive)));
        assert_eq!(marks.has(Reason::Breaker), standing.circuit().is_some_and(|circuit| circuit != Circuit::Closed));
        assert_eq!(marks.has(Reason::Operator), standing.order().is_some());
        let on_trial = |judge, half_open| !marks.has(judge) || half_open;
        let half_open = on_trial(Reason::Passive, matches!(standing.phase(), Phase::HalfOpen { .. }))
            && on_trial(Reason::Breaker, matches!(standing.circuit(), Some(Circuit::HalfOpen { .. })))
            && [Reason::Active, Reason::Operator, Reason::Unprobed].iter().all(|reason| !marks.has(*reason));
        assert_eq!(marks.is_on_trial(), half_open && !marks.is_empty());
        assert!(standing.penalty() >= 1.0 && standing.penalty() <= 36_000.0);
        assert!(marks.is_empty() || case.live.ramp() == WHOLE, "only who may be drawn ramps");
        assert!(standing.history().count() <= HISTORY);
        let has = |reason| standing.marked(reason).is_some();
        Reason::ALL
            .iter()
            .filter(|reason| **reason != Reason::Unprobed)
            .for_each(|reason| assert_eq!(marks.has(*reason), has(*reason)));
        if marks.has(Reason::Active) || marks.has(Reason::Unprobed) {
            assert!(standing.settings.active.is_some(), "a judge that is not there has no mark");
        }
    }

    fn step(case: &mut Case, open: &mut Vec<crate::model::Lease>, (what, how): (u8, u32)) {
        match what {
            0 => {
                let lease = case.live.lease(None).expect("no bound");
                match how % 3 {
                    0 => open.push(lease),
                    1 if case.live.marks.is_on_trial() => open.extend(lease.on_trial()),
                    _ => open.push(if case.out() { lease.in_panic() } else { lease }),
                }
            }
            1..=4 if !open.is_empty() => {
                let lease = open.swap_remove(how as usize % open.len());
                let outcomes = [OK, BAD, Outcome::Status(500), Outcome::ClientAbort, BAD, Outcome::Reset];
                let ticket = lease.ticket();
                case.conclude(outcomes[how as usize % outcomes.len()], ticket);
            }
            5 => drop(case.attempt(if how % 3 == 0 { OK } else { BAD })),
            6 | 7 => drop(case.probe(how % 2 == 0)),
            8 => {
                let states = [Override::Drain, Override::Maint, Override::Eject].map(Order::Override);
                let orders = [Order::Ready, Order::Uneject, Order::Weight(Some(0)), Order::Weight(None)];
                let order = states.into_iter().chain(orders).nth(how as usize % 7).expect("one of seven");
                case.order(order, (how % 2 == 0).then_some(86_400));
            }
            9 => {
                let around = Around { live: &case.live, cap: &case.cap };
                let changes = case.standing.adopt(Arc::new(settings(how)), &around, case.now);
                assert!(
                    changes
                        .iter()
                        .filter_map(|change| change.explanation.as_deref())
                        .all(|e| replay(e) == Some(e.decision))
                );
            }
            10 => {
                let around = Around { live: &case.live, cap: &case.cap };
                case.standing.disable(&around, case.now);
            }
            11 => case.now = case.now.checked_sub(Duration::from_millis(u64::from(how % 500))).unwrap_or(case.now),
            _ => drop(case.wait([1, 99, 5_000, 3_600_000][how as usize % 4])),
        }
    }

    proptest! {
        #[test]
        fn given_any_events_and_reloads_when_applied_then_marks_places_and_phases_agree_and_it_comes_back(
            first in any::<u32>(),
            events in prop::collection::vec((0u8..14, any::<u32>()), 1..200),
        ) {
            let (mut case, mut open) = (Case::new(settings(first)), Vec::new());
            for event in events {
                step(&mut case, &mut open, event);
                hold(&case);
                if let Some(due) = case.standing.next_due(&case.live).filter(|due| *due <= case.now) {
                    let before = case.now;
                    case.apply(Event::Due);
                    hold(&case);
                    let next = case.standing.next_due(&case.live);
                    prop_assert!(next.is_none_or(|next| next > before || next > due), "what was due came");
                }
            }
            open.clear();
            prop_assert_eq!((case.live.in_flight(), case.live.cluster_in_flight()), (0, 0));
            let around = Around { live: &case.live, cap: &case.cap };
            // Ready, and all judges still there: it comes back by time, trials and probes.
            let back = Settings { active: Some(Thresholds { healthy_after: 2, unhealthy_after: 2 }), ..passive(vec![in_a_row(2)], HOW) };
            case.standing.adopt(Arc::new(back), &around, case.now);
            case.order(Order::Ready, None);
            for _ in 0..8 {
                case.wait(3_600_000);
                if case.live.marks.is_on_trial() {
                    case.trial(OK);
                }
                case.probe(true);
            }
            hold(&case);
            prop_assert!(!case.out(), "{:?}", case.standing.history().last());
        }
    }
}
