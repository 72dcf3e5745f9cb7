//! `assert_equal`, `assert_true`, `assert_in`, `assert_fails`, `assert_snapshot`.

use fanin_lang::value::{compare, view};
use fanin_lang::{Args, Changes, Ctx, Kind, NativeFn, Stop, Value};

use super::{host, text, wrong};
use crate::functions;

pub(super) static FUNCTIONS: [NativeFn; 5] = [
    NativeFn::new("assert_equal", assert_equal).changes(Changes::World),
    NativeFn::new("assert_true", assert_true).changes(Changes::World),
    NativeFn::new("assert_in", assert_in).changes(Changes::World),
    NativeFn::new("assert_fails", assert_fails).changes(Changes::World),
    NativeFn::new("assert_snapshot", assert_snapshot).changes(Changes::World),
];

/// The longest value that a message shows.
const LONGEST: usize = 300;

fn count(ctx: &mut Ctx<'_>, name: &str) -> Result<(), Stop> {
    host(ctx, name)?.assertions += 1;
    Ok(())
}

/// A failed assertion, with the words of the test in front.
fn failed(message: Option<&Value>, what: String) -> Stop {
    let words = match message.and_then(|message| message.decide().ok()) {
        Some(Value::Str(words)) if !words.is_empty() => format!("{words}: "),
        _ => String::new(),
    };
    Stop::fail(Kind::Fail, format!("{words}{what}"))
}

fn shown(ctx: &mut Ctx<'_>, value: &Value) -> Result<String, Stop> {
    let text = match value {
        Value::Json { .. } => String::from_utf8_lossy(&fanin_flow::to_json(value).unwrap_or_default()).into_owned(),
        other => ctx.repr(other)?,
    };
    Ok(match text.char_indices().nth(LONGEST) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text,
    })
}

fn as_json(value: &Value) -> Option<serde_json::Value> {
    serde_json::from_slice(&fanin_flow::to_json(value).ok()?).ok()
}

/// `assert_equal(page.status, 200)`
fn assert_equal(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    let [actual, expected, message] = args.bind("assert_equal", false, ["actual", "expected", "message"], 2)?;
    count(ctx, "assert_equal")?;
    let (actual, expected) = (actual.unwrap_or(&Value::None), expected.unwrap_or(&Value::None));
    if compare::equal(&actual.decide()?, &expected.decide()?)? {
        return Ok(Value::None);
    }
    let is_nested = |value: &Value| matches!(view::kind(value), view::Kind::List | view::Kind::Dict);
    if is_nested(actual)
        && is_nested(expected)
        && let (Some(one), Some(other)) = (as_json(actual), as_json(expected))
        && one != other
    {
        return Err(failed(message, crate::difference::describe(&one, &other)));
    }
    let (actual, expected) = (shown(ctx, actual)?, shown(ctx, expected)?);
    Err(failed(message, format!("it is {actual}; expected {expected}")))
}

/// `assert_true(page.elapsed <= 60)`
fn assert_true(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    let [value, message] = args.bind("assert_true", false, ["value", "message"], 1)?;
    count(ctx, "assert_true")?;
    let value = value.unwrap_or(&Value::None);
    match value.decide()? {
        Value::Bool(true) => Ok(Value::None),
        Value::Bool(false) => Err(failed(message, "it is not true".to_owned())),
        other => {
            let kind = view::type_name(&other);
            Err(Stop::fail(Kind::Type, format!("assert_true() takes True or False, not {kind}")))
        }
    }
}

/// `assert_in("catalog", page.error.message)`
fn assert_in(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    let [item, container, message] = args.bind("assert_in", false, ["item", "container", "message"], 2)?;
    count(ctx, "assert_in")?;
    let (item, container) = (item.unwrap_or(&Value::None), container.unwrap_or(&Value::None).decide()?);
    let found = match &container {
        Value::Str(whole) => whole.contains(&text("assert_in", "item", item)?),
        other => match view::kind(other) {
            view::Kind::Dict => view::get(other, &item.decide()?)?.is_some(),
            _ => {
                let mut found = false;
                for one in ctx.elements(other)? {
                    found = found || compare::equal(&one.decide()?, &item.decide()?)?;
                }
                found
            }
        },
    };
    if found {
        return Ok(Value::None);
    }
    let (item, container) = (shown(ctx, item)?, shown(ctx, &container)?);
    Err(failed(message, format!("{item} is not in {container}")))
}

/// `assert_fails(lambda: helper(None), "expected a dict")`
fn assert_fails(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    let [function, contains] = args.bind("assert_fails", false, ["function", "contains"], 1)?;
    count(ctx, "assert_fails")?;
    let function = function.unwrap_or(&Value::None).decide()?;
    if !functions::is_function(&function) {
        return Err(wrong("assert_fails", "it takes a function without arguments, such as lambda: parse(\"x\")"));
    }
    let contains = contains.map(|contains| text("assert_fails", "contains", contains)).transpose()?;
    let program = host(ctx, "assert_fails")?.program.clone();
    match (functions::run(&program, &function, Vec::new()), contains) {
        (Ok(_), _) => Err(failed(None, "the function did not fail".to_owned())),
        (Err(message), Some(wanted)) if !message.contains(&wanted) => {
            Err(failed(None, format!("the function failed with {message:?}, which does not contain {wanted:?}")))
        }
        (Err(_), _) => Ok(Value::None),
    }
}

/// `assert_snapshot(page.json)`
fn assert_snapshot(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    let [value, name] = args.bind("assert_snapshot", false, ["value", "name"], 1)?;
    count(ctx, "assert_snapshot")?;
    let value = value.unwrap_or(&Value::None);
    let json = fanin_flow::to_json(value).map_err(|what| wrong("assert_snapshot", what))?;
    let json = serde_json::from_slice(&json).map_err(|what| wrong("assert_snapshot", what))?;
    let name = name.map(|name| text("assert_snapshot", "name", name)).transpose()?;
    let host = host(ctx, "assert_snapshot")?;
    let full = match name {
        Some(name) => format!("{}: {name}", host.name),
        None => host.name.clone(),
    };
    host.snapshots.compare(&full, json).map_err(|what| failed(None, what))?;
    Ok(Value::None)
}
