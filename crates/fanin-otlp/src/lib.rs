//! Sends spans and metrics to a collector by the OpenTelemetry protocol (OTLP), over gRPC or HTTP.
//!
//! - `record`: a request that has ended, with its calls. `metrics`: what is counted here.
//! - `export`: the handle; it gives records to a thread of its own, and never waits. `thread`: what that does.
//! - `spans`: records as spans, by the semantic conventions of OpenTelemetry. `attributes`: their parts.
//! - `text`: metrics as the program writes them. `measurements`: the same as OpenTelemetry's.
//! - `collector`: the connection. `tls`, `post`: TLS, and HTTP.
//!
//! Without the feature `export`, a configuration that wants it is refused. The crate must not know how a request is run.

mod metrics;
mod record;

#[cfg(feature = "export")]
mod attributes;
#[cfg(feature = "export")]
mod collector;
#[cfg(feature = "export")]
mod export;
#[cfg(not(feature = "export"))]
#[path = "without.rs"]
mod export;
#[cfg(feature = "export")]
mod measurements;
#[cfg(feature = "export")]
mod post;
#[cfg(feature = "export")]
mod spans;
#[cfg(feature = "export")]
mod text;
#[cfg(feature = "export")]
mod thread;
#[cfg(feature = "export")]
mod tls;

pub use export::{Export, Target, check};
pub use record::{AttemptRecord, CallRecord, Kind, RequestRecord, UpstreamRecord};
