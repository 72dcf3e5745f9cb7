//! What to send, when, and over what.

use std::time::Duration;

use crate::error::LoadError;
use crate::protocol::Protocol;
use crate::request::Request;
use crate::shape::{Arrivals, Shape};
use crate::tls::Trust;

/// A run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What is sent each time.
    pub request: Request,
    /// The rate over time.
    pub shape: Shape,
    /// How requests are spread within it.
    pub arrivals: Arrivals,
    /// The protocol.
    pub protocol: Protocol,
    /// Which certificates are trusted, for an `https` URL.
    pub trust: Trust,
    /// Connections at most. With HTTP/1.1 this bounds the requests in flight as well: others wait for a connection, which counts
    /// as latency.
    pub connections: usize,
    /// Requests in flight or waiting for a connection at most; one more is not sent and counted as unsent.
    pub max_in_flight: usize,
    /// A request without an answer this long after its scheduled moment has timed out.
    pub timeout: Duration,
    /// An answer is good if its status is 2xx and it took at most this long; `None`: however long it took.
    pub good_within: Option<Duration>,
    /// Retries after an answer that is not good, each after a random pause of up to [`Plan::retry_pause`]. The last answer
    /// counts, with its latency from the first attempt's moment.
    pub retries: u32,
    /// See `retries`.
    pub retry_pause: Duration,
    /// Time between two calls of the progress callback.
    pub progress: Duration,
}

impl Plan {
    /// HTTP/1.1 over at most 1,000 connections, evenly spaced, timeout of 10 s.
    pub fn new(request: Request, shape: Shape) -> Self {
        Self {
            request,
            shape,
            arrivals: Arrivals::Even,
            protocol: Protocol::Http1,
            trust: Trust::System,
            connections: 1_000,
            max_in_flight: 50_000,
            timeout: Duration::from_secs(10),
            good_within: None,
            retries: 0,
            retry_pause: Duration::from_millis(200),
            progress: Duration::from_secs(1),
        }
    }

    /// Refuses what cannot be run.
    pub fn check(&self) -> Result<(), LoadError> {
        self.shape.check()?;
        let positive = [
            (self.connections > 0, "connections"),
            (self.max_in_flight > 0, "max_in_flight"),
            (!self.timeout.is_zero(), "timeout"),
            (!self.progress.is_zero(), "progress"),
        ];
        match positive.iter().find(|(holds, _)| !holds) {
            Some((_, name)) => Err(LoadError::Plan(format!("{name} has to be above 0"))),
            None => Ok(()),
        }
    }
}
