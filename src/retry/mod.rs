//! Whether a request that failed is tried again: [`Plan`] decides, one for each request; the [`Budget`] of its cluster keeps
//! retries from becoming the load that brings down what is left; [`wait`] is the pause before.
//!
//! Pure: no clock, no chance, no IO of its own, and it does not know destinations. Which one comes next is the draw's to say.
//! Nothing here fails; without an answer that allows another attempt there is none.

mod backoff;
mod budget;
mod plan;

pub use backoff::{ASKED_FOR, longest_wait, wait};
pub use budget::Budget;
pub use plan::{Ended, FAILOVERS, Plan, ROUNDS, Sent, Verdict, Why};
