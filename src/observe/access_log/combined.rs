//! `client - - [30/Nov/2026:01:15:00 +0000] "GET /books HTTP/1.1" 200 2326 "referer" "user agent"`: no user is known here,
//! and `-` stands for what is not there, a body without bytes too.

use super::{Entry, protocol, push_escaped, timestamp};
use std::io::Write;
use std::time::SystemTime;

pub(super) fn write(entry: &Entry<'_>, line: &mut Vec<u8>) {
    match entry.client {
        Some(client) => drop(write!(line, "{client}")),
        None => line.push(b'-'),
    }
    let _ = write!(line, " - - [{}] \"", clf(entry.time));
    push_escaped(entry.method.as_bytes(), line);
    line.push(b' ');
    push_escaped(entry.path, line);
    let _ = write!(line, " {}\" {} ", protocol(entry.protocol), entry.status);
    match entry.bytes_out {
        0 => line.push(b'-'),
        bytes => drop(write!(line, "{bytes}")),
    }
    for field in [entry.referer, entry.user_agent] {
        line.extend(b" \"");
        push_escaped(field.unwrap_or(b"-"), line);
        line.push(b'"');
    }
}

/// In UTC.
fn clf(time: SystemTime) -> impl std::fmt::Display {
    timestamp(time).strftime("%d/%b/%Y:%H:%M:%S +0000").to_string()
}

#[cfg(test)]
mod tests {
    use super::super::tests::entry;
    use super::*;

    fn written(entry: &Entry<'_>) -> String {
        let mut line = Vec::new();
        write(entry, &mut line);
        String::from_utf8(line).expect("ASCII")
    }

    #[test]
    fn given_a_request_when_written_then_as_ncsa_has_it() {
        let expected =
            r#"127.0.0.1 - - [30/Nov/2026:01:15:00 +0000] "GET /api/v1/books?q=1 HTTP/1.1" 200 2326 "-" "curl/8""#;
        assert_eq!(written(&entry()), expected);
    }

    #[test]
    fn given_quotes_and_controls_when_written_then_no_field_ends_early() {
        let forged = Entry {
            path: b"/\" 200 1\n127.0.0.2 \\",
            user_agent: Some("é".as_bytes()),
            client: None,
            bytes_out: 0,
            ..entry()
        };
        let expected =
            r#"- - - [30/Nov/2026:01:15:00 +0000] "GET /\x22 200 1\x0A127.0.0.2 \x5C HTTP/1.1" 200 - "-" "\xC3\xA9""#;
        assert_eq!(written(&forged), expected);
    }
}
