//! Call options: `timeout`, `ok`, `optional`, `default`, `returns`, `safe`, `unordered`.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use fanin_config::Shape;
use fanin_lang::value::view;
use fanin_lang::{Failure, HostCall, Stop, Value};
use fanin_upstream::{BodySlot, UploadSlot};
use http::Method;
use smallvec::SmallVec;

use super::argument_error;
use crate::json;

/// Longest shape of a call, in bytes of JSON.
const LONGEST_SHAPE: usize = 64 * 1024;

/// What happens when a call fails.
#[derive(Clone)]
pub(crate) enum OnFailure {
    /// The flow fails where it decides on the answer.
    Fail,
    /// The answer is absent, and so is every call that needs it.
    Absent,
    /// The answer is this value.
    Default(Value),
}

/// The options of a call. They must not be pending when it is made.
pub(crate) struct CallOptions {
    pub(crate) method: Method,
    pub(crate) ok: SmallVec<[u16; 2]>,
    /// The shape that the answer must have when it reaches the flow.
    pub(crate) returns: Option<Arc<Shape>>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) on_failure: OnFailure,
    pub(crate) safe: bool,
    /// Index of the operation.
    pub(crate) operation: Option<u32>,
    /// Set for operations with batches, single-flight or caches, and for lookups.
    pub(crate) merging: Option<Box<Merging>>,
    /// The call has `stream = True`.
    pub(crate) stream: bool,
    /// Set by `stream(...)`, or because of `stream`.
    pub(crate) streaming: Option<Box<Streaming>>,
    /// The client's body, passed on: `body = req.stream`.
    pub(crate) upload: Option<Rc<UploadSlot>>,
}

/// How a call's body is passed on.
pub(crate) struct Streaming {
    pub(crate) slot: Rc<BodySlot>,
    /// The client's range and conditions are passed on.
    pub(crate) ranges: bool,
}

/// How a call shares work with others.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Merging {
    /// Index of the operation; `None` for a lookup in a snapshot.
    pub(crate) operation: Option<usize>,
    /// Whether a batch may serve it.
    pub(crate) batch: bool,
    /// The call's own `linger`.
    pub(crate) linger: Option<Duration>,
}

impl CallOptions {
    pub(crate) fn new(method: Method, safe: bool) -> CallOptions {
        CallOptions {
            method,
            ok: SmallVec::new(),
            returns: None,
            timeout: None,
            on_failure: OnFailure::Fail,
            safe,
            operation: None,
            merging: None,
            stream: false,
            streaming: None,
            upload: None,
        }
    }

    /// Sets an option. `false` if `key` is not an option.
    ///
    /// # Errors
    /// A value of the wrong type.
    pub(crate) fn set(&mut self, name: &str, key: &str, value: &Value, call: &HostCall<'_>) -> Result<bool, Failure> {
        match key {
            "timeout" => self.timeout = Some(duration(name, &known(name, key, value)?)?),
            "ok" => self.ok.extend(statuses(name, &known(name, key, value)?)?),
            "returns" => self.returns = Some(Arc::new(shape(name, &known(name, key, value)?)?)),
            "safe" => self.safe = flag(name, key, value)?,
            "unordered" => {
                flag(name, key, value)?;
            }
            "optional" => {
                if flag(name, key, value)? && matches!(self.on_failure, OnFailure::Fail) {
                    self.on_failure = OnFailure::Absent;
                }
            }
            "default" => self.on_failure = OnFailure::Default(call.capture(value)?),
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// The value of an option, which must not be pending.
pub(crate) fn known(upstream: &str, key: &str, value: &Value) -> Result<Value, Failure> {
    match value.decide() {
        Ok(value) => Ok(value),
        Err(Stop::Fail(failure)) => Err(*failure),
        Err(_) => Err(argument_error(format!("{key} of a call of {upstream} must not be pending"))
            .with_hint("decide on the value before the call, for example with if")),
    }
}

pub(crate) fn flag(upstream: &str, key: &str, value: &Value) -> Result<bool, Failure> {
    match known(upstream, key, value)? {
        Value::Bool(value) => Ok(value),
        _ => Err(argument_error(format!("{key} of a call of {upstream} must be True or False"))),
    }
}

fn duration(upstream: &str, value: &Value) -> Result<Duration, Failure> {
    value
        .as_str()
        .and_then(|text| fanin_config::parse_duration(text).ok())
        .filter(|duration| !duration.is_zero())
        .ok_or_else(|| argument_error(format!("timeout of a call of {upstream} must be a duration such as \"80ms\"")))
}

fn shape(upstream: &str, value: &Value) -> Result<Shape, Failure> {
    let invalid = |problem: String| argument_error(format!("returns of a call of {upstream}: {problem}"));
    let json = json::to_bytes(value, LONGEST_SHAPE).map_err(|error| invalid(error.to_string()))?;
    let json = serde_json::from_slice(&json).map_err(|error| invalid(error.to_string()))?;
    Shape::read(&json).map_err(invalid)
}

fn statuses(upstream: &str, value: &Value) -> Result<SmallVec<[u16; 2]>, Failure> {
    let invalid = || argument_error(format!("ok of a call of {upstream} must be a list of statuses such as [404]"));
    view::elements(value)
        .map_err(|_| invalid())?
        .iter()
        .map(|status| match status.decide() {
            Ok(Value::Int(status)) if (100..=599).contains(&status) => Ok(status as u16),
            _ => Err(invalid()),
        })
        .collect()
}
