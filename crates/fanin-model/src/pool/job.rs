//! An inference request in the pool, and the settings of a model's queue.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fanin_config::Priority;
use tokio::sync::oneshot;

use crate::repository::Version;
use crate::{InferError, Tensor};

/// An inference request in the pool.
pub(crate) struct Job {
    pub version: Arc<Version>,
    pub inputs: Vec<Tensor>,
    /// A bit for each requested output.
    pub wanted: u64,
    pub rows: usize,
    /// Expected nanoseconds of computing.
    pub predicted: u64,
    pub deadline: Instant,
    pub queued: Instant,
    /// Predicted nanoseconds of waiting, without the correction of the wait predictor. Set by the scheduler.
    pub expected: u64,
    pub reply: oneshot::Sender<Result<Vec<Tensor>, InferError>>,
}

impl Job {
    /// Answers with an error.
    pub fn refuse(self, error: InferError) {
        // The caller may have dropped its future.
        let _ = self.reply.send(Err(error));
    }
}

/// Settings of a model's queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueueSettings {
    pub priority: Priority,
    /// Threads held at a time; 0 means all but one.
    pub limit: usize,
    /// Rows of a batch at most.
    pub max_batch: usize,
    /// How long the first request of a batch waits for others.
    pub max_delay: Duration,
}
