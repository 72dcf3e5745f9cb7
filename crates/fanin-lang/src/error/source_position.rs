//! Places in source files.

use std::fmt;

use arcstr::ArcStr;

/// A place in a source file. Lines and columns count from 1, columns in characters.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Position {
    /// Name of the file as the loader gave it.
    pub file: ArcStr,
    /// Line.
    pub line: u32,
    /// Column.
    pub column: u32,
    /// Bytes of the file from the start of the place to its end.
    pub span: (u32, u32),
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

/// Line and column of an offset, both from 1.
pub(crate) fn line_column(text: &str, offset: u32) -> (u32, u32) {
    let mut at = (offset as usize).min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    let before = &text[..at];
    let start = before.rfind('\n').map_or(0, |newline| newline + 1);
    let line = before.bytes().filter(|byte| *byte == b'\n').count() + 1;
    (line as u32, before[start..].chars().count() as u32 + 1)
}

/// The place of a span of bytes.
pub(crate) fn position(file: &ArcStr, text: &str, span: (u32, u32)) -> Position {
    let (line, column) = line_column(text, span.0);
    Position { file: file.clone(), line, column, span }
}
