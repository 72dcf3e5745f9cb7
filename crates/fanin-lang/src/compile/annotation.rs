//! Type annotations: from syntax to types, and the operations that check them.
//!
//! Passing a value must not wait (design: moving does not wait), so a check is a function of its own
//! that is called with the value: if the value is ready, it is checked at once. If it is pending,
//! the function is suspended like every pure function that must wait, and its caller continues. Like every
//! function it runs to its end, so a value is checked even if no code uses it. The failure is in program
//! order where the value was passed.

use arcstr::ArcStr;
use starlark_syntax::syntax::ast::{AstExpr, AstLiteral, AstParameter, AstTypeExpr, BinOp, Expr, Parameter};

use super::builder::{Builder, Event};
use super::{Compiler, span_of};
use crate::code::{CallInfo, Op, Reg, Target};
use crate::suggest;
use crate::types::{Annotations, Blame, Type, TypeCheck};
use crate::value::object::FrozenFunction;
use crate::value::{Frozen, FrozenValue};

/// What is wrong with an annotation.
pub(crate) struct Wrong {
    pub(crate) span: (u32, u32),
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
}

const NAMES: [&str; 13] =
    ["None", "bool", "int", "float", "str", "bytes", "list", "dict", "set", "tuple", "range", "struct", "function"];
const TYPING: [&str; 3] = ["Any", "Callable", "Iterable"];

/// Reads an annotation. `host` are the names of the host's own types.
pub(crate) fn read(expr: &AstExpr, host: &[&'static str]) -> Result<Type, Wrong> {
    let span = span_of(expr.span);
    let wrong = |message: String, hint: Option<&str>| Wrong { span, message, hint: hint.map(ToOwned::to_owned) };
    match &expr.node {
        Expr::Identifier(ident) => plain(&ident.node.ident, span, host),
        Expr::Dot(of, field) => match &of.node {
            Expr::Identifier(ident) if ident.node.ident == "typing" && TYPING.contains(&field.node.as_str()) => {
                plain(&field.node, span, host)
            }
            _ => Err(wrong(
                "this is not a type".to_owned(),
                Some("of typing there are typing.Any, typing.Callable and typing.Iterable"),
            )),
        },
        Expr::Op(left, BinOp::BitOr, right) => Ok(read(left, host)?.or(read(right, host)?)),
        Expr::Index(both) => {
            let parts: Vec<&AstExpr> = match &both.1.node {
                Expr::Tuple(all) => all.iter().collect(),
                _ => vec![&both.1],
            };
            generic(&both.0, &parts, span, host)
        }
        Expr::Index2(three) => generic(&three.0, &[&three.1, &three.2], span, host),
        Expr::Literal(AstLiteral::String(text)) => Err(Wrong {
            span,
            message: "a type is written without quotes".to_owned(),
            hint: Some(format!("write {}", text.node)),
        }),
        _ => Err(wrong(
            "this is not a type".to_owned(),
            Some("types are names, list[T], dict[K, V], tuple[A, B], set[T] and T | U"),
        )),
    }
}

fn plain(name: &str, span: (u32, u32), host: &[&'static str]) -> Result<Type, Wrong> {
    let any = || Box::new(Type::Any);
    Ok(match name {
        "None" => Type::None,
        "bool" => Type::Bool,
        "int" => Type::Int,
        "float" => Type::Float,
        "str" => Type::Str,
        "bytes" => Type::Bytes,
        "list" => Type::List(any()),
        "dict" => Type::Dict(any(), any()),
        "set" => Type::Set(any()),
        "tuple" => Type::Tuples(any()),
        "range" => Type::Range,
        "struct" => Type::Struct,
        "function" | "Callable" => Type::Callable,
        "Iterable" => Type::Iterable(any()),
        "Any" => Type::Any,
        other => match host.iter().find(|host| **host == other) {
            Some(host) => Type::Host(host),
            None => {
                let names = NAMES.iter().chain(host).copied();
                let hint = match other {
                    "string" => Some("str".to_owned()),
                    "NoneType" => Some("None".to_owned()),
                    "object" | "any" => Some("typing.Any".to_owned()),
                    _ => suggest::nearest(other, names),
                };
                return Err(Wrong {
                    span,
                    message: format!("there is no type {other}"),
                    hint: hint.map(|near| format!("did you mean {near}?")),
                });
            }
        },
    })
}

fn generic(of: &AstExpr, parts: &[&AstExpr], span: (u32, u32), host: &[&'static str]) -> Result<Type, Wrong> {
    let whole = read(of, host)?;
    let takes = |name: &str, number: &str| Wrong {
        span,
        message: format!("{name} takes {number} in brackets, {} given", parts.len()),
        hint: None,
    };
    let is_ellipsis = |expr: &AstExpr| matches!(expr.node, Expr::Literal(AstLiteral::Ellipsis));
    match whole {
        Type::List(_) => match parts {
            [one] => Ok(Type::List(Box::new(read(one, host)?))),
            _ => Err(takes("list", "one type")),
        },
        Type::Set(_) => match parts {
            [one] => Ok(Type::Set(Box::new(read(one, host)?))),
            _ => Err(takes("set", "one type")),
        },
        Type::Iterable(_) => match parts {
            [one] => Ok(Type::Iterable(Box::new(read(one, host)?))),
            _ => Err(takes("typing.Iterable", "one type")),
        },
        Type::Dict(..) => match parts {
            [key, value] => Ok(Type::Dict(Box::new(read(key, host)?), Box::new(read(value, host)?))),
            _ => Err(takes("dict", "two types")),
        },
        Type::Tuples(_) => match parts {
            [one, rest] if is_ellipsis(rest) => Ok(Type::Tuples(Box::new(read(one, host)?))),
            all => Ok(Type::Tuple(all.iter().map(|one| read(one, host)).collect::<Result<_, _>>()?)),
        },
        // Of a function only that it is one can be checked.
        Type::Callable => Ok(Type::Callable),
        other => Err(Wrong { span, message: format!("{other} takes no types in brackets"), hint: None }),
    }
}

/// Reads the annotations of a function; `None` if it has none.
pub(crate) fn of_function(
    params: &[AstParameter],
    returns: Option<&AstTypeExpr>,
    host: &[&'static str],
) -> (Option<Annotations>, Vec<Wrong>) {
    let mut wrong = Vec::new();
    let mut found = Annotations::default();
    let mut any = false;
    let mut one = |ty: Option<&AstTypeExpr>| {
        let ty = ty?;
        any = true;
        read(&ty.node.expr, host).map_err(|error| wrong.push(error)).ok()
    };
    for param in params {
        match &param.node {
            Parameter::Normal(_, ty, _) => found.params.push(one(ty.as_deref())),
            Parameter::Args(_, ty) => found.args = one(ty.as_deref()),
            Parameter::KwArgs(_, ty) => found.kwargs = one(ty.as_deref()),
            Parameter::Slash | Parameter::NoArgs => {}
        }
    }
    found.returns = one(returns);
    (any.then_some(found), wrong)
}

impl Compiler<'_> {
    /// The annotations of a function; what is wrong with them is noted.
    pub(super) fn annotations(
        &mut self,
        params: &[AstParameter],
        returns: Option<&AstTypeExpr>,
    ) -> Option<Box<Annotations>> {
        let (found, wrong) = of_function(params, returns, &self.builtins.types);
        for one in wrong {
            self.error_hint(one.span, one.message, one.hint);
        }
        found.map(Box::new)
    }

    /// Emits the checks of a function's parameters, which are in its first registers.
    pub(super) fn check_params(&mut self, params: &[AstParameter], found: &Annotations) {
        let function = self.fun().name.clone();
        let named = found.params.len() as Reg;
        let has_args = params.iter().any(|param| matches!(param.node, Parameter::Args(..)));
        let mut next = 0;
        for param in params {
            // Registers hold named parameters, then `*args`, then `**kwargs`.
            let (reg, ty, what) = match &param.node {
                Parameter::Normal(ident, ..) => {
                    let reg = next;
                    next += 1;
                    let ty = found.params[usize::from(reg)].clone();
                    (reg, ty, format!("the argument {} of {function}()", ident.node.ident))
                }
                Parameter::Args(ident, _) => {
                    let ty = found.args.clone().map(|ty| Type::Tuples(Box::new(ty)));
                    (named, ty, format!("*{} of {function}()", ident.node.ident))
                }
                Parameter::KwArgs(ident, _) => {
                    let ty = found.kwargs.clone().map(|ty| Type::Dict(Box::new(Type::Str), Box::new(ty)));
                    (named + Reg::from(has_args), ty, format!("**{} of {function}()", ident.node.ident))
                }
                Parameter::Slash | Parameter::NoArgs => continue,
            };
            if let Some(ty) = ty {
                self.check_type(reg, ty, what, Blame::Caller, span_of(param.span));
            }
        }
    }

    /// Emits the check of what is in a register.
    pub(super) fn check_type(&mut self, src: Reg, ty: Type, what: String, blame: Blame, span: (u32, u32)) {
        if ty == Type::Any {
            return;
        }
        let check = TypeCheck { ty, what, blame };
        let hidden = self.hidden_check(check.clone(), span);
        let fun = self.fun();
        fun.span = span;
        let mark = fun.mark();
        let index = fun.table(fun.types.len());
        fun.types.push(check);
        let there = fun.emit(Op::TypeNow { src, ty: index, to: 0 });
        let base = fun.temp();
        fun.emit(Op::Move { dst: base, src });
        let call = fun.table(fun.calls.len());
        fun.calls.push(CallInfo {
            target: Target::Known(FrozenValue::Frozen(std::sync::Arc::new(Frozen::Function(FrozenFunction {
                code: hidden,
                defaults: Box::default(),
                captured: Box::default(),
            })))),
            base,
            positional: 1,
            names: Box::default(),
            star: None,
            star_star: None,
            awaited: false,
        });
        fun.event(Event::Calls(hidden));
        fun.emit(Op::Call { dst: base, call });
        fun.land(there);
        fun.release(mark);
    }

    /// A function that waits for its argument and checks it.
    fn hidden_check(&mut self, check: TypeCheck, span: (u32, u32)) -> u32 {
        let index = self.reserve();
        let mut builder = Builder::new(index, ArcStr::from("type check"));
        builder.span = span;
        builder.params.names = Box::new([ArcStr::from("value")]);
        builder.params.positional = 1;
        builder.params.defaults = Box::new([None]);
        let value = builder.temp();
        let none = builder.temp();
        builder.types.push(check);
        builder.emit(Op::TypeWait { src: value, ty: 0 });
        builder.emit(Op::None { dst: none });
        builder.emit(Op::Return { src: none });
        self.fns.push(builder);
        self.finish_function();
        index
    }
}
