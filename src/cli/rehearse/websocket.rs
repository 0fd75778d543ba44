//! WebSockets: a handshake, frames whose echoes must come, and a close. Some finish in time, some are held to the end.

use super::loss::Loss;
use super::wire::Wire;
use super::{Client, Rehearsal};
use crate::demo::websocket::{CLOSE, TEXT, accept_of, read_frame, write_frame};
use std::io;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufStream};
use tokio::time::{Instant, timeout_at};

/// RFC 6455's own.
const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
const FRAMES: u32 = 5;
const LONGEST_HEAD: usize = 64 << 10;

type Open = BufStream<Box<dyn Wire>>;

pub async fn ask(rehearsal: &Rehearsal, client: &mut Client) {
    while rehearsal.goes_on() {
        let begun = Instant::now();
        let talk = talk(rehearsal, client);
        let outcome = timeout_at(begun + rehearsal.timeout, talk).await.unwrap_or(Err(Loss::Timeout));
        rehearsal.ended(client, outcome, begun.elapsed()).await;
    }
}

/// One that is opened anew only when it was lost.
pub async fn hold(rehearsal: &Rehearsal, client: &mut Client) {
    // A thousand handshakes at once would measure how long a server takes for those.
    rehearsal.pause(Duration::from_millis(client.dice.u64(0..=3_000))).await;
    while rehearsal.goes_on() {
        let begun = Instant::now();
        let opened = timeout_at(begun + rehearsal.timeout, open(rehearsal, client)).await.unwrap_or(Err(Loss::Timeout));
        let mut stream = match opened {
            Ok(stream) => stream,
            Err(loss) => {
                rehearsal.ended(client, Err(loss), begun.elapsed()).await;
                continue;
            }
        };
        loop {
            rehearsal.pause(Duration::from_millis(client.dice.u64(500..=1_000))).await;
            if !rehearsal.goes_on() {
                return;
            }
            let (begun, mask) = (Instant::now(), client.dice.u32(..));
            let echoed = timeout_at(begun + rehearsal.timeout, echoed(&mut stream, "still there?", mask)).await;
            let echoed = echoed.unwrap_or(Err(Loss::Timeout));
            rehearsal.ended(client, echoed, begun.elapsed()).await;
            if echoed.is_err() {
                break;
            }
        }
    }
}

async fn talk(rehearsal: &Rehearsal, client: &mut Client) -> Result<(), Loss> {
    let mut stream = open(rehearsal, client).await?;
    for at in 0..FRAMES {
        echoed(&mut stream, &format!("frame {at} of {FRAMES}"), client.dice.u32(..)).await?;
        tokio::time::sleep(Duration::from_millis(client.dice.u64(10..=150))).await;
    }
    write_frame(&mut stream, CLOSE, &[], Some([0; 4])).await.map_err(cut)?;
    match read_frame(&mut stream).await.map_err(cut)?.opcode {
        CLOSE => Ok(()),
        _ => Err(Loss::Protocol),
    }
}

async fn echoed(stream: &mut Open, words: &str, mask: u32) -> Result<(), Loss> {
    write_frame(stream, TEXT, words.as_bytes(), Some(mask.to_be_bytes())).await.map_err(cut)?;
    match read_frame(stream).await.map_err(cut)?.payload == words.as_bytes() {
        true => Ok(()),
        false => Err(Loss::Protocol),
    }
}

async fn open(rehearsal: &Rehearsal, client: &mut Client) -> Result<Open, Loss> {
    let mut stream = BufStream::new(client.server.connect(&mut client.from).await?);
    rehearsal.count(client.kind, |count| count.connections += 1);
    let (authority, path) = client.server.target.parts();
    let host = authority.to_str().map_err(|_| Loss::Local)?;
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {KEY}\r\n\r\n"
    );
    let fresh = |fault: io::Error| Loss::of_io(&fault, false);
    stream.write_all(request.as_bytes()).await.map_err(fresh)?;
    stream.flush().await.map_err(fresh)?;
    let head = head(&mut stream).await.map_err(fresh)?;
    match status(&head) {
        Some(101) if head.contains(&accept_of(KEY)) => Ok(stream),
        Some(101) | None => Err(Loss::Protocol),
        Some(status) => Err(Loss::Status(status)),
    }
}

fn cut(_: io::Error) -> Loss {
    Loss::Truncated
}

async fn head(stream: &mut (impl AsyncBufReadExt + Unpin)) -> io::Result<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if stream.read_until(b'\n', &mut head).await? == 0 || head.len() > LONGEST_HEAD {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(String::from_utf8_lossy(&head).into_owned())
}

fn status(head: &str) -> Option<u16> {
    head.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()
}
