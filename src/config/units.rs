//! Durations, sizes and shares as people write them. Every error says which forms are accepted; ranges are the
//! business of [`super::Section`].

use std::time::Duration;

pub(super) const TEN_MINUTES: Duration = Duration::from_secs(600);
pub(super) const HOUR: Duration = Duration::from_secs(3_600);
pub(super) const DAY: Duration = Duration::from_secs(86_400);

pub(super) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Largest first, as they are written.
const TIME_UNITS: [(&str, u128); 4] =
    [("h", 3_600_000_000_000), ("m", 60_000_000_000), ("s", 1_000_000_000), ("ms", 1_000_000)];

const SIZE_UNITS: [(&str, u64); 8] = [
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("KB", 1_000),
    ("B", 1),
    ("", 1),
];

/// `250ms`, `5s`, `1m30s`, `1.5h`, or `hh:mm:ss[.fff]`.
///
/// # Errors
/// Which forms are accepted, in words.
pub fn duration(text: &str) -> Result<Duration, String> {
    let expected = || "expected a duration such as 250ms, 5s, 1m30s or 1h".to_owned();
    if text.contains(':') {
        return clock(text).ok_or_else(expected);
    }
    if text.parse::<f64>().is_ok() {
        return Err(format!("a bare number has no unit; write {text}s or {text}ms"));
    }
    let mut rest = text;
    let mut nanos: u128 = 0;
    let mut units = TIME_UNITS.as_slice();
    while !rest.is_empty() {
        let letters = rest.find(|c: char| c.is_ascii_alphabetic()).ok_or_else(expected)?;
        let (number, after) = rest.split_at(letters);
        let end = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        let index = units.iter().position(|(name, _)| *name == unit).ok_or_else(expected)?;
        let part = scaled(number, units[index].1).ok_or_else(expected)?;
        nanos = nanos.checked_add(part).ok_or_else(expected)?;
        units = &units[index + 1..];
        rest = after;
    }
    if text.is_empty() { Err(expected()) } else { from_nanos(nanos).ok_or_else(expected) }
}

/// `64KiB`, `10MiB`, `1KB` = 1000, or plain bytes.
pub(super) fn size(text: &str) -> Result<u64, String> {
    let expected = || "expected a size such as 64KiB, 10MiB or 1GB".to_owned();
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let (_, factor) = SIZE_UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(expected)?;
    number.parse::<u64>().ok().and_then(|n| n.checked_mul(*factor)).ok_or_else(expected)
}

/// `5%` or `0.05`, as 0.05.
pub(super) fn percent(text: &str) -> Result<f64, String> {
    let share = match text.strip_suffix('%') {
        Some(number) => number.parse::<f64>().map(|n| n / 100.0),
        None => text.parse(),
    };
    match share {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(share),
        _ => Err("expected a share such as 5% or 0.05, from 0% to 100%".to_owned()),
    }
}

/// A share in whole tenths of a percent.
pub fn permille(text: &str) -> Result<u32, String> {
    let tenths = percent(text)? * 1000.0;
    match (tenths - tenths.round()).abs() < 1e-6 {
        true => Ok(tenths.round() as u32),
        false => Err("expected whole tenths of a percent, such as 0.5%, 5% or 0.05".to_owned()),
    }
}

/// As [`duration`] reads it; whole milliseconds.
pub fn show_duration(duration: Duration) -> String {
    let mut rest = duration.as_nanos();
    let mut shown = String::new();
    for (unit, nanos) in TIME_UNITS {
        if rest >= nanos {
            shown += &format!("{}{unit}", rest / nanos);
            rest %= nanos;
        }
    }
    if shown.is_empty() { "0s".to_owned() } else { shown }
}

/// As [`size`] reads it, in the largest binary unit that leaves no rest.
pub(super) fn show_size(bytes: u64) -> String {
    let whole = |(_, factor): &&(&str, u64)| bytes > 0 && bytes.is_multiple_of(*factor);
    match SIZE_UNITS[..3].iter().find(whole) {
        Some((unit, factor)) => format!("{}{unit}", bytes / factor),
        None => format!("{bytes} bytes"),
    }
}

fn clock(text: &str) -> Option<Duration> {
    let mut parts = text.split(':');
    let (hours, minutes, seconds) = (parts.next()?, parts.next()?, parts.next()?);
    let two_digits = |part: &str| part.len() == 2 && part < "60";
    let whole_seconds = seconds.split('.').next()?;
    if parts.next().is_some() || !two_digits(minutes) || !two_digits(whole_seconds) {
        return None;
    }
    let [(_, hour), (_, minute), (_, second), _] = TIME_UNITS;
    from_nanos(scaled(hours, hour)?.checked_add(scaled(minutes, minute)?)?.checked_add(scaled(seconds, second)?)?)
}

/// A decimal number times `factor`, exact.
fn scaled(number: &str, factor: u128) -> Option<u128> {
    const DIGITS: usize = 9;
    let digits = |text: &str| (1..=DIGITS).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    if !digits(whole) || !digits(fraction) {
        return None;
    }
    let scale = 10u128.pow(u32::try_from(fraction.len()).ok()?);
    Some(whole.parse::<u128>().ok()? * factor + fraction.parse::<u128>().ok()? * factor / scale)
}

fn from_nanos(nanos: u128) -> Option<Duration> {
    u64::try_from(nanos).ok().map(Duration::from_nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_durations_as_written_when_read_then_exact() {
        for (text, millis) in [
            ("250ms", 250),
            ("5s", 5_000),
            ("0s", 0),
            ("1m30s", 90_000),
            ("1h", 3_600_000),
            ("1.5s", 1_500),
            ("0.1s", 100),
            ("1h1ms", 3_600_001),
            ("00:00:10", 10_000),
            ("01:02:03.5", 3_723_500),
        ] {
            assert_eq!(duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn given_what_is_no_duration_when_read_then_the_forms_expected() {
        for text in [
            "",
            "s",
            "fast",
            "5 s",
            "5S",
            "30s1m",
            "1s1s",
            "-5s",
            "1:2:3",
            "00:61:00",
            "1.2.3s",
            "5d",
            "00:00:5é",
            "9999999999h",
            "999999999h",
            "1..s",
            ".5s",
            "00:00:00:00",
            "0x5s",
        ] {
            let error = duration(text).expect_err(text);
            assert!(error.contains("250ms"), "{text}: {error}");
        }
    }

    #[test]
    fn given_a_bare_number_when_read_as_duration_then_told_the_unit_to_add() {
        assert_eq!(duration("30"), Err("a bare number has no unit; write 30s or 30ms".to_owned()));
    }

    #[test]
    fn given_sizes_when_read_then_bytes() {
        for (text, bytes) in
            [("64KiB", 65_536), ("10MiB", 10 << 20), ("1KB", 1_000), ("2GiB", 2 << 30), ("512", 512), ("7B", 7)]
        {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for text in ["", "KiB", "64 KiB", "64kib", "-1", "1.5MiB", "99999999999GiB", "99999999999999999999"] {
            assert!(size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn given_shares_when_read_then_between_0_and_1() {
        for (text, share) in [("5%", 0.05), ("0.05", 0.05), ("100%", 1.0), ("0", 0.0), ("1", 1.0)] {
            assert_eq!(percent(text), Ok(share), "{text}");
        }
        for text in ["", "%", "101%", "5", "-1%", "NaN", "inf", "NaN%", "five"] {
            assert!(percent(text).is_err(), "{text}");
        }
    }

    #[test]
    fn given_a_duration_or_size_when_shown_then_as_it_may_be_written() {
        for text in ["1m30s", "100ms", "1h", "0s", "24h"] {
            assert_eq!(show_duration(duration(text).unwrap()), text);
        }
        assert_eq!(show_size(64 << 10), "64KiB");
        assert_eq!(show_size(1_000), "1000 bytes");
        assert_eq!(show_size(0), "0 bytes");
    }
}
