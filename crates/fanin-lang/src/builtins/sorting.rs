//! Sorting and extremes: `sorted`, `min`, `max`.

use std::cmp::Ordering;

use crate::error::{Kind, Stop};
use crate::host::Args;
use crate::methods::args::{iterate, require_elements, wrong_type};
use crate::native::{Ctx, KEYS, NativeFn};
use crate::value::drop::Row;
use crate::value::{Value, compare};

pub(super) static FUNCTIONS: [NativeFn; 3] =
    [NativeFn::new("max", max).keyed(), NativeFn::new("min", min).keyed(), NativeFn::new("sorted", sorted).keyed()];

/// An element beside what it is ordered by.
type Keyed = (Value, Value);

/// What the elements are ordered by: themselves, or the keys that the machine computed if the call has `key = f`.
fn keys(ctx: &mut Ctx<'_>, args: Args<'_>, items: &[Value]) -> Result<Vec<Value>, Stop> {
    ctx.memory(items.len().saturating_mul(size_of::<Value>()))?;
    let mut keys = match args.keyword(KEYS) {
        Some(keys) => ctx.elements(keys)?,
        None => items.to_vec(),
    };
    // All keys are decided on before any is compared, so that what is waited for does not
    // depend on the order of the others.
    for key in keys.iter_mut().filter(|key| !key.is_plain()) {
        *key = key.decide()?;
    }
    Ok(keys)
}

/// Refuses keyword arguments but `allowed` and what the machine makes of `key`.
fn keywords(args: Args<'_>, name: &str, allowed: &[&str]) -> Result<(), Stop> {
    for given in args.names {
        // `key = None` means no key.
        let none = given.as_str() == "key" && matches!(args.keyword("key"), Some(Value::None));
        if !none && given.as_str() != KEYS && !allowed.contains(&given.as_str()) {
            return Err(Stop::fail(Kind::Arguments, format!("{name}() got an unexpected keyword argument '{given}'")));
        }
    }
    Ok(())
}

fn sorted(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    if let Some(sort) = ctx.resume::<Sort>() {
        return sort_on(ctx, sort);
    }
    keywords(args, "sorted", &["reverse"])?;
    Args { names: &[], named: &[], ..args }.only("sorted", false, 1, 1)?;
    let reverse = match args.keyword("reverse") {
        None => false,
        Some(Value::Bool(reverse)) => *reverse,
        Some(other) => return Err(wrong_type("sorted", "reverse", "a bool", other)),
    };
    require_elements(args.keyword(KEYS).unwrap_or(&args.pos[0]))?;
    let items = ctx.elements(&args.pos[0])?;
    let keys = keys(ctx, args, &items)?;
    ctx.memory(keys.len().saturating_mul(8))?;
    sort_on(ctx, Box::new(Sort::new(keys, items, reverse)))
}

fn sort_on(ctx: &mut Ctx<'_>, mut sort: Box<Sort>) -> Result<Value, Stop> {
    if sort.run(ctx)? { ctx.list(sort.finish()) } else { Err(ctx.suspend(sort)) }
}

/// Elements that are sorted at once by insertion, before runs are merged.
const RUN: usize = 8;

/// A stable sort of positions, whose comparison may fail or wait; the standard library's cannot stop.
/// Elements that are equal keep their order in reverse too.
///
/// It works in pieces: sorting many elements takes far longer than a flow may hold its worker.
struct Sort {
    keys: Row,
    items: Row,
    reverse: bool,
    /// Positions in `keys`, sorted in runs of `width`.
    order: Vec<u32>,
    /// The next runs, twice as wide, as far as they are done.
    merged: Vec<u32>,
    width: usize,
    /// How many are in runs of the first width.
    begun: usize,
}

impl Sort {
    fn new(keys: Vec<Value>, items: Vec<Value>, reverse: bool) -> Self {
        let order = (0..keys.len() as u32).collect();
        Self { keys: Row(keys), items: Row(items), reverse, order, merged: Vec::new(), width: RUN, begun: 0 }
    }

    /// Whether the element at position `a`, which is before `b`, has to come after it.
    #[inline]
    fn wrong(&self, a: u32, b: u32) -> Result<bool, Stop> {
        let (a, b) = (&self.keys[a as usize], &self.keys[b as usize]);
        let order = match (a, b) {
            (Value::Int(a), Value::Int(b)) => a.cmp(b),
            (Value::Str(a), Value::Str(b)) => a.as_str().cmp(b.as_str()),
            _ => compare::order(a, b)?,
        };
        Ok(order == if self.reverse { Ordering::Less } else { Ordering::Greater })
    }

    /// Goes on until it is done, or the slice of steps is used up.
    fn run(&mut self, ctx: &mut Ctx<'_>) -> Result<bool, Stop> {
        let length = self.order.len();
        while self.begun < length {
            let (start, end) = (self.begun, length.min(self.begun + RUN));
            ctx.steps(end - start)?;
            for at in start + 1..end {
                let mut place = at;
                while place > start && self.wrong(self.order[place - 1], self.order[place])? {
                    self.order.swap(place - 1, place);
                    place -= 1;
                }
            }
            self.begun = end;
            if ctx.is_spent() {
                return Ok(false);
            }
        }
        while self.width < length {
            while self.merged.len() < length {
                if ctx.is_spent() {
                    return Ok(false);
                }
                let start = self.merged.len();
                let (middle, end) = (length.min(start + self.width), length.min(start + 2 * self.width));
                ctx.steps((end - start) / 2)?;
                let (mut left, mut right) = (start, middle);
                while left < middle && right < end {
                    if self.wrong(self.order[left], self.order[right])? {
                        self.merged.push(self.order[right]);
                        right += 1;
                    } else {
                        self.merged.push(self.order[left]);
                        left += 1;
                    }
                }
                self.merged.extend_from_slice(&self.order[left..middle]);
                self.merged.extend_from_slice(&self.order[right..end]);
            }
            std::mem::swap(&mut self.order, &mut self.merged);
            self.merged.clear();
            self.width *= 2;
        }
        Ok(true)
    }

    fn finish(mut self) -> Vec<Value> {
        self.order.iter().map(|at| std::mem::take(&mut self.items[*at as usize])).collect()
    }
}

fn extreme(ctx: &mut Ctx<'_>, args: Args<'_>, name: &str, wanted: Ordering) -> Result<Value, Stop> {
    keywords(args, name, &[])?;
    // A range may have more elements than there are steps; its first and its last are the smallest and the largest.
    if let ([Value::Range(range)], None) = (args.pos, args.keyword(KEYS))
        && !range.is_empty()
    {
        let smallest_first = range.step > 0;
        let first = smallest_first == (wanted == Ordering::Less);
        return Ok(Value::Int(range.at(if first { 0 } else { range.len() - 1 })));
    }
    let mut several;
    let mut all;
    let items: &mut dyn Iterator<Item = Value> = match args.pos {
        [] => return Err(Stop::fail(Kind::Arguments, format!("{name}() needs at least one argument"))),
        [one] => {
            all = iterate(one)?;
            &mut all
        }
        more => {
            several = more.iter().cloned();
            &mut several
        }
    };
    let mut keys = args.keyword(KEYS).map(iterate).transpose()?;
    let mut best: Option<Keyed> = None;
    for item in items {
        ctx.steps(1)?;
        let key = match &mut keys {
            Some(keys) => keys.next().unwrap_or_default().decide()?,
            None => item.decide()?,
        };
        let better = match &best {
            None => true,
            Some((other, _)) => compare::order(&key, other)? == wanted,
        };
        if better {
            best = Some((key, item));
        }
    }
    match best {
        Some((_, item)) => Ok(item),
        None => Err(Stop::fail(Kind::Value, format!("{name}() of an empty iterable"))),
    }
}

fn min(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    extreme(ctx, args, "min", Ordering::Less)
}

fn max(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    extreme(ctx, args, "max", Ordering::Greater)
}
