//! Models in process: engines that compute them, a repository that loads and swaps them, a bounded pool of threads that
//! runs them, and the Open Inference Protocol in front.
//!
//! A model that needs what an engine lacks is refused when it is loaded, with what and where. None is answered wrongly.

pub mod engine;
mod error;
#[doc(hidden)]
pub mod fuzzing;
mod json;
mod metrics;
mod pool;
pub mod protocol;
mod question;
mod repository;
mod stats;
mod tensor;

pub use error::{InferError, LoadError};
pub use repository::{Answer, Indexed, Infer, Model, Models, Version, look};
pub use stats::{Counted, Stats};
pub use tensor::{Data, DataType, Shape, Signature, Tensor, TensorSpec};
