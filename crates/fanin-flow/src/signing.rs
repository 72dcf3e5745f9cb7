//! `sign(value, name)` and `unsign(text, name, max_age)`: values that come back unchanged, such as sessions in cookies.
//!
//! A signed text is the value, the time and an HMAC-SHA256 of both and of the name, in base64. The first key signs. All keys verify, so
//! that keys can be replaced without ending sessions. What is signed can be read by everybody.

use std::sync::Arc;

use fanin_lang::{Args, Ctx, Failure, Kind, Stop, Value};

use crate::flow_host::FlowHost;
use crate::signing_keys::Keys;

/// The longest value that is signed, and the longest text that is read.
const LONGEST: usize = 64 << 10;

/// The keys, and the time of the request in seconds.
fn keys(ctx: &mut Ctx<'_>, name: &str) -> Result<(Arc<Keys>, u64), Stop> {
    let Some(host) = ctx.host.as_any().downcast_mut::<FlowHost>() else {
        return Err(Stop::fail(Kind::Host, format!("{name}() works in flows only")));
    };
    let Some(keys) = host.route.signing.clone() else {
        let failure = Failure::new(Kind::Host, format!("{name}() needs keys"));
        return Err(failure.with_hint("add a section [signing] with key_files = [\"signing.key\"]").into());
    };
    Ok((keys, u64::try_from(host.req.time() / 1000).unwrap_or(0)))
}

fn string(function: &str, what: &str, value: Option<&Value>) -> Result<Option<String>, Stop> {
    match value.map(Value::decide).transpose()? {
        None | Some(Value::None) => Ok(None),
        Some(Value::Str(text)) if text.len() > LONGEST => {
            Err(Stop::fail(Kind::Value, format!("{function}(): {what} has more than {LONGEST} bytes")))
        }
        Some(value) => match value.as_str() {
            Some(text) => Ok(Some(text.to_owned())),
            None => Err(Stop::fail(Kind::Type, format!("{function}(): {what} must be a string"))),
        },
    }
}

/// `sign(value, name = "")`
pub(crate) fn sign(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    let [value, name] = args.bind("sign", false, ["value", "name"], 1)?;
    let Some(value) = string("sign", "the value", value)? else {
        return Err(Stop::fail(Kind::Type, "sign(): the value must be a string"));
    };
    let name = string("sign", "name", name)?.unwrap_or_default();
    let (keys, now) = keys(ctx, "sign")?;
    let text = keys.sign(&value, &name, now);
    Ok(text.map_or(Value::None, |text| Value::str(&text)))
}

/// `unsign(text, name = "", max_age = None)`: the value; `None` if it was not signed like this, or too long ago.
pub(crate) fn unsign(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    let [text, name, max_age] = args.bind("unsign", false, ["text", "name", "max_age"], 1)?;
    let name = string("unsign", "name", name)?.unwrap_or_default();
    let max_age = match string("unsign", "max_age", max_age)? {
        None => None,
        Some(age) => match fanin_config::parse_duration(&age) {
            Ok(age) => Some(age),
            Err(_) => return Err(Stop::fail(Kind::Value, "unsign(): max_age must be a duration such as \"30d\"")),
        },
    };
    let (keys, now) = keys(ctx, "unsign")?;
    // It comes from a client: a text that is too long is not ours.
    let text = text.map(Value::decide).transpose()?.unwrap_or_default();
    let Some(text) = text.as_str().filter(|text| text.len() <= 2 * LONGEST) else { return Ok(Value::None) };
    let Some((value, time)) = keys.verify(text, &name) else { return Ok(Value::None) };
    let is_fresh = max_age.is_none_or(|age| now.saturating_sub(time) <= age.as_secs());
    Ok(if is_fresh { Value::str(&value) } else { Value::None })
}
