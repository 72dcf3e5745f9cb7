//! Errors of the load generator and the fault injector.

use std::net::SocketAddr;

/// Why a plan cannot be run, or a fault injector cannot start.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The URL is malformed, or its scheme is neither `http` nor `https`.
    #[error("{url}: {why}")]
    Url {
        /// The URL as given.
        url: String,
        /// What is wrong with it.
        why: String,
    },
    /// A line of a header file is not `name: value`.
    #[error("header line {line}: {why}")]
    Header {
        /// Line, from 1.
        line: usize,
        /// What is wrong with it.
        why: String,
    },
    /// A value of the plan is invalid.
    #[error("{0}")]
    Plan(String),
    /// The target's name does not resolve.
    #[error("cannot resolve {host}: {cause}")]
    Resolve {
        /// The name.
        host: String,
        /// Why.
        cause: std::io::Error,
    },
    /// The fault injector cannot listen.
    #[error("cannot listen on {addr}: {cause}")]
    Listen {
        /// Where.
        addr: SocketAddr,
        /// Why.
        cause: std::io::Error,
    },
    /// Certificates cannot be used.
    #[error("TLS: {0}")]
    Tls(String),
    /// A thread cannot be started.
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
    /// The plot cannot be drawn.
    #[error("cannot draw the plot: {0}")]
    Plot(String),
}
