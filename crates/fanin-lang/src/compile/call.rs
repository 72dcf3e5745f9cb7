//! Calls, and what is known of what they call.

use arcstr::ArcStr;
use starlark_syntax::lexer::TokenInt;
use starlark_syntax::syntax::ast::{Argument, AstArgument, AstExpr, AstLiteral, AstParameter, Expr, Parameter};

use super::builder::Event;
use super::comprehension::Element;
use super::expr::Place;
use super::{Compiler, span_of};
use crate::code::{CallInfo, Op, Reg, Target};
use crate::host::{Effect, HostRef, StaticArgs};
use crate::intern::intern;
use crate::native::{Changes, NativeFn};
use crate::suggest;
use crate::value::{Frozen, FrozenValue, Value};

/// The value of a literal argument.
pub(crate) fn literal(expr: &AstExpr) -> Option<Value> {
    match &expr.node {
        Expr::Literal(AstLiteral::String(text)) => Some(Value::str(&text.node)),
        Expr::Literal(AstLiteral::Int(int)) => match &int.node {
            TokenInt::I32(value) => Some(Value::Int(i64::from(*value))),
            TokenInt::BigInt(_) => None,
        },
        Expr::Literal(AstLiteral::Float(float)) => Some(Value::Float(float.node)),
        Expr::Identifier(ident) => match ident.node.ident.as_str() {
            "True" => Some(Value::Bool(true)),
            "False" => Some(Value::Bool(false)),
            "None" => Some(Value::None),
            _ => None,
        },
        Expr::List(all) => all.iter().map(literal).collect::<Option<Vec<Value>>>().map(Value::list),
        _ => None,
    }
}

impl Compiler<'_> {
    pub(super) fn call(&mut self, callee: &AstExpr, args: &[AstArgument], span: (u32, u32), dst: Reg) {
        let target = match &callee.node {
            Expr::Identifier(ident) => {
                let name = ident.node.ident.clone();
                match self.place(&name) {
                    Place::Known(FrozenValue::Native(native)) => {
                        if native.keyed && self.keyed(native, args, span, dst) {
                            return;
                        }
                        self.calls_native(native);
                        Target::Native(native)
                    }
                    Place::Known(value) => {
                        match &value {
                            FrozenValue::Frozen(frozen) => match &**frozen {
                                Frozen::Function(function) => {
                                    let code = function.code;
                                    self.fun().event(Event::Calls(code));
                                }
                                _ => self.error(span_of(callee.span), format!("{name} is no function")),
                            },
                            FrozenValue::Host(_) => {
                                self.error(
                                    span_of(callee.span),
                                    format!("{name} is not called itself, but its methods are"),
                                );
                            }
                            _ => self.error(span_of(callee.span), format!("{name} is no function")),
                        }
                        Target::Known(value)
                    }
                    Place::Global { index, known } => {
                        match known {
                            Some(code) => self.fun().event(Event::Calls(code)),
                            None => self
                                .fun()
                                .event(Event::Impure(format!("calls {name}, which is not known before it runs"))),
                        }
                        Target::Global(index)
                    }
                    Place::Local(var) => {
                        match var.known {
                            Some(code) => self.fun().event(Event::Calls(code)),
                            None => self
                                .fun()
                                .event(Event::Impure(format!("calls {name}, which is not known before it runs"))),
                        }
                        let reg = self.read_name(&name, span_of(callee.span));
                        Target::Value(reg)
                    }
                    Place::Unknown => {
                        self.unknown(&name, span_of(callee.span));
                        return;
                    }
                }
            }
            Expr::Dot(of, method) => self.method(of, &method.node, span_of(method.span), args),
            _ => {
                let reg = self.expr(callee);
                self.fun().event(Event::Impure("calls a value that is not known before it runs".to_owned()));
                Target::Value(reg)
            }
        };
        self.finish_call(target, args, span, dst);
    }

    fn calls_native(&mut self, native: &'static NativeFn) {
        if native.changes != Changes::Nothing {
            self.fun().event(Event::Impure(format!("calls {}", native.name)));
        }
    }

    fn finish_call(&mut self, mut target: Target, args: &[AstArgument], span: (u32, u32), dst: Reg) {
        // The object of a method comes first among the arguments.
        let this = usize::from(matches!(target, Target::Method { .. }));
        let positional = this + args.iter().filter(|arg| matches!(arg.node, Argument::Positional(_))).count();
        let named = args.iter().filter(|arg| matches!(arg.node, Argument::Named(..))).count();
        let base = self.fun().temp_run(positional + named);
        let (mut next, mut next_named) = (base + this as u16, base + positional as u16);
        if let Target::Method { of, .. } = &mut target {
            let src = std::mem::replace(of, base);
            self.fun().emit(Op::Move { dst: base, src });
        }
        let mut names: Vec<ArcStr> = Vec::with_capacity(named);
        let (mut star, mut star_star) = (None, None);
        // Arguments are evaluated as written.
        for arg in args {
            match &arg.node {
                Argument::Positional(value) => {
                    self.expr_to(value, next);
                    next += 1;
                }
                Argument::Named(name, value) => {
                    if names.iter().any(|other| other.as_str() == name.node) {
                        self.error(span_of(name.span), format!("the argument {} is given twice", name.node));
                    }
                    names.push(intern(&name.node));
                    self.expr_to(value, next_named);
                    next_named += 1;
                }
                Argument::Args(value) => star = Some(self.expr(value)),
                Argument::KwArgs(value) => star_star = Some(self.expr(value)),
            }
        }
        let awaited = match &target {
            Target::Host { effect, .. } => *effect == Effect::Write,
            Target::Method { name, .. } => self.loader.effect(name) == Some(Effect::Write),
            _ => false,
        };
        self.emit_call(
            CallInfo {
                target,
                base,
                positional: positional as u16,
                names: names.into_boxed_slice(),
                star,
                star_star,
                awaited,
            },
            span,
            dst,
        );
    }

    fn emit_call(&mut self, info: CallInfo, span: (u32, u32), dst: Reg) {
        let fun = self.fun();
        fun.span = span;
        let call = fun.table(fun.calls.len());
        let awaited = info.awaited;
        fun.calls.push(info);
        fun.emit(Op::Call { dst, call });
        if awaited {
            fun.emit(Op::Await { src: dst });
        }
    }

    fn method(&mut self, of: &AstExpr, name: &str, span: (u32, u32), args: &[AstArgument]) -> Target {
        if let Expr::Identifier(ident) = &of.node
            && let Place::Known(FrozenValue::Host(object)) = self.place(&ident.node.ident)
        {
            return self.host_method(object, name, span, args);
        }
        // A function in a constant struct, such as `json.encode`.
        if let Expr::Identifier(ident) = &of.node
            && let Place::Known(FrozenValue::Frozen(frozen)) = self.place(&ident.node.ident)
            && let Frozen::Struct(fields) = &*frozen
        {
            match fields.iter().find(|(field, _)| field.as_str() == name).map(|(_, value)| value) {
                Some(FrozenValue::Native(native)) => {
                    self.calls_native(native);
                    return Target::Native(native);
                }
                Some(value @ FrozenValue::Frozen(inner)) => {
                    if let Frozen::Function(function) = &**inner {
                        self.fun().event(Event::Calls(function.code));
                        return Target::Known(value.clone());
                    }
                }
                _ => {}
            }
        }
        let id = self.builtins.method_ids.get(name).copied();
        let host = self.loader.effect(name);
        let mut changes_this = false;
        let mut known = false;
        if let Some(id) = id {
            known = true;
            for native in self.builtins.methods[usize::from(id)].1.iter().flatten() {
                match native.changes {
                    Changes::Nothing => {}
                    Changes::This => changes_this = true,
                    Changes::World => known = false,
                }
            }
        }
        match host {
            Some(Effect::Write) => {
                self.fun().event(Event::Writes(format!("calls .{name}, which may change an upstream")))
            }
            Some(Effect::Read | Effect::Pure) => known = true,
            None => {}
        }
        if changes_this {
            self.changes(of, &format!("calls .{name}"));
        } else if !known {
            self.fun().event(Event::Impure(format!("calls .{name}, which is not known before it runs")));
        }
        let reg = self.expr(of);
        Target::Method { of: reg, name: intern(name), id }
    }

    fn host_method(&mut self, object: HostRef, name: &str, span: (u32, u32), args: &[AstArgument]) -> Target {
        let literal = |wanted: &str| {
            let mut positional = 0;
            args.iter().find_map(|arg| match &arg.node {
                Argument::Named(name, value) if name.node == wanted => literal(value),
                Argument::Positional(value) => {
                    positional += 1;
                    if wanted.parse() == Ok(positional - 1) { literal(value) } else { None }
                }
                _ => None,
            })
        };
        match object.method(name, &literal) {
            Some(method) => {
                if method.effect == Effect::Write {
                    let event = Event::Writes(format!("calls {}.{name}, which may change something", object.name()));
                    self.fun().event(event);
                }
                let mut written = StaticArgs { positional: 0, names: &[], open: false, first: None };
                let mut names = Vec::new();
                for arg in args {
                    match &arg.node {
                        Argument::Positional(_) => written.positional += 1,
                        Argument::Named(name, _) => names.push(name.node.as_str()),
                        Argument::Args(_) | Argument::KwArgs(_) => written.open = true,
                    }
                }
                if let Some((message, hint)) =
                    object.verify(method.id, &StaticArgs { names: &names, first: literal("0").as_ref(), ..written })
                {
                    self.error_hint(span, message, hint);
                }
                Target::Host { object, method: method.id, effect: method.effect }
            }
            None => {
                let hint =
                    suggest::nearest(name, object.names().into_iter()).map(|near| format!("did you mean {near}?"));
                let message = format!("{} has no method {name}", object.name());
                self.error_hint(span, message, hint);
                Target::Known(FrozenValue::None)
            }
        }
    }

    /// `sorted(xs, key = f)`: the keys are a comprehension of their own, so that computing them may
    /// wait like any other code.
    fn keyed(&mut self, native: &'static NativeFn, args: &[AstArgument], span: (u32, u32), dst: Reg) -> bool {
        let key = args.iter().find_map(|arg| match &arg.node {
            Argument::Named(name, value) if name.node == "key" => Some(value),
            _ => None,
        });
        let Some(key) = key else { return false };
        if matches!(literal(key), Some(Value::None)) {
            return false;
        }
        if args.iter().any(|arg| matches!(arg.node, Argument::Args(_) | Argument::KwArgs(_))) {
            self.error(span, format!("{}() cannot take key together with * or **", native.name));
            return true;
        }
        // The elements: one argument, or several for min and max.
        let positional: Vec<&AstExpr> = args
            .iter()
            .filter_map(|arg| match &arg.node {
                Argument::Positional(value) => Some(value),
                _ => None,
            })
            .collect();
        let items = self.fun().temp();
        match positional.as_slice() {
            [] => {
                self.error(span, format!("{}() needs something to look through", native.name));
                return true;
            }
            [one] => self.expr_to(one, items),
            several => {
                let base = self.fun().temp_run(several.len());
                for (at, value) in several.iter().enumerate() {
                    self.expr_to(value, base + at as u16);
                }
                self.fun().emit(Op::List { dst: items, base, count: several.len() as u16 });
            }
        }
        // One list of the elements, so that keys and elements are of the same ones.
        let elements = self.fun().temp();
        self.listed(items, elements, span);
        let keys = self.fun().temp();
        match plain_lambda(key) {
            Some((param, body)) => self.map_registers(elements, Some(param), Element::One(body), keys, span),
            None => {
                let function = self.fun().temp();
                let known = match &key.node {
                    Expr::Identifier(ident) => match self.place(&ident.node.ident) {
                        Place::Global { known, .. } => known.map(Event::Calls),
                        Place::Local(var) => var.known.map(Event::Calls),
                        Place::Known(FrozenValue::Native(native)) if native.changes == Changes::Nothing => None,
                        Place::Known(FrozenValue::Frozen(frozen)) => match &*frozen {
                            Frozen::Function(function) => Some(Event::Calls(function.code)),
                            _ => None,
                        },
                        _ => Some(Event::Impure("calls a key function that is not known before it runs".to_owned())),
                    },
                    _ => Some(Event::Impure("calls a key function that is not known before it runs".to_owned())),
                };
                let unknown_local = matches!(&key.node, Expr::Identifier(ident)
                    if matches!(self.place(&ident.node.ident), Place::Global { known: None, .. } | Place::Local(super::builder::Var { known: None, .. })));
                self.expr_to(key, function);
                let event = if unknown_local {
                    Some(Event::Impure("calls a key function that is not known before it runs".to_owned()))
                } else {
                    known
                };
                self.map_registers(elements, None, Element::Call(function, event), keys, span);
            }
        }
        let rest: Vec<(&str, &AstExpr)> = args
            .iter()
            .filter_map(|arg| match &arg.node {
                Argument::Named(name, value) if name.node != "key" => Some((name.node.as_str(), value)),
                _ => None,
            })
            .collect();
        let base = self.fun().temp_run(2 + rest.len());
        self.fun().emit(Op::Move { dst: base, src: elements });
        self.fun().emit(Op::Move { dst: base + 1, src: keys });
        let mut names = vec![ArcStr::from(crate::native::KEYS)];
        for (at, (name, value)) in rest.iter().enumerate() {
            names.push(intern(name));
            self.expr_to(value, base + 2 + at as u16);
        }
        self.emit_call(
            CallInfo {
                target: Target::Native(native),
                base,
                positional: 1,
                names: names.into_boxed_slice(),
                star: None,
                star_star: None,
                awaited: false,
            },
            span,
            dst,
        );
        true
    }

    fn listed(&mut self, items: Reg, dst: Reg, span: (u32, u32)) {
        self.map_registers(items, Some("\u{0}element"), Element::Own, dst, span);
    }
}

/// A lambda of one plain parameter: its body can stand where it would be called.
fn plain_lambda(expr: &AstExpr) -> Option<(&str, &AstExpr)> {
    let Expr::Lambda(lambda) = &expr.node else { return None };
    let [AstParameter { node: Parameter::Normal(ident, _, None), .. }] = lambda.params.as_slice() else { return None };
    // A lambda within it would share the parameter between elements.
    let mut nested = Vec::new();
    super::scope::captures_of(&lambda.body, &mut nested);
    if nested.iter().any(|(name, _)| *name == ident.node.ident) {
        return None;
    }
    Some((&ident.node.ident, &lambda.body))
}
