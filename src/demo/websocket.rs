//! As much of RFC 6455 as an echo needs: the handshake, and whole frames of at most 64 KiB.

use super::answer::{Answer, Upgrade};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{CONNECTION, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, UPGRADE};
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use std::io;
use std::sync::PoisonError;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

pub(crate) const TEXT: u8 = 1;
const BINARY: u8 = 2;
pub(crate) const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;
const FIN: u8 = 0x80;

pub(crate) struct Frame {
    pub opcode: u8,
    pub payload: Vec<u8>,
}

/// What a server answers to a client's key.
pub(crate) fn accept_of(key: &str) -> String {
    let text = format!("{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
    STANDARD.encode(digest(&SHA1_FOR_LEGACY_USE_ONLY, text.as_bytes()))
}

/// The 101, where that is asked for.
pub(super) fn agree<B>(request: &mut Request<B>, upgrade: &Upgrade) -> Option<Answer> {
    let asks = request.headers().get(UPGRADE)?.to_str().ok()?.eq_ignore_ascii_case("websocket");
    let key = request.headers().get(SEC_WEBSOCKET_KEY).filter(|_| asks)?.to_str().ok()?;
    let accept = HeaderValue::from_str(&accept_of(key)).ok()?;
    let mut answer = Response::new(Full::<Bytes>::default());
    *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("upgrade"));
    answer.headers_mut().insert(UPGRADE, HeaderValue::from_static("websocket"));
    answer.headers_mut().insert(SEC_WEBSOCKET_ACCEPT, accept);
    *upgrade.lock().unwrap_or_else(PoisonError::into_inner) = Some(hyper::upgrade::on(request));
    Some(answer)
}

/// Gives every frame back until the client closes.
pub(super) async fn echo(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> io::Result<()> {
    loop {
        let Frame { opcode, payload } = read_frame(&mut stream).await?;
        let opcode = if opcode == PING { PONG } else { opcode };
        if matches!(opcode, TEXT | BINARY | PONG | CLOSE) {
            write_frame(&mut stream, opcode, &payload, None).await?;
        }
        if opcode == CLOSE {
            return stream.shutdown().await;
        }
    }
}

/// One whole frame, unmasked.
pub(crate) async fn read_frame(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Frame> {
    let [first, second] = read_array(stream).await?;
    let length = match second & 0x7f {
        126 => usize::from(u16::from_be_bytes(read_array(stream).await?)),
        127 => return Err(io::Error::new(io::ErrorKind::InvalidData, "a frame of more than 64 KiB")),
        short => usize::from(short),
    };
    let mask: [u8; 4] = if second & 0x80 == 0 { [0; 4] } else { read_array(stream).await? };
    let mut payload = vec![0; length];
    stream.read_exact(&mut payload).await?;
    payload.iter_mut().zip(mask.iter().cycle()).for_each(|(byte, mask)| *byte ^= mask);
    Ok(Frame { opcode: first & 0x0f, payload })
}

/// `mask`: a client's frames have one.
pub(crate) async fn write_frame(
    stream: &mut (impl AsyncWrite + Unpin),
    opcode: u8,
    payload: &[u8],
    mask: Option<[u8; 4]>,
) -> io::Result<()> {
    let masked = if mask.is_some() { 0x80 } else { 0 };
    let long = u16::try_from(payload.len()).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    let mut frame = vec![FIN | opcode];
    match u8::try_from(long) {
        Ok(short @ 0..=125) => frame.push(masked | short),
        _ => {
            frame.push(masked | 126);
            frame.extend(long.to_be_bytes());
        }
    }
    frame.extend(mask.iter().flatten());
    frame.extend(payload.iter().zip(mask.unwrap_or_default().iter().cycle()).map(|(byte, mask)| byte ^ mask));
    stream.write_all(&frame).await?;
    stream.flush().await
}

async fn read_array<const N: usize>(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes).await?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_the_key_of_the_rfc_when_answered_then_it_is_the_answer_of_the_rfc() {
        assert_eq!(accept_of("dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }

    #[tokio::test]
    async fn given_frames_of_any_length_when_sent_then_the_echo_is_the_same_unmasked() {
        let (mut client, server) = tokio::io::duplex(1 << 20);
        let echo = tokio::spawn(echo(server));
        for length in [0, 1, 125, 126, 127, 65_535] {
            let sent: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
            write_frame(&mut client, BINARY, &sent, Some([7, 0, 200, 1])).await.unwrap();
            let frame = read_frame(&mut client).await.unwrap();
            assert!(frame.opcode == BINARY && frame.payload == sent, "{length}");
        }
        write_frame(&mut client, PING, b"there?", Some([1; 4])).await.unwrap();
        assert_eq!(read_frame(&mut client).await.unwrap().opcode, PONG);
        write_frame(&mut client, CLOSE, &[], Some([1; 4])).await.unwrap();
        assert_eq!(read_frame(&mut client).await.unwrap().opcode, CLOSE);
        echo.await.unwrap().unwrap();
        assert!(write_frame(&mut client, TEXT, &[0; 65_536], None).await.is_err());
    }
}
