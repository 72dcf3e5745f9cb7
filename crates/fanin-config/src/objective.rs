//! `objective` of a route: how many of its requests must be good, and how soon.

use std::fmt;
use std::time::Duration;

use crate::values::duration::{format_duration, parse_duration, split_number};

/// How many of a route's requests must be good: answered without a 5xx, and within a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Objective {
    /// The part, in millionths: 990,000 is 99 %.
    millionths: u32,
    /// How soon a good response is there.
    pub within: Duration,
}

impl Objective {
    /// The part of requests that must be good, between 0 and 1.
    pub fn ratio(&self) -> f64 {
        f64::from(self.millionths) / 1e6
    }
}

impl fmt::Display for Objective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} % < {}", f64::from(self.millionths) / 1e4, format_duration(self.within))
    }
}

const EXAMPLE: &str = "write a part and a time, such as \"99 % < 200ms\"";

/// Reads `99.9 % < 200 ms`. Spaces may be left out.
pub(crate) fn parse_objective(text: &str) -> Result<Objective, String> {
    let wrong = || format!("`{text}` is not an objective; {EXAMPLE}");
    let (part, within) = text.split_once('<').ok_or_else(wrong)?;
    let part = part.trim_end().strip_suffix('%').ok_or_else(wrong)?.trim();
    let (number, rest) = split_number(part);
    let percent: f64 = number.parse().map_err(|_| wrong())?;
    if !rest.is_empty() {
        return Err(wrong());
    }
    // Within the bounds, which end far from the largest number.
    let millionths = (percent * 1e4).round() as u32;
    if percent < 50.0 || millionths >= 1_000_000 {
        return Err(format!("`{part} %` is not between 50 % and 99.9999 %: an objective leaves some requests to fail"));
    }
    let within: String = within.chars().filter(|char| !char.is_whitespace()).collect();
    let within = parse_duration(&within)?;
    if within < Duration::from_micros(1) {
        return Err("the time of an objective is at least 1us".into());
    }
    Ok(Objective { millionths, within })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_a_part_and_a_time() {
        for (text, ratio, within, shown) in [
            ("99 % < 200 ms", 0.99, 200_000, "99 % < 200ms"),
            ("99.95%<1.5s", 0.9995, 1_500_000, "99.95 % < 1s500ms"),
            (" 50% < 1us ", 0.5, 1, "50 % < 1us"),
            ("99.9999 % < 1m", 0.999_999, 60_000_000, "99.9999 % < 1m"),
        ] {
            let objective = parse_objective(text).unwrap();
            assert_eq!((objective.ratio(), objective.within), (ratio, Duration::from_micros(within)), "{text}");
            assert_eq!(objective.to_string(), shown);
            assert_eq!(parse_objective(shown), Ok(objective));
        }
    }

    #[test]
    fn says_what_is_wrong() {
        for (text, part) in [
            ("99 %", "is not an objective"),
            ("99 < 200ms", "is not an objective"),
            ("fast", "99 % < 200ms"),
            ("100 % < 200ms", "leaves some requests to fail"),
            ("99.99999 % < 200ms", "leaves some requests to fail"),
            ("49 % < 200ms", "between 50 %"),
            ("-99 % < 200ms", "is not an objective"),
            ("99 % < 200", "has no unit"),
            ("99 % < 0", "at least 1us"),
            ("9.9.9 % < 1s", "is not an objective"),
        ] {
            let error = parse_objective(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
