//! Reading a request's body: bounded in size, time and by the in-flight budget.

use std::time::Duration;

use bytes::Bytes;
use http_body::Body;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::time::{Instant, timeout_at};

use super::in_flight::InFlightPermit;
use crate::InferError;

/// A request must arrive in full within this time, whatever its deadline.
pub(super) const MAX_READ_TIME: Duration = Duration::from_secs(30);

/// Why a request's body could not be read.
#[derive(Debug)]
pub(super) enum BodyError {
    /// Larger than allowed.
    TooLarge,
    /// The in-flight budget is used up.
    Full(InferError),
    /// The client aborted it.
    Broken,
    /// It did not arrive in time.
    Late,
}

/// Reads a body of at most `max` bytes until `deadline`. The bytes count against the permit.
pub(super) async fn read_body(
    mut body: Incoming,
    max: usize,
    deadline: Instant,
    permit: &mut InFlightPermit,
) -> Result<Bytes, BodyError> {
    if body.size_hint().lower() > max as u64 {
        return Err(BodyError::TooLarge);
    }
    let mut first: Option<Bytes> = None;
    let mut all: Vec<u8> = Vec::new();
    loop {
        let frame = match timeout_at(deadline, body.frame()).await {
            Err(_) => return Err(BodyError::Late),
            Ok(None) => break,
            Ok(Some(Err(_))) => return Err(BodyError::Broken),
            Ok(Some(Ok(frame))) => frame,
        };
        let Ok(data) = frame.into_data() else { continue };
        if all.len() + first.as_ref().map_or(0, Bytes::len) + data.len() > max {
            return Err(BodyError::TooLarge);
        }
        permit.add(data.len()).map_err(BodyError::Full)?;
        match first.take() {
            // Most bodies are one frame: no copy.
            None if all.is_empty() => first = Some(data),
            None => all.extend_from_slice(&data),
            Some(before) => {
                // The buffer grows with the bytes received, not with the announced length.
                all.extend_from_slice(&before);
                all.extend_from_slice(&data);
            }
        }
    }
    Ok(first.unwrap_or_else(|| all.into()))
}
