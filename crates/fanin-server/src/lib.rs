//! Listeners, admission, routes, reload, drain, admin pages.
//!
//! The server takes a client's bytes to a parsed, admitted [`Request`], gives it to an [`Application`], and takes the
//! [`Response`] back to the client. What a request means is the application's; the server is generic over it.
//!
//! # The way of a request
//! 1. A *worker* (one OS thread with a current-thread runtime and listeners of its own, `SO_REUSEPORT`) accepts the
//!    connection, `worker::accept`. Connections above `max_connections` are closed at once.
//! 2. `connection` tells HTTP/1.1 from HTTP/2 by the first bytes (by ALPN under TLS) and lets hyper serve it. Timeouts of
//!    connections cost a request nothing: it only notes what it does and since when, and one coarse `sweep` a worker looks
//!    at all connections.
//! 3. `serve` checks the path, finds the route (`router`), asks `admission` for a place, reads the body under its
//!    limits, and calls [`Worker::handle`]. Whatever fails before that is answered with a [`Problem`] and costs no
//!    upstream anything.
//! 4. The response is measured, logged and sent.
//!
//! # Admission
//! In this order, each before any work is done for the request: the memory budget (`memory`), the queue in front of a worker
//! that cannot keep up (`worker::ready`), the limit of the route and of the server (`admission`). The first two look at
//! this process only: a slow upstream keeps requests in flight, which is what the limits are for, and not in our way.
//!
//! # Paths
//! Routes are matched on the *raw* path, segment by segment. A path parameter is percent-decoded after the match, so an
//! encoded slash (`%2F`) stays inside its segment. Answered 400: an invalid percent-encoding, a parameter that is not
//! UTF-8, and any segment that is `.` or `..`, encoded or not (a parameter can therefore never climb out of an upstream's
//! path). Nothing is normalised: `//` and a trailing slash are part of the path, and match only a route that has them.
//!
//! # Errors to clients
//! Whatever is answered without the application is a problem document (RFC 9457, [`Problem`]), also what hyper would answer
//! by itself with an empty body. With HTTP/1.1: 400 `malformed-request`, 408 `head-timeout`, 414 `uri-too-long`, 431
//! `head-too-large`. For requests: 400 `bad-request`, 404 `no-route`, 405 `method-not-allowed` with `Allow`, 408
//! `body-timeout`, 413 `body-too-large`, 500 `internal`, 503 `overloaded` with `Retry-After` and a `reason` (`route-limit`,
//! `server-limit`, `priority`, `deadline`, `queueing`, `memory`, `max-connections`), 504 `deadline`. After an answer to a request that was not
//! read to its end, the server goes on reading for a moment, so that the answer is not lost in a reset.
//!
//! # Request smuggling
//! Of a request with `Transfer-Encoding` and `Content-Length` the first counts, and the connection ends with the response, so
//! that nothing behind it is taken for a request. Contradictory or malformed lengths, codings other than `chunked`, and
//! HTTP/1.1 requests without exactly one `Host` are answered 400.
//!
//! # Threads
//! The workers, and four more whatever the load: control (signals, reload, admin pages), watchdog, access log, and the
//! file watcher where `reload` is on. A reload uses one more while it runs.

mod access_log;
mod activity;
mod admission;
mod application;
mod body;
mod clock;
mod connection;
mod control;
mod error;
mod generation;
mod limits;
mod listen;
mod memory;
mod metrics;
mod path;
mod problem;
mod request;
mod response;
mod router;
mod serve;
mod server;
mod sweep;
mod tls;
mod watchdog;
mod worker;

pub use activity::Activity;
pub use admission::Permit;
pub use application::{Application, DebugPage, DebugWork, Loader, RouteSpec, Worker, WorkerContext};
pub use body::{Body, Pieces};
pub use error::{LoadError, StartError};
pub use fanin_config::Priority;
pub use memory::MemoryPressure;
pub use problem::Problem;
pub use request::{Params, Request, RequestId};
pub use response::{LIMITS, Report, Response};
pub use server::{BuildInfo, Exit, Handle, Options, start};
