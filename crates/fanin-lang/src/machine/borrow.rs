//! Borrow tracking: containers that a suspended fiber can still see.
//!
//! Other code must not change them before the fiber has ended. Otherwise the fiber would see changes
//! that come later in the program. Suspending a fiber therefore marks what it can reach as *borrowed*,
//! and a change to a borrowed container waits.

use std::collections::HashSet;
use std::rc::Rc;

use super::fiber::Borrows;
use crate::code::Reg;
use crate::pending::{Derived, PendingKind, PendingValue};
use crate::value::Value;

/// Marks every container that can be reached from `roots`, through results of fibers too, and adds it
/// to `borrows`. A pending result is marked for the fiber `token` when it comes. Gives
/// the number of values inspected.
///
/// Only the fiber can change what is in its own variables, the roots at the positions `own`: only
/// what is inside them is marked.
pub(crate) fn borrow(roots: &[Value], own: &[Reg], token: u64, borrows: &mut Borrows) -> u64 {
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
    // Keyed by address; `borrows` and `stack` keep the values alive.
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
                list.guard.borrowed.set(list.guard.borrowed.get() + 1);
                list.items().iter().for_each(&mut more);
                borrows.get_or_insert_default().push(value.clone());
            }
            Value::Dict(dict) if seen.insert(Rc::as_ptr(dict).addr()) => {
                dict.guard.borrowed.set(dict.guard.borrowed.get() + 1);
                dict.map().iter().for_each(|(_, value)| more(value));
                borrows.get_or_insert_default().push(value.clone());
            }
            Value::Set(set) if seen.insert(Rc::as_ptr(set).addr()) => {
                set.guard.borrowed.set(set.guard.borrowed.get() + 1);
                borrows.get_or_insert_default().push(value.clone());
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
            Value::Pending(pending) if seen.insert(Rc::as_ptr(&pending.0).addr()) => {
                match pending.outcome() {
                    Some(Ok(inner)) => more(&inner),
                    Some(Err(_)) => {}
                    None => later(pending, token),
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
            Value::Accumulator(acc) if seen.insert(Rc::as_ptr(acc).addr()) => {
                acc.items.borrow().iter().for_each(&mut more);
                for (_, pending) in acc.holes.borrow().iter() {
                    more(&Value::Pending(pending.clone()));
                }
                kept.push(value.clone());
            }
            _ => {}
        }
    }
    work
}

/// The result of a fiber is borrowed when it comes. Answers of calls cannot change.
fn later(pending: &PendingValue, token: u64) {
    let root = match &pending.0.kind {
        PendingKind::Derived(way) => &way.of,
        PendingKind::Fiber(_) => pending,
        _ => return,
    };
    root.derive(Derived::Borrow(token));
}

/// Ends the borrows of a fiber.
pub(crate) fn release_borrows(borrows: &mut Borrows) {
    for value in borrows.take().into_iter().flat_map(|borrows| *borrows) {
        let borrowed = match &value {
            Value::List(list) => &list.guard.borrowed,
            Value::Dict(dict) => &dict.guard.borrowed,
            Value::Set(set) => &set.guard.borrowed,
            _ => continue,
        };
        borrowed.set(borrowed.get().saturating_sub(1));
    }
}
