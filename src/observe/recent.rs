//! The last requests that did not go as they should, for whoever asks what just happened: each as the object of its line in the
//! access log, whether or not there is such a log, but for what clients may have written secrets into.

use super::access_log::{Entry, Format};
use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError, TryLockError};

/// Keeping one more never waits: while another is just kept it is dropped, and counted.
pub struct Recent {
    /// The name of this instance.
    server: String,
    /// JSON, the oldest first.
    kept: Mutex<VecDeque<Bytes>>,
    dropped: AtomicU64,
}

impl Recent {
    pub const MOST: usize = 256;
    /// Of a path, in bytes.
    pub const SHOWN: usize = 200;

    pub fn new(server: impl Into<String>) -> Self {
        Recent { server: server.into(), kept: Mutex::default(), dropped: AtomicU64::new(0) }
    }

    pub fn server(&self) -> &str {
        &self.server
    }

    /// In place of the oldest, when there are [`Recent::MOST`].
    pub fn keep(&self, entry: &Entry<'_>) {
        let path = entry.path.split(|byte| *byte == b'?').next().unwrap_or_default();
        let path = &path[..path.len().min(Self::SHOWN)];
        let shown = Entry { path, host: None, user_agent: None, referer: None, ..entry.clone() };
        let line = Bytes::from(Format::Json.line(&shown));
        let mut kept = match self.kept.try_lock() {
            Ok(kept) => kept,
            Err(TryLockError::Poisoned(kept)) => kept.into_inner(),
            Err(TryLockError::WouldBlock) => {
                self.dropped.fetch_add(1, Relaxed);
                return;
            }
        };
        if kept.len() == Self::MOST {
            kept.pop_front();
        }
        kept.push_back(line);
    }

    /// JSON objects, the newest first.
    pub fn newest(&self) -> Vec<Bytes> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).iter().rev().cloned().collect()
    }

    /// How many were not kept, for another was just then.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Version;
    use serde_json::Value;
    use std::thread;
    use std::time::{Duration, SystemTime};

    fn entry<'a>(path: &'a [u8], id: &'a [u8]) -> Entry<'a> {
        Entry {
            time: SystemTime::UNIX_EPOCH,
            server: "gw-1",
            listener: "web",
            client: None,
            method: "GET",
            host: Some(b"h"),
            path,
            protocol: Version::HTTP_11,
            status: 502,
            bytes_in: 0,
            bytes_out: 0,
            duration: Duration::ZERO,
            route: Some("all"),
            cluster: Some("app"),
            request_id: id,
            user_agent: Some(b"agent"),
            referer: Some(b"referer"),
            attempts: Vec::new(),
            affinity: None,
            failed: Some("destination_failed"),
        }
    }

    fn shown(recent: &Recent) -> Vec<Value> {
        recent.newest().iter().map(|line| serde_json::from_slice(line).expect("JSON")).collect()
    }

    #[test]
    fn given_more_requests_than_are_kept_when_shown_then_the_newest_first_and_the_oldest_are_gone() {
        let recent = Recent::new("gw-1");
        (0..Recent::MOST + 3).for_each(|number| recent.keep(&entry(b"/", number.to_string().as_bytes())));
        let shown = shown(&recent);
        assert_eq!((shown.len(), recent.dropped()), (Recent::MOST, 0));
        assert_eq!((&shown[0]["request_id"], &shown[Recent::MOST - 1]["request_id"]), (&"258".into(), &"3".into()));
    }

    #[test]
    fn given_what_a_client_wrote_when_kept_then_neither_its_query_nor_its_fields_and_of_a_long_path_the_beginning() {
        let recent = Recent::new("gw-1");
        recent.keep(&entry(b"/login?token=s3cret", b"1"));
        let long = [b"/".to_vec(), vec![b'a'; 60_000]].concat();
        recent.keep(&entry(&long, b"2"));
        let shown = shown(&recent);
        assert_eq!(shown[1]["path"], "/login");
        assert_eq!(shown[0]["path"].as_str().map(str::len), Some(Recent::SHOWN));
        for key in ["host", "user_agent", "referer"] {
            assert_eq!(shown[0][key], Value::Null, "{key}");
        }
    }

    #[test]
    fn given_many_threads_when_they_keep_at_once_then_each_is_kept_or_counted() {
        let recent = &Recent::new("gw-1");
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| (0..32).for_each(|_| recent.keep(&entry(b"/", b"1"))));
            }
        });
        assert_eq!(recent.newest().len() as u64 + recent.dropped(), 256);
    }
}
