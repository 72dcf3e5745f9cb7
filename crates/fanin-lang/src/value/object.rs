//! Structs, functions, bound methods, objects of the host's.

use std::fmt;
use std::rc::Rc;

use arcstr::ArcStr;

use super::drop::drop_values;
use super::{FrozenValue, Value};
use crate::error::Stop;
use crate::native::NativeFn;

/// `struct(a = 1)`: named values that do not change.
#[derive(Debug, Default)]
pub struct Struct {
    fields: Box<[(ArcStr, Value)]>,
}

impl Struct {
    /// A struct; of a name that comes twice the last counts.
    #[must_use]
    pub fn new(fields: Vec<(ArcStr, Value)>) -> Self {
        let mut kept: Vec<(ArcStr, Value)> = Vec::with_capacity(fields.len());
        for (name, value) in fields {
            match kept.iter_mut().find(|(other, _)| *other == name) {
                Some(field) => field.1 = value,
                None => kept.push((name, value)),
            }
        }
        Self { fields: kept.into_boxed_slice() }
    }

    /// The fields in the order they were written.
    #[must_use]
    pub fn fields(&self) -> &[(ArcStr, Value)] {
        &self.fields
    }

    /// One field.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.fields.iter().find(|(field, _)| field.as_str() == name).map(|(_, value)| value)
    }
}

impl Drop for Struct {
    fn drop(&mut self) {
        drop_values(self.fields.iter_mut().map(|(_, value)| std::mem::take(value)));
    }
}

/// A function of a flow's, made by `def` or `lambda` while it runs.
#[derive(Debug)]
pub struct Function {
    /// Its code, as the program numbers it.
    pub(crate) code: u32,
    /// Values of the last parameters by position and of keyword-only ones that have defaults.
    pub(crate) defaults: Box<[Value]>,
    /// Variables around it.
    pub(crate) captured: Box<[Value]>,
}

impl Drop for Function {
    fn drop(&mut self) {
        drop_values(self.defaults.iter_mut().chain(self.captured.iter_mut()).map(std::mem::take));
    }
}

/// A method with its object.
#[derive(Debug)]
pub struct Bound {
    /// The object.
    pub this: Value,
    /// The method.
    pub method: BoundMethod,
}

/// What a bound method calls.
#[derive(Debug, Clone)]
pub enum BoundMethod {
    /// A method of a builtin type.
    Native(&'static NativeFn),
    /// A method of a host object, by name.
    Host(ArcStr),
}

/// An object that the host gives to one flow, such as the request or a response.
pub trait Object: fmt::Debug + std::any::Any {
    /// The name that `type()` gives.
    fn type_name(&self) -> &'static str;

    /// An attribute.
    ///
    /// # Errors
    /// The host's own; `None` if there is no such attribute.
    fn attribute(&self, name: &str) -> Result<Option<Value>, Stop>;

    /// Names of the attributes, for hints and `dir`.
    fn names(&self) -> Vec<&str>;

    /// A method: called with the object as its first argument.
    fn method(&self, name: &str) -> Option<&'static NativeFn> {
        let _ = name;
        None
    }

    /// Calls `visit` with every value that a flow can reach through the object.
    fn visit(&self, visit: &mut dyn FnMut(&Value)) {
        let _ = visit;
    }

    /// The object as `str()` shows it.
    fn show(&self) -> String {
        format!("<{}>", self.type_name())
    }
}

/// A shared object, one word wide.
#[derive(Clone)]
pub struct ObjectRef(pub(crate) Rc<Rc<dyn Object>>);

impl ObjectRef {
    /// Shares an object.
    #[must_use]
    pub fn new(object: impl Object) -> Self {
        Self::shared(Rc::new(object))
    }

    /// Shares an object that the host keeps too.
    #[must_use]
    pub fn shared<T: Object>(object: Rc<T>) -> Self {
        Self(Rc::new(object))
    }

    /// The object as its own type.
    #[must_use]
    pub fn downcast<T: Object>(&self) -> Option<&T> {
        let any: &dyn std::any::Any = &**self.0;
        any.downcast_ref()
    }

    /// Whether both are the same object.
    #[must_use]
    pub fn same(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.0, &other.0)
    }
}

impl std::ops::Deref for ObjectRef {
    type Target = dyn Object;
    fn deref(&self) -> &Self::Target {
        &**self.0
    }
}

/// A function that a module defined.
#[derive(Debug)]
pub struct FrozenFunction {
    pub(crate) code: u32,
    pub(crate) defaults: Box<[FrozenValue]>,
    pub(crate) captured: Box<[FrozenValue]>,
}
