//! Expressions: what type they certainly have.

use starlark_syntax::lexer::TokenInt;
use starlark_syntax::syntax::ast::{AstExpr, AstLiteral, AstNoPayload, BinOp, Expr, LambdaP, Parameter};

use super::Checker;
use super::lint::Lint;
use super::reach::Reach;
use super::scope::{Kind, Scope, Symbol};
use crate::compile::span_of;
use crate::types::Type;
use crate::value::{FrozenValue, ValueKind};
use crate::{python_names, suggest};

impl Checker<'_> {
    /// Notes that a name is read. Gives its type.
    pub(super) fn name(&mut self, name: &str) -> Type {
        match self.scopes.find_mut(name) {
            Some(symbol) => {
                symbol.used = true;
                if symbol.kind == Kind::Load {
                    return self.env.loaded.get(name).map_or(Type::Any, type_of);
                }
                symbol.ty.clone()
            }
            None => self.env.builtins.names.get(name).map_or(Type::Any, type_of),
        }
    }

    pub(super) fn expr(&mut self, expr: &AstExpr) -> Type {
        match &expr.node {
            Expr::Identifier(ident) => self.name(&ident.node.ident),
            Expr::Literal(literal) => match literal {
                AstLiteral::Int(_) => Type::Int,
                AstLiteral::Float(_) => Type::Float,
                AstLiteral::String(_) => Type::Str,
                AstLiteral::Bytes(_) => Type::Bytes,
                AstLiteral::Ellipsis => Type::Any,
            },
            Expr::FString(format) => {
                format.node.expressions.iter().for_each(|part| drop(self.expr(part)));
                Type::Str
            }
            Expr::Tuple(all) => Type::Tuple(all.iter().map(|one| self.expr(one)).collect()),
            Expr::List(all) => Type::List(Box::new(self.join(all.iter()))),
            Expr::Dict(pairs) => {
                self.duplicate_keys(pairs);
                let keys = self.join(pairs.iter().map(|(key, _)| key));
                let values = self.join(pairs.iter().map(|(_, value)| value));
                Type::Dict(Box::new(keys), Box::new(values))
            }
            Expr::ListComprehension(element, first, rest) => {
                self.clauses(first, rest);
                let element = self.at_most(Reach::Sometimes, |this| this.expr(element));
                self.unused(|_| false);
                Type::List(Box::new(element))
            }
            Expr::DictComprehension(pair, first, rest) => {
                self.clauses(first, rest);
                let (key, value) = self.at_most(Reach::Sometimes, |this| (this.expr(&pair.0), this.expr(&pair.1)));
                self.unused(|_| false);
                Type::Dict(Box::new(key), Box::new(value))
            }
            Expr::Lambda(lambda) => self.lambda(lambda),
            Expr::Call(callee, args) => self.call(callee, &args.args),
            Expr::Dot(of, field) => {
                let ty = self.expr(of);
                self.attribute(of, &ty, &field.node, span_of(field.span));
                Type::Any
            }
            Expr::Index(both) => self.index(&both.0, &both.1),
            Expr::Index2(three) => {
                self.expr(&three.0);
                self.expr(&three.1);
                self.expr(&three.2);
                Type::Any
            }
            Expr::Slice(of, start, stop, step) => {
                let of = self.expr(of);
                for part in [start, stop, step].into_iter().flatten() {
                    self.expr(part);
                }
                match of {
                    Type::Str | Type::List(_) | Type::Bytes | Type::Tuples(_) => of,
                    _ => Type::Any,
                }
            }
            Expr::Not(of) => {
                self.expr(of);
                Type::Bool
            }
            Expr::Minus(of) | Expr::Plus(of) | Expr::BitNot(of) => match self.expr(of) {
                number @ (Type::Int | Type::Float) => number,
                _ => Type::Any,
            },
            Expr::If(parts) => {
                self.expr(&parts.0);
                let (then, otherwise) = (self.branch(&parts.0, true), self.branch(&parts.0, false));
                let then = self.at_most(then, |this| this.expr(&parts.1));
                then.or(self.at_most(otherwise, |this| this.expr(&parts.2)))
            }
            Expr::Op(left, op, right) => {
                let a = self.expr(left);
                let reach = match op {
                    BinOp::And => self.branch(left, true),
                    BinOp::Or => self.branch(left, false),
                    _ => Reach::Always,
                };
                let b = self.at_most(reach, |this| this.expr(right));
                self.operator(&a, *op, &b, span_of(expr.span))
            }
        }
    }

    /// `of[key]`
    fn index(&mut self, of: &AstExpr, key: &AstExpr) -> Type {
        let (ty, _) = (self.expr(of), self.expr(key));
        match ty {
            Type::Dict(_, value) => *value,
            Type::Str => Type::Str,
            Type::List(_) | Type::Tuples(_) => ty.element(),
            Type::Tuple(all) => match &key.node {
                Expr::Literal(AstLiteral::Int(int)) => match &int.node {
                    TokenInt::I32(at) => {
                        usize::try_from(*at).ok().and_then(|at| all.get(at).cloned()).unwrap_or(Type::Any)
                    }
                    TokenInt::BigInt(_) => Type::Any,
                },
                _ => Type::Any,
            },
            Type::None | Type::Int | Type::Bool | Type::Float | Type::Callable => {
                self.type_error(span_of(of.span), format!("{ty} has no elements to index"), None);
                Type::Any
            }
            _ => Type::Any,
        }
    }

    fn lambda(&mut self, lambda: &LambdaP<AstNoPayload>) -> Type {
        for param in &lambda.params {
            if let Parameter::Normal(_, _, Some(default)) = &param.node {
                self.expr(default);
            }
        }
        let names = lambda.params.iter().filter_map(|param| param.node.ident());
        let symbol = |_| Symbol::new(Kind::Given, (0, 0), true);
        let scope: Scope = names.map(|ident| (ident.node.ident.clone(), symbol(()))).collect();
        self.scopes.0.push(scope);
        self.at_each_call(|this| this.expr(&lambda.body));
        self.unused(|_| false);
        Type::Callable
    }

    fn join<'e>(&mut self, all: impl Iterator<Item = &'e AstExpr>) -> Type {
        let mut joined: Option<Type> = None;
        for one in all {
            let ty = self.expr(one);
            joined = Some(match joined {
                Some(before) => before.or(ty),
                None => ty,
            });
        }
        joined.unwrap_or(Type::Any)
    }

    fn operator(&mut self, a: &Type, op: BinOp, b: &Type, span: (u32, u32)) -> Type {
        match op {
            BinOp::Equal | BinOp::NotEqual | BinOp::In | BinOp::NotIn => Type::Bool,
            BinOp::Less | BinOp::Greater | BinOp::LessOrEqual | BinOp::GreaterOrEqual => {
                if let (Some(a_kind), Some(b_kind)) = (family(a), family(b))
                    && (a_kind != b_kind || a_kind == Family::Other)
                {
                    self.type_error(span, format!("{a} and {b} cannot be ordered"), None);
                }
                Type::Bool
            }
            BinOp::And | BinOp::Or => a.clone().or(b.clone()),
            BinOp::Add => match (family(a), family(b)) {
                (Some(a_kind), Some(b_kind)) if a_kind != b_kind || a_kind == Family::Other => {
                    let hint = (a_kind == Family::Text || b_kind == Family::Text)
                        .then(|| "str(x) makes a string, int(x) a number".to_owned());
                    self.type_error(span, format!("{a} + {b} is not possible"), hint);
                    Type::Any
                }
                (Some(Family::Number), Some(_)) if *a == Type::Int && *b == Type::Int => Type::Int,
                (Some(Family::Number), Some(_)) => Type::Float,
                (Some(Family::Text), Some(_)) => Type::Str,
                (Some(Family::List), Some(_)) => Type::list(),
                _ => Type::Any,
            },
            BinOp::Subtract | BinOp::Multiply | BinOp::FloorDivide if *a == Type::Int && *b == Type::Int => Type::Int,
            BinOp::Divide if family(a) == Some(Family::Number) && family(b) == Some(Family::Number) => Type::Float,
            BinOp::Percent if *a == Type::Str => Type::Str,
            _ => Type::Any,
        }
    }

    /// An attribute that a value of a known type does not have.
    pub(super) fn attribute(&mut self, of: &AstExpr, ty: &Type, name: &str, span: (u32, u32)) {
        let Some(kind) = kind_of(ty) else {
            self.host_attribute(of, name, span);
            return;
        };
        if self.env.builtins.method(kind, name).is_none() {
            let names = self.env.builtins.method_names(kind);
            let instead =
                python_names::instead_of_method(kind, name).map(|instead| format!("write instead: {instead}"));
            let hint = instead.or_else(|| match kind {
                ValueKind::Dict => suggest::nearest(name, names)
                    .map(|near| format!("did you mean .{near}?"))
                    .or_else(|| Some(format!("keys are taken with brackets: [{name:?}]"))),
                _ => suggest::nearest(name, names).map(|near| format!("did you mean .{near}?")),
            });
            let shown = match kind {
                ValueKind::List => "list".to_owned(),
                ValueKind::Dict => "dict".to_owned(),
                _ => ty.to_string(),
            };
            self.type_error(span, format!("{shown} has no .{name}"), hint);
        }
    }

    fn host_attribute(&mut self, of: &AstExpr, name: &str, span: (u32, u32)) {
        let Some(object) = self.host_object(of) else { return };
        if object.method(name, &|_| None).is_none() && object.attribute(name).is_none() {
            let hint = suggest::nearest(name, object.names().into_iter()).map(|near| format!("did you mean .{near}?"));
            self.error_hint(span, format!("{} has no .{name}", object.name()), hint);
        }
    }

    /// Keys that are written twice; the compiler refuses texts itself.
    fn duplicate_keys(&mut self, pairs: &[(AstExpr, AstExpr)]) {
        let mut seen: Vec<String> = Vec::new();
        for (key, _) in pairs {
            let shown = match &key.node {
                Expr::Literal(AstLiteral::Int(int)) => match &int.node {
                    TokenInt::I32(value) => value.to_string(),
                    TokenInt::BigInt(value) => value.to_string(),
                },
                Expr::Identifier(ident) => ident.node.ident.clone(),
                _ => continue,
            };
            if seen.contains(&shown) {
                let message = format!("the key {shown} stands here a second time");
                self.lint(Lint::DuplicateKey, span_of(key.span), message, Some("the last one counts"));
            }
            seen.push(shown);
        }
    }

    /// How a value certainly differs from what is wanted, for a message.
    pub(super) fn misfit(&mut self, expr: Option<&AstExpr>, ty: &Type, wanted: &Type) -> Option<String> {
        if !ty.may_be(wanted) {
            return Some(format!("got {ty}"));
        }
        // The elements of what is written out can be inspected one by one.
        let part = |this: &mut Self, at: String, part: &AstExpr, wanted: &Type| {
            let found = this.found.len();
            let ty = this.expr(part);
            // What is wrong within it has been said.
            this.found.truncate(found);
            this.misfit(Some(part), &ty, wanted).map(|but| format!("but {at} is {}", but.trim_start_matches("got ")))
        };
        match (&expr?.node, wanted) {
            (Expr::List(all), Type::List(wanted)) => {
                all.iter().enumerate().find_map(|(at, one)| part(self, format!("[{at}]"), one, wanted))
            }
            (Expr::Dict(pairs), Type::Dict(key_type, value_type)) => pairs.iter().find_map(|(key, value)| {
                part(self, "a key".to_owned(), key, key_type)
                    .or_else(|| part(self, "a value".to_owned(), value, value_type))
            }),
            _ => None,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    Number,
    Text,
    List,
    Tuple,
    Other,
}

/// Types by what `+` and `<` do with them.
fn family(ty: &Type) -> Option<Family> {
    match ty {
        Type::Int | Type::Float => Some(Family::Number),
        Type::Str => Some(Family::Text),
        Type::List(_) => Some(Family::List),
        Type::Tuple(_) | Type::Tuples(_) => Some(Family::Tuple),
        Type::None | Type::Dict(..) | Type::Callable => Some(Family::Other),
        _ => None,
    }
}

/// The kind of values of a type whose methods are known.
pub(super) fn kind_of(ty: &Type) -> Option<ValueKind> {
    Some(match ty {
        Type::None => ValueKind::None,
        Type::Bool => ValueKind::Bool,
        Type::Int => ValueKind::Int,
        Type::Float => ValueKind::Float,
        Type::Str => ValueKind::Str,
        Type::Bytes => ValueKind::Bytes,
        Type::List(_) => ValueKind::List,
        Type::Dict(..) => ValueKind::Dict,
        Type::Set(_) => ValueKind::Set,
        Type::Tuple(_) | Type::Tuples(_) => ValueKind::Tuple,
        Type::Range => ValueKind::Range,
        _ => return None,
    })
}

/// The type of a module's value.
fn type_of(value: &FrozenValue) -> Type {
    match value {
        FrozenValue::None => Type::None,
        FrozenValue::Bool(_) => Type::Bool,
        FrozenValue::Int(_) | FrozenValue::BigInt(_) => Type::Int,
        FrozenValue::Float(_) => Type::Float,
        FrozenValue::Str(_) => Type::Str,
        FrozenValue::Bytes(_) => Type::Bytes,
        FrozenValue::Native(_) => Type::Callable,
        FrozenValue::Frozen(frozen) => match &**frozen {
            crate::value::Frozen::List(_) => Type::list(),
            crate::value::Frozen::Dict(_) => Type::dict(),
            crate::value::Frozen::Set(_) => Type::Set(Box::new(Type::Any)),
            crate::value::Frozen::Tuple(_) => Type::Tuples(Box::new(Type::Any)),
            crate::value::Frozen::Function(_) => Type::Callable,
            crate::value::Frozen::Struct(_) => Type::Any,
        },
        _ => Type::Any,
    }
}
