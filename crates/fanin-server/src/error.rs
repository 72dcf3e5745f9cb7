//! Errors at start and in a reload.

use std::fmt;
use std::io;
use std::net::SocketAddr;

/// Why an application could not be loaded: every diagnostic, as text.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadError {
    /// One entry for each diagnostic, with file, line and column if known.
    pub diagnostics: Vec<String>,
}

impl LoadError {
    /// An error of a single diagnostic.
    pub fn new(diagnostic: impl Into<String>) -> LoadError {
        LoadError { diagnostics: vec![diagnostic.into()] }
    }
}

impl From<Vec<String>> for LoadError {
    fn from(diagnostics: Vec<String>) -> LoadError {
        LoadError { diagnostics }
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, diagnostic) in self.diagnostics.iter().enumerate() {
            if at > 0 {
                f.write_str("\n")?;
            }
            f.write_str(diagnostic)?;
        }
        Ok(())
    }
}

impl std::error::Error for LoadError {}

/// Why the server could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The first application could not be loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// An address could not be listened on.
    #[error("cannot listen on {address} ([server] {key})")]
    Listen {
        /// The key of `[server]` that names the address.
        key: &'static str,
        /// The address.
        address: SocketAddr,
        /// The system error.
        #[source]
        source: io::Error,
    },
    /// The access log could not be opened.
    #[error("cannot open the access log {path} ([server] access_log)")]
    AccessLog {
        /// The file.
        path: String,
        /// The system error.
        #[source]
        source: io::Error,
    },
    /// A thread, runtime or signal handler could not be created.
    #[error("cannot start {what}")]
    System {
        /// What should have started.
        what: &'static str,
        /// The system error.
        #[source]
        source: io::Error,
    },
}
