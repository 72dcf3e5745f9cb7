//! `load("@push", "push")`: `push.publish` is an effect, `push.subscribe` gives a value that a flow returns.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arcstr::ArcStr;
use fanin_lang::value::{Object, view};
use fanin_lang::{Effect, Failure, HostCall, HostObject, Kind, Method, Stop, Value};
use fanin_push::{Channels, PublishError, SubscribeError, Subscription};
use http::StatusCode;

use crate::flow_error::FlowError;
use crate::json::{self, JsonError};
use crate::request_object::RequestObject;
use crate::worker::Worker;

/// Parameters of a query that are looked at.
const MAX_QUERY_PARAMETERS: usize = 1_000;

const PUBLISH: u32 = 0;
const SUBSCRIBE: u32 = 1;

/// The channels, once the process has them: flows are compiled before that.
pub(crate) type ChannelsCell = Arc<OnceLock<Arc<Channels>>>;

/// `push`.
pub(crate) struct PushObject(pub(crate) ChannelsCell);

/// The effect of a method with this name.
pub(crate) fn effect(name: &str) -> Option<Effect> {
    match name {
        "publish" => Some(Effect::Write),
        "subscribe" => Some(Effect::Pure),
        _ => None,
    }
}

impl HostObject for PushObject {
    fn type_name(&self) -> &str {
        "push"
    }

    fn name(&self) -> &str {
        "push"
    }

    fn method(&self, name: &str, _literal: &dyn Fn(&str) -> Option<Value>) -> Option<Method> {
        let effect = effect(name)?;
        Some(Method { id: if effect == Effect::Write { PUBLISH } else { SUBSCRIBE }, effect })
    }

    fn awaits_arguments(&self) -> bool {
        true
    }

    fn names(&self) -> Vec<&str> {
        vec!["publish", "subscribe"]
    }
}

/// What `push.subscribe` gives.
#[derive(Clone)]
pub(crate) struct SubscriptionObject {
    channels: Vec<ArcStr>,
}

impl fmt::Debug for SubscriptionObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<subscription {}>", self.channels.join(", "))
    }
}

impl Object for SubscriptionObject {
    fn type_name(&self) -> &'static str {
        "subscription"
    }

    fn attribute(&self, _name: &str) -> Result<Option<Value>, Stop> {
        Ok(None)
    }

    fn names(&self) -> Vec<&str> {
        Vec::new()
    }

    fn show(&self) -> String {
        format!("{self:?}")
    }
}

/// A bound of `[push]` refused a subscription or an event. The payload of the failure.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct PushRefused(String);

impl PushRefused {
    pub(crate) fn to_error(&self) -> FlowError {
        FlowError {
            status: StatusCode::SERVICE_UNAVAILABLE,
            kind: "push-limit",
            title: "Too many channels or subscribers",
            detail: self.0.clone().into(),
            upstream: None,
            retry_after: Some(Duration::from_secs(1)),
            rpc: None,
        }
    }

    fn failure(message: String) -> Failure {
        Failure::new(Kind::Host, message.clone()).with_payload(Arc::new(PushRefused(message)))
    }
}

fn failed(stop: Stop) -> Failure {
    match stop {
        Stop::Fail(failure) => *failure,
        _ => Failure::new(Kind::Host, "internal error: an argument of push is pending"),
    }
}

/// The text of an argument.
fn text(method: &str, param: &str, value: &Value) -> Result<ArcStr, Failure> {
    match value.decide().map_err(failed)? {
        Value::Str(text) => Ok(ArcStr::from(&*text)),
        other => Err(Failure::new(
            Kind::Type,
            format!("push.{method}(): {param} must be a string, not {}", view::kind(&other).name()),
        )),
    }
}

/// Makes a call of `push`; `true` beside the value if it was an effect.
pub(crate) fn call(object: &PushObject, call: &HostCall<'_>) -> Result<(Value, bool), Failure> {
    match call.method {
        SUBSCRIBE => {
            let [channels] = call.args.bind("push.subscribe", false, ["channel"], 1).map_err(failed)?;
            let channels = channels.cloned().unwrap_or_default().decide().map_err(failed)?;
            let channels = match channels {
                list @ (Value::List(_) | Value::Tuple(_)) => view::elements(&list).map_err(failed)?,
                one => vec![one],
            };
            let mut names: Vec<ArcStr> = Vec::with_capacity(channels.len());
            for channel in &channels {
                let name = text("subscribe", "channel", channel)?;
                if !names.contains(&name) {
                    names.push(name);
                }
            }
            Ok((Value::object(SubscriptionObject { channels: names }), false))
        }
        _ => publish(object, call).map(|id| (id, true)),
    }
}

fn publish(object: &PushObject, call: &HostCall<'_>) -> Result<Value, Failure> {
    let [channel, value, event] =
        call.args.bind("push.publish", false, ["channel", "value", "event"], 2).map_err(failed)?;
    let channel = text("publish", "channel", channel.unwrap_or(&Value::None))?;
    let event = match event.map(Value::decide).transpose().map_err(failed)? {
        None | Some(Value::None) => None,
        Some(event) => Some(text("publish", "event", &event)?),
    };
    let Some(channels) = object.0.get() else {
        return Err(Failure::new(Kind::Host, "push.publish(): there are no channels here"));
    };
    let limit = channels.max_event();
    let data = json::to_bytes(value.unwrap_or(&Value::None), limit).map_err(|error| {
        let failure = Failure::new(Kind::Value, format!("push.publish(): {error}"));
        if matches!(error, JsonError::Large(_)) { failure.with_hint("raise max_event of [push]") } else { failure }
    })?;
    channels.publish(&channel, event.as_deref(), &data).map(|id| Value::str(&id)).map_err(|error| match error {
        PublishError::Channels(_) => PushRefused::failure(error.to_string()),
        _ => Failure::new(Kind::Value, format!("push.publish(): {error}")),
    })
}

/// What a returned value subscribes to, if it is a subscription.
pub(crate) fn subscription(value: &Value) -> Option<&SubscriptionObject> {
    match value {
        Value::Object(object) => object.downcast::<SubscriptionObject>(),
        _ => None,
    }
}

/// Subscribes, and gives the body of the response. It holds no permit: subscribers have a limit of their own.
pub(crate) fn events(
    worker: &Worker,
    req: &RequestObject,
    subscription: &SubscriptionObject,
) -> Result<Box<Subscription>, Failure> {
    let Some(hub) = worker.hub.get() else {
        let failure = Failure::new(Kind::Host, "push.subscribe(): this executor cannot hold a subscription");
        return Err(failure.with_hint("leave executor = { threads = ... } out of this route"));
    };
    let names = subscription.channels.iter().map(ArcStr::as_str);
    let last = last_event_id(req);
    Subscription::new(hub, names, last.as_deref()).map(Box::new).map_err(|error| match error {
        SubscribeError::Name(_) | SubscribeError::Count { .. } => {
            Failure::new(Kind::Value, format!("push.subscribe(): {error}"))
        }
        _ => PushRefused::failure(error.to_string()),
    })
}

/// The id of the last event that the client has: a header, or the query of a client that cannot set headers.
fn last_event_id(req: &RequestObject) -> Option<String> {
    if let Some((_, value)) = req.headers().iter().find(|(name, _)| *name == "last-event-id") {
        // One that is no text is none of ours, and the client hears that.
        return Some(value.to_str().unwrap_or_default().to_owned());
    }
    let query = form_urlencoded::parse(req.target.query()?.as_bytes());
    query.take(MAX_QUERY_PARAMETERS).find(|(name, _)| name == "last-event-id").map(|(_, value)| value.into_owned())
}
