//! Admission: whether a request may start, by the limits of its route and of the server, before any work is done for it.
//!
//! - `limiter`: one limit and its queue.
//! - `limiters`: all limiters of the process, which outlive reloads.
//! - `permit`: a request's permits, of its route and then of the server.
//! - `refusal`: why a request is refused.
//!
//! The memory budget and the worker's run queue are checked before the limits.

mod limiter;
mod limiters;
mod permit;
mod refusal;

pub(crate) use limiter::Limiter;
pub(crate) use limiters::Limiters;
pub use permit::Permit;
pub(crate) use permit::{Admission, PendingAdmission, RouteLimiters, admit};
pub(crate) use refusal::Refusal;
