//! The head of a copy while it waits for its connection: its text, and where that is cut. As a request's it would be maps of
//! several KiB, and its fields pieces of what was read of the client's connection, 4 KiB and more; who keeps one keeps it all.

use bytes::Bytes;
use http::{Method, Version};
use pingora::Result;
use pingora::http::{HeaderNameVariant, RequestHeader, header_value_from_raw};

pub struct Head {
    method: Method,
    version: Version,
    target: Box<[u8]>,
    /// Names and values without anything between them.
    text: Bytes,
    fields: Box<[Field]>,
}

/// The lengths of one.
struct Field {
    name: usize,
    value: usize,
    sensitive: bool,
}

impl Head {
    /// # Errors
    /// None of its own.
    pub fn of(request: &RequestHeader) -> Result<Head> {
        let (mut text, mut fields) = (Vec::new(), Vec::with_capacity(request.headers.len()));
        request.map(|name, value| {
            let name = match &name {
                HeaderNameVariant::Case(name) => name.as_slice(),
                HeaderNameVariant::Titled(name) => name.as_bytes(),
            };
            text.extend_from_slice(name);
            text.extend_from_slice(value.as_bytes());
            fields.push(Field { name: name.len(), value: value.len(), sensitive: value.is_sensitive() });
            Ok(())
        })?;
        Ok(Head {
            method: request.method.clone(),
            version: request.version,
            target: request.raw_path().into(),
            text: text.into_boxed_slice().into(),
            fields: fields.into_boxed_slice(),
        })
    }

    /// The same as a request. HTTP/2 has no use for the case of its names.
    ///
    /// # Errors
    /// None that those of the request would not have had.
    pub fn request(mut self, with_case: bool) -> Result<Box<RequestHeader>> {
        let build = if with_case { RequestHeader::build } else { RequestHeader::build_no_case };
        let mut request = build(self.method, &self.target, Some(self.fields.len()))?;
        request.set_version(self.version);
        for field in &self.fields {
            let name = self.text.split_to(field.name);
            let mut value = header_value_from_raw(self.text.split_to(field.value));
            value.set_sensitive(field.sensitive);
            request.append_header(name, value)?;
        }
        Ok(Box::new(request))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn given_fields_that_are_pieces_of_what_was_read_when_a_head_waits_then_it_stays_the_same_and_keeps_none_of_that() {
        let read: Arc<[u8]> = Arc::from(&b"X-oNe: one\r\nX-Two: two\xff\r\nX-oNe: three\r\n"[..]);
        let held = Bytes::from_owner(read.clone());
        let mut request = RequestHeader::build(Method::POST, b"/a?b=\xff", None).expect("a head");
        request.set_version(Version::HTTP_10);
        for (name, value) in [(0..5, 7..10), (12..17, 19..23), (25..30, 32..37)] {
            request.append_header(held.slice(name), header_value_from_raw(held.slice(value))).expect("a field");
        }
        let waits = Head::of(&request).expect("a head");
        let wire = |request: &RequestHeader| {
            let mut wire = Vec::new();
            request.header_to_h1_wire(&mut wire);
            (request.method.clone(), request.raw_path().to_vec(), request.version, wire)
        };
        let before = wire(&request);
        assert!(before.3.starts_with(b"X-oNe: one\r\nX-oNe: three\r\n"));
        drop((held, request));
        assert_eq!(Arc::strong_count(&read), 1);
        assert_eq!(wire(&waits.request(true).expect("a request")), before);
    }

    #[test]
    fn given_a_secret_when_it_waited_then_it_is_one_still() {
        let mut request = RequestHeader::build_no_case(Method::GET, b"/", None).expect("a head");
        let mut secret = http::HeaderValue::from_static("x");
        secret.set_sensitive(true);
        request.append_header("cookie", secret).expect("a field");
        request.append_header("accept", "*/*").expect("a field");
        let waited = Head::of(&request).and_then(|head| head.request(false)).expect("a request");
        assert!(waited.headers["cookie"].is_sensitive() && !waited.headers["accept"].is_sensitive());
        assert!(!waited.has_case());
    }
}
