//! Reads any bytes as the headers of a trace, for the fuzz target `trace`.

use http::{HeaderMap, HeaderValue};

use crate::{Incoming, TRACEPARENT, TRACESTATE, TraceContext, Traceparent};

/// The first line is `traceparent`, each further one `tracestate`. Whether there is a trace with a state.
///
/// # Panics
/// If what is passed on is not valid, longer than allowed, or another trace.
pub fn headers(bytes: &[u8]) -> bool {
    let mut headers = HeaderMap::new();
    for (at, line) in bytes.split(|byte| *byte == b'\n').enumerate().take(64) {
        let Ok(value) = HeaderValue::from_bytes(line) else { return false };
        headers.append(if at == 0 { TRACEPARENT } else { TRACESTATE }, value);
    }
    let Some(incoming) = Incoming::read(&headers) else { return false };
    let context = TraceContext::of(incoming.clone(), false);
    // What an upstream gets says the same again.
    let mut sent = HeaderMap::new();
    let parent = context.parent().expect("a caller's trace has a parent");
    let text = context.traceparent(parent);
    assert!(Traceparent::parse(&text).is_some_and(|sent| sent.trace == context.id()));
    sent.insert(TRACEPARENT, HeaderValue::from_bytes(&text).expect("text"));
    if let Some(state) = context.state() {
        assert!(!state.is_empty() && state.len() <= 512, "{state:?}");
        sent.insert(TRACESTATE, state.clone());
    }
    assert_eq!(Incoming::read(&sent), Some(incoming));
    context.state().is_some()
}
