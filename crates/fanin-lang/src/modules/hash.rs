//! `@hash`: digests, as text in hexadecimal; a checksum; signatures with a key.

use hmac::{Hmac, KeyInit, Mac};
use md5::Md5;
use sha2::{Digest, Sha256, Sha512};

use super::{bytes, hex};
use crate::error::{Kind, Stop};
use crate::host::Args;
use crate::native::{Ctx, NativeFn};
use crate::value::Value;

pub(super) static FUNCTIONS: [NativeFn; 6] = [
    NativeFn::new("hash.sha256", sha256),
    NativeFn::new("hash.sha512", sha512),
    NativeFn::new("hash.md5", md5),
    NativeFn::new("hash.crc32", crc32),
    NativeFn::new("hash.hmac_sha256", hmac_sha256),
    NativeFn::new("hash.equal", equal),
];

fn digest<D: Digest>(ctx: &mut Ctx<'_>, args: Args<'_>, name: &str) -> Result<Value, Stop> {
    let [data] = args.bind(name, false, ["data"], 1)?;
    let data = bytes(name, "data", data)?;
    ctx.steps(data.len() / 8)?;
    ctx.str(&hex(&D::digest(data)))
}

fn sha256(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    digest::<Sha256>(ctx, args, "hash.sha256")
}

fn sha512(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    digest::<Sha512>(ctx, args, "hash.sha512")
}

/// For what others have chosen (ETags, old signatures): it is no longer safe against forgery.
fn md5(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    digest::<Md5>(ctx, args, "hash.md5")
}

fn crc32(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    let [data] = args.bind("hash.crc32", false, ["data"], 1)?;
    let data = bytes("hash.crc32", "data", data)?;
    ctx.steps(data.len() / 32)?;
    Ok(Value::Int(i64::from(crc32fast::hash(data))))
}

fn hmac_sha256(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    let [key, data] = args.bind("hash.hmac_sha256", false, ["key", "data"], 2)?;
    let (key, data) = (bytes("hash.hmac_sha256", "key", key)?, bytes("hash.hmac_sha256", "data", data)?);
    ctx.steps((key.len() + data.len()) / 8)?;
    let mut mac = Hmac::<Sha256>::new_from_slice(key)
        .map_err(|error| Stop::fail(Kind::Value, format!("hash.hmac_sha256(): {error}")))?;
    mac.update(data);
    ctx.str(&hex(&mac.finalize().into_bytes()))
}

/// Compares in a time that depends on the lengths alone, so that a signature cannot be guessed byte by
/// byte from how long its refusal takes.
fn equal(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    let [a, b] = args.bind("hash.equal", false, ["a", "b"], 2)?;
    let (a, b) = (bytes("hash.equal", "a", a)?, bytes("hash.equal", "b", b)?);
    ctx.steps((a.len() + b.len()) / 8)?;
    let differ = a.iter().zip(b).fold(0, |differ, (x, y)| std::hint::black_box(differ | (x ^ y)));
    Ok(Value::Bool(a.len() == b.len() && differ == 0))
}
