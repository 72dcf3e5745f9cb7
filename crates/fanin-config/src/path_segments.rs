//! Whether a path names the same resource for every backend, also for one that decodes it before it splits it.

use crate::upstream::http::EscapedSlashes;

/// Why a path may name another resource than it seems to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnsafeSegment {
    /// A segment `.` or `..`.
    #[error("has a segment \".\" or \"..\"")]
    Dots,
    /// An escaped slash or backslash, and the upstream does not take any.
    #[error("has an escaped slash or backslash")]
    Slash,
    /// A `%` that two hexadecimal digits do not follow.
    #[error("has a \"%\" that two hexadecimal digits do not follow")]
    Escape,
    /// An escaped control character, such as NUL or a line end.
    #[error("has a control character")]
    Control,
}

/// Checks a path as it is sent, percent-encoded. Backends differ in whether they decode before they split at slashes, how often,
/// whether a backslash is a slash, and whether `;` ends a segment. So each segment is judged as it is, decoded once and decoded
/// twice.
///
/// # Errors
/// What is wrong with the first unsafe segment.
pub fn check_segments(path: &str, slashes: EscapedSlashes) -> Result<(), UnsafeSegment> {
    if !has_whole_escapes(path) {
        return Err(UnsafeSegment::Escape);
    }
    path.split('/').try_for_each(|segment| check_value(segment, slashes))
}

/// Whether two hexadecimal digits follow each `%`. Backends refuse other text, or each reads it in its own way.
#[must_use]
pub fn has_whole_escapes(text: &str) -> bool {
    let is_digit = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_hexdigit);
    text.split('%').skip(1).map(str::as_bytes).all(|rest| is_digit(rest.first()) && is_digit(rest.get(1)))
}

/// Checks a value of a path, as it is, decoded once and decoded twice. Slashes in it are judged like escaped ones.
///
/// # Errors
/// What is wrong with it.
pub fn check_value(value: &str, slashes: EscapedSlashes) -> Result<(), UnsafeSegment> {
    check_bytes(value.bytes(), slashes)?;
    if value.contains('%') {
        let once = Decoded(value.bytes());
        check_bytes(once.clone(), slashes)?;
        check_bytes(Decoded(once), slashes)?;
    }
    Ok(())
}

fn check_bytes(bytes: impl Iterator<Item = u8>, slashes: EscapedSlashes) -> Result<(), UnsafeSegment> {
    // The number of dots of the part so far; `None` once it has another character before any `;`.
    let mut dots = Some(0_u32);
    let mut parameters = false;
    let mut found = Ok(());
    for byte in bytes {
        match byte {
            b'/' | b'\\' => {
                if matches!(dots, Some(1 | 2)) {
                    return Err(UnsafeSegment::Dots);
                }
                (dots, parameters) = (Some(0), false);
                if slashes == EscapedSlashes::Refuse {
                    // Not at once: dot segments are the better reason.
                    found = Err(UnsafeSegment::Slash);
                }
            }
            0..32 | 127 => return Err(UnsafeSegment::Control),
            b';' => parameters = true,
            _ if parameters => {}
            b'.' => dots = dots.map(|count| count + 1),
            _ => dots = None,
        }
    }
    if matches!(dots, Some(1 | 2)) { Err(UnsafeSegment::Dots) } else { found }
}

/// Percent-decoded bytes. Of an iterator, so that decoding twice needs no memory.
#[derive(Clone)]
struct Decoded<I>(I);

impl<I: Iterator<Item = u8> + Clone> Iterator for Decoded<I> {
    type Item = u8;

    fn next(&mut self) -> Option<u8> {
        let byte = self.0.next()?;
        if byte != b'%' {
            return Some(byte);
        }
        let mut ahead = self.0.clone();
        let mut digit = || char::from(ahead.next()?).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        let (Some(high), Some(low)) = (digit(), digit()) else { return Some(byte) };
        self.0 = ahead;
        Some(high << 4 | low)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dot_segments_however_written() {
        for path in [
            "/..",
            "/.",
            "/a/../b",
            "/a/./b",
            "/%2e%2E/a",
            "/.%2e",
            "/%252e%252e",
            "/%25%32%65.",
            "/..;/a",
            "/..;x=1",
            "/%2e%2e;a",
            "/..%3Bx",
            "/..%253b",
            "/a%2F..",
            "/..%2fa",
            "/a%5c..%5cb",
            "/a%252f..",
            "/.;",
        ] {
            for slashes in [EscapedSlashes::Refuse, EscapedSlashes::Encode] {
                assert_eq!(check_segments(path, slashes), Err(UnsafeSegment::Dots), "{path}");
            }
        }
    }

    #[test]
    fn escaped_slashes_are_refused_or_kept() {
        for path in ["/a%2Fb", "/a%2f", "/a%5Cb", "/a%252Fb", "/a%25%32%66b", "/%2F"] {
            assert_eq!(check_segments(path, EscapedSlashes::Refuse), Err(UnsafeSegment::Slash), "{path}");
            assert_eq!(check_segments(path, EscapedSlashes::Encode), Ok(()), "{path}");
        }
    }

    #[test]
    fn control_characters_are_refused() {
        for path in ["/a%00", "/a%0d%0aX: y", "/%7f", "/a%2500"] {
            assert_eq!(check_segments(path, EscapedSlashes::Encode), Err(UnsafeSegment::Control), "{path}");
        }
    }

    #[test]
    fn broken_escapes_are_refused() {
        for path in ["/%", "/a%2", "/%zz", "/%u002e%u002e", "/%%30"] {
            assert_eq!(check_segments(path, EscapedSlashes::Encode), Err(UnsafeSegment::Escape), "{path}");
        }
    }

    #[test]
    fn other_paths_are_safe() {
        for path in [
            "/", "/a/b/", "/a//b", "/...", "/.a", "/a..", "/a;b/c", "/%C3%BC", "/50%25", "/a%20b", "/50%25zz",
            "/..a;..",
        ] {
            assert_eq!(check_segments(path, EscapedSlashes::Refuse), Ok(()), "{path}");
        }
    }
}
