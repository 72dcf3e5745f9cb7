//! Functions written in Rust: builtins, methods of builtin types, functions of the host's.

use std::collections::HashMap;
use std::fmt;
use std::rc::Rc;

use arcstr::ArcStr;

use crate::error::{Failure, Kind, Stop};
use crate::host::{Args, CallSite, Host};
use crate::machine::Meter;
use crate::program::ProgramData;
use crate::value::{Dict, FrozenValue, List, Set, Value, ValueKind};

/// What a native needs to be there before it is called. Arguments that it needs are *decided*:
/// pending ones resolved, absent ones `None`, JSON scalars as the values they stand for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Awaits {
    /// All arguments, not what is inside them.
    All,
    /// Arguments by position whose bit is set (bit 0 is the first; the object for methods). The
    /// others, and keyword arguments, are only moved and may be pending.
    These(u32),
    /// All arguments and everything inside them (`str`, `json.encode`, `print`).
    Deep,
}

/// Name of the keyword argument with which the compiler passes the results of `key = f`. No program
/// can write it.
pub const KEYS: &str = "\0keys";

/// What a native changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Changes {
    /// Nothing.
    Nothing,
    /// Its first argument, a container (`append`).
    This,
    /// Something else: calls of it stand in program order.
    World,
}

/// The code of a native. It is run again from its start when it stops to wait, so it must decide on
/// everything ([`Value::decide`]) before it changes anything.
pub type NativeCode = fn(&mut Ctx<'_>, Args<'_>) -> Result<Value, Stop>;

/// The same where all arguments are positional and stand in places of their own: it may take them out
/// once nothing can stop it.
pub(crate) type TakingCode = fn(&mut Ctx<'_>, &mut [Value]) -> Result<Value, Stop>;

/// A function written in Rust. Natives are `static`s.
pub struct NativeFn {
    /// Its name in messages.
    pub name: &'static str,
    /// Its code.
    pub code: NativeCode,
    /// What runs instead where it can: keeping an argument then costs no copy of it.
    pub(crate) taking: Option<TakingCode>,
    /// What it waits for.
    pub awaits: Awaits,
    /// What it changes.
    pub changes: Changes,
    /// Whether it takes `key = f` as `sorted` does. The compiler then calls `f` for each element
    /// itself and hands the results over as the argument [`KEYS`] (a list as long as the elements).
    pub keyed: bool,
    /// What it takes and gives, for checks before anything runs: `abort(status: int, message: str?)`,
    /// where `?` marks what can be left out. The language's own functions have theirs in a table.
    pub signature: Option<&'static str>,
}

impl NativeFn {
    /// A native that waits for all its arguments and changes nothing.
    #[must_use]
    pub const fn new(name: &'static str, code: NativeCode) -> Self {
        Self { name, code, taking: None, awaits: Awaits::All, changes: Changes::Nothing, keyed: false, signature: None }
    }

    /// The same, waiting for something else.
    #[must_use]
    pub const fn awaits(mut self, awaits: Awaits) -> Self {
        self.awaits = awaits;
        self
    }

    /// The same, with code that takes its arguments.
    #[must_use]
    pub(crate) const fn taking(mut self, taking: TakingCode) -> Self {
        self.taking = Some(taking);
        self
    }

    /// The same, changing something.
    #[must_use]
    pub const fn changes(mut self, changes: Changes) -> Self {
        self.changes = changes;
        self
    }

    /// The same, saying what it takes and gives.
    #[must_use]
    pub const fn signature(mut self, line: &'static str) -> Self {
        self.signature = Some(line);
        self
    }

    /// The same, with `key = f` taken care of by the compiler.
    #[must_use]
    pub const fn keyed(mut self) -> Self {
        self.keyed = true;
        self
    }
}

impl fmt::Debug for NativeFn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<built-in function {}>", self.name)
    }
}

/// Bytes that an entry of a dict or set counts.
pub(crate) const ENTRY: usize = 48;

/// A text of so many bytes, written where it stays: a long one is not written twice. `fill` must write UTF-8.
pub(crate) fn filled(bytes: usize, fill: impl FnOnce(&mut [u8])) -> Value {
    if bytes == 0 {
        return Value::Str(ArcStr::new());
    }
    Value::Str(ArcStr::init_with(bytes, fill).unwrap_or_default())
}

/// What a native may use while it runs.
pub struct Ctx<'a> {
    /// Whoever runs the flow.
    pub host: &'a mut dyn Host,
    /// Where the call is written.
    pub call_site: CallSite,
    pub(crate) meter: &'a mut Meter,
    pub(crate) program: &'a ProgramData,
}

impl Ctx<'_> {
    /// Charges for work whose size the program chooses: one step for about ten bytes or one element.
    ///
    /// # Errors
    /// When the steps are used up.
    #[inline]
    pub fn steps(&mut self, steps: usize) -> Result<(), Stop> {
        self.meter.steps(steps as u64)
    }

    /// Charges for memory before it is taken.
    ///
    /// # Errors
    /// When the memory is used up.
    #[inline]
    pub fn memory(&mut self, bytes: usize) -> Result<(), Stop> {
        self.meter.memory(bytes as u64)
    }

    /// Whether one value may have so many bytes: for what is put together piece by piece.
    ///
    /// # Errors
    /// If not.
    #[inline]
    pub fn value(&self, bytes: usize) -> Result<(), Stop> {
        self.meter.value(bytes)
    }

    /// A new list; charged.
    ///
    /// # Errors
    /// When the memory is used up.
    pub fn list(&mut self, items: Vec<Value>) -> Result<Value, Stop> {
        self.memory(64 + items.len() * size_of::<Value>())?;
        Ok(Value::list(items))
    }

    /// A new string; charged.
    ///
    /// # Errors
    /// When the memory is used up.
    pub fn str(&mut self, text: &str) -> Result<Value, Stop> {
        self.memory(24 + text.len())?;
        self.steps(text.len() / 16)?;
        Ok(Value::str(text))
    }

    /// The list to change, `inserted` about to go into it.
    ///
    /// # Errors
    /// If it is no list, frozen, being looped over or lent to a fiber.
    #[inline]
    pub fn edit_list<'v>(&mut self, list: &'v Value, inserted: Option<&Value>) -> Result<&'v Rc<List>, Stop> {
        match list {
            Value::List(list) => {
                list.guard.check("list")?;
                self.meter.value(list.items().len() * size_of::<Value>())?;
                self.memory(32)?;
                if inserted.is_some_and(Value::may_hold) {
                    self.meter.track_list(list);
                }
                Ok(list)
            }
            other => Err(cannot_change(other, "list")),
        }
    }

    /// The dict to change, `inserted` about to go into it.
    ///
    /// # Errors
    /// If it is no dict, frozen, being looped over or lent to a fiber.
    #[inline]
    pub fn edit_dict<'v>(&mut self, dict: &'v Value, inserted: Option<&Value>) -> Result<&'v Rc<Dict>, Stop> {
        match dict {
            Value::Dict(dict) => {
                dict.guard.check("dict")?;
                self.meter.value(dict.map().len() * ENTRY)?;
                self.memory(64)?;
                if inserted.is_some_and(Value::may_hold) {
                    self.meter.track_dict(dict);
                }
                Ok(dict)
            }
            other => Err(cannot_change(other, "dict")),
        }
    }

    /// The set to change. What goes into a set is hashable, so it cannot hold the set.
    ///
    /// # Errors
    /// If it is no set, frozen, being looped over or lent to a fiber.
    pub fn edit_set<'v>(&mut self, set: &'v Value) -> Result<&'v Rc<Set>, Stop> {
        match set {
            Value::Set(set) => {
                set.guard.check("set")?;
                self.meter.value(set.items().len() * ENTRY)?;
                self.memory(64)?;
                Ok(set)
            }
            other => Err(cannot_change(other, "set")),
        }
    }

    /// The text that `str()` gives. Everything inside must be there.
    ///
    /// # Errors
    /// If something is pending or failed, nested too deep, or over the limits.
    pub fn show(&mut self, value: &Value) -> Result<String, Stop> {
        let mut text = String::new();
        self.show_into(value, &mut text)?;
        Ok(text)
    }

    /// The same, put behind a text.
    pub(crate) fn show_into(&mut self, value: &Value, out: &mut String) -> Result<(), Stop> {
        let before = out.len();
        match value {
            Value::Str(text) => out.push_str(text),
            Value::Int(value) => out.push_str(itoa::Buffer::new().format(*value)),
            other => crate::value::display::str(other, self.program, self.text_left(), out)?,
        }
        self.shown(out.len() - before)
    }

    fn shown(&mut self, bytes: usize) -> Result<(), Stop> {
        self.memory(bytes)?;
        self.steps(bytes / 8)
    }

    /// Whether the slice of steps is used up, so that others should have their turn.
    pub(crate) fn is_spent(&self) -> bool {
        self.meter.fuel == 0
    }

    /// What this native has done before it [suspended](Self::suspend) itself. It must be asked before
    /// anything is charged.
    pub(crate) fn resume<T: 'static>(&mut self) -> Option<Box<T>> {
        self.meter.resume()
    }

    /// Gives the worker back to others: the native returns this error and is called again, with the same
    /// arguments, when the flow has its next turn.
    pub(crate) fn suspend(&mut self, task: Box<dyn std::any::Any>) -> Stop {
        self.meter.suspend(task)
    }

    /// Room to put a text together in; give it back with [`put_scratch`](Self::put_scratch).
    pub(crate) fn scratch(&mut self) -> String {
        self.meter.scratch()
    }

    /// Gives [`scratch`](Self::scratch) back.
    pub(crate) fn put_scratch(&mut self, scratch: String) {
        self.meter.put_scratch(scratch);
    }

    /// Bytes of text that steps and memory are left for.
    fn text_left(&self) -> usize {
        let left = self.meter.memory_left().min(self.meter.steps_left().saturating_mul(8));
        let most = left.min(self.meter.most_value());
        usize::try_from(most).unwrap_or(usize::MAX)
    }

    /// The text that `repr()` gives.
    ///
    /// # Errors
    /// As [`show`](Self::show).
    pub fn repr(&mut self, value: &Value) -> Result<String, Stop> {
        let mut text = String::new();
        self.repr_into(value, &mut text)?;
        Ok(text)
    }

    /// The same, put behind a text.
    pub(crate) fn repr_into(&mut self, value: &Value, out: &mut String) -> Result<(), Stop> {
        let before = out.len();
        crate::value::display::repr(value, self.program, self.text_left(), out)?;
        self.shown(out.len() - before)
    }

    /// The elements of anything that can be looped over, charged by number. Elements may be pending.
    ///
    /// # Errors
    /// If it cannot be looped over.
    pub fn elements(&mut self, value: &Value) -> Result<Vec<Value>, Stop> {
        let value = value.decide()?;
        if let Some(len) = crate::value::view::len(&value) {
            self.steps(len)?;
            self.memory(len.saturating_mul(size_of::<Value>()))?;
        }
        crate::value::view::elements(&value)
    }
}

#[cold]
fn cannot_change(value: &Value, wanted: &str) -> Stop {
    let kind = crate::value::view::kind(value);
    if kind.name() == wanted {
        Stop::Fail(Box::new(
            Failure::new(Kind::Frozen, format!("this {wanted} is frozen and cannot be changed"))
                .with_hint(format!("{wanted}(x) makes a copy that can be changed")),
        ))
    } else {
        Stop::fail(Kind::Type, format!("expected a {wanted}, got {}", kind.name()))
    }
}

impl<'a> Args<'a> {
    /// Checks the number of positional arguments and that there are no keyword arguments. For
    /// methods the object is not counted, here and in the message.
    ///
    /// # Errors
    /// A message that names the function and both numbers.
    #[inline]
    pub fn only(&self, name: &str, method: bool, least: usize, most: usize) -> Result<(), Stop> {
        let got = self.pos.len() - usize::from(method);
        if self.names.is_empty() && got >= least && got <= most {
            return Ok(());
        }
        Err(self.others(name, got, least, most))
    }

    /// What [`only`](Self::only) says.
    #[cold]
    fn others(&self, name: &str, got: usize, least: usize, most: usize) -> Stop {
        if let Some(unknown) = self.names.first() {
            return Stop::fail(Kind::Arguments, format!("{name}() got an unexpected keyword argument '{unknown}'"));
        }
        let wanted = if least == most {
            format!("{least} argument{}", if least == 1 { "" } else { "s" })
        } else if most == usize::MAX {
            format!("at least {least} arguments")
        } else {
            format!("{least} to {most} arguments")
        };
        Stop::fail(Kind::Arguments, format!("{name}() takes {wanted}, {got} given"))
    }

    /// A keyword argument.
    #[must_use]
    pub fn keyword(&self, name: &str) -> Option<&'a Value> {
        self.names.iter().position(|given| given.as_str() == name).and_then(|at| self.named.get(at))
    }

    /// Binds arguments to parameters, by position or name: `params` are their names, the first
    /// `required` of them must be given. For methods leave the object out of `params`.
    ///
    /// # Errors
    /// A message that names the function and what is wrong.
    pub fn bind<const N: usize>(
        &self,
        name: &str,
        method: bool,
        params: [&str; N],
        required: usize,
    ) -> Result<[Option<&'a Value>; N], Stop> {
        let pos = &self.pos[usize::from(method)..];
        if pos.len() > N {
            return Err(Stop::fail(
                Kind::Arguments,
                format!("{name}() takes at most {N} argument{}, {} given", if N == 1 { "" } else { "s" }, pos.len()),
            ));
        }
        let mut bound = [None; N];
        for (pending, value) in bound.iter_mut().zip(pos) {
            *pending = Some(value);
        }
        for (given, value) in self.names.iter().zip(self.named) {
            match params.iter().position(|param| *param == given.as_str()) {
                Some(at) if bound[at].is_none() => bound[at] = Some(value),
                Some(_) => {
                    return Err(Stop::fail(
                        Kind::Arguments,
                        format!("{name}() got two values for the argument '{given}'"),
                    ));
                }
                None => {
                    return Err(Stop::fail(
                        Kind::Arguments,
                        format!("{name}() got an unexpected keyword argument '{given}'"),
                    ));
                }
            }
        }
        if let Some(missing) = (0..required).find(|at| bound[*at].is_none()) {
            return Err(Stop::fail(Kind::Arguments, format!("{name}() needs the argument '{}'", params[missing])));
        }
        Ok(bound)
    }
}

/// Methods of the builtin types and global names: what every module sees without `load`.
///
/// Built once by the host (`Globals::standard()` plus its own) and shared by all programs.
#[derive(Debug)]
pub struct Globals {
    pub(crate) names: HashMap<ArcStr, FrozenValue>,
    /// Methods by name, then by kind of the object.
    pub(crate) methods: Vec<(&'static str, [Option<&'static NativeFn>; ValueKind::COUNT])>,
    pub(crate) method_ids: HashMap<&'static str, u16>,
    /// Names of the host's types, for annotations.
    pub(crate) types: Vec<&'static str>,
}

impl Default for Globals {
    fn default() -> Self {
        Self::standard()
    }
}

impl Globals {
    /// No names at all.
    #[must_use]
    pub fn empty() -> Self {
        Self { names: HashMap::new(), methods: Vec::new(), method_ids: HashMap::new(), types: Vec::new() }
    }

    /// The builtins of the language.
    #[must_use]
    pub fn standard() -> Self {
        let mut globals = Self::empty();
        crate::builtins::register(&mut globals);
        crate::methods::register(&mut globals);
        globals
    }

    /// Adds functions under their names.
    pub fn functions(&mut self, natives: &'static [NativeFn]) {
        for native in natives {
            self.names.insert(ArcStr::from(native.name), FrozenValue::Native(native));
        }
    }

    /// Adds a value under a name.
    pub fn value(&mut self, name: &str, value: FrozenValue) {
        self.names.insert(ArcStr::from(name), value);
    }

    /// Names types of the host's, as `type()` gives them, so that annotations can use them.
    pub fn types(&mut self, names: &[&'static str]) {
        self.types.extend(names);
    }

    /// Adds methods of a builtin type.
    pub fn methods(&mut self, kind: ValueKind, natives: &'static [NativeFn]) {
        for native in natives {
            let next = self.methods.len();
            let id = *self.method_ids.entry(native.name).or_insert(next as u16);
            if usize::from(id) == next {
                self.methods.push((native.name, [None; ValueKind::COUNT]));
            }
            self.methods[usize::from(id)].1[kind as usize] = Some(native);
        }
    }

    /// The method of a kind of value.
    #[must_use]
    pub fn method(&self, kind: ValueKind, name: &str) -> Option<&'static NativeFn> {
        let id = self.method_ids.get(name)?;
        self.methods[usize::from(*id)].1[kind as usize]
    }

    /// Names of the methods of a kind, for hints and `dir`.
    pub fn method_names(&self, kind: ValueKind) -> impl Iterator<Item = &'static str> + '_ {
        self.methods.iter().filter(move |(_, kinds)| kinds[kind as usize].is_some()).map(|(name, _)| *name)
    }
}
