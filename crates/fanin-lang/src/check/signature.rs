//! What can be passed to a function, known before it is called.

use starlark_syntax::syntax::ast::{AstParameter, AstTypeExpr, Parameter};

use crate::code::Code;
use crate::compile::annotation;
use crate::types::{Annotations, Type};

/// A parameter.
#[derive(Debug, Clone)]
pub(crate) struct Param {
    pub(crate) name: String,
    pub(crate) required: bool,
    pub(crate) ty: Type,
}

/// What a function takes and gives.
#[derive(Debug, Clone, Default)]
pub(crate) struct Signature {
    pub(crate) name: String,
    pub(crate) params: Vec<Param>,
    /// How many of them can be given by position.
    pub(crate) positional: usize,
    /// How many of those cannot be given by name.
    pub(crate) positional_only: usize,
    /// The type of each further argument by position, if there can be any.
    pub(crate) args: Option<Type>,
    /// The type of each further keyword argument, if there can be any.
    pub(crate) kwargs: Option<Type>,
    /// What it gives, if that is known.
    pub(crate) returns: Option<Type>,
}

impl Signature {
    /// Of a function as it is written.
    pub(crate) fn of_syntax(
        name: &str,
        params: &[AstParameter],
        returns: Option<&AstTypeExpr>,
        host: &[&'static str],
    ) -> Self {
        let types = annotation::of_function(params, returns, host).0.unwrap_or_default();
        let mut signature = Self { name: name.to_owned(), returns: types.returns.clone(), ..Self::default() };
        let mut keyword_only = false;
        for param in params {
            match &param.node {
                Parameter::Slash => signature.positional_only = signature.params.len(),
                Parameter::NoArgs => keyword_only = true,
                Parameter::Args(..) => {
                    keyword_only = true;
                    signature.args = Some(types.args.clone().unwrap_or(Type::Any));
                }
                Parameter::KwArgs(..) => signature.kwargs = Some(types.kwargs.clone().unwrap_or(Type::Any)),
                Parameter::Normal(ident, _, default) => {
                    let ty = types.params.get(signature.params.len()).cloned().flatten().unwrap_or(Type::Any);
                    let name = ident.node.ident.clone();
                    signature.params.push(Param { name, required: default.is_none(), ty });
                    if !keyword_only {
                        signature.positional += 1;
                    }
                }
            }
        }
        signature
    }

    /// Of a compiled function.
    pub(crate) fn of_code(code: &Code) -> Self {
        let none = Annotations::default();
        let types = code.annotations.as_deref().unwrap_or(&none);
        let params = code.params.names.iter().enumerate().map(|(at, name)| Param {
            name: name.to_string(),
            required: code.params.defaults[at].is_none(),
            ty: types.params.get(at).cloned().flatten().unwrap_or(Type::Any),
        });
        Self {
            name: code.name.to_string(),
            params: params.collect(),
            positional: usize::from(code.params.positional),
            positional_only: usize::from(code.params.positional_only),
            args: code.params.args.then(|| types.args.clone().unwrap_or(Type::Any)),
            kwargs: code.params.kwargs.then(|| types.kwargs.clone().unwrap_or(Type::Any)),
            returns: types.returns.clone(),
        }
    }

    /// From a line such as `split(sep: str?, maxsplit: int?) -> list[str]`: `?` is a parameter that can
    /// be left out, `/` ends those that have no name, `*` starts those that have no position.
    pub(crate) fn parse(line: &str) -> Self {
        let (head, returns) = match line.split_once("->") {
            Some((head, returns)) => (head, Some(ty(returns.trim()))),
            None => (line, None),
        };
        let (name, rest) = head.trim().split_once('(').unwrap_or((head.trim(), ")"));
        let mut signature = Self { name: name.to_owned(), returns, ..Self::default() };
        let mut keyword_only = false;
        for part in rest.trim_end().trim_end_matches(')').split(',').map(str::trim).filter(|part| !part.is_empty()) {
            match part {
                "/" => signature.positional_only = signature.params.len(),
                "*" => keyword_only = true,
                _ if part.starts_with("**") => signature.kwargs = Some(Type::Any),
                _ if part.starts_with('*') => {
                    keyword_only = true;
                    signature.args = Some(Type::Any);
                }
                _ => {
                    let required = !part.ends_with('?');
                    let part = part.trim_end_matches('?');
                    let (name, ty) = match part.split_once(':') {
                        Some((name, wanted)) => (name, ty(wanted.trim())),
                        None => (part, Type::Any),
                    };
                    signature.params.push(Param { name: name.trim().to_owned(), required, ty });
                    if !keyword_only {
                        signature.positional += 1;
                    }
                }
            }
        }
        signature
    }
}

/// The types that signatures of natives name.
fn ty(text: &str) -> Type {
    if let Some((a, b)) = text.split_once('|') {
        return ty(a.trim()).or(ty(b.trim()));
    }
    match text {
        "None" => Type::None,
        "bool" => Type::Bool,
        "int" => Type::Int,
        "float" => Type::Float,
        "str" => Type::Str,
        "bytes" => Type::Bytes,
        "list" => Type::list(),
        "list[str]" => Type::List(Box::new(Type::Str)),
        "list[int]" => Type::List(Box::new(Type::Int)),
        "dict" => Type::dict(),
        "set" => Type::Set(Box::new(Type::Any)),
        "tuple" => Type::Tuples(Box::new(Type::Any)),
        "range" => Type::Range,
        "struct" => Type::Struct,
        "iterable" => Type::Iterable(Box::new(Type::Any)),
        _ => Type::Any,
    }
}
