//! Flows: requests in, calls out, responses.
//!
//! [`Flows`] compiles every flow of a configuration; [`WorkerFlows`] runs them on one worker. A running flow is a
//! [`FlowFuture`]: the machine of `fanin-lang` runs until it has to wait, `host` makes the calls that it asks for, and what
//! comes back settles the values that were not there yet. `respond` splices them into the response.
//!
//! What runs it is its route's choice: the request's worker, or a thread of a bounded pool (`threads`).
//!
//! There is no timer here: a flow waits only for calls, and each of these ends by the request's deadline (and for a thread, in
//! `threads::remote`).

mod answer;
mod backend;
mod builtins;
mod call;
mod caller;
mod drive;
mod encode;
mod flows;
mod grpc;
mod host;
mod in_a_row;
mod incoming;
mod inflight;
mod json;
mod log;
mod merge;
mod model;
mod modules;
mod operation;
mod plan;
mod reply;
mod respond;
mod threads;
mod trace;
mod turns;
mod unsure;
mod upstream;
mod written;

pub use caller::{CallFuture, Caller};
pub use drive::FlowFuture;
pub use fanin_lang::{Limit, Usage};
pub use flows::{Checked, Flows, WorkerFlows};
pub use incoming::Incoming;
pub use plan::RoutePlan;
pub use reply::{FlowError, Reply, Success};
pub use trace::CallTrace;
