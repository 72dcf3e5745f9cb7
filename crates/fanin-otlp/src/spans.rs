//! Spans of a request: one of the request itself, one of each call, and one of each attempt where a call had several.

use std::time::{Duration, SystemTime};

use fanin_tracecontext::TraceContext;
use opentelemetry::InstrumentationScope;
use opentelemetry::trace::{Link, SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};

use crate::attributes::Attributes;
use crate::record::{AttemptRecord, CallRecord, Kind, RequestRecord};

/// The number of an attempt whose span stands for all attempts of its call.
const WHOLE: u32 = u16::MAX as u32;

/// The spans of a request.
pub(crate) fn of(request: RequestRecord) -> Vec<SpanData> {
    let trace = Trace { context: &request.context, started: request.started, end: request.duration };
    let mut spans = vec![trace.server(&request)];
    for call in &request.calls {
        trace.add_call(call, &mut spans);
    }
    spans
}

struct Trace<'a> {
    context: &'a TraceContext,
    started: SystemTime,
    /// When the request ended.
    end: Duration,
}

impl Trace<'_> {
    fn context(&self, span: fanin_tracecontext::SpanId, state: bool) -> SpanContext {
        let state = self.context.state().filter(|_| state).and_then(|state| state.to_str().ok()?.parse().ok());
        SpanContext::new(
            TraceId::from_bytes(self.context.id().bytes()),
            SpanId::from_bytes(span.bytes()),
            TraceFlags::SAMPLED,
            false,
            state.unwrap_or(TraceState::NONE),
        )
    }

    fn server(&self, request: &RequestRecord) -> SpanData {
        let mut attributes = Attributes::default();
        let method = attributes.method(request.method.as_str());
        attributes.text("url.path", &*request.path);
        attributes.text("url.scheme", if request.secure { "https" } else { "http" });
        attributes.text("client.address", request.client.ip().to_string());
        attributes.version(request.version);
        attributes.number("http.response.status_code", request.status);
        let name = match (&request.rpc, &request.route) {
            (Some(rpc), _) => {
                attributes.text("rpc.method", &**rpc);
                rpc.to_string()
            }
            (None, Some(route)) => {
                attributes.text("http.route", &**route);
                format!("{method} {route}")
            }
            (None, None) => method.to_owned(),
        };
        let failed = request.status >= 500;
        if failed {
            attributes.text("error.type", request.status.to_string());
        }
        let parent = self.context.parent();
        SpanData {
            span_context: self.context(self.context.span(), true),
            parent_span_id: parent.map_or(SpanId::INVALID, |parent| SpanId::from_bytes(parent.bytes())),
            parent_span_is_remote: parent.is_some(),
            span_kind: SpanKind::Server,
            status: if failed { Status::error("") } else { Status::Unset },
            ..self.span(name, Duration::ZERO, self.end, attributes)
        }
    }

    fn add_call(&self, call: &CallRecord, spans: &mut Vec<SpanData>) {
        let mut attributes = Attributes::default();
        let name = attributes.called(call);
        let failed = attributes.outcome(call.upstream.kind, &call.outcome);
        let several = call.attempts.len() > 1;
        let is_client = call.shared.is_none() && call.upstream.kind != Kind::Local && !several;
        let id = self.context.attempt(call.number, if several { WHOLE } else { 0 });
        let ended = call.ended.unwrap_or(self.end).max(call.sent);
        let mut links = SpanLinks::default();
        if let Some(other) = call.done_by {
            links.links.push(Link::new(self.context(self.context.attempt(other, 0), false), Vec::new(), 0));
        }
        if let Some((trace, span)) = call.made_by {
            let (trace, span) = (TraceId::from_bytes(trace.bytes()), SpanId::from_bytes(span.bytes()));
            let context = SpanContext::new(trace, span, TraceFlags::SAMPLED, false, TraceState::NONE);
            links.links.push(Link::new(context, Vec::new(), 0));
        }
        spans.push(SpanData {
            span_context: self.context(id, true),
            parent_span_id: SpanId::from_bytes(self.context.span().bytes()),
            span_kind: if is_client { SpanKind::Client } else { SpanKind::Internal },
            status: if failed { Status::error("") } else { Status::Unset },
            links,
            ..self.span(name, call.sent, ended, attributes)
        });
        if several {
            spans.extend(call.attempts.iter().zip(0..).map(|(attempt, at)| self.attempt(call, attempt, at, id, ended)));
        }
    }

    fn attempt(
        &self,
        call: &CallRecord,
        attempt: &AttemptRecord,
        at: u32,
        parent: fanin_tracecontext::SpanId,
        latest: Duration,
    ) -> SpanData {
        let mut attributes = Attributes::default();
        let name = attributes.called(call);
        if call.upstream.kind == Kind::Http && at > 0 {
            attributes.number("http.request.resend_count", at);
        }
        if let Some((address, port)) = attempt.endpoint.as_deref().and_then(|endpoint| endpoint.rsplit_once(':')) {
            attributes.text("network.peer.address", address.trim_matches(['[', ']']));
            if let Ok(port) = port.parse::<u16>() {
                attributes.number("network.peer.port", port);
            }
        }
        attributes.text("fanin.attempt", &*attempt.kind);
        let failed = attributes.outcome(call.upstream.kind, &attempt.outcome);
        SpanData {
            span_context: self.context(self.context.attempt(call.number, attempt.number), true),
            parent_span_id: SpanId::from_bytes(parent.bytes()),
            span_kind: SpanKind::Client,
            status: if failed { Status::error("") } else { Status::Unset },
            ..self.span(name, attempt.begun, attempt.ended.unwrap_or(latest).max(attempt.begun), attributes)
        }
    }

    /// A span without its place in the trace.
    fn span(&self, name: String, from: Duration, to: Duration, attributes: Attributes) -> SpanData {
        SpanData {
            span_context: SpanContext::NONE,
            parent_span_id: SpanId::INVALID,
            parent_span_is_remote: false,
            span_kind: SpanKind::Internal,
            name: name.into(),
            start_time: self.started + from,
            end_time: self.started + to,
            attributes: attributes.0,
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: SpanLinks::default(),
            status: Status::Unset,
            instrumentation_scope: InstrumentationScope::builder("fanin")
                .with_version(env!("CARGO_PKG_VERSION"))
                .build(),
        }
    }
}
