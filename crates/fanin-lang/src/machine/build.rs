//! Operations that make a value of several others.

use std::rc::Rc;

use super::context::Cx;
use crate::code::{Build, Piece, Reg};
use crate::error::{Kind, Stop};
use crate::pending::PendingValue;
use crate::types::{Mismatch, TypeCheck, mismatch};
use crate::value::{Accumulator, Dict, Map, Value, view};

/// Checks a value against an annotation. Whether it is there; `waits` says what to do if not.
pub(super) fn check_type(check: &TypeCheck, value: &Value, cx: &mut Cx<'_>, waits: bool) -> Result<bool, Stop> {
    match mismatch(&check.ty, value, cx.meter) {
        Ok(None) => Ok(true),
        Ok(Some(found)) => Err(wrong_type(check, &found)),
        Err(Stop::Wait(_)) if !waits => Ok(false),
        Err(stop) => Err(stop),
    }
}

#[cold]
fn wrong_type(check: &TypeCheck, found: &Mismatch) -> Stop {
    let TypeCheck { ty, what, .. } = check;
    let but = if found.path.is_empty() { "got".to_owned() } else { format!("but {} is", found.path) };
    Stop::fail(Kind::Type, format!("{what} must be {ty}, {but} {}", found.got))
}

pub(super) fn dict_of_pairs(regs: &mut [Value], base: Reg, pairs: u16, cx: &mut Cx<'_>) -> Result<Value, Stop> {
    let base = usize::from(base);
    let row = &mut regs[base..base + 2 * usize::from(pairs)];
    cx.meter.memory(96 + u64::from(pairs) * 48)?;
    // All keys are inspected before anything is moved out.
    let mut keys = Vec::with_capacity(usize::from(pairs));
    for pair in row.chunks_exact(2) {
        let key = pair[0].decide()?;
        crate::value::compare::hash(&key)?;
        keys.push(key);
    }
    let mut map = Map::with_capacity(keys.len());
    for (at, key) in keys.iter().enumerate() {
        if map.get(key)?.is_some() {
            return Err(Stop::fail(Kind::Value, format!("the key {key:?} comes twice in one dict")));
        }
        map.insert(key.clone(), row[2 * at + 1].clone())?;
    }
    Ok(Value::Dict(Rc::new(Dict::new(map))))
}

pub(super) fn render(pieces: &[Piece], values: &[Value], cx: &mut Cx<'_>, pc: usize) -> Result<Value, Stop> {
    let mut ctx = cx.ctx(pc);
    let mut out = ctx.scratch();
    let made = pieces.iter().try_for_each(|piece| match piece {
        Piece::Text(text) => {
            out.push_str(text);
            Ok(())
        }
        Piece::Str(at) => ctx.show_into(&values[usize::from(*at)], &mut out),
        Piece::Repr(at) => ctx.repr_into(&values[usize::from(*at)], &mut out),
    });
    let value = made.and_then(|()| ctx.str(&out));
    ctx.put_scratch(out);
    value
}

pub(super) fn unpack(value: &Value, count: u16, cx: &mut Cx<'_>, pc: usize) -> Result<Vec<Value>, Stop> {
    let value = value.decide()?;
    let items = match view::kind(&value) {
        view::Kind::List | view::Kind::Tuple | view::Kind::Dict | view::Kind::Set | view::Kind::Range => {
            match view::len(&value) {
                Some(len) if len == usize::from(count) => cx.ctx(pc).elements(&value)?,
                len => {
                    return Err(Stop::fail(
                        Kind::Value,
                        format!("{} values cannot be assigned to {count} targets", len.unwrap_or(0)),
                    ));
                }
            }
        }
        _ => return Err(Stop::fail(Kind::Type, format!("{} cannot be unpacked", view::type_name(&value)))),
    };
    Ok(items)
}

/// The finished value of a comprehension, all of whose holes have settled. `None` leaves the pieces
/// in a list, for a comprehension around it.
pub(crate) fn build_from(acc: &Accumulator, build: Option<Build>) -> Value {
    let mut items = std::mem::take(&mut *acc.items.borrow_mut());
    let holes = std::mem::take(&mut *acc.holes.borrow_mut());
    if !holes.is_empty() {
        let mut spliced = Vec::with_capacity(items.len());
        let mut holes = holes.into_iter().peekable();
        for (at, item) in items.into_iter().enumerate() {
            match holes.next_if(|(place, _)| *place == at) {
                // Items of unknown number settle with a list of what they gave.
                Some((_, pending)) => {
                    if let Some(Ok(Value::List(list))) = pending.outcome() {
                        spliced.extend(list.items().iter().cloned());
                    }
                }
                None => spliced.push(item),
            }
        }
        items = spliced;
    }
    match build {
        Some(Build::Dict) => {
            let mut map = Map::with_capacity(items.len() / 2);
            let mut items = items.into_iter();
            while let (Some(key), Some(value)) = (items.next(), items.next()) {
                // Keys were decided and hashed when they were pushed.
                let _ = map.insert(key, value);
            }
            Value::Dict(Rc::new(Dict::new(map)))
        }
        _ => Value::list(items),
    }
}

/// The first of a comprehension's holes that has not settled.
pub(crate) fn open_hole(acc: &Accumulator) -> Option<PendingValue> {
    acc.holes.borrow().iter().map(|(_, pending)| pending).find(|pending| !pending.is_settled()).cloned()
}
