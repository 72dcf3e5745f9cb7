//! A request that has ended, for its trace.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use fanin_tracecontext::TraceContext;
use http::{Method, Version};

/// A request that has ended.
#[derive(Debug)]
pub struct RequestEnd<'a> {
    /// Its part of the trace.
    pub trace: &'a Arc<TraceContext>,
    /// From its head to the end of its response.
    pub duration: Duration,
    /// The method as sent.
    pub method: &'a Method,
    /// The path as sent.
    pub path: &'a str,
    /// Whether it came over TLS.
    pub secure: bool,
    /// The route, if one matched: its index in [`Application::routes`](crate::Application::routes).
    pub route: Option<usize>,
    /// The status; 499 if the client left.
    pub status: u16,
    /// The client's address.
    pub remote: SocketAddr,
    /// The protocol's version.
    pub version: Version,
}
