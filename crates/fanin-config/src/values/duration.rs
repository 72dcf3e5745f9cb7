//! Durations as text: `"100ms"`, `"5m"`, `"1h30m"`.

use std::time::Duration;

const UNITS: [(&str, u128); 7] = [
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

/// Reads a duration: one or more whole or decimal numbers, each with a unit (`ns`, `us`, `ms`, `s`, `m`, `h`, `d`),
/// largest unit first, each unit once: `"250ms"`, `"1.5s"`, `"1h30m"`. `"0"` needs no unit.
///
/// # Errors
/// A sentence that says what is wrong with the text.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    if text.is_empty() {
        return Err("a duration is empty; write a number with a unit, such as \"100ms\"".into());
    }
    let mut nanos: u128 = 0;
    let mut rest = text;
    let mut previous = u128::MAX;
    while !rest.is_empty() {
        let (number, after) = split_number(rest);
        if number.is_empty() {
            return Err(format!("`{text}` is not a duration; write a number with a unit, such as \"100ms\""));
        }
        let end = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        if unit.is_empty() {
            return Err(format!("`{text}` has no unit; did you mean \"{number}ms\" or \"{number}s\"?"));
        }
        let Some(&(_, scale)) = UNITS.iter().find(|(name, _)| *name == unit) else {
            return Err(format!("`{unit}` is not a unit of time; use ns, us, ms, s, m, h or d"));
        };
        if scale >= previous {
            return Err(format!("`{text}`: units go from the largest to the smallest, each once, such as \"1h30m\""));
        }
        previous = scale;
        let part = scaled(number, scale).ok_or_else(|| format!("`{number}{unit}` is not a number of {unit}"))?;
        nanos = nanos.checked_add(part).ok_or_else(|| format!("`{text}` is too long"))?;
        rest = after;
    }
    // 100 years: beyond any use, and far from the overflow of an `Instant`.
    if nanos > 100 * 365 * UNITS[0].1 {
        return Err(format!("`{text}` is too long"));
    }
    let seconds = u64::try_from(nanos / 1_000_000_000).map_err(|_| format!("`{text}` is too long"))?;
    Ok(Duration::new(seconds, (nanos % 1_000_000_000) as u32))
}

/// Splits leading digits and at most one point off a text.
pub(crate) fn split_number(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    text.split_at(end)
}

/// `number * scale`, exactly; `None` if it is no number, has a fraction of the smallest unit, or overflows.
pub(crate) fn scaled(number: &str, scale: u128) -> Option<u128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || (number.contains('.') && fraction.is_empty()) || fraction.len() > 18 {
        return None;
    }
    let whole = whole.parse::<u128>().ok()?.checked_mul(scale)?;
    if fraction.is_empty() {
        return Some(whole);
    }
    let power = 10u128.pow(fraction.len() as u32);
    let part = fraction.parse::<u128>().ok()?.checked_mul(scale)?;
    (part % power == 0).then_some(whole.checked_add(part / power)?)
}

/// The shortest text that [`parse_duration`] reads back as the same duration.
pub fn format_duration(duration: Duration) -> String {
    let mut nanos = duration.as_nanos();
    if nanos == 0 {
        return "0s".into();
    }
    // One unit if the value is whole in it and stays readable (90s, 1500ms), several otherwise (1h30m).
    for (name, scale) in UNITS {
        if nanos.is_multiple_of(scale) && (nanos / scale < 1000 || scale == 1) {
            return format!("{}{name}", nanos / scale);
        }
        if nanos.is_multiple_of(scale) {
            break;
        }
    }
    let mut text = String::new();
    for (name, scale) in UNITS {
        let count = nanos / scale;
        if count > 0 {
            text.push_str(&format!("{count}{name}"));
            nanos %= scale;
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_units_alone_and_together() {
        for (text, nanos) in [
            ("0", 0),
            ("0ms", 0),
            ("7ns", 7),
            ("3us", 3_000),
            ("100ms", 100_000_000),
            ("1.5s", 1_500_000_000),
            ("5m", 300_000_000_000),
            ("1h30m", 5_400_000_000_000),
            ("1d2h3m4s5ms6us7ns", 93_784_005_006_007),
            (" 2s ", 2_000_000_000),
        ] {
            assert_eq!(parse_duration(text).map(|d| d.as_nanos()), Ok(nanos), "{text}");
        }
    }

    #[test]
    fn refuses_what_is_not_a_duration() {
        for (text, part) in [
            ("", "empty"),
            ("100", "no unit"),
            ("ms", "not a duration"),
            ("-1s", "not a duration"),
            ("1 s", "no unit"),
            ("5min", "not a unit"),
            ("1s1h", "largest to the smallest"),
            ("1s1s", "largest to the smallest"),
            ("1.5ns", "not a number of ns"),
            ("1.s", "not a number"),
            ("1.2.3s", "not a number"),
            ("200000d", "too long"),
            ("99999999999999999999999999999999999999d", "not a number"),
        ] {
            let error = parse_duration(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn text_reads_back() {
        for nanos in [0, 1, 999, 1_000, 1_500_000, 20_000_000, 999_999_999_999, 5_400_000_000_000, 86_400_000_000_000] {
            let duration = Duration::from_nanos(nanos);
            assert_eq!(parse_duration(&format_duration(duration)), Ok(duration));
        }
        assert_eq!(format_duration(Duration::from_millis(1500)), "1s500ms");
        assert_eq!(format_duration(Duration::from_secs(90)), "90s");
        assert_eq!(format_duration(Duration::from_millis(250)), "250ms");
    }
}
