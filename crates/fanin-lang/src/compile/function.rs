//! Functions: parameters, what they capture, their bodies.

use arcstr::ArcStr;
use starlark_syntax::syntax::ast::{AstExpr, AstParameter, AstStmt, AstTypeExpr, Parameter};

use super::builder::{Builder, Event, Var};
use super::{Compiler, scope};
use crate::code::{ClosureInfo, Op, Params, Reg};
use crate::intern::intern;
use crate::types::Blame;

impl Compiler<'_> {
    /// Compiles a function and emits the operation that makes it; gives the register it is in.
    pub(super) fn function(
        &mut self,
        code: u32,
        name: &str,
        params: &[AstParameter],
        returns: Option<&AstTypeExpr>,
        body: &AstStmt,
        span: (u32, u32),
    ) -> Reg {
        let annotations = self.annotations(params, returns);
        let bindings = scope::Bindings::of(params, body);
        let free = scope::free_names(params, body);
        let dst = self.fun().temp();
        // Default values are evaluated here, in order.
        let defaults: Vec<&AstExpr> = params
            .iter()
            .filter_map(|param| match &param.node {
                Parameter::Normal(_, _, Some(default)) => Some(&**default),
                _ => None,
            })
            .collect();
        let base = self.fun().temp_run(defaults.len());
        for (at, default) in defaults.iter().enumerate() {
            self.expr_to(default, base + at as u16);
        }
        let captures: Vec<(String, Var)> =
            free.iter().filter_map(|name| self.enclosing(name).map(|var| (name.clone(), var))).collect();
        let mut builder = Builder::new(code, ArcStr::from(name));
        builder.span = span;
        declare_params(&mut builder, params);
        for (name, outer) in &captures {
            let reg = builder.temp();
            if outer.cell {
                // Its variable may change while a fiber that would read it waits.
                builder
                    .events
                    .push((0, Event::Impure(format!("uses {name}, which changes after the function is made"))));
            }
            builder.vars.insert(
                name.clone(),
                Var { reg, cell: outer.cell, known: outer.known, check: outer.check || outer.cell, captured: true },
            );
        }
        for name in &bindings.order {
            let binding = &bindings.by_name[name];
            let cell = !binding.is_stable();
            if binding.count > 1 {
                builder.foreign.insert(format!("{name} again"));
            }
            match builder.vars.get_mut(name) {
                // A parameter.
                Some(var) if !var.captured => {
                    builder.foreign.insert(name.clone());
                    if cell {
                        let (plain, reg) = (var.reg, builder.temp());
                        builder.emit(Op::NewCell { dst: reg });
                        builder.emit(Op::StoreCell { cell: reg, src: plain });
                        builder
                            .vars
                            .insert(name.clone(), Var { reg, cell, known: None, check: false, captured: false });
                    }
                }
                _ => {
                    let reg = builder.temp();
                    if cell {
                        builder.emit(Op::NewCell { dst: reg });
                    }
                    builder.vars.insert(name.clone(), Var { reg, cell, known: None, check: true, captured: false });
                }
            }
        }
        builder.temps = builder.mark();
        builder.annotations = annotations.clone();
        self.fns.push(builder);
        if let Some(annotations) = &annotations {
            self.check_params(params, annotations);
        }
        self.statement(body);
        let none = self.fun().temp();
        self.fun().emit(Op::None { dst: none });
        self.check_return(none, span);
        self.fun().emit(Op::Return { src: none });
        self.finish_function();
        let fun = self.fun();
        fun.span = span;
        let closure = fun.table(fun.closures.len());
        fun.closures.push(ClosureInfo {
            code,
            defaults: base,
            default_count: defaults.len() as u16,
            captures: captures.iter().map(|(_, var)| var.reg).collect(),
        });
        fun.emit(Op::Closure { dst, closure });
        dst
    }

    /// Emits the check of what the function is about to return, if it says what that is.
    pub(super) fn check_return(&mut self, src: Reg, span: (u32, u32)) {
        if let Some(ty) = self.fun().returns() {
            let what = format!("what {}() returns", self.fun().name);
            self.check_type(src, ty, what, Blame::Here, span);
        }
    }

    /// A variable of the function being compiled, as a nested function sees it.
    fn enclosing(&mut self, name: &str) -> Option<Var> {
        let fun = self.fun();
        if let Some(var) = fun.scopes.iter().rev().find_map(|scope| scope.get(name)) {
            return Some(var.clone());
        }
        let mut var = fun.vars.get(name)?.clone();
        var.check &= !fun.assigned.contains(name);
        Some(var)
    }
}

fn declare_params(builder: &mut Builder, params: &[AstParameter]) {
    let mut described = Params::default();
    let mut names = Vec::new();
    let mut places = Vec::new();
    let mut defaults = 0_u16;
    let mut keyword_only = false;
    let (mut args, mut kwargs) = (None, None);
    for param in params {
        match &param.node {
            Parameter::Slash => described.positional_only = names.len() as u16,
            Parameter::NoArgs => keyword_only = true,
            Parameter::Args(ident, _) => {
                keyword_only = true;
                args = Some(ident.node.ident.clone());
            }
            Parameter::KwArgs(ident, _) => kwargs = Some(ident.node.ident.clone()),
            Parameter::Normal(ident, _, default) => {
                names.push(ident.node.ident.clone());
                places.push(default.as_ref().map(|_| {
                    defaults += 1;
                    defaults - 1
                }));
                if !keyword_only {
                    described.positional += 1;
                }
            }
        }
    }
    described.args = args.is_some();
    described.kwargs = kwargs.is_some();
    for name in names.iter().chain(&args).chain(&kwargs) {
        let reg = builder.temp();
        builder.vars.insert(name.clone(), Var { reg, cell: false, known: None, check: false, captured: false });
    }
    described.names = names.iter().map(|name| intern(name)).collect();
    described.defaults = places.into_boxed_slice();
    builder.params = described;
}
