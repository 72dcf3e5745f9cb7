//! The module `@test`: what tests load.

mod asserting;
mod deviating;
mod sending;
mod stubbing;

use arcstr::ArcStr;
use fanin_flow::Module;
use fanin_lang::{Ctx, FrozenValue, Kind, NativeFn, Stop, Value};

use crate::host::TestHost;

/// All functions of the module.
fn natives() -> impl Iterator<Item = &'static NativeFn> {
    stubbing::FUNCTIONS.iter().chain(&sending::FUNCTIONS).chain(&asserting::FUNCTIONS).chain(&deviating::FUNCTIONS)
}

/// The module, for the loader.
#[must_use]
pub fn module() -> Module {
    ("test", natives().map(|native| (ArcStr::from(native.name), FrozenValue::Native(native))).collect())
}

/// The running test.
fn host<'a>(ctx: &'a mut Ctx<'_>, name: &str) -> Result<&'a mut TestHost, Stop> {
    let any = ctx.host.as_any();
    any.downcast_mut::<TestHost>().ok_or_else(|| {
        Stop::fail(
            Kind::Host,
            format!("{name}() belongs into a test, a function whose name begins with test_ or explore_"),
        )
    })
}

fn wrong(name: &str, what: impl std::fmt::Display) -> Stop {
    Stop::fail(Kind::Value, format!("{name}(): {what}"))
}

/// A text.
fn text(name: &str, argument: &str, value: &Value) -> Result<String, Stop> {
    match value.decide()? {
        Value::Str(text) => Ok(text.to_string()),
        other => {
            let kind = fanin_lang::value::view::type_name(&other);
            Err(Stop::fail(Kind::Type, format!("{name}(): {argument} must be a string, not {kind}")))
        }
    }
}

/// A duration, such as `"20ms"`.
fn duration(name: &str, argument: &str, value: &Value) -> Result<std::time::Duration, Stop> {
    let text = text(name, argument, value)?;
    fanin_config::parse_duration(&text).map_err(|error| wrong(name, format_args!("{argument}: {error}")))
}
