//! Streamed answers: `stream(...)` marks a call before it is sent. Its body is passed to the client without being collected.

use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use fanin_config::AnswerHeaders;
use fanin_lang::value::Object;
use fanin_lang::{Failure, Kind, PendingValue, Stop, Value};
use fanin_upstream::{Answer, BodySlot, Request, StreamBounds, StreamedBody};
use http::header::{
    CONTENT_ENCODING, CONTENT_TYPE, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE, RANGE,
};
use http::{HeaderName, Method, StatusCode};

use super::{CallState, Entry, FlowHost, OutcomeOptions};
use crate::answer::CallSource;
use crate::call::{OnFailure, Streaming, argument_error};
use crate::call_record::Outcome;
use crate::client_headers::ClientHeaders;
use crate::kinds::{Backend, UpstreamObject};
use crate::messages;
use crate::progressive::{self, Framing};

/// The client's headers that `ranges = True` passes on.
const RANGE_HEADERS: [HeaderName; 6] =
    [RANGE, IF_RANGE, IF_NONE_MATCH, IF_MODIFIED_SINCE, IF_MATCH, IF_UNMODIFIED_SINCE];

/// The statuses that answer these headers, besides 2xx.
const RANGE_STATUSES: [StatusCode; 3] =
    [StatusCode::NOT_MODIFIED, StatusCode::PRECONDITION_FAILED, StatusCode::RANGE_NOT_SATISFIABLE];

/// What `stream(...)` says.
#[derive(Default)]
pub(crate) struct StreamOptions {
    /// The client's range and conditions are passed on.
    pub(crate) ranges: bool,
    /// How messages of a gRPC stream are told from each other. `None`: as the client accepts.
    pub(crate) format: Option<Framing>,
    pub(crate) bounds: StreamBounds,
}

/// A streamed call that has been answered.
pub(crate) struct StreamedAnswer<'h> {
    pub(crate) upstream: &'h Arc<str>,
    pub(crate) answer: &'h Answer,
    /// It can be taken once.
    pub(crate) body: Option<Box<StreamedBody>>,
    /// What its upstream's rules say of its headers.
    pub(crate) rules: Option<&'h AnswerHeaders>,
    /// The parts of the body are messages, told from each other like this.
    pub(crate) messages: Option<Framing>,
}

/// The value of a call whose body is passed on: it can only be returned.
struct Streamed(Rc<CallSource>);

impl fmt::Debug for Streamed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<streamed answer of {}>", self.0.upstream())
    }
}

impl Object for Streamed {
    fn type_name(&self) -> &'static str {
        "streamed answer"
    }

    fn attribute(&self, _: &str) -> Result<Option<Value>, Stop> {
        Ok(None)
    }

    fn names(&self) -> Vec<&str> {
        Vec::new()
    }

    fn show(&self) -> String {
        format!("{self:?}")
    }
}

/// The value of a streamed answer.
pub(super) fn value(source: &Rc<CallSource>) -> Value {
    source.set_streamed();
    Value::object(Streamed(source.clone()))
}

/// Adds the client's range and conditions to a call's request, unless the call sets them.
pub(super) fn add_ranges(request: &mut Request, client: &ClientHeaders) {
    if !matches!(request.method, Method::GET | Method::HEAD) {
        return;
    }
    for (name, value) in client.iter().filter(|(name, _)| RANGE_HEADERS.contains(name)) {
        if !request.headers.contains_key(name) {
            request.headers.insert(name.clone(), value.clone());
        }
    }
}

/// A body that is passed on is described as the client described it, unless the call does.
pub(super) fn describe_upload(request: &mut Request, client: &ClientHeaders) {
    for (name, value) in client.iter().filter(|(name, _)| [CONTENT_TYPE, CONTENT_ENCODING].contains(name)) {
        if !request.headers.contains_key(name) {
            request.headers.insert(name.clone(), value.clone());
        }
    }
}

impl FlowHost {
    /// `stream(...)`: the call's body will be passed on.
    ///
    /// # Errors
    /// The call has been sent, or is of a kind that cannot be streamed.
    pub(crate) fn stream(&mut self, slot: &PendingValue, given: StreamOptions) -> Result<(), Failure> {
        let StreamOptions { ranges, format, bounds } = given;
        let Some(entry) = self.calls.iter_mut().find(|entry| entry.slot.same(slot)) else {
            return Err(argument_error("stream() takes a call of an upstream"));
        };
        let name = entry.object.name();
        let object = entry.object.downcast::<UpstreamObject>();
        let is_grpc = match object.map(|object| &*object.backend) {
            Some(Backend::Http) => false,
            Some(Backend::Grpc(_)) => true,
            _ => {
                let message = format!("stream() takes calls of HTTP and gRPC upstreams, and {name} is neither");
                return Err(argument_error(message));
            }
        };
        if is_grpc && ranges {
            return Err(argument_error(format!("stream(): ranges is for HTTP upstreams, and {name} is gRPC")));
        }
        if !is_grpc && format.is_some() {
            return Err(argument_error(format!("stream(): format is for gRPC upstreams, and {name} is HTTP")));
        }
        // The call has `stream = True`, so only its bounds and its format change.
        if let Some(slot) = entry.slot() {
            slot.set_bounds(bounds);
            if let Some(streaming) = entry.unsent.as_mut().and_then(|unsent| unsent.1.streaming.as_mut()) {
                streaming.ranges |= ranges;
            }
            if let Some(outcome) = &mut entry.outcome_options {
                outcome.format = format;
            }
            return Ok(());
        }
        let Some(unsent) = &mut entry.unsent else {
            return match entry.state {
                // Its arguments have failed, which the response reports.
                CallState::Dependent | CallState::Failed if entry.source.answer().is_none() => Ok(()),
                _ => {
                    let (read, write) =
                        if is_grpc { ("Method({...})", "Method({...}") } else { ("get(...)", "post(...") };
                    let message = format!("stream() comes too late: the call of {name} has been sent");
                    Err(Failure::new(Kind::Host, message).with_hint(match entry.safe {
                        true => format!("write it around the call: stream({name}.{read})"),
                        false => format!(
                            "a call that changes something is sent at once; write {name}.{write}, stream = True)"
                        ),
                    }))
                }
            };
        };
        if let Some(Backend::Grpc(grpc)) = object.map(|object| &*object.backend) {
            grpc.check_stream(&unsent.0)?;
        }
        let options = &mut unsent.1;
        if let Some(merging) = options.merging.take() {
            let object = entry.object.downcast::<UpstreamObject>();
            let operation = merging.operation.and_then(|at| Some(object?.operation(at)));
            match operation {
                // Calls that would share an answer get one each.
                Some((_, operation)) if operation.batch.is_none() && operation.cache.is_none() => {}
                Some((operation, _)) => {
                    return Err(argument_error(format!(
                        "stream() cannot pass on {name}.{operation}: its answers are cached or come in batches"
                    )));
                }
                None => {
                    return Err(argument_error(format!("stream() cannot pass on a lookup in the snapshot of {name}")));
                }
            }
        }
        if options.returns.take_if(|_| options.operation.is_none()).is_some() {
            return Err(argument_error(format!("stream() does not read the answer of {name}, so it has no returns")));
        }
        let slot = BodySlot::new(bounds);
        options.streaming = Some(Box::new(Streaming { slot: slot.clone(), ranges }));
        entry.batch = false;
        let operation = options.operation;
        let outcome = entry.outcome_options.get_or_insert_with(|| {
            Box::new(OutcomeOptions {
                on_failure: OnFailure::Fail,
                ok: Default::default(),
                returns: None,
                operation,
                slot: None,
                format: None,
            })
        });
        // The shape of an operation describes a body that is not read here.
        outcome.returns = None;
        outcome.slot = Some(slot);
        outcome.format = format;
        if ranges {
            outcome.ok.extend(RANGE_STATUSES.map(|status| status.as_u16()));
        }
        Ok(())
    }

    /// The streamed call that `value` is, if it is one.
    pub(crate) fn streamed(&self, value: &Value) -> Option<StreamedAnswer<'_>> {
        let mut value = value.clone();
        while let Value::Pending(slot) = &value
            && slot.source().is_none()
        {
            value = slot.outcome()?.ok()?;
        }
        let Value::Pending(slot) = &value else { return None };
        let entry = self.calls.iter().find(|entry| entry.slot.same(slot))?;
        let body = entry.slot()?;
        if entry.state != CallState::Answered {
            return None;
        }
        let answer = entry.source.answer()?;
        let object = entry.object.downcast::<UpstreamObject>()?;
        let is_grpc = matches!(*object.backend, Backend::Grpc(_));
        let rules = object.upstream.config().answer_headers.as_ref();
        // An answer with an error has a body that says why, and no messages.
        let messages = (is_grpc && answer.status == StatusCode::OK).then(|| {
            let chosen = entry.outcome_options.as_ref().and_then(|options| options.format);
            chosen.or_else(|| progressive::framing(self.req.headers())).unwrap_or(messages::DEFAULT)
        });
        Some(StreamedAnswer { upstream: entry.source.upstream(), answer, body: body.take(), rules, messages })
    }

    /// A caller that cannot stream: a thread of a pool.
    #[cold]
    pub(super) fn cannot_stream(&mut self, index: usize) {
        let entry = &mut self.calls[index];
        entry.state = CallState::Failed;
        let message = "stream() does not work in a flow that runs on a thread of a pool";
        let failure = argument_error(message).with_hint("remove executor = { threads = ... } from its route");
        entry.slot.settle(Err(failure.at(self.route.program.position(entry.site))));
        self.record_ended(index, Outcome::NotSent);
    }
}

impl Entry {
    pub(super) fn slot(&self) -> Option<&Rc<BodySlot>> {
        self.outcome_options.as_ref()?.slot.as_ref()
    }
}
