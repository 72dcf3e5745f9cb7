//! What a native may use while it runs.

use std::rc::Rc;

use super::ENTRY;
use crate::error::{Failure, Kind, Stop};
use crate::host::{CallSite, Host};
use crate::meter::Meter;
use crate::program::ProgramData;
use crate::value::{Dict, List, Set, Value};

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
    /// If it is no list, frozen, being looped over or borrowed by a suspended fiber.
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
    /// If it is no dict, frozen, being looped over or borrowed by a suspended fiber.
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
    /// If it is no set, frozen, being looped over or borrowed by a suspended fiber.
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

    /// The same, appended to a string.
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

    /// Whether the slice of steps is used up, so that others should run.
    pub(crate) fn is_spent(&self) -> bool {
        self.meter.fuel == 0
    }

    /// What this native has done before it [suspended](Self::suspend) itself. It must be asked before
    /// anything is charged.
    pub(crate) fn resume<T: 'static>(&mut self) -> Option<Box<T>> {
        self.meter.resume()
    }

    /// Gives the worker back to others: the native returns this error and is called again, with the same
    /// arguments, when the flow has its next time slice.
    pub(crate) fn suspend(&mut self, task: Box<dyn std::any::Any>) -> Stop {
        self.meter.suspend(task)
    }

    /// A buffer for building a string; give it back with [`put_scratch`](Self::put_scratch).
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

    /// The same, appended to a string.
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
