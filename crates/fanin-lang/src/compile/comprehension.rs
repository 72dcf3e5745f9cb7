//! Comprehensions.
//!
//! An item that must wait is suspended as a fiber which runs to the item's end (see
//! `machine::suspend`), so each `for` clause notes which operations an item is, what it reads, and from
//! where on it gives exactly one element.

use std::collections::{BTreeSet, HashMap};

use starlark_syntax::syntax::ast::{AssignTarget, AstAssignTarget, AstExpr, Clause, ForClause};

use super::builder::{Event, Var};
use super::{Compiler, scope, span_of};
use crate::code::{Build, CallInfo, ItemInfo, Op, Reg, Target};

/// What an item gives.
pub(super) enum Element<'a> {
    One(&'a AstExpr),
    Pair(&'a AstExpr, &'a AstExpr),
    /// The element itself.
    Own,
    /// The result of calling a register's value with the element.
    Call(Reg, Option<Event>),
}

impl Compiler<'_> {
    pub(super) fn comprehension(
        &mut self,
        expr: &AstExpr,
        element: Element<'_>,
        first: &ForClause,
        rest: &[Clause],
        dst: Reg,
    ) {
        let names = scope::clause_names(first, rest);
        let captured = scope::captured_clause_names(expr, &names);
        let build = if matches!(element, Element::Pair(..)) { Build::Dict } else { Build::List };
        let span = span_of(expr.span);
        let acc = self.fun().temp();
        // The first clause is evaluated outside the comprehension's own scope.
        let over = self.expr(&first.over);
        self.fun().span = span;
        self.fun().emit(Op::Begin { acc });
        self.open_scope(&names, &captured);
        // Closures made by items share the variables, so items must then run one after another.
        self.clause(&first.var, over, span_of(first.over.span), rest, &element, acc, !captured.is_empty());
        self.fun().scopes.pop();
        self.fun().span = span;
        self.fun().emit(Op::End { dst, acc, build });
    }

    /// `[element for name in items]` over registers.
    pub(super) fn map_registers(
        &mut self,
        items: Reg,
        name: Option<&str>,
        element: Element<'_>,
        dst: Reg,
        span: (u32, u32),
    ) {
        let acc = self.fun().temp();
        self.fun().span = span;
        self.fun().emit(Op::Begin { acc });
        let iter = self.fun().temp();
        self.fun().emit(Op::Iter { dst: iter, src: items });
        let start = self.fun().here();
        let value = self.fun().temp();
        let next = self.fun().emit(Op::Next { iter, dst: value, to: 0 });
        let mut names = HashMap::new();
        if let Some(name) = name {
            names.insert(name.to_owned(), Var { reg: value, cell: false, known: None, check: false, captured: false });
        }
        self.fun().scopes.push(names);
        let body = self.fun().here();
        self.push_element(&element, Some(value), acc, span);
        self.fun().scopes.pop();
        self.end_item(start, body, body, acc, false);
        self.fun().land(next);
        self.fun().emit(Op::End { dst, acc, build: Build::List });
    }

    fn open_scope(&mut self, names: &BTreeSet<String>, captured: &BTreeSet<String>) {
        let mut vars = HashMap::new();
        for name in names {
            let cell = captured.contains(name);
            let reg = self.fun().temp();
            if cell {
                self.fun().emit(Op::NewCell { dst: reg });
            }
            self.fun().assigned.insert(name.clone());
            vars.insert(name.clone(), Var { reg, cell, known: None, check: false, captured: false });
        }
        self.fun().scopes.push(vars);
    }

    #[allow(clippy::too_many_arguments, reason = "the parts of one clause")]
    fn clause(
        &mut self,
        var: &AstAssignTarget,
        over: Reg,
        over_span: (u32, u32),
        rest: &[Clause],
        element: &Element<'_>,
        acc: Reg,
        shared: bool,
    ) {
        let iter = self.fun().temp();
        self.fun().span = over_span;
        self.fun().emit(Op::Iter { dst: iter, src: over });
        let start = self.fun().here();
        let direct = match &var.node {
            AssignTarget::Identifier(ident) => self
                .fun()
                .scopes
                .last()
                .and_then(|scope| scope.get(&ident.node.ident))
                .filter(|v| !v.cell)
                .map(|v| v.reg),
            _ => None,
        };
        let value = match direct {
            Some(reg) => reg,
            None => self.fun().temp(),
        };
        let next = self.fun().emit(Op::Next { iter, dst: value, to: 0 });
        let body = self.fun().here();
        if direct.is_none() {
            self.assign(var, value);
        }
        let mut skips = Vec::new();
        let mut rest = rest;
        let mut inner = false;
        while let Some((clause, after)) = rest.split_first() {
            rest = after;
            match clause {
                Clause::If(cond) => skips.extend(self.jump_unless(cond)),
                Clause::For(clause) => {
                    let over = self.expr(&clause.over);
                    self.clause(&clause.var, over, span_of(clause.over.span), after, element, acc, shared);
                    inner = true;
                    break;
                }
            }
        }
        let sure = if inner {
            u16::MAX
        } else {
            let sure = self.fun().here();
            self.push_element(element, None, acc, over_span);
            if matches!(element, Element::Pair(..)) { u16::MAX } else { sure }
        };
        self.land_all(&skips);
        self.end_item(start, body, sure, acc, shared);
        self.fun().land(next);
    }

    fn push_element(&mut self, element: &Element<'_>, own: Option<Reg>, acc: Reg, span: (u32, u32)) {
        let mark = self.fun().mark();
        match element {
            Element::One(expr) => {
                let value = self.expr(expr);
                self.fun().emit(Op::Push { acc, value });
            }
            Element::Pair(key, value) => {
                let key_reg = self.expr(key);
                let value_reg = self.expr(value);
                self.fun().span = span_of(key.span);
                self.fun().emit(Op::PushPair { acc, key: key_reg, value: value_reg });
            }
            Element::Own => {
                if let Some(value) = own {
                    self.fun().emit(Op::Push { acc, value });
                }
            }
            Element::Call(function, event) => {
                if let Some(event) = event {
                    let event = event.clone();
                    self.fun().event(event);
                }
                let base = self.fun().temp();
                if let Some(value) = own {
                    self.fun().emit(Op::Move { dst: base, src: value });
                }
                let result = self.fun().temp();
                let fun = self.fun();
                fun.span = span;
                let call = fun.table(fun.calls.len());
                fun.calls.push(CallInfo {
                    target: Target::Value(*function),
                    base,
                    positional: 1,
                    names: Box::default(),
                    star: None,
                    star_star: None,
                    awaited: false,
                });
                fun.emit(Op::Call { dst: result, call });
                fun.emit(Op::Push { acc, value: result });
            }
        }
        self.fun().release(mark);
    }

    fn end_item(&mut self, start: u16, body: u16, element: u16, acc: Reg, shared: bool) {
        let fun = self.fun();
        let item = fun.table(fun.items.len());
        let end = fun.emit(Op::Item { item, to: start }) as u16;
        fun.items.push(ItemInfo { start: body, end, element, acc, live: Box::default(), pure: !shared });
    }
}
