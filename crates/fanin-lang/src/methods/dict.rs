//! Methods of dicts. Those that only look work on objects in answers too.

use crate::error::{Kind, Stop};
use crate::host::Args;
use crate::native::{Awaits, Changes, Ctx, NativeFn};
use crate::value::view::{self, type_name};
use crate::value::{Value, compare};

use super::args::{iterate, require_elements};
use super::list::shorten;

pub(super) static METHODS: [NativeFn; 9] = [
    NativeFn::new("clear", clear).changes(Changes::This),
    NativeFn::new("get", get).awaits(Awaits::These(0b11)),
    NativeFn::new("items", items),
    NativeFn::new("keys", keys),
    NativeFn::new("pop", pop).awaits(Awaits::These(0b11)).changes(Changes::This),
    NativeFn::new("popitem", popitem).changes(Changes::This),
    NativeFn::new("setdefault", setdefault).awaits(Awaits::These(0b11)).changes(Changes::This),
    NativeFn::new("update", update).awaits(Awaits::These(0b11)).changes(Changes::This),
    NativeFn::new("values", values),
];

fn entries(ctx: &mut Ctx<'_>, dict: &Value) -> Result<Vec<(Value, Value)>, Stop> {
    let length = view::len(dict).unwrap_or(0);
    ctx.steps(length)?;
    ctx.memory(length.saturating_mul(2 * size_of::<Value>()))?;
    view::entries(dict).ok_or_else(|| super::args::wrong_type("method", "object", "a dict", dict))
}

fn get(_: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    args.only("get", true, 1, 2)?;
    if let Value::Dict(dict) = &args.pos[0] {
        if let Some(value) = dict.map().get(&args.pos[1])? {
            return Ok(value.clone());
        }
    } else if let Some(value) = view::get(&args.pos[0], &args.pos[1])? {
        return Ok(value);
    }
    match args.pos.get(2) {
        Some(default) => Ok(default.clone()),
        None => Ok(Value::None),
    }
}

fn keys(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    args.only("keys", true, 0, 0)?;
    let keys = entries(ctx, &args.pos[0])?.into_iter().map(|(key, _)| key).collect();
    ctx.list(keys)
}

fn values(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    args.only("values", true, 0, 0)?;
    let values = entries(ctx, &args.pos[0])?.into_iter().map(|(_, value)| value).collect();
    ctx.list(values)
}

fn items(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    args.only("items", true, 0, 0)?;
    let entries = entries(ctx, &args.pos[0])?;
    ctx.memory(entries.len().saturating_mul(64))?;
    ctx.list(entries.into_iter().map(|(key, value)| Value::pair(key, value)).collect())
}

fn clear(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    args.only("clear", true, 0, 0)?;
    let dict = ctx.edit_dict(&args.pos[0], None)?;
    let entries = dict.edit()?.drain();
    // Dropped after the dict is let go of: a value may hold the dict.
    drop(entries);
    Ok(Value::None)
}

#[cold]
pub(crate) fn no_key(ctx: &mut Ctx<'_>, key: &Value, what: &str) -> Stop {
    match ctx.repr(key) {
        Ok(shown) => Stop::fail(Kind::Key, format!("{} is not in the {what}", shorten(shown))),
        Err(stop) => stop,
    }
}

fn pop(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    args.only("pop", true, 1, 2)?;
    let dict = ctx.edit_dict(&args.pos[0], None)?;
    ctx.steps(dict.map().len() / 16)?;
    let removed = dict.edit()?.remove(&args.pos[1])?;
    match (removed, args.pos.get(2)) {
        (Some((_, value)), _) => Ok(value),
        (None, Some(default)) => Ok(default.clone()),
        (None, None) => Err(no_key(ctx, &args.pos[1], "dict")),
    }
}

fn popitem(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    args.only("popitem", true, 0, 0)?;
    let dict = ctx.edit_dict(&args.pos[0], None)?;
    let first = dict.map().at(0).map(|(key, _)| key.clone());
    let Some(key) = first else {
        return Err(Stop::fail(Kind::Key, "popitem() from an empty dict"));
    };
    ctx.steps(dict.map().len() / 16)?;
    ctx.memory(64)?;
    let (key, value) = dict.edit()?.remove(&key)?.unwrap_or_default();
    Ok(Value::pair(key, value))
}

fn setdefault(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    args.only("setdefault", true, 1, 2)?;
    let default = args.pos.get(2).cloned().unwrap_or_default();
    let dict = ctx.edit_dict(&args.pos[0], Some(&default))?;
    if let Some(value) = dict.map().get(&args.pos[1])? {
        return Ok(value.clone());
    }
    dict.edit()?.insert(args.pos[1].clone(), default.clone())?;
    Ok(default)
}

/// Entries of a dict or of a sequence of pairs, and of keyword arguments; keys checked.
pub(crate) fn pairs(
    ctx: &mut Ctx<'_>,
    name: &str,
    args: Args<'_>,
    from: Option<&Value>,
) -> Result<Vec<(Value, Value)>, Stop> {
    let mut all = Vec::new();
    match from {
        None => {}
        Some(dict) if view::kind(dict) == view::Kind::Dict => all = entries(ctx, dict)?,
        Some(sequence) => {
            // A sequence of pairs.
            require_elements(sequence)?;
            for (at, pair) in iterate(sequence)?.enumerate() {
                ctx.steps(1)?;
                let pair = pair.decide()?;
                let wrong =
                    |what: String| Stop::fail(Kind::Type, format!("{name}() needs pairs, element {at} is {what}"));
                if view::len(&pair).is_none() || view::kind(&pair) == view::Kind::Str {
                    return Err(wrong(type_name(&pair)));
                }
                let mut elements = iterate(&pair)?;
                match (elements.next(), elements.next(), elements.next()) {
                    (Some(key), Some(value), None) => all.push((key.decide()?, value)),
                    _ => {
                        let length = view::len(&pair).unwrap_or(0);
                        let plural = if length == 1 { "" } else { "s" };
                        return Err(wrong(format!("a {} of {length} element{plural}", type_name(&pair))));
                    }
                }
            }
        }
    }
    for (key, _) in &all {
        compare::hash(key)?;
    }
    for (key, value) in args.names.iter().zip(args.named) {
        all.push((Value::Str(key.clone()), value.clone()));
    }
    Ok(all)
}

fn update(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    if args.pos.len() > 2 {
        Args { names: &[], named: &[], ..args }.only("update", true, 0, 1)?;
    }
    let added = pairs(ctx, "update", args, args.pos.get(1))?;
    ctx.memory(added.len().saturating_mul(48))?;
    let holding = added.iter().map(|(_, value)| value).find(|value| value.may_hold());
    let dict = ctx.edit_dict(&args.pos[0], holding)?;
    ctx.value((dict.map().len() + added.len()) * crate::native::ENTRY)?;
    let mut map = dict.edit()?;
    for (key, value) in added {
        map.insert(key, value)?;
    }
    Ok(Value::None)
}
