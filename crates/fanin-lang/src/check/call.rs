//! Calls: arguments against signatures.

use std::rc::Rc;

use starlark_syntax::syntax::ast::{Argument, AstArgument, AstExpr, AstLiteral, Expr};

use super::Checker;
use super::expr::kind_of;
use super::native_signatures;
use super::signature::Signature;
use crate::compile::{literal, span_of};
use crate::host::{Argument as Which, CallDiagnostic, HostRef, StaticCall, StaticValue};
use crate::native::{Changes, NativeFn};
use crate::suggest;
use crate::types::Type;
use crate::value::{Frozen, FrozenValue};

/// An argument as it is written.
struct Given<'e> {
    name: Option<(&'e str, (u32, u32))>,
    expr: &'e AstExpr,
    ty: Type,
}

impl Checker<'_> {
    pub(super) fn call(&mut self, callee: &AstExpr, args: &[AstArgument]) -> Type {
        let within = self.within.take();
        let builtin = match self.constant(callee) {
            Some(FrozenValue::Native(native)) => Some(native.name),
            _ => None,
        };
        // The object of a method is inspected once, as the callee.
        let of_type = match &callee.node {
            Expr::Dot(of, _) => self.expr(of),
            _ => self.expr(callee),
        };
        let mut given = Vec::new();
        let (mut star, mut star_star) = (false, false);
        for arg in args {
            match &arg.node {
                Argument::Positional(expr) => {
                    self.within = builtin.filter(|_| matches!(expr.node, Expr::Call(..)));
                    given.push(Given { name: None, expr, ty: self.expr(expr) });
                }
                Argument::Named(name, expr) => {
                    let ty = self.expr(expr);
                    given.push(Given { name: Some((&name.node, span_of(name.span))), expr, ty });
                }
                Argument::Args(expr) => {
                    self.expr(expr);
                    star = true;
                }
                Argument::KwArgs(expr) => {
                    self.expr(expr);
                    star_star = true;
                }
            }
        }
        let signature = match &callee.node {
            Expr::Identifier(ident) => {
                let name = ident.node.ident.as_str();
                if !of_type.may_be(&Type::Callable) {
                    self.type_error(span_of(callee.span), format!("{name} is {of_type} and cannot be called"), None);
                    return Type::Any;
                }
                self.signature(name)
            }
            Expr::Dot(of, method) => {
                let name = method.node.as_str();
                if let Some(object) = self.host_object(of) {
                    self.host_call(&object, name, &given, star || star_star, within, span_of(callee.span));
                    return Type::Any;
                }
                match (self.field(of, name), kind_of(&of_type)) {
                    (Some(signature), _) => Some(signature),
                    (None, Some(kind)) => {
                        self.attribute(of, &of_type, name, span_of(method.span));
                        native_signatures::method(kind, name).map(Rc::new)
                    }
                    (None, None) => None,
                }
            }
            _ => None,
        };
        let Some(signature) = signature else { return Type::Any };
        self.arguments(&signature, &given, star, star_star, span_of(callee.span));
        if let Some(FrozenValue::Native(native)) = self.constant(callee)
            && let Some(check) = native.checked
        {
            self.judge(&check, &given, star || star_star, None, span_of(callee.span));
        }
        signature.returns.clone().unwrap_or(Type::Any)
    }

    /// The signature of what a name certainly denotes.
    fn signature(&self, name: &str) -> Option<Rc<Signature>> {
        match self.scopes.find(name) {
            Some(symbol) if self.scopes.is_loaded(name) => {
                let _ = symbol;
                self.of_value(self.env.loaded.get(name)?)
            }
            Some(symbol) => symbol.signature.clone(),
            None => self.of_value(self.env.builtins.names.get(name)?),
        }
    }

    fn of_value(&self, value: &FrozenValue) -> Option<Rc<Signature>> {
        match value {
            FrozenValue::Native(native) => native_signatures::function(native).map(Rc::new),
            FrozenValue::Frozen(frozen) => match &**frozen {
                Frozen::Function(function) => {
                    self.env.codes.get(function.code as usize).map(|code| Rc::new(Signature::of_code(code)))
                }
                _ => None,
            },
            _ => None,
        }
    }

    /// A constant that an expression certainly is.
    fn constant(&self, expr: &AstExpr) -> Option<&FrozenValue> {
        let Expr::Identifier(ident) = &expr.node else { return None };
        let name = ident.node.ident.as_str();
        match self.scopes.find(name) {
            Some(_) if self.scopes.is_loaded(name) => self.env.loaded.get(name),
            Some(_) => None,
            None => self.env.builtins.names.get(name),
        }
    }

    /// A function in a constant struct, such as `json.encode`.
    fn field(&self, of: &AstExpr, name: &str) -> Option<Rc<Signature>> {
        let Some(FrozenValue::Frozen(frozen)) = self.constant(of) else { return None };
        let Frozen::Struct(fields) = &**frozen else { return None };
        self.of_value(fields.iter().find(|(field, _)| field.as_str() == name).map(|(_, value)| value)?)
    }

    /// The host's object that an expression certainly is.
    pub(super) fn host_object(&self, expr: &AstExpr) -> Option<HostRef> {
        match self.constant(expr) {
            Some(FrozenValue::Host(object)) => Some(object.clone()),
            _ => None,
        }
    }

    /// Whether an expression is a call of a host object's method.
    pub(super) fn is_host_call(&self, expr: &AstExpr) -> bool {
        match &expr.node {
            Expr::Index(both) => self.is_host_call(&both.0),
            Expr::Call(callee, _) => match &callee.node {
                Expr::Dot(of, _) => self.host_object(of).is_some(),
                _ => false,
            },
            _ => false,
        }
    }

    /// Whether a call of this does nothing but give a value.
    pub(super) fn gives_only(&self, callee: &AstExpr) -> bool {
        let gives = |native: &NativeFn| {
            native.changes == Changes::Nothing
                && native_signatures::function(native)
                    .is_some_and(|signature| signature.returns.is_some_and(|ty| ty != Type::None))
        };
        matches!(self.constant(callee), Some(FrozenValue::Native(native)) if gives(native))
    }

    /// Holds arguments against parameters.
    fn arguments(&mut self, signature: &Signature, given: &[Given<'_>], star: bool, star_star: bool, span: (u32, u32)) {
        let name = &signature.name;
        let mut filled = vec![false; signature.params.len()];
        let positional: Vec<&Given<'_>> = given.iter().filter(|one| one.name.is_none()).collect();
        for (at, one) in positional.iter().enumerate() {
            let (ty, what) = match signature.params.get(at).filter(|_| at < signature.positional) {
                Some(param) => {
                    filled[at] = true;
                    (param.ty.clone(), format!("the argument {} of {name}()", param.name))
                }
                None => match &signature.args {
                    Some(ty) => (ty.clone(), format!("an argument of {name}()")),
                    None => {
                        let takes = match signature.positional {
                            0 => "no arguments".to_owned(),
                            1 => "1 argument".to_owned(),
                            many => format!("{many} arguments"),
                        };
                        let how = if signature.params.len() > signature.positional { " by position" } else { "" };
                        let message = format!("{name}() takes {takes}{how}, {} given", positional.len());
                        self.error(span_of(one.expr.span), message);
                        return;
                    }
                },
            };
            self.argument(one, &ty, &what);
        }
        for one in given {
            let Some((given_name, name_span)) = one.name else { continue };
            let place = signature.params.iter().position(|param| param.name == given_name);
            match place.filter(|at| *at >= signature.positional_only) {
                Some(at) if filled[at] => {
                    self.error(name_span, format!("{name}() gets two values for the argument {given_name}"));
                }
                Some(at) => {
                    filled[at] = true;
                    let ty = signature.params[at].ty.clone();
                    self.argument(one, &ty, &format!("the argument {given_name} of {name}()"));
                }
                None => match &signature.kwargs {
                    Some(ty) => self.argument(one, &ty.clone(), &format!("the argument {given_name} of {name}()")),
                    None if place.is_some() => {
                        self.error(name_span, format!("the argument {given_name} of {name}() is given by position"));
                    }
                    None => {
                        let names = signature.params.iter().skip(signature.positional_only);
                        let near = suggest::nearest(given_name, names.map(|param| param.name.as_str()));
                        self.error_hint(
                            name_span,
                            format!("{name}() has no argument {given_name}"),
                            near.map(|near| format!("did you mean {near}?")),
                        );
                    }
                },
            }
        }
        let missing: Vec<&str> = signature
            .params
            .iter()
            .zip(&filled)
            .enumerate()
            // What `*` or `**` brings is not known.
            .filter(|(at, (param, filled))| {
                let by_star = star_star || star && *at < signature.positional;
                param.required && !**filled && !by_star
            })
            .map(|(_, (param, _))| param.name.as_str())
            .collect();
        if !missing.is_empty() {
            let s = if missing.len() == 1 { "" } else { "s" };
            self.error(span, format!("{name}() needs the argument{s} {}", missing.join(", ")));
        }
    }

    fn argument(&mut self, given: &Given<'_>, wanted: &Type, what: &str) {
        if let Some(but) = self.misfit(Some(given.expr), &given.ty, wanted) {
            self.mismatch(span_of(given.expr.span), format!("{what} must be {wanted}, {but}"), None);
        }
    }

    /// Asks the host what it says of a call of one of its objects.
    fn host_call(
        &mut self,
        object: &HostRef,
        method: &str,
        given: &[Given<'_>],
        spread: bool,
        within: Option<&str>,
        span: (u32, u32),
    ) {
        self.judge(&|written| object.check(method, written), given, spread, within, span);
    }

    /// Reports what somebody says of a call as it is written.
    fn judge(
        &mut self,
        check: &dyn Fn(&StaticCall<'_>) -> Vec<CallDiagnostic>,
        given: &[Given<'_>],
        spread: bool,
        within: Option<&str>,
        span: (u32, u32),
    ) {
        let positional: Vec<&Given<'_>> = given.iter().filter(|one| one.name.is_none()).collect();
        let of = |name: &str| given.iter().find(|one| one.name.is_some_and(|(given, _)| given == name));
        let which = |which: &Which| match which {
            Which::Position(at) => positional.get(*at).copied(),
            Which::Named(name) => of(name),
        };
        let written = StaticCall {
            positional: positional.len(),
            names: given.iter().filter_map(|one| one.name.map(|(name, _)| name)).collect(),
            spread,
            within,
            literal: &|wanted| which(wanted).and_then(|one| literal(one.expr)),
            keys: &|wanted| which(wanted).and_then(|one| keys(one.expr)),
            shape: &|wanted| which(wanted).map_or(StaticValue::Unknown, |one| shape(one.expr)),
        };
        for problem in check(&written) {
            let place = problem.argument.as_ref().and_then(|wanted| match wanted {
                // A name that should not be there is underlined itself, else what is given for it.
                Which::Named(name) if problem.name_is_wrong => of(name).and_then(|one| one.name).map(|(_, span)| span),
                other => which(other).map(|one| span_of(one.expr.span)),
            });
            self.error_hint(place.unwrap_or(span), problem.message, problem.hint);
        }
    }
}

/// What an expression will be, as far as it is written out. Programs are not nested deeper than the parser lets them be.
fn shape(expr: &AstExpr) -> StaticValue {
    match &expr.node {
        Expr::Dict(pairs) => {
            let entries = pairs.iter().filter_map(|(key, value)| match &key.node {
                Expr::Literal(AstLiteral::String(text)) => Some((text.node.clone(), shape(value))),
                _ => None,
            });
            StaticValue::Dict(entries.collect())
        }
        Expr::List(items) | Expr::Tuple(items) => StaticValue::List(items.iter().map(shape).collect()),
        _ => literal(expr).map_or(StaticValue::Unknown, StaticValue::Literal),
    }
}

/// The keys of a dict that is written out with texts as keys.
fn keys(expr: &AstExpr) -> Option<Vec<String>> {
    let Expr::Dict(pairs) = &expr.node else { return None };
    pairs
        .iter()
        .map(|(key, _)| match &key.node {
            Expr::Literal(AstLiteral::String(text)) => Some(text.node.clone()),
            _ => None,
        })
        .collect()
}
