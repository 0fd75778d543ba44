//! What belongs to the place and could not be had when it was taken: a directory that is not there yet, a file system that is full. It is tried
//! again for a minute, less and less often; who then still has none serves without.

use crate::observe::event;
use std::io;
use std::time::Duration;
use tokio::time::sleep;

/// Between one attempt and the next; after the last it is given up.
const PAUSES: [Duration; 6] = [
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(4),
    Duration::from_secs(8),
    Duration::from_secs(16),
    Duration::from_secs(32),
];

/// `without`: what is so while it is not there.
pub async fn patiently<T>(without: &str, attempt: impl FnMut() -> io::Result<T>) -> Option<T> {
    let tell = |told: Told<'_>| match told {
        Told::Again(why) => event::place_incomplete(without, why),
        Told::Had => event::place_complete(without),
        Told::GivenUp(why) => event::place_given_up(without, why),
    };
    have(attempt, tell).await
}

enum Told<'a> {
    /// For the first time; it is tried on.
    Again(&'a io::Error),
    /// After that.
    Had,
    GivenUp(&'a io::Error),
}

async fn have<T>(mut attempt: impl FnMut() -> io::Result<T>, tell: impl Fn(Told<'_>)) -> Option<T> {
    let mut pauses = PAUSES.iter().enumerate();
    loop {
        match (attempt(), pauses.next()) {
            (Ok(had), before) => {
                if before.is_none_or(|(n, _)| n > 0) {
                    tell(Told::Had);
                }
                return Some(had);
            }
            (Err(why), Some((n, pause))) => {
                if n == 0 {
                    tell(Told::Again(&why));
                }
                sleep(*pause).await;
            }
            (Err(why), None) => {
                tell(Told::GivenUp(&why));
                return None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use tokio::time::Instant;

    #[tokio::test(start_paused = true)]
    async fn given_what_cannot_be_had_when_it_can_at_last_then_it_is_had_and_when_it_never_can_then_it_is_given_up() {
        for (fails, words, lasts) in [
            (0, &[][..], 0),
            (1, &["again", "had"], 1),
            (3, &["again", "had"], 7),
            (6, &["again", "had"], 63),
            (7, &["again", "given up"], 63),
        ] {
            let (begun, told, mut attempts) = (Instant::now(), RefCell::<Vec<_>>::default(), 0);
            let attempt = || {
                attempts += 1;
                if attempts > fails { Ok(attempts) } else { Err(io::Error::from(io::ErrorKind::NotFound)) }
            };
            let tell = |word: Told<'_>| {
                told.borrow_mut().push(match word {
                    Told::Again(_) => "again",
                    Told::Had => "had",
                    Told::GivenUp(_) => "given up",
                });
            };
            let had = have(attempt, tell).await;
            assert_eq!((had, told.into_inner().as_slice()), ((fails < 7).then_some(fails + 1), words), "{fails}");
            assert_eq!((begun.elapsed().as_secs(), attempts), (lasts, (fails + 1).min(7)), "{fails}");
        }
    }
}
