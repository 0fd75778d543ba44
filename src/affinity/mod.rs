//! How a request says which destination its session is bound to. One policy a file, one row in [`BUILTIN`].
//!
//! A policy reads keys out of requests ([`Affinity::recall`]), writes them on answers ([`Affinity::remember`]) and takes
//! them out of what is forwarded ([`Affinity::withhold`]). What follows from a key is not decided here: whether the
//! destination may be used, whether a session is bound anew, whether there is an answer to write on. A key is whatever a
//! client likes to send: it is looked up in what was prepared when the policy was built, at a cost that grows with its own
//! length alone, and the worst of it is [`Recall::Unreadable`].

mod arr_cookie;
mod casing;
mod cookie;
mod custom_header;
mod encrypted_cookie;
mod hash_cookie;
mod keys;
mod prepared;
mod seal;
#[cfg(test)]
mod testing;

use crate::config::{Located, Section};
use crate::model::RequestView;
use http::{HeaderMap, HeaderName, HeaderValue};
use std::time::SystemTime;

/// A policy of one cluster, which knows its destinations.
pub trait Affinity: Send + Sync {
    /// What the request says of its session. On the request path: takes no lock.
    fn recall(&self, request: &RequestView<'_>) -> Recall;

    /// The field of an answer that binds its session to the destination at `index`; `None`: it cannot be bound.
    fn remember(&self, index: usize, answer: &Answer) -> Option<(HeaderName, HeaderValue)>;

    /// The field of a request that has the key in it, and what is left of that field without the key, if anything; `None`
    /// when there is no key in it.
    fn withhold(&self, headers: &HeaderMap) -> Option<(HeaderName, Option<HeaderValue>)>;
}

/// What a request says of its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recall {
    /// Nothing, or an empty key.
    Unset,
    /// The destination at this [`index`](crate::model::Member::index).
    Bound(usize),
    /// The key of none of the destinations.
    Unknown,
    /// No key that this policy could have written.
    Unreadable,
}

/// What the field that binds a session may go by.
#[derive(Debug, Clone, Copy)]
pub struct Answer {
    /// The client speaks TLS.
    pub secure: bool,
    pub now: SystemTime,
}

/// What a policy is built for.
#[derive(Debug, Clone, Copy)]
pub struct Scope<'a> {
    /// `session_affinity.key_name`
    pub key_name: &'a Located<String>,
    /// What each destination is called in keys, by [`index`](crate::model::Member::index).
    pub ids: &'a [String],
}

/// A row of the table of policies.
#[derive(Clone, Copy)]
pub struct Entry {
    pub name: &'static str,
    /// Takes the policy's own keys from the section; faults go to the section, which then refuses keys not taken.
    pub build: fn(&mut Section<'_>, &Scope<'_>) -> Box<dyn Affinity>,
}

pub const BUILTIN: &[Entry] = &[hash_cookie::ENTRY, arr_cookie::ENTRY, encrypted_cookie::ENTRY, custom_header::ENTRY];
