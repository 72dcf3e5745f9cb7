//! `print`, `log` and `fail`.

use crate::error::{Kind, Stop};
use crate::host::{Args, Level};
use crate::methods::args::text;
use crate::native::{Awaits, Ctx, NativeFn};
use crate::value::Value;

pub(super) static FUNCTIONS: [NativeFn; 3] = [
    NativeFn::new("fail", fail).awaits(Awaits::Deep),
    NativeFn::new("log", log).awaits(Awaits::Deep),
    // It changes nothing that a flow can see: printing must not make functions run one after another
    // that run side by side without it.
    NativeFn::new("print", print).awaits(Awaits::Deep),
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
    ctx.host.print(&text, ctx.call_site);
    Ok(Value::None)
}

/// `log("text", level = "warn", user = id)`: every other keyword argument is a field.
fn log(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    let [message] = Args { names: &[], named: &[], ..args }.bind("log", false, ["text"], 1)?;
    let message = ctx.show(message.unwrap_or(&Value::None))?;
    let mut level = Level::Info;
    let mut fields = Vec::with_capacity(args.names.len());
    for (name, value) in args.names.iter().zip(args.named) {
        if name.as_str() == "level" {
            let given = text("log", "level", value)?;
            level = Level::ALL.into_iter().find(|level| level.name() == given).ok_or_else(|| {
                Stop::fail(Kind::Value, format!("log() has no level {given:?}: there are debug, info, warn and error"))
            })?;
        } else {
            fields.push((name.clone(), ctx.show(value)?));
        }
    }
    ctx.host.log(level, &message, &fields, ctx.call_site);
    Ok(Value::None)
}

fn fail(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    Err(Stop::fail(Kind::Fail, joined(ctx, args, "fail")?))
}
