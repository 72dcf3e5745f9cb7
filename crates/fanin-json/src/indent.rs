//! JSON for people.

use crate::doc::Doc;

/// The document with each element and member on a line of its own: lines after the first start with
/// `prefix` and one `step` for each level. Numbers and strings stay as they came.
#[must_use]
pub fn indent(doc: &Doc, prefix: &str, step: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(doc.bytes().len() * 2);
    lay_out(doc, prefix, step, |piece| out.extend_from_slice(piece));
    out
}

/// Number of bytes that [`indent`] gives, counted without making them.
#[must_use]
pub fn indented_len(doc: &Doc, prefix: &str, step: &str) -> usize {
    let mut length = 0_usize;
    lay_out(doc, prefix, step, |piece| length = length.saturating_add(piece.len()));
    length
}

fn lay_out(doc: &Doc, prefix: &str, step: &str, mut emit: impl FnMut(&[u8])) {
    let bytes: &[u8] = doc.bytes();
    let mut depth = 0_usize;
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let start = at;
        at += 1;
        let new_line = match byte {
            b' ' | b'\n' | b'\t' | b'\r' => false,
            b'{' | b'[' => {
                emit(&[byte]);
                at += bytes[at..].iter().take_while(|byte| byte.is_ascii_whitespace()).count();
                match bytes.get(at) {
                    Some(close @ (b'}' | b']')) => {
                        emit(&[*close]);
                        at += 1;
                        false
                    }
                    _ => {
                        depth += 1;
                        true
                    }
                }
            }
            b'}' | b']' => {
                depth = depth.saturating_sub(1);
                line(&mut emit, depth, prefix, step);
                emit(&[byte]);
                false
            }
            b',' => {
                emit(b",");
                true
            }
            b':' => {
                emit(b": ");
                false
            }
            b'"' => {
                // The document is valid: a backslash is followed by a byte, a string by its quote.
                while let Some(&inner) = bytes.get(at) {
                    at += if inner == b'\\' { 2 } else { 1 };
                    if inner == b'"' {
                        break;
                    }
                }
                emit(&bytes[start..at.min(bytes.len())]);
                false
            }
            _ => {
                emit(&[byte]);
                false
            }
        };
        if new_line {
            line(&mut emit, depth, prefix, step);
        }
    }
}

fn line(emit: &mut impl FnMut(&[u8]), depth: usize, prefix: &str, step: &str) {
    emit(b"\n");
    emit(prefix.as_bytes());
    for _ in 0..depth {
        emit(step.as_bytes());
    }
}
