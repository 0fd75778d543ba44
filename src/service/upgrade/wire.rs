//! Lines of JSON on a Unix socket, and sockets that come with them.

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
};
use serde_json::{Value, json};
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

/// Of one line: the addresses of a great many listeners.
const MOST_LINE: usize = 1 << 20;
/// Sockets that come at once; more come with the next message.
const AT_ONCE: usize = 32;
/// Of a successor that took over, to the process before: it is not to be replaced when it ends, for it drains, or another took over.
pub const LEAVING: &str = "leaving";
/// That came to nothing.
pub const BACK: &str = "back";
/// What carries sockets, for they come with bytes only.
const CARRIER: u8 = b'.';

pub fn send(mut stream: &UnixStream, line: &Value) -> io::Result<()> {
    stream.write_all(format!("{line}\n").as_bytes())
}

/// A line that says how much follows, and that much.
pub fn send_document(mut stream: &UnixStream, document: &[u8]) -> io::Result<()> {
    send(stream, &json!({ "bytes": document.len() }))?;
    stream.write_all(document)
}

pub fn send_sockets(stream: &UnixStream, sockets: &[impl AsFd]) -> io::Result<()> {
    for some in sockets.chunks(AT_ONCE) {
        let some: Vec<_> = some.iter().map(AsFd::as_fd).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(AT_ONCE))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(&some));
        rustix::net::sendmsg(stream, &[IoSlice::new(&[CARRIER])], &mut control, SendFlags::empty())?;
    }
    Ok(())
}

/// What came and was not yet asked for.
#[derive(Default)]
pub struct Inbox {
    bytes: Vec<u8>,
    pub sockets: Vec<OwnedFd>,
}

impl Inbox {
    /// The next line. The stream's own time limit holds for each piece of it.
    ///
    /// # Errors
    /// `UnexpectedEof` when the other side has gone, `InvalidData` for what is no JSON or too long, and those of reading.
    pub fn line(&mut self, stream: &UnixStream) -> io::Result<Value> {
        loop {
            if let Some(end) = self.bytes.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.bytes.drain(..=end).skip_while(|byte| *byte == CARRIER).collect();
                return serde_json::from_slice(&line).map_err(|error| io::Error::new(ErrorKind::InvalidData, error));
            }
            if self.bytes.len() > MOST_LINE {
                return Err(ErrorKind::InvalidData.into());
            }
            if self.receive(stream)? == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// What [`send_document`] sent, or why there is none. One that is longer than `most` is passed over.
    ///
    /// # Errors
    /// Those of [`Self::line`], and `InvalidData` for an answer that is neither.
    pub fn document(&mut self, stream: &UnixStream, most: usize) -> io::Result<Result<Vec<u8>, String>> {
        let head = self.line(stream)?;
        if let Some(why) = head["refused"].as_str() {
            return Ok(Err(why.to_owned()));
        }
        let length = head["bytes"].as_u64().ok_or(ErrorKind::InvalidData)?;
        let is_kept = usize::try_from(length).is_ok_and(|length| length <= most);
        let (mut left, mut document) = (length, Vec::new());
        while left > 0 {
            if self.bytes.is_empty() && self.receive(stream)? == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            let here = self.bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            let piece = self.bytes.drain(..here);
            if is_kept {
                document.extend(piece);
            }
            left -= here as u64;
        }
        Ok(if is_kept { Ok(document) } else { Err(format!("its {length} bytes are more than {most}")) })
    }

    fn receive(&mut self, stream: &UnixStream) -> io::Result<usize> {
        let mut bytes = [0; 4096];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(AT_ONCE))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut slices = [IoSliceMut::new(&mut bytes)];
        let received = rustix::io::retry_on_intr(|| {
            rustix::net::recvmsg(stream, &mut slices, &mut control, RecvFlags::CMSG_CLOEXEC)
        })?;
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(sockets) = message {
                self.sockets.extend(sockets);
            }
        }
        self.bytes.extend_from_slice(&bytes[..received.bytes]);
        Ok(received.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::net::TcpListener;

    #[test]
    fn given_sockets_and_lines_when_sent_then_all_come_in_order_and_the_end_is_told() {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        let sent: Vec<_> = (0..70).map(|_| TcpListener::bind("127.0.0.1:0").expect("a port")).collect();
        send_sockets(&ours, &sent).expect("sent");
        send(&ours, &json!({ "a": 1 })).expect("sent");
        send(&ours, &json!("ready")).expect("sent");
        drop(ours);
        let mut inbox = Inbox::default();
        assert_eq!(inbox.line(&theirs).expect("a line"), json!({ "a": 1 }));
        assert_eq!(inbox.line(&theirs).expect("a line"), json!("ready"));
        assert_eq!(inbox.line(&theirs).expect_err("the end").kind(), ErrorKind::UnexpectedEof);
        let address = |socket: TcpListener| socket.local_addr().expect("bound");
        let came: Vec<_> = inbox.sockets.into_iter().map(|socket| address(socket.into())).collect();
        assert_eq!(came, sent.into_iter().map(address).collect::<Vec<_>>());
    }

    #[test]
    fn given_a_document_when_sent_then_it_comes_whole_or_is_passed_over_and_what_follows_is_found() {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        let long = vec![b'\n'; 100_000];
        let sent = long.clone();
        let sender = std::thread::spawn(move || {
            for document in [&sent[..], &sent[..], b"", &sent[..7]] {
                send_document(&ours, document).expect("sent");
            }
            send(&ours, &json!({ "refused": "no" })).expect("sent");
            send(&ours, &json!("yours")).expect("sent");
            send(&ours, &json!({ "bytes": 3 })).expect("sent");
        });
        let mut inbox = Inbox::default();
        let mut next = |most| inbox.document(&theirs, most);
        assert_eq!(next(100_000).expect("a document"), Ok(long));
        assert_eq!(next(99_999).expect("an answer"), Err("its 100000 bytes are more than 99999".to_owned()));
        assert_eq!((next(0).expect("a document"), next(7).expect("a document")), (Ok(vec![]), Ok(vec![b'\n'; 7])));
        assert_eq!(next(7).expect("an answer"), Err("no".to_owned()));
        assert_eq!(next(7).expect_err("neither").kind(), ErrorKind::InvalidData);
        assert_eq!(next(7).expect_err("the end").kind(), ErrorKind::UnexpectedEof);
        sender.join().expect("all was sent");
    }

    #[test]
    fn given_nonsense_when_read_then_an_error_and_a_line_without_end_is_not_kept() {
        let (mut ours, theirs) = UnixStream::pair().expect("a pair");
        ours.write_all(b"no json\n").expect("sent");
        assert_eq!(Inbox::default().line(&theirs).expect_err("nonsense").kind(), ErrorKind::InvalidData);
        let flood = std::thread::spawn(move || drop(ours.write_all(&vec![b'x'; 2 * MOST_LINE])));
        assert_eq!(Inbox::default().line(&theirs).expect_err("a flood").kind(), ErrorKind::InvalidData);
        drop(theirs);
        flood.join().expect("it ends");
    }
}
