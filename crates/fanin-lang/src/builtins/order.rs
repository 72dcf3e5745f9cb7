//! Functions that put in order: `sorted`, `min`, `max`.

use std::cmp::Ordering;

use crate::error::{Kind, Stop};
use crate::host::Args;
use crate::methods::args::{each, there, wrong_type};
use crate::native::{Ctx, KEYS, NativeFn};
use crate::value::{Value, compare};

pub(super) static FUNCTIONS: [NativeFn; 3] =
    [NativeFn::new("max", max).keyed(), NativeFn::new("min", min).keyed(), NativeFn::new("sorted", sorted).keyed()];

/// An element beside what it is ordered by.
type Keyed = (Value, Value);

/// Pairs elements with their keys, which the machine computed if the call has `key = f`.
fn keyed(ctx: &mut Ctx<'_>, args: Args<'_>, items: Vec<Value>) -> Result<Vec<Keyed>, Stop> {
    ctx.memory(items.len().saturating_mul(size_of::<Keyed>()))?;
    let keys = match args.keyword(KEYS) {
        Some(keys) => ctx.elements(keys)?,
        None => items.clone(),
    };
    items
        .into_iter()
        .zip(keys)
        // All keys are decided on before any is compared, so that what is waited for does not
        // depend on the order of the others.
        .map(|(item, key)| Ok((key.decide()?, item)))
        .collect()
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
    keywords(args, "sorted", &["reverse"])?;
    Args { names: &[], named: &[], ..args }.only("sorted", false, 1, 1)?;
    let reverse = match args.keyword("reverse") {
        None => false,
        Some(Value::Bool(reverse)) => *reverse,
        Some(other) => return Err(wrong_type("sorted", "reverse", "a bool", other)),
    };
    there(args.keyword(KEYS).unwrap_or(&args.pos[0]))?;
    let items = ctx.elements(&args.pos[0])?;
    let keyed = keyed(ctx, args, items)?;
    let sorted = merge_sort(ctx, keyed, reverse)?;
    ctx.list(sorted.into_iter().map(|(_, item)| item).collect())
}

/// A stable sort whose comparison may fail or wait; the standard library's cannot stop. Elements
/// that are equal keep their order in reverse too.
fn merge_sort(ctx: &mut Ctx<'_>, mut from: Vec<Keyed>, reverse: bool) -> Result<Vec<Keyed>, Stop> {
    let length = from.len();
    ctx.memory(length.saturating_mul(size_of::<Keyed>()))?;
    let mut width = 1;
    while width < length {
        ctx.steps(length)?;
        let mut to = Vec::with_capacity(length);
        let mut rest = from.into_iter();
        loop {
            let mut left = rest.by_ref().take(width).collect::<Vec<_>>().into_iter().peekable();
            if left.len() == 0 {
                break;
            }
            let mut right = rest.by_ref().take(width).collect::<Vec<_>>().into_iter().peekable();
            while let (Some((a, _)), Some((b, _))) = (left.peek(), right.peek()) {
                let order = compare::order(a, b)?;
                let right_first = order == if reverse { Ordering::Less } else { Ordering::Greater };
                to.extend(if right_first { right.next() } else { left.next() });
            }
            to.extend(left);
            to.extend(right);
        }
        from = to;
        width *= 2;
    }
    Ok(from)
}

fn extreme(ctx: &mut Ctx<'_>, args: Args<'_>, name: &str, wanted: Ordering) -> Result<Value, Stop> {
    keywords(args, name, &[])?;
    let mut several;
    let mut all;
    let items: &mut dyn Iterator<Item = Value> = match args.pos {
        [] => return Err(Stop::fail(Kind::Arguments, format!("{name}() needs at least one argument"))),
        [one] => {
            all = each(one)?;
            &mut all
        }
        more => {
            several = more.iter().cloned();
            &mut several
        }
    };
    let mut keys = args.keyword(KEYS).map(each).transpose()?;
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
        None => Err(Stop::fail(Kind::Value, format!("{name}() of nothing"))),
    }
}

fn min(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    extreme(ctx, args, "min", Ordering::Less)
}

fn max(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    extreme(ctx, args, "max", Ordering::Greater)
}
