//! What passes on a client's HTTP/1 connection, as the edge sees it: whose turn it is, the request line as it was sent, and
//! whether Pingora's parser answered by itself. Pingora tells none of these.

use super::Alarm;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

/// Of a request line this much is remembered: one that is longer has a target that is too long.
const LINE_MOST: usize = super::strict::TARGET_MOST + 1024;

/// One connection's.
#[derive(Debug, Default)]
pub struct Wire {
    /// Even: a head is awaited; odd: it was read and the request is served.
    turn: AtomicU32,
    line: Mutex<Line>,
    /// Something was written in the client's turn.
    refused: AtomicBool,
    /// Nothing more of the request is to come.
    whole: AtomicBool,
    /// The client waits to be told to send its body.
    asks: AtomicBool,
    /// The connection is to end with a reset.
    broken_off: AtomicBool,
    /// Of the request that is served.
    pub alarm: Arc<Alarm>,
}

/// The first line of a turn, with its end.
#[derive(Debug, Default)]
struct Line(Vec<u8>);

impl Wire {
    /// 0 = the client has sent no head yet.
    pub fn turn(&self) -> u32 {
        self.turn.load(Relaxed)
    }

    pub fn is_clients_turn(&self) -> bool {
        self.turn().is_multiple_of(2)
    }

    /// A head was read.
    pub(super) fn head_read(&self) {
        self.turn.fetch_or(1, Relaxed);
    }

    /// The request is over: the next head is awaited.
    pub fn await_head(&self) {
        self.turn.store(self.turn().wrapping_add(1), Relaxed);
        self.whole.store(false, Relaxed);
        self.asks.store(false, Relaxed);
        if let Ok(mut line) = self.line.lock() {
            line.0.clear();
        }
    }

    /// Whether the rest of the request may still come.
    pub(super) fn set_whole(&self, whole: bool) {
        self.whole.store(whole, Relaxed);
    }

    pub(super) fn is_whole(&self) -> bool {
        self.whole.load(Relaxed)
    }

    /// The client ends its side: whether it may still be waiting for an answer.
    pub fn awaits_answer(&self) -> bool {
        !self.is_clients_turn() && self.is_whole()
    }

    /// These bytes came.
    pub fn received(&self, bytes: &[u8]) {
        if self.is_clients_turn()
            && let Ok(mut line) = self.line.lock()
        {
            line.take(bytes);
        }
    }

    /// Bytes went: an answer, or Pingora's word on a head that it does not take.
    pub fn sent(&self) {
        if self.is_clients_turn() {
            self.refused.store(true, Relaxed);
        }
        self.asks.store(false, Relaxed);
    }

    /// As soon as the body is waited for, unless an answer or the body is there before.
    pub(super) fn ask_for_body(&self) {
        self.asks.store(true, Relaxed);
    }

    /// Whether the client, which is waited for, is to be told now; once only.
    pub fn asks_for_body(&self) -> bool {
        self.asks.load(Relaxed) && self.asks.swap(false, Relaxed) && !self.is_whole()
    }

    /// What was answered so far is not all.
    pub(super) fn break_off(&self) {
        self.broken_off.store(true, Relaxed);
    }

    pub fn is_broken_off(&self) -> bool {
        self.broken_off.load(Relaxed)
    }

    /// Whether a head was refused by Pingora itself: the last one, for it closes.
    pub fn refused(&self) -> bool {
        self.refused.load(Relaxed)
    }

    /// Whether Pingora's parser percent-encoded the request line that begins `parsed`: it does so with spaces and control
    /// characters. Of a request that was sent before the answer to the last one, all or the beginning was read too early to
    /// be remembered; what is remembered is compared.
    pub(super) fn was_rewritten(&self, parsed: &[u8]) -> bool {
        let parsed = first_line(parsed);
        // Nothing that the parser would have put there.
        if !parsed.contains(&b'%') {
            return false;
        }
        self.line.lock().is_ok_and(|line| is_encoded(parsed, first_line(&line.0)))
    }
}

impl Line {
    fn take(&mut self, mut bytes: &[u8]) {
        if self.0.is_empty() {
            // Empty lines before a request are allowed.
            let start = bytes.iter().position(|byte| !matches!(byte, b'\r' | b'\n')).unwrap_or(bytes.len());
            bytes = &bytes[start..];
        }
        if self.0.last() == Some(&b'\n') {
            return;
        }
        let end = bytes.iter().position(|&byte| byte == b'\n').map_or(bytes.len(), |at| at + 1);
        let room = LINE_MOST.saturating_sub(self.0.len());
        self.0.extend_from_slice(&bytes[..end.min(room)]);
    }
}

/// Without its end.
fn first_line(bytes: &[u8]) -> &[u8] {
    let start = bytes.iter().position(|byte| !matches!(byte, b'\r' | b'\n')).unwrap_or(bytes.len());
    let bytes = &bytes[start..];
    let line = bytes.split(|&byte| byte == b'\n').next().unwrap_or(bytes);
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// Whether `parsed` ends as `sent`, but with some bytes percent-encoded.
fn is_encoded(parsed: &[u8], sent: &[u8]) -> bool {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    let (mut left, mut encoded) = (parsed, false);
    for &byte in sent.iter().rev() {
        let escape = [b'%', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]];
        if let Some(rest) = left.strip_suffix(&[byte]) {
            left = rest;
        } else if let Some(rest) = left.strip_suffix(&escape) {
            (left, encoded) = (rest, true);
        } else {
            return false;
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_a_request_line_with_spaces_when_parsed_then_it_is_seen_that_the_parser_encoded_them() {
        let parsed = b"GET /a%20b HTTP/1.1\r\nhost: h\r\n\r\n";
        let cases: [(&[&[u8]], bool); 8] = [
            (&[b"GET /a b HTTP/1.1\r\nhost: h\r\n\r\n"], true),
            (&[b"\r\n", b"GET /a", b" b HTTP/1.1\n", b"host: h\r\n"], true),
            // The first byte was read with the request before.
            (&[b"ET /a b HTTP/1.1\r\n"], true),
            (&[b"GET /a%20b HTTP/1.1\r\nhost: h\r\n\r\n"], false),
            (&[b"ET /a%20b HTTP/1.1\r\n"], false),
            // All of the line was.
            (&[b"user-agent: a b c HTTP/1.0\r\n"], false),
            (&[b"\r\n\r\n"], false),
            (&[], false),
        ];
        for (reads, rewritten) in cases {
            let wire = Wire::default();
            reads.iter().for_each(|bytes| wire.received(bytes));
            assert_eq!(wire.was_rewritten(parsed), rewritten, "{reads:?}");
        }
    }

    #[test]
    fn given_a_turn_that_is_ours_when_bytes_pass_then_nothing_is_made_of_them() {
        let wire = Wire::default();
        wire.received(b"GET / HTTP/1.1\r\n");
        wire.head_read();
        wire.received(b"GET /a b HTTP/1.1\r\n");
        wire.sent();
        assert!(!wire.refused() && !wire.was_rewritten(b"GET /a%20b HTTP/1.1\r\n"));
        wire.await_head();
        wire.received(b"GET /a b HTTP/1.1\r\n");
        assert!(wire.was_rewritten(b"GET /a%20b HTTP/1.1\r\n"));
        wire.sent();
        assert!(wire.refused());
    }

    #[test]
    fn given_a_client_that_ends_when_its_request_is_whole_then_alone_it_awaits_an_answer() {
        let wire = Wire::default();
        assert!(!wire.awaits_answer());
        wire.head_read();
        assert!(!wire.awaits_answer());
        wire.set_whole(true);
        assert!(wire.awaits_answer());
        wire.await_head();
        assert!(!wire.awaits_answer());
    }

    #[test]
    fn given_a_client_that_asks_whether_to_send_when_waited_for_then_it_is_told_once_unless_it_has_sent_or_was_answered()
     {
        let wire = Wire::default();
        wire.head_read();
        assert!(!wire.asks_for_body());
        wire.ask_for_body();
        assert!(wire.asks_for_body() && !wire.asks_for_body());
        wire.ask_for_body();
        wire.sent();
        assert!(!wire.asks_for_body(), "answered");
        wire.ask_for_body();
        wire.set_whole(true);
        assert!(!wire.asks_for_body(), "sent");
        wire.await_head();
        wire.head_read();
        assert!(!wire.asks_for_body(), "another request");
    }

    #[test]
    fn given_a_line_without_end_when_received_then_it_is_remembered_up_to_a_limit() {
        let wire = Wire::default();
        (0..1000).for_each(|_| wire.received(&[b'a'; 1000]));
        assert_eq!(wire.line.lock().map(|line| line.0.len()).ok(), Some(LINE_MOST));
    }
}
