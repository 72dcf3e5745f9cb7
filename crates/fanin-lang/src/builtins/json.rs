//! The module `json`.

mod encode;

use std::sync::Arc;

use arcstr::ArcStr;
use bytes::Bytes;
use fanin_json::{Doc, Event, JsonError, PullParser};

use self::encode::encoded;
use crate::error::{Kind, Stop};
use crate::host::Args;
use crate::methods::args::text;
use crate::native::{Awaits, Ctx, ENTRY, NativeFn};
use crate::value::drop::Row;
use crate::value::{Dict, Frozen, FrozenValue, Map, Value, compare, number};

// `encode` waits for everything inside its argument as `Awaits::Deep` says, but must see the argument
// before it is decided on: a number of an answer keeps its digits only as long as it is text.
static FUNCTIONS: [NativeFn; 4] = [
    NativeFn::new("json.decode", decode).awaits(Awaits::These(1)),
    NativeFn::new("json.encode", encode).awaits(Awaits::These(0)),
    NativeFn::new("json.encode_indent", encode_indent).awaits(Awaits::These(0)),
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

fn parse(ctx: &mut Ctx<'_>, source: &str) -> Result<Result<Doc, JsonError>, Stop> {
    ctx.steps(source.len() / 16)?;
    ctx.memory(source.len())?;
    Ok(Doc::parse(Bytes::copy_from_slice(source.as_bytes()), compare::MAX_NESTING))
}

/// New dicts and lists, which can be changed.
fn decode(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    let mut decode = ctx.resume::<Decode>().unwrap_or_else(|| Box::new(Decode::new()));
    let [source, default] = args.bind("json.decode", false, ["x", "default"], 1)?;
    // Given by name it is not decided on yet.
    let source = source.unwrap_or(&Value::None).decide()?;
    match (decode.run(ctx, text("json.decode", "x", &source)?)?, default) {
        (Ok(Some(value)), _) => Ok(value),
        (Ok(None), _) => Err(ctx.suspend(decode)),
        (Err(_), Some(default)) => Ok(default.clone()),
        (Err(error), None) => Err(Stop::fail(Kind::Value, format!("json.decode(): {error}"))),
    }
}

/// Values being made of a document. It works in pieces: a long one takes far longer than a flow may hold
/// its worker.
struct Decode {
    steps: PullParser,
    /// Containers that are not complete, outermost first. As many as the document is deep at most.
    open: Vec<Open>,
    /// The outermost value, once it is complete.
    made: Option<Value>,
    keys: Keys,
}

enum Open {
    List(Row),
    Dict(Map, ArcStr),
}

impl Decode {
    fn new() -> Self {
        Self { steps: PullParser::new(compare::MAX_NESTING), open: Vec::new(), made: None, keys: Keys::default() }
    }

    /// Goes on until it is done, or the slice of steps is used up.
    fn run(&mut self, ctx: &mut Ctx<'_>, text: &str) -> Result<Result<Option<Value>, JsonError>, Stop> {
        while !ctx.is_spent() {
            let read = self.steps.read();
            let step = match self.steps.next(text) {
                Ok(Some(step)) => step,
                Ok(None) => return Ok(Ok(self.made.take())),
                Err(error) => return Ok(Err(error)),
            };
            ctx.steps(1 + (self.steps.read() - read) / 16)?;
            let value = match step {
                Event::Array => {
                    ctx.memory(64)?;
                    self.open.push(Open::List(Row::default()));
                    continue;
                }
                Event::Object => {
                    ctx.memory(64)?;
                    self.open.push(Open::Dict(Map::new(), ArcStr::new()));
                    continue;
                }
                Event::Key(name) => {
                    let key = self.keys.get(ctx, &name)?;
                    if let Some(Open::Dict(_, next)) = self.open.last_mut() {
                        *next = key;
                    }
                    continue;
                }
                Event::Close => match self.open.pop() {
                    Some(Open::List(mut items)) => Value::list(std::mem::take(&mut *items)),
                    Some(Open::Dict(map, _)) => Value::Dict(std::rc::Rc::new(Dict::new(map))),
                    None => continue,
                },
                Event::String(text) => ctx.str(&text)?,
                Event::Number(digits) => number::read(digits)?,
                Event::Bool(value) => Value::Bool(value),
                Event::Null => Value::None,
            };
            // What is complete goes into the container around it.
            match self.open.last_mut() {
                Some(Open::List(items)) => {
                    ctx.memory(size_of::<Value>())?;
                    ctx.value(items.len() * size_of::<Value>())?;
                    items.push(value);
                }
                Some(Open::Dict(map, key)) => {
                    ctx.memory(ENTRY)?;
                    ctx.value(map.len() * ENTRY)?;
                    map.insert(Value::Str(std::mem::take(key)), value)?;
                }
                None => self.made = Some(value),
            }
        }
        Ok(Ok(None))
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
