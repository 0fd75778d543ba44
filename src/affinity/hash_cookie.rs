//! A hash of the id, byte for byte YARP's: all instances agree on it, and whoever knows the ids can make it. XXH64 over the
//! UTF-16 of the id in capitals, little-endian, as 16 hex digits.

use super::{Entry, casing, prepared};
use xxhash_rust::xxh64::xxh64;

pub const ENTRY: Entry = Entry { name: "HashCookie", build: |params, scope| prepared::build(params, scope, value) };

fn value(id: &str) -> String {
    let units: Vec<u8> = casing::upper(id).flat_map(u16::to_le_bytes).collect();
    format!("{:016x}", xxh64(&units, 0))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Built, built};
    use super::super::{Answer, Recall};
    use super::*;
    use proptest::prelude::*;
    use std::time::UNIX_EPOCH;

    const VECTORS: &[(&str, &str)] = &[
        ("catalog-1[localhost:5301]", "e76da95c600cb57c"),
        ("catalog-2[localhost:5311]", "d673564b930708ae"),
        ("catalog-3[localhost:5312]", "59a9d78feb288284"),
        ("dest-B", "53c079ed4c377b0d"),
        ("dest-A", "615d6cd1b28160f0"),
        ("dest-C", "435025e33cab55ca"),
        ("catalog-1", "97f64c126aa7b24d"),
        ("CATALOG-1", "97f64c126aa7b24d"),
        ("catalog-2", "421dbc81ad5a22b0"),
        ("catalog-3", "8ee6d1afe5868c09"),
        ("ordering[localhost:5302]", "570930e4ff7f3031"),
        ("destination1", "3053977fe20783c2"),
        ("destination2", "18038900d3df268e"),
        ("cluster1/destination1", "461e4dd1f090272b"),
        ("d1", "3ca257a575bfff71"),
        ("d2", "eb4f7569e28edc50"),
        ("d3", "d0dda09041e8467f"),
        ("a", "489580109ac1745b"),
        ("node_1", "83b7b9613e04edd6"),
        ("backend-10", "8a936428d027cd64"),
        ("catalog[127.0.0.1]", "b268fce7757d84ec"),
        ("catalog[10.0.0.1]", "e062f5af2cd3124c"),
        ("catalog[::1]", "3bd30d7e8d8baedf"),
        ("catalog-1[2001:db8::1]", "c64bfd32048456d3"),
        ("çatalog-1", "9171ea4b255e0e7b"),
        ("straße", "07a9dbedf2e2b41e"),
    ];

    #[test]
    fn given_ids_when_hashed_then_the_values_that_yarp_gives_them() {
        for (id, expected) in VECTORS {
            assert_eq!(value(id), *expected, "{id}");
        }
    }

    fn policy(ids: &[&str]) -> Built {
        built(
            ENTRY,
            "My.Affinity",
            "{ cookie: { max_age: 1h, domain: mydomain.my, path: /some, secure: Always, same_site: Lax, http_only: false } }",
            ids,
        )
    }

    /// YARP's case 34.
    #[test]
    fn given_the_cookie_of_a_destination_when_recalled_then_that_one_and_without_it_nothing() {
        let policy = policy(&["dest-A", "dest-B", "dest-C"]);
        assert_eq!(policy.recall("My.Affinity=53c079ed4c377b0d"), Recall::Bound(1));
        assert_eq!(policy.recall("Some=value; another=one"), Recall::Unset);
        let (name, line) = policy.0.remember(1, &Answer { secure: false, now: UNIX_EPOCH }).expect("a line");
        assert_eq!(name, "set-cookie");
        assert_eq!(
            line,
            "My.Affinity=53c079ed4c377b0d; max-age=3600; domain=mydomain.my; path=/some; secure; samesite=lax"
        );
    }

    /// YARP's case 36, but for what only an encrypted key can be.
    #[test]
    fn given_a_key_of_no_destination_when_recalled_then_unknown() {
        let policy = policy(&["dest-A", "dest-B"]);
        for value in
            ["435025e33cab55ca", "53C079ED4C377B0D", "\"53c079ed4c377b0d\"", "53c079ed4c377b0", "/////", "\u{fffd}"]
        {
            assert_eq!(policy.recall(&format!("My.Affinity={value}")), Recall::Unknown, "{value}");
        }
    }

    #[test]
    fn given_ids_that_only_capitals_tell_apart_when_built_then_a_fault() {
        let faults = super::super::testing::faults(ENTRY, "k", "{}", &["node", "Node"]);
        assert!(
            faults.len() == 1 && faults[0].contains("destinations \"node\" and \"Node\" have the same key"),
            "{faults:?}"
        );
    }

    #[test]
    fn given_ten_thousand_sessions_when_one_of_five_destinations_goes_then_its_own_move_and_two_instances_agree() {
        let ids = ["d1", "d2", "d3", "d4", "d5"];
        let (before, after, other) = (policy(&ids), policy(&["d1", "d2", "d4", "d5"]), policy(&ids));
        let answer = Answer { secure: true, now: UNIX_EPOCH };
        let mut moved = 0;
        for session in 0..10_000 {
            let bound = session % ids.len();
            let (_, line) = before.0.remember(bound, &answer).expect("a line");
            let cookie = line.to_str().expect("text").split(';').next().expect("a pair").to_owned();
            assert_eq!(other.recall(&cookie), Recall::Bound(bound));
            let index = match after.recall(&cookie) {
                Recall::Bound(index) => index,
                recall => {
                    assert_eq!((recall, bound), (Recall::Unknown, 2));
                    moved += 1;
                    continue;
                }
            };
            assert_eq!(ids[bound], ["d1", "d2", "d4", "d5"][index]);
        }
        assert_eq!(moved, 2_000);
    }

    proptest! {
        #[test]
        fn given_any_id_when_bound_then_its_own_key_leads_back_to_it(id in ".{1,40}") {
            let policy = policy(&["another", &id]);
            let key = format!("My.Affinity={}", value(&id));
            prop_assert!(policy.recall(&key) == Recall::Bound(1));
        }
    }
}
