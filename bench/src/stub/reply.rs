//! What the stub does with a request.

use std::time::Duration;

/// A prepared answer to one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Index of the answer's bytes in `Answers`.
    pub answer: usize,
    /// How long after the request's arrival it is sent.
    pub delay: Duration,
}

/// What the stub does with a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Sends a prepared answer.
    Reply(Reply),
    /// Sends an answer made for this request alone, after a delay from its arrival.
    Made(Vec<u8>, Duration),
    /// Keeps the connection open and never answers.
    Silence,
    /// Sends the stub's own counters.
    Counters,
}

/// A whole 200 answer with a JSON body.
pub fn ok(body: &[u8]) -> Vec<u8> {
    let mut answer =
        format!("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n", body.len())
            .into_bytes();
    answer.extend_from_slice(body);
    answer
}
