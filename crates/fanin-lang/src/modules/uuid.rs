//! `@uuid`: names for things. Only those that follow from their arguments: a random one would make a
//! flow give another result each time it runs.

use uuid::Uuid;

use super::bytes;
use crate::error::{Kind, Stop};
use crate::host::Args;
use crate::methods::args::text;
use crate::native::{Ctx, NativeFn};
use crate::value::Value;

pub(super) static FUNCTIONS: [NativeFn; 2] =
    [NativeFn::new("uuid.of_name", of_name), NativeFn::new("uuid.parse", parse)];

fn read(name: &str, source: &str) -> Result<Uuid, Stop> {
    let namespace = match source {
        "dns" => Some(Uuid::NAMESPACE_DNS),
        "url" => Some(Uuid::NAMESPACE_URL),
        "oid" => Some(Uuid::NAMESPACE_OID),
        "x500" => Some(Uuid::NAMESPACE_X500),
        _ => None,
    };
    match namespace {
        Some(namespace) => Ok(namespace),
        None => Uuid::parse_str(source).map_err(|error| Stop::fail(Kind::Value, format!("{name}(): {error}"))),
    }
}

/// Version 5: the same for the same namespace and name.
fn of_name(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    let [namespace, name] = args.bind("uuid.of_name", false, ["namespace", "name"], 2)?;
    let namespace = read("uuid.of_name", text("uuid.of_name", "namespace", namespace.unwrap_or(&Value::None))?)?;
    let name = bytes("uuid.of_name", "name", name)?;
    ctx.steps(name.len() / 8)?;
    ctx.str(&Uuid::new_v5(&namespace, name).hyphenated().to_string())
}

/// The usual form of a UUID in any form; an error if it is none.
fn parse(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    let [source] = args.bind("uuid.parse", false, ["text"], 1)?;
    let source = text("uuid.parse", "text", source.unwrap_or(&Value::None))?;
    let parsed = Uuid::parse_str(source).map_err(|error| Stop::fail(Kind::Value, format!("uuid.parse(): {error}")))?;
    ctx.str(&parsed.hyphenated().to_string())
}
