//! The text of strings: escapes decoded.

use std::borrow::Cow;

/// Text without escapes. The document was checked to be UTF-8, so this borrows.
pub(crate) fn plain(inside: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(inside)
}

/// Decodes the escapes of a validated string. A surrogate without its other half, which RFC 8259
/// leaves open, becomes U+FFFD.
pub(crate) fn unescape(inside: &[u8]) -> String {
    let mut text = String::with_capacity(inside.len());
    let mut rest = inside;
    while let Some(backslash) = memchr::memchr(b'\\', rest) {
        text.push_str(&plain(&rest[..backslash]));
        let mut used = 2;
        match rest.get(backslash + 1) {
            Some(b'b') => text.push('\u{8}'),
            Some(b'f') => text.push('\u{c}'),
            Some(b'n') => text.push('\n'),
            Some(b'r') => text.push('\r'),
            Some(b't') => text.push('\t'),
            Some(b'u') => {
                used = 6;
                let unit = code_unit(&rest[backslash..]);
                let low = code_unit(rest.get(backslash + 6..).unwrap_or_default());
                match (unit, low) {
                    (Some(high @ 0xD800..=0xDBFF), Some(low @ 0xDC00..=0xDFFF)) => {
                        used = 12;
                        let scalar = 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
                        text.push(char::from_u32(scalar).unwrap_or(char::REPLACEMENT_CHARACTER));
                    }
                    (unit, _) => {
                        text.push(unit.and_then(char::from_u32).unwrap_or(char::REPLACEMENT_CHARACTER));
                    }
                }
            }
            // Quote, backslash and slash stand for themselves.
            Some(&other) => text.push(char::from(other)),
            None => {}
        }
        rest = rest.get(backslash + used..).unwrap_or_default();
    }
    text.push_str(&plain(rest));
    text
}

/// The code unit of `\uXXXX` at the start of `escape`.
fn code_unit(escape: &[u8]) -> Option<u32> {
    let digits = escape.strip_prefix(b"\\u")?.get(..4)?;
    digits.iter().try_fold(0, |unit, digit| Some(unit << 4 | char::from(*digit).to_digit(16)?))
}
