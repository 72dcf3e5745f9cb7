//! Methods of strings that take them apart.
//!
//! They work in pieces: a long text has tens of thousands of parts, each of which is made.

use std::ops::Range;

use memchr::memmem;

use crate::error::{Kind, Stop};
use crate::host::Args;
use crate::native::{Ctx, NativeFn};
use crate::value::Value;
use crate::value::drop::Row;
use crate::value::view::type_name;

use super::args::{int, optional_text, this};
use super::string_transform::empty_separator;

pub(super) static METHODS: [NativeFn; 3] =
    [NativeFn::new("rsplit", rsplit), NativeFn::new("split", split), NativeFn::new("splitlines", splitlines)];

/// Parts of a text, as far as they are made.
#[derive(Default)]
struct Parts {
    made: Row,
    /// Where the rest begins; from the right: where it ends. `None` when nothing is left.
    at: Option<usize>,
}

/// A part, and where the rest begins, or from the right ends.
type Next = Option<(Range<usize>, Option<usize>)>;

/// The parts of a text as a list. `next` finds one, given where the rest begins and how many there are already.
fn parts(ctx: &mut Ctx<'_>, text: &str, from_right: bool, next: impl Fn(usize, usize) -> Next) -> Result<Value, Stop> {
    let mut parts = match ctx.resume::<Parts>() {
        Some(parts) => parts,
        None => {
            ctx.steps(text.len() / 16)?;
            Box::new(Parts { made: Row::default(), at: Some(if from_right { text.len() } else { 0 }) })
        }
    };
    while let Some(at) = parts.at {
        let Some((part, then)) = next(at, parts.made.len()) else { break };
        ctx.steps(1)?;
        ctx.value(parts.made.len() * size_of::<Value>())?;
        parts.made.push(ctx.str(&text[part])?);
        parts.at = then;
        if ctx.is_spent() && then.is_some() {
            return Err(ctx.suspend(parts));
        }
    }
    if from_right {
        parts.made.reverse();
    }
    ctx.list(std::mem::take(&mut *parts.made))
}

/// Separator (`None` for white space) and number of splits, unbounded if negative.
fn split_args<'a>(args: Args<'a>, name: &str) -> Result<(Option<&'a str>, usize), Stop> {
    let [separator, most] = args.bind(name, true, ["sep", "maxsplit"], 0)?;
    let separator = optional_text(name, "sep", separator)?;
    if separator.is_some_and(str::is_empty) {
        return Err(empty_separator());
    }
    let most = match most {
        None => usize::MAX,
        Some(most) => usize::try_from(int(name, "maxsplit", most)?).unwrap_or(usize::MAX),
    };
    Ok((separator, most))
}

/// The next part at white space. White space at the ends is dropped, but what is left when the splits
/// are used up keeps its own.
fn next_word(text: &str, at: usize, made: usize, most: usize) -> Next {
    let start = text.len() - text[at..].trim_start().len();
    let rest = &text[start..];
    if rest.is_empty() {
        return None;
    }
    match rest.find(char::is_whitespace).filter(|_| made < most) {
        Some(end) => Some((start..start + end, Some(start + end))),
        None => Some((start..text.len(), None)),
    }
}

/// The same from the right.
fn next_word_back(text: &str, at: usize, made: usize, most: usize) -> Next {
    let rest = text[..at].trim_end();
    if rest.is_empty() {
        return None;
    }
    let space = rest.char_indices().rev().find(|(_, c)| c.is_whitespace()).filter(|_| made < most);
    match space {
        Some((space, c)) => Some((space + c.len_utf8()..rest.len(), Some(space))),
        None => Some((0..rest.len(), None)),
    }
}

fn split(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    let (separator, most) = split_args(args, "split")?;
    let text = this(args)?;
    let Some(separator) = separator else {
        return parts(ctx, text, false, |at, made| next_word(text, at, made, most));
    };
    let finder = memmem::Finder::new(separator);
    parts(ctx, text, false, |at, made| {
        let found = if made < most { finder.find(&text.as_bytes()[at..]) } else { None };
        Some(match found {
            Some(offset) => (at..at + offset, Some(at + offset + separator.len())),
            None => (at..text.len(), None),
        })
    })
}

fn rsplit(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    let (separator, most) = split_args(args, "rsplit")?;
    let text = this(args)?;
    let Some(separator) = separator else {
        return parts(ctx, text, true, |at, made| next_word_back(text, at, made, most));
    };
    let finder = memmem::FinderRev::new(separator);
    parts(ctx, text, true, |at, made| {
        let found = if made < most { finder.rfind(&text.as_bytes()[..at]) } else { None };
        Some(match found {
            Some(start) => (start + separator.len()..at, Some(start)),
            None => (0..at, None),
        })
    })
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
    let text = this(args)?;
    parts(ctx, text, false, |at, _| {
        let rest = &text[at..];
        if rest.is_empty() {
            return None;
        }
        let end = memchr::memchr2(b'\n', b'\r', rest.as_bytes()).unwrap_or(rest.len());
        let next = if rest[end..].starts_with("\r\n") { end + 2 } else { (end + 1).min(rest.len()) };
        Some((at..at + if keep { next } else { end }, Some(at + next)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str, most: usize) -> Vec<&str> {
        let (mut all, mut at) = (Vec::new(), Some(0));
        while let Some((part, then)) = at.and_then(|at| next_word(text, at, all.len(), most)) {
            all.push(&text[part]);
            at = then;
        }
        all
    }

    fn words_back(text: &str, most: usize) -> Vec<&str> {
        let (mut all, mut at) = (Vec::new(), Some(text.len()));
        while let Some((part, then)) = at.and_then(|at| next_word_back(text, at, all.len(), most)) {
            all.insert(0, &text[part]);
            at = then;
        }
        all
    }

    #[test]
    fn white_space_is_split_from_both_sides() {
        assert_eq!(words("  one two  three ", usize::MAX), ["one", "two", "three"]);
        assert_eq!(words("  one two  three ", 1), ["one", "two  three "]);
        assert_eq!(words(" one ", 0), ["one "]);
        assert_eq!(words_back("  one two  three ", usize::MAX), ["one", "two", "three"]);
        assert_eq!(words_back("  one two  three ", 1), ["  one two", "three"]);
        assert_eq!(words_back("é\u{2003}ü", 1), ["é", "ü"]);
        assert!(words(" \t", 3).is_empty() && words_back(" \t", 3).is_empty());
    }
}
