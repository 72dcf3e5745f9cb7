//! Reads latencies, without allocating.

/// Unit of a latency.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Microseconds (Apache's `%D`).
    Us,
    /// Milliseconds (Jetty's latency, Apache's `%{ms}T`).
    Ms,
    /// Seconds (nginx's `$request_time`, Apache's `%T`).
    S,
}

impl Unit {
    fn micros(self) -> u64 {
        match self {
            Unit::Us => 1,
            Unit::Ms => 1_000,
            Unit::S => 1_000_000,
        }
    }
}

/// A number as a log writes it: digits, and perhaps a point and more digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Number {
    whole: u64,
    /// Millionths.
    fraction: u64,
    /// It has a point.
    pub(crate) decimal: bool,
}

impl Number {
    /// The number that `text` begins with, and what follows.
    pub(crate) fn prefix(text: &[u8]) -> Option<(Number, &[u8])> {
        let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
        // More digits than a month has microseconds are no latency.
        if digits == 0 || digits > 15 {
            return None;
        }
        let (head, mut rest) = text.split_at(digits);
        let whole = head.iter().fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0'));
        let (mut fraction, mut unit, mut decimal) = (0, 100_000, false);
        if let [b'.', b'0'..=b'9', ..] = rest {
            (decimal, rest) = (true, &rest[1..]);
            while let [digit @ b'0'..=b'9', more @ ..] = rest {
                fraction += u64::from(digit - b'0') * unit;
                unit /= 10;
                rest = more;
            }
        }
        Some((Number { whole, fraction, decimal }, rest))
    }

    /// All of `text` as a number.
    pub(crate) fn all(text: &[u8]) -> Option<Number> {
        Number::prefix(text).and_then(|(number, rest)| rest.is_empty().then_some(number))
    }

    /// In microseconds, what is below dropped.
    pub(crate) fn micros(self, unit: Unit) -> u64 {
        self.whole.saturating_mul(unit.micros()).saturating_add(self.fraction * unit.micros() / 1_000_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_all_units() {
        let read = |text: &str, unit| Number::all(text.as_bytes()).map(|number| number.micros(unit));
        assert_eq!(read("0.400", Unit::S), Some(400_000));
        assert_eq!(read("12.3456789", Unit::S), Some(12_345_678));
        assert_eq!(read("1.234", Unit::Ms), Some(1_234));
        assert_eq!(read("400", Unit::Ms), Some(400_000));
        assert_eq!(read("400", Unit::Us), Some(400));
        for wrong in ["", "-", ".5", "1.", "1e3", "+1", "-1", "1,5", "9999999999999999"] {
            assert_eq!(read(wrong, Unit::S), None, "{wrong}");
        }
    }
}
