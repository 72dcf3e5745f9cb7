//! Errors of the protocol, as gRPC statuses. HTTP derives its status from them.

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
#[derive(Debug)]
pub(super) struct Status {
    pub code: Code,
    pub message: String,
}

impl Status {
    pub fn new(code: Code, message: impl Into<String>) -> Status {
        Status { code, message: message.into() }
    }
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
