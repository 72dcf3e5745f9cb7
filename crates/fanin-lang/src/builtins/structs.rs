//! `struct`

use std::rc::Rc;

use crate::error::Stop;
use crate::host::Args;
use crate::native::{Awaits, Ctx, NativeFn};
use crate::value::{Struct, Value};

pub(super) static FUNCTIONS: [NativeFn; 1] = [NativeFn::new("struct", make).awaits(Awaits::These(0))];

/// Fields are only moved: they may be pending.
fn make(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    Args { names: &[], named: &[], ..args }.only("struct", false, 0, 0)?;
    ctx.memory(48 + args.names.len() * (size_of::<Value>() + 8))?;
    let fields = args.names.iter().cloned().zip(args.named.iter().cloned()).collect();
    Ok(Value::Struct(Rc::new(Struct::new(fields))))
}
