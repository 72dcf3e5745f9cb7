//! Why tests cannot run.

use fanin_config::Diagnostic;

/// Why tests cannot run. What is wrong with one test is its outcome.
#[derive(Debug, thiserror::Error)]
pub enum TestError {
    /// The configuration or a file has errors.
    #[error("{} errors in the configuration, the flows or the tests", .0.len())]
    Diagnostics(Vec<Diagnostic>),
    /// Flows that were right a moment ago.
    #[error("the flows have changed while tests ran: {}", list(.0))]
    Flows(Vec<Diagnostic>),
    /// Upstreams that were right a moment ago.
    #[error("the upstreams have changed while tests ran: {}", .0.join("; "))]
    Upstreams(Vec<String>),
    /// Routes that contradict each other.
    #[error("{0}")]
    Routes(String),
    /// A file of snapshots, or another one that tests need.
    #[error("{path}: {what}")]
    File {
        /// The file.
        path: String,
        /// What is wrong.
        what: String,
    },
    /// The runtime of a test.
    #[error("the runtime of a test cannot start")]
    Runtime(#[from] std::io::Error),
}

fn list(found: &[Diagnostic]) -> String {
    found.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}
