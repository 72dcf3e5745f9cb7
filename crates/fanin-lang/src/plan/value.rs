//! Abstract values: what is known of a value before the flow runs.

use std::rc::Rc;

use arcstr::ArcStr;

use super::ids::Ids;
use super::symbolic::Sum;
use crate::host::HostRef;
use crate::native::NativeFn;

/// The calls that a value comes from, by number.
pub(super) type Origins = Ids;

/// Elements are followed one by one up to this number.
pub(super) const MOST_ITEMS: usize = 16;

/// A function with what it has captured.
#[derive(Debug)]
pub(super) struct FunctionValue {
    pub(super) code: u32,
    pub(super) defaults: Vec<AbstractValue>,
    pub(super) captured: Vec<AbstractValue>,
}

/// What a value is, as far as that matters.
#[derive(Debug, Clone)]
pub(super) enum Shape {
    /// No value yet.
    Nothing,
    Unknown,
    /// It may be one of the host's objects, or hold some: which has been lost.
    Blurred,
    Text(ArcStr),
    Int(i64),
    Bool(bool),
    Function(Rc<FunctionValue>),
    Native(&'static NativeFn),
    /// One of these.
    Host(Vec<HostRef>),
    /// One of these containers of the heap.
    Object(Ids),
    /// What a loop goes through.
    Iter(Box<AbstractValue>),
}

/// A value.
#[derive(Debug, Clone)]
pub(super) struct AbstractValue {
    /// When it can be decided on.
    pub(super) there: Sum,
    /// When everything inside is there too, containers of the heap not counted.
    pub(super) whole: Sum,
    pub(super) origins: Origins,
    /// Containers of the heap that it is or holds.
    pub(super) refs: Ids,
    pub(super) shape: Shape,
}

impl AbstractValue {
    /// A ready value.
    pub(super) fn plain(shape: Shape) -> Self {
        let refs = match &shape {
            Shape::Object(ids) => ids.clone(),
            Shape::Function(function) => {
                function.captured.iter().chain(&function.defaults).flat_map(|one| one.refs.iter()).collect()
            }
            _ => Ids::new(),
        };
        Self { there: Sum::default(), whole: Sum::default(), origins: Origins::new(), refs, shape }
    }

    /// A value that comes at a time.
    pub(super) fn at(time: Sum, origins: Origins) -> Self {
        Self { there: time.clone(), whole: time, origins, refs: Ids::new(), shape: Shape::Unknown }
    }

    pub(super) fn join(&mut self, other: &Self) {
        self.there.max(&other.there);
        self.whole.max(&other.whole);
        self.origins.extend(&other.origins);
        self.refs.extend(&other.refs);
        self.shape = match (std::mem::replace(&mut self.shape, Shape::Unknown), &other.shape) {
            (Shape::Nothing, shape) => shape.clone(),
            (shape, Shape::Nothing) => shape,
            (Shape::Blurred, _) | (_, Shape::Blurred) => Shape::Blurred,
            (Shape::Text(a), Shape::Text(b)) if a == *b => Shape::Text(a),
            (Shape::Int(a), Shape::Int(b)) if a == *b => Shape::Int(a),
            (Shape::Bool(a), Shape::Bool(b)) if a == *b => Shape::Bool(a),
            (Shape::Native(a), Shape::Native(b)) if std::ptr::eq(a, *b) => Shape::Native(a),
            (Shape::Function(a), Shape::Function(b))
                if Rc::ptr_eq(&a, b) || a.code == b.code && a.captured.is_empty() =>
            {
                Shape::Function(a)
            }
            (Shape::Host(mut a), Shape::Host(b)) => {
                for one in b {
                    if !a.iter().any(|other| other.same(one)) {
                        a.push(one.clone());
                    }
                }
                Shape::Host(a)
            }
            (Shape::Host(_), _) | (_, Shape::Host(_)) => Shape::Blurred,
            (Shape::Object(mut a), Shape::Object(b)) => {
                a.extend(b);
                Shape::Object(a)
            }
            (Shape::Iter(mut a), Shape::Iter(b)) => {
                a.join(b);
                Shape::Iter(a)
            }
            _ => Shape::Unknown,
        };
    }
}
