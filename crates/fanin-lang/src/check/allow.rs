//! `# fanin: allow(unused-load)`: comments that silence lints.
//!
//! Behind code the comment speaks of its own line; on a line of its own, of the statement below it,
//! a whole function if that is one.

use starlark_syntax::codemap::CodeMap;
use starlark_syntax::lexer::{Lexer, Token};
use starlark_syntax::syntax::Dialect;
use starlark_syntax::syntax::ast::{AstStmt, Stmt};

use super::lint::{Lint, lint_names};
use crate::error::Diagnostic;
use crate::error::{line_column, position};
use crate::suggest;

/// Lines, both ends included, in which a lint is silent.
#[derive(Debug)]
struct Region {
    from: u32,
    to: u32,
    lint: Lint,
}

/// What the comments of a file silence.
#[derive(Debug, Default)]
pub(crate) struct Allowed {
    regions: Vec<Region>,
}

impl Allowed {
    /// Reads a file's comments; names that are no lints are found wrong.
    pub(crate) fn read(name: &arcstr::ArcStr, text: &str, top: &AstStmt, dialect: &Dialect) -> (Self, Vec<Diagnostic>) {
        let mut allowed = Self::default();
        let mut found = Vec::new();
        if !text.contains("fanin:") {
            return (allowed, found);
        }
        let mut lines = Vec::new();
        statement_lines(top, text, &mut lines);
        let codemap = CodeMap::new(name.to_string(), text.to_owned());
        for lexeme in Lexer::new(text, dialect, codemap) {
            let Ok((start, token, end)) = lexeme else { break };
            let Token::Comment(comment) = token else { continue };
            let Some(names) = allowed_names(&comment) else { continue };
            let (line, _) = line_column(text, start as u32);
            let before = &text[..start];
            let own_line = before.trim_end_matches([' ', '\t', '#']).ends_with('\n') || before.trim().is_empty();
            let (from, to) = if own_line {
                let next = lines.iter().filter(|(from, _)| *from > line).map(|(from, _)| *from).min();
                let Some(next) = next else { continue };
                let end = lines.iter().filter(|(from, _)| *from == next).map(|(_, to)| *to).max();
                (next, end.unwrap_or(next))
            } else {
                (line, line)
            };
            for wanted in names {
                match Lint::named(wanted) {
                    Some(lint) => allowed.regions.push(Region { from, to, lint }),
                    None => {
                        let near = suggest::nearest(wanted, lint_names().into_iter());
                        found.push(
                            Diagnostic::warning(
                                Lint::UnknownName,
                                position(name, text, (start as u32, end as u32)),
                                format!("there is no lint {wanted}"),
                            )
                            .hint(near.map(|near| format!("did you mean {near}?"))),
                        );
                    }
                }
            }
        }
        (allowed, found)
    }

    /// Whether a lint is silent on a line.
    pub(crate) fn covers(&self, lint: &str, line: u32) -> bool {
        self.regions.iter().any(|region| region.lint.name() == lint && (region.from..=region.to).contains(&line))
    }
}

/// The names within `fanin: allow(...)`.
fn allowed_names(comment: &str) -> Option<Vec<&str>> {
    let rest = comment.trim_start_matches('#').trim().strip_prefix("fanin:")?.trim();
    let names = rest.strip_prefix("allow(")?.split_once(')')?.0;
    Some(names.split(',').map(str::trim).filter(|name| !name.is_empty()).collect())
}

/// First and last line of each statement.
fn statement_lines(stmt: &AstStmt, text: &str, lines: &mut Vec<(u32, u32)>) {
    if !matches!(stmt.node, Stmt::Statements(_)) {
        let (from, _) = line_column(text, stmt.span.begin().get());
        // A block's span may reach over the line end after it.
        let end = text.get(..stmt.span.end().get() as usize).unwrap_or(text).trim_end().len();
        let (to, _) = line_column(text, end as u32);
        lines.push((from, to));
    }
    stmt.node.visit_stmt(|inner| statement_lines(inner, text, lines));
}
