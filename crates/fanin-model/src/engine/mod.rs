//! Engines: what computes a model.

pub mod onnx;
pub mod trees;

use crate::{InferError, Signature, Tensor};

/// A loaded model version. Shared by all threads; nothing in it changes.
pub trait Engine: Send + Sync {
    /// The protocol's `platform` of the model.
    fn platform(&self) -> &str;

    /// Inputs and outputs.
    fn signature(&self) -> &Signature;

    /// Bytes that the model holds.
    fn memory(&self) -> usize;

    /// Whether rows (the first dimension of all inputs and outputs) are computed independently of each other, so that
    /// requests may be put together and taken apart again.
    fn rows_are_independent(&self) -> bool;

    /// Whether a request that takes little may be computed on the thread that received it, which serves others as well: it
    /// must not wait there for anything.
    fn may_compute_inline(&self) -> bool {
        true
    }

    /// Computes outputs for inputs that fit the signature. `wanted` has a bit for each output of the signature, in its
    /// order; outputs are given in that order.
    ///
    /// # Errors
    /// [`InferError::Engine`] if the engine failed, [`InferError::Invalid`] if the values are such that it can't.
    fn infer(&self, inputs: &[Tensor], wanted: u64) -> Result<Vec<Tensor>, InferError>;
}
