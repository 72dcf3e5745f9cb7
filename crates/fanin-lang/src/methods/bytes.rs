//! Methods of bytes.

use crate::error::Stop;
use crate::host::Args;
use crate::native::{Ctx, NativeFn};
use crate::value::Value;

use super::args::wrong_type;

pub(super) static METHODS: [NativeFn; 1] = [NativeFn::new("elems", elems)];

/// The bytes as numbers.
fn elems(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    args.only("elems", true, 0, 0)?;
    let Value::Bytes(bytes) = &args.pos[0] else {
        return Err(wrong_type("elems", "object", "bytes", &args.pos[0]));
    };
    ctx.steps(bytes.len())?;
    ctx.list(bytes.iter().map(|byte| Value::Int(i64::from(*byte))).collect())
}
