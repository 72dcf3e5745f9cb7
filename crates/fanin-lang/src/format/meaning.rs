//! What a file means, whatever its layout: to find that formatting has kept it.

use std::fmt::Write;

use starlark_syntax::syntax::ast::{AstStmt, Stmt};

/// The syntax tree as text, without places.
pub(super) fn meaning(top: &AstStmt) -> String {
    let mut out = String::new();
    write_statement(top, &mut out);
    out
}

fn write_statement(stmt: &AstStmt, out: &mut String) {
    match &stmt.node {
        Stmt::Statements(all) => all.iter().for_each(|stmt| write_statement(stmt, out)),
        Stmt::If(condition, then) => {
            debug(&("if", condition), out);
            block(then, out);
        }
        Stmt::IfElse(condition, both) => {
            debug(&("if", condition), out);
            block(&both.0, out);
            block(&both.1, out);
        }
        Stmt::For(all) => {
            debug(&("for", &all.var, &all.over), out);
            block(&all.body, out);
        }
        Stmt::Def(def) => {
            debug(&("def", &def.name, &def.params, &def.return_type), out);
            block(&def.body, out);
        }
        Stmt::Load(load) => {
            debug(&("load", &load.module), out);
            for arg in &load.args {
                debug(&(&arg.local, &arg.their), out);
            }
        }
        other => debug(other, out),
    }
}

fn block(stmt: &AstStmt, out: &mut String) {
    out.push_str("{\n");
    write_statement(stmt, out);
    out.push_str("}\n");
}

/// Writes a part of the tree without its places, `span: Span { begin: Pos(1), end: Pos(2) }`.
fn debug(part: &dyn std::fmt::Debug, out: &mut String) {
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = write!(text, "{part:?}");
    let mut rest = text.as_str();
    while let Some(at) = rest.find("span: Span { begin: Pos(") {
        out.push_str(&rest[..at]);
        rest = rest[at..].split_once('}').map_or("", |(_, rest)| rest);
    }
    out.push_str(rest);
    out.push('\n');
}
