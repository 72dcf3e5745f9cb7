//! The threads executor: a request that is ready takes a thread of a bounded pool and keeps it until its response; where its
//! flow would step aside, the thread blocks.
//!
//! Connections stay on the workers. A flow's machine and values are one thread's alone (`Rc`), so they live on the pool's thread
//! from first to last; what crosses is the request, calls, answers and the reply:
//!
//! ```text
//! worker of the request                         thread of the pool
//! Remote ── job ──────> bounded queue ────────> FlowFuture, polled by `block_on`
//!        <─ call, and where its answer goes ──  LinkCaller
//!        ── answer ──────────────────────────>  wakes the thread
//!        <─ reply ────────────────────────────
//! ```
//!
//! The flow is the one that the other executor runs, from the same code; only its caller differs. So both answer alike, and
//! what is measured between them is the cost of threads.

mod block_on;
mod channel;
mod metrics;
mod pool;
mod queue;
mod quiescence;
mod remote;
mod thread;
mod wait_histogram;

pub(crate) use metrics::Pools;
pub(crate) use pool::Pool;
pub(crate) use remote::run;
