//! Model inference in the server's process: LightGBM, XGBoost and ONNX models, served by the Open Inference Protocol.
//!
//! | module | content |
//! |---|---|
//! | [`engine`] | engines: they load a model file and compute it |
//! | `repository` | the folder of models, loading and swapping versions, running inference requests |
//! | `pool` | the compute pool: threads, model queues, scheduler, wait predictor |
//! | [`protocol`] | gRPC and HTTP listeners of the protocol |
//! | `flow_request` | inference requests of flows |
//! | `tensor`, `json` | tensors, signatures, and their JSON form |
//! | `stats`, `metrics`, `error` | counters, Prometheus metrics, errors |
//! | `fuzzing` | entry points for fuzz targets |
//!
//! Imports point down this way: `protocol` and `flow_request` use `repository`, that uses `pool` and `engine`. Only
//! `repository::version` is used by `pool`.
//!
//! The crate must not know about flows, upstreams or the server's workers: it takes bytes, deadlines and a priority.
//!
//! A model that uses a feature which its engine lacks is refused when it is loaded. None is computed wrongly.

pub mod engine;
mod error;
mod flow_request;
#[doc(hidden)]
pub mod fuzzing;
mod json;
mod metrics;
mod pool;
pub mod protocol;
mod repository;
mod stats;
mod tensor;

pub use error::{InferError, LoadError};
pub use repository::{Answer, Indexed, Infer, Model, Models, Version, dry_run};
pub use stats::{Counted, Stats};
pub use tensor::{Data, DataType, Shape, Signature, Tensor, TensorSpec};
