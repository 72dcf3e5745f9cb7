//! Errors of the protocol, as gRPC statuses. HTTP derives its status from them.

use ::http::{HeaderMap, HeaderValue};

use super::read_body::MAX_READ_TIME;
use crate::InferError;

/// A gRPC status code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Code {
    InvalidArgument = 3,
    DeadlineExceeded = 4,
    NotFound = 5,
    PermissionDenied = 7,
    ResourceExhausted = 8,
    Unimplemented = 12,
    Internal = 13,
    Unavailable = 14,
}

/// A call that failed.
#[derive(Clone, Debug)]
pub(super) struct Status {
    pub code: Code,
    pub message: String,
}

impl Status {
    pub fn new(code: Code, message: impl Into<String>) -> Status {
        Status { code, message: message.into() }
    }

    /// The trailers of a call that went well.
    pub fn ok() -> HeaderMap {
        let mut trailers = HeaderMap::with_capacity(1);
        trailers.insert("grpc-status", HeaderValue::from_static("0"));
        trailers
    }

    /// It as headers or trailers of gRPC.
    pub fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::with_capacity(2);
        headers.insert("grpc-status", HeaderValue::from(self.code as u16));
        // Percent-encoded text is always a valid header value.
        if let Ok(mut message) = HeaderValue::from_str(&percent_encoded(&self.message)) {
            // Sensitive headers stay out of HPACK's table: a message hardly ever repeats and would only evict others.
            message.set_sensitive(true);
            headers.insert("grpc-message", message);
        }
        headers
    }
}

/// gRPC's percent-encoding: everything but printable ASCII, and `%`.
fn percent_encoded(message: &str) -> String {
    let mut text = String::with_capacity(message.len());
    for byte in message.bytes().take(2000) {
        match byte {
            b' '..=b'~' if byte != b'%' => text.push(char::from(byte)),
            _ => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text
}

impl From<InferError> for Status {
    fn from(error: InferError) -> Status {
        let code = match &error {
            InferError::Invalid(_) => Code::InvalidArgument,
            InferError::NotFound(_) => Code::NotFound,
            InferError::Unavailable(_) => Code::Unavailable,
            InferError::Overloaded(_) => Code::ResourceExhausted,
            InferError::Deadline(_) => Code::DeadlineExceeded,
            InferError::Engine(_) => Code::Internal,
        };
        Status::new(code, error.to_string())
    }
}

/// The error of a request whose body did not arrive in time. `deadline_is_later`: the read timeout came before the deadline.
pub(super) fn late(deadline_is_later: bool) -> Status {
    let message = match deadline_is_later {
        false => "the deadline passed before the request had arrived in full".to_owned(),
        true => format!("the request did not arrive in full within {} s", MAX_READ_TIME.as_secs()),
    };
    Status::new(Code::DeadlineExceeded, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_messages_are_percent_encoded() {
        assert_eq!(percent_encoded("100 % of `x`\nü"), "100 %25 of `x`%0A%C3%BC");
    }
}
