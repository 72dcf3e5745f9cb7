//! The compute pool: a fixed number of threads, and a queue for each model in front of them.
//!
//! Queues are bounded by count and by time. A request that is not expected to meet its deadline, given what waits before it,
//! is refused at once. Among models of one priority the earliest deadline goes first (EDF), unless its model has had much
//! more thread time than another one that waits. So a flood of one model delays its own requests, and those of others by a
//! small tolerance only. A model's `limit` bounds the threads that it holds.
//!
//! | module | content |
//! |---|---|
//! | `threads` | the pool and its threads |
//! | `scheduler`, `model_queue` | admission, and which request is next |
//! | `wait_predictor` | correction of predicted waits, learned from past requests |
//! | `batch`, `compute` | running requests, one by one or several as one batch |
//! | `job` | a request in the pool |

mod batch;
mod compute;
mod job;
mod model_queue;
mod scheduler;
mod threads;
mod wait_predictor;

pub(crate) use compute::compute;
pub(crate) use job::{Job, QueueSettings};
pub(crate) use threads::Pool;
