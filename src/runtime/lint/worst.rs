//! What one request may come to at worst: how many attempts, and how much time from when the client has sent it whole.

use super::routes_to;
use crate::config::{self, Config, Retry, Role, show_duration};
use crate::model::Outcome;
use crate::retry::{ASKED_FOR, FAILOVERS, longest_wait};
use crate::runtime::Cluster;
use std::time::Duration;

pub struct Worst {
    /// At primaries, or first at a canary.
    attempts: u8,
    /// At failovers, after them.
    failovers: u8,
    time: Duration,
    /// At what its routes' `timeout` ends it before.
    cut: Option<Duration>,
}

impl Worst {
    pub fn of(config: &Config, written: &config::Cluster, built: &Cluster) -> Worst {
        let (attempts, failovers) = match &written.retry {
            Some(rule) => (attempts(rule, built), failovers(written, built)),
            None => (1, 0),
        };
        let queued = written.queue.map_or(Duration::ZERO, |queue| queue.deadline);
        let waits = written.retry.as_ref().map_or(Duration::ZERO, |rule| {
            let again = written.failover.map_or(1, |failover| failover.attempts_per_destination);
            waits(rule, attempts, (failovers, again))
        });
        let time = queued + attempt(written) * (u32::from(attempts) + u32::from(failovers)) + waits;
        let timeouts: Option<Vec<Duration>> = routes_to(config, written).map(|route| route.timeout).collect();
        let cut = timeouts.and_then(|timeouts| timeouts.into_iter().max()).filter(|timeout| *timeout < time);
        Worst { attempts, failovers, time, cut }
    }

    /// `at worst a request takes 3 attempts, 2 more at failovers, and 8m46s, which its routes cut to 30s`
    pub fn words(&self) -> String {
        let Worst { attempts, failovers, time, cut } = self;
        let attempts = format!("{attempts} attempt{}", if *attempts == 1 { "" } else { "s" });
        let more = if *failovers == 0 { String::new() } else { format!(", {failovers} more at failovers,") };
        let cut = cut.map_or(String::new(), |cut| format!(", which its routes cut to {}", show_duration(cut)));
        format!("at worst a request takes {attempts}{more} and {}{cut}", show_duration(rounded(*time)))
    }
}

/// Each of which may be the last that the file allows.
fn attempts(rule: &Retry, built: &Cluster) -> u8 {
    let enabled = |role: Role| built.members.iter().filter(move |of| of.is(role) && of.destination.enabled).count();
    let left = match rule.repeat {
        true => usize::MAX,
        false => enabled(Role::Primary) + enabled(Role::Canary).min(1),
    };
    u8::try_from(left).map_or(rule.attempts, |left| rule.attempts.min(left)).max(1)
}

fn failovers(written: &config::Cluster, built: &Cluster) -> u8 {
    let Some(failover) = written.failover else { return 0 };
    let failovers = built.members.iter().filter(|of| of.is(Role::Failover) && of.destination.enabled).count();
    let most = failovers.saturating_mul(failover.attempts_per_destination.into());
    u8::try_from(most).map_or(FAILOVERS, |most| most.min(FAILOVERS))
}

/// The longest that one attempt lasts to the head of an answer.
fn attempt(written: &config::Cluster) -> Duration {
    let connection = &written.connection;
    // For a connection to be free, and for one to be made.
    let turns = if connection.max_connections.is_some() { 2 } else { 1 };
    match written.retry.as_ref().and_then(|rule| rule.attempt_timeout) {
        None => connection.connect_timeout * turns + written.activity_timeout,
        Some(timeout) => {
            let connected = connection.connect_timeout.min(timeout) * turns;
            connected.max(timeout.min(connected + written.activity_timeout))
        }
    }
}

/// Pauses between attempts: before each at a primary, and before each further one at the same failover, of which there are `again`.
pub(super) fn waits(rule: &Retry, attempts: u8, (failovers, again): (u8, u8)) -> Duration {
    let asks = [503, 429].iter().any(|&status| Outcome::Status(status).is_in(&rule.on));
    let asked = if asks { ASKED_FOR } else { Duration::ZERO };
    let at_primaries = (1..attempts).map(|retry| {
        let wait = longest_wait(&rule.delay, retry);
        if rule.repeat { wait.max(asked) } else { wait }
    });
    let at_failovers = (0..failovers)
        .filter(|over| over % again.max(1) != 0)
        .map(|over| longest_wait(&rule.delay, attempts.saturating_add(over)).max(asked));
    at_primaries.chain(at_failovers).sum()
}

/// Up to whole seconds, from ten on.
fn rounded(time: Duration) -> Duration {
    match time.subsec_nanos() {
        1.. if time.as_secs() >= 10 => Duration::from_secs(time.as_secs() + 1),
        _ => time,
    }
}
