//! The trace context of a request (W3C Trace Context, level 2): what came in, what is passed on, and the ids of its spans.
//!
//! - `fuzzing`: for the fuzz target.
//! - `ids`: ids of traces and spans. `traceparent`, `tracestate`: the two headers. `context`: the part of one request in its trace.
//! - `exemplar`: traces that stand for the buckets of histograms.
//!
//! This crate must not know who sends requests or where spans go.

mod context;
mod exemplar;
#[doc(hidden)]
pub mod fuzzing;
mod ids;
mod traceparent;
mod tracestate;

pub use context::{CallParent, Incoming, TraceContext};
pub use exemplar::{Annotations, Exemplar, Exemplars};
pub use ids::{SpanId, TraceId};
pub use traceparent::{TRACEPARENT, Traceparent};
pub use tracestate::TRACESTATE;
