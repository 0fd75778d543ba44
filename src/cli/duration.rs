//! The one place where a command's duration arguments are read.

use std::time::Duration;

/// `50ms`, `2s`, `1m`, `1h`: a whole number and its unit, for clap's `value_parser`. From 0 to 24 hours.
pub fn duration(text: &str) -> Result<Duration, String> {
    let expected = || "expected a duration as 50ms, 2s, 1m or 1h, at most 24h".to_owned();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let unit_ms: u64 = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return Err(expected()),
    };
    let ms = number.parse::<u64>().ok().and_then(|number| number.checked_mul(unit_ms));
    ms.filter(|ms| *ms <= 86_400_000).map(Duration::from_millis).ok_or_else(expected)
}

/// As [`duration`], for a limit that must leave some time.
pub fn positive(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        Duration::ZERO => Err("expected more than 0".to_owned()),
        some => Ok(some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_a_number_and_unit_when_read_then_it_is_that_long() {
        for (text, ms) in [("0ms", 0), ("50ms", 50), ("2s", 2_000), ("1m", 60_000), ("24h", 86_400_000)] {
            assert_eq!(duration(text), Ok(Duration::from_millis(ms)), "{text}");
        }
    }

    #[test]
    fn given_anything_else_when_read_then_the_form_is_named() {
        for text in [
            "",
            "5",
            "ms",
            "-1s",
            "1.5s",
            "1 s",
            "1d",
            "25h",
            "s5",
            "99999999999999999999s",
            "9999999999999999999h",
            "５s",
        ] {
            assert!(duration(text).unwrap_err().contains("50ms"), "{text}");
        }
        assert!(positive("0s").is_err());
    }
}
