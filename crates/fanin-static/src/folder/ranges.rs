//! Ranges of bytes that a client asks for (RFC 9110, section 14).

use std::ops::Range;

/// Most ranges of one request. A request with more gets the whole file: many small ones cost more than that.
const MOST: usize = 16;

/// What a `Range` header means for a file.
#[derive(Debug, PartialEq, Eq)]
pub enum Ranges {
    /// The header is not understood, or asks for too much: the whole file.
    Whole,
    /// Parts of the file, in the order requested.
    Parts(Vec<Range<u64>>),
    /// Nothing that was requested is in the file.
    Unsatisfiable,
}

/// Reads a header for a file of so many bytes.
pub fn parse(header: &[u8], size: u64) -> Ranges {
    let Some(list) = strip_unit(header) else { return Ranges::Whole };
    let mut parts: Vec<Range<u64>> = Vec::new();
    let mut requested = 0;
    for one in list.split(|byte| *byte == b',').map(<[u8]>::trim_ascii).filter(|one| !one.is_empty()) {
        requested += 1;
        // An invalid range makes the whole header invalid, which is then ignored.
        let Some(range) = range(one, size) else { return Ranges::Whole };
        if requested > MOST {
            return Ranges::Whole;
        }
        if !range.is_empty() {
            parts.push(range);
        }
    }
    match parts.as_slice() {
        [] if requested == 0 => Ranges::Whole,
        [] => Ranges::Unsatisfiable,
        // Overlapping ranges would make more of a file than it has.
        parts if parts.iter().map(|part| part.end - part.start).sum::<u64>() > size => Ranges::Whole,
        _ => Ranges::Parts(parts),
    }
}

fn strip_unit(header: &[u8]) -> Option<&[u8]> {
    let (unit, list) = header.split_at(header.iter().position(|byte| *byte == b'=')?);
    unit.trim_ascii().eq_ignore_ascii_case(b"bytes").then(|| &list[1..])
}

/// One range, empty if it is behind the end of the file. `None` if it is no range.
fn range(text: &[u8], size: u64) -> Option<Range<u64>> {
    let dash = text.iter().position(|byte| *byte == b'-')?;
    let (first, last) = (number(&text[..dash])?, number(&text[dash + 1..])?);
    Some(match (first, last) {
        (None, None) => return None,
        // The last bytes.
        (None, Some(count)) => size.saturating_sub(count)..size,
        (Some(first), None) => first.min(size)..size,
        (Some(first), Some(last)) if last < first => return None,
        (Some(first), Some(last)) => first.min(size)..last.saturating_add(1).min(size),
    })
}

/// A number, or nothing. The outer `None`: it is neither.
#[allow(clippy::option_option, reason = "nothing is not the same as nonsense")]
fn number(text: &[u8]) -> Option<Option<u64>> {
    if text.is_empty() {
        return Some(None);
    }
    if !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    // A number that is too large is behind the end of every file.
    let value =
        text.iter().fold(0_u64, |value, digit| value.saturating_mul(10).saturating_add(u64::from(digit - b'0')));
    Some(Some(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_range_or_several() {
        let parts = |parts: &[(u64, u64)]| Ranges::Parts(parts.iter().map(|(from, to)| *from..*to).collect());
        for (header, expected) in [
            ("bytes=0-0", parts(&[(0, 1)])),
            ("bytes=2-5", parts(&[(2, 6)])),
            ("Bytes = 2-5", parts(&[(2, 6)])),
            ("bytes=7-", parts(&[(7, 10)])),
            ("bytes=-3", parts(&[(7, 10)])),
            ("bytes=-30", parts(&[(0, 10)])),
            ("bytes=8-99999999999999999999999", parts(&[(8, 10)])),
            ("bytes=0-1, 4-5 ,-1", parts(&[(0, 2), (4, 6), (9, 10)])),
            ("bytes=0-1,20-30", parts(&[(0, 2)])),
            ("bytes=5-6,0-1", parts(&[(5, 7), (0, 2)])),
            ("bytes=10-", Ranges::Unsatisfiable),
            ("bytes=20-30", Ranges::Unsatisfiable),
            ("bytes=-0", Ranges::Unsatisfiable),
            ("bytes=", Ranges::Whole),
            ("bytes=-", Ranges::Whole),
            ("bytes=5-2", Ranges::Whole),
            ("bytes=a-b", Ranges::Whole),
            ("bytes=0-1,x", Ranges::Whole),
            ("bytes=1", Ranges::Whole),
            ("items=0-1", Ranges::Whole),
            ("bytes=+1-2", Ranges::Whole),
            ("", Ranges::Whole),
            ("bytes=0-9,0-9", Ranges::Whole),
        ] {
            assert_eq!(parse(header.as_bytes(), 10), expected, "{header}");
        }
        assert_eq!(parse(b"bytes=0-0", 0), Ranges::Unsatisfiable);
        assert_eq!(parse(b"bytes=-1", 0), Ranges::Unsatisfiable);
        let many = |count: usize| format!("bytes={}", vec!["0-0"; count].join(","));
        assert!(matches!(parse(many(MOST).as_bytes(), 1000), Ranges::Parts(parts) if parts.len() == MOST));
        assert_eq!(parse(many(MOST + 1).as_bytes(), 1000), Ranges::Whole);
    }
}
