//! Path checks, escaped slashes, and the decoding of path parameters.

use std::borrow::Cow;

use fanin_config::RequestSlashes;
use percent_encoding::percent_decode_str;

/// Why a path is answered 400.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PathError {
    /// A `%` that two hexadecimal digits do not follow.
    Encoding,
    /// A segment `.` or `..`, encoded or not.
    DotSegment,
    /// `%2F`, `%5C` or a backslash.
    EscapedSlash,
    /// A decoded parameter is not UTF-8.
    Utf8,
}

impl PathError {
    pub(crate) fn detail(self) -> &'static str {
        match self {
            PathError::Encoding => "the path has a '%' that is not followed by two hexadecimal digits",
            PathError::DotSegment => "the path has a segment '.' or '..'",
            PathError::EscapedSlash => "the path has an escaped slash or a backslash ('%2F', '%5C')",
            PathError::Utf8 => "a part of the path is not UTF-8 when decoded",
        }
    }
}

/// Checks the whole path, independent of routes, in one pass over the bytes.
pub(crate) fn check(path: &str, slashes: RequestSlashes) -> Result<(), PathError> {
    let bytes = path.as_bytes();
    let mut at = 0;
    // The number of dots in the segment so far; `None` once it has another character.
    let mut dots = Some(0_u32);
    while at < bytes.len() {
        let (byte, width) = match bytes[at] {
            b'%' => match (bytes.get(at + 1).and_then(hex), bytes.get(at + 2).and_then(hex)) {
                (Some(high), Some(low)) => (high << 4 | low, 3),
                _ => return Err(PathError::Encoding),
            },
            byte => (byte, 1),
        };
        // Only a raw slash ends a segment: a parameter with "../" that is kept is refused where it enters an upstream's path.
        if byte == b'/' && width == 1 {
            if matches!(dots, Some(1 | 2)) {
                return Err(PathError::DotSegment);
            }
            dots = Some(0);
        } else if byte == b'.' {
            dots = dots.map(|count| count + 1);
        } else {
            if matches!(byte, b'/' | b'\\') && slashes == RequestSlashes::Refuse {
                return Err(PathError::EscapedSlash);
            }
            dots = None;
        }
        at += width;
    }
    if matches!(dots, Some(1 | 2)) { Err(PathError::DotSegment) } else { Ok(()) }
}

/// The path with `/` for each escaped slash and each backslash; `None` if it has none.
pub(crate) fn with_plain_slashes(path: &str) -> Option<String> {
    let end =
        |part: &str| [r"\", "%5c", "%5C", "%2f", "%2F"].into_iter().find(|slash| part.starts_with(slash)).map(str::len);
    let mut found = path.match_indices(['%', '\\']).filter_map(|(at, _)| Some((at, at + end(&path[at..])?))).peekable();
    found.peek()?;
    let (mut plain, mut from) = (String::with_capacity(path.len()), 0);
    for (start, end) in found {
        plain.push_str(&path[from..start]);
        plain.push('/');
        from = end;
    }
    Some(plain + &path[from..])
}

fn hex(byte: &u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    }
}

/// Decodes a parameter of a path that [`check`] has passed.
pub(crate) fn decode(raw: &str) -> Result<Cow<'_, str>, PathError> {
    if !raw.as_bytes().contains(&b'%') {
        return Ok(Cow::Borrowed(raw));
    }
    percent_decode_str(raw).decode_utf8().map_err(|_| PathError::Utf8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dot_segments_are_refused_however_written() {
        for path in ["/a/../b", "/..", "/.", "/a/.", "/./a", "/%2e%2E/a", "/a/.%2e", "/a/%2E", ".."] {
            assert_eq!(check(path, RequestSlashes::Keep), Err(PathError::DotSegment), "{path}");
        }
        for path in ["/", "", "//", "/a//b/", "/...", "/a.b", "/.well-known", "/a/..b", "/a%2F..%2Fb", "/%C3%BC", "*"] {
            assert_eq!(check(path, RequestSlashes::Keep), Ok(()), "{path}");
        }
    }

    #[test]
    fn broken_encodings_are_refused() {
        for path in ["/%", "/%2", "/%zz", "/a%2/b", "/%%30"] {
            assert_eq!(check(path, RequestSlashes::Keep), Err(PathError::Encoding), "{path}");
        }
    }

    #[test]
    fn escaped_slashes_are_refused_or_become_slashes() {
        for (path, plain) in [
            ("/a%2Fb", "/a/b"),
            ("/a%2f%5C", "/a//"),
            ("%5cx\\y", "/x/y"),
            ("/%20%2Fü", "/%20/ü"),
            ("/a%2F..", "/a/.."),
        ] {
            assert_eq!(check(path, RequestSlashes::Refuse), Err(PathError::EscapedSlash), "{path}");
            assert_eq!(with_plain_slashes(path).as_deref(), Some(plain));
        }
        for path in ["/a/b", "/a%20b", "/a%252Fb", "/a%2", ""] {
            assert_eq!(with_plain_slashes(path), None, "{path}");
        }
        assert_eq!(check("/a%252Fb", RequestSlashes::Refuse), Ok(()));
    }

    #[test]
    fn parameters_are_decoded_once() {
        assert_eq!(decode("a%2Fb").unwrap(), "a/b");
        assert_eq!(decode("a%252Fb").unwrap(), "a%2Fb");
        assert_eq!(decode("a+b").unwrap(), "a+b");
        assert_eq!(decode("%ff"), Err(PathError::Utf8));
    }
}
