//! What people are told of a step of health: one event for each.

use super::Cluster;
use super::cluster::Panic;
use crate::health::{Change, Circuit, END_OF, Explanation, Next, Override, Rule, Standing, Step};
use crate::model::{Member, Reason};
use crate::observe::{AdminState, BreakerState, DestinationMetrics, event};
use std::time::SystemTime;

pub(super) fn step(cluster: &Cluster, member: &Member, change: &Change, at: SystemTime) {
    let metrics = cluster.destination_metrics(member);
    let endpoint = member.destination.endpoint.authority();
    let Some(told) = change.explanation.as_deref() else {
        return event::ejection_skipped(metrics, endpoint, "", "", false);
    };
    if change.reason == Reason::Operator {
        order(cluster, member, told);
    }
    let (why, next) = (told.why(), &told.next);
    match change.step {
        Step::EjectionSkipped => {
            return event::ejection_skipped(metrics, endpoint, why, told.limit(), true);
        }
        Step::EjectedAgain => return event::ejected_again(metrics, endpoint, why, next),
        Step::HalfOpen if change.reason == Reason::Passive => {
            return event::half_open(metrics, endpoint, why, next);
        }
        Step::HalfOpen => return event::breaker_changed(metrics, endpoint, BreakerState::HalfOpen, why, next),
        Step::CircuitOpened => event::breaker_changed(metrics, &endpoint, BreakerState::Open, &why, next),
        Step::CircuitClosed => event::breaker_changed(metrics, &endpoint, BreakerState::Closed, &why, &Next::Nothing),
        Step::Reweighted => return,
        Step::MarkedOut | Step::Readmitted | Step::Ejected => {}
    }
    let detector = match &told.rule {
        Rule::Detector { policy, .. } => Some(policy.as_str()),
        _ => None,
    };
    let to_healthy = matches!(change.step, Step::Readmitted | Step::CircuitClosed);
    let reason = change.reason.index();
    let health = event::HealthChange { to_healthy, reason, detector, at, why, next };
    match change.transition {
        Some(_) => event::health_changed(metrics, endpoint, health),
        None => event::mark_changed(metrics, endpoint, health),
    }
}

/// What holds now, whatever step led to it: a configuration taken may have dropped a breaker, an ejection or an order.
pub(super) fn standing(metrics: &DestinationMetrics, member: &Member, standing: &Standing) {
    metrics.set_healthy(member.is_unmarked());
    metrics.set_breaker(standing.circuit().map(breaker));
    metrics.set_ejected(member.live.marks.has(Reason::Passive));
    metrics.set_admin_state(admin(standing));
}

fn breaker(circuit: Circuit) -> BreakerState {
    match circuit {
        Circuit::Closed => BreakerState::Closed,
        Circuit::Open { .. } => BreakerState::Open,
        Circuit::HalfOpen { .. } => BreakerState::HalfOpen,
    }
}

pub(super) fn panic(cluster: &Cluster, panic: Panic) {
    match panic {
        Panic::Entered { available, enabled, serving } => {
            event::panic_entered(&cluster.metrics, available, enabled, serving);
        }
        Panic::Left { available, enabled } => event::panic_left(&cluster.metrics, available, enabled),
    }
}

fn order(cluster: &Cluster, member: &Member, told: &Explanation) {
    let Rule::Operator { order, by } = &told.rule else { return };
    let metrics = cluster.destination_metrics(member);
    let endpoint = member.destination.endpoint.authority();
    let state = admin(&cluster.standing(member));
    if told.by_time() {
        // The other order with a time is a weight.
        let what = order.strip_prefix(END_OF).unwrap_or("weight");
        return event::override_ended(metrics, endpoint, state, what, "its time is over");
    }
    let holds = || cluster.standing(member).orders().any(|held| held.order.words() == *order);
    let until = match told.next_at() {
        // Of an order that ends others, the next step may be a ramp's.
        Some(at) if holds() => at.to_string(),
        None if holds() => "ended".to_string(),
        _ => String::new(),
    };
    event::overridden(metrics, endpoint, state, order, by, until);
}

fn admin(standing: &Standing) -> AdminState {
    match standing.order() {
        None => AdminState::Ready,
        Some(Override::Drain | Override::Leave) => AdminState::Drain,
        Some(Override::Maint) => AdminState::Maint,
        Some(Override::Eject) => AdminState::Eject,
    }
}

#[cfg(test)]
mod tests {
    use crate::config::Config;
    use crate::discovery::SystemNames;
    use crate::health::Event;
    use crate::health::{Order, Override};
    use crate::model::{Epoch, Reason};
    use crate::observe::Metrics;
    use crate::observe::capture::lines;
    use crate::runtime::testing::compiled;
    use crate::runtime::{Registry, Runtime, Scene, Snapshot, compile};
    use log::LevelFilter;
    use std::sync::Arc;
    use std::time::{Duration, Instant, SystemTime};

    /// Destination `a` at this port; with a breaker or not.
    fn snapshot(metrics: &Metrics, port: u16, health: &str, now: Instant, serving: Option<&Snapshot>) -> Snapshot {
        let text = format!(
            "listeners: {{ web: \"127.0.0.1:1\" }}\nroutes: {{ all: {{ cluster: c }} }}\nclusters:\n  c:\n    \
             destinations: {{ a: {{ address: \"http://127.0.0.1:{port}\" }} }}\n    health: {health}\n"
        );
        let config = Config::parse("test", &text).expect("a valid file");
        let epoch = Epoch { instant: now, wall: SystemTime::UNIX_EPOCH };
        let scene = Scene { registry: &Registry::builtin(), names: &SystemNames, metrics, epoch, serving };
        compile(&config, &scene, config.problems()).expect("no faults")
    }

    fn drain(runtime: &Runtime, now: Instant) {
        let snapshot = runtime.pin();
        let (cluster, order) = (&snapshot.clusters[0], Order::Override(Override::Drain));
        cluster.judge(&cluster.members[0], Event::Operator { order, lasts: None, by: "test".into() }, now);
        cluster.members[0].live.marks.set(Reason::Passive, true);
        cluster.gauges(&cluster.members[0]);
    }

    fn assert_page(metrics: &Metrics, samples: &[&str]) {
        let page = metrics.render();
        for sample in samples {
            let (name, rest) = sample.split_once(['{', ' ']).expect("a value");
            let comma = if sample.contains('{') { "," } else { "} " };
            let line = format!("derbent_{name}{{cluster=\"c\",destination=\"a\"{comma}{rest}\n");
            assert!(page.contains(&line), "{line} in\n{page}");
        }
    }

    #[test]
    fn given_a_destination_that_is_out_when_a_reload_gives_it_another_address_then_its_gauges_begin_anew() {
        let (metrics, now) = (Metrics::new(), Instant::now());
        let runtime = Runtime::new(snapshot(&metrics, 7_001, "{ breaker: {} }", now, None));
        drain(&runtime, now);
        let out = ["destination_healthy 0", "destination_ejected 1", "destination_admin_state{state=\"drain\"} 1"];
        assert_page(&metrics, &out);
        assert_page(&metrics, &["circuit_breaker_state{state=\"closed\"} 1"]);
        let old = runtime.pin();
        let next = |_: &Snapshot| Ok::<_, ()>(snapshot(&metrics, 7_002, "{}", now, Some(&old)));
        runtime.reload(next, || now).expect("no faults");
        let anew = ["destination_healthy 1", "destination_ejected 0", "destination_admin_state{state=\"ready\"} 1"];
        assert_page(&metrics, &anew);
        assert!(!metrics.render().contains("derbent_circuit_breaker"));
    }

    #[test]
    fn given_a_destination_on_trial_when_its_gauges_are_set_then_it_is_not_healthy() {
        let (metrics, now) = (Metrics::new(), Instant::now());
        let runtime = Runtime::new(snapshot(&metrics, 7_001, "{}", now, None));
        let cluster = Arc::clone(&runtime.pin().clusters[0]);
        let marks = &cluster.members[0].live.marks;
        marks.set(Reason::Passive, true);
        marks.set_half_open(Reason::Passive);
        cluster.gauges(&cluster.members[0]);
        assert_page(&metrics, &["destination_healthy 0", "destination_ejected 1"]);
    }

    #[test]
    fn given_an_order_that_ends_another_when_a_ramp_follows_then_its_end_is_not_told_as_the_orders() {
        let now = Instant::now();
        let text = "listeners: { web: \"127.0.0.1:1\" }\nroutes: { all: { cluster: c } }\nclusters: { c: { slow_start: 1h, destinations: [\"http://127.0.0.1:7001\"] } }\n";
        let cluster = compiled(text).1.clusters[0].clone();
        let said = |order, lasts| {
            let by = "test".to_string();
            let lines = lines(LevelFilter::Info, || {
                drop(cluster.judge(&cluster.members[0], Event::Operator { order, lasts, by }, now))
            });
            lines.into_iter().map(|(_, line)| line).find(|line| line.contains("orders")).expect("a line")
        };
        assert!(said(Order::Override(Override::Drain), Some(Duration::from_secs(60))).contains(", until 19"));
        assert!(said(Order::Ready, None).ends_with(" of cluster c"));
    }
}
