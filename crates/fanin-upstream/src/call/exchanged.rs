//! What an attempt sends and gets, for a log that keeps it.

use crate::error::Failure;
use crate::exchange::{Exchange, ExchangeEnd};
use crate::transport::attempt::{Prepared, Received};

/// The request of an attempt that begins.
#[cold]
pub(super) fn begin(request: &Prepared, operation: Option<u32>, safe: bool, is_streamed: bool) -> Box<Exchange> {
    Box::new(Exchange {
        operation,
        method: request.method.clone(),
        path_and_query: request.path.to_string(),
        headers: request.headers.clone(),
        body: request.body.clone(),
        safe,
        end: if is_streamed { ExchangeEnd::Streamed } else { ExchangeEnd::Open },
    })
}

/// How an attempt ended.
#[cold]
pub(super) fn end(result: &Result<Received, Failure>, is_streamed: bool) -> ExchangeEnd {
    match result {
        Ok(_) if is_streamed => ExchangeEnd::Streamed,
        Ok(received) => ExchangeEnd::Answer {
            status: received.status,
            headers: received.headers.clone(),
            body: received.body.clone(),
        },
        Err(failure) => ExchangeEnd::Failed { kind: failure.kind, detail: failure.detail.clone().into_owned() },
    }
}
