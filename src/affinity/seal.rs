//! Keys that nobody can read or make but those who have the key file: an id under AES-256-GCM, each time with a key and thus a
//! text of its own, derived (HKDF-SHA-256) from one in the file and 16 random bytes that go along. So how many are made is
//! no matter, and one made for another key name does not open. The first key of the file seals, all of them open: a new one is
//! put behind the others, then, when every instance has it, before them; an old one goes when its sessions are over.
//!
//! The file is read when the policy is built; chance is the system's own, for no other would do.

use crate::config::{Located, Section, key_file, read_file};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD};
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, Prk};
use ring::rand::{SecureRandom, SystemRandom};

const PURPOSE: &[u8] = b"derbent session affinity 1";
/// Of a key in the file.
const KEY: usize = 32;
/// Keys in the file at most: each may have to be tried.
const MOST: usize = 8;
/// Goes along, and tells one sealed text's key from another's.
const SALT: usize = 16;
/// A longer text is none of ours.
const LONGEST: usize = 4096;

pub struct Seal {
    /// Of the cookie or header.
    name: String,
    keys: Vec<Prk>,
    random: SystemRandom,
}

impl Seal {
    /// By the keys of `key_file`. Faults when there is none, or it cannot be read or understood.
    pub fn read(params: &mut Section<'_>, name: &Located<String>) -> Self {
        let keys = match key_file(params) {
            None => Vec::new(),
            Some(file) => {
                let keys = read_file(&file.value).map_err(|error| format!("cannot read it: {error}"));
                keys.and_then(|bytes| keys_of(&bytes)).unwrap_or_else(|fault| {
                    params.problem(&file.at, format!("{}: {fault}", file.value.display()));
                    Vec::new()
                })
            }
        };
        let keys = keys.iter().map(|key| Prk::new_less_safe(HKDF_SHA256, key)).collect();
        Seal { name: name.value.to_ascii_lowercase(), keys, random: SystemRandom::new() }
    }

    /// Text of letters, digits, `-` and `_`; `None` when the system has no chance to offer.
    pub fn seal(&self, id: &str) -> Option<String> {
        let mut sealed = vec![0; SALT];
        self.random.fill(&mut sealed).ok()?;
        let key = self.derived(self.keys.first()?, &sealed)?;
        let mut text = id.as_bytes().to_vec();
        key.seal_in_place_append_tag(nonce(), Aad::empty(), &mut text).ok()?;
        sealed.append(&mut text);
        Some(URL_SAFE_NO_PAD.encode(sealed))
    }

    /// The id in it.
    pub fn open(&self, text: &[u8]) -> Option<Vec<u8>> {
        let sealed = (text.len() <= LONGEST).then(|| URL_SAFE_NO_PAD.decode(text).ok()).flatten()?;
        let (salt, sealed) = sealed.split_at_checked(SALT)?;
        self.keys.iter().find_map(|key| {
            let mut text = sealed.to_vec();
            let length = self.derived(key, salt)?.open_in_place(nonce(), Aad::empty(), &mut text).ok()?.len();
            text.truncate(length);
            Some(text)
        })
    }

    fn derived(&self, key: &Prk, salt: &[u8]) -> Option<LessSafeKey> {
        let info = [PURPOSE, salt, self.name.as_bytes()];
        Some(LessSafeKey::new(UnboundKey::from(key.expand(&info, &AES_256_GCM).ok()?)))
    }
}

/// A key that is used once needs no other.
fn nonce() -> Nonce {
    Nonce::assume_unique_for_key([0; 12])
}

/// One a line, as 64 hex digits or in Base64; empty lines and those that begin with `#` are passed over. What is wrong is
/// told without what is written there.
fn keys_of(bytes: &[u8]) -> Result<Vec<Vec<u8>>, String> {
    let mut keys: Vec<Vec<u8>> = Vec::new();
    for (index, line) in bytes.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii).enumerate() {
        if line.is_empty() || line.starts_with(b"#") {
            continue;
        }
        let number = index + 1;
        let key = key_of(line).ok_or_else(|| {
            format!("line {number} is no key: expected 32 bytes in Base64 or hex (openssl rand -base64 32)")
        })?;
        if keys.contains(&key) {
            return Err(format!("line {number} has a key that stands there already"));
        }
        keys.push(key);
    }
    match keys.len() {
        0 => Err("no key in it: expected 32 random bytes on a line (openssl rand -base64 32)".into()),
        1..=MOST => Ok(keys),
        more => Err(format!("{more} keys in it, at most {MOST} are taken: take away the oldest, which stand last")),
    }
}

fn key_of(line: &[u8]) -> Option<Vec<u8>> {
    let hex = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    if line.len() == 2 * KEY && line.iter().all(u8::is_ascii_hexdigit) {
        return line.chunks(2).map(hex).collect();
    }
    let forms = [STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD];
    forms.iter().find_map(|form| form.decode(line).ok()).filter(|key| key.len() == KEY)
}

#[cfg(test)]
mod tests {
    use super::super::testing::key_of_file;
    use super::*;
    use proptest::prelude::*;

    const ONE: &str = "0000000000000000000000000000000000000000000000000000000000000001";
    const TWO: &str = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAI=";

    fn seal(file: &str, name: &str) -> Seal {
        key_of_file(file, |params, at| Seal::read(params, &Located { value: name.into(), at: at.clone() }))
            .expect("no fault")
    }

    fn fault(file: &str) -> String {
        key_of_file(file, |params, at| Seal::read(params, &Located { value: "k".into(), at: at.clone() }))
            .err()
            .expect("a fault")
    }

    #[test]
    fn given_an_id_when_sealed_then_another_text_each_time_and_each_opens_at_every_instance() {
        let (one, other) = (seal(ONE, "k"), seal(&format!("# ours\n\n{ONE}\r\n"), "K"));
        let sealed: Vec<String> = (0..100).filter_map(|_| one.seal("dest-B")).collect();
        assert!(sealed.iter().all(|text| other.open(text.as_bytes()).as_deref() == Some(b"dest-B")));
        let different: std::collections::HashSet<_> = sealed.iter().collect();
        assert_eq!((different.len(), sealed[0].contains("dest")), (100, false));
        assert!(sealed[0].bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte)));
    }

    #[test]
    fn given_a_new_key_behind_the_old_and_then_before_it_when_sealed_then_all_instances_open_all_the_while() {
        let stages = [ONE.to_owned(), format!("{ONE}\n{TWO}"), format!("{TWO}\n{ONE}"), TWO.to_owned()];
        for pair in stages.windows(2) {
            let [before, after] = [&pair[0], &pair[1]].map(|file| seal(file, "k"));
            for (by, to) in [(&before, &after), (&after, &before)] {
                let text = by.seal("d").expect("sealed");
                assert!(to.open(text.as_bytes()).is_some(), "{pair:?}");
            }
        }
        let [old, new] = [ONE, TWO].map(|file| seal(file, "k"));
        assert!(new.open(old.seal("d").expect("sealed").as_bytes()).is_none());
    }

    #[test]
    fn given_a_text_of_another_name_or_a_changed_one_when_opened_then_nothing() {
        let own = seal(ONE, "k");
        let text = own.seal("dest-B").expect("sealed");
        assert!(seal(ONE, "other").open(text.as_bytes()).is_none());
        for index in 0..text.len() {
            let mut changed = text.clone().into_bytes();
            changed[index] = if changed[index] == b'A' { b'B' } else { b'A' };
            assert!(own.open(&changed).is_none(), "{index}");
        }
        for bad in ["", "/////", "A", "AAAA", &"A".repeat(LONGEST + 1)] {
            assert!(own.open(bad.as_bytes()).is_none(), "{bad}");
        }
    }

    #[test]
    fn given_a_file_that_holds_no_keys_when_read_then_what_is_wrong_and_nothing_of_what_it_says() {
        for (file, told) in [
            ("", "no key in it: expected 32 random bytes"),
            ("# nothing\n", "no key in it"),
            ("secret", "line 1 is no key: expected 32 bytes"),
            (&format!("{ONE}\n{}", &ONE[1..]), "line 2 is no key"),
            (&format!("{ONE}\n\n{ONE}"), "line 3 has a key that stands there already"),
            (&(0..9).map(|n| format!("{n:064}\n")).collect::<String>(), "9 keys in it, at most 8 are taken"),
        ] {
            let fault = fault(file);
            assert!(fault.contains(told) && !fault.contains("secret"), "{file}: {fault}");
        }
    }

    proptest! {
        #[test]
        fn given_any_bytes_when_opened_then_nothing(text: Vec<u8>) {
            prop_assert!(seal(ONE, "k").open(&text).is_none());
        }
    }
}
