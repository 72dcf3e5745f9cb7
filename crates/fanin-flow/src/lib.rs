//! Flows: requests in, calls out, responses.
//!
//! [`Flows`] compiles the flows of a configuration, [`WorkerFlows`] runs them on one worker, and a [`FlowFuture`] is one running
//! flow. A [`Caller`] sends its calls. The crate must not know sockets, connections or listeners.
//!
//! - Loading: `flows` compiles and checks, `modules` finds files and upstreams, `placeholder` stands in for an invalid upstream,
//!   `builtins` adds `response` and `abort`, `push` adds channels, `plan` prints `fanin check --plan`,
//!   `plan_changes` and `plan_report` compare two, `budget` holds them against budgets, `route` is one compiled flow.
//! - Running: `flow_future` is what the server polls. `before` is a flow that decides whether the route's own runs. `executor` runs the machine of `fanin-lang` for one flow. `fair_scheduler`
//!   alternates CPU-bound flows. `threads` is the executor with a pool of threads. `worker` is the state of one worker's flows.
//! - Calls: `call` captures arguments and options, `kinds` has a file for each kind of upstream, `flow_host` is the machine's host:
//!   it sends calls and settles their pending values. `merge` has batches, single-flight and caches. `inflight` awaits answers
//!   and parses their bodies.
//! - Values: `request_object` is `req`, `client_identity` who sends it, and `upload` its body if it is not collected. `answer` is a call's answer. `json` and `encode`
//!   write bodies and URLs. `refused_path` says why a path was not sent. `json_thread` parses large bodies off the worker.
//! - Ends: `respond` splices answers into the response. `streamed` passes an answer on without collecting it, `messages` the
//!   stream of a gRPC upstream, `progressive` sends the response in parts. `reply` is the outcome, `flow_error` why there is none. `log` and `sequential_waits` report.
//! - Explanations: `call_record`, `flow_record` and `full_record` keep what happened, `call_ring` has the calls of many ended flows, `playback` answers a flow that runs again as it was recorded, `explain` says what
//!   a longer or shorter call would have changed. `recorded_call` is what recordings keep of a call.
//!
//! `describe` tells editors what upstreams offer. `fuzzing` has entry points for tests.
//!
//! Timers are rare here: a flow awaits only calls, and every call ends by the request's deadline.

mod answer;
mod before;
mod budget;
mod builtins;
mod call;
mod call_record;
mod call_ring;
mod caller;
mod client_error;
mod client_headers;
mod client_identity;
mod cookies;
mod describe;
mod encode;
mod executor;
mod explain;
mod fair_scheduler;
mod flow_error;
mod flow_future;
mod flow_host;
mod flow_record;
mod flows;
mod form;
mod full_record;
#[doc(hidden)]
pub mod fuzzing;
mod incoming_request;
mod inflight;
mod json;
mod json_thread;
mod kinds;
mod log;
mod merge;
mod messages;
mod modules;
mod name_index;
mod own_objects;
mod partial;
mod placeholder;
mod plan;
mod plan_changes;
mod plan_report;
mod playback;
mod progressive;
mod push;
mod recorded_call;
mod redirect;
mod refused_path;
mod reply;
mod request_docs;
mod request_object;
mod respond;
mod response_object;
mod returns;
mod route;
mod rpc_status;
mod sequential_waits;
mod signing;
mod signing_keys;
mod streamed;
mod threads;
mod upload;
mod worker;

pub use call_record::Detail;
pub use call_ring::{CallRing, RingEntry};
pub use caller::{CallFuture, Caller};
pub use client_identity::ClientIdentity;
pub use describe::{MethodDescription, UpstreamDescription, describe, globals};
pub use explain::{Explanation, explain, replay};
pub use fanin_lang::{Limit, Usage};
pub use flow_error::FlowError;
pub use flow_future::FlowFuture;
pub use flow_record::FlowRecord;
pub use flows::{Checked, Flows, LoadedProgram, WorkerFlows};
pub use form::{encode as encode_form, encode_multipart};
pub use incoming_request::IncomingRequest;
pub use json::to_json;
pub use json_thread::parse_inline;
pub use modules::{Module, resolve};
pub use plan::RoutePlan;
pub use plan_changes::{ChangeKind, PlanChanges, RouteChange};
pub use recorded_call::{RecordedAnswer, RecordedCall};
pub use reply::{Incomplete, MessageStream, Reply, ReplyBody, ReplyStream, Success, Summary};
pub use rpc_status::RpcStatus;
pub use upload::ClientUpload;
