//! Methods of strings that look for something or ask something.
//!
//! A string is a sequence of characters (Unicode scalar values): lengths and offsets count those.

use crate::error::{Kind, Stop};
use crate::host::Args;
use crate::native::{Ctx, NativeFn};
use crate::value::Value;
use crate::value::view::type_name;

use super::args::{is_tuple, iterate, optional_int, text, this};

pub(super) static METHODS: [NativeFn; 20] = [
    NativeFn::new("codepoint_ords", codepoint_ords),
    NativeFn::new("codepoints", elems),
    NativeFn::new("count", count),
    NativeFn::new("elem_ords", codepoint_ords),
    NativeFn::new("elems", elems),
    NativeFn::new("endswith", endswith),
    NativeFn::new("find", find),
    NativeFn::new("index", index),
    NativeFn::new("isalnum", isalnum),
    NativeFn::new("isalpha", isalpha),
    NativeFn::new("isdigit", isdigit),
    NativeFn::new("islower", islower),
    NativeFn::new("isspace", isspace),
    NativeFn::new("istitle", istitle),
    NativeFn::new("isupper", isupper),
    NativeFn::new("removeprefix", removeprefix),
    NativeFn::new("removesuffix", removesuffix),
    NativeFn::new("rfind", rfind),
    NativeFn::new("rindex", rindex),
    NativeFn::new("startswith", startswith),
];

/// Offset in bytes of character `at`; the length of the text if it has no more than that.
fn byte_offset(text: &str, at: usize) -> usize {
    if text.is_ascii() {
        return at.min(text.len());
    }
    text.char_indices().nth(at).map_or(text.len(), |(offset, _)| offset)
}

fn characters(text: &str) -> usize {
    if text.is_ascii() { text.len() } else { text.chars().count() }
}

/// The part between optional bounds, which count from the end if negative, and the number of
/// characters before it. `None` if it would begin behind its end, where not even "" is found.
fn window<'a>(
    name: &str,
    text: &'a str,
    start: Option<&Value>,
    end: Option<&Value>,
) -> Result<Option<(&'a str, usize)>, Stop> {
    let (start, end) = (optional_int(name, "start", start)?, optional_int(name, "end", end)?);
    if start.is_none() && end.is_none() {
        return Ok(Some((text, 0)));
    }
    let length = characters(text);
    let clamp = |at: i64| {
        let at = if at < 0 { at.saturating_add(length as i64).max(0) } else { at };
        usize::try_from(at).unwrap_or(usize::MAX)
    };
    let from = start.map_or(0, clamp);
    let to = end.map_or(length, clamp).min(length);
    if from > to {
        return Ok(None);
    }
    Ok(Some((&text[byte_offset(text, from)..byte_offset(text, to)], from)))
}

fn search(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    name: &str,
    find: impl Fn(&str, &str) -> Option<usize>,
) -> Result<Option<usize>, Stop> {
    args.only(name, true, 1, 3)?;
    let sub = text(name, "sub", &args.pos[1])?;
    let whole = this(args)?;
    ctx.steps(whole.len() / 16)?;
    let Some((part, before)) = window(name, whole, args.pos.get(2), args.pos.get(3))? else { return Ok(None) };
    Ok(find(part, sub).map(|offset| before + characters(&part[..offset])))
}

fn position(found: Option<usize>) -> Value {
    Value::Int(found.map_or(-1, |at| at as i64))
}

fn must(found: Option<usize>) -> Result<Value, Stop> {
    match found {
        Some(at) => Ok(Value::Int(at as i64)),
        None => Err(Stop::fail(Kind::Value, "substring not found")),
    }
}

fn find(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    search(ctx, args, "find", |text, sub| text.find(sub)).map(position)
}

fn rfind(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    search(ctx, args, "rfind", |text, sub| text.rfind(sub)).map(position)
}

fn index(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    must(search(ctx, args, "index", |text, sub| text.find(sub))?)
}

fn rindex(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    must(search(ctx, args, "rindex", |text, sub| text.rfind(sub))?)
}

fn count(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    args.only("count", true, 1, 3)?;
    let sub = text("count", "sub", &args.pos[1])?;
    let whole = this(args)?;
    ctx.steps(whole.len() / 16)?;
    let count = match window("count", whole, args.pos.get(2), args.pos.get(3))? {
        Some((part, _)) => part.matches(sub).count(),
        None => 0,
    };
    Ok(Value::Int(count as i64))
}

/// `startswith` and `endswith`: one affix or a tuple of them, within optional bounds.
fn has_affix(ctx: &mut Ctx<'_>, args: Args<'_>, name: &str, has: impl Fn(&str, &str) -> bool) -> Result<Value, Stop> {
    args.only(name, true, 1, 3)?;
    if let [Value::Str(whole), Value::Str(affix)] = args.pos {
        return Ok(Value::Bool(has(whole, affix)));
    }
    let Some((part, _)) = window(name, this(args)?, args.pos.get(2), args.pos.get(3))? else {
        return Ok(Value::Bool(false));
    };
    let affixes = match &args.pos[1] {
        Value::Str(affix) => return Ok(Value::Bool(has(part, affix))),
        affixes if is_tuple(affixes) => iterate(affixes)?,
        other => {
            return Err(Stop::fail(
                Kind::Type,
                format!("{name}() needs a string or a tuple of strings, got {}", type_name(other)),
            ));
        }
    };
    for affix in affixes {
        ctx.steps(1)?;
        if has(part, text(name, "element", &affix.decide()?)?) {
            return Ok(Value::Bool(true));
        }
    }
    Ok(Value::Bool(false))
}

fn startswith(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    has_affix(ctx, args, "startswith", |text, affix| text.starts_with(affix))
}

fn endswith(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    has_affix(ctx, args, "endswith", |text, affix| text.ends_with(affix))
}

fn removeprefix(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    args.only("removeprefix", true, 1, 1)?;
    match this(args)?.strip_prefix(text("removeprefix", "prefix", &args.pos[1])?) {
        Some(rest) => ctx.str(rest),
        None => Ok(args.pos[0].clone()),
    }
}

fn removesuffix(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    args.only("removesuffix", true, 1, 1)?;
    match this(args)?.strip_suffix(text("removesuffix", "suffix", &args.pos[1])?) {
        Some(rest) => ctx.str(rest),
        None => Ok(args.pos[0].clone()),
    }
}

/// The characters as strings.
fn elems(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    args.only("elems", true, 0, 0)?;
    let text = this(args)?;
    ctx.steps(text.len())?;
    ctx.memory(text.len() * 40)?;
    let mut buffer = [0; 4];
    ctx.list(text.chars().map(|c| Value::str(c.encode_utf8(&mut buffer))).collect())
}

/// The characters as numbers.
fn codepoint_ords(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    args.only("codepoint_ords", true, 0, 0)?;
    let text = this(args)?;
    ctx.steps(text.len())?;
    ctx.memory(text.len() * size_of::<Value>())?;
    ctx.list(text.chars().map(|c| Value::Int(i64::from(u32::from(c)))).collect())
}

/// Asks something of every character; false for "".
fn all(ctx: &mut Ctx<'_>, args: Args<'_>, name: &str, is: impl Fn(char) -> bool) -> Result<Value, Stop> {
    args.only(name, true, 0, 0)?;
    let text = this(args)?;
    ctx.steps(text.len() / 8)?;
    Ok(Value::Bool(!text.is_empty() && text.chars().all(is)))
}

fn isalnum(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    all(ctx, args, "isalnum", char::is_alphanumeric)
}

fn isalpha(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    all(ctx, args, "isalpha", char::is_alphabetic)
}

fn isdigit(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    all(ctx, args, "isdigit", char::is_numeric)
}

fn isspace(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    all(ctx, args, "isspace", char::is_whitespace)
}

/// At least one letter of the case, none of the other.
fn cased(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    name: &str,
    is: impl Fn(char) -> bool,
    is_other: impl Fn(char) -> bool,
) -> Result<Value, Stop> {
    args.only(name, true, 0, 0)?;
    let text = this(args)?;
    ctx.steps(text.len() / 8)?;
    Ok(Value::Bool(text.chars().any(is) && !text.chars().any(is_other)))
}

fn islower(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    cased(ctx, args, "islower", char::is_lowercase, char::is_uppercase)
}

fn isupper(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    cased(ctx, args, "isupper", char::is_uppercase, char::is_lowercase)
}

/// Words begin with a capital and have no other; at least one word.
fn istitle(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    args.only("istitle", true, 0, 0)?;
    let text = this(args)?;
    ctx.steps(text.len() / 8)?;
    let mut inside = false;
    let mut words = false;
    for c in text.chars() {
        let wrong = if inside { c.is_uppercase() } else { c.is_lowercase() };
        if wrong {
            return Ok(Value::Bool(false));
        }
        inside = c.is_alphabetic();
        words |= inside;
    }
    Ok(Value::Bool(words))
}
