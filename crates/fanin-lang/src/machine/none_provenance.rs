//! None provenance: where a `None` comes from that an operation cannot use.

use std::rc::Rc;

use super::{Frame, Machine};
use crate::code::{Code, CodeTables, Op, Reg, Target};
use crate::error::line_column;
use crate::error::{Failure, Kind};
use crate::program::ProgramData;
use crate::value::Value;

/// Adds a hint to a failure of an operation that read a `None`: which operation of the same function wrote it.
#[cold]
pub(super) fn explain(program: &ProgramData, machine: &Machine, frame: Frame, failure: &mut Failure) {
    if !matches!(failure.kind, Kind::Attribute | Kind::Type) {
        return;
    }
    let code = &program.codes[frame.code as usize];
    let pc = frame.pc as usize;
    let Some(op) = code.ops.get(pc) else { return };
    let mut found = None;
    op.reads(
        &CodeTables { calls: &code.calls, closures: &code.closures, shapes: &code.shapes, formats: &code.formats },
        &mut |reg| {
            let value = machine.regs.get(frame.base as usize + usize::from(reg));
            if found.is_none()
                && let Some(value) = value.filter(|value| is_none(value))
            {
                found = match absent(value) {
                    Some(failure) => Some(format!("it is None because an optional call failed: {}", failure.message)),
                    None => origin(program, code, pc, reg),
                };
            }
        },
    );
    if let Some(words) = found {
        failure.hint = Some(words);
    }
}

fn is_none(value: &Value) -> bool {
    matches!(value, Value::None | Value::Absent(_)) || matches!(value.decide(), Ok(Value::None))
}

/// The failure of the optional call that left this value absent.
fn absent(value: &Value) -> Option<Rc<Failure>> {
    let mut value = value.clone();
    loop {
        value = match value {
            Value::Absent(failure) => return Some(failure),
            Value::Pending(pending) => pending.outcome()?.ok()?,
            _ => return None,
        };
    }
}

/// What wrote a register before an operation.
fn origin(program: &ProgramData, code: &Code, pc: usize, reg: Reg) -> Option<String> {
    let mut reg = reg;
    let text = &program.files.get(code.file as usize)?.text;
    for at in (0..pc).rev() {
        let line = || line_column(text, code.spans[at].0).0;
        match code.ops[at] {
            Op::Move { dst, src } if dst == reg => reg = src,
            Op::Call { dst, call } if dst == reg => {
                let info = &code.calls[usize::from(call)];
                let written = text.get(code.spans[at].0 as usize..code.spans[at].1 as usize)?;
                return match &info.target {
                    Target::Method { name, .. } if name == "get" => {
                        let key = key_of(code, at, info.base + 1);
                        let shown = key.map_or_else(|| ".get(...)".to_owned(), |key| format!(".get({key:?})"));
                        let soft = shown.replace(')', ", {})");
                        let hint =
                            if info.positional == 2 { format!("; {soft} would continue") } else { String::new() };
                        Some(format!("it is None because {shown} in line {} found nothing{hint}", line()))
                    }
                    Target::Host { object, .. } => {
                        Some(format!("it is None: the call of {} in line {} returned nothing", object.name(), line()))
                    }
                    Target::Known(_) | Target::Global(_) | Target::Value(_) => {
                        let name = written.split('(').next().unwrap_or_default().trim();
                        Some(format!("it is None: {name}() in line {} returned nothing", line()))
                    }
                    _ => None,
                };
            }
            Op::Key { dst, key, .. } if dst == reg => {
                let key = &code.keys[usize::from(key)];
                return Some(format!("it is None: [{:?}] in line {} is null", key.as_str(), line()));
            }
            Op::Index { dst, .. } if dst == reg => {
                return Some(format!("it is None: the element taken in line {} is null", line()));
            }
            _ => {}
        }
    }
    None
}

/// The constant text that was last put into a register.
fn key_of(code: &Code, pc: usize, reg: Reg) -> Option<&str> {
    code.ops[..pc].iter().rev().find_map(|op| match op {
        Op::Const { dst, k } if *dst == reg => Some(match &code.consts[usize::from(*k)] {
            crate::value::FrozenValue::Str(text) => Some(text.as_str()),
            _ => None,
        }),
        _ => None,
    })?
}
