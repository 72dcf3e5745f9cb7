//! Taking parts: indexes, slices, attributes; and assigning elements.

use crate::code::Code;
use crate::error::{Failure, Kind as Error, Stop};
use crate::native::Ctx;
use crate::pending::{Derived, Later, MAX_PATH, PendingKind, PendingValue};
use crate::program_order::ProgramOrder;
use crate::program_point::ProgramPoint;
use crate::value::index::{index_hard, not_indexed, position};
use crate::value::object::BoundMethod;
use crate::value::view::{self, Kind, type_name};
use crate::value::{Bound, Key, Value, part};
use crate::{python_names, suggest};

use super::charge::scan_steps;

/// Where a part is taken: for a part of a fiber's result, which may turn out missing later.
pub(crate) struct At<'a> {
    pub(crate) order: &'a mut dyn FnMut() -> ProgramOrder,
    pub(crate) place: &'a dyn Fn() -> ProgramPoint,
}

/// `of[key]`: soft for answers, derived for results of fibers that are pending, at once for others.
pub(crate) fn index(of: &Value, key: &Value, at: &mut At<'_>) -> Result<Value, Stop> {
    match of {
        Value::Pending(_) | Value::Json { .. } => {
            let key = key.decide()?;
            match Key::of(&key) {
                Some(key) => soft(of, key, at),
                // No answer has such a key: the failure must not depend on when it comes.
                None => index_hard(&of.decide()?, &key),
            }
        }
        Value::Absent(failure) => {
            key.decide()?;
            Ok(Value::Absent(failure.clone()))
        }
        _ if key.is_plain() => index_hard(of, key),
        _ => index_hard(of, &key.decide()?),
    }
}

fn soft(of: &Value, key: Key, at: &mut At<'_>) -> Result<Value, Stop> {
    let mut of = of.clone();
    loop {
        match &of {
            Value::Json { at, doc } => return Ok(part::soft(doc, *at, &key)),
            Value::Absent(failure) => return Ok(Value::Absent(failure.clone())),
            Value::Pending(pending) if pending.is_soft() => {
                if let Some(Ok(Value::Json { at, doc })) = pending.outcome() {
                    return Ok(part::soft(&doc, at, &key));
                }
                return match pending.part(key) {
                    Some(part) => Ok(Value::Pending(part)),
                    None => Err(Stop::Wait(pending.clone())),
                };
            }
            Value::Pending(pending) => match pending.outcome() {
                Some(Ok(inner)) => of = inner,
                // A part that is missing has no parts: it fails where it is decided on.
                Some(Err(_)) => return Ok(of.clone()),
                None => return derive(pending, key, at),
            },
            other => return index_hard(other, &key.value()),
        }
    }
}

/// The part of a fiber's result, to be taken the moment that comes.
fn derive(pending: &PendingValue, key: Key, at: &mut At<'_>) -> Result<Value, Stop> {
    let (root, mut path) = match &pending.0.kind {
        PendingKind::Derived(way) => (way.of.clone(), way.path.to_vec()),
        _ => (pending.clone(), Vec::new()),
    };
    if path.len() >= MAX_PATH {
        return Err(Stop::Wait(pending.clone()));
    }
    path.push(key);
    let path = path.into_boxed_slice();
    let derived = PendingValue::derived(root.clone(), path.clone());
    root.derive(Derived::Index(Later { pending: derived.clone(), path, order: (at.order)(), place: (at.place)() }));
    Ok(Value::Pending(derived))
}

/// `of[key] = value`
pub(crate) fn set_index(ctx: &mut Ctx<'_>, of: &Value, key: &Value, value: &Value) -> Result<(), Stop> {
    if let (Value::Dict(_), true) = (of, key.is_plain()) {
        ctx.steps(scan_steps(key))?;
        ctx.edit_dict(of, Some(value))?.edit()?.insert_copy(key, value)?;
        return Ok(());
    }
    let of = of.decide()?;
    let key = key.decide()?;
    match view::kind(&of) {
        Kind::List => {
            let list = ctx.edit_list(&of, Some(value))?;
            let at = position(&key, list.items().len(), &of)?;
            if let Some(place) = list.edit()?.get_mut(at) {
                *place = value.clone();
            }
            Ok(())
        }
        Kind::Dict => {
            let dict = ctx.edit_dict(&of, Some(value))?;
            dict.edit()?.insert(key, value.clone())?;
            Ok(())
        }
        _ => Err(Stop::fail(Error::Type, format!("elements of {} cannot be assigned", type_name(&of)))),
    }
}

/// `of[start:stop:step]`
pub(crate) fn slice(ctx: &mut Ctx<'_>, of: &Value, bounds: &[Value]) -> Result<Value, Stop> {
    let of = of.decide()?;
    let bound = |at: usize| -> Result<Option<i64>, Stop> {
        match bounds.get(at).map(Value::decide).transpose()? {
            None | Some(Value::None) => Ok(None),
            Some(Value::Int(value)) => Ok(Some(value)),
            Some(other) => Err(Stop::fail(Error::Type, format!("a slice has int bounds, not {}", type_name(&other)))),
        }
    };
    let (start, stop, step) = (bound(0)?, bound(1)?, bound(2)?.unwrap_or(1));
    if step == 0 {
        return Err(Stop::fail(Error::Value, "the step of a slice cannot be 0"));
    }
    let Some(len) = view::len(&of) else { return Err(not_indexed(&of)) };
    let len = len as i64;
    let clamp = |value: i64, low: i64, high: i64| {
        let value = if value < 0 { value.saturating_add(len) } else { value };
        value.clamp(low, high)
    };
    let (from, to) = if step > 0 {
        (clamp(start.unwrap_or(0), 0, len), clamp(stop.unwrap_or(len), 0, len))
    } else {
        (start.map_or(len - 1, |start| clamp(start, -1, len - 1)), stop.map_or(-1, |stop| clamp(stop, -1, len - 1)))
    };
    let range = crate::value::Range { start: from, stop: to, step };
    let count = range.len();
    ctx.steps(count / 4)?;
    let places = (0..count).map(|at| range.at(at) as usize);
    match (&of, view::kind(&of)) {
        (Value::Str(text), _) if step == 1 => {
            let (from, to) = (from as usize, from as usize + count);
            if text.is_ascii() {
                return ctx.str(&text[from..to]);
            }
            let mut places = text.char_indices().map(|(at, _)| at).skip(from);
            let begins = places.next().unwrap_or(text.len());
            let ends = if count == 0 { begins } else { places.nth(count - 1).unwrap_or(text.len()) };
            ctx.str(&text[begins..ends])
        }
        (Value::Str(text), _) => {
            let chars: Vec<char> = text.chars().collect();
            let sliced: String = places.filter_map(|at| chars.get(at)).collect();
            ctx.str(&sliced)
        }
        (Value::Bytes(bytes), _) => {
            ctx.memory(count)?;
            Ok(Value::Bytes(std::sync::Arc::new(places.filter_map(|at| bytes.get(at).copied()).collect())))
        }
        (Value::Range(range), _) => {
            let at = |place: i64| range.start.wrapping_add(place.wrapping_mul(range.step));
            Ok(Value::Range(std::rc::Rc::new(crate::value::Range {
                start: at(from),
                stop: at(to),
                step: range.step.saturating_mul(step),
            })))
        }
        (Value::List(list), _) if step == 1 => {
            let items = list.items()[from as usize..from as usize + count].to_vec();
            ctx.list(items)
        }
        (_, Kind::List) => {
            let items = places.filter_map(|at| view::at(&of, at)).collect();
            ctx.list(items)
        }
        (_, Kind::Tuple) => {
            ctx.memory(count * size_of::<Value>())?;
            Ok(Value::tuple(places.filter_map(|at| view::at(&of, at)).collect()))
        }
        _ => Err(Stop::fail(Error::Type, format!("{} cannot be sliced", type_name(&of)))),
    }
}

/// `of.name`
pub(crate) fn attribute(ctx: &Ctx<'_>, of: &Value, name: &arcstr::ArcStr) -> Result<Value, Stop> {
    // What a call itself knows is asked of the call, even if it failed.
    if let Value::Pending(pending) = of
        && let Some(source) = pending.source().filter(|_| pending.is_call())
        && source.attributes().contains(&name.as_str())
    {
        let Some(outcome) = pending.outcome() else { return Err(Stop::Wait(pending.clone())) };
        if let Some(value) = source.attribute(name, &outcome)? {
            return Ok(value);
        }
    }
    let value = of.decide()?;
    if let Some(found) = part::field(&value, name) {
        return Ok(found);
    }
    match &value {
        Value::Object(object) => {
            if let Some(found) = object.attribute(name)? {
                return Ok(found);
            }
            if let Some(native) = object.method(name) {
                return Ok(bound(value, BoundMethod::Native(native)));
            }
        }
        Value::Host(host) => {
            if let Some(found) = host.attribute(name) {
                return Ok(found);
            }
            if host.method(name, &|_| None).is_some() {
                return Ok(bound(value, BoundMethod::Host(name.clone())));
            }
        }
        _ => {}
    }
    if let Some(native) = ctx.program.builtins.method(view::kind(&value), name) {
        return Ok(bound(value, BoundMethod::Native(native)));
    }
    Err(no_attribute(ctx, of, &value, name))
}

fn bound(this: Value, method: BoundMethod) -> Value {
    Value::Bound(std::rc::Rc::new(Bound { this, method }))
}

#[cold]
pub(crate) fn no_attribute(ctx: &Ctx<'_>, of: &Value, value: &Value, name: &str) -> Stop {
    let mut names: Vec<String> = ctx.program.builtins.method_names(view::kind(value)).map(ToOwned::to_owned).collect();
    match value {
        Value::Object(object) => names.extend(object.names().into_iter().map(ToOwned::to_owned)),
        Value::Host(host) => names.extend(host.names().into_iter().map(ToOwned::to_owned)),
        other => names.extend(crate::value::compare::fields(other).into_iter().map(|(name, _)| name.to_string())),
    }
    let mut instead = python_names::instead_of_method(view::kind(value), name);
    if let Value::Pending(pending) = of
        && let Some(source) = pending.source().filter(|_| pending.is_call())
    {
        instead = python_names::instead_of_answer(name).or(instead);
        names.extend(source.attributes().iter().map(|name| (*name).to_owned()));
    }
    let mut failure = Failure::new(Error::Attribute, format!("{} has no .{name}", type_name(value)));
    failure.hint = match view::kind(value) {
        Kind::Dict if view::get(value, &Value::str(name)).is_ok_and(|found| found.is_some()) => {
            Some(format!("keys are taken with brackets: [{name:?}]"))
        }
        Kind::None => Some("the value is None: a function without return, a key that .get did not find, or an optional call that failed".to_owned()),
        _ => instead
            .map(|instead| format!("write instead: {instead}"))
            .or_else(|| suggest::nearest(name, names.iter().map(String::as_str)).map(|near| format!("did you mean .{near}?"))),
    };
    failure.into()
}

/// The constant key `key` of a function.
#[inline]
pub(crate) fn key_of(code: &Code, key: u16) -> &arcstr::ArcStr {
    &code.keys[usize::from(key)]
}
