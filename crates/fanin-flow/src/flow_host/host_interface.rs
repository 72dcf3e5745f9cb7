//! Implements the machine's interface to its host: calls, barriers before effects, logging, origins of documents.

use std::sync::atomic::Ordering::Relaxed;

use arcstr::ArcStr;
use fanin_json::Doc;
use fanin_lang::{CallSite, Failure, Host, HostCall, Kind, Level, PendingValue, Position, ProgramOrder, Value, Waiter};

use super::{CallState, Entry, FlowHost, OutcomeOptions, StreamOptions};
use crate::answer::CallSource;
use crate::call::{ArgumentState, OnFailure};
use crate::call_record::Detail;
use crate::kinds;
use crate::kinds::UpstreamObject;
use crate::push::{self, PushObject};

impl FlowHost {
    fn call_push(&mut self, object: &PushObject, call: &HostCall<'_>) -> Result<Value, Failure> {
        self.is_unrepeatable("it uses channels");
        let (value, is_effect) = push::call(object, call)?;
        if is_effect {
            self.wrote = true;
            self.rounds.get_or_insert_default().published += 1;
        }
        Ok(value)
    }
}

impl Host for FlowHost {
    fn call(&mut self, call: HostCall<'_>) -> Result<Value, Failure> {
        if self.calls.len() + self.rounds.as_ref().map_or(0, |rounds| rounds.published) >= self.limits().max_calls {
            return Err(fanin_lang::Limit::Calls
                .failure(format!("the flow makes more than {} calls (max_calls)", self.limits().max_calls))
                .with_hint("request several items in one call, or raise max_calls of [flow] or of the route"));
        }
        let own = self.worker.own.as_ref().map(|own| own.of(call.object).clone());
        let handle = own.as_ref().unwrap_or(call.object);
        let Some(object) = handle.downcast::<UpstreamObject>() else {
            if let Some(object) = handle.downcast::<PushObject>() {
                return self.call_push(object, &call);
            }
            return Err(Failure::new(Kind::Type, format!("{} is not an upstream", call.object.name())));
        };
        let (arguments, options) = kinds::parse(object, &call)?;
        let source = CallSource::new(object.upstream.clone());
        let slot = PendingValue::call(source.clone());
        let index = self.calls.len();
        if self.calls.capacity() == 0 {
            self.calls.reserve_exact(self.route.calls.load(Relaxed).max(1) as usize);
        }
        let required = matches!(options.on_failure, OnFailure::Fail);
        if self.detail != Detail::Nothing {
            self.record_made(&call, options.operation, required);
        }
        self.calls.push(Entry {
            object: handle.clone(),
            slot: slot.clone(),
            source,
            unsent: None,
            outcome_options: (!required || !options.ok.is_empty() || options.returns.is_some()).then(|| {
                Box::new(OutcomeOptions {
                    on_failure: options.on_failure.clone(),
                    ok: options.ok.clone(),
                    returns: options.returns.clone(),
                    operation: options.operation,
                    slot: None,
                    format: None,
                })
            }),
            order: call.order,
            site: call.call_site,
            state: CallState::Pending,
            required,
            safe: options.safe,
            batch: options.merging.as_ref().is_some_and(|merging| merging.batch),
        });
        if self.route.streams {
            // `stream(...)` comes after the call that it is for.
            let stream = options.stream;
            self.calls[index].unsent = Some(Box::new((arguments, options)));
            if stream {
                self.stream(&slot, StreamOptions::default())?;
            }
            self.ready_calls.get_or_insert_default().settled(index as u64);
        } else if matches!(arguments.state(), ArgumentState::Ready) {
            self.send(index, &arguments, &options);
        } else {
            self.calls[index].unsent = Some(Box::new((arguments, options)));
            self.advance(index);
        }
        Ok(Value::Pending(slot))
    }

    fn barrier(&mut self, order: &ProgramOrder) -> Option<PendingValue> {
        self.calls
            .iter()
            .filter(|entry| {
                matches!(entry.state, CallState::Failed) || entry.state == CallState::Pending && entry.required
            })
            .filter(|entry| entry.order < *order)
            .min_by(|a, b| a.order.cmp(&b.order))
            .map(|entry| entry.slot.clone())
    }

    fn as_any(&mut self) -> &mut dyn std::any::Any {
        self
    }

    fn print(&mut self, text: &str, site: CallSite) {
        if self.playback().is_some()
            || !tracing::enabled!(target: "fanin::flow", tracing::Level::INFO)
            || !self.route.log.admits(&self.route.name)
        {
            return;
        }
        let position = self.position(site);
        let (trace_id, request_id) = (self.req.trace_id(), self.req.known_id());
        tracing::info!(target: "fanin::flow", line = %format_args!("{}:{}", position.file, position.line), trace_id, request_id, "{text}");
    }

    fn made(&self, doc: &Doc) -> Option<Position> {
        let entry = self.calls.iter().find(|entry| entry.answered(doc))?;
        Some(self.position(entry.site))
    }

    fn log(&mut self, level: Level, text: &str, fields: &[(ArcStr, String)], site: CallSite) {
        let enabled = match level {
            Level::Debug => tracing::enabled!(target: "fanin::flow", tracing::Level::DEBUG),
            Level::Info => tracing::enabled!(target: "fanin::flow", tracing::Level::INFO),
            Level::Warn => tracing::enabled!(target: "fanin::flow", tracing::Level::WARN),
            Level::Error => tracing::enabled!(target: "fanin::flow", tracing::Level::ERROR),
        };
        if self.playback().is_some() || !enabled || !self.route.log.admits(&self.route.name) {
            return;
        }
        let position = self.position(site);
        let line = format!("{}:{}", position.file, position.line);
        // A flow chooses the names of its fields, so they cannot become keys of the log event.
        let fields: Vec<String> = fields.iter().map(|(name, value)| format!("{name}={value:?}")).collect();
        let fields = fields.join(" ");
        let (trace_id, request_id) = (self.req.trace_id(), self.req.known_id());
        match level {
            Level::Debug => tracing::debug!(target: "fanin::flow", line, fields, trace_id, request_id, "{text}"),
            Level::Info => tracing::info!(target: "fanin::flow", line, fields, trace_id, request_id, "{text}"),
            Level::Warn => tracing::warn!(target: "fanin::flow", line, fields, trace_id, request_id, "{text}"),
            Level::Error => tracing::error!(target: "fanin::flow", line, fields, trace_id, request_id, "{text}"),
        }
    }

    fn origin(&self, doc: &Doc) -> Option<String> {
        if let Some(part) = self.req.origin(doc) {
            return Some(part.to_owned());
        }
        self.calls
            .iter()
            .find(|entry| entry.answered(doc))
            .map(|entry| format!("the answer of {}", entry.object.name()))
    }
}
