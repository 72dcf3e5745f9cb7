//! Dropping without recursion: a list nested a million deep must not overflow the stack.

use std::cell::{Cell, RefCell};

use super::Value;

/// Levels that are dropped by plain recursion; deeper ones wait in a queue.
const LEVELS: u32 = 40;

thread_local! {
    static LEVEL: Cell<u32> = const { Cell::new(0) };
    static LATER: RefCell<Vec<Value>> = const { RefCell::new(Vec::new()) };
}

/// Whether dropping a value may drop further containers, one within the other.
#[inline]
pub(crate) fn is_nested(value: &Value) -> bool {
    match value {
        Value::List(_)
        | Value::Dict(_)
        | Value::Set(_)
        | Value::Tuple(_)
        | Value::Struct(_)
        | Value::Function(_)
        | Value::Bound(_)
        | Value::Object(_)
        | Value::Cell(_) => true,
        Value::Pending(slot) => !slot.is_soft(),
        _ => false,
    }
}

/// Drops what a container held. Containers without anything nested need not call it.
pub(crate) fn drop_values(values: impl Iterator<Item = Value>) {
    let mut entered = None;
    for value in values {
        if !is_nested(&value) {
            continue;
        }
        // When the thread ends its queue is gone, and plain recursion is all that is left.
        let level = match entered {
            Some(level) => level,
            None => {
                let level = LEVEL.try_with(Cell::get).unwrap_or(0);
                entered = Some(level);
                let _ = LEVEL.try_with(|cell| cell.set(level + 1));
                level
            }
        };
        if level < LEVELS {
            drop(value);
        } else {
            let mut value = Some(value);
            let _ = LATER.try_with(|later| {
                if let (Ok(mut later), Some(value)) = (later.try_borrow_mut(), value.take()) {
                    later.push(value);
                }
            });
        }
    }
    let Some(level) = entered else { return };
    if level == 0 {
        while let Some(value) = LATER.try_with(|later| later.borrow_mut().pop()).ok().flatten() {
            drop(value);
        }
    }
    let _ = LEVEL.try_with(|cell| cell.set(level));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deep_values_are_dropped_without_recursion() {
        let mut list = Value::list(vec![]);
        let mut tuple = Value::tuple(vec![]);
        let mut dict = Value::dict([]);
        for _ in 0..300_000 {
            list = Value::list(vec![list]);
            tuple = Value::tuple(vec![tuple]);
            dict = Value::record([("inner", dict)]);
        }
        drop((list, tuple, dict));
        assert_eq!(LEVEL.with(Cell::get), 0);
        assert!(LATER.with(|later| later.borrow().is_empty()));
    }
}
