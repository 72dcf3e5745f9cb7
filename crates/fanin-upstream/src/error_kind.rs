//! The kinds of failed calls.

use std::fmt;

/// Why a call has no usable answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ErrorKind {
    /// The endpoint refused the connection.
    Refused,
    /// No connection: name not resolved, unreachable, TLS failed, or connecting took too long.
    Connect,
    /// The call's timeout or the request's deadline passed.
    Timeout,
    /// The upstream answered with a status that the call does not accept.
    Status,
    /// The upstream's limit and its waiting queue are full.
    Limit,
    /// The upstream's breaker is open.
    Breaker,
    /// The answer's body is not what its headers say.
    Decode,
    /// The answer is larger than allowed.
    TooLarge,
    /// The upstream broke the protocol or the connection, for example in the middle of a body.
    Protocol,
    /// Nobody needs the call's answer any more.
    Cancelled,
}

impl ErrorKind {
    /// All kinds, in the order of their discriminants.
    pub const ALL: [ErrorKind; 10] = [
        ErrorKind::Refused,
        ErrorKind::Connect,
        ErrorKind::Timeout,
        ErrorKind::Status,
        ErrorKind::Limit,
        ErrorKind::Breaker,
        ErrorKind::Decode,
        ErrorKind::TooLarge,
        ErrorKind::Protocol,
        ErrorKind::Cancelled,
    ];

    /// The kind's name in messages, logs and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            ErrorKind::Refused => "refused",
            ErrorKind::Connect => "connect",
            ErrorKind::Timeout => "timeout",
            ErrorKind::Status => "status",
            ErrorKind::Limit => "limit",
            ErrorKind::Breaker => "breaker",
            ErrorKind::Decode => "decode",
            ErrorKind::TooLarge => "too_large",
            ErrorKind::Protocol => "protocol",
            ErrorKind::Cancelled => "cancelled",
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
