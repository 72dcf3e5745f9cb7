//! `print` and `fail`.

use crate::error::{Kind, Stop};
use crate::host::Args;
use crate::methods::args::text;
use crate::native::{Ctx, NativeFn, Waits};
use crate::value::Value;

pub(super) static FUNCTIONS: [NativeFn; 2] = [
    NativeFn::new("fail", fail).waits(Waits::Deep),
    // It changes nothing that a flow can see: printing must not make functions run one after another
    // that run side by side without it.
    NativeFn::new("print", print).waits(Waits::Deep),
];

fn joined(ctx: &mut Ctx<'_>, args: Args<'_>, name: &str) -> Result<String, Stop> {
    let [separator] = Args { pos: &[], ..args }.bind(name, false, ["sep"], 0)?;
    let separator = separator.map_or(Ok(" "), |separator| text(name, "sep", separator))?;
    let mut out = String::new();
    for (at, value) in args.pos.iter().enumerate() {
        if at > 0 {
            ctx.memory(separator.len())?;
            out.push_str(separator);
        }
        out.push_str(&ctx.show(value)?);
    }
    Ok(out)
}

fn print(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    let text = joined(ctx, args, "print")?;
    ctx.host.print(&text, ctx.site);
    Ok(Value::None)
}

fn fail(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    Err(Stop::fail(Kind::Fail, joined(ctx, args, "fail")?))
}
