//! Whether code certainly runs when its function is called.

use starlark_syntax::lexer::TokenInt;
use starlark_syntax::syntax::ast::{AstExpr, AstLiteral, AstStmt, Expr, Stmt};

use super::Checker;

/// How certain it is that code runs. Failures of the code before it do not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Reach {
    /// At each call of the function.
    Always,
    /// It depends: in a branch or a loop, or below a `return` in one.
    Sometimes,
    /// Provably never.
    Never,
}

impl Checker<'_> {
    /// Runs `check` for code that is reached at most as certainly as `reach` says.
    pub(super) fn at_most<T>(&mut self, reach: Reach, check: impl FnOnce(&mut Self) -> T) -> T {
        let before = self.reach;
        self.reach = before.max(reach);
        let result = check(self);
        self.reach = before;
        result
    }

    /// Runs `check` for the body of a function. Its code is judged by what happens at each call.
    pub(super) fn at_each_call<T>(&mut self, check: impl FnOnce(&mut Self) -> T) -> T {
        let before = self.reach;
        self.reach = if before == Reach::Never { Reach::Never } else { Reach::Always };
        let result = check(self);
        self.reach = before;
        result
    }

    /// How certainly a branch runs that is taken if `cond` is `wanted`.
    pub(super) fn branch(&self, cond: &AstExpr, wanted: bool) -> Reach {
        match self.constant_truth(cond) {
            Some(truth) if truth == wanted => Reach::Always,
            Some(_) => Reach::Never,
            None => Reach::Sometimes,
        }
    }

    fn constant_truth(&self, expr: &AstExpr) -> Option<bool> {
        match &expr.node {
            Expr::Literal(AstLiteral::Int(int)) => match &int.node {
                TokenInt::I32(value) => Some(*value != 0),
                TokenInt::BigInt(_) => Some(true),
            },
            Expr::Literal(AstLiteral::String(text)) => Some(!text.node.is_empty()),
            Expr::Not(of) => self.constant_truth(of).map(|truth| !truth),
            Expr::Identifier(ident) => {
                let name = ident.node.ident.as_str();
                match name {
                    "True" if self.scopes.find(name).is_none() => Some(true),
                    "False" | "None" if self.scopes.find(name).is_none() => Some(false),
                    _ => None,
                }
            }
            _ => None,
        }
    }

    /// Whether control never reaches the statement below this one.
    pub(super) fn leaves(&self, stmt: &AstStmt) -> bool {
        match &stmt.node {
            Stmt::Return(_) | Stmt::Break | Stmt::Continue => true,
            Stmt::Statements(all) => all.iter().any(|one| self.leaves(one)),
            Stmt::IfElse(_, both) => self.leaves(&both.0) && self.leaves(&both.1),
            Stmt::Expression(expr) => self.always_fails(expr),
            _ => false,
        }
    }

    /// Whether control may not reach the statement below this one. `in_loop`: a `break` only ends a loop within the statement.
    pub(super) fn may_leave(&self, stmt: &AstStmt, in_loop: bool) -> bool {
        match &stmt.node {
            Stmt::Return(_) => true,
            Stmt::Break | Stmt::Continue => !in_loop,
            Stmt::Expression(expr) => self.always_fails(expr),
            Stmt::Def(_) => false,
            Stmt::For(looped) => self.may_leave(&looped.body, true),
            _ => {
                let mut found = false;
                stmt.node.visit_stmt(|inner| found |= self.may_leave(inner, in_loop));
                found
            }
        }
    }

    fn always_fails(&self, expr: &AstExpr) -> bool {
        let Expr::Call(callee, _) = &expr.node else { return false };
        let Expr::Identifier(ident) = &callee.node else { return false };
        let name = ident.node.ident.as_str();
        matches!(name, "fail" | "abort") && self.scopes.find(name).is_none()
    }
}
