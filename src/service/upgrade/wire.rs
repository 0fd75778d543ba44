//! Lines of JSON on a Unix socket, and sockets that come with them.

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
};
use serde_json::Value;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

/// Of one line: the addresses of a great many listeners.
const MOST_LINE: usize = 1 << 20;
/// Sockets that come at once; more come with the next message.
const AT_ONCE: usize = 32;
/// What carries sockets, for they come with bytes only.
const CARRIER: u8 = b'.';

pub fn send(mut stream: &UnixStream, line: &Value) -> io::Result<()> {
    stream.write_all(format!("{line}\n").as_bytes())
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
