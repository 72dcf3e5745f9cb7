//! Type annotations: what can be written behind a parameter, a variable or `->`.
//!
//! A type describes decided values. [`may_be`](Type::may_be) is for checks before anything runs: it is
//! `false` only if no value can be of both types, so that what is refused would certainly have failed.

mod conform;

use std::fmt;

pub(crate) use conform::{Mismatch, mismatch};

/// A type, as an annotation spells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Type {
    Any,
    None,
    Bool,
    Int,
    /// Also an `int`: JSON writes 5 for a price of 5.0.
    Float,
    Str,
    Bytes,
    List(Box<Type>),
    Dict(Box<Type>, Box<Type>),
    Set(Box<Type>),
    /// One type for each element.
    Tuple(Vec<Type>),
    /// `tuple[T, ...]`: any number of elements.
    Tuples(Box<Type>),
    Range,
    Struct,
    Callable,
    /// Anything that `for` goes through.
    Iterable(Box<Type>),
    /// An object of the host's, by the name that `type()` gives.
    Host(&'static str),
    Union(Vec<Type>),
}

impl Type {
    /// A list of anything.
    pub(crate) fn list() -> Self {
        Self::List(Box::new(Self::Any))
    }

    /// A dict of anything.
    pub(crate) fn dict() -> Self {
        Self::Dict(Box::new(Self::Any), Box::new(Self::Any))
    }

    /// A value of one of both.
    pub(crate) fn or(self, other: Self) -> Self {
        if self == other {
            return self;
        }
        let mut all = match self {
            Self::Any => return Self::Any,
            Self::Union(all) => all,
            one => vec![one],
        };
        match other {
            Self::Any => return Self::Any,
            Self::Union(more) => more.into_iter().for_each(|one| add(&mut all, one)),
            one => add(&mut all, one),
        }
        Self::Union(all)
    }

    /// Whether a value that is known to be a `self` can be a `wanted`.
    pub(crate) fn may_be(&self, wanted: &Self) -> bool {
        match (self, wanted) {
            (Self::Any, _) | (_, Self::Any) => true,
            (Self::Union(all), wanted) => all.iter().any(|one| one.may_be(wanted)),
            (one, Self::Union(all)) => all.iter().any(|wanted| one.may_be(wanted)),
            (Self::Int, Self::Float) => true,
            // The empty one is of every element type.
            (Self::List(_), Self::List(_)) | (Self::Dict(..), Self::Dict(..)) | (Self::Set(_), Self::Set(_)) => true,
            (Self::Tuple(a), Self::Tuple(b)) => {
                a.len() == b.len() && a.iter().zip(b).all(|(one, wanted)| one.may_be(wanted))
            }
            (Self::Tuple(a), Self::Tuples(wanted)) => a.iter().all(|one| one.may_be(wanted)),
            (Self::Tuples(one), Self::Tuple(b)) => b.iter().all(|wanted| one.may_be(wanted)),
            (Self::Tuples(_), Self::Tuples(_)) => true,
            (one, Self::Iterable(_)) => one.is_iterable(),
            (Self::Iterable(_), wanted) => wanted.is_iterable(),
            (one, wanted) => one == wanted,
        }
    }

    fn is_iterable(&self) -> bool {
        matches!(
            self,
            Self::List(_)
                | Self::Dict(..)
                | Self::Set(_)
                | Self::Tuple(_)
                | Self::Tuples(_)
                | Self::Range
                | Self::Iterable(_)
        )
    }

    /// What a loop over a value of this type gives.
    pub(crate) fn element(&self) -> Self {
        match self {
            Self::List(of) | Self::Set(of) | Self::Tuples(of) | Self::Iterable(of) | Self::Dict(of, _) => {
                (**of).clone()
            }
            Self::Tuple(all) => all.iter().cloned().reduce(Self::or).unwrap_or(Self::Any),
            Self::Range => Self::Int,
            _ => Self::Any,
        }
    }
}

fn add(all: &mut Vec<Type>, one: Type) {
    if !all.contains(&one) {
        all.push(one);
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let row = |f: &mut fmt::Formatter<'_>, all: &[Type], between: &str| {
            all.iter().enumerate().try_for_each(|(at, one)| write!(f, "{}{one}", if at == 0 { "" } else { between }))
        };
        match self {
            Self::Any => f.write_str("typing.Any"),
            Self::None => f.write_str("None"),
            Self::Bool => f.write_str("bool"),
            Self::Int => f.write_str("int"),
            Self::Float => f.write_str("float"),
            Self::Str => f.write_str("str"),
            Self::Bytes => f.write_str("bytes"),
            Self::List(of) if **of == Self::Any => f.write_str("list"),
            Self::List(of) => write!(f, "list[{of}]"),
            Self::Dict(key, value) if **key == Self::Any && **value == Self::Any => f.write_str("dict"),
            Self::Dict(key, value) => write!(f, "dict[{key}, {value}]"),
            Self::Set(of) if **of == Self::Any => f.write_str("set"),
            Self::Set(of) => write!(f, "set[{of}]"),
            Self::Tuple(all) => {
                f.write_str("tuple[")?;
                row(f, all, ", ")?;
                f.write_str("]")
            }
            Self::Tuples(of) if **of == Self::Any => f.write_str("tuple"),
            Self::Tuples(of) => write!(f, "tuple[{of}, ...]"),
            Self::Range => f.write_str("range"),
            Self::Struct => f.write_str("struct"),
            Self::Callable => f.write_str("typing.Callable"),
            Self::Iterable(of) if **of == Self::Any => f.write_str("typing.Iterable"),
            Self::Iterable(of) => write!(f, "typing.Iterable[{of}]"),
            Self::Host(name) => f.write_str(name),
            Self::Union(all) => row(f, all, " | "),
        }
    }
}

/// Who is to blame for a value of the wrong type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Blame {
    /// Whoever called the function.
    Caller,
    /// The function itself.
    Here,
}

/// What an operation checks.
#[derive(Debug, Clone)]
pub(crate) struct TypeCheck {
    pub(crate) ty: Type,
    /// What is checked, in words: `the argument ids of fetch()`.
    pub(crate) what: String,
    pub(crate) blame: Blame,
}

/// The annotations of a function.
#[derive(Debug, Clone, Default)]
pub(crate) struct Annotations {
    /// For each named parameter.
    pub(crate) params: Vec<Option<Type>>,
    /// For each element of `*args`.
    pub(crate) args: Option<Type>,
    /// For each value of `**kwargs`.
    pub(crate) kwargs: Option<Type>,
    pub(crate) returns: Option<Type>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_can_never_be_is_refused() {
        let union = Type::Int.or(Type::None);
        assert!(Type::Int.may_be(&Type::Float) && !Type::Float.may_be(&Type::Int));
        assert!(union.may_be(&Type::None) && Type::None.may_be(&union) && !Type::Str.may_be(&union));
        assert!(Type::List(Box::new(Type::Int)).may_be(&Type::List(Box::new(Type::Str))), "both have the empty list");
        assert!(!Type::list().may_be(&Type::dict()) && !Type::Bool.may_be(&Type::Int));
        assert!(!Type::Tuple(vec![Type::Int]).may_be(&Type::Tuple(vec![Type::Int, Type::Int])));
        assert!(Type::Tuple(vec![Type::Int]).may_be(&Type::Tuples(Box::new(Type::Int))));
        assert!(Type::Range.may_be(&Type::Iterable(Box::new(Type::Any))));
        assert!(!Type::Str.may_be(&Type::Iterable(Box::new(Type::Any))), "text is not looped over");
    }

    #[test]
    fn types_are_shown_as_they_are_written() {
        let shown = |ty: Type| ty.to_string();
        assert_eq!(shown(Type::List(Box::new(Type::Int.or(Type::None)))), "list[int | None]");
        assert_eq!(shown(Type::Dict(Box::new(Type::Str), Box::new(Type::Any))), "dict[str, typing.Any]");
        assert_eq!(shown(Type::Tuples(Box::new(Type::Str))), "tuple[str, ...]");
        assert_eq!(shown(Type::Tuple(vec![Type::Str, Type::Int])), "tuple[str, int]");
        assert_eq!(shown(Type::list()), "list");
    }
}
