//! The admin address, had from the process that held it: it lets go of it in a moment. Where somebody else has it, the process serves
//! without an admin listener, says so, and has it as soon as it is free.

use crate::observe::event;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::time::{Instant, sleep};

/// After the predecessor gave its place up; then it is said that there is none.
const BOUND_WITHIN: Duration = Duration::from_secs(5);
const BIND_AGAIN: Duration = Duration::from_millis(20);
/// From then on.
const BIND_LATER: Duration = Duration::from_secs(1);

/// Waits for as long as it takes.
pub async fn patiently(address: SocketAddr) -> TcpListener {
    let (listener, is_late) = bind(address, |why| event::admin_missing(address, why)).await;
    if is_late {
        event::admin_had(address);
    }
    listener
}

/// With whether `missing` was told, which is once, that it takes long.
async fn bind(address: SocketAddr, missing: impl FnOnce(io::Error)) -> (TcpListener, bool) {
    let late = Instant::now() + BOUND_WITHIN;
    let mut missing = Some(missing);
    loop {
        match TcpListener::bind(address).await {
            Ok(listener) => return (listener, missing.is_none()),
            Err(_) if Instant::now() < late => sleep(BIND_AGAIN).await,
            Err(why) => {
                if let Some(missing) = missing.take() {
                    missing(why);
                }
                sleep(BIND_LATER).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use tokio::time::timeout;

    #[tokio::test(start_paused = true)]
    async fn given_an_address_that_is_taken_when_it_is_free_at_last_then_it_is_had_and_that_it_took_long_was_said_once()
    {
        for (taken, is_late) in [(0, false), (4, false), (6, true), (3_600, true)] {
            let holder = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
            let address = holder.local_addr().expect("bound");
            let told = Cell::new(0);
            let mut bound = Box::pin(bind(address, |why| {
                assert_eq!(why.kind(), io::ErrorKind::AddrInUse);
                told.set(told.get() + 1);
            }));
            assert!(timeout(Duration::from_secs(taken), &mut bound).await.is_err(), "{taken} s: it is taken");
            drop(holder);
            let had = timeout(BIND_LATER * 2, bound).await.expect("it is free");
            assert_eq!((had.0.local_addr().expect("bound"), had.1, told.get()), (address, is_late, i32::from(is_late)));
        }
    }
}
