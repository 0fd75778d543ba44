use std::sync::atomic::{AtomicU32, Ordering};
use tokio::sync::{Mutex, MutexGuard, Notify};

/// Those who wait for a place, first come first served. Only the first of them looks whether there is one; a place that
/// is given back wakes it, and whoever goes, with a place or without, lets the next one look.
///
/// No wake-up is lost: who joins is counted before it looks, who gives a place back does so before it looks at the count,
/// and a wake-up that finds nobody waits for the next.
#[derive(Debug, Default)]
pub struct Line {
    waiting: AtomicU32,
    turn: Mutex<()>,
    freed: Notify,
}

/// One that waits; it leaves by `Drop`.
#[derive(Debug)]
pub struct Waiting<'a> {
    line: &'a Line,
    turn: Option<MutexGuard<'a, ()>>,
}

impl Line {
    /// How many wait.
    pub fn length(&self) -> u32 {
        self.waiting.load(Ordering::SeqCst)
    }

    /// At the end of the line; `None` when `max` wait already.
    pub fn join(&self, max: u32) -> Option<Waiting<'_>> {
        let more = |waiting| (waiting < max).then_some(waiting + 1);
        self.waiting.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more).ok()?;
        Some(Waiting { line: self, turn: None })
    }

    /// A place was given back, or something else happened that may make one.
    pub fn freed(&self) {
        if self.length() > 0 {
            self.freed.notify_one();
        }
    }
}

impl Waiting<'_> {
    /// Comes back when it is time to look for a place: for the first time when all who came before have gone, then each
    /// time that one may be free. To leave off loses the position in the line.
    pub async fn turn(&mut self) {
        match self.turn {
            None => self.turn = Some(self.line.turn.lock().await),
            Some(_) => self.line.freed.notified().await,
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.line.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Crowd, Lease, Live};
    use std::sync::Arc;

    fn ready<F: Future>(future: &mut std::pin::Pin<&mut F>) -> bool {
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        future.as_mut().poll(&mut context).is_ready()
    }

    /// As a queue does.
    async fn place(crowd: &Crowd, live: &Arc<Live>) -> Lease {
        let mut waiting = crowd.line.join(u32::MAX).expect("no bound");
        loop {
            waiting.turn().await;
            if let Ok(lease) = live.lease(Some(2)) {
                return lease;
            }
        }
    }

    #[test]
    fn given_more_than_the_line_takes_when_they_join_then_the_last_is_turned_away_until_one_leaves() {
        let line = Line::default();
        let first = line.join(2);
        let second = line.join(2);
        assert!(first.is_some() && second.is_some() && line.join(2).is_none());
        drop(first);
        assert!(line.join(2).is_some());
        drop(second);
        assert_eq!(line.length(), 0);
    }

    #[test]
    fn given_a_line_when_places_come_free_then_the_first_to_come_gets_the_first() {
        let line = Line::default();
        let mut all: Vec<Waiting<'_>> = (0..3).filter_map(|_| line.join(3)).collect();
        let mut last = all.pop().expect("three");
        let mut middle = all.pop().expect("three");
        let mut first = all.pop().expect("three");
        {
            let turn = std::pin::pin!(first.turn());
            assert!(ready(&mut { turn }));
        }
        let mut middle_turn = std::pin::pin!(middle.turn());
        let mut last_turn = std::pin::pin!(last.turn());
        assert!(!ready(&mut middle_turn) && !ready(&mut last_turn));
        line.freed();
        assert!(!ready(&mut middle_turn) && !ready(&mut last_turn));
        drop(first);
        assert!(!ready(&mut last_turn) && ready(&mut middle_turn) && !ready(&mut last_turn));
    }

    /// A wake-up lost would leave a request that waits for ever.
    #[test]
    fn given_many_that_come_leave_and_give_back_at_once_when_all_are_done_then_none_waits_and_no_bound_was_passed() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_time().build();
        runtime.expect("threads").block_on(async {
            let crowd = Arc::new(Crowd::default());
            let live = Arc::new(Live::within(&crowd));
            let most = Arc::new(AtomicU32::new(0));
            let tasks: Vec<_> = (0..64)
                .map(|task| {
                    let (crowd, live, most) = (crowd.clone(), live.clone(), most.clone());
                    tokio::spawn(async move {
                        let mut dice = fastrand::Rng::with_seed(task);
                        for _ in 0..200 {
                            let lease = tokio::select! {
                                lease = place(&crowd, &live) => lease,
                                () = steps(dice.u8(..40)) => continue,
                            };
                            most.fetch_max(live.in_flight(), Ordering::SeqCst);
                            steps(dice.u8(..3)).await;
                            drop(lease);
                        }
                    })
                })
                .collect();
            let all = async {
                for task in tasks {
                    task.await.expect("no panic");
                }
            };
            tokio::time::timeout(std::time::Duration::from_secs(60), all).await.expect("none waits for ever");
            assert_eq!((live.in_flight(), crowd.line.length()), (0, 0));
            assert!((1..=2).contains(&most.load(Ordering::SeqCst)));
        });
    }

    async fn steps(steps: u8) {
        for _ in 0..steps {
            tokio::task::yield_now().await;
        }
    }
}
