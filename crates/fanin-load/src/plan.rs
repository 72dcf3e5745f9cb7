//! What to send, when, and over what.

use std::time::Duration;

use serde::Serialize;

use crate::error::LoadError;
use crate::request::Request;
use crate::shape::Shape;
use crate::tls::Trust;

/// How requests are spread within the rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Arrivals {
    /// At even distances.
    #[default]
    Even,
    /// As independent users do: with random distances, the same for the same seed.
    Poisson {
        /// Of the random numbers.
        seed: u64,
    },
}

/// The protocol spoken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum Protocol {
    /// One request at a time on a connection.
    #[default]
    #[serde(rename = "HTTP/1.1")]
    Http1,
    /// Many on each of the connections; by prior knowledge, with TLS by ALPN.
    #[serde(rename = "HTTP/2")]
    Http2,
    /// A gRPC call of one message each way, over HTTP/2: the body is the message, without gRPC's five bytes. Codes are counted
    /// as the statuses that HTTP has for them.
    #[serde(rename = "gRPC")]
    Grpc,
}

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
    /// Whose certificate is believed, for an `https` URL.
    pub trust: Trust,
    /// Connections at most. With HTTP/1.1 also the requests under way at most: the others wait for a connection, and that counts as latency.
    pub connections: usize,
    /// Requests in flight or waiting for a connection at most; one more is not sent and counted as unsent.
    pub max_in_flight: usize,
    /// A request that has no answer so long after its scheduled moment is given up.
    pub timeout: Duration,
    /// An answer is good if its status is 2xx and it took at most this long; `None`: however long it took.
    pub good_within: Option<Duration>,
    /// How often a client tries again that got no good answer, after a random pause of up to [`Plan::retry_pause`]. What counts
    /// is the last answer, and latency from the first try's moment.
    pub retries: u32,
    /// See `retries`.
    pub retry_pause: Duration,
    /// Time between two calls of the progress callback.
    pub progress: Duration,
}

impl Plan {
    /// HTTP/1.1 over at most 1,000 connections, evenly spaced, 10 s patience.
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
