//! Containers that a waiting fiber can see must not be changed by others until it has ended, or it
//! would see what a program that waited would not: they are *lent* to it while it waits.

use std::collections::HashSet;
use std::rc::Rc;

use super::fiber::Lends;
use crate::code::Reg;
use crate::slot::{Derived, Slot, SlotKind};
use crate::value::Value;

/// Marks every container that can be reached from `roots`, through results of fibers too, and adds it
/// to `lends`. A result that is not there yet is marked for the fiber `token` when it comes. Gives
/// the number of values looked at.
///
/// Nobody but the fiber can change what is in its own variables, the roots at the places `own`: only
/// what is inside them is marked.
pub(crate) fn lend(roots: &[Value], own: &[Reg], token: u64, lends: &mut Lends) -> u64 {
    let mut stack: Vec<Value> = Vec::new();
    for (at, root) in roots.iter().enumerate().filter(|(_, value)| value.may_hold()) {
        match root {
            Value::List(list) if own.contains(&(at as Reg)) => stack.extend(list.items().iter().cloned()),
            Value::Dict(dict) if own.contains(&(at as Reg)) => {
                stack.extend(dict.map().iter().map(|(_, value)| value.clone()));
            }
            Value::Set(_) if own.contains(&(at as Reg)) => {}
            other => stack.push(other.clone()),
        }
    }
    // Keyed by address; `lends` and `stack` keep the values alive.
    let mut seen: HashSet<usize> = HashSet::new();
    let mut kept: Vec<Value> = Vec::new();
    let mut work = 0;
    while let Some(value) = stack.pop() {
        work += 1;
        let mut more = |inner: &Value| {
            work += 1;
            if inner.may_hold() {
                stack.push(inner.clone());
            }
        };
        match &value {
            Value::List(list) if seen.insert(Rc::as_ptr(list).addr()) => {
                list.marks.lent.set(list.marks.lent.get() + 1);
                list.items().iter().for_each(&mut more);
                lends.get_or_insert_default().push(value.clone());
            }
            Value::Dict(dict) if seen.insert(Rc::as_ptr(dict).addr()) => {
                dict.marks.lent.set(dict.marks.lent.get() + 1);
                dict.map().iter().for_each(|(_, value)| more(value));
                lends.get_or_insert_default().push(value.clone());
            }
            Value::Set(set) if seen.insert(Rc::as_ptr(set).addr()) => {
                set.marks.lent.set(set.marks.lent.get() + 1);
                lends.get_or_insert_default().push(value.clone());
            }
            Value::Tuple(tuple) if seen.insert(Rc::as_ptr(tuple).addr()) => {
                tuple.iter().for_each(&mut more);
                kept.push(value.clone());
            }
            Value::Struct(fields) if seen.insert(Rc::as_ptr(fields).addr()) => {
                fields.fields().iter().for_each(|(_, value)| more(value));
                kept.push(value.clone());
            }
            Value::Function(function) if seen.insert(Rc::as_ptr(function).addr()) => {
                function.defaults.iter().chain(&function.captured).for_each(&mut more);
                kept.push(value.clone());
            }
            Value::Bound(bound) => more(&bound.this),
            Value::Object(object) if seen.insert(Rc::as_ptr(&object.0).addr()) => {
                object.visit(&mut more);
                kept.push(value.clone());
            }
            Value::Pending(slot) if seen.insert(Rc::as_ptr(&slot.0).addr()) => {
                match slot.outcome() {
                    Some(Ok(inner)) => more(&inner),
                    Some(Err(_)) => {}
                    None => later(slot, token),
                }
                kept.push(value.clone());
            }
            Value::Iter(iter) => {
                if let Some(container) = iter.container() {
                    more(&container);
                }
            }
            Value::Cell(cell) if seen.insert(Rc::as_ptr(cell).addr()) => {
                more(&cell.borrow());
                kept.push(value.clone());
            }
            Value::Acc(acc) if seen.insert(Rc::as_ptr(acc).addr()) => {
                acc.items.borrow().iter().for_each(&mut more);
                for (_, slot) in acc.holes.borrow().iter() {
                    more(&Value::Pending(slot.clone()));
                }
                kept.push(value.clone());
            }
            _ => {}
        }
    }
    work
}

/// The result of a fiber is lent when it comes. Answers of calls cannot change.
fn later(slot: &Slot, token: u64) {
    let root = match &slot.0.kind {
        SlotKind::Derived(way) => &way.of,
        SlotKind::Fiber(_) => slot,
        _ => return,
    };
    root.derive(Derived::Lend(token));
}

/// Takes the marks off again.
pub(crate) fn unlend(lends: &mut Lends) {
    for value in lends.take().into_iter().flat_map(|lends| *lends) {
        let lent = match &value {
            Value::List(list) => &list.marks.lent,
            Value::Dict(dict) => &dict.marks.lent,
            Value::Set(set) => &set.marks.lent,
            _ => continue,
        };
        lent.set(lent.get().saturating_sub(1));
    }
}
