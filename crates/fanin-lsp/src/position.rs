//! Places as editors count them: lines from 0, columns in units of UTF-16.

use lsp_types::{Position, Range};

/// The byte that a place is at; a place beyond a line's end is that end.
pub(crate) fn offset(text: &str, position: Position) -> usize {
    let mut start = 0;
    for _ in 0..position.line {
        match text[start..].find('\n') {
            Some(newline) => start += newline + 1,
            None => return text.len(),
        }
    }
    let line = text[start..].split('\n').next().unwrap_or_default();
    let mut units = 0;
    for (at, c) in line.char_indices() {
        if units >= position.character || c == '\r' {
            return start + at;
        }
        units += c.len_utf16() as u32;
    }
    start + line.len()
}

/// The place of a byte.
pub(crate) fn position(text: &str, offset: usize) -> Position {
    let mut offset = offset.min(text.len());
    while !text.is_char_boundary(offset) {
        offset -= 1;
    }
    let before = &text[..offset];
    let start = before.rfind('\n').map_or(0, |newline| newline + 1);
    let line = before.bytes().filter(|byte| *byte == b'\n').count() as u32;
    Position::new(line, before[start..].encode_utf16().count() as u32)
}

/// The place of a range of bytes.
pub(crate) fn range(text: &str, start: usize, end: usize) -> Range {
    Range::new(position(text, start), position(text, end.max(start)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_units_of_utf_16() {
        let text = "a\r\nx𝄞y\n";
        for (at, line, column) in [(0, 0, 0), (3, 1, 0), (4, 1, 1), (8, 1, 3), (9, 1, 4), (10, 2, 0)] {
            assert_eq!(position(text, at), Position::new(line, column), "{at}");
            assert_eq!(offset(text, Position::new(line, column)), at);
        }
        assert_eq!(offset(text, Position::new(0, 99)), 1);
        assert_eq!(offset(text, Position::new(99, 0)), text.len());
        assert_eq!(position(text, 99), Position::new(2, 0));
        assert_eq!(position(text, 6), position(text, 4), "within a character");
    }
}
