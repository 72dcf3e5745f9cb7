//! What trusted clients set by headers: how long they wait, and the priority.

use std::time::Duration;

use http::request::Parts;
use http::{HeaderName, HeaderValue};

use super::server_responses::ServerResponse;
use crate::client;
use crate::connection::ConnectionState;
use crate::worker::WorkerGeneration;
use crate::{Application, Priority};

/// How long a trusted client still waits, if it says so.
#[cold]
pub(super) fn client_timeout<A: Application>(
    conn: &ConnectionState,
    generation: &WorkerGeneration<A>,
    name: &HeaderName,
    parts: &Parts,
) -> Result<Option<Duration>, ServerResponse> {
    let Some(value) = trusted_header(conn, generation, name, parts) else { return Ok(None) };
    let millis = value.to_str().ok().and_then(|text| text.trim().parse().ok());
    match millis.map(Duration::from_millis) {
        None => Err(ServerResponse::TimeoutHeader(name.clone())),
        Some(Duration::ZERO) => Err(ServerResponse::Deadline),
        sent => Ok(sent),
    }
}

/// The priority that a trusted client sends, if it does.
#[cold]
pub(super) fn client_priority<A: Application>(
    conn: &ConnectionState,
    generation: &WorkerGeneration<A>,
    name: &HeaderName,
    parts: &Parts,
) -> Result<Option<Priority>, ServerResponse> {
    let Some(value) = trusted_header(conn, generation, name, parts) else { return Ok(None) };
    let priority = value.to_str().ok().and_then(|text| text.trim().parse().ok());
    priority.map(Some).ok_or_else(|| ServerResponse::PriorityHeader(name.clone()))
}

/// A header that counts only if the client is in `trusted`.
fn trusted_header<'a, A: Application>(
    conn: &ConnectionState,
    generation: &WorkerGeneration<A>,
    name: &HeaderName,
    parts: &'a Parts,
) -> Option<&'a HeaderValue> {
    let value = parts.headers.get(name)?;
    client::is_trusted(generation.server(), conn.client.remote().ip()).then_some(value)
}
