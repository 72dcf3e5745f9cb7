//! Methods of strings that make other strings.

use arcstr::ArcStr;
use memchr::memmem;

use crate::error::{Kind, Stop};
use crate::host::Args;
use crate::native::{Ctx, NativeFn, filled};
use crate::value::Value;
use crate::value::view::type_name;

use super::args::{int, iterate, optional_text, require_elements, text, this};

pub(super) static METHODS: [NativeFn; 12] = [
    NativeFn::new("capitalize", capitalize),
    NativeFn::new("join", join),
    NativeFn::new("lower", lower),
    NativeFn::new("lstrip", lstrip),
    NativeFn::new("partition", partition),
    NativeFn::new("replace", replace),
    NativeFn::new("rpartition", rpartition),
    NativeFn::new("rstrip", rstrip),
    NativeFn::new("strip", strip),
    NativeFn::new("title", title),
    NativeFn::new("upper", upper),
    NativeFn::new("format", crate::builtins::format::format).awaits(crate::native::Awaits::These(1)),
];

/// Changes upper and lower case. Texts of ASCII, which are most, are changed in place in the new text.
fn recased(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    name: &str,
    ascii: impl FnOnce(&mut [u8]),
    other: impl FnOnce(&str) -> String,
) -> Result<Value, Stop> {
    args.only(name, true, 0, 0)?;
    let text = this(args)?;
    ctx.steps(text.len() / 8)?;
    if text.is_ascii() {
        ctx.memory(24 + text.len())?;
        ctx.steps(text.len() / 16)?;
        return Ok(filled(text.len(), |bytes| {
            bytes.copy_from_slice(text.as_bytes());
            ascii(bytes);
        }));
    }
    // At most three times as long as a text that is there: charged after it is made.
    ctx.str(&other(text))
}

fn lower(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    recased(ctx, args, "lower", <[u8]>::make_ascii_lowercase, str::to_lowercase)
}

fn upper(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    recased(ctx, args, "upper", <[u8]>::make_ascii_uppercase, str::to_uppercase)
}

fn capitalize(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    let ascii = |bytes: &mut [u8]| {
        bytes.make_ascii_lowercase();
        if let Some(first) = bytes.first_mut() {
            first.make_ascii_uppercase();
        }
    };
    recased(ctx, args, "capitalize", ascii, |text| {
        let mut rest = text.chars();
        rest.next()
            .map_or_else(String::new, |first| first.to_uppercase().chain(rest.flat_map(char::to_lowercase)).collect())
    })
}

fn title(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    let ascii = |bytes: &mut [u8]| {
        let mut inside = false;
        for byte in bytes {
            *byte = if inside { byte.to_ascii_lowercase() } else { byte.to_ascii_uppercase() };
            inside = byte.is_ascii_alphabetic();
        }
    };
    recased(ctx, args, "title", ascii, |text| {
        let mut out = String::with_capacity(text.len());
        let mut inside = false;
        for c in text.chars() {
            if inside {
                out.extend(c.to_lowercase());
            } else {
                out.extend(c.to_uppercase());
            }
            inside = c.is_alphabetic();
        }
        out
    })
}

/// Strips white space, or the characters of an argument.
fn stripped(ctx: &mut Ctx<'_>, args: Args<'_>, name: &str, left: bool, right: bool) -> Result<Value, Stop> {
    args.only(name, true, 0, 1)?;
    let whole = this(args)?;
    let set = optional_text(name, "chars", args.pos.get(1))?;
    let strip = |c: char| match set {
        Some(set) => set.contains(c),
        None => c.is_whitespace(),
    };
    ctx.steps(set.map_or(0, |set| set.len().saturating_mul(whole.len()) / 64))?;
    let mut rest = whole;
    if left {
        rest = rest.trim_start_matches(strip);
    }
    if right {
        rest = rest.trim_end_matches(strip);
    }
    if rest.len() == whole.len() { Ok(args.pos[0].clone()) } else { ctx.str(rest) }
}

fn strip(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    stripped(ctx, args, "strip", true, true)
}

fn lstrip(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    stripped(ctx, args, "lstrip", true, false)
}

fn rstrip(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    stripped(ctx, args, "rstrip", false, true)
}

fn replace(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    let [old, new, count] = args.bind("replace", true, ["old", "new", "count"], 2)?;
    let whole = this(args)?;
    let old = required_text("replace", "old", old)?;
    let new = required_text("replace", "new", new)?;
    let most = match count {
        None => usize::MAX,
        // A negative count means all.
        Some(count) => usize::try_from(int("replace", "count", count)?).unwrap_or(usize::MAX),
    };
    ctx.steps(whole.len() / 16)?;
    // Between any two characters, not bytes.
    let found = if old.is_empty() {
        whole.matches(old).take(most).count()
    } else {
        memmem::find_iter(whole.as_bytes(), old).take(most).count()
    };
    if found == 0 {
        return Ok(args.pos[0].clone());
    }
    ctx.steps(found)?;
    // Charged before it is made: the result may be far larger than all three.
    ctx.memory(found.saturating_mul(new.len().saturating_sub(old.len())).saturating_add(whole.len() + 24))?;
    if old.is_empty() {
        return Ok(Value::str(&whole.replacen(old, new, found)));
    }
    let length = whole.len() - found * old.len() + found * new.len();
    Ok(filled(length, |out| {
        let (mut from, mut to) = (0, 0);
        let mut put = |piece: &[u8]| {
            out[to..to + piece.len()].copy_from_slice(piece);
            to += piece.len();
        };
        for at in memmem::find_iter(whole.as_bytes(), old).take(found) {
            put(&whole.as_bytes()[from..at]);
            put(new.as_bytes());
            from = at + old.len();
        }
        put(&whole.as_bytes()[from..]);
    }))
}

fn required_text<'a>(name: &str, param: &str, value: Option<&'a Value>) -> Result<&'a str, Stop> {
    text(name, param, value.unwrap_or(&Value::None))
}

fn join(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    args.only("join", true, 1, 1)?;
    let separator = this(args)?;
    require_elements(&args.pos[1])?;
    let mut out = ctx.scratch();
    for (at, item) in iterate(&args.pos[1])?.enumerate() {
        ctx.steps(1)?;
        let item = match item {
            Value::Str(text) => Value::Str(text),
            other => other.decide()?,
        };
        let Some(text) = item.as_str() else {
            return Err(Stop::fail(Kind::Type, format!("join() needs strings, element {at} is {}", type_name(&item))));
        };
        ctx.memory(text.len() + separator.len())?;
        ctx.value(out.len() + text.len() + separator.len())?;
        if at > 0 {
            out.push_str(separator);
        }
        out.push_str(text);
    }
    ctx.steps(out.len() / 16)?;
    let joined = ArcStr::from(out.as_str());
    ctx.put_scratch(out);
    Ok(Value::Str(joined))
}

fn three(ctx: &mut Ctx<'_>, before: &str, separator: &str, after: &str) -> Result<Value, Stop> {
    let parts = vec![ctx.str(before)?, ctx.str(separator)?, ctx.str(after)?];
    ctx.memory(96)?;
    Ok(Value::tuple(parts))
}

fn separator(args: Args<'_>, name: &str) -> Result<String, Stop> {
    args.only(name, true, 1, 1)?;
    let separator = text(name, "sep", &args.pos[1])?;
    if separator.is_empty() { Err(empty_separator()) } else { Ok(separator.to_owned()) }
}

#[cold]
pub(super) fn empty_separator() -> Stop {
    Stop::fail(Kind::Value, "empty separator")
}

fn partition(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    let separator = separator(args, "partition")?;
    let text = this(args)?;
    match text.split_once(&separator) {
        Some((before, after)) => three(ctx, before, &separator, after),
        None => three(ctx, text, "", ""),
    }
}

fn rpartition(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    let separator = separator(args, "rpartition")?;
    let text = this(args)?;
    match text.rsplit_once(&separator) {
        Some((before, after)) => three(ctx, before, &separator, after),
        None => three(ctx, "", "", text),
    }
}
