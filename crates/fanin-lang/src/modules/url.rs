//! `@url`: parts of URLs, percent-encoding, query strings.

use percent_encoding::percent_decode_str;

use crate::error::{Kind, Stop};
use crate::host::Args;
use crate::methods::args::{iterate, text, wrong_type};
use crate::native::{Awaits, Ctx, NativeFn};
use crate::value::view::{self, type_name};
use crate::value::{Struct, Value};

pub(super) static FUNCTIONS: [NativeFn; 6] = [
    NativeFn::new("url.quote", quote),
    NativeFn::new("url.unquote", unquote),
    NativeFn::new("url.query", query).awaits(Awaits::Deep),
    NativeFn::new("url.parse_query", parse_query),
    NativeFn::new("url.parse", parse),
    NativeFn::new("url.join", join),
];

fn given<'a>(name: &str, param: &str, value: Option<&'a Value>) -> Result<&'a str, Stop> {
    text(name, param, value.unwrap_or(&Value::None))
}

/// Everything but letters, digits and `-._~` is encoded, and what `safe` names stays too.
fn quote(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    let [part, safe] = args.bind("url.quote", false, ["text", "safe"], 1)?;
    let part = given("url.quote", "text", part)?;
    let safe = safe.map_or(Ok(""), |safe| text("url.quote", "safe", safe))?;
    if !safe.is_ascii() {
        return Err(Stop::fail(Kind::Value, "url.quote() can only leave ASCII characters as they are"));
    }
    ctx.memory(part.len().saturating_mul(3))?;
    let mut quoted = String::with_capacity(part.len());
    for byte in part.bytes() {
        // What RFC 3986 calls unreserved. A percent sign would be read as the start of an escape.
        let plain = byte.is_ascii_alphanumeric()
            || b"-._~".contains(&byte)
            || (byte != b'%' && safe.as_bytes().contains(&byte));
        if plain {
            quoted.push(char::from(byte));
        } else {
            quoted.push('%');
            quoted.push_str(&super::hex(&[byte]).to_ascii_uppercase());
        }
    }
    ctx.str(&quoted)
}

fn unquote(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    let [part] = args.bind("url.unquote", false, ["text"], 1)?;
    match percent_decode_str(given("url.unquote", "text", part)?).decode_utf8() {
        Ok(text) => ctx.str(&text),
        Err(_) => Err(Stop::fail(Kind::Value, "url.unquote(): the bytes are not UTF-8 text")),
    }
}

/// A dict as a query string; a list is repeated, `None` is left out.
fn query(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    let [from] = args.bind("url.query", false, ["params"], 1)?;
    let from = from.unwrap_or(&Value::None).decide()?;
    let Some(entries) = view::entries(&from) else { return Err(wrong_type("url.query", "params", "a dict", &from)) };
    let mut out = form_urlencoded::Serializer::new(String::new());
    let mut add = |ctx: &mut Ctx<'_>, key: &str, value: &Value| {
        let value = match value.decide()? {
            Value::None => return Ok(()),
            Value::Str(text) => text.to_string(),
            Value::Bool(yes) => yes.to_string(),
            number @ (Value::Int(_) | Value::BigInt(_) | Value::Float(_)) => ctx.show(&number)?,
            other => {
                return Err(Stop::fail(
                    Kind::Type,
                    format!("url.query(): {key} is a {}, no scalar", type_name(&other)),
                ));
            }
        };
        ctx.memory((key.len() + value.len()) * 3)?;
        out.append_pair(key, &value);
        Ok::<(), Stop>(())
    };
    for (key, value) in entries {
        ctx.steps(1)?;
        let key = key.decide()?;
        let Value::Str(key) = &key else { return Err(wrong_type("url.query", "key", "a string", &key)) };
        let value = value.decide()?;
        match view::kind(&value) {
            view::Kind::List | view::Kind::Tuple => {
                for item in iterate(&value)? {
                    add(ctx, key, &item)?;
                }
            }
            _ => add(ctx, key, &value)?,
        }
    }
    ctx.str(&out.finish())
}

/// A query string as a dict from each name to the list of its values.
fn parse_query(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    let [source] = args.bind("url.parse_query", false, ["text"], 1)?;
    let source = given("url.parse_query", "text", source)?;
    let source = source.strip_prefix('?').unwrap_or(source);
    ctx.steps(source.len() / 4)?;
    let mut entries: Vec<(Value, Vec<Value>)> = Vec::new();
    let mut places = std::collections::HashMap::new();
    for (key, value) in form_urlencoded::parse(source.as_bytes()) {
        ctx.memory(64)?;
        let value = ctx.str(&value)?;
        let place = *places.entry(key.to_string()).or_insert(entries.len());
        if place == entries.len() {
            entries.push((ctx.str(&key)?, Vec::new()));
        }
        entries[place].1.push(value);
    }
    ctx.value(entries.len() * crate::native::ENTRY)?;
    Ok(Value::dict(entries.into_iter().map(|(key, values)| (key, Value::list(values)))))
}

/// The parts of an absolute URL.
fn parse(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    let [source] = args.bind("url.parse", false, ["url"], 1)?;
    let source = given("url.parse", "url", source)?;
    ctx.steps(source.len() / 8)?;
    let parsed = read("url.parse", source)?;
    let part = |ctx: &mut Ctx<'_>, part: Option<&str>| part.map_or(Ok(Value::None), |part| ctx.str(part));
    let fields = vec![
        ("scheme".into(), ctx.str(parsed.scheme())?),
        ("host".into(), part(ctx, parsed.host_str())?),
        ("port".into(), parsed.port_or_known_default().map_or(Value::None, |port| Value::Int(i64::from(port)))),
        ("path".into(), ctx.str(parsed.path())?),
        ("query".into(), part(ctx, parsed.query())?),
        ("fragment".into(), part(ctx, parsed.fragment())?),
    ];
    Ok(Value::Struct(std::rc::Rc::new(Struct::new(fields))))
}

fn read(name: &str, source: &str) -> Result<::url::Url, Stop> {
    ::url::Url::parse(source).map_err(|error| Stop::fail(Kind::Value, format!("{name}(): {error}")))
}

/// A reference as it is in a document, resolved.
fn join(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    let [base, reference] = args.bind("url.join", false, ["base", "reference"], 2)?;
    let base = read("url.join", given("url.join", "base", base)?)?;
    let reference = given("url.join", "reference", reference)?;
    ctx.steps(reference.len() / 8)?;
    match base.join(reference) {
        Ok(joined) => ctx.str(joined.as_str()),
        Err(error) => Err(Stop::fail(Kind::Value, format!("url.join(): {error}"))),
    }
}
