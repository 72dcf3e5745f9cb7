//! Sends the calls of a flow once their arguments have arrived.

use std::num::NonZero;
use std::sync::Arc;

use fanin_lang::Value;
use fanin_tracecontext::CallParent;
use fanin_upstream::shared::RequestKey;
use fanin_upstream::{Bodies, CallContext, CallError};

use super::{CallState, FlowHost, streaming};
use crate::answer::BodyRule;
use crate::call::{ArgumentState, Arguments, CallOptions, OnFailure};
use crate::call_record::Outcome;
use crate::inflight::InFlight;
use crate::kinds::UpstreamObject;

impl FlowHost {
    /// Sends calls whose arguments have arrived.
    pub(crate) fn send_ready_calls(&mut self) {
        loop {
            let Some(ready_calls) = &self.ready_calls else { return };
            let tokens = std::mem::take(&mut *ready_calls.0.borrow_mut());
            if tokens.is_empty() {
                return;
            }
            for token in tokens {
                self.advance(token as usize);
            }
        }
    }

    /// Sends a call, or registers it with the value that it awaits.
    pub(super) fn advance(&mut self, index: usize) {
        let Some(entry) = self.calls.get_mut(index) else { return };
        let Some(unsent) = &entry.unsent else { return };
        match unsent.0.state() {
            ArgumentState::Pending(slot) => {
                slot.on_settled(self.ready_calls.get_or_insert_default().clone(), index as u64)
            }
            ArgumentState::Failed(failure) => {
                // The failure of another call, so `optional` of this one does not cover it.
                entry.unsent = None;
                entry.state = CallState::Failed;
                let slot = entry.slot.clone();
                let failure = self.with_origin((*failure).clone(), Some(&slot));
                slot.settle(Err(failure));
                self.record_ended(index, Outcome::NotSent);
            }
            ArgumentState::Absent(failure) => {
                entry.unsent = None;
                entry.state = CallState::Dependent;
                // The error is that of the call that failed, so that nobody blames the upstream of this one.
                if let Some(Ok(cause)) = failure.payload.clone().map(Arc::downcast::<CallError>) {
                    entry.source.set_error(cause);
                }
                let value = match entry.on_failure() {
                    OnFailure::Default(value) => value.clone(),
                    _ => Value::Absent(failure),
                };
                entry.slot.settle_shared(Ok(value));
                self.record_ended(index, Outcome::Absent);
            }
            ArgumentState::Ready => {
                if let Some(unsent) = entry.unsent.take() {
                    self.send(index, &unsent.0, &unsent.1);
                }
            }
        }
    }

    pub(super) fn send(&mut self, index: usize, arguments: &Arguments, options: &CallOptions) {
        if let Some(merging) = &options.merging {
            return self.send_merging(index, arguments, options.timeout, **merging);
        }
        let entry = &mut self.calls[index];
        // Entries are made only for upstreams.
        let Some(object) = entry.object.downcast::<UpstreamObject>() else { return };
        let request = match arguments.request(object, &options.method, self.req.headers()) {
            Ok(mut request) => {
                if options.streaming.as_ref().is_some_and(|streaming| streaming.ranges) {
                    streaming::add_ranges(&mut request, self.req.headers());
                }
                if options.upload.is_some() {
                    streaming::describe_upload(&mut request, self.req.headers());
                }
                request
            }
            Err(failure) => {
                entry.state = CallState::Failed;
                entry.slot.settle(Err(failure.at(self.route.program.position(entry.site))));
                self.record_ended(index, Outcome::NotSent);
                return;
            }
        };
        let required = entry.required;
        let context = CallContext {
            deadline: if required { self.deadline() } else { self.optional_deadline() },
            request_started: self.request_started(),
            timeout: options.timeout,
            safe: options.safe,
            operation: options.operation,
            trace: self.call_parent(index),
            attempts: self.attempt_log(index),
        };
        if !options.safe {
            self.wrote = true;
        }
        self.record_sent(index, &request);
        self.identify(index, || RequestKey::of(&request));
        if options.streaming.is_some() || options.upload.is_some() {
            self.is_unrepeatable("it passes a body on without collecting it");
        }
        if self.playback().is_some() {
            let time = FlowHost::time_of(&self.calls[index].object, options.operation, options.timeout);
            return self.play_back(index, time);
        }
        let Some(object) = self.calls[index].object.downcast::<UpstreamObject>() else { return };
        let caller = &self.worker.caller;
        let future = if options.streaming.is_none() && options.upload.is_none() {
            caller.call(&object.upstream, request, context)
        } else {
            let answer = options.streaming.as_ref().map(|streaming| streaming.slot.clone());
            let bodies = Bodies { answer, request: options.upload.clone() };
            match caller.stream(&object.upstream, request, context, bodies) {
                Some(future) => future,
                None => return self.cannot_stream(index),
            }
        };
        let rule = match options.streaming {
            None => BodyRule::of(&options.method, options.safe),
            Some(_) => BodyRule::Never,
        };
        let call = InFlight::new(index, future, rule, self.limits().max_json_depth);
        self.push(call);
    }

    /// The call in the request's trace.
    pub(super) fn call_parent(&self, index: usize) -> Option<CallParent> {
        let request = self.req.trace()?.clone();
        Some(CallParent { request, call: u32::try_from(index).unwrap_or(u32::MAX), first: 0 })
    }

    pub(super) fn push(&mut self, call: InFlight) {
        if self.inflight.is_empty() {
            self.busy_since = NonZero::new(self.micros_of_poll().saturating_add(1));
        }
        self.inflight.push(call);
    }
}
