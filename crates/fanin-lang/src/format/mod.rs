//! The formatter: one layout for all flows, which keeps their meaning and their comments.
//!
//! - `lines`: from text to statements, each a tree of brackets with its comments;
//! - `pieces`: what such a tree consists of; `layout`: where lines are broken;
//! - `meaning`: the syntax tree without places, to find that nothing has changed.
//!
//! The style is that of buildifier, which users of Starlark know, with line breaks as Black makes them.

mod layout;
mod lines;
mod meaning;
mod pieces;

use arcstr::ArcStr;

use self::lines::{Line, Start};
use crate::compile;
use crate::error::{Diagnostic, position};

/// Longest line, where lines can be broken.
const WIDTH: usize = 100;
/// Spaces of a block or an opened bracket.
const INDENT: usize = 4;

/// Formats a file. Formatting the result again gives the same.
///
/// # Errors
/// What keeps the file from being parsed.
pub fn format_source(name: &str, text: &str) -> Result<String, Box<Diagnostic>> {
    let name = ArcStr::from(name);
    let before = compile::parse(&name, text)?;
    let unix;
    let plain = if text.contains("\r\n") {
        unix = text.replace("\r\n", "\n");
        &unix
    } else {
        text
    };
    let formatted = write(lines::read(plain));
    let kept = compile::parse(&name, &formatted)
        .is_ok_and(|after| meaning::meaning(after.top()) == meaning::meaning(before.top()));
    if kept {
        Ok(formatted)
    } else {
        let message = "the formatter would change what this file does, so it is left as it is: a mistake of Fanin";
        Err(Box::new(Diagnostic::error(position(&name, text, (0, 0)), message)))
    }
}

/// Puts lines together, with the empty lines between them.
fn write(lines: Vec<Line>) -> String {
    let mut out = String::new();
    let blank = blank_lines(&lines);
    for (line, blank) in lines.into_iter().zip(blank) {
        if blank {
            out.push('\n');
        }
        let indent = line.depth * INDENT;
        if line.pieces.is_empty() {
            out.extend(std::iter::repeat_n(' ', indent));
        } else {
            out += &layout::statement(line.pieces, indent, line.comment.as_deref());
            if line.comment.is_some() {
                out.push_str("  ");
            }
        }
        out.push_str(line.comment.as_deref().unwrap_or(""));
        out.push('\n');
    }
    out
}

/// Whether an empty line is before each line. Definitions and loads of the top level, with the comments directly above them, have one
/// around them. Elsewhere one stays where some were, but not at the start of a block.
fn blank_lines(lines: &[Line]) -> Vec<bool> {
    let mut blank: Vec<bool> = Vec::with_capacity(lines.len());
    let mut top = None;
    for (at, line) in lines.iter().enumerate() {
        let before = at.checked_sub(1).map(|before| &lines[before]);
        let opens = before.is_some_and(|before| before.depth < line.depth);
        let mut here = at > 0 && line.blank_before && !opens;
        if line.depth == 0 && !continues(line) {
            // What the comments at this place are of.
            let unit = lines[at..]
                .iter()
                .enumerate()
                .take_while(|(further, line)| line.depth == 0 && (*further == 0 || !line.blank_before))
                .map(|(_, line)| line)
                .find(|line| !line.pieces.is_empty());
            let start = unit.map_or(Start::Other, |line| line.start);
            let first_of_unit =
                before.is_none_or(|before| before.depth > 0 || !before.pieces.is_empty() || line.blank_before);
            here |= first_of_unit && at > 0 && apart(top, start);
            if !line.pieces.is_empty() {
                top = Some(line.start);
            } else if top == Some(Start::Def) && first_of_unit {
                // A comment that is apart from the definition above.
                top = Some(Start::Other);
            }
        }
        blank.push(here);
    }
    blank
}

fn continues(line: &Line) -> bool {
    line.pieces.first().is_some_and(|first| first.is("else") || first.is("elif"))
}

fn apart(before: Option<Start>, after: Start) -> bool {
    match (before, after) {
        (Some(Start::Load), Start::Load) => false,
        (Some(Start::Def | Start::Load), _) => true,
        (_, Start::Def | Start::Load) => true,
        _ => false,
    }
}
