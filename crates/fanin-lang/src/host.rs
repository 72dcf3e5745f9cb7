//! The interface between the machine and its host, which makes calls, and the objects of the host.

use std::fmt;
use std::sync::Arc;

use arcstr::ArcStr;
use fanin_json::Doc;

use crate::error::{Failure, Position};
use crate::pending::PendingValue;
use crate::program_order::ProgramOrder;
use crate::value::Value;

/// What a method of a host object does to the world outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Neither reads nor changes anything outside.
    Pure,
    /// It reads. Reads run side by side.
    Read,
    /// It may change something: it starts when everything above it has succeeded, and everything
    /// below starts when it has.
    Write,
}

/// What is known of a method when a call of it is compiled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Method {
    /// The host's number for it; comes back in [`HostCall::method`].
    pub id: u32,
    /// What it does.
    pub effect: Effect,
}

/// The arguments of a call as they are written.
#[derive(Debug, Clone, Copy)]
pub struct StaticArgs<'a> {
    /// Arguments by position.
    pub positional: usize,
    /// Names of the others.
    pub names: &'a [&'a str],
    /// There may be more: `*args` or `**kwargs`.
    pub open: bool,
    /// The first argument by position, if it is a literal.
    pub first: Option<&'a Value>,
}

/// An object of the host's, such as an upstream. It lives in modules, so it is shared by workers.
pub trait HostObject: std::any::Any + Send + Sync {
    /// The name that `type()` gives.
    fn type_name(&self) -> &str;

    /// The name in messages: `catalog`.
    fn name(&self) -> &str;

    /// The method called `name`. `literal` gives a keyword argument if it is written in the call as a
    /// literal (`safe = True`), and `0` the first argument by position; without one (a method that is called through a variable, say) it gives
    /// `None` always.
    fn method(&self, name: &str, literal: &dyn Fn(&str) -> Option<Value>) -> Option<Method>;

    /// Whether its methods need all arguments settled: the machine awaits them before the call.
    fn awaits_arguments(&self) -> bool {
        false
    }

    /// What is wrong with the arguments of a call: a message and a hint. The compiler calls this for each call of a method.
    fn verify(&self, method: u32, written: &StaticArgs<'_>) -> Option<(String, Option<String>)> {
        let _ = (method, written);
        None
    }

    /// An attribute that is no method.
    fn attribute(&self, name: &str) -> Option<Value> {
        let _ = name;
        None
    }

    /// Names of methods and attributes, for hints and `dir`.
    fn names(&self) -> Vec<&str>;

    /// What is certainly wrong with a call of a method as it is written, found before anything runs.
    fn check(&self, method: &str, call: &StaticCall<'_>) -> Vec<CallDiagnostic> {
        let _ = (method, call);
        Vec::new()
    }
}

/// One argument of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Argument {
    /// By position, from 0.
    Position(usize),
    /// By name.
    Named(String),
}

/// A call of a host object's method as it is written.
pub struct StaticCall<'a> {
    /// How many arguments it gives by position.
    pub positional: usize,
    /// Names of its keyword arguments.
    pub names: Vec<&'a str>,
    /// Whether `*` or `**` brings more.
    pub spread: bool,
    /// The builtin whose argument the call is, if that is certain: `stream` in `stream(files.get("/"))`.
    pub within: Option<&'a str>,
    /// The value of an argument that is a literal.
    pub literal: &'a dyn Fn(&Argument) -> Option<Value>,
    /// The keys of an argument that is a dict written out, all its keys texts.
    pub keys: &'a dyn Fn(&Argument) -> Option<Vec<String>>,
    /// What the source says of an argument, at any depth.
    pub shape: &'a dyn Fn(&Argument) -> StaticValue,
}

/// What the source says of the value of an argument.
#[derive(Debug, Clone)]
pub enum StaticValue {
    /// Anything.
    Unknown,
    /// This value.
    Literal(Value),
    /// A list or tuple of so many items.
    List(Vec<StaticValue>),
    /// A dict; what has keys that are no literal texts is left out.
    Dict(Vec<(String, StaticValue)>),
}

/// What is wrong with a call as it is written.
#[derive(Debug, Clone)]
pub struct CallDiagnostic {
    /// The argument it is about.
    pub argument: Option<Argument>,
    /// Whether the argument's name is what is wrong, not its value.
    pub name_is_wrong: bool,
    /// One line.
    pub message: String,
    /// What would probably help.
    pub hint: Option<String>,
}

/// A shared host object, one word wide.
#[derive(Clone)]
pub struct HostRef(pub(crate) Arc<Box<dyn HostObject>>);

impl HostRef {
    /// Shares an object.
    #[must_use]
    pub fn new(object: impl HostObject) -> Self {
        Self(Arc::new(Box::new(object)))
    }

    /// Whether both are the same object.
    #[must_use]
    pub fn same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The object as its own type.
    #[must_use]
    pub fn downcast<T: HostObject>(&self) -> Option<&T> {
        let any: &dyn std::any::Any = &**self.0;
        any.downcast_ref()
    }
}

impl std::ops::Deref for HostRef {
    type Target = dyn HostObject;
    fn deref(&self) -> &Self::Target {
        &**self.0
    }
}

impl fmt::Debug for HostRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<{} {}>", self.0.type_name(), self.0.name())
    }
}

/// How much a line of the log matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// For debugging.
    Debug,
    /// The usual.
    Info,
    /// Something is odd.
    Warn,
    /// Something is wrong.
    Error,
}

impl Level {
    /// All levels.
    pub const ALL: [Self; 4] = [Self::Debug, Self::Info, Self::Warn, Self::Error];

    /// As flows write it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Warn => "warn",
            Self::Error => "error",
        }
    }
}

/// Where a call is in the source. Small and `Copy`; [`crate::Program::position`] spells it out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct CallSite {
    /// Function, as the program numbers them.
    pub(crate) code: u32,
    /// Operation within it.
    pub(crate) pc: u32,
}

/// Arguments of a call. Values may be pending.
#[derive(Debug, Clone, Copy)]
pub struct Args<'a> {
    /// Arguments by position. For methods of builtin types the first is the object itself.
    pub pos: &'a [Value],
    /// Names of the keyword arguments, as many as `named`.
    pub names: &'a [ArcStr],
    /// Values of the keyword arguments.
    pub named: &'a [Value],
}

/// A call of a host object's method.
pub struct HostCall<'a> {
    /// The object.
    pub object: &'a HostRef,
    /// The number that [`HostObject::method`] gave.
    pub method: u32,
    /// Its effect at this call.
    pub effect: Effect,
    /// Arguments as they are now. What is kept must be captured: the flow may change
    /// its containers later.
    pub args: Args<'a>,
    /// Where the call is written.
    pub call_site: CallSite,
    /// Where it is in program order.
    pub order: ProgramOrder,
    pub(crate) place: &'a dyn Fn() -> crate::program_point::ProgramPoint,
}

impl HostCall<'_> {
    /// A snapshot of an argument as it is now, to keep: containers are copied, what is pending stays
    /// pending (a pending result of a function is copied the moment it comes).
    ///
    /// # Errors
    /// If it is nested too deep.
    pub fn capture(&self, value: &Value) -> Result<Value, Failure> {
        crate::value::capture::capture(value, &self.order, self.place)
    }
}

/// The host of a running flow: it makes the calls. One object per instance.
pub trait Host {
    /// Makes a call. It returns at once, usually with [`Value::Pending`] of a [`PendingValue::call`] that is
    /// settled later.
    ///
    /// # Errors
    /// What is wrong with the call itself: it fails the flow at this line.
    fn call(&mut self, call: HostCall<'_>) -> Result<Value, Failure>;

    /// A writing call is about to start at `order`, and nothing else of the flow runs. The first
    /// required call above it that has not settled or has failed: the machine waits for it, and its
    /// failure fails the flow here. `None` if all have succeeded.
    fn barrier(&mut self, order: &ProgramOrder) -> Option<PendingValue>;

    /// A native of the host's own needs it as itself.
    fn as_any(&mut self) -> &mut dyn std::any::Any;

    /// `print(...)`.
    fn print(&mut self, text: &str, call_site: CallSite) {
        let _ = (text, call_site);
    }

    /// Where the call of an answer was made.
    fn made(&self, doc: &Doc) -> Option<Position> {
        let _ = doc;
        None
    }

    /// `log(...)`: a line of the structured log with fields. Without one of its own a host prints it.
    fn log(&mut self, level: Level, text: &str, fields: &[(ArcStr, String)], call_site: CallSite) {
        let mut line = format!("{}: {text}", level.name());
        for (name, value) in fields {
            line.push_str(&format!(" {name}={value}"));
        }
        self.print(&line, call_site);
    }

    /// Which call an answer came from (`answer of catalog`), for messages about keys that it lacks.
    fn origin(&self, doc: &Doc) -> Option<String> {
        let _ = doc;
        None
    }
}

/// A host that makes no calls: for the top level of modules.
#[derive(Debug, Default)]
pub struct NoHost;

impl Host for NoHost {
    fn call(&mut self, call: HostCall<'_>) -> Result<Value, Failure> {
        Err(Failure::new(
            crate::error::Kind::Host,
            format!("{} cannot be called while a module loads: only flows make calls", call.object.name()),
        ))
    }

    fn barrier(&mut self, _order: &ProgramOrder) -> Option<PendingValue> {
        None
    }

    fn as_any(&mut self) -> &mut dyn std::any::Any {
        self
    }
}
