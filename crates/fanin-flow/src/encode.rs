//! Paths and queries of calls: templates filled with percent-encoded parameters.
//!
//! A parameter never leaves its segment: all but RFC 3986's unreserved characters are encoded, and filled paths are refused that a
//! backend could read as others ([`check_segments`]). So data of a client cannot choose another resource.

use fanin_config::{EscapedSlashes, UnsafeSegment, check_segments, check_value, has_whole_escapes};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// RFC 3986, section 2.3: characters that are never encoded.
const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Why a path cannot be sent. The text is for the flow's author.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// The path does not begin with a slash.
    #[error("the path {0:?} does not start with \"/\"")]
    NotAbsolute(String),
    /// A `{` without its `}`, or an empty name.
    #[error("the path template {0:?} has an unclosed brace or an empty name")]
    Template(String),
    /// The call lacks a parameter of the template.
    #[error("the path template {path:?} needs the parameter {name:?}; write params = {{{name:?}: ...}}")]
    Missing {
        /// The template.
        path: String,
        /// The parameter.
        name: String,
    },
    /// The call has a parameter that is not in the template.
    #[error("the path template {path:?} has no parameter {name:?}")]
    Unused {
        /// The template.
        path: String,
        /// The parameter.
        name: String,
    },
    /// A parameter that some backends would read as another path.
    #[error("the path parameter {name:?} is {value:?}, which {problem}")]
    Value {
        /// The parameter.
        name: String,
        /// Its value.
        value: String,
        /// What is wrong with it.
        problem: UnsafeSegment,
    },
    /// A path that some backends would read as another one.
    #[error("the path {path:?} {problem}")]
    Segment {
        /// The whole path.
        path: String,
        /// What is wrong with it.
        problem: UnsafeSegment,
    },
    /// A character that must be encoded in a path.
    #[error("the path {path:?} contains {character:?}; write data into params or query, which are encoded")]
    Character {
        /// The path.
        path: String,
        /// The first bad character.
        character: char,
    },
    /// An empty parameter, which would make an empty segment.
    #[error("the path parameter {0:?} is empty")]
    Empty(String),
}

/// A set of ASCII characters, by byte.
const fn set(letters: bool, others: &[u8]) -> [bool; 256] {
    let mut set = [false; 256];
    let mut byte = 0;
    while byte < 128 {
        set[byte] = letters && (byte as u8).is_ascii_alphanumeric();
        byte += 1;
    }
    let mut at = 0;
    while at < others.len() {
        set[others[at] as usize] = true;
        at += 1;
    }
    set
}

/// [`UNRESERVED`] as a table.
const AS_IT_IS: [bool; 256] = set(true, b"-._~");
/// Characters allowed in the literal parts of a path.
const PLAIN: [bool; 256] = set(true, b"-._~!$&'()*+,;=:@/%");

/// Whether a value can be a part of a path as it is.
pub fn is_path_text(value: &str) -> bool {
    value.bytes().all(|byte| PLAIN[usize::from(byte)]) && has_whole_escapes(value)
}

/// Appends `value` percent-encoded as one path segment or query component.
pub fn component(out: &mut String, value: &str) {
    if value.bytes().all(|byte| AS_IT_IS[usize::from(byte)]) {
        out.push_str(value);
    } else {
        out.extend(utf8_percent_encode(value, UNRESERVED));
    }
}

/// Fills `template`'s `{name}` parameters and appends the path to `out`.
///
/// # Errors
/// [`PathError`] when the template is broken, a parameter is missing, unused or empty, or the filled path is unsafe.
pub fn path(
    out: &mut String,
    template: &str,
    params: &[(&str, &str)],
    slashes: EscapedSlashes,
) -> Result<(), PathError> {
    if !template.starts_with('/') {
        return Err(PathError::NotAbsolute(template.to_owned()));
    }
    let begin = out.len();
    let mut used = 0_u64;
    let mut rest = template;
    while let Some(open) = rest.bytes().position(|byte| !PLAIN[usize::from(byte)]) {
        out.push_str(&rest[..open]);
        let close = match rest.as_bytes()[open] {
            b'{' => rest.bytes().skip(open).position(|byte| byte == b'}').filter(|&close| close > 1),
            b'}' => None,
            _ => return Err(bad_character(template, &rest[open..])),
        };
        let Some(close) = close else {
            return Err(PathError::Template(template.to_owned()));
        };
        let name = &rest[open + 1..open + close];
        let Some(at) = params.iter().position(|(n, _)| *n == name) else {
            return Err(PathError::Missing { path: template.to_owned(), name: name.to_owned() });
        };
        if params[at].1.is_empty() {
            return Err(PathError::Empty(name.to_owned()));
        }
        used |= 1 << (at & 63);
        component(out, params[at].1);
        rest = &rest[open + close + 1..];
    }
    out.push_str(rest);
    for (at, (name, _)) in params.iter().enumerate() {
        if used & (1 << (at & 63)) == 0 {
            return Err(PathError::Unused { path: template.to_owned(), name: (*name).to_owned() });
        }
    }
    // The path begins with a slash, so a pair ends with each further character.
    let may_be_unsafe = |pair: &[u8]| pair[1] == b'%' || pair == b"/.";
    if out.as_bytes()[begin..].windows(2).any(may_be_unsafe) {
        check_segments(&out[begin..], slashes).map_err(|problem| refused(&out[begin..], params, slashes, problem))?;
    }
    Ok(())
}

/// The error for an unsafe path: names the parameter that makes it so, if one does alone.
#[cold]
fn refused(path: &str, params: &[(&str, &str)], slashes: EscapedSlashes, problem: UnsafeSegment) -> PathError {
    for (name, value) in params {
        if let Err(problem) = check_value(value, slashes) {
            return PathError::Value { name: (*name).to_owned(), value: (*value).to_owned(), problem };
        }
    }
    PathError::Segment { path: path.to_owned(), problem }
}

/// `rest` begins with a character that is not allowed in a path, so it is not empty.
#[cold]
fn bad_character(template: &str, rest: &str) -> PathError {
    PathError::Character { path: template.to_owned(), character: rest.chars().next().unwrap_or_default() }
}

/// Appends `name=value` with `?` or `&` before it, both encoded.
pub fn pair(out: &mut String, first: &mut bool, name: &str, value: &str) {
    out.push(if std::mem::take(first) { '?' } else { '&' });
    component(out, name);
    out.push('=');
    component(out, value);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(template: &str, params: &[(&str, &str)]) -> Result<String, PathError> {
        let mut out = String::new();
        path(&mut out, template, params, EscapedSlashes::Refuse).map(|()| out)
    }

    #[test]
    fn parameters_are_encoded() {
        assert_eq!(fill("/a/{id}/b", &[("id", "x,y z?#")]).unwrap(), "/a/x%2Cy%20z%3F%23/b");
        assert_eq!(fill("/{a}-{b}", &[("a", "1"), ("b", "é")]).unwrap(), "/1-%C3%A9");
    }

    #[test]
    fn dot_segments_are_refused() {
        for value in ["..", "../x", "%2e%2e", "..;"] {
            let PathError::Value { problem, .. } = fill("/a/{id}/b", &[("id", value)]).unwrap_err() else {
                panic!("{value}")
            };
            assert_eq!(problem, UnsafeSegment::Dots, "{value}");
        }
        for path in ["/a/../b", "/a/%2e%2E/b", "/a/b/..;x"] {
            assert!(matches!(fill(path, &[]), Err(PathError::Segment { problem: UnsafeSegment::Dots, .. })), "{path}");
        }
        let dots = [("x", "."), ("y", ".")];
        assert!(matches!(fill("/a/{x}{y}", &dots), Err(PathError::Segment { .. }) | Err(PathError::Value { .. })));
        assert_eq!(fill("/.well-known/x", &[]).unwrap(), "/.well-known/x");
    }

    #[test]
    fn invalid_paths() {
        assert!(matches!(fill("a", &[]), Err(PathError::NotAbsolute(_))));
        assert!(matches!(fill("/{", &[]), Err(PathError::Template(_))));
        assert!(matches!(fill("/}", &[]), Err(PathError::Template(_))));
        assert!(matches!(fill("/{}", &[]), Err(PathError::Template(_))));
        assert!(matches!(fill("/{id}", &[]), Err(PathError::Missing { .. })));
        assert!(matches!(fill("/{id}", &[("id", "")]), Err(PathError::Empty(_))));
        assert!(matches!(fill("/x", &[("id", "1")]), Err(PathError::Unused { .. })));
        assert!(matches!(fill("/x?y=1", &[]), Err(PathError::Character { character: '?', .. })));
        assert!(matches!(fill("/x\r\n", &[]), Err(PathError::Character { .. })));
    }

    #[test]
    fn query_parameters() {
        let (mut out, mut first) = (String::from("/x"), true);
        pair(&mut out, &mut first, "a b", "1&2");
        pair(&mut out, &mut first, "c", "");
        assert_eq!(out, "/x?a%20b=1%262&c=");
    }
}
