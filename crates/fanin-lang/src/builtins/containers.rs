//! Functions that make containers or go through one.

use std::rc::Rc;

use crate::code::Binary;
use crate::error::{Failure, Kind, Stop};
use crate::host::Args;
use crate::machine::ops::binary;
use crate::machine::truth;
use crate::methods::args::{int, iterate, optional_int, require_elements};
use crate::methods::{dict, set};
use crate::native::{Awaits, Ctx, NativeFn};
use crate::value::view::{self, type_name};
use crate::value::{Dict, Map, Range, Set, Value, ValueKind};

pub(super) static FUNCTIONS: [NativeFn; 12] = [
    NativeFn::new("all", all),
    NativeFn::new("any", any),
    NativeFn::new("dict", dict).awaits(Awaits::These(1)),
    NativeFn::new("enumerate", enumerate),
    NativeFn::new("len", len),
    NativeFn::new("list", list),
    NativeFn::new("range", range),
    NativeFn::new("reversed", reversed),
    NativeFn::new("set", set),
    NativeFn::new("sum", sum),
    NativeFn::new("tuple", tuple),
    NativeFn::new("zip", zip),
];

fn len(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    args.only("len", false, 1, 1)?;
    if let Value::Str(text) = &args.pos[0] {
        ctx.steps(text.len() / 32)?;
    }
    match view::len(&args.pos[0]) {
        Some(length) => Ok(Value::Int(i64::try_from(length).unwrap_or(i64::MAX))),
        None => Err(Stop::fail(Kind::Type, format!("{} has no length", type_name(&args.pos[0])))),
    }
}

/// The elements of the only argument; nothing without one.
fn optional_elements(ctx: &mut Ctx<'_>, args: Args<'_>, name: &str) -> Result<Vec<Value>, Stop> {
    args.only(name, false, 0, 1)?;
    args.pos.first().map_or(Ok(Vec::new()), |from| ctx.elements(from))
}

fn list(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    let items = optional_elements(ctx, args, "list")?;
    ctx.list(items)
}

fn tuple(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    let items = optional_elements(ctx, args, "tuple")?;
    ctx.memory(48)?;
    Ok(Value::tuple(items))
}

fn set(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    args.only("set", false, 0, 1)?;
    let items = args.pos.first().map_or(Ok(Map::new()), |from| set::collect(ctx, from))?;
    ctx.memory(64)?;
    Ok(Value::Set(Rc::new(Set::new(items))))
}

fn dict(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    if args.pos.len() > 1 {
        Args { names: &[], named: &[], ..args }.only("dict", false, 0, 1)?;
    }
    let pairs = dict::pairs(ctx, "dict", args, args.pos.first())?;
    ctx.memory(pairs.len().saturating_mul(48) + 64)?;
    let mut map = Map::with_capacity(pairs.len());
    for (key, value) in pairs {
        map.insert(key, value)?;
    }
    Ok(Value::Dict(Rc::new(Dict::new(map))))
}

fn range(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    args.only("range", false, 1, 3)?;
    let bound = |at: usize, param| match &args.pos[at] {
        // A bound held to 64 bits would quietly be another range.
        Value::BigInt(_) => Err(Stop::fail(Kind::Value, format!("range() needs a {param} of 64 bits"))),
        value => int("range", param, value),
    };
    let (start, stop, step) = match args.pos.len() {
        1 => (0, bound(0, "stop")?, 1),
        2 => (bound(0, "start")?, bound(1, "stop")?, 1),
        _ => (bound(0, "start")?, bound(1, "stop")?, bound(2, "step")?),
    };
    if step == 0 {
        return Err(Stop::fail(Kind::Value, "range() needs a step that is not 0"));
    }
    ctx.memory(40)?;
    Ok(Value::Range(Rc::new(Range { start, stop, step })))
}

fn enumerate(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    let [from, start] = args.bind("enumerate", false, ["iterable", "start"], 1)?;
    let start = optional_int("enumerate", "start", start)?.unwrap_or(0);
    let items = ctx.elements(from.unwrap_or(&Value::None))?;
    ctx.memory(items.len().saturating_mul(64))?;
    let number = |at: usize| match start.checked_add(at as i64) {
        Some(number) => Value::Int(number),
        None => crate::value::number::normal(num_bigint::BigInt::from(start) + at),
    };
    let pairs = items.into_iter().enumerate().map(|(at, item)| Value::pair(number(at), item));
    ctx.list(pairs.collect())
}

fn zip(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    args.only("zip", false, 0, usize::MAX)?;
    let mut columns = args.pos.iter().map(iterate).collect::<Result<Vec<_>, Stop>>()?;
    let mut list = Vec::new();
    // Row by row: the shortest column may be far shorter than the others.
    while let Some(row) = columns.iter_mut().map(Iterator::next).collect::<Option<Vec<Value>>>()
        && !row.is_empty()
    {
        ctx.steps(row.len())?;
        ctx.memory(48 + row.len() * size_of::<Value>())?;
        ctx.value(list.len() * size_of::<Value>())?;
        list.push(Value::tuple(row));
    }
    ctx.list(list)
}

fn reversed(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    args.only("reversed", false, 1, 1)?;
    let mut items = ctx.elements(&args.pos[0])?;
    items.reverse();
    ctx.list(items)
}

/// Python's `sum`, for numbers. Not in Starlark's specification.
fn sum(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    let [from, start] = args.bind("sum", false, ["iterable", "start"], 1)?;
    let from = from.unwrap_or(&Value::None);
    require_elements(from)?;
    let mut total = start.cloned().unwrap_or(Value::Int(0));
    number(&total)?;
    for item in iterate(from)? {
        let item = item.decide()?;
        number(&item)?;
        ctx.steps(1)?;
        total = binary(ctx, Binary::Add, &total, &item)?;
    }
    Ok(total)
}

fn number(value: &Value) -> Result<(), Stop> {
    let hint = match view::kind(value) {
        ValueKind::Int | ValueKind::Float => return Ok(()),
        ValueKind::Str => "\"\".join(parts) concatenates strings",
        ValueKind::List | ValueKind::Tuple => "[x for part in parts for x in part] concatenates lists",
        ValueKind::None => "leave out what is None: sum([x for x in values if x != None])",
        _ => "convert the elements first: sum([int(x) for x in values])",
    };
    let failure = Failure::new(Kind::Type, format!("sum() adds numbers, not {}", type_name(value))).with_hint(hint);
    Err(failure.into())
}

/// Looks for the first element whose truth is `wanted`. What is behind it is not decided on.
fn search(ctx: &mut Ctx<'_>, args: Args<'_>, name: &str, wanted: bool) -> Result<bool, Stop> {
    args.only(name, false, 1, 1)?;
    // A range may have more elements than there are steps. It has one that is 0, and any other that is not.
    if let Value::Range(range) = &args.pos[0] {
        return Ok(if wanted { range.len() > usize::from(range.has(0)) } else { range.has(0) });
    }
    for item in iterate(&args.pos[0])? {
        ctx.steps(1)?;
        if truth(&item)? == wanted {
            return Ok(true);
        }
    }
    Ok(false)
}

fn any(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    search(ctx, args, "any", true).map(Value::Bool)
}

fn all(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    search(ctx, args, "all", false).map(|found| Value::Bool(!found))
}
