//! Which clients a rehearsal has, and how many of each.

use std::fmt;
use std::str::FromStr;

/// How a client uses its connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A kept connection of HTTP/1.1, the next request at once.
    Reuse,
    /// A kept connection of HTTP/1.1, the next request after 50 to 500 ms.
    Think,
    /// A connection for each request, which comes up to 40 ms after it.
    Fresh,
    /// Streams of one connection of HTTP/2.
    Http2,
    /// POSTs on a kept connection of HTTP/1.1.
    Post,
    /// A WebSocket: some frames and their echoes, then the close.
    WebSocket,
    /// A WebSocket that stays open until the end: a frame and its echo after 500 to 1000 ms, each a request.
    Held,
}

impl Kind {
    pub const ALL: [Kind; 7] =
        [Kind::Reuse, Kind::Think, Kind::Fresh, Kind::Http2, Kind::Post, Kind::WebSocket, Kind::Held];

    pub fn name(self) -> &'static str {
        match self {
            Kind::Reuse => "reuse",
            Kind::Think => "think",
            Kind::Fresh => "fresh",
            Kind::Http2 => "h2",
            Kind::Post => "post",
            Kind::WebSocket => "websocket",
            Kind::Held => "held",
        }
    }
}

/// Clients of each kind, for each address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mix([u32; Kind::ALL.len()]);

const MOST: u32 = 1_000;

impl Mix {
    /// Kinds that are there, and their clients.
    pub fn iter(&self) -> impl Iterator<Item = (Kind, u32)> {
        Kind::ALL.into_iter().zip(self.0).filter(|(_, clients)| *clients > 0)
    }
}

impl FromStr for Mix {
    type Err = String;

    /// `reuse=8,think=24`; kinds that are not named have none.
    fn from_str(text: &str) -> Result<Mix, String> {
        let names = Kind::ALL.map(Kind::name).join(", ");
        let mut mix = Mix([0; Kind::ALL.len()]);
        for part in text.split(',') {
            let (name, clients) = part.split_once('=').ok_or_else(|| format!("expected KIND=CLIENTS, not {part:?}"))?;
            let at = Kind::ALL.iter().position(|kind| kind.name() == name);
            let at = at.ok_or_else(|| format!("unknown kind {name:?}; one of: {names}"))?;
            let clients = clients.parse().ok().filter(|clients| *clients <= MOST);
            mix.0[at] = clients.ok_or_else(|| format!("{name} has from 0 to {MOST} clients"))?;
        }
        match mix.0.iter().any(|clients| *clients > 0) {
            true => Ok(mix),
            false => Err("nobody is left to ask anything".to_owned()),
        }
    }
}

impl fmt::Display for Mix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<_> = self.iter().map(|(kind, clients)| format!("{}={clients}", kind.name())).collect();
        f.write_str(&parts.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_kinds_and_their_clients_when_read_then_the_others_have_none() {
        let mix: Mix = "think=24,h2=8,reuse=0".parse().unwrap();
        assert_eq!(mix.iter().collect::<Vec<_>>(), [(Kind::Think, 24), (Kind::Http2, 8)]);
        assert_eq!(mix.to_string(), "think=24,h2=8");
    }

    #[test]
    fn given_anything_else_when_read_then_it_is_refused_with_what_there_is() {
        for (text, told) in [
            ("", "KIND=CLIENTS"),
            ("think", "KIND=CLIENTS"),
            ("http3=1", "one of: reuse, think, fresh, h2, post, websocket, held"),
            ("think=x", "from 0 to 1000"),
            ("think=1001", "from 0 to 1000"),
            ("think=0", "nobody"),
        ] {
            assert!(text.parse::<Mix>().unwrap_err().contains(told), "{text}");
        }
    }
}
