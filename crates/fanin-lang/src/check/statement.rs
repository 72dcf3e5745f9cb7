//! Statements.

use std::rc::Rc;

use starlark_syntax::syntax::ast::{
    AssignTarget, AstAssignTarget, AstExpr, AstLiteral, AstStmt, Clause, DefP, Expr, ForClause, Parameter, Stmt,
};

use super::Checker;
use super::lint::Lint;
use super::reach::Reach;
use super::scope::{Kind, Scope, Symbol};
use super::signature::Signature;
use crate::compile::{annotation, scope, span_of};
use crate::types::Type;

type Def = DefP<starlark_syntax::syntax::ast::AstNoPayload>;

impl Checker<'_> {
    pub(super) fn module(&mut self, top: &AstStmt) {
        let mut names = Scope::new();
        for (name, binding) in scope::Bindings::of(&[], top).by_name {
            names.insert(name, Symbol::new(Kind::Assigned, (0, 0), binding.count == 1));
        }
        self.declare(top, &mut names);
        self.scopes.0.push(names);
        self.returns.push(None);
        self.statement(top);
        self.returns.pop();
        for (name, symbol) in self.scopes.0.pop().unwrap_or_default() {
            if symbol.kind == Kind::Load && !symbol.used {
                self.lint(Lint::UnusedLoad, symbol.span, format!("{name} is loaded and never used"), None);
            }
        }
    }

    /// Functions and loads are known in the whole scope, wherever they stand.
    fn declare(&self, stmt: &AstStmt, names: &mut Scope) {
        match &stmt.node {
            Stmt::Statements(all) => all.iter().for_each(|stmt| self.declare(stmt, names)),
            Stmt::Def(def) => {
                let name = &def.name.node.ident;
                if let Some(symbol) = names.get_mut(name) {
                    symbol.kind = Kind::Function;
                    symbol.span = span_of(def.name.span);
                    symbol.ty = if symbol.stable { Type::Callable } else { Type::Any };
                    symbol.signature = symbol.stable.then(|| Rc::new(self.signature_of(def)));
                }
            }
            Stmt::Load(load) => {
                for arg in &load.args {
                    let span = span_of(arg.span());
                    names.insert(arg.local.node.ident.clone(), Symbol::new(Kind::Load, span, true));
                }
            }
            _ => {}
        }
    }

    fn signature_of(&self, def: &Def) -> Signature {
        let host = &self.env.builtins.types;
        let mut signature = Signature::of_syntax(&def.name.node.ident, &def.params, def.return_type.as_deref(), host);
        if signature.returns.is_none() && !returns_something(&def.body) {
            signature.returns = Some(Type::None);
        }
        signature
    }

    pub(super) fn statement(&mut self, stmt: &AstStmt) {
        let span = span_of(stmt.span);
        match &stmt.node {
            Stmt::Pass | Stmt::Break | Stmt::Continue | Stmt::Load(_) => {}
            Stmt::Statements(all) => {
                let before = self.reach;
                let mut reported = false;
                for (at, one) in all.iter().enumerate() {
                    self.statement(one);
                    if self.may_leave(one, false) {
                        self.reach = self.reach.max(Reach::Sometimes);
                    }
                    if !self.leaves(one) {
                        continue;
                    }
                    self.reach = Reach::Never;
                    if let (Some(next), false) = (all.get(at + 1), reported) {
                        reported = true;
                        let hint = "the statement above always returns, breaks, continues or fails";
                        self.lint(
                            Lint::Unreachable,
                            first_line(span_of(next.span), self.env.text),
                            "this code is never reached",
                            Some(hint),
                        );
                    }
                }
                self.reach = before;
            }
            Stmt::Expression(expr) => self.expression_statement(expr),
            Stmt::Return(value) => {
                let ty = value.as_ref().map_or(Type::None, |value| self.expr(value));
                if let Some(Some(wanted)) = self.returns.last().cloned() {
                    let span = value.as_ref().map_or(span, |value| span_of(value.span));
                    if let Some(but) = self.misfit(value.as_ref(), &ty, &wanted) {
                        self.mismatch(span, format!("the function says that it returns {wanted}, {but}"), None);
                    }
                }
            }
            Stmt::Assign(assign) => {
                let mut ty = self.expr(&assign.rhs);
                if let Some(wanted) = &assign.ty
                    && let Ok(wanted) = annotation::read(&wanted.node.expr, &self.env.builtins.types)
                {
                    if let Some(but) = self.misfit(Some(&assign.rhs), &ty, &wanted) {
                        let message = format!("the variable must be {wanted}, {but}");
                        self.mismatch(span_of(assign.rhs.span), message, None);
                    }
                    ty = wanted;
                }
                let is_answer = self.is_host_call(&assign.rhs);
                let signature = match &assign.rhs.node {
                    Expr::Lambda(lambda) => {
                        let name = target_name(&assign.lhs).unwrap_or("lambda");
                        Some(Rc::new(Signature::of_syntax(name, &lambda.params, None, &[])))
                    }
                    _ => None,
                };
                self.target(&assign.lhs, ty, if is_answer { Kind::Answer } else { Kind::Assigned });
                if let Some(symbol) = target_name(&assign.lhs).and_then(|name| self.scopes.find_mut(name))
                    && symbol.stable
                {
                    symbol.signature = signature;
                }
            }
            Stmt::AssignModify(target, _, value) => {
                self.expr(value);
                if let AssignTarget::Identifier(ident) = &target.node {
                    self.name(&ident.node.ident);
                }
                self.target(target, Type::Any, Kind::Assigned);
            }
            Stmt::If(cond, body) => {
                self.expr(cond);
                let reach = self.branch(cond, true);
                self.at_most(reach, |this| this.statement(body));
            }
            Stmt::IfElse(cond, both) => {
                self.expr(cond);
                let (then, otherwise) = (self.branch(cond, true), self.branch(cond, false));
                self.at_most(then, |this| this.statement(&both.0));
                self.at_most(otherwise, |this| this.statement(&both.1));
            }
            Stmt::For(looped) => {
                let over = self.expr(&looped.over);
                self.loops_over(&looped.over, &over);
                self.target(&looped.var, over.element(), Kind::Given);
                self.at_most(Reach::Sometimes, |this| this.statement(&looped.body));
            }
            Stmt::Def(def) => self.function(def, span),
        }
    }

    fn expression_statement(&mut self, expr: &AstExpr) {
        let ty = self.expr(expr);
        let span = span_of(expr.span);
        match &expr.node {
            // A text that is alone is documentation.
            Expr::Literal(AstLiteral::String(_)) => {}
            Expr::Call(callee, _) => {
                if self.gives_only(callee) && ty != Type::None {
                    self.lint(
                        Lint::UnusedValue,
                        span,
                        "the result of this call is never used, and the call does nothing else",
                        None,
                    );
                }
            }
            Expr::Op(left, op, right) => {
                let calls = self.is_host_call(left) || self.is_host_call(right);
                let hint = match op {
                    starlark_syntax::syntax::ast::BinOp::Equal if calls => {
                        Some("a comparison alone checks nothing: write `if ...: abort(...)`")
                    }
                    starlark_syntax::syntax::ast::BinOp::Equal => Some("`=` assigns, `==` compares"),
                    _ => None,
                };
                self.lint(Lint::UnusedValue, span, "this value is never used", hint);
            }
            _ => self.lint(Lint::UnusedValue, span, "this value is never used", None),
        }
    }

    fn function(&mut self, def: &Def, span: (u32, u32)) {
        let signature = self.signature_of(def);
        let wanted: Vec<Type> = signature.params.iter().map(|param| param.ty.clone()).collect();
        let defaults = def.params.iter().filter_map(|param| match &param.node {
            Parameter::Normal(_, _, default) => Some(default.as_deref()),
            _ => None,
        });
        for (wanted, default) in wanted.iter().zip(defaults) {
            let Some(default) = default else { continue };
            let ty = self.expr(default);
            if let Some(but) = self.misfit(Some(default), &ty, wanted) {
                let hint = (ty == Type::None).then(|| format!("write {wanted} | None"));
                self.error_hint(span_of(default.span), format!("the default must be {wanted}, {but}"), hint);
            }
        }
        let mut names = Scope::new();
        for (name, binding) in scope::Bindings::of(&def.params, &def.body).by_name {
            names.insert(name, Symbol::new(Kind::Assigned, (0, 0), binding.count == 1));
        }
        let mut at = 0;
        for param in &def.params {
            let Some(ident) = param.node.ident() else { continue };
            let ty = match &param.node {
                Parameter::Normal(..) => {
                    at += 1;
                    wanted.get(at - 1).cloned().unwrap_or(Type::Any)
                }
                Parameter::Args(..) => Type::Tuples(Box::new(Type::Any)),
                _ => Type::dict(),
            };
            if let Some(symbol) = names.get_mut(&ident.node.ident) {
                symbol.kind = Kind::Given;
                symbol.ty = if symbol.stable { ty } else { Type::Any };
            }
        }
        self.declare(&def.body, &mut names);
        self.scopes.0.push(names);
        let returns = def.return_type.as_ref().and(signature.returns.clone()).map(Rc::new);
        self.returns.push(returns.clone());
        self.at_each_call(|this| this.statement(&def.body));
        self.returns.pop();
        self.unused(|kind| matches!(kind, Kind::Assigned | Kind::Answer | Kind::Function));
        if let Some(wanted) = returns
            && !Type::None.may_be(&wanted)
            && !self.leaves(&def.body)
        {
            let name = &def.name.node.ident;
            self.error_hint(
                first_line(span, self.env.text),
                format!("{name}() can come to its end without return, and then gives None, which is not {wanted}"),
                Some(format!("return something on every way, or write -> {wanted} | None")),
            );
        }
    }

    /// Ends a scope and reports its names that no code reads.
    pub(super) fn unused(&mut self, is_reported: impl Fn(Kind) -> bool) {
        for (name, symbol) in self.scopes.0.pop().unwrap_or_default() {
            if symbol.used || name.starts_with('_') || !is_reported(symbol.kind) || symbol.span == (0, 0) {
                continue;
            }
            let hint = match symbol.kind {
                Kind::Answer => Some("a read that nobody needs is cancelled when the flow returns"),
                _ => None,
            };
            self.lint(Lint::UnusedVariable, symbol.span, format!("{name} is never used"), hint);
        }
    }

    /// Notes what a target is given.
    pub(super) fn target(&mut self, target: &AstAssignTarget, ty: Type, kind: Kind) {
        match &target.node {
            AssignTarget::Identifier(ident) => {
                if let Some(symbol) = self.scopes.find_mut(&ident.node.ident) {
                    if symbol.span == (0, 0) {
                        symbol.span = span_of(target.span);
                        symbol.kind = kind;
                    }
                    if symbol.stable {
                        symbol.ty = ty;
                    }
                }
            }
            // One of several values that is not needed has to have a name.
            AssignTarget::Tuple(all) => {
                for (at, one) in all.iter().enumerate() {
                    let ty = match &ty {
                        Type::Tuple(types) => types.get(at).cloned().unwrap_or(Type::Any),
                        other => other.element(),
                    };
                    self.target(one, ty, Kind::Given);
                }
            }
            AssignTarget::Index(both) => {
                self.expr(&both.0);
                self.expr(&both.1);
            }
            AssignTarget::Dot(of, _) => {
                self.expr(of);
            }
        }
    }

    pub(super) fn loops_over(&mut self, over: &AstExpr, ty: &Type) {
        if !ty.may_be(&Type::Iterable(Box::new(Type::Any))) {
            let hint = match ty {
                Type::Str => Some("the characters of a text are text.elems()".to_owned()),
                Type::Int => Some("a number of times is range(n)".to_owned()),
                _ => None,
            };
            self.type_error(span_of(over.span), format!("{ty} cannot be looped over"), hint);
        }
    }

    /// Opens the scope of a comprehension and checks its clauses. Only the first iterable is certain to be evaluated.
    pub(super) fn clauses(&mut self, first: &ForClause, rest: &[Clause]) {
        let over = self.expr(&first.over);
        self.loops_over(&first.over, &over);
        let names = scope::clause_names(first, rest);
        let symbols = names.into_iter().map(|name| (name, Symbol::new(Kind::Given, (0, 0), true))).collect();
        self.scopes.0.push(symbols);
        self.target(&first.var, over.element(), Kind::Given);
        self.at_most(Reach::Sometimes, |this| {
            for clause in rest {
                match clause {
                    Clause::For(clause) => {
                        let over = this.expr(&clause.over);
                        this.loops_over(&clause.over, &over);
                        this.target(&clause.var, over.element(), Kind::Given);
                    }
                    Clause::If(cond) => {
                        this.expr(cond);
                    }
                }
            }
        });
    }
}

fn target_name(target: &AstAssignTarget) -> Option<&str> {
    match &target.node {
        AssignTarget::Identifier(ident) => Some(&ident.node.ident),
        _ => None,
    }
}

/// Whether a function has a `return` with a value, not counting functions within it.
fn returns_something(stmt: &AstStmt) -> bool {
    match &stmt.node {
        Stmt::Return(value) => value.is_some(),
        Stmt::Def(_) => false,
        _ => {
            let mut found = false;
            stmt.node.visit_stmt(|inner| found |= returns_something(inner));
            found
        }
    }
}

/// A span cut to its first line.
fn first_line(span: (u32, u32), text: &str) -> (u32, u32) {
    let length = text.get(span.0 as usize..span.1 as usize).and_then(|part| part.find('\n'));
    length.map_or(span, |length| (span.0, span.0 + length as u32))
}
