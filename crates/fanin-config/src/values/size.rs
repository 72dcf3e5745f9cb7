//! Sizes in bytes as text: `"16MB"`, `"64KiB"`.

use crate::values::duration::{scaled, split_number};

const UNITS: [(&str, u64); 7] = [
    ("GiB", 1 << 30),
    ("GB", 1_000_000_000),
    ("MiB", 1 << 20),
    ("MB", 1_000_000),
    ("KiB", 1 << 10),
    ("KB", 1_000),
    ("B", 1),
];

/// Reads a size: a whole or decimal number and a unit. `KB`, `MB`, `GB` are powers of 1000; `KiB`, `MiB`, `GiB` are powers
/// of 1024; `B` or no unit is bytes. Upper and lower case are the same.
///
/// # Errors
/// A sentence that says what is wrong with the text.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let (number, unit) = split_number(text);
    let unit = unit.trim();
    if number.is_empty() {
        return Err(format!("`{text}` is not a size; write a number with a unit, such as \"16MB\" or \"64KiB\""));
    }
    let scale = if unit.is_empty() {
        1
    } else {
        match UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit)) {
            Some(&(_, scale)) => scale,
            None => {
                return Err(format!("`{unit}` is not a unit of size; use B, KB, MB, GB, KiB, MiB or GiB"));
            }
        }
    };
    scaled(number, scale.into())
        .and_then(|bytes| u64::try_from(bytes).ok())
        // Sizes are compared with `usize` and `i64` elsewhere.
        .filter(|bytes| *bytes <= i64::MAX as u64)
        .ok_or_else(|| format!("`{text}` is not a whole number of bytes below 8 EiB"))
}

/// The shortest text that [`parse_size`] reads back as the same size.
pub fn format_size(bytes: u64) -> String {
    if bytes > 0 {
        for (name, scale) in UNITS {
            if bytes.is_multiple_of(scale) {
                return format!("{}{name}", bytes / scale);
            }
        }
    }
    "0B".into()
}

/// A number of bytes as `usize`; `usize::MAX` if it does not fit.
pub(crate) fn saturating_usize(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_units() {
        for (text, bytes) in [
            ("0", 0),
            ("512", 512),
            ("512B", 512),
            ("16MB", 16_000_000),
            ("64KiB", 65_536),
            ("64kib", 65_536),
            ("1.5 MiB", 1_572_864),
            ("2GB", 2_000_000_000),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn refuses_what_is_not_a_size() {
        for (text, part) in [
            ("", "not a size"),
            ("MB", "not a size"),
            ("-1MB", "not a size"),
            ("16M", "not a unit"),
            ("1.5B", "whole number"),
            ("9300000000GB", "whole number"),
        ] {
            let error = parse_size(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn text_reads_back() {
        for bytes in [0, 1, 1000, 1024, 65_536, 16_000_000, 16 << 20, 123_456_789] {
            assert_eq!(parse_size(&format_size(bytes)), Ok(bytes));
        }
        assert_eq!(format_size(16 << 20), "16MiB");
        assert_eq!(format_size(1_000_000), "1MB");
    }
}
