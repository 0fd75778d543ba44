//! The one hour at which something of a request ends: set by the phases, which cannot be woken, and heard where Pingora reads
//! from the client while it waits for a destination. There the read fails, and Pingora leaves the destination for it.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use tokio::time::{Sleep, sleep_until};

/// When it rings.
#[derive(Debug)]
pub struct Alarm {
    begun: Instant,
    /// Nanoseconds after `begun`; [`NEVER`]; [`FOR_GOOD`].
    due: AtomicU64,
}

const NEVER: u64 = u64::MAX;
/// It rings, whatever it is set to.
const FOR_GOOD: u64 = 0;

impl Default for Alarm {
    fn default() -> Self {
        Alarm { begun: Instant::now(), due: AtomicU64::new(NEVER) }
    }
}

impl Alarm {
    pub fn set(&self, at: Option<Instant>) {
        let nanos = |at: Instant| u64::try_from(at.saturating_duration_since(self.begun).as_nanos()).unwrap_or(NEVER);
        let due = at.map_or(NEVER, |at| nanos(at).max(FOR_GOOD + 1));
        // An error is one that rings for good.
        let _ = self.due.fetch_update(Relaxed, Relaxed, |now| (now != FOR_GOOD).then_some(due));
    }

    /// From now on.
    pub fn ring(&self) {
        self.due.store(FOR_GOOD, Relaxed);
    }

    fn due(&self) -> Option<Instant> {
        let due = self.due.load(Relaxed);
        (due != NEVER).then(|| self.begun + Duration::from_nanos(due))
    }
}

/// Who listens to an alarm. No timer is made before it is set.
#[derive(Debug, Default)]
pub struct Bell {
    timer: Option<Pin<Box<Sleep>>>,
}

impl Bell {
    /// Ready when the alarm rings, as it is set now. It goes on ringing until it is set anew.
    pub fn poll_rung(&mut self, alarm: &Alarm, context: &mut Context<'_>) -> Poll<io::Error> {
        let Some(due) = alarm.due() else { return Poll::Pending };
        let due = due.into();
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(due)));
        if timer.deadline() != due {
            timer.as_mut().reset(due);
        }
        ready!(timer.as_mut().poll(context));
        Poll::Ready(io::Error::new(io::ErrorKind::TimedOut, "the request has had its time"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use std::task::Waker;

    fn rung(bell: &mut Bell, alarm: &Alarm) -> bool {
        bell.poll_rung(alarm, &mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[tokio::test]
    async fn given_an_alarm_when_set_anew_then_it_is_heard_at_its_last_hour_only() {
        let (alarm, mut bell) = (Alarm::default(), Bell::default());
        assert!(!rung(&mut bell, &alarm) && bell.timer.is_none());
        alarm.set(Some(Instant::now()));
        let error = poll_fn(|context| bell.poll_rung(&alarm, context)).await;
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        alarm.set(Some(Instant::now() + Duration::from_secs(3600)));
        assert!(!rung(&mut bell, &alarm));
        alarm.set(None);
        assert!(!rung(&mut bell, &alarm));
        alarm.set(Some(Instant::now() - Duration::from_secs(1)));
        poll_fn(|context| bell.poll_rung(&alarm, context)).await;
        alarm.set(None);
        alarm.ring();
        alarm.set(None);
        poll_fn(|context| bell.poll_rung(&alarm, context)).await;
    }
}
