//! Errors of loading a model and of inference requests.

use std::path::PathBuf;

/// Why a model version cannot be loaded. A running version is not affected.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A file or folder cannot be read.
    #[error("{}: cannot be read: {source}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file violates its format: truncated, contradictory, or something else altogether.
    #[error("{at}: {what}")]
    Broken {
        /// The place: a file, a tree, a node, a key.
        at: String,
        /// What is wrong there.
        what: String,
    },
    /// The model is valid, but uses a feature that the engine lacks.
    #[error("{at}: {what}; this engine does not support it, so the model is refused")]
    Unsupported {
        /// The place.
        at: String,
        /// The feature.
        what: String,
    },
    /// The model exceeds what is left of a limit.
    #[error("{what}: {bytes} bytes, {limit} are allowed ({key})")]
    TooLarge {
        /// What is too large.
        what: String,
        /// Its size.
        bytes: u64,
        /// The bound.
        limit: u64,
        /// The configuration key of the bound.
        key: &'static str,
    },
    /// The signature differs from the running version's.
    #[error("{0}")]
    Signature(String),
    /// The library that computes the model cannot be loaded.
    #[error("{0}")]
    Library(String),
    /// The outputs for the model's sample differ from the expected ones.
    #[error("sample.json: {0}")]
    Sample(String),
}

impl LoadError {
    pub(crate) fn broken(at: impl Into<String>, what: impl Into<String>) -> LoadError {
        LoadError::Broken { at: at.into(), what: what.into() }
    }

    pub(crate) fn unsupported(at: impl Into<String>, what: impl Into<String>) -> LoadError {
        LoadError::Unsupported { at: at.into(), what: what.into() }
    }
}

/// Why an inference request failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InferError {
    /// The request does not fit the model's signature.
    #[error("{0}")]
    Invalid(String),
    /// No such model, or not this version of it.
    #[error("{0}")]
    NotFound(String),
    /// The model is known, but no version of it is ready.
    #[error("{0}")]
    Unavailable(String),
    /// The queue is full, or so long that the request would miss its deadline.
    #[error("{0}")]
    Overloaded(String),
    /// The deadline passed before the answer was computed.
    #[error("{0}")]
    Deadline(String),
    /// The engine failed.
    #[error("{0}")]
    Engine(String),
}

impl InferError {
    /// The error's name in metrics and messages.
    pub const fn as_str(&self) -> &'static str {
        match self {
            InferError::Invalid(_) => "invalid",
            InferError::NotFound(_) => "not_found",
            InferError::Unavailable(_) => "unavailable",
            InferError::Overloaded(_) => "overloaded",
            InferError::Deadline(_) => "deadline",
            InferError::Engine(_) => "engine",
        }
    }
}
