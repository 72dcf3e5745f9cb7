//! `@base64`: RFC 4648.

use std::sync::Arc;

use base64::Engine;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

use super::bytes;
use crate::error::{Kind, Stop};
use crate::host::Args;
use crate::methods::args::wrong_type;
use crate::native::{Ctx, NativeFn};
use crate::value::Value;

pub(super) static FUNCTIONS: [NativeFn; 3] = [
    NativeFn::new("base64.encode", encode),
    NativeFn::new("base64.decode", decode),
    NativeFn::new("base64.decode_text", decode_text),
];

/// Written with padding, except in the alphabet for URLs; read with and without.
const fn engine(alphabet: &alphabet::Alphabet, pad: bool) -> GeneralPurpose {
    let config =
        GeneralPurposeConfig::new().with_encode_padding(pad).with_decode_padding_mode(DecodePaddingMode::Indifferent);
    GeneralPurpose::new(alphabet, config)
}

static STANDARD: GeneralPurpose = engine(&alphabet::STANDARD, true);
static URL: GeneralPurpose = engine(&alphabet::URL_SAFE, false);

fn chosen(name: &str, url: Option<&Value>) -> Result<&'static GeneralPurpose, Stop> {
    match url {
        None | Some(Value::Bool(false)) => Ok(&STANDARD),
        Some(Value::Bool(true)) => Ok(&URL),
        Some(other) => Err(wrong_type(name, "url", "a bool", other)),
    }
}

fn encode(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    let [data, url] = args.bind("base64.encode", false, ["data", "url"], 1)?;
    let data = bytes("base64.encode", "data", data)?;
    let engine = chosen("base64.encode", url)?;
    ctx.value(data.len() / 3 * 4 + 4)?;
    ctx.str(&engine.encode(data))
}

fn decoded(ctx: &mut Ctx<'_>, args: Args<'_>, name: &str) -> Result<Vec<u8>, Stop> {
    let [text, url] = args.bind(name, false, ["text", "url"], 1)?;
    let text = bytes(name, "text", text)?;
    let engine = chosen(name, url)?;
    ctx.steps(text.len() / 16)?;
    ctx.memory(text.len())?;
    engine.decode(text).map_err(|error| Stop::fail(Kind::Value, format!("{name}(): {error}")))
}

fn decode(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    Ok(Value::Bytes(Arc::new(decoded(ctx, args, "base64.decode")?)))
}

fn decode_text(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    let bytes = decoded(ctx, args, "base64.decode_text")?;
    match std::str::from_utf8(&bytes) {
        Ok(text) => ctx.str(text),
        Err(_) => {
            Err(Stop::fail(Kind::Value, "base64.decode_text(): the bytes are not UTF-8 text: decode() gives them"))
        }
    }
}
