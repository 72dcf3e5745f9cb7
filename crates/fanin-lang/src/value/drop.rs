//! Dropping values without recursion, and in parts.
//!
//! A list nested a million deep must not overflow the stack. And what a flow leaves behind may take as long to
//! free as it took to make, so a worker frees it in parts, between other work.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use super::Value;

/// Levels that are dropped by plain recursion; deeper ones wait in a queue.
const LEVELS: u32 = 40;

/// Values dropped in one part: some 50 to 100 microseconds of work.
const PART: u32 = 1_000;

/// A container with more elements is not dropped as a whole, but so many of them at a time.
const ROW: usize = 512;

/// What is still to be dropped.
enum Left {
    One(Value),
    Row(Vec<Value>),
    Pairs(Vec<(Value, Value)>),
}

thread_local! {
    static LEVEL: Cell<u32> = const { Cell::new(0) };
    /// Too deep for recursion. Empty unless something is being dropped.
    static LATER: RefCell<Vec<Value>> = const { RefCell::new(Vec::new()) };
    /// What the part that is being dropped may still drop; without a bound outside of one.
    static LEFT: Cell<Option<u32>> = const { Cell::new(None) };
    /// What was too much for one part.
    static REST: RefCell<Vec<Left>> = const { RefCell::new(Vec::new()) };
}

/// Runs `work`, which may drop large values, and drops only a part of them now. Also returns whether it left
/// something to [`drop_remaining`] on this thread; nothing else does that.
pub fn drop_incrementally<T>(work: impl FnOnce() -> T) -> (T, bool) {
    in_part(work)
}

/// Drops another part of what [`drop_incrementally`] left on this thread, and gives whether that was not all.
pub fn drop_remaining() -> bool {
    let rest = || {
        while LEFT.get().is_none_or(|left| left > 0)
            && let Some(left) = REST.with_borrow_mut(Vec::pop)
        {
            match left {
                Left::One(value) => drop(value),
                Left::Row(mut row) => {
                    let end = row.len().saturating_sub(ROW);
                    charge(row[end..].iter());
                    drop_values(row.drain(end..));
                    keep_row(Left::Row(row));
                }
                Left::Pairs(mut pairs) => {
                    let end = pairs.len().saturating_sub(ROW);
                    charge(pairs[end..].iter().flat_map(|(key, value)| [key, value]));
                    drop_values(pairs.drain(end..).flat_map(|(key, value)| [key, value]));
                    keep_row(Left::Pairs(pairs));
                }
            }
        }
    };
    in_part(rest);
    REST.with_borrow(|rest| !rest.is_empty())
}

#[inline]
fn in_part<T>(work: impl FnOnce() -> T) -> (T, bool) {
    /// Also when something panics.
    struct Whole;
    impl Drop for Whole {
        fn drop(&mut self) {
            LEFT.set(None);
        }
    }
    let before = REST.with_borrow(Vec::len);
    let whole = Whole;
    LEFT.set(Some(PART));
    let done = work();
    drop(whole);
    (done, REST.with_borrow(Vec::len) > before)
}

/// What is left of a row goes back, unless that is nothing.
fn keep_row(left: Left) {
    let empty = match &left {
        Left::One(_) => false,
        Left::Row(row) => row.is_empty(),
        Left::Pairs(pairs) => pairs.is_empty(),
    };
    if !empty {
        REST.with_borrow_mut(|rest| rest.push(left));
    }
}

/// Takes elements of a row that are dropped by themselves off what the part may still drop.
fn charge<'v>(values: impl Iterator<Item = &'v Value>) {
    let freed = |value: &&Value| !matches!(value, Value::None | Value::Bool(_) | Value::Int(_) | Value::Float(_));
    // Those that are nothing to drop are inspected.
    let weight = values.filter(freed).count() + ROW / 16;
    if let Some(left) = LEFT.get() {
        LEFT.set(Some(left.saturating_sub(u32::try_from(weight).unwrap_or(u32::MAX))));
    }
}

/// Leaves the elements of a long container to [`drop_remaining`]. Gives them back if nothing is dropped in parts now.
fn leave<T>(elements: Vec<T>, left: fn(Vec<T>) -> Left) -> Option<Vec<T>> {
    if elements.len() <= ROW || LEFT.try_with(Cell::get).ok().flatten().is_none() {
        return Some(elements);
    }
    let mut elements = Some(elements);
    let _ = REST.try_with(|rest| {
        if let (Ok(mut rest), Some(elements)) = (rest.try_borrow_mut(), elements.take()) {
            rest.push(left(elements));
        }
    });
    elements
}

/// Drops the elements of a container.
#[inline]
pub(crate) fn drop_row(elements: &mut Vec<Value>) {
    if elements.len() > ROW {
        match leave(std::mem::take(elements), Left::Row) {
            Some(back) => *elements = back,
            None => return,
        }
    }
    if elements.iter().any(is_nested) {
        drop_values(elements.drain(..));
    }
}

/// Elements on their way into a container, dropped like those of one.
#[derive(Debug, Default)]
pub(crate) struct Row(pub(crate) Vec<Value>);

impl std::ops::Deref for Row {
    type Target = Vec<Value>;
    fn deref(&self) -> &Vec<Value> {
        &self.0
    }
}

impl std::ops::DerefMut for Row {
    fn deref_mut(&mut self) -> &mut Vec<Value> {
        &mut self.0
    }
}

impl Drop for Row {
    fn drop(&mut self) {
        drop_row(&mut self.0);
    }
}

/// The same for many entries.
pub(crate) fn drop_pairs(entries: Vec<(Value, Value)>) {
    if let Some(entries) = leave(entries, Left::Pairs) {
        drop_values(entries.into_iter().flat_map(|(key, value)| [key, value]));
    }
}

/// Whether a container of so many elements is dropped in parts on request.
#[inline]
pub(crate) fn is_long(elements: usize) -> bool {
    elements > ROW
}

/// How much work it is to drop a value by itself, without what is nested in it.
fn weight(value: &Value) -> u32 {
    // A container is freed here if this is its only reference and it is not being changed. Long ones are left for later.
    let elements = match value {
        Value::List(list) if Rc::strong_count(list) == 1 => list.items().len(),
        Value::Dict(dict) if Rc::strong_count(dict) == 1 => 4 * dict.map().len(),
        _ => 0,
    };
    1 + u32::try_from(elements.min(ROW) / 4).unwrap_or(u32::MAX / 2)
}

/// Whether the part that is being dropped may drop one more value, of this weight.
fn takes(weight: impl FnOnce() -> u32) -> bool {
    LEFT.try_with(|cell| match cell.get() {
        None => true,
        Some(0) => false,
        Some(left) => {
            cell.set(Some(left.saturating_sub(weight())));
            true
        }
    })
    .unwrap_or(true)
}

/// Keeps a value for later. Drops it if the thread ends, whose queues are gone.
fn keep<T>(queue: &'static std::thread::LocalKey<RefCell<Vec<T>>>, value: T) {
    let mut value = Some(value);
    let _ = queue.try_with(|queue| {
        if let (Ok(mut queue), Some(value)) = (queue.try_borrow_mut(), value.take()) {
            queue.push(value);
        }
    });
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
        Value::Pending(pending) => !pending.is_soft(),
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
        if !takes(|| weight(&value)) {
            keep(&REST, Left::One(value));
        } else if level < LEVELS {
            drop(value);
        } else {
            keep(&LATER, value);
        }
    }
    let Some(level) = entered else { return };
    if level == 0 {
        while let Some(value) = LATER.try_with(|later| later.borrow_mut().pop()).ok().flatten() {
            if takes(|| weight(&value)) {
                drop(value);
            } else {
                keep(&REST, Left::One(value));
            }
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

    #[test]
    fn what_is_large_is_dropped_in_parts() {
        let mut deep = Value::list(vec![]);
        for _ in 0..50_000 {
            deep = Value::list(vec![deep]);
        }
        let wide = Value::list((0..50_000).map(|_| Value::list(vec![Value::list(vec![])])).collect());
        let probe = Rc::new(RefCell::new(Value::None));
        let shared = Value::list(vec![Value::list(vec![Value::Cell(probe.clone())])]);
        let all = vec![deep, wide, shared.clone()];
        assert!(drop_incrementally(|| drop(all)).1);
        // No other values wait for it, and nothing else has its work to do.
        drop(shared);
        let mut parts = 1;
        while drop_remaining() {
            parts += 1;
        }
        assert!((100..250).contains(&parts), "{parts}");
        assert_eq!(Rc::strong_count(&probe), 1);
        assert!(!drop_remaining());
        assert!(!drop_incrementally(|| drop(Value::list(vec![Value::list(vec![])]))).1);
    }

    #[test]
    fn long_rows_are_dropped_in_parts_whoever_holds_them() {
        let texts = |from: u32| (from..from + 10_000).map(|at| Value::str(&at.to_string())).collect::<Vec<_>>();
        let pairs = || texts(0).into_iter().zip(texts(1)).map(|(key, value)| (key.as_str().unwrap().into(), value));
        let shared = Value::list(texts(5));
        type Make<'a> = Box<dyn Fn() -> Value + 'a>;
        let makers: [(&str, Make<'_>); 5] = [
            ("list", Box::new(|| Value::list(texts(0)))),
            ("tuple", Box::new(|| Value::tuple(texts(0)))),
            ("dict", Box::new(|| Value::dict(pairs()))),
            ("nested", Box::new(|| Value::list(vec![Value::list(texts(0))]))),
            (
                "items of a comprehension",
                Box::new(|| {
                    let acc = crate::value::Accumulator::default();
                    *acc.items.borrow_mut() = texts(0);
                    Value::Accumulator(Rc::new(acc))
                }),
            ),
        ];
        for (name, make) in makers {
            let value = make();
            assert!(drop_incrementally(|| drop(value)).1, "{name}");
            let mut parts = 1;
            while drop_remaining() {
                parts += 1;
            }
            assert!((8..40).contains(&parts), "{name}: {parts}");
            // Outside of parts all is dropped at once, and what others have stays.
            drop(make());
            assert!(!drop_remaining(), "{name}");
        }
        assert!(drop_incrementally(|| drop(Row(texts(0)))).1, "elements on their way into a container");
        while drop_remaining() {}
        assert!(!drop_incrementally(|| drop(shared.clone())).1);
        assert_eq!(crate::value::view::len(&shared), Some(10_000));
    }
}
