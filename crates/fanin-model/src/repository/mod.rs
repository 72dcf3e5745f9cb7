//! The repository: a folder of models and versions, and the table of those that are loaded.
//!
//! One thread, the reconciler, scans the folder twice a second, loads new versions beside the running ones and swaps in a new
//! table atomically. A request takes its version once and keeps it to the end, so each answer is of exactly one version. A
//! version's memory is freed when its last request has ended.
//!
//! | module | content |
//! |---|---|
//! | `models` | the public handle: start, look-up, index, load and unload |
//! | `model`, `version` | a model and its loaded versions |
//! | `shared` | what requests, reconciler and pool share |
//! | `infer` | an inference request, from its check to its answer |
//! | `reconciler`, `load`, `scan` | bringing the loaded versions in line with the folder |
//! | `dry_run` | the same scan without loading, for `fanin check` |

mod dry_run;
mod infer;
mod load;
mod model;
mod models;
mod reconciler;
mod scan;
mod shared;
mod version;

pub use dry_run::dry_run;
pub use infer::{Answer, Infer};
pub use model::{Indexed, Model};
pub use models::Models;
pub(crate) use shared::Bounds;
pub use version::Version;
