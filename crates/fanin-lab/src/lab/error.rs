//! What can stop an experiment.

use std::io;
use std::path::PathBuf;

/// Why an experiment has no result, or its report was not written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LabError {
    /// No experiment has this name.
    #[error("there is no experiment {name:?}{hint}; known are {known}, or `all`")]
    Unknown {
        /// The name that was given.
        name: String,
        /// The nearest name that there is, or nothing.
        hint: String,
        /// All names.
        known: String,
    },
    /// A file of the report cannot be written.
    #[error("{}: cannot write", file.display())]
    Write {
        /// The file.
        file: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file of an earlier report cannot be read.
    #[error("{}: is no result of an experiment ({reason}); remove it, or choose another folder with --out", file.display())]
    Earlier {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// What the experiment needs is not on this machine. The others go on.
    #[error("{0}")]
    Lacks(String),
    /// Something that the experiment did failed.
    #[error("{what}")]
    Io {
        /// What it did.
        what: String,
        /// What the system said.
        source: io::Error,
    },
    /// The load generator failed.
    #[error("load")]
    Load(#[from] fanin_load::LoadError),
    /// An answer or a figure was not what it must be, so that the measurement would mean nothing.
    #[error("{0}")]
    Wrong(String),
}

impl LabError {
    /// What failed, for `map_err`.
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> LabError {
        let what = what.into();
        move |source| LabError::Io { what, source }
    }

    pub(crate) fn wrong(what: impl Into<String>) -> LabError {
        LabError::Wrong(what.into())
    }
}
