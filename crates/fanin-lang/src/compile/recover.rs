//! Error recovery: more than the first syntax error of a file.
//!
//! The parser stops at its first error. What it stopped in, a statement of the top level, is blanked
//! out and the rest parsed again, so that an error in one function does not hide those in others.

use arcstr::ArcStr;

use super::{Parsed, parse};
use crate::error::Diagnostic;

/// Most errors that are reported for one file.
const MOST: usize = 10;

/// A file with syntax errors.
pub(crate) struct Broken {
    pub(crate) errors: Vec<Diagnostic>,
    /// What is left without them, if that can be parsed.
    pub(crate) rest: Option<Parsed>,
}

/// Parses a file, finding more than its first error.
pub(crate) fn parse_all(name: &ArcStr, text: &str) -> Result<Parsed, Box<Broken>> {
    let mut errors = match parse(name, text) {
        Ok(parsed) => return Ok(parsed),
        Err(error) => vec![error],
    };
    let mut left = text.to_owned();
    while errors.len() < MOST {
        let at = errors.last().map_or(0, |error| error.position.span.0 as usize).min(left.len());
        let Some((from, to)) = chunk(&left, at) else { break };
        let blank: String = left[from..to]
            .chars()
            .map(|c| if c == '\n' { "\n".to_owned() } else { " ".repeat(c.len_utf8()) })
            .collect();
        left.replace_range(from..to, &blank);
        match parse(name, &left) {
            Ok(parsed) => return Err(Box::new(Broken { errors, rest: Some(parsed) })),
            Err(error) if errors.iter().any(|other| other.position.span.0 == error.position.span.0) => break,
            Err(error) => errors.push(error),
        }
    }
    Err(Box::new(Broken { errors, rest: None }))
}

/// The statement of the top level that a place is in. An error at its very first word is the fault
/// of the one before, which has not ended.
fn chunk(text: &str, at: usize) -> Option<(usize, usize)> {
    let mut starts = Vec::new();
    let mut offset = 0;
    for line in text.split_inclusive('\n') {
        let first = line.bytes().next().unwrap_or(b'\n');
        if first.is_ascii_alphabetic() || first == b'_' || first == b'"' || first == b'\'' || first == b'@' {
            // What continues with the statement above.
            if !line.starts_with("else") && !line.starts_with("elif") {
                starts.push(offset);
            }
        }
        offset += line.len();
    }
    let mut index = starts.iter().rposition(|start| *start <= at)?;
    if starts[index] == at && index > 0 {
        index -= 1;
    }
    Some((starts[index], starts.get(index + 1).copied().unwrap_or(text.len())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<u32> {
        match parse_all(&ArcStr::from("t.star"), text) {
            Ok(_) => Vec::new(),
            Err(broken) => broken.errors.iter().map(|error| error.position.line).collect(),
        }
    }

    #[test]
    fn errors_of_several_functions_are_told() {
        assert_eq!(lines("def a():\n    return 1 +\n\ndef b():\n    return 2\n\ndef c():\n    x = = 2\n"), [2, 8]);
        assert_eq!(lines("def a():\n    return 1\n"), Vec::<u32>::new());
    }

    #[test]
    fn a_bracket_that_is_not_closed_is_told_once() {
        assert_eq!(lines("def a():\n    return f(1\n\ndef b():\n    return 2\n\ndef c():\n    return 3\n").len(), 1);
        assert_eq!(lines("x = [1,\n").len(), 1);
    }
}
