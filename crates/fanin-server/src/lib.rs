//! Listeners, admission, routes, reload, drain, admin pages.
//!
//! The server turns a client's bytes into a parsed, admitted [`Request`], hands it to an [`Application`], and sends the [`Response`]
//! back. The server is generic over the application. It must not know flows, Starlark, upstreams or models.
//!
//! # Map
//! | module | contents |
//! |---|---|
//! | `application`, `guard`, `request`, `response`, `body`, `problem`, `report`, `route_spec` | the interface to the application |
//! | `server`, `control`, `generation`, `watchdog` | start, reload, drain, admin pages, stall detection |
//! | `worker` | a thread with an event loop: accept, run queue, overload detector |
//! | `client` | the client's address behind load balancers, and the bounds of each client |
//! | `upgrade` | connections that go on in another protocol |
//! | `connection` | sockets: protocol detection, timeouts, write coalescing, pre-request errors |
//! | `serve` | one request: from the parsed head to the response |
//! | `router`, `path`, `host` | routes, path checks, the `Host` header |
//! | `cache` | responses that are kept and sent again |
//! | `web` | what browsers and caches expect of responses |
//! | `rpc` | gRPC, gRPC-Web and Connect: which one a request uses, its messages, its end |
//! | `admission` | limiters and permits |
//! | `memory_budget`, `metrics`, `access_log`, `heartbeat`, `incident` | what is measured and reported |
//! | `coarse_timeout`, `wall_clock`, `http_date`, `json_text`, `listeners`, `open_files` | helpers |
//!
//! # The way of a request
//! 1. A *worker* accepts the connection (`worker::accept`). A worker is one OS thread with a current-thread runtime and its own
//!    listeners (`SO_REUSEPORT`). Connections above `max_connections` are closed at once.
//! 2. `connection` tells HTTP/1.1 from HTTP/2 by the first bytes (by ALPN under TLS) and lets hyper serve it. Connection timeouts
//!    cost a request nothing: the connection records its phase, and a housekeeping task scans all connections.
//! 3. `serve` checks the path, finds the route (`router`), gets a permit from `admission`, reads the body under its limits, and
//!    calls [`Worker::handle`]. Whatever fails before that is answered with a [`Problem`]; no upstream is called.
//! 4. The response is measured, logged and sent.
//!
//! # Admission
//! First the bounds of the client, if any are set (`client`), and the application's guard of the route ([`Worker::guard`]). Then three checks, in this order, before any work is done for the
//! request:
//! 1. the memory budget (`memory_budget`),
//! 2. the run queue of a worker that cannot keep up (`worker::run_queue`),
//! 3. the limits of the route and of the server (`admission`).
//!
//! The first two concern this process only. A slow upstream keeps requests in flight, which the limits bound.
//!
//! # Paths
//! Routes are matched on the *raw* path, segment by segment. A path parameter is percent-decoded after the match. Escaped slashes
//! and backslashes (`%2F`, `%5C`, `\`) are refused, kept inside their segment, or made slashes before the match, as
//! `escaped_slashes` says. These are answered 400:
//! - an invalid percent-encoding,
//! - a parameter that is not UTF-8,
//! - any segment that is `.` or `..`, encoded or not.
//!
//! Nothing is normalised: `//` and a trailing slash are part of the path, and match only a route that has them.
//!
//! # Methods
//! A GET route answers HEAD too: the same response without a body. OPTIONS on a known path is answered 204 with `Allow`. A route
//! for HEAD or OPTIONS takes precedence over both.
//!
//! # Errors to clients
//! Every error that the server makes itself is a problem document (RFC 9457, [`Problem`]). That includes those that hyper would answer
//! with an empty body. For HTTP/1.1: 400 `malformed-request`, 408 `head-timeout`, 414 `uri-too-long`, 431 `head-too-large`. For
//! requests: 400 `bad-request`, 404 `no-route`, 405 `method-not-allowed` with `Allow`, 408 `body-timeout`, 413 `body-too-large`,
//! 429 `client-limit` with `Retry-After`, 500 `internal`, 504 `deadline`, and 503 `overloaded` with `Retry-After`. The `reason` of a 503 is `route-limit`, `server-limit`,
//! `priority`, `deadline`, `queueing`, `memory` or `max-connections`. After the answer to a request that was not read to its end, the
//! server keeps reading for a moment, so that a reset does not destroy the answer.
//!
//! # Request smuggling
//! Of `Transfer-Encoding` and `Content-Length` in one request the first counts. The connection ends with the response, so that nothing
//! behind the request is taken for another one. Contradictory or malformed lengths, codings other than `chunked`, and HTTP/1.1
//! requests without exactly one valid `Host` are answered 400.
//!
//! # Threads
//! The workers, and four more whatever the load: control (signals, reload, admin pages), watchdog, access log, and the file watcher if
//! `reload` is on. A reload uses one more while it runs.

mod access_log;
mod admission;
mod application;
mod body;
mod cache;
mod client;
mod coarse_timeout;
mod connection;
mod control;
mod error;
#[doc(hidden)]
pub mod fuzzing;
mod generation;
mod guard;
mod heartbeat;
mod host;
mod http_date;
mod incident;
mod json_text;
mod listeners;
mod memory_budget;
mod metrics;
mod open_files;
mod options;
mod path;
mod problem;
mod report;
mod request;
mod request_end;
mod request_id;
mod response;
mod route_finder;
mod route_spec;
mod router;
pub mod rpc;
mod sender_rate;
mod serve;
mod server;
mod upgrade;
mod upload;
mod wall_clock;
mod watchdog;
mod web;
mod worker;

pub use admission::Permit;
pub use application::{Application, DebugPage, DebugWork, Loader, PageLink, Worker, WorkerContext, is_configuration};
pub use body::{Aborted, Body, BodyStream, Pieces};
pub use control::Exit;
pub use error::{LoadError, StartError};
pub use fanin_config::Priority;
pub use guard::{GuardedHead, Identity, Pass, Verdict};
pub use heartbeat::Activity;
pub use incident::Incident;
pub use memory_budget::MemoryPressure;
pub use metrics::MetricsPage;
pub use options::{BuildInfo, Options};
pub use problem::Problem;
pub use report::{LIMITS, Report};
pub use request::{Params, Request};
pub use request_end::RequestEnd;
pub use request_id::RequestId;
pub use response::Response;
pub use route_finder::{FoundRoute, RouteFinder};
pub use route_spec::RouteSpec;
pub use server::{Handle, start};
pub use upgrade::Upgraded;
pub use upload::{Upload, UploadError};
pub use web::{has_tag, preferred_encoding};
