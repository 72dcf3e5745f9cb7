//! `deviate`, `deviating`, `responses`: a failure that `fanin explore` has found, as a test.

use std::cell::Cell;

use fanin_lang::value::view;
use fanin_lang::{Args, Changes, Ctx, NativeFn, Stop, Value};

use super::stubbing::target;
use super::{host, text, wrong};
use crate::deviate::{Deviation, Edit};
use crate::pattern::Pattern;
use crate::response::ResponseObject;
use crate::values;

pub(super) static FUNCTIONS: [NativeFn; 3] = [
    NativeFn::new("deviate", deviate).changes(Changes::World),
    NativeFn::new("deviating", deviating).changes(Changes::World),
    NativeFn::new("responses", responses).changes(Changes::World),
];

const ARGUMENTS: [&str; 11] =
    ["target", "path", "number", "without", "replace", "answer", "text", "status", "headers", "delay", "fail"];

/// `deviate(catalog.get, "/products/7", number = 2, status = 503)`
fn deviate(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    let bound = args.bind("deviate", false, ARGUMENTS, 1)?;
    let [of, path, number, without, replace, ..] = bound;
    let of = of.map(Value::decide).transpose()?.unwrap_or_default();
    let (upstream, method) = target("deviate", &of)?;
    let given: Vec<(&str, &Value)> =
        ARGUMENTS.iter().zip(bound).skip(5).filter_map(|(name, value)| Some((*name, value?))).collect();
    let spec = values::spec(&given).map_err(|what| wrong("deviate", what))?;
    let path = match path {
        None => None,
        Some(path) => Some(Pattern::parse(&text("deviate", "path", path)?).map_err(|what| wrong("deviate", what))?),
    };
    let number = match number.map(Value::decide).transpose()? {
        None | Some(Value::None) => None,
        Some(Value::Int(number)) if number >= 1 => Some(number as u64),
        Some(_) => return Err(wrong("deviate", "number says which request, from 1")),
    };
    let mut edits = Vec::new();
    if let Some(without) = without {
        edits.push(Edit::Without(text("deviate", "without", without)?));
    }
    if let Some(replace) = replace {
        let entries = view::entries(&replace.decide()?)
            .ok_or_else(|| wrong("deviate", "replace must be a dict: values by path"))?;
        for (path, value) in &entries {
            let json = fanin_flow::to_json(value).map_err(|what| wrong("deviate", what))?;
            let value = serde_json::from_slice(&json).map_err(|what| wrong("deviate", what))?;
            edits.push(Edit::Replace(values::plain(path), value));
        }
    }
    if given.is_empty() && edits.is_empty() {
        return Err(wrong("deviate", "it needs answer, text, status, headers, delay, fail, without or replace"));
    }
    let one = Deviation { upstream, method, path, number, spec, edits, seen: Cell::new(0) };
    host(ctx, "deviate")?.world.shared.deviations.0.borrow_mut().push(one);
    Ok(Value::None)
}

/// `deviating()`: names of the upstreams whose answers deviate from the stubs.
fn deviating(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    args.only("deviating", false, 0, 0)?;
    let names = host(ctx, "deviating")?.world.shared.deviations.upstreams();
    Ok(Value::list(names.iter().map(|name| Value::str(name)).collect()))
}

/// `responses()`: all responses of the test so far, in order.
fn responses(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    args.only("responses", false, 0, 0)?;
    let all = host(ctx, "responses")?.received.clone();
    Ok(Value::list(all.into_iter().map(|one| Value::object(ResponseObject(one))).collect()))
}
