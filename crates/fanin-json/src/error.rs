//! What is wrong with a body that is not JSON, and where.

use std::fmt;

/// Why some bytes are not a JSON document that Fanin accepts.
///
/// `Display` is one line for a log or a client: what was expected, what was there, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kind} at line {line}, column {column} (byte {offset})")]
pub struct JsonError {
    /// What is wrong.
    pub kind: JsonErrorKind,
    /// Offset in bytes from the start of the body, counted from 0.
    pub offset: usize,
    /// Line, counted from 1; lines end with LF.
    pub line: u32,
    /// Column in characters, counted from 1.
    pub column: u32,
}

/// The kinds of [`JsonError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JsonErrorKind {
    /// The body ends where something else had to follow.
    UnexpectedEnd {
        /// What had to follow, e.g. "a value".
        expected: &'static str,
    },
    /// Another byte than `expected`.
    Unexpected {
        /// The byte that is there.
        found: u8,
        /// What was expected.
        expected: &'static str,
    },
    /// A control character (below U+0020) is unescaped in a string.
    Control(u8),
    /// The bytes are not UTF-8.
    Utf8,
    /// Arrays and objects are nested deeper than allowed.
    TooDeep {
        /// The depth allowed.
        limit: usize,
    },
    /// The body is larger than offsets of 32 bits can name.
    TooLarge,
}

impl fmt::Display for JsonErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::UnexpectedEnd { expected } => write!(f, "expected {expected}, found the end"),
            Self::Unexpected { found: 0xEF, expected } => {
                write!(f, "expected {expected}, found byte 0xEF (a byte order mark?)")
            }
            Self::Unexpected { found, expected } if found.is_ascii_graphic() => {
                write!(f, "expected {expected}, found `{}`", char::from(found))
            }
            Self::Unexpected { found, expected } => {
                write!(f, "expected {expected}, found byte 0x{found:02X}")
            }
            Self::Control(byte) => write!(f, "control character 0x{byte:02X} in a string"),
            Self::Utf8 => write!(f, "not UTF-8"),
            Self::TooDeep { limit } => write!(f, "nested deeper than {limit}"),
            Self::TooLarge => write!(f, "larger than 4 GiB"),
        }
    }
}

/// A fault as the scanner sees it; line and column are counted only when it is reported.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fault {
    pub(crate) kind: JsonErrorKind,
    pub(crate) at: usize,
}

impl Fault {
    /// `expected` was not found at `at`: another byte or the end is there.
    #[cold]
    pub(crate) fn expected(bytes: &[u8], at: usize, expected: &'static str) -> Self {
        let kind = match bytes.get(at) {
            Some(&found) => JsonErrorKind::Unexpected { found, expected },
            None => JsonErrorKind::UnexpectedEnd { expected },
        };
        Self { kind, at: at.min(bytes.len()) }
    }

    #[cold]
    pub(crate) fn locate(self, bytes: &[u8]) -> JsonError {
        let before = &bytes[..self.at.min(bytes.len())];
        let line_start = memchr::memrchr(b'\n', before).map_or(0, |lf| lf + 1);
        let lines = memchr::memchr_iter(b'\n', before).count();
        // Continuation bytes of UTF-8 do not start a character.
        let characters = before[line_start..].iter().filter(|&&b| b & 0xC0 != 0x80).count();
        JsonError {
            kind: self.kind,
            offset: self.at,
            line: u32::try_from(lines + 1).unwrap_or(u32::MAX),
            column: u32::try_from(characters + 1).unwrap_or(u32::MAX),
        }
    }
}
