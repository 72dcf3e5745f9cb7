//! Sums such as `2 + 3n + n^2`: how much of something there is at most, if a loop has `n` items.

use std::fmt;

use serde::{Serialize, Serializer};

/// Largest number of a term that a file may have. Far above anything useful, and far from overflow.
pub(crate) const MOST: u64 = 1_000_000;

/// Highest power of `n` that a file may have.
const MOST_POWER: usize = 9;

const EXAMPLE: &str = "write a number or a sum such as \"2 + 3n\" or \"n^2\"";

/// A sum of powers of `n`, each with a number that is not negative.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Polynomial {
    /// By power. The last one is not zero.
    terms: Vec<u64>,
}

impl Polynomial {
    /// A sum of terms: power of `n`, and how many times it counts.
    pub fn of(terms: impl IntoIterator<Item = (usize, u64)>) -> Polynomial {
        let mut sum = Polynomial::default();
        for (power, times) in terms.into_iter().filter(|(_, times)| *times > 0) {
            if sum.terms.len() <= power {
                sum.terms.resize(power + 1, 0);
            }
            sum.terms[power] = sum.terms[power].saturating_add(times);
        }
        sum
    }

    /// The number of a power of `n`.
    #[must_use]
    pub fn term(&self, power: usize) -> u64 {
        self.terms.get(power).copied().unwrap_or(0)
    }

    /// The highest power of `n` in it.
    #[must_use]
    pub fn degree(&self) -> usize {
        self.terms.len().saturating_sub(1)
    }

    /// The highest power of `n` in which it may be above another sum. `None` if it is not above it, whatever `n` is.
    ///
    /// What the other has left over in a higher power counts for the lower ones, because no power of a whole number above zero is
    /// below a lower power of it. It does not count for the part without `n`, as `n` may be zero.
    #[must_use]
    pub fn above(&self, most: &Polynomial) -> Option<usize> {
        let mut left = 0_i128;
        for power in (1..=self.degree().max(most.degree())).rev() {
            left += i128::from(most.term(power)) - i128::from(self.term(power));
            if left < 0 {
                return Some(power);
            }
        }
        (self.term(0) > most.term(0)).then_some(0)
    }

    /// What it is ordered by when `n` is large.
    #[must_use]
    pub fn growth(&self) -> (usize, Vec<u64>) {
        (self.terms.len(), self.terms.iter().rev().copied().collect())
    }
}

/// `2 + 3n + n^2`
impl fmt::Display for Polynomial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.terms.is_empty() {
            return f.write_str("0");
        }
        let mut between = "";
        for (power, times) in self.terms.iter().enumerate().filter(|(_, times)| **times > 0) {
            f.write_str(between)?;
            if power == 0 || *times > 1 {
                write!(f, "{times}")?;
            }
            match power {
                0 => {}
                1 => f.write_str("n")?,
                _ => write!(f, "n^{power}")?,
            }
            between = " + ";
        }
        Ok(())
    }
}

/// A number without `n`, else text.
impl Serialize for Polynomial {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        if self.degree() == 0 { to.serialize_u64(self.term(0)) } else { to.collect_str(self) }
    }
}

/// Splits off the number at the start.
fn number(text: &str) -> Option<(u64, &str)> {
    let end = text.find(|char: char| !char.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    let number = digits.parse().ok()?;
    Some((number, rest.trim_start()))
}

/// Reads `3n`, `3 * n * n` or `3n^2`: the power, and how many times it counts.
fn term(text: &str) -> Option<(usize, u64)> {
    let (mut power, mut times) = (0_usize, 1_u64);
    let mut rest = text.trim();
    loop {
        match rest.strip_prefix('n') {
            Some(after) => {
                let after = after.trim_start();
                let (more, after) = match after.strip_prefix('^') {
                    Some(after) => number(after.trim_start())?,
                    None => (1, after),
                };
                power = power.checked_add(usize::try_from(more).ok()?)?;
                rest = after;
            }
            None => {
                let (factor, after) = number(rest)?;
                times = times.checked_mul(factor)?;
                rest = after;
            }
        }
        if rest.is_empty() {
            return (power <= MOST_POWER && times <= MOST).then_some((power, times));
        }
        match rest.strip_prefix('*') {
            Some(after) => rest = after.trim_start(),
            None if rest.starts_with('n') => {}
            None => return None,
        }
    }
}

/// Reads `2 + 3n + n^2`. Terms may come in any order.
pub(crate) fn parse_polynomial(text: &str) -> Result<Polynomial, String> {
    let wrong = || format!("`{text}` is no sum of numbers and powers of n; {EXAMPLE}");
    let mut terms = Vec::new();
    for part in text.split('+') {
        terms.push(term(part).ok_or_else(wrong)?);
    }
    let sum = Polynomial::of(terms);
    if sum.terms.iter().any(|times| *times > MOST) {
        return Err(wrong());
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(text: &str) -> Polynomial {
        parse_polynomial(text).unwrap_or_else(|problem| panic!("{problem}"))
    }

    #[test]
    fn reads_sums() {
        for (text, shown) in [
            ("0", "0"),
            ("2", "2"),
            ("2 + 3n", "2 + 3n"),
            ("3n+2", "2 + 3n"),
            ("n", "n"),
            ("n*n", "n^2"),
            ("2 * n ^ 2 + n + n", "2n + 2n^2"),
            ("3 * 2n + 0n^3", "6n"),
            ("2 n n", "2n^2"),
            ("1000000n^9", "1000000n^9"),
        ] {
            assert_eq!(sum(text).to_string(), shown, "{text}");
            assert_eq!(sum(shown), sum(text));
        }
    }

    #[test]
    fn refuses_what_is_no_sum() {
        for text in [
            "",
            "+",
            "2 +",
            "2 3",
            "n2",
            "n^",
            "m",
            "2 - n",
            "1.5",
            "3*",
            "*3",
            "n^10",
            "1000001",
            "1000000 + 1",
            "99999999999999999999",
            "1000 * 1001n",
            "n^99999999999999999999",
            "(n)",
            "N",
        ] {
            let problem = parse_polynomial(text).expect_err(text);
            assert!(problem.contains("2 + 3n"), "{problem}");
        }
    }

    /// Random text of the characters of sums: what is read is shown as it can be read again, and nothing panics.
    #[test]
    fn any_text_is_read_or_refused() {
        let mut random = 1_u64;
        let mut next = |below: usize| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) as usize % below
        };
        let mut read = 0;
        for _ in 0..50_000 {
            let length = next(12);
            let text: String = (0..length).map(|_| char::from(b"0123459nn^*+ -"[next(14)])).collect();
            if let Ok(sum) = parse_polynomial(&text) {
                read += 1;
                assert_eq!(parse_polynomial(&sum.to_string()), Ok(sum), "{text}");
            }
        }
        assert!(read > 1000, "only {read}");
    }

    /// Compared with the values themselves, for every pair of small sums.
    #[test]
    fn a_sum_within_another_is_never_above_it() {
        let at = |sum: &Polynomial, n: u64| (0..3).map(|power| sum.term(power) * n.pow(power as u32)).sum::<u64>();
        let numbers = [0, 1, 2, 5];
        let all: Vec<Polynomial> = numbers
            .iter()
            .flat_map(|a| numbers.iter().flat_map(move |b| numbers.map(|c| Polynomial::of([(0, *a), (1, *b), (2, c)]))))
            .collect();
        let mut within = 0;
        for one in &all {
            for most in &all {
                if one.above(most).is_none() {
                    within += 1;
                    (0..20).for_each(|n| assert!(at(one, n) <= at(most, n), "{one} and {most} at {n}"));
                }
            }
        }
        assert!(within > all.len());
    }

    #[test]
    fn names_the_power_that_is_above() {
        for (one, most, above) in [
            ("2 + n", "2 + n", None),
            ("2 + n", "2 + n^2", None),
            ("2n + n^2", "3n^2", None),
            ("3n", "2n + n^2", None),
            ("3", "2 + 5n", Some(0)),
            ("n", "5", Some(1)),
            ("4n", "2n + n^2", Some(1)),
            ("n^2", "100 + 100n", Some(2)),
        ] {
            assert_eq!(sum(one).above(&sum(most)), above, "{one} within {most}");
        }
        assert!(sum("n^2").growth() > sum("9 + 9n").growth());
        assert!(sum("1 + 2n").growth() > sum("9 + n").growth());
    }
}
