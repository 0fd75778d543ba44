//! `Cookie`: the id itself, encrypted and authenticated ([`super::seal`]). Instances that share the key file agree on it.

use super::cookie::Cookie;
use super::keys::Keys;
use super::seal::Seal;
use super::{Affinity, Answer, Entry, Recall};
use crate::model::RequestView;
use http::{HeaderMap, HeaderName, HeaderValue};

pub const ENTRY: Entry = Entry {
    name: "Cookie",
    build: |params, scope| {
        let cookie = Cookie::read(params, scope.key_name);
        let seal = Seal::read(params, scope.key_name);
        let keys = Keys::new(scope.ids, params, scope);
        Box::new(EncryptedCookie { cookie, seal, keys, ids: scope.ids.to_vec() })
    },
};

struct EncryptedCookie {
    cookie: Cookie,
    seal: Seal,
    keys: Keys,
    ids: Vec<String>,
}

impl Affinity for EncryptedCookie {
    fn recall(&self, request: &RequestView<'_>) -> Recall {
        let Some(value) = self.cookie.value(request.headers) else { return Recall::Unset };
        self.seal.open(&value).map_or(Recall::Unreadable, |id| self.keys.find(&id))
    }

    fn remember(&self, index: usize, answer: &Answer) -> Option<(HeaderName, HeaderValue)> {
        self.cookie.set(&self.seal.seal(self.ids.get(index)?)?, answer)
    }

    fn withhold(&self, headers: &HeaderMap) -> Option<(HeaderName, Option<HeaderValue>)> {
        self.cookie.withhold(headers)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{built, faults, key_file};
    use super::*;
    use std::time::UNIX_EPOCH;

    #[test]
    fn given_its_own_cookie_when_recalled_then_that_destination_and_any_other_is_told_apart() {
        let file = key_file();
        let params = format!("{{ key_file: {} }}", file.path().display());
        let policy = built(ENTRY, "k", &params, &["dest-A", "dest-B"]);
        let (name, line) = policy.0.remember(1, &Answer { secure: false, now: UNIX_EPOCH }).expect("a line");
        let line = line.to_str().expect("text");
        let (pair, attributes) = line.split_once("; ").expect("attributes");
        assert_eq!((name.as_str(), attributes), ("set-cookie", "path=/; httponly"));
        assert_eq!(policy.recall(pair), Recall::Bound(1));
        assert_eq!(built(ENTRY, "k", &params, &["dest-A"]).recall(pair), Recall::Unknown);
        // Ids do tell capitals.
        assert_eq!(built(ENTRY, "k", &params, &["dest-b"]).recall(pair), Recall::Unknown);
        for unreadable in ["k=/////", "k=dest-B", "k=ZGVzdC1C"] {
            assert_eq!(policy.recall(unreadable), Recall::Unreadable, "{unreadable}");
        }
        assert_eq!((policy.recall("k="), policy.recall("a=b")), (Recall::Unset, Recall::Unset));
    }

    #[test]
    fn given_no_key_file_or_none_there_when_built_then_one_fault_that_says_how_to_make_one() {
        let none = faults(ENTRY, "k", "{}", &[]);
        assert!(
            none.len() == 1 && none[0].contains("needs `key_file`") && none[0].contains("openssl rand"),
            "{none:?}"
        );
        let gone = faults(ENTRY, "k", "{ key_file: nowhere.key }", &[]);
        assert!(gone.len() == 1 && gone[0].contains("nowhere.key: cannot read it: "), "{gone:?}");
    }
}
