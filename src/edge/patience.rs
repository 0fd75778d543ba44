use crate::proxy::Connection;
use std::time::Duration;
use tokio::time::{Interval, MissedTickBehavior, interval_at};

/// A kept connection may wait for its next head, and drip it, for as many ticks as its idle time has, and these. Pingora's
/// keep-alive ends an idle one sooner; this ends one whose head never comes to its end.
const TICKS_MORE: u32 = 2;

/// How long a client is waited for. One timer a connection, looked at every tick, so that no request sets one.
pub struct Patience {
    timer: Interval,
    waited: Waited,
    /// Of a kept connection.
    most: u32,
}

/// For whose turn, and for how many ticks.
#[derive(Default)]
struct Waited {
    turn: u32,
    ticks: u32,
}

impl Patience {
    /// The first head has one `tick`; `idle`: as long as a kept connection may go without a request.
    pub fn new(tick: Duration, idle: Duration) -> Self {
        let ticks = idle.as_secs_f64() / tick.as_secs_f64();
        let mut timer = interval_at(tokio::time::Instant::now() + tick, tick);
        timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Patience { timer, waited: Waited::default(), most: (ticks.ceil() as u32).saturating_add(TICKS_MORE) }
    }

    /// Comes back when the connection's client has been waited for too long.
    pub async fn lost(&mut self, connection: &Connection) {
        loop {
            self.timer.tick().await;
            if self.waited.too_long(connection.wire.turn(), self.most) {
                return;
            }
        }
    }
}

impl Waited {
    /// One more tick in which it was this turn.
    fn too_long(&mut self, turn: u32, most: u32) -> bool {
        if turn != self.turn {
            *self = Waited { turn, ticks: 0 };
        }
        self.ticks += 1;
        let clients = turn.is_multiple_of(2);
        clients && (turn == 0 || self.ticks > most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_a_new_connection_when_no_head_came_within_a_tick_then_patience_is_lost() {
        assert!(Waited::default().too_long(0, 8));
    }

    #[test]
    fn given_a_request_that_is_served_when_it_takes_long_then_the_client_is_not_to_blame() {
        let mut waited = Waited::default();
        assert!((0..100).all(|_| !waited.too_long(1, 8)));
    }

    #[test]
    fn given_a_kept_connection_when_its_next_head_never_ends_then_patience_is_lost_after_the_ticks() {
        let mut waited = Waited::default();
        assert!(!waited.too_long(1, 8));
        assert!((0..8).all(|_| !waited.too_long(2, 8)));
        assert!(waited.too_long(2, 8));
    }

    #[test]
    fn given_requests_that_go_on_when_ticks_pass_then_each_wait_counts_anew() {
        let mut waited = Waited::default();
        assert!((1..100).all(|n| !waited.too_long(2 * n, 8)));
    }
}
