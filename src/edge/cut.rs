//! The end of a drain, as a connection hears of it. Connections wait for it all their life, and are polled with every piece of
//! a request: whom the end shall wake is written down once, for the list of those is one that all share.

use crate::service::Lifecycle;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

pub struct Cut {
    lifecycle: Arc<Lifecycle>,
    done: Pin<Box<dyn Future<Output = ()> + Send>>,
    /// Who is woken.
    waker: Option<Waker>,
}

impl Cut {
    pub fn new(lifecycle: Arc<Lifecycle>) -> Self {
        let mut done = lifecycle.done();
        // An error means that the process ends as well.
        let done = Box::pin(async move { drop(done.wait_for(|done| *done).await) });
        Cut { lifecycle, done, waker: None }
    }

    /// Comes back when what is under way is cut, and then at once.
    pub async fn heard(&mut self) {
        poll_fn(|context| self.poll_heard(context)).await;
    }

    fn poll_heard(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.lifecycle.is_done() {
            return Poll::Ready(());
        }
        if self.waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
            return Poll::Pending;
        }
        self.waker = Some(context.waker().clone());
        self.done.as_mut().poll(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Drain;
    use crate::model::Epoch;
    use crate::service::lifecycle::Word;
    use std::time::{Instant, SystemTime};

    #[tokio::test]
    async fn given_a_connection_that_waits_when_the_drain_ends_then_it_is_woken_whoever_waited_before() {
        let now = Instant::now();
        let epoch = Epoch { instant: now, wall: SystemTime::now() };
        let lifecycle = Arc::new(Lifecycle::new(Drain::default(), Arc::default(), Vec::new(), epoch));
        let mut cut = Cut::new(lifecycle.clone());
        assert!(cut.poll_heard(&mut Context::from_waker(Waker::noop())).is_pending());
        lifecycle.hear(Word::Signal("SIGTERM"), now);
        let waiting = tokio::spawn(async move {
            cut.heard().await;
            cut.heard().await;
        });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished(), "announced only");
        lifecycle.hear(Word::Signal("SIGTERM"), now);
        waiting.await.expect("heard");
    }
}
