//! Wall-clock time for logs, derived from the monotonic clock that each request reads anyway.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

/// Makes RFC 3339 text with milliseconds, in UTC. The text of the current second is kept, so that a line costs three digits.
#[derive(Debug)]
pub(crate) struct WallClock {
    anchor: Instant,
    /// Time since the epoch at `anchor`.
    at_anchor: Duration,
    second: u64,
    text: [u8; 24],
}

impl WallClock {
    pub(crate) fn new() -> WallClock {
        let mut clock = WallClock {
            anchor: Instant::now(),
            at_anchor: Duration::ZERO,
            second: u64::MAX,
            text: *b"0000-00-00T00:00:00.000Z",
        };
        clock.adjust();
        clock
    }

    /// Follows steps of the wall clock. To be called several times a second.
    pub(crate) fn adjust(&mut self) {
        self.anchor = Instant::now();
        self.at_anchor = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    }

    /// The text for a moment.
    pub(crate) fn rfc3339(&mut self, moment: Instant) -> &[u8; 24] {
        let since_epoch = match moment.checked_duration_since(self.anchor) {
            Some(after) => self.at_anchor + after,
            None => self.at_anchor.saturating_sub(self.anchor - moment),
        };
        if since_epoch.as_secs() != self.second {
            self.second = since_epoch.as_secs();
            write_second(self.second, &mut self.text);
        }
        write_digits(&mut self.text[20..23], since_epoch.subsec_millis());
        &self.text
    }
}

fn write_second(second: u64, text: &mut [u8; 24]) {
    let (days, of_day) = (second / 86_400, (second % 86_400) as u32);
    let (year, month, day) = civil(days);
    write_digits(&mut text[0..4], year);
    write_digits(&mut text[5..7], month);
    write_digits(&mut text[8..10], day);
    write_digits(&mut text[11..13], of_day / 3600);
    write_digits(&mut text[14..16], of_day / 60 % 60);
    write_digits(&mut text[17..19], of_day % 60);
}

fn write_digits(to: &mut [u8], mut number: u32) {
    for digit in to.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

/// Year, month and day of a day since 1970-01-01: Howard Hinnant's `civil_from_days`, for days that are not before 1970.
fn civil(days: u64) -> (u32, u32, u32) {
    let days = days + 719_468;
    let era = days / 146_097;
    let of_era = days % 146_097;
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    (year as u32, month as u32, day as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(second: u64) -> String {
        let mut text = *b"0000-00-00T00:00:00.000Z";
        write_second(second, &mut text);
        String::from_utf8(text.to_vec()).unwrap()
    }

    #[test]
    fn known_moments() {
        assert_eq!(text(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(text(951_782_399), "2000-02-28T23:59:59.000Z");
        assert_eq!(text(951_782_400), "2000-02-29T00:00:00.000Z");
        assert_eq!(text(1_709_251_199), "2024-02-29T23:59:59.000Z");
        assert_eq!(text(4_107_542_400), "2100-03-01T00:00:00.000Z");
    }

    #[test]
    fn milliseconds_and_moments_before_the_anchor() {
        let mut clock = WallClock::new();
        clock.at_anchor = Duration::from_millis(1_709_251_199_250);
        let anchor = clock.anchor;
        assert_eq!(clock.rfc3339(anchor + Duration::from_millis(749)), b"2024-02-29T23:59:59.999Z");
        assert_eq!(clock.rfc3339(anchor + Duration::from_millis(750)), b"2024-03-01T00:00:00.000Z");
        let before = anchor.checked_sub(Duration::from_millis(250)).unwrap();
        assert_eq!(clock.rfc3339(before), b"2024-02-29T23:59:59.000Z");
    }
}
