//! Writing a value as JSON. It works in pieces: a large one takes far longer than a flow may hold its worker.

use std::rc::Rc;

use fanin_json::Writer;

use crate::error::{Kind, Stop};
use crate::methods::args::wrong_type;
use crate::native::Ctx;
use crate::value::capture::{Readiness, readiness};
use crate::value::view::{self, Iter, type_name};
use crate::value::{Dict, Value, compare};

/// A value being written.
struct Encode {
    out: Vec<u8>,
    /// Bytes of it that are charged for.
    charged: usize,
    /// Containers that are not closed, outermost first; at most [`compare::MAX_NESTING`].
    open: Vec<Open>,
    /// The whole, before it is begun.
    root: Option<Value>,
}

enum Open {
    Array(Iter),
    Dict(Rc<Dict>, usize),
    /// Entries of what cannot be looked into in place.
    Object(std::vec::IntoIter<(Value, Value)>),
}

/// The JSON of a value. Everything inside must be there.
pub(super) fn encoded(ctx: &mut Ctx<'_>, value: &Value) -> Result<Vec<u8>, Stop> {
    let mut encode = match ctx.resume::<Encode>() {
        Some(encode) => encode,
        None => {
            match readiness(value) {
                Readiness::Ready | Readiness::Absent(_) => {}
                Readiness::Pending(pending) => return Err(Stop::Wait(pending)),
                Readiness::Failed(failure) => return Err(Stop::Fail(Box::new((*failure).clone()))),
                Readiness::TooDeep => return Err(compare::too_deep().into()),
            }
            Box::new(Encode { out: Vec::new(), charged: 0, open: Vec::new(), root: Some(value.clone()) })
        }
    };
    if encode.run(ctx)? { Ok(encode.out) } else { Err(ctx.suspend(encode)) }
}

impl Encode {
    /// Goes on until it is done, or the slice of steps is used up.
    fn run(&mut self, ctx: &mut Ctx<'_>) -> Result<bool, Stop> {
        let Self { out, charged, open, root } = self;
        let mut writer = Writer::continued(out);
        loop {
            let value = match open.last_mut() {
                None => match root.take() {
                    Some(value) => value,
                    None => return Ok(true),
                },
                Some(Open::Array(iter)) => match iter.next() {
                    Some(value) => {
                        ctx.steps(1)?;
                        value
                    }
                    None => {
                        writer.end_array();
                        open.pop();
                        continue;
                    }
                },
                Some(Open::Dict(dict, at)) => {
                    let map = dict.map();
                    match map.at(*at) {
                        Some((key, value)) => {
                            write_key(&mut writer, key)?;
                            *at += 1;
                            value.clone()
                        }
                        None => {
                            drop(map);
                            writer.end_object();
                            open.pop();
                            continue;
                        }
                    }
                }
                Some(Open::Object(entries)) => match entries.next() {
                    Some((key, value)) => {
                        write_key(&mut writer, &key)?;
                        value
                    }
                    None => {
                        writer.end_object();
                        open.pop();
                        continue;
                    }
                },
            };
            let written = writer.buffer().len();
            ctx.memory(written - *charged)?;
            ctx.steps(1 + (written - *charged) / 16)?;
            ctx.value(written)?;
            *charged = written;
            if let Some(container) = begin(&mut writer, value)? {
                if open.len() >= compare::MAX_NESTING {
                    return Err(compare::too_deep().into());
                }
                open.push(container);
            }
            if ctx.is_spent() {
                return Ok(false);
            }
        }
    }
}

fn write_key(writer: &mut Writer<'_>, key: &Value) -> Result<(), Stop> {
    match key {
        Value::Str(key) => {
            writer.key(key);
            Ok(())
        }
        odd => Err(wrong_type("json.encode", "key", "a string", odd)),
    }
}

/// Writes a scalar, or opens a container.
fn begin(writer: &mut Writer<'_>, value: Value) -> Result<Option<Open>, Stop> {
    let mut value = value;
    while let Value::Pending(pending) = &value {
        value = match pending.outcome() {
            Some(Ok(inner)) => inner,
            // It was searched before: this cannot be.
            _ => value.decide()?,
        };
    }
    match value {
        // Before it is decided on, so that a number keeps its digits and a string its escapes.
        Value::Json { at, doc } => writer.node(doc.node(at)),
        Value::None | Value::Absent(_) => writer.null(),
        Value::Bool(value) => writer.bool(value),
        Value::Int(value) => writer.int(value),
        Value::BigInt(value) => writer.raw(value.to_string().as_bytes()),
        Value::Float(value) => {
            writer.float(value).map_err(|error| Stop::fail(Kind::Value, format!("json.encode(): {error}")))?;
        }
        Value::Str(text) => writer.str(&text),
        Value::Dict(dict) => {
            writer.begin_object();
            return Ok(Some(Open::Dict(dict, 0)));
        }
        other => match view::kind(&other) {
            view::Kind::List | view::Kind::Tuple | view::Kind::Set | view::Kind::Range => {
                writer.begin_array();
                return Ok(Some(Open::Array(Iter::of(&other)?)));
            }
            view::Kind::Dict => {
                writer.begin_object();
                return Ok(Some(Open::Object(view::entries(&other).unwrap_or_default().into_iter())));
            }
            view::Kind::Struct => {
                let fields = compare::fields(&other).into_iter().map(|(name, value)| (Value::Str(name), value));
                writer.begin_object();
                return Ok(Some(Open::Object(fields.collect::<Vec<_>>().into_iter())));
            }
            _ => return Err(Stop::fail(Kind::Type, format!("{} cannot be written as JSON", type_name(&other)))),
        },
    }
    Ok(None)
}
