//! Methods of strings that make other strings.

use std::borrow::Cow;

use crate::error::{Kind, Stop};
use crate::host::Args;
use crate::native::{Ctx, NativeFn};
use crate::value::Value;
use crate::value::view::type_name;

use super::args::{each, int, optional_text, text, there, this};

pub(super) static METHODS: [NativeFn; 15] = [
    NativeFn::new("capitalize", capitalize),
    NativeFn::new("join", join),
    NativeFn::new("lower", lower),
    NativeFn::new("lstrip", lstrip),
    NativeFn::new("partition", partition),
    NativeFn::new("replace", replace),
    NativeFn::new("rpartition", rpartition),
    NativeFn::new("rsplit", rsplit),
    NativeFn::new("rstrip", rstrip),
    NativeFn::new("split", split),
    NativeFn::new("splitlines", splitlines),
    NativeFn::new("strip", strip),
    NativeFn::new("title", title),
    NativeFn::new("upper", upper),
    NativeFn::new("format", crate::builtins::format::format).waits(crate::native::Waits::These(1)),
];

fn recased(ctx: &mut Ctx<'_>, args: Args<'_>, name: &str, make: impl Fn(&str) -> String) -> Result<Value, Stop> {
    args.only(name, true, 0, 0)?;
    let text = this(args)?;
    ctx.steps(text.len() / 8)?;
    // At most three times as long as a text that is there: charged after it is made.
    ctx.str(&make(text))
}

fn lower(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    recased(ctx, args, "lower", |text| if text.is_ascii() { text.to_ascii_lowercase() } else { text.to_lowercase() })
}

fn upper(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    recased(ctx, args, "upper", |text| if text.is_ascii() { text.to_ascii_uppercase() } else { text.to_uppercase() })
}

fn capitalize(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    recased(ctx, args, "capitalize", |text| {
        let mut rest = text.chars();
        rest.next()
            .map_or_else(String::new, |first| first.to_uppercase().chain(rest.flat_map(char::to_lowercase)).collect())
    })
}

fn title(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    recased(ctx, args, "title", |text| {
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
        // A negative count stands for all.
        Some(count) => usize::try_from(int("replace", "count", count)?).unwrap_or(usize::MAX),
    };
    ctx.steps(whole.len() / 16)?;
    let found = whole.matches(old).take(most).count();
    if found == 0 {
        return Ok(args.pos[0].clone());
    }
    ctx.steps(found)?;
    // Charged before it is made: the result may be far larger than all three.
    ctx.memory(found.saturating_mul(new.len().saturating_sub(old.len())).saturating_add(whole.len() + 24))?;
    Ok(Value::str(&whole.replacen(old, new, found)))
}

fn required_text<'a>(name: &str, param: &str, value: Option<&'a Value>) -> Result<&'a str, Stop> {
    text(name, param, value.unwrap_or(&Value::None))
}

fn join(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    args.only("join", true, 1, 1)?;
    let separator = this(args)?;
    there(&args.pos[1])?;
    let mut out = ctx.scratch();
    for (at, item) in each(&args.pos[1])?.enumerate() {
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
    let joined = Value::str(&out);
    ctx.put_scratch(out);
    Ok(joined)
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
fn empty_separator() -> Stop {
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

fn strings<'a>(ctx: &mut Ctx<'_>, parts: impl Iterator<Item = &'a str>, most: usize) -> Result<Vec<Value>, Stop> {
    let mut list = Vec::new();
    for part in parts.take(most) {
        ctx.steps(1)?;
        ctx.value(list.len() * size_of::<Value>())?;
        list.push(ctx.str(part)?);
    }
    Ok(list)
}

/// At most `splits` splits from the left at white space. White space at the ends is dropped, but what
/// is left when the splits are used up keeps its own.
fn split_space(text: &str, splits: usize) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        if parts.len() == splits {
            parts.push(rest);
            break;
        }
        let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
        parts.push(&rest[..end]);
        rest = rest[end..].trim_start();
    }
    parts
}

/// The same from the right; parts come in the order of the text.
fn rsplit_space(text: &str, splits: usize) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = text.trim_end();
    while !rest.is_empty() {
        if parts.len() == splits {
            parts.push(rest);
            break;
        }
        let start = rest.char_indices().rev().find(|(_, c)| c.is_whitespace()).map_or(0, |(at, c)| at + c.len_utf8());
        parts.push(&rest[start..]);
        rest = rest[..start].trim_end();
    }
    parts.reverse();
    parts
}

/// Separator (`None` for white space) and number of splits, unbounded if negative.
fn split_args<'a>(args: Args<'a>, name: &str) -> Result<(Option<Cow<'a, str>>, usize), Stop> {
    let [separator, most] = args.bind(name, true, ["sep", "maxsplit"], 0)?;
    let separator = optional_text(name, "sep", separator)?;
    if separator.is_some_and(str::is_empty) {
        return Err(empty_separator());
    }
    let most = match most {
        None => usize::MAX,
        Some(most) => usize::try_from(int(name, "maxsplit", most)?).unwrap_or(usize::MAX),
    };
    Ok((separator.map(Cow::Borrowed), most))
}

fn split(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    let (separator, most) = split_args(args, "split")?;
    let text = this(args)?;
    ctx.steps(text.len() / 16)?;
    let parts = match separator {
        Some(separator) => strings(ctx, text.splitn(most.saturating_add(1), &*separator), usize::MAX)?,
        None => {
            ctx.memory(text.len() / 2 * size_of::<&str>())?;
            strings(ctx, split_space(text, most).into_iter(), usize::MAX)?
        }
    };
    ctx.list(parts)
}

fn rsplit(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    let (separator, most) = split_args(args, "rsplit")?;
    let text = this(args)?;
    ctx.steps(text.len() / 16)?;
    let parts = match separator {
        Some(separator) => {
            let mut parts = strings(ctx, text.rsplitn(most.saturating_add(1), &*separator), usize::MAX)?;
            parts.reverse();
            parts
        }
        None => {
            ctx.memory(text.len() / 2 * size_of::<&str>())?;
            strings(ctx, rsplit_space(text, most).into_iter(), usize::MAX)?
        }
    };
    ctx.list(parts)
}

/// Lines end with LF, CR or CR LF; the last need not end.
fn splitlines(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    let [keep] = args.bind("splitlines", true, ["keepends"], 0)?;
    let keep = match keep {
        None => false,
        Some(Value::Bool(keep)) => *keep,
        Some(other) => {
            return Err(Stop::fail(
                Kind::Type,
                format!("splitlines() needs a bool as keepends, got {}", type_name(other)),
            ));
        }
    };
    let mut rest = this(args)?;
    ctx.steps(rest.len() / 16)?;
    let mut lines = Vec::new();
    while !rest.is_empty() {
        let end = rest.find(['\n', '\r']).unwrap_or(rest.len());
        let next = if rest[end..].starts_with("\r\n") { end + 2 } else { (end + 1).min(rest.len()) };
        ctx.steps(1)?;
        ctx.value(lines.len() * size_of::<Value>())?;
        lines.push(ctx.str(&rest[..if keep { next } else { end }])?);
        rest = &rest[next..];
    }
    ctx.list(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn white_space_is_split_from_both_sides() {
        assert_eq!(split_space("  one two  three ", usize::MAX), ["one", "two", "three"]);
        assert_eq!(split_space("  one two  three ", 1), ["one", "two  three "]);
        assert_eq!(split_space(" one ", 0), ["one "]);
        assert_eq!(rsplit_space("  one two  three ", usize::MAX), ["one", "two", "three"]);
        assert_eq!(rsplit_space("  one two  three ", 1), ["  one two", "three"]);
        assert_eq!(rsplit_space("é\u{2003}ü", 1), ["é", "ü"]);
        assert!(split_space(" \t", 3).is_empty() && rsplit_space(" \t", 3).is_empty());
    }
}
