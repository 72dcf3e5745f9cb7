//! Reads the stamps of logs, without allocating.

/// A point in time as a log writes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp {
    /// Microseconds since 1970 UTC, or since midnight if there is no date.
    pub(crate) micros: i64,
    /// It has no fraction: the true time lies within the second that begins here.
    pub(crate) whole_seconds: bool,
    /// It has a date.
    pub(crate) dated: bool,
}

pub(crate) const DAY: i64 = 86_400 * 1_000_000;

/// `HH:MM:SS`, with a fraction or not. Returns also what follows.
pub(crate) fn clock(text: &[u8]) -> Option<(Stamp, &[u8])> {
    let [h1, h2, b':', m1, m2, b':', s1, s2, rest @ ..] = text else { return None };
    let (hour, minute, second) = (two(*h1, *h2)?, two(*m1, *m2)?, two(*s1, *s2)?);
    // 60 is a leap second; it falls on the next minute's first.
    if hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let (fraction, rest) = fraction(rest);
    let micros = ((hour * 60 + minute) * 60 + second) * 1_000_000 + fraction.unwrap_or(0);
    Some((Stamp { micros, whole_seconds: fraction.is_none(), dated: false }, rest))
}

/// `2026-01-31T15:04:05.123Z`: a `T` or a space, a fraction or none, a zone or none (then as UTC). Returns also what
/// follows.
pub(crate) fn iso(text: &[u8]) -> Option<(Stamp, &[u8])> {
    let [y1, y2, y3, y4, b'-', m1, m2, b'-', d1, d2, b'T' | b' ', rest @ ..] = text else { return None };
    let days = days(two(*y1, *y2)? * 100 + two(*y3, *y4)?, two(*m1, *m2)?, two(*d1, *d2)?)?;
    let (time, rest) = clock(rest)?;
    let (zone, rest) = match rest {
        [b'Z', rest @ ..] => (0, rest),
        [b'+' | b'-', ..] => zone(rest)?,
        _ => (0, rest),
    };
    Some((Stamp { micros: days * DAY + time.micros - zone, dated: true, ..time }, rest))
}

/// `31/Jan/2026:15:04:05 +0100`, all of it; the fraction and the zone may be missing.
pub(crate) fn ncsa(text: &[u8]) -> Option<Stamp> {
    let [d1, d2, b'/', m1, m2, m3, b'/', y1, y2, y3, y4, b':', rest @ ..] = text else { return None };
    let month = match [*m1, *m2, *m3] {
        [b'J', b'a', b'n'] => 1,
        [b'F', b'e', b'b'] => 2,
        [b'M', b'a', b'r'] => 3,
        [b'A', b'p', b'r'] => 4,
        [b'M', b'a', b'y'] => 5,
        [b'J', b'u', b'n'] => 6,
        [b'J', b'u', b'l'] => 7,
        [b'A', b'u', b'g'] => 8,
        [b'S', b'e', b'p'] => 9,
        [b'O', b'c', b't'] => 10,
        [b'N', b'o', b'v'] => 11,
        [b'D', b'e', b'c'] => 12,
        _ => return None,
    };
    let days = days(two(*y1, *y2)? * 100 + two(*y3, *y4)?, month, two(*d1, *d2)?)?;
    let (time, rest) = clock(rest)?;
    let zone = match rest {
        [] => 0,
        [b' ', sign @ ..] => {
            let (zone, rest) = zone(sign)?;
            rest.is_empty().then_some(zone)?
        }
        _ => return None,
    };
    Some(Stamp { micros: days * DAY + time.micros - zone, dated: true, ..time })
}

/// Seconds since 1970 with a fraction, `1772377445.123` (nginx's `$msec`), all of it.
pub(crate) fn epoch(text: &[u8]) -> Option<Stamp> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    // Ten digits reach from 2001 to 2286; others are some other number.
    if digits != 10 {
        return None;
    }
    let (seconds, rest) = text.split_at(digits);
    let seconds = seconds.iter().fold(0, |sum, digit| sum * 10 + i64::from(digit - b'0'));
    match fraction(rest) {
        (Some(fraction), []) => {
            Some(Stamp { micros: seconds * 1_000_000 + fraction, whole_seconds: false, dated: true })
        }
        _ => None,
    }
}

/// `+HHMM` or `+HH:MM` in microseconds.
fn zone(text: &[u8]) -> Option<(i64, &[u8])> {
    let (sign, h1, h2, m1, m2, rest) = match text {
        [sign, h1, h2, b':', m1, m2, rest @ ..] | [sign, h1, h2, m1, m2, rest @ ..] => (sign, h1, h2, m1, m2, rest),
        _ => return None,
    };
    let micros = (two(*h1, *h2)? * 60 + two(*m1, *m2)?) * 60_000_000;
    match sign {
        b'+' => Some((micros, rest)),
        b'-' => Some((-micros, rest)),
        _ => None,
    }
}

/// `.123` or `,123` in microseconds; digits past the sixth are dropped.
fn fraction(text: &[u8]) -> (Option<i64>, &[u8]) {
    let [b'.' | b',', first, ..] = text else { return (None, text) };
    if !first.is_ascii_digit() {
        return (None, text);
    }
    let (mut micros, mut unit, mut rest) = (0, 100_000, &text[1..]);
    while let [digit @ b'0'..=b'9', more @ ..] = rest {
        micros += i64::from(digit - b'0') * unit;
        unit /= 10;
        rest = more;
    }
    (Some(micros), rest)
}

fn two(tens: u8, ones: u8) -> Option<i64> {
    (tens.is_ascii_digit() && ones.is_ascii_digit()).then(|| i64::from(tens - b'0') * 10 + i64::from(ones - b'0'))
}

/// Days since 1970-01-01 of the Gregorian calendar (Howard Hinnant, "chrono-compatible low-level date algorithms").
fn days(year: i64, month: i64, day: i64) -> Option<i64> {
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let length = match month {
        2 if leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    if !(1..=length).contains(&day) {
        return None;
    }
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year - era * 400;
    let day_of_year = (153 * (month + if month > 2 { -3 } else { 9 }) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    Some(era * 146_097 + day_of_era - 719_468)
}

/// RFC 3339 in UTC with milliseconds; only the clock (`1d 00:00:01.000` past midnight) if there is no date.
pub(crate) fn show(micros: i64, dated: bool) -> String {
    let (day, time) = (micros.div_euclid(DAY), micros.rem_euclid(DAY));
    let millis = time / 1000;
    let clock =
        format!("{:02}:{:02}:{:02}.{:03}", millis / 3_600_000, millis / 60_000 % 60, millis / 1000 % 60, millis % 1000);
    if !dated {
        return if day == 0 { clock } else { format!("{day}d {clock}") };
    }
    // The inverse of `days`, from the same source.
    let shifted = day + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted - era * 146_097;
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}T{clock}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_times() {
        let at = |text: &str| iso(text.as_bytes()).map(|(stamp, _)| stamp.micros);
        assert_eq!(at("1970-01-01T00:00:00Z"), Some(0));
        assert_eq!(at("2000-02-29T12:00:00.5Z"), Some(951_825_600_500_000));
        assert_eq!(at("2026-11-21T14:40:30.123456789+01:00"), Some(1_795_268_430_123_456));
        assert_eq!(at("2026-11-21 14:40:30"), at("2026-11-21T14:40:30Z"));
        let same = ncsa(b"21/Nov/2026:14:40:30 +0100").unwrap();
        assert_eq!(Some(same.micros), at("2026-11-21T13:40:30Z"));
        assert!(same.whole_seconds && same.dated);
        let same = epoch(b"1795268430.123").unwrap();
        assert_eq!(Some(same.micros), at("2026-11-21T13:40:30.123Z"));
        assert_eq!((epoch(b"1795268430"), epoch(b"17.5"), epoch(b"1795268430.1x")), (None, None, None));
        assert!(!ncsa(b"21/Nov/2026:14:40:30.000 -0330").unwrap().whole_seconds);
    }

    #[test]
    fn what_is_shown_reads_back() {
        for day in (-800_000..800_000).step_by(97) {
            let micros = day * DAY + 54_321_987_000;
            let text = show(micros, true);
            if text.len() == 24 && !text.starts_with('-') {
                assert_eq!(iso(text.as_bytes()).unwrap().0.micros, micros, "{text}");
            }
        }
        assert_eq!(show(1_000, false), "00:00:00.001");
        assert_eq!(show(DAY, false), "1d 00:00:00.000");
    }

    #[test]
    fn wrong_stamps_are_refused() {
        for text in
            ["2026-02-29T00:00:00Z", "2026-13-01T00:00:00Z", "2026-01-01T24:00:00Z", "2026-01-01", "", "2026-01-01T1"]
        {
            assert_eq!(iso(text.as_bytes()), None, "{text}");
        }
        for text in ["31/Jan/2026", "31/Foo/2026:00:00:00 +0000", "32/Jan/2026:00:00:00", "01/Jan/2026:00:00:00 UTC"] {
            assert_eq!(ncsa(text.as_bytes()), None, "{text}");
        }
        assert_eq!(clock(b"15:04"), None);
        assert_eq!(clock("１５:04:00".as_bytes()), None);
    }
}
