//! Reflection: `dir`, `getattr`, `hasattr`.

use std::rc::Rc;

use arcstr::ArcStr;

use crate::error::{Failure, Kind, Stop};
use crate::host::Args;
use crate::methods::args::text;
use crate::native::{Awaits, Ctx, NativeFn};
use crate::value::object::{Bound, BoundMethod};
use crate::value::view::{self, type_name};
use crate::value::{Value, compare};

pub(super) static FUNCTIONS: [NativeFn; 3] = [
    NativeFn::new("dir", dir).awaits(Awaits::These(0)),
    NativeFn::new("getattr", getattr).awaits(Awaits::These(0b10)),
    NativeFn::new("hasattr", hasattr).awaits(Awaits::These(0b10)),
];

/// What `value.name` is; `None` if it has no such attribute. An attribute of a call (`status`) is
/// asked of the call, so the value must not have been decided on.
fn attribute(ctx: &Ctx<'_>, value: &Value, name: &str) -> Result<Option<Value>, Stop> {
    if let Value::Pending(pending) = value
        && let Some(source) = pending.source()
        && pending.is_call()
        && source.attributes().contains(&name)
    {
        let Some(outcome) = pending.outcome() else { return Err(Stop::Wait(pending.clone())) };
        return source.attribute(name, &outcome).map_err(|failure: Failure| failure.into());
    }
    let value = value.decide()?;
    let bound = |method| Value::Bound(Rc::new(Bound { this: value.clone(), method }));
    Ok(match &value {
        Value::Host(object) => match object.method(name, &|_| None) {
            Some(_) => Some(bound(BoundMethod::Host(ArcStr::from(name)))),
            None => object.attribute(name),
        },
        Value::Object(object) => match object.attribute(name)? {
            Some(value) => Some(value),
            None => object.method(name).map(|native| bound(BoundMethod::Native(native))),
        },
        other if view::kind(other) == view::Kind::Struct => {
            compare::fields(other).into_iter().find(|(field, _)| *field == name).map(|(_, value)| value)
        }
        other => ctx.program.builtins.method(view::kind(other), name).map(|native| bound(BoundMethod::Native(native))),
    })
}

fn names(ctx: &Ctx<'_>, value: &Value) -> Result<Vec<String>, Stop> {
    let mut names: Vec<String> = Vec::new();
    if let Value::Pending(pending) = value
        && let Some(source) = pending.source()
        && pending.is_call()
    {
        names.extend(source.attributes().iter().map(|name| (*name).to_owned()));
    }
    match &value.decide()? {
        Value::Host(object) => names.extend(object.names().into_iter().map(str::to_owned)),
        Value::Object(object) => names.extend(object.names().into_iter().map(str::to_owned)),
        other if view::kind(other) == view::Kind::Struct => {
            names.extend(compare::fields(other).into_iter().map(|(name, _)| name.to_string()));
        }
        other => names.extend(ctx.program.builtins.method_names(view::kind(other)).map(str::to_owned)),
    }
    names.sort_unstable();
    names.dedup();
    Ok(names)
}

fn dir(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    args.only("dir", false, 1, 1)?;
    let names = names(ctx, &args.pos[0])?;
    let mut list = Vec::with_capacity(names.len());
    for name in &names {
        list.push(ctx.str(name)?);
    }
    ctx.list(list)
}

fn hasattr(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    args.only("hasattr", false, 2, 2)?;
    let name = text("hasattr", "name", &args.pos[1])?;
    // An answer's own attributes are known before it is there.
    if let Value::Pending(pending) = &args.pos[0]
        && pending.is_call()
        && pending.source().is_some_and(|source| source.attributes().contains(&name))
    {
        return Ok(Value::Bool(true));
    }
    Ok(Value::Bool(attribute(ctx, &args.pos[0], name)?.is_some()))
}

fn getattr(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    args.only("getattr", false, 2, 3)?;
    let name = text("getattr", "name", &args.pos[1])?;
    match (attribute(ctx, &args.pos[0], name)?, args.pos.get(2)) {
        (Some(value), _) => Ok(value),
        (None, Some(default)) => Ok(default.clone()),
        (None, None) => {
            let kind = type_name(&args.pos[0].decide()?);
            Err(Stop::fail(Kind::Attribute, format!("{kind} has no attribute '{name}'")))
        }
    }
}
