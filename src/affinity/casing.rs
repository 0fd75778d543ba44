//! Capitals and small letters as .NET's invariant culture makes them of each other: one UTF-16 unit becomes one, whatever the
//! language. Rust's own mappings are the full ones (ß becomes SS), so only those of one character to one are taken from
//! them, and what Unicode maps one to one beside a longer full mapping stands here. What takes two units stays as it is.

/// In upper case.
pub fn upper(id: &str) -> impl Iterator<Item = u16> {
    id.encode_utf16().map(upper_unit)
}

/// In lower case.
pub fn lower(id: &str) -> impl Iterator<Item = u16> {
    id.encode_utf16().map(lower_unit)
}

fn upper_unit(unit: u16) -> u16 {
    match unit {
        // The dotless ı is nobody's small letter in the invariant culture.
        0x0131 => unit,
        // Greek letters with an iota written below: the capital has it beside.
        0x1f80..=0x1f87 | 0x1f90..=0x1f97 | 0x1fa0..=0x1fa7 => unit + 8,
        0x1fb3 | 0x1fc3 | 0x1ff3 => unit + 9,
        _ => mapped(unit, char::to_uppercase),
    }
}

fn lower_unit(unit: u16) -> u16 {
    match unit {
        // Nor is the dotted İ anybody's capital.
        0x0130 => unit,
        _ => mapped(unit, char::to_lowercase),
    }
}

/// By a mapping of one character to one, neither of which takes two units.
fn mapped<I: Iterator<Item = char>>(unit: u16, map: fn(char) -> I) -> u16 {
    let Some(char) = char::from_u32(unit.into()) else { return unit };
    let mut mapped = map(char);
    match (mapped.next().map(|char| u16::try_from(u32::from(char))), mapped.next()) {
        (Some(Ok(other)), None) => other,
        _ => unit,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(units: impl Iterator<Item = u16>) -> String {
        String::from_utf16(&units.collect::<Vec<_>>()).expect("UTF-16")
    }

    #[test]
    fn given_letters_of_any_language_when_their_case_changes_then_one_becomes_one() {
        for (id, capitals) in [
            ("catalog-1[localhost:5301]", "CATALOG-1[LOCALHOST:5301]"),
            ("çatalog-1", "ÇATALOG-1"),
            ("straße", "STRAßE"),
            ("ıi", "ıI"),
            ("ŉ ǰ ΐ ﬁ", "ŉ ǰ ΐ ﬁ"),
            ("ᾳ ᾀ ᾧ ῃ ῳ", "ᾼ ᾈ ᾯ ῌ ῼ"),
            ("я ա ა ꭰ", "Я Ա Ა Ꭰ"),
            ("ÿ µ ſ", "Ÿ Μ S"),
            ("𐐨 😀", "𐐨 😀"),
        ] {
            assert_eq!(text(upper(id)), capitals);
        }
        for (id, small) in [("CATALOG-1", "catalog-1"), ("İI", "İi"), ("ẞ ᾼ Σ", "ß ᾳ σ"), ("𐐀 😀", "𐐀 😀")]
        {
            assert_eq!(text(lower(id)), small);
        }
    }

    #[test]
    fn given_each_unit_when_mapped_twice_then_as_once() {
        for unit in 0..=u16::MAX {
            assert_eq!(upper_unit(upper_unit(unit)), upper_unit(unit), "{unit:#06x}");
            assert_eq!(lower_unit(lower_unit(unit)), lower_unit(unit), "{unit:#06x}");
        }
    }
}
