//! Bounds on nesting, checked before parsing. The parser and all later passes recurse over the nesting of the source.

use starlark_syntax::codemap::CodeMap;
use starlark_syntax::lexer::{Lexer, Token};
use starlark_syntax::syntax::Dialect;

/// Largest source file, in bytes.
pub(crate) const MAX_SOURCE: usize = 1 << 20;
/// Deepest nesting of brackets, blocks and operators together.
pub(crate) const MAX_NESTING: usize = 100;

/// Offset of the token that nests too deep, if any.
///
/// Every open bracket or block counts, and within each of them every operator since the last comma
/// or line end, because a row of operators is a tree as deep as the row is long.
pub(super) fn too_deep(codemap: &CodeMap, dialect: &Dialect) -> Option<(usize, usize)> {
    let mut operators = vec![0_usize];
    let mut total = 0_usize;
    let mut elifs = 0_usize;
    let mut in_bracket = 0_usize;
    for lexeme in Lexer::new(codemap.source(), dialect, codemap.clone()) {
        // A wrong token is the parser's to report.
        let Ok((start, token, end)) = lexeme else { return None };
        match token {
            Token::OpeningCurly | Token::OpeningRound | Token::OpeningSquare | Token::FStringExprStart => {
                in_bracket += 1;
                operators.push(1);
                total += 1;
            }
            Token::Indent => {
                operators.push(1);
                total += 1;
            }
            Token::ClosingCurly
            | Token::ClosingRound
            | Token::ClosingSquare
            | Token::FStringExprEnd
            | Token::Dedent => {
                if !matches!(token, Token::Dedent) {
                    in_bracket = in_bracket.saturating_sub(1);
                }
                if operators.len() > 1 {
                    total -= operators.pop().unwrap_or(0);
                }
                // `f(x)(y)` nests as deep as it is long.
                if let (Some(last), false) = (operators.last_mut(), matches!(token, Token::Dedent)) {
                    *last += 1;
                    total += 1;
                }
            }
            Token::Comma => {
                if let Some(last) = operators.last_mut() {
                    let keep = usize::from(in_bracket > 0);
                    total -= last.saturating_sub(keep);
                    *last = keep.min(*last);
                }
            }
            Token::Newline | Token::Semicolon if in_bracket == 0 => {
                if let Some(last) = operators.last_mut() {
                    total -= last.saturating_sub(1);
                    *last = 1.min(*last);
                }
            }
            Token::Elif => {
                elifs += 1;
            }
            Token::Def => elifs = 0,
            Token::And
            | Token::Or
            | Token::Not
            | Token::In
            | Token::If
            | Token::Else
            | Token::Lambda
            | Token::For
            | Token::Minus
            | Token::Plus
            | Token::Star
            | Token::StarStar
            | Token::Percent
            | Token::Slash
            | Token::SlashSlash
            | Token::Dot
            | Token::Ampersand
            | Token::Pipe
            | Token::Caret
            | Token::LessLess
            | Token::GreaterGreater
            | Token::Tilde
            | Token::EqualEqual
            | Token::BangEqual
            | Token::LessEqual
            | Token::GreaterEqual
            | Token::LessThan
            | Token::GreaterThan => {
                if let Some(last) = operators.last_mut() {
                    *last += 1;
                    total += 1;
                }
            }
            _ => {}
        }
        if total > MAX_NESTING || elifs > MAX_NESTING {
            return Some((start, end));
        }
    }
    None
}
