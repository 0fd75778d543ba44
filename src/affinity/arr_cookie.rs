//! The hash that IIS Application Request Routing puts into its cookies, byte for byte YARP's: SHA-256 over the UTF-16 of the
//! id in small letters, little-endian, as 64 hex digits. ARR hashes host names, so to share its sessions ids must be those.

use super::{Entry, casing, prepared};
use sha2::{Digest, Sha256};

pub const ENTRY: Entry = Entry { name: "ArrCookie", build: |params, scope| prepared::build(params, scope, value) };

fn value(id: &str) -> String {
    let units: Vec<u8> = casing::lower(id).flat_map(u16::to_le_bytes).collect();
    Sha256::digest(&units).iter().map(|byte| format!("{byte:02X}")).collect()
}

#[cfg(test)]
mod tests {
    use super::super::Recall;
    use super::super::testing::built;
    use super::*;

    const VECTORS: &[(&str, &str)] = &[
        ("dest-B", "920A160FA519353932B655488361A944531650016793761EE7224DE632863B13"),
        ("dest-A", "CE3762A8E5BFB452C5071CC80C81E9C89A87369B0E8F7866CB437C1A181A865F"),
        ("dest-C", "F3B4CD111C7126B8027B3884D59F9C10101C1A2245E6AA4B020A347900B6B725"),
        ("catalog-1", "565EC923C87327F4156E45C5E5D49B5763B4FBA5EDB719808140507E78C9F575"),
        ("CATALOG-1", "565EC923C87327F4156E45C5E5D49B5763B4FBA5EDB719808140507E78C9F575"),
        ("catalog-2", "8BBE6D648E176800171D6015E568EA9D823C80979938CCC0F8AB3A26CD696E0B"),
        ("catalog-3", "381A7A316981220794C787E943FA14B12FC09F4440D5E571BF146FDD305CBEC1"),
        ("catalog-1[localhost:5301]", "E2091791500E03CDA48A8646E63C07CB742A66A0F9EC5128780A29FD52BC6732"),
        ("catalog-2[localhost:5311]", "C8CB2B02AB40A3F6CC0ACA8A5366AB0FA099F1C74D1702CEDA279CFDB4F5266F"),
        ("catalog-3[localhost:5312]", "EF4F63C3A207984D2A0D535F6E298CC109A312F87B4A3A3EF3BC2C1E6D7CAC6F"),
        ("destination1", "8BCB8A94848003715AE483D7A28753DAC9F5A57CB4414C8A158F6E11D2E63386"),
        ("destination2", "FFA06494F3B6954E63D1045760A8A11273075FA400176E63239B963E62BC302B"),
        ("d1", "E1A81620F938713C58BD2D3627E2FD60538B502CCE1E2DF25C6D79F2F7F8EDAF"),
        ("a", "FFE9AAEAA2A2D5048174DF0B80599EF0197EC024C4B051BC9860CFF58EF7F9F3"),
    ];

    #[test]
    fn given_ids_when_hashed_then_the_values_that_yarp_gives_them() {
        for (id, expected) in VECTORS {
            assert_eq!(value(id), *expected, "{id}");
        }
    }

    /// YARP's case 35.
    #[test]
    fn given_the_cookie_of_a_destination_when_recalled_then_that_one_and_in_small_letters_none() {
        let policy = built(ENTRY, "k", "{}", &["dest-A", "dest-B", "dest-C"]);
        let key = VECTORS[0].1;
        assert_eq!(policy.recall(&format!("k={key}")), Recall::Bound(1));
        assert_eq!(policy.recall(&format!("k={}", key.to_lowercase())), Recall::Unknown);
        assert_eq!(policy.recall("other=value"), Recall::Unset);
    }
}
