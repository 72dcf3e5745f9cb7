//! The outcome of a call: a code, a message, details, trailers.

use bytes::Bytes;
use http::{HeaderMap, StatusCode};

/// The codes by their numbers: names as Connect writes them, and HTTP statuses, as Connect and gateways map them.
const CODES: [(&str, u16); 17] = [
    ("ok", 200),
    ("canceled", 499),
    ("unknown", 500),
    ("invalid_argument", 400),
    ("deadline_exceeded", 504),
    ("not_found", 404),
    ("already_exists", 409),
    ("permission_denied", 403),
    ("resource_exhausted", 429),
    ("failed_precondition", 400),
    ("aborted", 409),
    ("out_of_range", 400),
    ("unimplemented", 501),
    ("internal", 500),
    ("unavailable", 503),
    ("data_loss", 500),
    ("unauthenticated", 401),
];

/// How a call ends.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Status {
    /// The number of the code (`google.rpc.Code`). 0 is success; a number that is none counts as UNKNOWN.
    pub code: u8,
    /// What happened, for people.
    pub message: String,
    /// What happened, for programs.
    pub details: Vec<Detail>,
    /// Metadata that follows the messages.
    pub trailers: Option<Box<HeaderMap>>,
}

/// A message that describes an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Detail {
    /// The full name of the message's type.
    pub kind: String,
    /// The message as protobuf.
    pub value: Bytes,
    /// The message as JSON.
    pub json: Option<Bytes>,
}

impl Status {
    /// A status without details.
    pub fn new(code: u8, message: impl Into<String>) -> Status {
        Status { code, message: message.into(), ..Status::default() }
    }

    /// The code's name as Connect writes it: `not_found`.
    pub(super) fn name(&self) -> &'static str {
        CODES.get(usize::from(self.code)).unwrap_or(&CODES[2]).0
    }

    /// The HTTP status of the code.
    pub fn http(&self) -> StatusCode {
        let status = CODES.get(usize::from(self.code)).unwrap_or(&CODES[2]).1;
        // All numbers in the table are valid statuses.
        StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }
}

/// The code of an HTTP status, as gateways map it (`google.rpc.Code`). A path that no route has is a method that is not implemented.
pub(super) fn code_of(status: StatusCode, kind: &str) -> u8 {
    match (status.as_u16(), kind.rsplit(':').next().unwrap_or_default()) {
        (_, "no-route" | "method-not-allowed") => 12,
        (413 | 429 | 431, _) => 8,
        (400..=499, "body-timeout") => 4,
        (401, _) => 16,
        (403, _) => 7,
        (404, _) => 5,
        (409, _) => 10,
        (412, _) => 9,
        (415 | 501, _) => 12,
        (499, _) => 1,
        (400..=499, _) => 3,
        (502 | 503, _) => 14,
        (504, _) => 4,
        (500, _) => 13,
        _ => 2,
    }
}
