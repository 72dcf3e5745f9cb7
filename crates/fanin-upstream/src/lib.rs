//! Calls to upstreams: policies, limits, connections.
//!
//! The way of a call: [`Upstream::call`] (`call`) sets the deadline, applies the policies in their order
//! (`call/policies.rs`), and sends each attempt over a transport (`transport`).
//!
//! - `upstreams`, `upstream`: the upstreams of a configuration and what a reload keeps. Process-wide.
//! - `worker`: connections, counters and resolver of one worker. Never shared with another thread.
//! - `call`, `call_options`, `deadline_timer`: a call, the settings of its operation, its deadline.
//! - `policy`, `limiter`: breaker, retry, hedge, load balancing, outlier detection; limits and permits.
//! - `endpoint`, `resolve`: instances of an upstream, and how DNS names become addresses.
//! - `transport`: HTTP/1.1, HTTP/2, gRPC, SQL, files, models. To add one, touch only that folder.
//! - `grpc`: descriptors, and messages as JSON.
//! - `shared`, `snapshot_refresh`: single-flight, caches, snapshots.
//! - `attempt_log`, `exchange`: the attempts of a call, for whoever wants to see them, and what they sent and got.
//! - `request`, `headers`, `answer_headers`, `error`, `metrics`, `offload`: what all of the above use.
//!
//! A call never outlives its deadline, never waits in an unbounded queue, never reads an unbounded answer, and leaves
//! nothing behind when it is dropped.
//!
//! This crate must not know flows, routes, or models: a call gets a request and a context, and models are behind the
//! trait [`ModelBackend`].

mod answer_headers;
mod attempt_log;
mod call;
mod call_options;
mod deadline_timer;
mod endpoint;
mod error;
mod error_kind;
mod exchange;
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
pub use attempt_log::{AttemptLog, LoggedAttempt};
pub use call::{Bodies, BodySlot, StreamBounds, StreamedBody};
pub use error::{BuildError, CallError, ErrorKind, Fault};
pub use exchange::{Exchange, ExchangeEnd};
pub use limiter::poll_scope;
pub use request::{Answer, CallContext, Request};
pub use transport::model::{ModelAnswer, ModelBackend, ModelFailure, ModelFuture, ModelRequest};
pub use transport::part_source::Ending;
pub use transport::stub::{Stub, StubAnswer, StubFailure, StubFuture, StubRequest, without_network};
pub use transport::upload::{Upload, UploadBroken, UploadSlot};
pub use upstream::Upstream;
pub use upstreams::Upstreams;
pub use worker::WorkerClient;
