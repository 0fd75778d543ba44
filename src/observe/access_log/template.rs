//! A line of the operator's own: text with `{fields}` of a closed set; `{{` and `}}` are braces.

use super::{Ended, Entry, millis, protocol, push_escaped, rfc3339};
use std::io::Write;

/// What [`Template::parse`] understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template(Vec<Piece>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    Field(Field),
}

/// Why a text is no template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault<'t> {
    /// A field outside [`Template::FIELDS`].
    Unknown(&'t str),
    /// A brace without its partner.
    Open,
    /// A control character: a line is one line.
    Control,
}

/// Writes the fields once, so that names and meanings cannot disagree.
macro_rules! fields {
    ($($field:ident $name:literal)*) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        enum Field { $($field),* }

        impl Template {
            /// The fields there are: the keys of a JSON line, and `destination`, the last one tried.
            pub const FIELDS: &[&str] = &[$($name),*];
        }

        const ALL: &[Field] = &[$(Field::$field),*];
    };
}

fields! {
    Time "time"
    Server "server"
    Listener "listener"
    Client "client"
    Method "method"
    Host "host"
    Path "path"
    Protocol "protocol"
    Status "status"
    BytesIn "bytes_in"
    BytesOut "bytes_out"
    DurationMs "duration_ms"
    Route "route"
    Cluster "cluster"
    RequestId "request_id"
    UserAgent "user_agent"
    Referer "referer"
    Attempts "attempts"
    Destination "destination"
    Affinity "affinity"
    Failed "failed"
}

impl Template {
    /// # Errors
    /// The first [`Fault`].
    pub fn parse(text: &str) -> Result<Template, Fault<'_>> {
        if text.contains(char::is_control) {
            return Err(Fault::Control);
        }
        let mut pieces = Vec::new();
        let mut literal = String::new();
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            literal.push_str(&rest[..at]);
            rest = &rest[at..];
            if let Some(brace) = ["{{", "}}"].into_iter().find(|doubled| rest.starts_with(doubled)) {
                literal.push_str(&brace[1..]);
                rest = &rest[2..];
                continue;
            }
            let (name, after) = rest.strip_prefix('{').and_then(|rest| rest.split_once('}')).ok_or(Fault::Open)?;
            let known = Self::FIELDS.iter().position(|field| *field == name).ok_or(Fault::Unknown(name))?;
            pieces.push(Piece::Text(std::mem::take(&mut literal)));
            pieces.push(Piece::Field(ALL[known]));
            rest = after;
        }
        literal.push_str(rest);
        pieces.push(Piece::Text(literal));
        pieces.retain(|piece| *piece != Piece::Text(String::new()));
        Ok(Template(pieces))
    }

    pub(super) fn write(&self, entry: &Entry<'_>, line: &mut Vec<u8>) {
        for piece in &self.0 {
            match piece {
                Piece::Text(text) => line.extend(text.as_bytes()),
                Piece::Field(field) => field.write(entry, line),
            }
        }
    }
}

impl Field {
    /// `-` where there is none.
    fn write(self, entry: &Entry<'_>, line: &mut Vec<u8>) {
        let before = line.len();
        match self {
            Field::Time => line.extend(rfc3339(entry.time).as_bytes()),
            Field::Server => push_escaped(entry.server.as_bytes(), line),
            Field::Listener => push_escaped(entry.listener.as_bytes(), line),
            Field::Client => drop(entry.client.map(|client| write!(line, "{client}"))),
            Field::Method => push_escaped(entry.method.as_bytes(), line),
            Field::Host => push_escaped(entry.host.unwrap_or_default(), line),
            Field::Path => push_escaped(entry.path, line),
            Field::Protocol => line.extend(protocol(entry.protocol).as_bytes()),
            Field::Status => drop(write!(line, "{}", entry.status)),
            Field::BytesIn => drop(write!(line, "{}", entry.bytes_in)),
            Field::BytesOut => drop(write!(line, "{}", entry.bytes_out)),
            Field::DurationMs => drop(write!(line, "{:.3}", millis(entry.duration))),
            Field::Route => push_escaped(entry.route.unwrap_or_default().as_bytes(), line),
            Field::Cluster => push_escaped(entry.cluster.unwrap_or_default().as_bytes(), line),
            Field::RequestId => push_escaped(entry.request_id, line),
            Field::UserAgent => push_escaped(entry.user_agent.unwrap_or_default(), line),
            Field::Referer => push_escaped(entry.referer.unwrap_or_default(), line),
            Field::Attempts => attempts(entry, line),
            Field::Destination => {
                let last = entry.attempts.last().map_or("", |attempt| attempt.destination);
                push_escaped(last.as_bytes(), line);
            }
            Field::Affinity => line.extend(entry.affinity.unwrap_or_default().as_bytes()),
            Field::Failed => line.extend(entry.failed.unwrap_or_default().as_bytes()),
        }
        if line.len() == before {
            line.push(b'-');
        }
    }
}

/// `catalog-1=refused,catalog-2=200`
fn attempts(entry: &Entry<'_>, line: &mut Vec<u8>) {
    for (index, attempt) in entry.attempts.iter().enumerate() {
        if index > 0 {
            line.push(b',');
        }
        push_escaped(attempt.destination.as_bytes(), line);
        let _ = match attempt.outcome {
            Ended::Status(status) => write!(line, "={status}"),
            Ended::Word(word) => write!(line, "={word}"),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::entry;
    use super::*;

    fn written(template: &str, entry: &Entry<'_>) -> String {
        let mut line = Vec::new();
        Template::parse(template).expect("a template").write(entry, &mut line);
        String::from_utf8(line).expect("UTF-8")
    }

    #[test]
    fn given_every_field_when_written_then_its_value() {
        let all: String = Template::FIELDS.iter().map(|field| format!("{field}={{{field}}}|")).collect();
        let expected = "time=2026-11-30T01:15:00.123Z|server=gw-1|listener=web|client=127.0.0.1|method=GET|\
                        host=shop.example.com|path=/api/v1/books?q=1|protocol=HTTP/1.1|status=200|bytes_in=0|\
                        bytes_out=2326|duration_ms=12.345|route=books|cluster=catalog|request_id=0123|user_agent=curl/8|\
                        referer=-|attempts=catalog-1=refused,catalog-2=200|destination=catalog-2|affinity=-|failed=-|";
        assert_eq!(written(&all, &entry()), expected);
    }

    #[test]
    fn given_nothing_known_when_written_then_dashes() {
        let none = Entry { client: None, host: None, route: None, cluster: None, attempts: Vec::new(), ..entry() };
        let template = "{client}{host}{route}{cluster}{attempts}{destination}";
        assert_eq!(written(template, &none), "------");
    }

    #[test]
    fn given_braces_when_doubled_then_they_are_text() {
        assert_eq!(written("{{\"s\":{status}}} é", &entry()), "{\"s\":200} é");
    }

    #[test]
    fn given_what_is_no_template_when_parsed_then_why() {
        for (text, fault) in [
            ("{stat}", Fault::Unknown("stat")),
            ("{}", Fault::Unknown("")),
            ("{status", Fault::Open),
            ("status}", Fault::Open),
            ("{status}\n", Fault::Control),
        ] {
            assert_eq!(Template::parse(text), Err(fault), "{text}");
        }
    }
}
