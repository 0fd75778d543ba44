//! The process before, seen by the one that shall take its place.

use super::wire::{self, Inbox};
use super::{MOST_HEALTH, READY_WITHIN, seat};
use serde_json::{Value, json};
use std::io::{self, Read};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// The predecessor answers at once, or is not well.
const ANSWERS_WITHIN: Duration = Duration::from_secs(10);
/// When it is lost, the one before it listens again in a moment, if that could still come back.
const BACK_WITHIN: Duration = Duration::from_millis(500);
const LOOK: Duration = Duration::from_millis(20);

pub struct Predecessor {
    path: PathBuf,
    stream: UnixStream,
    inbox: Inbox,
    pid: u32,
    /// It hands over what it knows of health.
    tells_health: bool,
}

/// Its listening sockets, by their addresses.
pub type Handed = Vec<(SocketAddr, TcpListener)>;

/// What it says to `ready`.
#[derive(Debug)]
pub enum Verdict {
    /// By whom. It and those before it listen to what is said to them until they have closed their own listeners.
    Yours(u32, seat::Before),
    /// It has gone meanwhile; nobody else is there.
    Gone,
    /// It goes on itself.
    Kept(String),
}

impl Predecessor {
    /// Asks the process at `path` for its sockets.
    ///
    /// # Errors
    /// In words: nobody is there, or it refuses.
    pub fn ask(path: &Path) -> Result<(Self, Handed), String> {
        let told = |error: io::Error| error.to_string();
        let stream = UnixStream::connect(path).map_err(told)?;
        stream.set_read_timeout(Some(ANSWERS_WITHIN)).map_err(told)?;
        wire::send(&stream, &json!({ "derbent": 1, "pid": std::process::id(), "inherits": true })).map_err(told)?;
        let mut inbox = Inbox::default();
        let answer = inbox.line(&stream).map_err(told)?;
        if let Some(why) = answer["refused"].as_str() {
            return Err(why.to_owned());
        }
        let pid = answer["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok()).unwrap_or_default();
        let addresses = answer["listeners"].as_array().map_or(&[][..], Vec::as_slice);
        let sockets = std::mem::take(&mut inbox.sockets);
        if addresses.len() != sockets.len() {
            return Err(format!("{} addresses came with {} sockets", addresses.len(), sockets.len()));
        }
        let handed = addresses.iter().zip(sockets).map(|(address, socket)| {
            let address = address.as_str().and_then(|address| address.parse().ok());
            Some((address?, TcpListener::from(socket)))
        });
        let handed: Option<Handed> = handed.collect();
        let tells_health = answer["health"] == json!(true);
        Ok((
            Predecessor { path: path.to_owned(), stream, inbox, pid, tells_health },
            handed.ok_or("an address that is none")?,
        ))
    }

    /// What it knows of health, as it writes it.
    ///
    /// # Errors
    /// In words: why there is nothing. It is there as before.
    pub fn health(&mut self) -> Result<Vec<u8>, String> {
        if !self.tells_health {
            return Err("it knows of no such thing".to_owned());
        }
        let _ = self.stream.set_read_timeout(Some(READY_WITHIN));
        let asked = wire::send(&self.stream, &json!("health"));
        let answer = asked.and_then(|()| self.inbox.document(&self.stream, MOST_HEALTH));
        answer.map_err(|error| error.to_string())?
    }

    /// Says that this process serves, and waits for what becomes of that. Where the one it asked is gone, whoever has its place by
    /// now hears it: two would serve for good otherwise.
    pub fn ready(self) -> Verdict {
        let path = self.path.clone();
        let mut verdict = self.say_ready();
        let deadline = Instant::now() + BACK_WITHIN;
        while matches!(verdict, Verdict::Gone) && Instant::now() < deadline {
            match Predecessor::ask(&path) {
                Ok((other, _)) => verdict = other.say_ready(),
                // Nobody is there, or it is not back yet.
                Err(_) => std::thread::sleep(LOOK),
            }
        }
        verdict
    }

    fn say_ready(mut self) -> Verdict {
        let _ = self.stream.set_read_timeout(Some(READY_WITHIN));
        let answer = wire::send(&self.stream, &json!("ready")).and_then(|()| self.inbox.line(&self.stream));
        match answer {
            Ok(Value::String(yours)) if yours == "yours" => {
                let inherited = std::mem::take(&mut self.inbox.sockets).into_iter().map(UnixStream::from);
                let before = inherited.chain([self.stream]).map(keep).collect();
                Verdict::Yours(self.pid, before)
            }
            Ok(other) => Verdict::Kept(other["refused"].as_str().unwrap_or("it said so").to_owned()),
            Err(_) => Verdict::Gone,
        }
    }
}

/// Who is at its other end looks whether this process is still there: it is kept until that looks no more.
fn keep(stream: UnixStream) -> Weak<UnixStream> {
    let stream = Arc::new(stream);
    let kept = Arc::downgrade(&stream);
    std::thread::spawn(move || {
        let _ = stream.set_read_timeout(None);
        let _ = (&*stream).read(&mut [0]);
    });
    kept
}
