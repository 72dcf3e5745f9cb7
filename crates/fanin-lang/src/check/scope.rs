//! Symbol tables: names, their types and signatures.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::signature::Signature;
use crate::types::Type;

/// What a name is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A parameter, a loop's variable, a variable of a comprehension.
    Given,
    /// Assigned by a statement.
    Assigned,
    /// Assigned the answer of a call.
    Answer,
    Function,
    Load,
}

/// A name.
#[derive(Debug, Clone)]
pub(super) struct Symbol {
    pub(super) kind: Kind,
    pub(super) span: (u32, u32),
    pub(super) used: bool,
    /// Bound by one statement only, so that what is known of it stays true.
    pub(super) stable: bool,
    pub(super) ty: Type,
    pub(super) signature: Option<Rc<Signature>>,
}

impl Symbol {
    pub(super) fn new(kind: Kind, span: (u32, u32), stable: bool) -> Self {
        Self { kind, span, used: false, stable, ty: Type::Any, signature: None }
    }
}

/// One scope's names, in the order of the alphabet so that messages have one.
pub(super) type Scope = BTreeMap<String, Symbol>;

/// The scopes around a place, innermost last.
#[derive(Debug, Default)]
pub(super) struct Scopes(pub(super) Vec<Scope>);

impl Scopes {
    pub(super) fn find(&self, name: &str) -> Option<&Symbol> {
        self.0.iter().rev().find_map(|scope| scope.get(name))
    }

    pub(super) fn find_mut(&mut self, name: &str) -> Option<&mut Symbol> {
        self.0.iter_mut().rev().find_map(|scope| scope.get_mut(name))
    }

    /// Whether the name is one of the module's, not hidden by a function's.
    pub(super) fn is_loaded(&self, name: &str) -> bool {
        self.find(name).is_some_and(|symbol| symbol.kind == Kind::Load)
    }
}
