//! Which HTTP a destination is spoken to in. The table that says it is [`HttpVersion::spoken`].

use super::Section;

/// `request.version` and `request.version_policy` of a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HttpVersion {
    /// Default [`Version::Http2`].
    pub version: Version,
    /// Default [`VersionPolicy::OrLower`].
    pub policy: VersionPolicy,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    Http10,
    Http11,
    Http2,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VersionPolicy {
    OrLower,
    Exact,
    OrHigher,
}

/// What goes over a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spoken {
    /// Requests say HTTP/1.0, and each has a connection of its own.
    Http10,
    Http11,
    /// HTTP/2 where ALPN agrees on it, else HTTP/1.1.
    Negotiated,
    /// HTTP/2 and nothing else; over cleartext by prior knowledge.
    Http2,
}

impl Spoken {
    /// The highest major version, and the lowest.
    pub fn majors(self) -> (u8, u8) {
        match self {
            Spoken::Http10 | Spoken::Http11 => (1, 1),
            Spoken::Negotiated => (2, 1),
            Spoken::Http2 => (2, 2),
        }
    }
}

impl Version {
    /// As a file writes them.
    pub const WORDS: [(&str, Version); 3] = [("2", Version::Http2), ("1.1", Version::Http11), ("1.0", Version::Http10)];
}

impl VersionPolicy {
    const WORDS: [(&str, VersionPolicy); 3] =
        [("OrLower", VersionPolicy::OrLower), ("Exact", VersionPolicy::Exact), ("OrHigher", VersionPolicy::OrHigher)];
}

impl HttpVersion {
    pub(super) fn read(request: &mut Section<'_>) -> Self {
        HttpVersion {
            version: request.word("version", &Version::WORDS).unwrap_or(Version::Http2),
            policy: request.word("version_policy", &VersionPolicy::WORDS).unwrap_or(VersionPolicy::OrLower),
        }
    }

    /// This version and no other.
    pub fn exact(version: Version) -> Self {
        HttpVersion { version, policy: VersionPolicy::Exact }
    }

    /// YARP's table. Cleartext has nothing to negotiate by, so that OrLower is HTTP/1.1 there and HTTP/2 has to be asked for.
    pub fn spoken(self, tls: bool) -> Spoken {
        match (self.version, self.policy, tls) {
            (Version::Http2, VersionPolicy::OrLower, false) => Spoken::Http11,
            (Version::Http2, VersionPolicy::OrLower, true) => Spoken::Negotiated,
            (Version::Http2, VersionPolicy::Exact | VersionPolicy::OrHigher, _) => Spoken::Http2,
            (Version::Http11 | Version::Http10, VersionPolicy::OrHigher, true) => Spoken::Negotiated,
            (Version::Http11, ..) => Spoken::Http11,
            (Version::Http10, ..) => Spoken::Http10,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_a_version_and_a_policy_when_looked_up_then_it_is_yarps_row() {
        use Spoken::*;
        use VersionPolicy::*;
        for (version, policy, cleartext, tls) in [
            (Version::Http2, OrLower, Http11, Negotiated),
            (Version::Http2, Exact, Http2, Http2),
            (Version::Http2, OrHigher, Http2, Http2),
            (Version::Http11, OrLower, Http11, Http11),
            (Version::Http11, Exact, Http11, Http11),
            (Version::Http11, OrHigher, Http11, Negotiated),
            (Version::Http10, OrLower, Http10, Http10),
            (Version::Http10, Exact, Http10, Http10),
            (Version::Http10, OrHigher, Http10, Negotiated),
        ] {
            let asked = HttpVersion { version, policy };
            assert_eq!((asked.spoken(false), asked.spoken(true)), (cleartext, tls), "{asked:?}");
        }
    }
}
