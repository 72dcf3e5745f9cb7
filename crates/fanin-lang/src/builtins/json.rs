//! The module `json`.

mod encode;

use std::sync::Arc;

use arcstr::ArcStr;
use bytes::Bytes;
use fanin_json::{Cursor, Doc};

use self::encode::encoded;
use crate::error::{Kind, Stop};
use crate::host::Args;
use crate::methods::args::text;
use crate::native::{Ctx, ENTRY, NativeFn, Waits};
use crate::value::{Dict, Frozen, FrozenValue, List, Map, Value, compare, number};

// `encode` waits for everything inside its argument as `Waits::Deep` says, but must see the argument
// before it is decided on: a number of an answer keeps its digits only as long as it is text.
static FUNCTIONS: [NativeFn; 4] = [
    NativeFn::new("json.decode", decode).waits(Waits::These(1)),
    NativeFn::new("json.encode", encode).waits(Waits::These(0)),
    NativeFn::new("json.encode_indent", encode_indent).waits(Waits::These(0)),
    NativeFn::new("json.indent", indent),
];

pub(super) fn module() -> FrozenValue {
    let fields = FUNCTIONS
        .iter()
        .map(|native| (ArcStr::from(native.name.trim_start_matches("json.")), FrozenValue::Native(native)));
    FrozenValue::Frozen(Arc::new(Frozen::Struct(fields.collect())))
}

/// Compact; members in the order of the dict. What comes from an answer is spliced as it came.
fn encode(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    args.only("json.encode", false, 1, 1)?;
    let text = encoded(ctx, &args.pos[0])?;
    ctx.str(&String::from_utf8_lossy(&text))
}

fn parse(ctx: &mut Ctx<'_>, source: &str) -> Result<Result<Doc, fanin_json::JsonError>, Stop> {
    ctx.steps(source.len() / 16)?;
    ctx.memory(source.len())?;
    Ok(Doc::parse(Bytes::copy_from_slice(source.as_bytes()), compare::MAX_NESTING))
}

/// New dicts and lists, which can be changed.
fn decode(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    if let Some(decode) = ctx.resume::<Decode>() {
        return decode_on(ctx, decode);
    }
    let [source, default] = args.bind("json.decode", false, ["x", "default"], 1)?;
    // Given by name it is not decided on yet.
    let source = source.unwrap_or(&Value::None).decide()?;
    match (parse(ctx, text("json.decode", "x", &source)?)?, default) {
        (Ok(doc), _) => {
            let start = Doc::ROOT;
            decode_on(ctx, Box::new(Decode { doc, open: Vec::new(), next: Some(start), keys: Keys::default() }))
        }
        (Err(_), Some(default)) => Ok(default.clone()),
        (Err(error), None) => Err(Stop::fail(Kind::Value, format!("json.decode(): {error}"))),
    }
}

fn decode_on(ctx: &mut Ctx<'_>, mut decode: Box<Decode>) -> Result<Value, Stop> {
    match decode.run(ctx)? {
        Some(value) => Ok(value),
        None => Err(ctx.suspend(decode)),
    }
}

/// Values being made of a document. It works in pieces: a long one takes far longer than a flow may hold
/// its worker.
struct Decode {
    doc: Doc,
    /// Containers that are not complete, outermost first. As many as the document is deep at most.
    open: Vec<Open>,
    /// The value to make next.
    next: Option<u32>,
    keys: Keys,
}

enum Open {
    List(Vec<Value>, Cursor),
    Dict(Map, ArcStr, Cursor),
}

impl Decode {
    /// Goes on until it is done, or the slice of steps is used up.
    fn run(&mut self, ctx: &mut Ctx<'_>) -> Result<Option<Value>, Stop> {
        loop {
            if ctx.is_spent() {
                return Ok(None);
            }
            let mut made = match self.next.take() {
                Some(at) => self.begin(ctx, at)?,
                None => None,
            };
            // A value that is complete goes into the container around it, which may be complete then.
            loop {
                let Some(open) = self.open.last_mut() else { return Ok(made) };
                if let Some(value) = made.take() {
                    match open {
                        Open::List(items, _) => items.push(value),
                        Open::Dict(map, key, _) => drop(map.insert(Value::Str(std::mem::take(key)), value)?),
                    }
                }
                let next = match open {
                    Open::List(_, cursor) => cursor.next_element(&self.doc),
                    Open::Dict(_, key, cursor) => match cursor.next_entry(&self.doc) {
                        Some((name, at)) => {
                            *key = self.keys.get(ctx, &self.doc.node(name).as_str().unwrap_or_default())?;
                            Some(at)
                        }
                        None => None,
                    },
                };
                if next.is_some() {
                    self.next = next;
                    break;
                }
                made = match self.open.pop() {
                    Some(Open::List(items, _)) => Some(Value::List(std::rc::Rc::new(List::new(items)))),
                    Some(Open::Dict(map, ..)) => Some(Value::Dict(std::rc::Rc::new(Dict::new(map)))),
                    None => None,
                };
            }
        }
    }

    /// Makes a scalar, or opens a container.
    fn begin(&mut self, ctx: &mut Ctx<'_>, at: u32) -> Result<Option<Value>, Stop> {
        let node = self.doc.node(at);
        ctx.steps(1)?;
        match node.kind() {
            fanin_json::Kind::Array => {
                let length = node.len().unwrap_or(0);
                ctx.memory(64 + length.saturating_mul(size_of::<Value>()))?;
                self.open.push(Open::List(Vec::with_capacity(length), node.cursor()));
                Ok(None)
            }
            fanin_json::Kind::Object => {
                let length = node.len().unwrap_or(0);
                ctx.memory(64 + length.saturating_mul(ENTRY))?;
                self.open.push(Open::Dict(Map::with_capacity(length), ArcStr::new(), node.cursor()));
                Ok(None)
            }
            fanin_json::Kind::String => ctx.str(&node.as_str().unwrap_or_default()).map(Some),
            // Everything else is a scalar.
            _ => {
                number::bounded(node)?;
                Ok(Some(number::scalar(node).unwrap_or_default()))
            }
        }
    }
}

/// Keys that came lately: those of a list of objects are mostly the same, and are shared.
#[derive(Default)]
struct Keys([ArcStr; 16]);

impl Keys {
    fn get(&mut self, ctx: &mut Ctx<'_>, text: &str) -> Result<ArcStr, Stop> {
        let bytes = text.as_bytes();
        let (first, last) = (bytes.first().copied().unwrap_or(0), bytes.last().copied().unwrap_or(0));
        let place = &mut self.0[(bytes.len() ^ usize::from(first) ^ usize::from(last) << 1) % 16];
        if place.as_str() != text {
            ctx.memory(24 + text.len())?;
            *place = ArcStr::from(text);
        }
        Ok(place.clone())
    }
}

fn indented(ctx: &mut Ctx<'_>, name: &str, doc: &Doc, layout: [Option<&Value>; 2]) -> Result<Value, Stop> {
    let [prefix, step] = layout;
    let (prefix, step) = (prefix.map(Value::decide).transpose()?, step.map(Value::decide).transpose()?);
    let prefix = prefix.as_ref().map_or(Ok(""), |prefix| text(name, "prefix", prefix))?;
    let step = step.as_ref().map_or(Ok("\t"), |step| text(name, "indent", step))?;
    // Counted before it is made: the lines of a small text may be deep and their prefix long.
    ctx.memory(fanin_json::indented_len(doc, prefix, step))?;
    ctx.str(&String::from_utf8_lossy(&fanin_json::indent(doc, prefix, step)))
}

fn indent(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    let [source, prefix, step] = args.bind("json.indent", false, ["s", "prefix", "indent"], 1)?;
    match parse(ctx, text("json.indent", "s", source.unwrap_or(&Value::None))?)? {
        Ok(doc) => indented(ctx, "json.indent", &doc, [prefix, step]),
        Err(error) => Err(Stop::fail(Kind::Value, format!("json.indent(): {error}"))),
    }
}

fn encode_indent(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    let [value, prefix, step] = args.bind("json.encode_indent", false, ["x", "prefix", "indent"], 1)?;
    let text = encoded(ctx, value.unwrap_or(&Value::None))?;
    match Doc::parse(Bytes::from(text), usize::MAX) {
        Ok(doc) => indented(ctx, "json.encode_indent", &doc, [prefix, step]),
        Err(error) => Err(Stop::fail(Kind::Value, format!("json.encode_indent(): {error}"))),
    }
}
