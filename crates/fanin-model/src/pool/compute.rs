//! Running an engine, and recording how long that took.

use std::time::{Duration, Instant};

use crate::repository::Version;
use crate::{InferError, Tensor};

/// Computes a request on the calling thread.
pub(crate) fn compute(
    version: &Version,
    inputs: &[Tensor],
    wanted: u64,
    rows: usize,
) -> Result<Vec<Tensor>, InferError> {
    let started = Instant::now();
    let outputs = catch_panic(version, inputs, wanted)?;
    let took = started.elapsed();
    version.observe(rows, took);
    version.stats().executed(rows, took);
    version.stats().success(Duration::ZERO, took);
    Ok(outputs)
}

/// Runs the engine. A panic becomes an error of this request alone.
pub(super) fn catch_panic(version: &Version, inputs: &[Tensor], wanted: u64) -> Result<Vec<Tensor>, InferError> {
    // Unwind safe: an engine does not change when it computes.
    let infer = || version.engine().infer(inputs, wanted);
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(infer)).unwrap_or_else(|_| {
        tracing::error!("{version:?}: the engine panicked");
        Err(InferError::Engine("the engine panicked".to_owned()))
    })
}
