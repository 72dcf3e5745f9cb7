//! The threads executor: a request takes a thread of a bounded pool and keeps it until its response. While its flow is suspended, the
//! thread blocks.
//!
//! Connections stay on the workers. A flow's machine and values belong to one thread (`Rc`), the pool's. Only the request, calls,
//! answers and the reply are sent between threads:
//!
//! ```text
//! worker of the request                         thread of the pool
//! Remote ── job ──────> bounded queue ────────> FlowFuture, polled by `block_on`
//!        <─ call, and where its answer goes ──  WorkerCaller
//!        ── answer ──────────────────────────>  wakes the thread
//!        <─ reply ────────────────────────────
//! ```
//!
//! The flow is run by the same code as on a worker; only its caller differs.

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
