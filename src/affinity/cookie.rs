//! A cookie as the place of a key: found in whatever a client sends, and written in YARP's order and form. Names do not tell
//! capitals, the last of one name counts, quotes are part of a value, escapes are not. Each byte is looked at once or twice.

use super::Answer;
use crate::config::{CookieAttributes, Located, SameSite, Section, Secure};
use crate::model::is_token;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use jiff::Timestamp;
use std::borrow::Cow;
use std::time::Duration;

pub struct Cookie {
    name: String,
    expiration: Option<Duration>,
    secure: Secure,
    /// What stands before `secure`, and what behind it.
    before: String,
    behind: String,
}

impl Cookie {
    /// With the attributes below `cookie`. A fault when the name cannot be a cookie's.
    pub fn read(params: &mut Section<'_>, name: &Located<String>) -> Self {
        if !is_token(name.value.as_bytes()) {
            params.problem(&name.at, "expected the name of a cookie: letters, digits and any of !#$%&'*+-.^_`|~");
        }
        let attributes = CookieAttributes::read(params);
        let written = |name: &str, value: Option<String>| value.map(|value| format!("; {name}={value}"));
        let max_age = written("max-age", attributes.max_age.map(|age| age.as_secs().to_string()));
        let before = [max_age, written("domain", attributes.domain), written("path", Some(attributes.path))];
        let same_site = match attributes.same_site {
            SameSite::Unspecified => "",
            SameSite::None => "; samesite=none",
            SameSite::Lax => "; samesite=lax",
            SameSite::Strict => "; samesite=strict",
        };
        let http_only = if attributes.http_only { "; httponly" } else { "" };
        Cookie {
            name: name.value.clone(),
            expiration: attributes.expiration,
            secure: attributes.secure,
            before: before.into_iter().flatten().collect(),
            behind: [same_site, http_only].concat(),
        }
    }

    /// What the request has in it; an empty one is none.
    pub fn value<'h>(&self, headers: &'h HeaderMap) -> Option<Cow<'h, [u8]>> {
        let own = pairs(headers).filter(|pair| self.is_own(pair));
        let value = own.last().and_then(|pair| pair.splitn(2, |&byte| byte == b'=').nth(1))?.trim_ascii();
        (!value.is_empty()).then(|| unescaped(value))
    }

    /// The field that sets it to `value`, which needs no escapes.
    pub fn set(&self, value: &str, answer: &Answer) -> Option<(HeaderName, HeaderValue)> {
        let expires = self.expiration.and_then(|expiration| date(answer, expiration));
        let expires = expires.map_or(String::new(), |date| format!("; expires={date}"));
        let secure = match self.secure {
            Secure::None => false,
            Secure::Always => true,
            Secure::SameAsRequest => answer.secure,
        };
        let secure = if secure { "; secure" } else { "" };
        let line = [&self.name, "=", value, &expires, &self.before, secure, &self.behind].concat();
        Some((header::SET_COOKIE, HeaderValue::try_from(line).ok()?))
    }

    /// The Cookie field without it, all fields in one.
    pub fn withhold(&self, headers: &HeaderMap) -> Option<(HeaderName, Option<HeaderValue>)> {
        if !pairs(headers).any(|pair| self.is_own(pair)) {
            return None;
        }
        let others: Vec<&[u8]> = pairs(headers).filter(|pair| !self.is_own(pair)).collect();
        let rest = (!others.is_empty()).then(|| HeaderValue::from_bytes(&others.join(&b"; "[..])).ok());
        Some((header::COOKIE, rest.flatten()))
    }

    fn is_own(&self, pair: &[u8]) -> bool {
        let name = pair.split(|&byte| byte == b'=').next().unwrap_or_default();
        name.len() < pair.len() && name.trim_ascii().eq_ignore_ascii_case(self.name.as_bytes())
    }
}

/// Of all Cookie fields, in their order, without the white space around; empty ones are left out.
fn pairs(headers: &HeaderMap) -> impl Iterator<Item = &[u8]> {
    let fields = headers.get_all(header::COOKIE).iter();
    let pairs = fields.flat_map(|field| field.as_bytes().split(|&byte| byte == b';'));
    pairs.map(<[u8]>::trim_ascii).filter(|pair| !pair.is_empty())
}

/// `%41` as A; what is no escape stays.
fn unescaped(value: &[u8]) -> Cow<'_, [u8]> {
    let hex = |digit: &u8| char::from(*digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    if !value.contains(&b'%') {
        return Cow::Borrowed(value);
    }
    let mut plain = Vec::with_capacity(value.len());
    let mut rest = value;
    while let [byte, after @ ..] = rest {
        let escaped = match rest {
            [b'%', high, low, ..] => hex(high).zip(hex(low)),
            _ => None,
        };
        plain.push(escaped.map_or(*byte, |(high, low)| high << 4 | low));
        rest = if escaped.is_some() { &rest[3..] } else { after };
    }
    Cow::Owned(plain)
}

/// As HTTP writes a time.
fn date(answer: &Answer, after: Duration) -> Option<String> {
    let at = Timestamp::try_from(answer.now.checked_add(after)?).ok()?;
    Some(at.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string())
}

#[cfg(test)]
mod tests {
    use super::super::testing::{faults, params};
    use super::*;
    use proptest::prelude::*;
    use std::time::{SystemTime, UNIX_EPOCH};

    fn cookie(attributes: &str) -> Cookie {
        params(&format!("{{ cookie: {attributes} }}"), |params, at| {
            Cookie::read(params, &Located { value: "K".into(), at: at.clone() })
        })
    }

    fn fields(fields: &[&[u8]]) -> HeaderMap {
        fields.iter().map(|field| (header::COOKIE, HeaderValue::from_bytes(field).expect("a value"))).collect()
    }

    fn found(headers: &HeaderMap) -> Option<Vec<u8>> {
        cookie("{}").value(headers).map(Cow::into_owned)
    }

    #[test]
    fn given_cookies_when_looked_through_then_the_last_of_the_name_in_any_letters_unescaped() {
        for (sent, expected) in [
            (&[b"K=v" as &[u8]] as &[&[u8]], Some(b"v" as &[u8])),
            (&[b"a=b; k=1;  K = 2 ; c=d"], Some(b"2")),
            (&[b"K=1", b"a=b", b"k=2;"], Some(b"2")),
            (&[b"K=a%2Fb%20c=d"], Some(b"a/b c=d")),
            (&[b"K=%4", b"K=%zz%"], Some(b"%zz%")),
            (&[b"K=\"v\""], Some(b"\"v\"")),
            (&[b"K=\xff\xfe"], Some(b"\xff\xfe")),
            (&[b"K=1; K="], None),
            (&[b"K; =K; ;;; xK=1; Kx=2", b""], None),
            (&[], None),
        ] {
            assert_eq!(found(&fields(sent)).as_deref(), expected, "{sent:?}");
        }
    }

    #[test]
    fn given_attributes_when_written_then_in_yarps_order_and_form() {
        let now = UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        for (attributes, secure, expected) in [
            ("{}", true, "K=v; path=/; httponly"),
            ("{ same_site: Lax }", false, "K=v; path=/; samesite=lax; httponly"),
            ("{ secure: SameAsRequest }", false, "K=v; path=/; httponly"),
            ("{ secure: SameAsRequest }", true, "K=v; path=/; secure; httponly"),
            ("{ secure: Always, same_site: None }", false, "K=v; path=/; secure; samesite=none; httponly"),
            ("{ expiration: 1h, http_only: false }", false, "K=v; expires=Tue, 14 Nov 2023 23:13:20 GMT; path=/"),
            (
                "{ max_age: 90s, expiration: 24h, domain: d.my, path: /some, secure: Always, same_site: Strict }",
                false,
                "K=v; expires=Wed, 15 Nov 2023 22:13:20 GMT; max-age=90; domain=d.my; path=/some; secure; samesite=strict; httponly",
            ),
        ] {
            let (name, line) = cookie(attributes).set("v", &Answer { secure, now }).expect("a field");
            assert_eq!((name.as_str(), line.to_str().ok()), ("set-cookie", Some(expected)), "{attributes}");
        }
    }

    #[test]
    fn given_a_request_with_the_key_when_it_is_withheld_then_the_other_cookies_are_left() {
        for (sent, expected) in [
            (&[b"a=1; K=v; b=2" as &[u8]] as &[&[u8]], Some(Some(b"a=1; b=2" as &[u8]))),
            (&[b"k=v", b"a=1; K=w", b"b=2"], Some(Some(b"a=1; b=2"))),
            (&[b"K=v"], Some(None)),
            (&[b"K=; "], Some(None)),
            (&[b"a=1; xK=v; K"], None),
            (&[], None),
        ] {
            let left = cookie("{}").withhold(&fields(sent));
            let left = left.map(|(name, value)| (name, value.map(|value| value.as_bytes().to_vec())));
            let expected = expected.map(|rest| (header::COOKIE, rest.map(<[u8]>::to_vec)));
            assert_eq!(left, expected, "{sent:?}");
        }
    }

    #[test]
    fn given_a_name_that_no_cookie_has_when_built_then_a_fault_at_it() {
        let faults = faults(super::super::hash_cookie::ENTRY, "a b", "{}", &[]);
        assert!(faults.len() == 1 && faults[0].contains("expected the name of a cookie"), "{faults:?}");
    }

    /// More than any head may hold, of the worst that a client can send: were the cost not linear, this would not end.
    #[test]
    fn given_a_hostile_field_when_looked_through_then_at_a_cost_by_its_length() {
        const LENGTH: usize = 1024 * 1024;
        for (pattern, has_value) in [
            (b"K=%4;" as &[u8], true),
            (b"K=", true),
            (b"K=%41%", true),
            (b"K;", false),
            (b";", false),
            (b"= ;", false),
            (b" \t", false),
            (b"\xff\"=\\;", false),
        ] {
            let headers = fields(&[&pattern.iter().copied().cycle().take(LENGTH).collect::<Vec<u8>>()]);
            let cookie = cookie("{}");
            assert_eq!(cookie.value(&headers).is_some(), has_value, "{pattern:?}");
            assert_eq!(cookie.withhold(&headers).is_some(), has_value, "{pattern:?}");
        }
    }

    proptest! {
        #[test]
        fn given_any_bytes_when_looked_through_then_a_value_or_none_and_nothing_of_it_is_left(
            sent in prop::collection::vec(prop::collection::vec(prop::sample::select(b"kK=; \t\xff%42,\"x".to_vec()), 0..60), 0..4)
        ) {
            let sent: Vec<&[u8]> = sent.iter().map(Vec::as_slice).collect();
            let (cookie, headers) = (cookie("{}"), fields(&sent));
            let value = cookie.value(&headers);
            if value.is_some() {
                prop_assert!(cookie.withhold(&headers).is_some());
            }
            if let Some((name, rest)) = cookie.withhold(&headers) {
                let left: HeaderMap = rest.into_iter().map(|rest| (name.clone(), rest)).collect();
                prop_assert!(cookie.value(&left).is_none() && cookie.withhold(&left).is_none());
            }
        }

        #[test]
        fn given_any_value_when_escaped_by_another_then_it_is_read_as_it_was(value in "[ -~]{1,40}") {
            let escaped: String = value.bytes().map(|byte| format!("%{byte:02X}")).collect();
            let pair = format!("K={escaped}");
            prop_assert_eq!(found(&fields(&[pair.as_bytes()])), Some(value.into_bytes()));
        }
    }

    #[test]
    fn given_a_clock_at_the_end_of_time_when_written_then_without_a_date() {
        let end = UNIX_EPOCH + Duration::from_secs(253_402_207_100);
        let line = cookie("{ expiration: 24h }").set("v", &Answer { secure: false, now: end });
        assert_eq!(line.map(|(_, line)| line), Some(HeaderValue::from_static("K=v; path=/; httponly")));
        assert!(SystemTime::now() < end);
    }
}
