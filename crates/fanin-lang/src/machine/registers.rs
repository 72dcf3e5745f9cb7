//! Writing and copying registers.

use crate::code::Reg;
use crate::value::Value;

/// Writes a register. Most hold something that needs no dropping.
#[inline(always)]
pub(super) fn set(reg: &mut Value, value: Value) {
    if matches!(reg, Value::Unbound | Value::None | Value::Int(_) | Value::Bool(_) | Value::Float(_)) {
        std::mem::forget(std::mem::replace(reg, value));
    } else {
        *reg = value;
    }
}

/// Takes a value apart and puts it together again. A value is made part by part, tag and content, and
/// loading it as a whole right after that has to wait until both parts have left the store buffer, some
/// fifteen cycles each time. Loading the parts does not.
#[inline(always)]
#[allow(clippy::needless_match, reason = "what matters is how it compiles")]
fn by_parts(value: Value) -> Value {
    match value {
        Value::Int(value) => Value::Int(value),
        Value::Str(text) => Value::Str(text),
        Value::Pending(pending) => Value::Pending(pending),
        Value::Dict(dict) => Value::Dict(dict),
        Value::List(list) => Value::List(list),
        other => other,
    }
}

/// Writes a register with a value that was just made.
#[inline(always)]
pub(super) fn store(reg: &mut Value, value: Value) {
    match value {
        Value::Int(value) => set(reg, Value::Int(value)),
        Value::Str(text) => set(reg, Value::Str(text)),
        Value::Pending(pending) => set(reg, Value::Pending(pending)),
        Value::Dict(dict) => set(reg, Value::Dict(dict)),
        Value::List(list) => set(reg, Value::List(list)),
        other => set(reg, other),
    }
}

/// Writes a register with what a call gives, `Some` or `Ok` of a value: like [`store`], and matched where it is called, since
/// taking the value out first would already load it as a whole.
macro_rules! put {
    ($wrap:path, $reg:expr, $value:expr, $other:pat => $then:expr) => {
        match $value {
            $wrap(Value::Int(value)) => $crate::machine::registers::set($reg, Value::Int(value)),
            $wrap(Value::Str(text)) => $crate::machine::registers::set($reg, Value::Str(text)),
            $wrap(Value::Bool(value)) => $crate::machine::registers::set($reg, Value::Bool(value)),
            $wrap(Value::None) => $crate::machine::registers::set($reg, Value::None),
            $wrap(Value::Json { at, doc }) => $crate::machine::registers::set($reg, Value::Json { at, doc }),
            $wrap(Value::Pending(pending)) => $crate::machine::registers::set($reg, Value::Pending(pending)),
            $wrap(Value::Dict(dict)) => $crate::machine::registers::set($reg, Value::Dict(dict)),
            $wrap(Value::List(list)) => $crate::machine::registers::set($reg, Value::List(list)),
            $wrap(other) => $crate::machine::registers::set($reg, other),
            $other => $then,
        }
    };
}
pub(super) use put;

/// Adds a copy of a value, by parts too.
#[inline]
pub(crate) fn push_copy(items: &mut Vec<Value>, value: &Value) {
    match value {
        Value::Int(value) => items.push(Value::Int(*value)),
        Value::Str(text) => items.push(Value::Str(text.clone())),
        Value::Json { at, doc } => items.push(Value::Json { at: *at, doc: doc.clone() }),
        Value::Pending(pending) => items.push(Value::Pending(pending.clone())),
        Value::Dict(dict) => items.push(Value::Dict(dict.clone())),
        other => items.push(other.clone()),
    }
}

/// Takes a value out of a register that is a temporary.
#[inline(always)]
pub(super) fn moved(reg: &mut Value) -> Value {
    by_parts(std::mem::take(reg))
}

/// Copies one register to another, by parts too.
#[inline]
pub(super) fn copy(regs: &mut [Value], dst: usize, src: usize) {
    match &regs[src] {
        Value::Int(value) => {
            let value = *value;
            set(&mut regs[dst], Value::Int(value));
        }
        Value::Str(text) => {
            let text = text.clone();
            set(&mut regs[dst], Value::Str(text));
        }
        Value::Pending(pending) => {
            let pending = pending.clone();
            set(&mut regs[dst], Value::Pending(pending));
        }
        Value::Dict(dict) => {
            let dict = dict.clone();
            set(&mut regs[dst], Value::Dict(dict));
        }
        Value::List(list) => {
            let list = list.clone();
            set(&mut regs[dst], Value::List(list));
        }
        other => {
            let value = other.clone();
            set(&mut regs[dst], value);
        }
    }
}

/// The row of registers, moved out: they are temporaries.
pub(super) fn take_row(regs: &mut [Value], base: Reg, count: u16) -> Vec<Value> {
    let base = usize::from(base);
    regs[base..base + usize::from(count)].iter_mut().map(moved).collect()
}

/// Registers without values.
pub(super) fn unbound(count: u16) -> Vec<Value> {
    let mut regs = Vec::new();
    regs.resize_with(usize::from(count), || Value::UNBOUND);
    regs
}
