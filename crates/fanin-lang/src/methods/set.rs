//! Methods of sets. Those that take several sets take anything that can be looped over.

use std::rc::Rc;

use crate::error::{Kind, Stop};
use crate::host::Args;
use crate::native::{Changes, Ctx, NativeFn};
use crate::value::{Map, Set, Value};

use super::args::{iterate, require_elements};
use super::dict::no_key;

pub(super) static METHODS: [NativeFn; 16] = [
    NativeFn::new("add", add).changes(Changes::This),
    NativeFn::new("clear", clear).changes(Changes::This),
    NativeFn::new("difference", difference),
    NativeFn::new("difference_update", difference_update).changes(Changes::This),
    NativeFn::new("discard", discard).changes(Changes::This),
    NativeFn::new("intersection", intersection),
    NativeFn::new("intersection_update", intersection_update).changes(Changes::This),
    NativeFn::new("isdisjoint", isdisjoint),
    NativeFn::new("issubset", issubset),
    NativeFn::new("issuperset", issuperset),
    NativeFn::new("pop", pop).changes(Changes::This),
    NativeFn::new("remove", remove).changes(Changes::This),
    NativeFn::new("symmetric_difference", symmetric_difference),
    NativeFn::new("symmetric_difference_update", symmetric_difference_update).changes(Changes::This),
    NativeFn::new("union", union),
    NativeFn::new("update", update).changes(Changes::This),
];

/// The distinct elements of anything that can be looped over.
pub(crate) fn collect(ctx: &mut Ctx<'_>, from: &Value) -> Result<Map, Stop> {
    require_elements(from)?;
    let mut map = Map::new();
    for element in iterate(from)? {
        ctx.steps(1)?;
        ctx.memory(48)?;
        ctx.value(map.len() * crate::native::ENTRY)?;
        map.insert(element.decide()?, Value::None)?;
    }
    Ok(map)
}

fn made(map: Map) -> Value {
    Value::Set(Rc::new(Set::new(map)))
}

fn kept(from: &Map, keep: impl Fn(&Value) -> Result<bool, Stop>) -> Result<Map, Stop> {
    let mut map = Map::new();
    for (element, _) in from.iter() {
        if keep(element)? {
            map.insert(element.clone(), Value::None)?;
        }
    }
    Ok(map)
}

fn united(ctx: &mut Ctx<'_>, args: Args<'_>, name: &str) -> Result<Map, Stop> {
    args.only(name, true, 0, usize::MAX)?;
    let mut all = collect(ctx, &args.pos[0])?;
    for other in &args.pos[1..] {
        for (element, _) in collect(ctx, other)?.iter() {
            ctx.value(all.len() * crate::native::ENTRY)?;
            all.insert(element.clone(), Value::None)?;
        }
    }
    Ok(all)
}

fn intersected(ctx: &mut Ctx<'_>, args: Args<'_>, name: &str) -> Result<Map, Stop> {
    args.only(name, true, 0, usize::MAX)?;
    let mut rest = collect(ctx, &args.pos[0])?;
    for other in &args.pos[1..] {
        let other = collect(ctx, other)?;
        rest = kept(&rest, |element| Ok(other.get(element)?.is_some()))?;
    }
    Ok(rest)
}

fn reduced(ctx: &mut Ctx<'_>, args: Args<'_>, name: &str) -> Result<Map, Stop> {
    args.only(name, true, 0, usize::MAX)?;
    let mut rest = collect(ctx, &args.pos[0])?;
    for other in &args.pos[1..] {
        let other = collect(ctx, other)?;
        rest = kept(&rest, |element| Ok(other.get(element)?.is_none()))?;
    }
    Ok(rest)
}

fn exclusive(ctx: &mut Ctx<'_>, args: Args<'_>, name: &str) -> Result<Map, Stop> {
    args.only(name, true, 1, 1)?;
    let (mine, theirs) = (collect(ctx, &args.pos[0])?, collect(ctx, &args.pos[1])?);
    let mut rest = kept(&mine, |element| Ok(theirs.get(element)?.is_none()))?;
    for (element, _) in theirs.iter() {
        if mine.get(element)?.is_none() {
            rest.insert(element.clone(), Value::None)?;
        }
    }
    Ok(rest)
}

fn union(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    united(ctx, args, "union").map(made)
}

fn intersection(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    intersected(ctx, args, "intersection").map(made)
}

fn difference(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    reduced(ctx, args, "difference").map(made)
}

fn symmetric_difference(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    exclusive(ctx, args, "symmetric_difference").map(made)
}

fn replace(ctx: &mut Ctx<'_>, args: Args<'_>, elements: Map) -> Result<Value, Stop> {
    *ctx.edit_set(&args.pos[0])?.edit()? = elements;
    Ok(Value::None)
}

fn update(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    let elements = united(ctx, args, "update")?;
    replace(ctx, args, elements)
}

fn intersection_update(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    let elements = intersected(ctx, args, "intersection_update")?;
    replace(ctx, args, elements)
}

fn difference_update(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    let elements = reduced(ctx, args, "difference_update")?;
    replace(ctx, args, elements)
}

fn symmetric_difference_update(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    let elements = exclusive(ctx, args, "symmetric_difference_update")?;
    replace(ctx, args, elements)
}

fn issubset(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    args.only("issubset", true, 1, 1)?;
    let (mine, theirs) = (collect(ctx, &args.pos[0])?, collect(ctx, &args.pos[1])?);
    Ok(Value::Bool(kept(&mine, |element| Ok(theirs.get(element)?.is_none()))?.is_empty()))
}

fn issuperset(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    args.only("issuperset", true, 1, 1)?;
    let (mine, theirs) = (collect(ctx, &args.pos[0])?, collect(ctx, &args.pos[1])?);
    Ok(Value::Bool(kept(&theirs, |element| Ok(mine.get(element)?.is_none()))?.is_empty()))
}

fn isdisjoint(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    args.only("isdisjoint", true, 1, 1)?;
    let (mine, theirs) = (collect(ctx, &args.pos[0])?, collect(ctx, &args.pos[1])?);
    Ok(Value::Bool(kept(&mine, |element| Ok(theirs.get(element)?.is_some()))?.is_empty()))
}

fn add(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    args.only("add", true, 1, 1)?;
    ctx.edit_set(&args.pos[0])?.edit()?.insert(args.pos[1].clone(), Value::None)?;
    Ok(Value::None)
}

fn clear(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    args.only("clear", true, 0, 0)?;
    replace(ctx, args, Map::new())
}

fn discard(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    args.only("discard", true, 1, 1)?;
    let set = ctx.edit_set(&args.pos[0])?;
    ctx.steps(set.items().len() / 16)?;
    set.edit()?.remove(&args.pos[1])?;
    Ok(Value::None)
}

fn remove(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    args.only("remove", true, 1, 1)?;
    let set = ctx.edit_set(&args.pos[0])?;
    ctx.steps(set.items().len() / 16)?;
    let removed = set.edit()?.remove(&args.pos[1])?;
    match removed {
        Some(_) => Ok(Value::None),
        None => Err(no_key(ctx, &args.pos[1], "set")),
    }
}

/// The first element.
fn pop(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    args.only("pop", true, 0, 0)?;
    let set = ctx.edit_set(&args.pos[0])?;
    let first = set.items().at(0).map(|(element, _)| element.clone());
    let Some(first) = first else {
        return Err(Stop::fail(Kind::Value, "pop() from an empty set"));
    };
    ctx.steps(set.items().len() / 16)?;
    set.edit()?.remove(&first)?;
    Ok(first)
}
