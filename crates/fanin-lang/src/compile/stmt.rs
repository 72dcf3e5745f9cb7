//! Statements.

use starlark_syntax::syntax::ast::{
    AssignOp, AssignTarget, AstAssignTarget, AstExpr, AstStmt, BinOp, Expr, ForP, Stmt,
};

use super::builder::{Event, Loop};
use super::{Compiler, annotation, span_of};
use crate::code::{Binary, Op, PointKind, Reg};
use crate::types::Blame;

impl Compiler<'_> {
    pub(super) fn statement(&mut self, stmt: &AstStmt) {
        let before = self.fun().mark();
        self.fun().span = span_of(stmt.span);
        if self.builtins.coverage && !matches!(stmt.node, Stmt::Statements(_) | Stmt::Load(_) | Stmt::Def(_)) {
            let span = first_line(self.text, span_of(stmt.span));
            self.fun().count(span, PointKind::Statement);
        }
        match &stmt.node {
            Stmt::Pass | Stmt::Load(_) => {}
            Stmt::Statements(all) => {
                for stmt in all {
                    self.statement(stmt);
                }
            }
            Stmt::Expression(expr) => {
                let value = self.expr(expr);
                if matches!(expr.node, Expr::Call(..)) {
                    self.fun().span = span_of(expr.span);
                    self.fun().emit(Op::Await { src: value });
                }
            }
            Stmt::Return(value) => {
                let src = match value {
                    Some(value) => self.expr(value),
                    None => {
                        let dst = self.fun().temp();
                        self.fun().emit(Op::None { dst });
                        dst
                    }
                };
                self.check_return(src, span_of(stmt.span));
                self.fun().emit(Op::Return { src });
            }
            Stmt::Assign(assign) => {
                self.assign_expr(&assign.lhs, &assign.rhs);
                if let (Some(ty), AssignTarget::Identifier(ident)) = (&assign.ty, &assign.lhs.node) {
                    let name = ident.node.ident.clone();
                    match annotation::read(&ty.node.expr, &self.builtins.types) {
                        Ok(ty) => {
                            let reg = self.read_name(&name, span_of(assign.lhs.span));
                            let what = format!("the variable {name}");
                            self.check_type(reg, ty, what, Blame::Here, span_of(stmt.span));
                        }
                        Err(wrong) => self.error_hint(wrong.span, wrong.message, wrong.hint),
                    }
                }
            }
            Stmt::AssignModify(target, op, value) => self.modify(target, *op, value),
            Stmt::If(cond, body) => {
                let skip = self.jump_unless(cond);
                let assigned = self.fun().assigned.clone();
                self.branch(cond, PointKind::Taken);
                self.statement(body);
                self.fun().assigned = assigned;
                if self.builtins.coverage {
                    let end = self.fun().emit(Op::Jump { to: 0 });
                    self.land_all(&skip);
                    self.branch(cond, PointKind::NotTaken);
                    self.fun().land(end);
                } else {
                    self.land_all(&skip);
                }
            }
            Stmt::IfElse(cond, both) => {
                let skip = self.jump_unless(cond);
                let before_both = self.fun().assigned.clone();
                self.branch(cond, PointKind::Taken);
                self.statement(&both.0);
                let after_first = std::mem::replace(&mut self.fun().assigned, before_both);
                let end = self.fun().emit(Op::Jump { to: 0 });
                self.land_all(&skip);
                self.branch(cond, PointKind::NotTaken);
                self.statement(&both.1);
                self.fun().assigned.retain(|name| after_first.contains(name));
                self.fun().land(end);
            }
            Stmt::For(looped) => self.for_loop(looped),
            Stmt::Break => {
                let at = self.fun().emit(Op::Jump { to: 0 });
                if let Some(inner) = self.fun().loops.last_mut() {
                    inner.breaks.push(at);
                }
            }
            Stmt::Continue => {
                let start = self.fun().loops.last().map_or(0, |inner| inner.start);
                self.fun().emit(Op::Jump { to: start });
            }
            Stmt::Def(def) => {
                let name = def.name.node.ident.clone();
                let known = self.known_of(&name);
                let code = known.unwrap_or_else(|| self.reserve());
                let body = def.body.clone();
                let value =
                    self.function(code, &name, &def.params, def.return_type.as_deref(), &body, span_of(stmt.span));
                self.fun().span = span_of(def.name.span);
                self.bind(&name, value, false);
                if self.fun().vars.get(&name).is_some_and(|var| !var.cell && var.known.is_none())
                    && !self.rebound(&name)
                    && let Some(var) = self.fun().vars.get_mut(&name)
                {
                    var.known = Some(code);
                }
            }
        }
        self.fun().release(before);
    }

    /// Counts the outcome of a condition.
    fn branch(&mut self, cond: &AstExpr, kind: PointKind) {
        if self.builtins.coverage {
            let span = span_of(cond.span);
            self.fun().count(span, kind);
        }
    }

    /// The function that a module's variable certainly holds.
    fn known_of(&mut self, name: &str) -> Option<u32> {
        if self.fun().top && self.fun().scopes.is_empty() {
            return self.globals.get(name).and_then(|global| global.known);
        }
        None
    }

    /// Whether a variable of the function may be bound again after this.
    fn rebound(&mut self, name: &str) -> bool {
        self.fun().foreign.contains(&format!("{name} again"))
    }

    fn for_loop(&mut self, looped: &ForP<starlark_syntax::syntax::ast::AstNoPayload>) {
        let iter = self.fun().temp();
        let over = self.expr(&looped.over);
        self.fun().span = span_of(looped.over.span);
        self.fun().emit(Op::Iter { dst: iter, src: over });
        let start = self.fun().here();
        let mark = self.fun().mark();
        let (element, direct) = match self.plain_variable(&looped.var) {
            Some(reg) => (reg, true),
            None => (self.fun().temp(), false),
        };
        let next = self.fun().emit(Op::Next { iter, dst: element, to: 0 });
        let assigned = self.fun().assigned.clone();
        self.target_is_foreign(&looped.var.node);
        if direct {
            self.mark_assigned(&looped.var);
        } else {
            self.assign(&looped.var, element);
        }
        self.fun().loops.push(Loop { start, breaks: Vec::new() });
        self.statement(&looped.body);
        self.fun().emit(Op::Jump { to: start });
        self.fun().release(mark);
        let breaks = self.fun().loops.pop().map(|inner| inner.breaks).unwrap_or_default();
        let none = breaks.is_empty();
        for at in breaks {
            self.fun().land(at);
        }
        if !none {
            self.fun().emit(Op::Forget { reg: iter });
        }
        self.fun().land(next);
        self.fun().assigned = assigned;
    }

    fn mark_assigned(&mut self, target: &AstAssignTarget) {
        if let AssignTarget::Identifier(ident) = &target.node {
            let name = ident.node.ident.clone();
            self.fun().assigned.insert(name);
        }
    }

    /// The register of a target that is a plain variable of this function.
    fn plain_variable(&mut self, target: &AstAssignTarget) -> Option<Reg> {
        let AssignTarget::Identifier(ident) = &target.node else { return None };
        let name = &ident.node.ident;
        if self.fun().scopes.iter().any(|scope| scope.contains_key(name)) {
            return None;
        }
        let var = self.fun().vars.get(name)?;
        (!var.cell).then_some(var.reg)
    }

    fn target_is_foreign(&mut self, target: &AssignTarget) {
        match target {
            AssignTarget::Identifier(ident) => {
                let name = ident.node.ident.clone();
                self.fun().foreign.insert(name);
            }
            AssignTarget::Tuple(all) => all.iter().for_each(|one| self.target_is_foreign(&one.node)),
            _ => {}
        }
    }

    fn assign_expr(&mut self, target: &AstAssignTarget, value: &AstExpr) {
        if !self.is_fresh(value) {
            self.target_is_foreign(&target.node);
        } else if let AssignTarget::Tuple(_) = &target.node {
            self.target_is_foreign(&target.node);
        }
        let mark = self.fun().mark();
        match self.plain_variable(target) {
            Some(reg) => {
                self.expr_to(value, reg);
                self.mark_assigned(target);
            }
            None => {
                let value = self.expr(value);
                self.fun().span = span_of(target.span);
                self.assign(target, value);
            }
        }
        if let (AssignTarget::Identifier(ident), Expr::Lambda(_)) = (&target.node, &value.node) {
            self.lambda_is_known(&ident.node.ident);
        }
        self.fun().release(mark);
    }

    fn lambda_is_known(&mut self, name: &str) {
        let code = self.fun().closures.last().map(|closure| closure.code);
        if self.rebound(name) {
            return;
        }
        if let Some(var) = self.fun().vars.get_mut(name)
            && !var.cell
        {
            var.known = code;
        }
    }

    /// Assigns the value of a register.
    pub(super) fn assign(&mut self, target: &AstAssignTarget, value: Reg) {
        match &target.node {
            AssignTarget::Identifier(ident) => {
                let name = ident.node.ident.clone();
                self.bind(&name, value, true);
            }
            AssignTarget::Tuple(all) => {
                let base = self.fun().temp_run(all.len());
                self.fun().span = span_of(target.span);
                self.fun().emit(Op::Unpack { src: value, base, count: all.len() as u16 });
                for (at, one) in all.iter().enumerate() {
                    self.assign(one, base + at as u16);
                }
            }
            AssignTarget::Index(both) => {
                let of = self.expr(&both.0);
                let key = self.expr(&both.1);
                self.fun().span = span_of(target.span);
                self.changes(&both.0, "assigns an element");
                self.fun().emit(Op::SetIndex { of, key, value });
            }
            AssignTarget::Dot(_, field) => {
                self.error(
                    span_of(target.span),
                    format!("the field {} cannot be assigned: values have fixed fields", field.node),
                );
            }
        }
    }

    /// Notes a change to the container that an expression gives.
    pub(super) fn changes(&mut self, of: &AstExpr, what: &str) {
        let var = match &of.node {
            Expr::Identifier(ident) => Some(ident.node.ident.clone()),
            _ => None,
        };
        let text = match &var {
            Some(name) => format!("{what} of {name}"),
            None => what.to_owned(),
        };
        let event = match var {
            Some(name) if self.is_own_variable(&name) => Event::Changes { var: name, what: text },
            _ => Event::Impure(text),
        };
        self.fun().event(event);
    }

    fn is_own_variable(&mut self, name: &str) -> bool {
        let fun = self.fun();
        !fun.scopes.iter().any(|scope| scope.contains_key(name))
            && fun.vars.get(name).is_some_and(|var| !var.captured && !var.cell)
    }

    /// Gives a name of this function or module a value.
    fn bind(&mut self, name: &str, value: Reg, _plain: bool) {
        let scoped = self.fun().scopes.iter().rev().find_map(|scope| scope.get(name)).cloned();
        let var = scoped.or_else(|| self.fun().vars.get(name).cloned());
        match var {
            Some(var) if var.cell => {
                self.fun().emit(Op::StoreCell { cell: var.reg, src: value });
            }
            Some(var) if var.reg != value => {
                self.fun().emit(Op::Move { dst: var.reg, src: value });
            }
            Some(_) => {}
            None => {
                if let Some(global) = self.globals.get(name) {
                    let index = global.index;
                    self.fun().emit(Op::SetGlobal { src: value, index });
                }
            }
        }
        let name = name.to_owned();
        self.fun().assigned.insert(name);
    }

    fn modify(&mut self, target: &AstAssignTarget, op: AssignOp, value: &AstExpr) {
        let binary = match op {
            AssignOp::Add => Binary::Add,
            AssignOp::Subtract => Binary::Subtract,
            AssignOp::Multiply => Binary::Multiply,
            AssignOp::Divide => Binary::Divide,
            AssignOp::FloorDivide => Binary::FloorDivide,
            AssignOp::Percent => Binary::Modulo,
            AssignOp::BitAnd => Binary::And,
            AssignOp::BitOr => Binary::Or,
            AssignOp::BitXor => Binary::Xor,
            AssignOp::LeftShift => Binary::Left,
            AssignOp::RightShift => Binary::Right,
        };
        // Only these change a list, dict or set in place, and never by a scalar.
        let in_place =
            matches!(op, AssignOp::Add | AssignOp::BitOr | AssignOp::BitAnd | AssignOp::BitXor | AssignOp::Subtract)
                && !self.is_scalar(value);
        let span = self.fun().span;
        match &target.node {
            AssignTarget::Identifier(ident) => {
                let name = ident.node.ident.clone();
                let current = self.read_name(&name, span_of(target.span));
                let b = self.expr(value);
                self.fun().span = span;
                if in_place {
                    if self.is_own_variable(&name) {
                        self.fun()
                            .event(Event::Changes { var: name.clone(), what: format!("changes {name} in place") });
                    } else {
                        self.fun().event(Event::Impure(format!("changes {name} in place")));
                    }
                }
                let plain = self.plain_variable(target);
                let dst = match plain {
                    Some(reg) => reg,
                    None => self.fun().temp(),
                };
                self.fun().emit(Op::InPlace { op: binary, dst, a: current, b });
                if plain.is_none() {
                    self.bind(&name, dst, true);
                }
            }
            AssignTarget::Index(both) => {
                let of = self.expr(&both.0);
                let key = self.expr(&both.1);
                let current = self.fun().temp();
                self.fun().emit(Op::Index { dst: current, of, key });
                let b = self.expr(value);
                self.fun().span = span;
                if in_place {
                    self.fun().event(Event::Impure("changes an element in place".to_owned()));
                }
                let result = self.fun().temp();
                self.fun().emit(Op::InPlace { op: binary, dst: result, a: current, b });
                self.changes(&both.0, "assigns an element");
                self.fun().emit(Op::SetIndex { of, key, value: result });
            }
            AssignTarget::Dot(_, field) => {
                self.error(
                    span_of(target.span),
                    format!("the field {} cannot be assigned: values have fixed fields", field.node),
                );
            }
            AssignTarget::Tuple(_) => self.error(span_of(target.span), "a tuple cannot be changed in place"),
        }
    }

    /// Whether an expression certainly gives something other than a list, dict or set.
    fn is_scalar(&mut self, expr: &AstExpr) -> bool {
        match &expr.node {
            Expr::Literal(_) | Expr::FString(_) | Expr::Not(_) | Expr::Minus(_) | Expr::Plus(_) | Expr::BitNot(_) => {
                true
            }
            Expr::Op(_, op, _) => matches!(
                op,
                BinOp::Equal
                    | BinOp::NotEqual
                    | BinOp::Less
                    | BinOp::Greater
                    | BinOp::LessOrEqual
                    | BinOp::GreaterOrEqual
                    | BinOp::In
                    | BinOp::NotIn
                    | BinOp::Divide
                    | BinOp::FloorDivide
                    | BinOp::LeftShift
                    | BinOp::RightShift
            ),
            Expr::Call(callee, _) => match &callee.node {
                Expr::Identifier(ident) => {
                    matches!(
                        ident.node.ident.as_str(),
                        "len" | "int" | "str" | "float" | "bool" | "repr" | "type" | "hash"
                    ) && self.builtin(&ident.node.ident).is_some()
                }
                _ => false,
            },
            _ => false,
        }
    }

    /// Whether an expression certainly gives something that nothing else holds, or that cannot change.
    fn is_fresh(&mut self, expr: &AstExpr) -> bool {
        match &expr.node {
            Expr::Literal(_)
            | Expr::List(_)
            | Expr::Dict(_)
            | Expr::ListComprehension(..)
            | Expr::DictComprehension(..)
            | Expr::Tuple(_)
            | Expr::FString(_)
            | Expr::Not(_)
            | Expr::Minus(_)
            | Expr::Plus(_)
            | Expr::BitNot(_)
            | Expr::Slice(..) => true,
            Expr::Op(_, op, _) => !matches!(op, BinOp::And | BinOp::Or),
            Expr::If(parts) => self.is_fresh(&parts.1) && self.is_fresh(&parts.2),
            Expr::Identifier(ident) => matches!(ident.node.ident.as_str(), "None" | "True" | "False"),
            Expr::Call(callee, _) => match &callee.node {
                Expr::Identifier(ident) => {
                    matches!(
                        ident.node.ident.as_str(),
                        "list"
                            | "dict"
                            | "set"
                            | "sorted"
                            | "str"
                            | "int"
                            | "float"
                            | "bool"
                            | "len"
                            | "range"
                            | "tuple"
                            | "enumerate"
                            | "zip"
                            | "reversed"
                            | "repr"
                            | "type"
                            | "hash"
                            | "any"
                            | "all"
                    ) && self.builtin(&ident.node.ident).is_some()
                }
                _ => false,
            },
            _ => false,
        }
    }
}

/// The part of a span that is on its first line: what a compound statement itself is.
fn first_line(text: &str, (start, end): (u32, u32)) -> (u32, u32) {
    let rest = text.get(start as usize..end as usize).unwrap_or_default();
    let length = rest.find('\n').unwrap_or(rest.len());
    (start, start + length as u32)
}
