//! One request within its trace.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use http::{HeaderMap, HeaderValue};

use crate::ids::{SpanId, TraceId};
use crate::traceparent::{SAMPLED, TRACEPARENT, Traceparent};
use crate::tracestate;

/// Attempts of a call that have ids of their own. Retries are bounded far below it.
const ATTEMPTS: u64 = 1 << 16;

/// What a request says about its trace.
#[derive(Clone, Debug, PartialEq)]
pub struct Incoming {
    parent: Traceparent,
    state: Option<HeaderValue>,
}

impl Incoming {
    /// Reads the headers. `None`: there is no valid `traceparent`, or more than one.
    pub fn read(headers: &HeaderMap) -> Option<Incoming> {
        let mut values = headers.get_all(TRACEPARENT).iter();
        let parent = Traceparent::parse(values.next()?.as_bytes())?;
        if values.next().is_some() {
            return None;
        }
        Some(Incoming { parent, state: tracestate::read(headers) })
    }
}

/// One request within its trace.
pub struct TraceContext {
    trace: TraceId,
    /// The request's own span.
    span: SpanId,
    parent: Option<SpanId>,
    flags: u8,
    state: Option<HeaderValue>,
    recorded: bool,
    record: Mutex<Option<Box<dyn Any + Send>>>,
}

impl TraceContext {
    /// Goes on with the caller's trace, and with its decision to record it. `recorded`: the calls are, because spans may be exported.
    pub fn of(incoming: Incoming, recorded: bool) -> TraceContext {
        let Incoming { parent: Traceparent { trace, parent, flags }, state } = incoming;
        TraceContext {
            trace,
            span: SpanId::random(),
            parent: Some(parent),
            flags,
            state,
            recorded,
            record: Mutex::default(),
        }
    }

    /// Begins a trace. `sampled` decides by its id.
    pub fn begin(sampled: impl FnOnce(TraceId) -> bool, recorded: bool) -> TraceContext {
        let trace = TraceId::random();
        TraceContext {
            trace,
            span: SpanId::random(),
            parent: None,
            flags: u8::from(sampled(trace)),
            state: None,
            recorded,
            record: Mutex::default(),
        }
    }

    /// The trace.
    pub fn id(&self) -> TraceId {
        self.trace
    }

    /// The request's span.
    pub fn span(&self) -> SpanId {
        self.span
    }

    /// The caller's span.
    pub fn parent(&self) -> Option<SpanId> {
        self.parent
    }

    /// What systems before this one have written, as it came.
    pub fn state(&self) -> Option<&HeaderValue> {
        self.state.as_ref()
    }

    /// Whether it was decided at its start that its spans are exported.
    pub fn is_sampled(&self) -> bool {
        self.flags & SAMPLED != 0
    }

    /// Whether its calls are recorded.
    pub fn is_recorded(&self) -> bool {
        self.recorded
    }

    /// The span of an attempt of a call. It follows from the numbers, so nothing has to be kept for it.
    pub fn attempt(&self, call: u32, attempt: u32) -> SpanId {
        self.span.derive(u64::from(call) * ATTEMPTS + u64::from(attempt) % ATTEMPTS)
    }

    /// The `traceparent` of an attempt.
    pub fn traceparent(&self, parent: SpanId) -> [u8; 55] {
        Traceparent { trace: self.trace, parent, flags: self.flags }.text()
    }

    /// Keeps what is known of its calls until the request has ended.
    pub fn set_record(&self, record: Box<dyn Any + Send>) {
        *self.record.lock().unwrap_or_else(PoisonError::into_inner) = Some(record);
    }

    /// Takes what was kept.
    pub fn take_record(&self) -> Option<Box<dyn Any + Send>> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl fmt::Debug for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.trace, self.span)
    }
}

/// To which call of which request an upstream request belongs.
#[derive(Clone, Debug)]
pub struct CallParent {
    /// The request.
    pub request: Arc<TraceContext>,
    /// The call's number within it.
    pub call: u32,
    /// The number of the first attempt. A call that sends several requests numbers all attempts.
    pub first: u32,
}

impl CallParent {
    /// The span of an attempt.
    pub fn attempt(&self, number: u32) -> SpanId {
        self.request.attempt(self.call, self.first.wrapping_add(number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn incoming() -> Incoming {
        let mut headers = HeaderMap::new();
        let text = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        headers.insert(TRACEPARENT, HeaderValue::from_static(text));
        headers.insert(tracestate::TRACESTATE, HeaderValue::from_static("a=1"));
        Incoming::read(&headers).expect("it is valid")
    }

    #[test]
    fn each_attempt_has_a_parent_of_its_own() {
        let trace = TraceContext::of(incoming(), false);
        let ids = [trace.span(), trace.attempt(0, 0), trace.attempt(0, 1), trace.attempt(1, 0)];
        for (at, id) in ids.iter().enumerate() {
            assert!(!ids[..at].contains(id) && Some(*id) != trace.parent(), "{ids:?}");
        }
        let text = trace.traceparent(ids[1]);
        assert!(text.starts_with(b"00-0af7651916cd43dd8448eb211c80319c-") && text.ends_with(b"-01"));
        assert_eq!(trace.state(), Some(&HeaderValue::from_static("a=1")));
    }
}
