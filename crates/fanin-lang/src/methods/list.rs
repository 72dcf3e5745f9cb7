//! Methods of lists.

use crate::error::{Kind, Stop};
use crate::host::Args;
use crate::machine::{ops, push_copy};
use crate::native::{Awaits, Changes, Ctx, NativeFn};
use crate::value::{Value, view};

use super::args::{int, iterate, optional_int};

pub(super) static METHODS: [NativeFn; 7] = [
    NativeFn::new("append", append).taking(append_taken).awaits(Awaits::These(1)).changes(Changes::This),
    NativeFn::new("clear", clear).changes(Changes::This),
    NativeFn::new("extend", extend).changes(Changes::This),
    NativeFn::new("index", index),
    NativeFn::new("insert", insert).awaits(Awaits::These(0b11)).changes(Changes::This),
    NativeFn::new("pop", pop).changes(Changes::This),
    NativeFn::new("remove", remove).changes(Changes::This),
];

fn append(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    args.only("append", true, 1, 1)?;
    push_copy(&mut *ctx.edit_list(&args.pos[0], Some(&args.pos[1]))?.edit()?, &args.pos[1]);
    Ok(Value::None)
}

fn append_taken(ctx: &mut Ctx<'_>, args: &mut [Value]) -> Result<Value, Stop> {
    let [list, value] = args else { return append(ctx, Args { pos: args, names: &[], named: &[] }) };
    let mut items = ctx.edit_list(list, Some(value))?.edit()?;
    items.push(std::mem::take(value));
    Ok(Value::None)
}

fn clear(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    args.only("clear", true, 0, 0)?;
    let items = std::mem::take(&mut *ctx.edit_list(&args.pos[0], None)?.edit()?);
    // Dropped after the list is let go of: an element may hold the list.
    drop(items);
    Ok(Value::None)
}

fn extend(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    args.only("extend", true, 1, 1)?;
    // Taken out first: the list may be extended by itself.
    let added = ctx.elements(&args.pos[1])?;
    let holding = added.iter().find(|value| value.may_hold());
    let list = ctx.edit_list(&args.pos[0], holding)?;
    ctx.value((list.items().len() + added.len()) * size_of::<Value>())?;
    list.edit()?.extend(added);
    Ok(Value::None)
}

/// Position of the first element that equals `wanted`, between optional bounds.
fn position(
    ctx: &mut Ctx<'_>,
    list: &Value,
    wanted: &Value,
    bounds: (Option<i64>, Option<i64>),
) -> Result<Option<usize>, Stop> {
    let length = view::len(list).unwrap_or(0);
    let clamp = |at: i64| {
        let at = if at < 0 { at.saturating_add(length as i64).max(0) } else { at };
        usize::try_from(at).unwrap_or(usize::MAX).min(length)
    };
    let (from, to) = (bounds.0.map_or(0, clamp), bounds.1.map_or(length, clamp));
    for (at, item) in iterate(list)?.enumerate().take(to).skip(from) {
        ctx.steps(1)?;
        if ops::equal(ctx, &item, wanted)? {
            return Ok(Some(at));
        }
    }
    Ok(None)
}

#[cold]
fn not_found(ctx: &mut Ctx<'_>, wanted: &Value) -> Stop {
    match ctx.repr(wanted) {
        Ok(shown) => Stop::fail(Kind::Value, format!("{} is not in the list", shorten(shown))),
        Err(stop) => stop,
    }
}

/// Long values are cut in messages.
pub(crate) fn shorten(mut shown: String) -> String {
    const MOST: usize = 60;
    if let Some((cut, _)) = shown.char_indices().nth(MOST) {
        shown.truncate(cut);
        shown.push('…');
    }
    shown
}

fn index(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    args.only("index", true, 1, 3)?;
    let bounds = (optional_int("index", "start", args.pos.get(2))?, optional_int("index", "end", args.pos.get(3))?);
    match position(ctx, &args.pos[0], &args.pos[1], bounds)? {
        Some(at) => Ok(Value::Int(at as i64)),
        None => Err(not_found(ctx, &args.pos[1])),
    }
}

fn insert(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    args.only("insert", true, 2, 2)?;
    let at = int("insert", "index", &args.pos[1])?;
    let list = ctx.edit_list(&args.pos[0], Some(&args.pos[2]))?;
    let mut items = list.edit()?;
    let length = items.len();
    ctx.steps(length / 16)?;
    let at = if at < 0 { at.saturating_add(length as i64).max(0) } else { at };
    items.insert(usize::try_from(at).unwrap_or(usize::MAX).min(length), args.pos[2].clone());
    Ok(Value::None)
}

fn pop(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    args.only("pop", true, 0, 1)?;
    let at = optional_int("pop", "index", args.pos.get(1))?;
    let list = ctx.edit_list(&args.pos[0], None)?;
    let mut items = list.edit()?;
    let length = items.len() as i64;
    // Unlike elsewhere, a negative index does not count from the end: so says the specification.
    let place = at.unwrap_or(length - 1);
    if place < 0 || place >= length {
        return Err(Stop::fail(
            Kind::Index,
            match at {
                Some(at) if length > 0 => format!("pop() index {at} is out of range: the list has {length}"),
                _ => "pop() from an empty list".to_owned(),
            },
        ));
    }
    ctx.steps((length - place) as usize / 16)?;
    Ok(items.remove(place as usize))
}

fn remove(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    args.only("remove", true, 1, 1)?;
    let at = position(ctx, &args.pos[0], &args.pos[1], (None, None))?;
    let list = ctx.edit_list(&args.pos[0], None)?;
    match at {
        Some(at) => {
            let removed = list.edit()?.remove(at);
            drop(removed);
            Ok(Value::None)
        }
        None => Err(not_found(ctx, &args.pos[1])),
    }
}
