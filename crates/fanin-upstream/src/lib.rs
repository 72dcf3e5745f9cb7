//! Calls to upstreams: policies, limits, connections.
//!
//! [`Upstreams`] is process-wide: limits, budgets, breakers and what is known of endpoints are shared by all workers and
//! survive a reload. [`WorkerClient`] is one worker's: connections and counters, so that a call touches nothing of another
//! thread but a few atomics. [`Upstream::call`] puts the two together; [`upstream`](Upstream) shows the order of the policies
//! at one sight.
//!
//! What a call never does: outlive its deadline, wait in a queue without a bound, read an answer without a bound, leave
//! anything behind when it is dropped.

mod answer_headers;
mod call;
mod call_options;
mod deadline_timer;
mod endpoint;
mod error;
#[doc(hidden)]
pub mod fuzzing;
pub mod grpc;
mod headers;
mod limiter;
mod metrics;
mod offload;
mod policy;
mod request;
mod resolve;
pub mod shared;
mod snapshot_refresh;
mod transport;
mod upstream;
mod upstreams;
mod worker;

pub use answer_headers::Headers;
pub use error::{BuildError, CallError, ErrorKind, Fault};
pub use limiter::poll_scope;
pub use request::{Answer, CallContext, Request};
pub use transport::model::{ModelAnswer, ModelBackend, ModelFailure, ModelFuture, ModelRequest};
pub use upstream::Upstream;
pub use upstreams::Upstreams;
pub use worker::WorkerClient;
