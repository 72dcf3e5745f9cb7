//! Dates, times and intervals of PostgreSQL as text.

use fanin_json::write_int;

use super::digits::padded;

/// Days since 2000-01-01, as year, month and day (H. Hinnant, "chrono-compatible low-level date algorithms").
fn civil(days: i64) -> (i64, i64, i64) {
    // Counted from 0000-03-01, so that a leap day is the last of its year.
    let shifted = days + 730_425;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

/// Writes a date. `true` for a date before Christ, which the caller marks at the end, as PostgreSQL does.
pub(super) fn date(out: &mut Vec<u8>, days: i64) -> bool {
    let (year, month, day) = civil(days);
    // There is no year 0: 1 BC comes before 1 AD.
    padded(out, if year > 0 { year } else { 1 - year }, 4);
    for part in [month, day] {
        out.push(b'-');
        padded(out, part, 2);
    }
    year <= 0
}

/// Writes a time of day, from microseconds since midnight.
pub(super) fn time(out: &mut Vec<u8>, micros: i64) {
    let seconds = micros / 1_000_000;
    padded(out, seconds / 3600, 2);
    for part in [seconds / 60 % 60, seconds % 60] {
        out.push(b':');
        padded(out, part, 2);
    }
    fraction(out, micros % 1_000_000);
}

/// A fraction of a second without trailing zeros.
fn fraction(out: &mut Vec<u8>, micros: i64) {
    if micros != 0 {
        out.push(b'.');
        padded(out, micros.abs(), 6);
        while out.last() == Some(&b'0') {
            out.pop();
        }
    }
}

/// Microseconds since 2000-01-01 as RFC 3339, with PostgreSQL's extensions for infinity and years beyond four digits.
pub(super) fn timestamp(micros: i64, end: &[u8], out: &mut Vec<u8>) {
    match micros {
        i64::MAX => return out.extend_from_slice(b"\"infinity\""),
        i64::MIN => return out.extend_from_slice(b"\"-infinity\""),
        _ => {}
    }
    const DAY: i64 = 86_400_000_000;
    out.push(b'"');
    let before_christ = date(out, micros.div_euclid(DAY));
    out.push(b'T');
    time(out, micros.rem_euclid(DAY));
    if before_christ {
        out.extend_from_slice(&end[..end.len() - 1]);
        out.extend_from_slice(b" BC\"");
    } else {
        out.extend_from_slice(end);
    }
}

/// ISO 8601, each part with its own sign, as PostgreSQL's `intervalstyle = iso_8601`.
pub(super) fn interval(micros: i64, days: i32, months: i32, out: &mut Vec<u8>) {
    if micros == 0 && days == 0 && months == 0 {
        return out.extend_from_slice(b"PT0S");
    }
    let part = |out: &mut Vec<u8>, value: i64, unit: u8| {
        if value != 0 {
            write_int(out, value);
            out.push(unit);
        }
    };
    out.push(b'P');
    part(out, (months / 12).into(), b'Y');
    part(out, (months % 12).into(), b'M');
    part(out, days.into(), b'D');
    if micros != 0 {
        out.push(b'T');
        let seconds = micros / 1_000_000;
        part(out, seconds / 3600, b'H');
        part(out, seconds / 60 % 60, b'M');
        let (whole, rest) = (seconds % 60, micros % 1_000_000);
        if whole != 0 || rest != 0 {
            if micros < 0 {
                out.push(b'-');
            }
            write_int(out, whole.abs());
            fraction(out, rest);
            out.push(b'S');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn days(year: i64, month: i64, day: i64) -> i64 {
        (-1_000_000..1_000_000).find(|days| civil(*days) == (year, month, day)).unwrap()
    }

    #[test]
    fn days_become_dates() {
        for (day, expected) in [
            (0, (2000, 1, 1)),
            (-1, (1999, 12, 31)),
            (59, (2000, 2, 29)),
            (60, (2000, 3, 1)),
            (366, (2001, 1, 1)),
            (-36524, (1900, 1, 1)),
            (-730_119, (1, 1, 1)),
        ] {
            assert_eq!(civil(day), expected, "{day}");
        }
        // Each day follows the one before it.
        let mut before = civil(-800_000);
        for day in -799_999..800_000 {
            let now = civil(day);
            let follows = now.2 == before.2 + 1 && now.1 == before.1 && now.0 == before.0
                || now.2 == 1 && (now.1 == before.1 + 1 && now.0 == before.0 || now.1 == 1 && now.0 == before.0 + 1);
            assert!(follows, "{before:?} {now:?}");
            before = now;
        }
        assert_eq!(days(2024, 2, 29), 8825);
    }

    #[test]
    fn intervals_have_all_their_parts() {
        let text = |micros, days, months| {
            let mut out = Vec::new();
            interval(micros, days, months, &mut out);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(text(0, 0, 0), "PT0S");
        assert_eq!(text(3_723_500_000, 4, 14), "P1Y2M4DT1H2M3.5S");
        assert_eq!(text(-500_000, -1, 0), "P-1DT-0.5S");
        assert_eq!(text(-3_600_000_000, 0, 0), "PT-1H");
    }
}
