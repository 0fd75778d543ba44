//! `CustomHeader`: as `Cookie`, in a header of the operator's choosing, for clients that keep no cookies.

use super::keys::Keys;
use super::seal::Seal;
use super::{Affinity, Answer, Entry, Recall};
use crate::model::RequestView;
use http::{HeaderMap, HeaderName, HeaderValue};

pub const ENTRY: Entry = Entry {
    name: "CustomHeader",
    build: |params, scope| {
        let written = &scope.key_name.value;
        let name = HeaderName::try_from(written).unwrap_or_else(|_| {
            if written.is_empty() {
                return UNNAMED;
            }
            params.problem(
                &scope.key_name.at,
                "expected the name of a header: letters, digits and any of !#$%&'*+-.^_`|~",
            );
            UNNAMED
        });
        let seal = Seal::read(params, scope.key_name);
        let keys = Keys::new(scope.ids, params, scope);
        Box::new(CustomHeader { name, seal, keys, ids: scope.ids.to_vec() })
    },
};

/// In place of a name that is a fault, here or, where there is none, before.
const UNNAMED: HeaderName = HeaderName::from_static("x-session");

struct CustomHeader {
    name: HeaderName,
    seal: Seal,
    keys: Keys,
    ids: Vec<String>,
}

impl Affinity for CustomHeader {
    /// Of several fields none is the key.
    fn recall(&self, request: &RequestView<'_>) -> Recall {
        let mut fields = request.headers.get_all(&self.name).iter();
        match (fields.next().map(HeaderValue::as_bytes), fields.next()) {
            (None | Some(b""), None) => Recall::Unset,
            (Some(field), None) => self.seal.open(field).map_or(Recall::Unreadable, |id| self.keys.find(&id)),
            (_, Some(_)) => Recall::Unreadable,
        }
    }

    fn remember(&self, index: usize, _: &Answer) -> Option<(HeaderName, HeaderValue)> {
        let sealed = self.seal.seal(self.ids.get(index)?)?;
        Some((self.name.clone(), HeaderValue::try_from(sealed).ok()?))
    }

    fn withhold(&self, headers: &HeaderMap) -> Option<(HeaderName, Option<HeaderValue>)> {
        headers.contains_key(&self.name).then(|| (self.name.clone(), None))
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{built, faults, key_file};
    use super::*;
    use crate::model::testing::request;
    use std::time::UNIX_EPOCH;

    #[test]
    fn given_its_own_header_when_recalled_then_that_destination_and_of_two_none() {
        let file = key_file();
        let policy =
            built(ENTRY, "X-Session", &format!("{{ key_file: {} }}", file.path().display()), &["dest-A", "dest-B"]).0;
        let (name, value) = policy.remember(1, &Answer { secure: false, now: UNIX_EPOCH }).expect("a field");
        assert_eq!(name, "x-session");
        let recall = |fields: &[HeaderValue]| {
            let headers: HeaderMap = fields.iter().map(|field| (name.clone(), field.clone())).collect();
            (policy.recall(&RequestView { headers: &headers, ..request() }), policy.withhold(&headers))
        };
        let withheld = Some((name.clone(), None));
        assert_eq!(recall(&[]), (Recall::Unset, None));
        assert_eq!(recall(&[HeaderValue::from_static("")]), (Recall::Unset, withheld.clone()));
        assert_eq!(recall(std::slice::from_ref(&value)), (Recall::Bound(1), withheld.clone()));
        assert_eq!(recall(&[value.clone(), value]), (Recall::Unreadable, withheld.clone()));
        assert_eq!(recall(&[HeaderValue::from_static("dest-B")]), (Recall::Unreadable, withheld));
    }

    #[test]
    fn given_a_name_that_no_header_has_when_built_then_a_fault_at_it() {
        let file = key_file();
        let faults = faults(ENTRY, "a b", &format!("{{ key_file: {} }}", file.path().display()), &[]);
        assert!(faults.len() == 1 && faults[0].contains("expected the name of a header"), "{faults:?}");
    }
}
