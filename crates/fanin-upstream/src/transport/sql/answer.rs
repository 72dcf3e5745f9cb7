//! Results and errors of databases as answers with a status.

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use tokio::time::Instant;

use crate::error::{ERROR_HEADER, ErrorKind, Failure, error_header_value};
use crate::transport::attempt::Received;

/// A successful answer.
pub(super) fn answer(body: Vec<u8>) -> Received {
    Received { status: StatusCode::OK, headers: HeaderMap::new().into(), body: Bytes::from(body), at: Instant::now() }
}

/// An error of the database as an answer: the status that HTTP would give, JSON for flows, a text for the log.
#[cold]
pub(super) fn error_answer(status: StatusCode, code: &str, message: &str, more: &[(&str, Option<&str>)]) -> Received {
    let mut body = Vec::new();
    let mut out = fanin_json::Writer::new(&mut body);
    out.begin_object();
    for (key, value) in [("code", Some(code)), ("message", Some(message))].iter().chain(more) {
        if let Some(value) = value {
            out.key(key);
            out.str(value);
        }
    }
    out.end_object();
    let mut headers = HeaderMap::new();
    headers.insert(ERROR_HEADER, error_header_value(&format!("{code}: {message}")));
    Received { status, headers: headers.into(), body: Bytes::from(body), at: Instant::now() }
}

/// An error in the call itself: nothing was sent to the database.
#[cold]
pub(super) fn bad_request(message: impl AsRef<str>) -> Received {
    error_answer(StatusCode::BAD_REQUEST, "fanin", message.as_ref(), &[])
}

#[cold]
pub(super) fn too_large(max_answer: usize) -> Failure {
    Failure::new(ErrorKind::TooLarge, format!("the rows are larger than {max_answer} bytes (max_answer)"))
}
