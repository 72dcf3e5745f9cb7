//! The interpreter: runs the operations of one frame up to the next that concerns other frames.
//!
//! `step` is one long function on purpose: the compiler makes one jump table of it and keeps the
//! program counter and the registers of the frame in machine registers.

use std::cell::RefCell;
use std::rc::Rc;

use super::arithmetic::{self, small};
use super::build::{build_from, check_type, dict_of_pairs, render, unpack};
use super::charge::scan_steps;
use super::context::{Action, Cx, place};
use super::fiber::End;
use super::index::{self, At, key_of};
use super::ops;
use super::registers::{copy, moved, push_copy, put, set, store, take_row};
use crate::code::{Code, Op};
use crate::error::{Failure, Kind, Stop};
use crate::native::ENTRY;
use crate::program_order::ProgramOrder;
use crate::value::index::index_hard;
use crate::value::object::Function;
use crate::value::view::Iter;
use crate::value::{Dict, FrozenValue, List, Tuple, Value, part};

macro_rules! attempt {
    ($pc:ident, $at:ident, $result:expr) => {
        match $result {
            Ok(value) => value,
            Err(stop) => {
                *$pc = $at;
                return Action::Stop(stop.into());
            }
        }
    };
}

/// Runs operations of a frame whose registers are `regs`.
pub(crate) fn step(regs: &mut [Value], code: &Code, pc: &mut usize, cx: &mut Cx<'_>) -> Action {
    // The frame's own counter is not read before this returns.
    let mut next = *pc;
    loop {
        if cx.meter.fuel == 0 {
            *pc = next;
            return Action::Fuel;
        }
        cx.meter.fuel -= 1;
        let at = next;
        next += 1;
        macro_rules! r {
            ($reg:expr) => {
                regs[usize::from($reg)]
            };
        }
        // Operations that charge for the size of their operands.
        macro_rules! charged {
            ($result:expr) => {{
                let mark = cx.meter.mark();
                let result = $result;
                attempt!(pc, at, cx.meter.settle(mark, result))
            }};
        }
        // The same for those that make a value, which goes to a register.
        macro_rules! charged_to {
            ($dst:expr, $result:expr) => {{
                let mark = cx.meter.mark();
                put!(Ok, &mut r!($dst), $result, Err(stop) => {
                    cx.meter.stopped(mark, &stop);
                    *pc = at;
                    return Action::Stop(stop);
                })
            }};
        }
        // The next element of a loop.
        macro_rules! advance {
            ($iter:expr, $dst:expr, $to:expr) => {{
                let Value::Iter(place) = &r!($iter) else {
                    next = usize::from($to);
                    continue;
                };
                if let Some(value) = place.next_of_range() {
                    set(&mut r!($dst), Value::Int(value));
                    continue;
                }
                put!(Some, &mut r!($dst), place.next(), None => {
                    r!($iter) = Value::None;
                    next = usize::from($to);
                });
            }};
        }
        match code.ops[at] {
            Op::Const { dst, k } => match &code.consts[usize::from(k)] {
                FrozenValue::Str(text) => set(&mut r!(dst), Value::Str(text.clone())),
                other => set(&mut r!(dst), other.to_value()),
            },
            Op::Pass { point } => {
                code.points[usize::from(point)].pass();
                // Counting is no step of the program.
                cx.meter.fuel += 1;
            }
            Op::Int { dst, value } => set(&mut r!(dst), Value::Int(i64::from(value))),
            Op::None { dst } => set(&mut r!(dst), Value::None),
            Op::Bool { dst, value } => set(&mut r!(dst), Value::Bool(value)),
            Op::Move { dst, src } => copy(regs, usize::from(dst), usize::from(src)),
            Op::Global { dst, index } => r!(dst) = attempt!(pc, at, global(cx, index)),
            Op::SetGlobal { src, index } => {
                if let Some(building) = cx.building {
                    building.set(index, r!(src).clone());
                }
            }
            Op::NewCell { dst } => {
                let cell = Rc::new(RefCell::new(Value::UNBOUND));
                cx.meter.track_cell(&cell);
                r!(dst) = Value::Cell(cell);
            }
            Op::LoadCell { dst, cell } => {
                let value = match &r!(cell) {
                    Value::Cell(cell) => cell.borrow().clone(),
                    other => other.clone(),
                };
                r!(dst) = value;
            }
            Op::StoreCell { cell, src } => {
                let value = r!(src).clone();
                if let Value::Cell(cell) = &r!(cell) {
                    let old = cell.replace(value);
                    drop(old);
                }
            }
            Op::Check { src, key } => {
                if matches!(r!(src), Value::Unbound) {
                    let name = key_of(code, key);
                    attempt!(pc, at, Err(Failure::new(Kind::Name, format!("the variable {name} has no value yet"))));
                }
            }
            Op::Binary { op, dst, a, b } => {
                if let (Value::Int(a), Value::Int(b)) = (&r!(a), &r!(b))
                    && let Some(value) = small(op, *a, *b)
                {
                    set(&mut r!(dst), Value::Int(value));
                } else {
                    charged_to!(dst, ops::binary(&mut cx.ctx(at), op, &r!(a), &r!(b)));
                }
            }
            Op::InPlace { op, dst, a, b } => {
                if let (Value::Int(a), Value::Int(b)) = (&r!(a), &r!(b))
                    && let Some(value) = small(op, *a, *b)
                {
                    set(&mut r!(dst), Value::Int(value));
                } else {
                    charged_to!(dst, ops::in_place(&mut cx.ctx(at), op, &r!(a), &r!(b)));
                }
            }
            Op::BinaryInt { op, dst, a, value } => {
                let by = i64::from(value);
                if let Value::Int(a) = &r!(a)
                    && let Some(value) = small(op, *a, by)
                {
                    set(&mut r!(dst), Value::Int(value));
                } else {
                    charged_to!(dst, ops::binary(&mut cx.ctx(at), op, &r!(a), &Value::Int(by)));
                }
            }
            Op::Equal { dst, a, b, not } => {
                let equal = charged!(ops::equal(&mut cx.ctx(at), &r!(a), &r!(b)));
                set(&mut r!(dst), Value::Bool(equal != not));
            }
            Op::Compare { op, dst, a, b } => {
                let holds = attempt!(pc, at, ops::ordered(&mut cx.ctx(at), op, &r!(a), &r!(b)));
                set(&mut r!(dst), Value::Bool(holds));
            }
            Op::In { dst, a, b, not } => {
                let found = charged!(ops::contains(&mut cx.ctx(at), &r!(a), &r!(b)));
                r!(dst) = Value::Bool(found != not);
            }
            Op::Not { dst, src } => {
                let value = attempt!(pc, at, ops::truth(&r!(src)));
                r!(dst) = Value::Bool(!value);
            }
            Op::Negate { dst, src } => r!(dst) = attempt!(pc, at, arithmetic::negate(&r!(src))),
            Op::Plus { dst, src } => r!(dst) = attempt!(pc, at, arithmetic::plus(&r!(src))),
            Op::Invert { dst, src } => r!(dst) = attempt!(pc, at, arithmetic::invert(&r!(src))),
            Op::Jump { to } => {
                next = usize::from(to);
                // Most jump back to the head of a loop. Running that here, too, is one operation less to find.
                if let Op::Next { iter, dst, to } = code.ops[next]
                    && cx.meter.fuel > 0
                {
                    cx.meter.fuel -= 1;
                    next += 1;
                    advance!(iter, dst, to);
                }
            }
            Op::JumpIf { cond, to } => {
                if attempt!(pc, at, ops::truth(&r!(cond))) {
                    next = usize::from(to);
                }
            }
            Op::JumpIfNot { cond, to } => {
                if !attempt!(pc, at, ops::truth(&r!(cond))) {
                    next = usize::from(to);
                }
            }
            Op::Index { dst, of, key } => {
                let found = match (&r!(of), &r!(key)) {
                    (Value::List(list), Value::Int(index)) if *index >= 0 => list.items().get(*index as usize).cloned(),
                    (Value::Dict(dict), key @ (Value::Str(_) | Value::Int(_))) => {
                        attempt!(pc, at, cx.meter.steps(scan_steps(key) as u64));
                        attempt!(pc, at, dict.map().get(key)).cloned()
                    }
                    _ => None,
                };
                put!(Some, &mut r!(dst), found, None => {
                    let value = attempt!(pc, at, take_part(&r!(of), &r!(key), cx, at));
                    store(&mut r!(dst), value);
                });
            }
            Op::Key { dst, of, key } => {
                let key = key_of(code, key);
                let value = match &r!(of) {
                    Value::Json { at, doc } => part::soft_str(doc, *at, key),
                    Value::Dict(dict) => match dict.map().get_str(key) {
                        Some(value) => value.clone(),
                        None => attempt!(pc, at, index_hard(&r!(of), &Value::Str(key.clone()))),
                    },
                    Value::Pending(pending) => {
                        // The answer of a call that is there.
                        let found = pending.is_soft().then(|| {
                            pending.with_outcome(|outcome| match outcome {
                                Ok(Value::Json { at, doc }) => Some(part::soft_str(doc, *at, key)),
                                _ => None,
                            })
                        });
                        match found.flatten().flatten() {
                            Some(value) => value,
                            None => attempt!(pc, at, take_part(&r!(of), &Value::Str(key.clone()), cx, at)),
                        }
                    }
                    other => attempt!(pc, at, take_part(other, &Value::Str(key.clone()), cx, at)),
                };
                store(&mut r!(dst), value);
            }
            Op::SetIndex { of, key, value } => {
                charged!(index::set_index(&mut cx.ctx(at), &r!(of), &r!(key), &r!(value)));
            }
            Op::Slice { dst, of, base } => {
                let base = usize::from(base);
                let value = charged!(index::slice(&mut cx.ctx(at), &r!(of), &regs[base..base + 3]));
                r!(dst) = value;
            }
            Op::Attribute { dst, of, key } => {
                put!(Ok, &mut r!(dst), index::attribute(&cx.ctx(at), &r!(of), key_of(code, key)), Err(stop) => {
                    *pc = at;
                    return Action::Stop(stop);
                });
            }
            Op::List { dst, base, count } => {
                let bytes = 64 + usize::from(count) * size_of::<Value>();
                attempt!(pc, at, cx.meter.memory(bytes as u64));
                let items = take_row(regs, base, count);
                r!(dst) = Value::List(Rc::new(List::new(items)));
            }
            Op::Tuple { dst, base, count } => {
                let bytes = 32 + usize::from(count) * size_of::<Value>();
                attempt!(pc, at, cx.meter.memory(bytes as u64));
                let base = usize::from(base);
                r!(dst) = match &mut regs[base..base + usize::from(count)] {
                    [first, second] => Value::pair(moved(first), moved(second)),
                    items => Value::Tuple(Rc::new(Tuple::new(items.iter_mut().map(moved).collect()))),
                };
            }
            Op::Dict { dst, base, pairs } => {
                let value = attempt!(pc, at, dict_of_pairs(regs, base, pairs, cx));
                r!(dst) = value;
            }
            Op::Record { dst, shape, base } => {
                let keys = &code.shapes[usize::from(shape)];
                attempt!(pc, at, cx.meter.memory(96 + keys.len() as u64 * 48));
                let base = usize::from(base);
                let dict = Dict::of_record(keys, &mut regs[base..base + keys.len()]);
                set(&mut r!(dst), Value::Dict(dict));
            }
            Op::Format { dst, format, base } => {
                let value = charged!(render(&code.formats[usize::from(format)], &regs[usize::from(base)..], cx, at));
                r!(dst) = value;
            }
            Op::Call { dst, call } => {
                let info = &code.calls[usize::from(call)];
                if !attempt!(pc, at, super::call::call(regs, info, usize::from(dst), cx, at)) {
                    *pc = next;
                    return Action::Call { call, dst };
                }
            }
            Op::Closure { dst, closure } => {
                let info = &code.closures[usize::from(closure)];
                attempt!(pc, at, cx.meter.memory(64 + 16 * info.captures.len() as u64));
                let defaults = take_row(regs, info.defaults, info.default_count).into_boxed_slice();
                let captured = info.captures.iter().map(|reg| r!(*reg).clone()).collect();
                r!(dst) = Value::Function(Rc::new(Function { code: info.code, defaults, captured }));
            }
            Op::Return { src } => {
                *pc = next;
                return Action::Return(std::mem::take(&mut r!(src)));
            }
            Op::TypeNow { src, ty, to } => {
                if charged!(check_type(&code.types[usize::from(ty)], &r!(src), cx, false)) {
                    next = usize::from(to);
                }
            }
            Op::TypeWait { src, ty } => {
                charged!(check_type(&code.types[usize::from(ty)], &r!(src), cx, true));
            }
            Op::Await { src } => {
                if let Value::Pending(_) = &r!(src) {
                    attempt!(pc, at, r!(src).decide());
                }
            }
            Op::Iter { dst, src } => {
                let iter = match &r!(src) {
                    plain if plain.is_plain() => Iter::of(plain),
                    other => other.decide().and_then(|value| Iter::of(&value)),
                };
                let iter = attempt!(pc, at, iter);
                r!(dst) = Value::Iter(Rc::new(iter));
            }
            Op::Next { iter, dst, to } => advance!(iter, dst, to),
            Op::Forget { reg } => r!(reg) = Value::None,
            Op::Unpack { src, base, count } => {
                let items = charged!(unpack(&r!(src), count, cx, at));
                for (offset, item) in items.into_iter().enumerate() {
                    regs[usize::from(base) + offset] = item;
                }
            }
            Op::Begin { acc } => {
                attempt!(pc, at, cx.meter.memory(96));
                r!(acc) = Value::Accumulator(Rc::default());
            }
            Op::Push { acc, value } => {
                attempt!(pc, at, cx.meter.memory(32));
                if let Value::Accumulator(acc) = &r!(acc) {
                    let mut items = acc.items.borrow_mut();
                    attempt!(pc, at, cx.meter.value(items.len() * size_of::<Value>()));
                    push_copy(&mut items, &r!(value));
                }
            }
            Op::PushPair { acc, key, value } => {
                attempt!(pc, at, cx.meter.memory(96));
                let key = attempt!(pc, at, r!(key).decide());
                attempt!(pc, at, cx.meter.steps(scan_steps(&key) as u64));
                attempt!(pc, at, crate::value::compare::hash(&key));
                let value = r!(value).clone();
                if let Value::Accumulator(acc) = &r!(acc) {
                    let mut items = acc.items.borrow_mut();
                    attempt!(pc, at, cx.meter.value(items.len() * (ENTRY / 2)));
                    items.push(key);
                    items.push(value);
                }
            }
            Op::Item { item, to } => {
                if let End::Item { item: own, .. } = &cx.fiber.end
                    && *own == item
                    && cx.frames.len() == 1
                {
                    *pc = next;
                    return Action::ItemEnd(item);
                }
                next = usize::from(to);
            }
            Op::End { dst, acc, build } => {
                let Value::Accumulator(list) = std::mem::take(&mut r!(acc)) else { continue };
                if list.holes.borrow().iter().any(|(_, pending)| !pending.is_settled()) {
                    // Taken out: if no fiber can be started the flow fails anyway.
                    *pc = next;
                    return Action::PendingComprehension { dst, acc: list, build };
                }
                r!(dst) = build_from(&list, Some(build));
            }
        }
    }
}

fn global(cx: &Cx<'_>, index: u32) -> Result<Value, Stop> {
    if let Some(value) = cx.program.globals.get(index as usize) {
        return Ok(value.to_value());
    }
    match cx.building.and_then(|building| building.get(index)) {
        Some(Value::Unbound | Value::Iter(_) | Value::Cell(_) | Value::Accumulator(_)) | None => {
            Err(Stop::fail(Kind::Name, "a variable of the module is used before it has a value"))
        }
        Some(value) => Ok(value),
    }
}

fn take_part(of: &Value, key: &Value, cx: &mut Cx<'_>, pc: usize) -> Result<Value, Stop> {
    let (frames, fiber) = (cx.frames, &mut *cx.fiber);
    // To find a character a text is searched.
    if key.is_plain() {
        cx.meter.steps(scan_steps(of) as u64)?;
    }
    let callers = fiber.callers.clone();
    let mut order = || {
        fiber.tick += 1;
        ProgramOrder { path: fiber.path.clone(), tick: fiber.tick }
    };
    index::index(of, key, &mut At { order: &mut order, place: &|| place(frames, &callers, pc) })
}
