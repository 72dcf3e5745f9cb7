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
mod builtins;
mod call;
mod caller;
mod encode;
mod executor;
mod fair_scheduler;
mod flow_future;
mod flow_host;
mod flows;
mod inflight;
mod json;
mod kinds;
mod log;
mod merge;
mod modules;
mod placeholder;
mod plan;
mod reply;
mod request_object;
mod respond;
mod route;
mod sequential_waits;
mod threads;
mod trace;
mod worker;

pub use caller::{CallFuture, Caller};
pub use fanin_lang::{Limit, Usage};
pub use flow_future::FlowFuture;
pub use flows::{Checked, Flows, WorkerFlows};
pub use plan::RoutePlan;
pub use reply::{FlowError, Reply, Success};
pub use request_object::IncomingRequest;
pub use trace::CallTrace;
